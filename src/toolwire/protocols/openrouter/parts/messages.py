"""What OpenRouter's messages say and Chat's can't: proofs of reasoning, cache marks, media in results, more media."""

from collections.abc import Callable
from operator import is_
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import (
    Inline,
    Media,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    ReasoningText,
    Signature,
    Text,
    ToolCall,
    ToolResult,
    Url,
)
from toolwire.canonical.tools import CacheMark
from toolwire.codec.encoding.media import ERROR_MARK, data_url, summarize_binary
from toolwire.codec.encoding.plan import EncodingPlan, IdAndNameRules
from toolwire.codec.encoding.tools import wrap_freeform_input
from toolwire.codec.encoding.turns import LocatedPart, Turn
from toolwire.codec.interface import Target
from toolwire.codec.losses import LossReport, SourcePath, element_pointers
from toolwire.protocols.openai_chat.parts.calls import report_result
from toolwire.protocols.openai_chat.parts.content import encode_parts, report_reasoning, requires_reasoning
from toolwire.protocols.openai_chat.parts.messages import encode_turn as encode_chat_turn
from toolwire.protocols.openai_chat.wire import FAMILY, TextPart
from toolwire.protocols.openrouter.parts.content import (
    DETAILS_FIELD,
    decode_details,
    decode_message_images,
    encode_entries,
    is_known_issuer,
    remove_image_parts,
    restore_details,
)
from toolwire.protocols.openrouter.settings import (
    CACHE_FIELD,
    CACHE_TTLS,
    decode_cache,
    encode_cache,
    without_cache_mark,
)

_AUDIO_FORMATS = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav", "x-m4a": "m4a", "mp4": "m4a", "x-flac": "flac"}


# ---- decode


def decode_dialect(message: Message) -> Message:
    """A message as Chat reads it, with what only this dialect says as what it means."""
    return _map_parts(
        decode_message_images(decode_details(message)) if message.role == "assistant" else message, decode_cache
    )


def _map_parts(message: Message, transform: Callable[[Any], Any]) -> Message:
    """The message with its texts and media changed, those of results, too; the same one if nothing was."""
    parts = tuple([_map_part(part, transform) for part in message.parts])
    return message if all(map(is_, parts, message.parts)) else replace(message, parts=parts)


def _map_part(part: Part, transform: Callable[[Any], Any]) -> Part:
    if isinstance(part, Text | Media):
        made: Part = transform(part)
        return made
    if isinstance(part, ToolResult) and part.content:
        content = tuple([_map_part(inner, transform) for inner in part.content])
        return part if all(map(is_, content, part.content)) else replace(part, content=content)
    return part


# ---- encode, at home


def encode_dialect(message: Message) -> Message:
    """A message of this protocol as Chat would have read it."""
    return _map_parts(restore_details(remove_image_parts(message)), without_cache_mark)


# ---- encode, from another protocol


class DialectPlan(EncodingPlan):
    """`messages` are those of the request. `recalls`: its model refuses its own calls without the reasoning that led to
    them; Chat's encoder is not told which model it is, since it would say so in Chat's way."""

    def __init__(self, rules: IdAndNameRules, target: Target, model: str | None, messages: tuple[Message, ...]) -> None:
        super().__init__(rules, LossReport(), replace(target, model=model), same_protocol=False)
        self.requires_reasoning = requires_reasoning(self)
        self.messages = messages
        self.target = replace(target, model=None)


def encode_turn(turn: Turn, plan: DialectPlan) -> list[Any]:
    own = _openrouter_extras(turn, plan)
    if turn.role == "assistant":
        return _encode_assistant(turn, plan, own)
    messages: list[Any] = []
    said: list[LocatedPart] = []
    for placed in turn.parts:
        part = placed.part
        if isinstance(part, ToolResult) and part.executor == "client":
            messages.append(_encode_result(part, placed, plan))
        else:
            said.append(LocatedPart(adapt_part(part, placed.path, plan), placed.path))
    if said or not messages:
        messages += encode_chat_turn(Turn(turn.role, said, turn.message, turn.path), plan)
    return messages


def _openrouter_extras(turn: Turn, plan: DialectPlan) -> dict[str, Raw]:
    """What a client of Chat wrote of this dialect: it stays on a message of the assistant that is a turn of its own."""
    if turn.message is not None and turn.role == "assistant":
        return (turn.message.extras or {}).get(FAMILY, {})
    merged = [(("messages", number), message) for number, message in turn.messages or ()]
    for trail, message in merged if turn.message is None else [(turn.path, turn.message)]:
        for name, value in (message.extras or {}).get(FAMILY, {}).items():
            for place in element_pointers(value, name):
                plan.report.dropped(trail, f"//{place}", "only a turn of one message can have it, the assistant's")
    return {}


def _encode_assistant(turn: Turn, plan: DialectPlan, extras: dict[str, Raw]) -> list[Any]:
    thinking = _ReasoningEncoder(plan)
    places: list[LocatedPart] = []
    for placed in turn.parts:
        part: Part = placed.part
        if isinstance(part, Reasoning):
            if DETAILS_FIELD in extras:
                thinking.add_plain_text(part)
            else:
                thinking.add(part, placed)
            continue
        if isinstance(part, ToolCall) and part.executor == "server" and part.signature is not None:
            plan.report.dropped((*placed.path, "signature"), "", "a call that is told as text proves nothing")
        elif isinstance(part, ToolCall | Text) and part.signature is not None and is_known_issuer(part.signature):
            thinking.add_signature(part.signature, plan.id_of(placed) if isinstance(part, ToolCall) else None)
            part = replace(part, signature=None)
        places.append(LocatedPart(adapt_part(part, placed.path, plan), placed.path))
    thinking.finish()
    if turn.parts and not places and not extras:
        # It may still be going on: then what is said next belongs to it, and what was sent must stay.
        for placed in thinking.signed_parts:
            plan.report.dropped(placed.path, "", "reasoning that led to nothing has no place")
        return []
    messages = encode_chat_turn(Turn(turn.role, places, turn.message, turn.path), plan)
    if messages and thinking.texts:
        messages[-1]["reasoning"] = "\n\n".join(thinking.texts)
    if messages and thinking.entries:
        messages[-1][DETAILS_FIELD] = thinking.entries
    if messages:
        messages[-1].update(extras)
    return messages


class _ReasoningEncoder:
    """The reasoning of a turn: entries of what is proved, and plain text for a model that wants it back."""

    def __init__(self, plan: DialectPlan) -> None:
        self.entries: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.signed_parts: list[LocatedPart] = []
        self._plan = plan
        self._unsigned_parts: list[LocatedPart] = []

    def add(self, part: Reasoning, located_part: LocatedPart) -> None:
        report_images(part, located_part.path, self._plan.report)
        if part.signature is None or not is_known_issuer(part.signature):
            if not (part.signature is None and is_summary(part)):
                self.finish()
            self._unsigned_parts.append(located_part)
            return
        if part.signature.kind == "encrypted" and part.signature.issuer not in ("anthropic", "google"):
            # What they encrypt stands behind its summary, in an entry of its own.
            for before in self._unsigned_parts:
                content = before.part.content if isinstance(before.part, Reasoning) else ()
                part = replace(part, content=(*content, *part.content))
            self.signed_parts += self._unsigned_parts
            self._unsigned_parts = []
        self.finish()
        number = located_part.path[1]
        id = vendor_item_id(part, number, self._plan.messages) if isinstance(number, int) else part.id
        self.entries += encode_entries(part, id, len(self.entries))
        self.signed_parts.append(located_part)

    def add_plain_text(self, part: Reasoning) -> None:
        """The plain text beside entries that stay as they came."""
        if part.at is not None and not part.at.startswith(f"/{DETAILS_FIELD}"):
            self.texts += [block.text for block in part.content if isinstance(block, ReasoningText)]

    def add_signature(self, signature: Signature, call_id: str | None) -> None:
        self.entries += encode_signature(signature, call_id, len(self.entries))

    def finish(self) -> None:
        """What waited for a proof has none."""
        for placed in self._unsigned_parts:
            if isinstance(placed.part, Reasoning):
                self.texts += _encode_unsigned(placed.part, placed, self._plan)
        self._unsigned_parts = []


def report_images(part: Reasoning, path: SourcePath, report: LossReport) -> None:
    for index, block in enumerate(part.content):
        if isinstance(block, Media):
            report.dropped((*path, "content", index), "", "the target's reasoning is text only")


def is_summary(part: Reasoning) -> bool:
    return bool(part.content) and all(isinstance(one, ReasoningText) and one.kind == "summary" for one in part.content)


def _encode_unsigned(part: Reasoning, located_part: LocatedPart, plan: DialectPlan) -> list[str]:
    """The plain text of a reasoning that nobody proves, for models that refuse their own calls without it."""
    if not plan.requires_reasoning:
        plan.report.dropped(located_part.path, "", "reasoning goes only to a provider that sealed it")
        return []
    report_reasoning(part, located_part, plan)
    return [block.text for block in part.content if isinstance(block, ReasoningText)]


def vendor_item_id(part: Reasoning, number: int, messages: tuple[Message, ...]) -> str | None:
    """What its vendor calls a reasoning: where each is an item of its own, that is the name of its message."""
    return messages[number].id if part.id is None and is_reasoning_item(messages[number]) else part.id


def is_reasoning_item(message: Message) -> bool:
    return len(message.parts) == 1 and isinstance(message.parts[0], Reasoning)


def encode_signature(signature: Signature, call_id: str | None, index: int) -> list[dict[str, Any]]:
    """A seal that stood on a text or a call: here only reasoning has one, and a call is named by its id."""
    kind = "encrypted" if call_id is not None else "signature"
    return encode_entries(Reasoning(signature=replace(signature, kind=kind)), call_id, index)


def adapt_part(part: Part, path: SourcePath, plan: EncodingPlan) -> Part:
    """A part as Chat's encoder will write it for this dialect."""
    match part:
        case Text(cache=CacheMark() as mark) if mark.ttl in CACHE_TTLS and CACHE_FIELD not in (part.extras or {}).get(
            FAMILY, {}
        ):
            return replace(
                part, cache=None, extras={FAMILY: {CACHE_FIELD: Raw(msgspec.json.encode(encode_cache(mark)))}}
            )
        case Media():
            return _adapt_media(part, path, plan)
        case ToolCall(shape="freeform", executor="client"):
            return replace(part, shape="json", arguments=wrap_freeform_input(part.arguments))
        case _:
            return part


def _adapt_media(part: Media, path: SourcePath, plan: EncodingPlan) -> Part:
    """Media that Chat has no part for, or only of fewer kinds."""
    body: dict[str, Any] | None = None
    match part.source:
        case Inline() as source if part.kind == "video":
            body = {"type": "video_url", "video_url": {"url": data_url(source.data, part.media_type)}}
        case Url() as source if part.kind == "video":
            body = {"type": "video_url", "video_url": {"url": source.url}}
        case Url() as source if part.kind == "document":
            file = {"file_data": source.url} | ({} if part.name is None else {"filename": part.name})
            body = {"type": "file", "file": file}
        case Inline() as source if part.kind == "audio" and part.media_type is not None:
            word = part.media_type.removeprefix("audio/").partition(";")[0]
            body = {
                "type": "input_audio",
                "input_audio": {"data": source.data, "format": _AUDIO_FORMATS.get(word, word)},
            }
        case _:
            if part.cache is not None:
                plan.report.dropped((*path, "cache"), "", "the target has cache marks on text only")
            return replace(part, cache=None)
    if isinstance(part.source, Url) and part.media_type is not None:
        plan.report.dropped(path, "media_type", "the target asks the address for it")
    for field in ("detail", "name"):
        if getattr(part, field) is not None and not (field == "name" and part.kind == "document"):
            plan.report.dropped(path, field)
    for field in ("signature", "cache"):
        if getattr(part, field) is not None:
            plan.report.dropped((*path, field), "", "the target has no place for it on media")
    return OpaquePart(protocol=FAMILY, kind=str(body["type"]), body=Raw(msgspec.json.encode(body)))


def _encode_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> dict[str, Any]:
    """The message of one result, with its media where they belong."""
    report_result(replace(part, cache=None), located_part, plan)
    places = [
        LocatedPart(inner, (*located_part.path, "content", index)) for index, inner in enumerate(part.content or ())
    ]
    if plan.target.binary_results == "summary":
        places = summarize_binary(places, plan.report)
    content = encode_parts([LocatedPart(adapt_part(one.part, one.path, plan), one.path) for one in places], plan)
    if part.status != "ok":
        _mark_failed(content)
    if part.cache is not None:
        _mark_cached(content, part.cache, located_part, plan)
    only = content[0] if len(content) == 1 else None
    plain = isinstance(only, TextPart) and only.prompt_cache_breakpoint is msgspec.UNSET
    body = {"role": "tool", "tool_call_id": plan.call_id(part.call_id or "")}
    return {**body, "content": only.text if plain and isinstance(only, TextPart) else content or ""}


def _mark_failed(content: list[Any]) -> None:
    first = content[0] if content else None
    if isinstance(first, TextPart):
        first.text = ERROR_MARK + first.text
    elif isinstance(first, dict) and isinstance(first.get("text"), str):
        first["text"] = ERROR_MARK + first["text"]
    else:
        content.insert(0, TextPart(text=ERROR_MARK))


def _mark_cached(content: list[Any], mark: CacheMark, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """A mark on a whole result stands on its last part here, and only text can have one."""
    last = content[-1] if content else None
    if not isinstance(last, TextPart):
        plan.report.dropped((*located_part.path, "cache"), "", "the target has cache marks on text only")
        return
    if mark.ttl not in CACHE_TTLS:
        plan.report.approximated((*located_part.path, "cache"), "ttl", f"{mark.ttl} is told as 1h")
        mark = replace(mark, ttl="1h")
    content[-1] = {"type": "text", "text": last.text, CACHE_FIELD: encode_cache(mark)}
