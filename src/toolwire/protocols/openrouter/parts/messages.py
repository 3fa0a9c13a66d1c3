"""Messages of OpenRouter: what they have beyond Chat's.

These are signed reasoning, cache marks, media in tool results and more kinds of media.
"""

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
from toolwire.canonical.request import Request
from toolwire.canonical.tools import CacheMark
from toolwire.codec.encoding.fallbacks import report_reasoning
from toolwire.codec.encoding.media import ERROR_MARK, data_url, summarize_binary
from toolwire.codec.encoding.plan import FORM_REASON, MOVING_MARKS, EncodingPlan, IdAndNameRules
from toolwire.codec.encoding.tools import wrap_freeform_input
from toolwire.codec.encoding.turns import LocatedPart, Turn
from toolwire.codec.interface import Target
from toolwire.codec.losses import LossReport, SourcePath, element_pointers
from toolwire.protocols.openai_chat.parts.calls import report_result
from toolwire.protocols.openai_chat.parts.content import encode_parts
from toolwire.protocols.openai_chat.parts.messages import encode_turn as encode_chat_turn
from toolwire.protocols.openai_chat.parts.reasoning import requires_reasoning
from toolwire.protocols.openai_chat.wire import FAMILY, TextPart
from toolwire.protocols.openrouter.parts.content import (
    DEFAULT_ISSUER,
    DETAILS_FIELD,
    MODEL_ISSUERS,
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
    """Return a message from Chat's decoder with the fields that OpenRouter adds to Chat decoded."""
    return _map_parts(
        decode_message_images(decode_details(message)) if message.role == "assistant" else message, decode_cache
    )


def _map_parts(message: Message, transform: Callable[[Any], Any]) -> Message:
    """Apply `transform` to texts and media, including those in results.

    Return the same message if nothing changes.
    """
    parts = tuple([_map_part(part, transform) for part in message.parts])
    return message if all(map(is_, parts, message.parts)) else replace(message, parts=parts)


def _map_part(part: Part, transform: Callable[[Any], Any]) -> Part:
    """Apply `transform` to a text or media, or to those in a result; return other parts unchanged."""
    if isinstance(part, Text | Media):
        transformed: Part = transform(part)
        return transformed
    if isinstance(part, ToolResult) and part.content:
        content = tuple([_map_part(inner, transform) for inner in part.content])
        return part if all(map(is_, content, part.content)) else replace(part, content=content)
    return part


# ---- encode for the same protocol


def encode_dialect(message: Message) -> Message:
    """Return an OpenRouter message with its additions moved to the extras, for Chat's encoder to write."""
    return _map_parts(restore_details(remove_image_parts(message)), without_cache_mark)


# ---- encode for other protocols


class DialectPlan(EncodingPlan):
    """An encoding plan with the messages of the request."""

    last_mark: CacheMark | None = None  # of a message, sent as the mark of the request

    def __init__(self, rules: IdAndNameRules, target: Target, model: str | None, request: Request) -> None:
        super().__init__(rules, LossReport(), replace(target, model=model), same_protocol=False)
        self.requires_reasoning = requires_reasoning(self)  # the model rejects its calls without their reasoning
        self.messages = request.messages
        self.has_moving_marks = request.origin in MOVING_MARKS
        self._issuers = MODEL_ISSUERS.get((model or "").partition("/")[0])  # None: any
        self.target = replace(target, model=None)  # Chat's encoder would apply its rules for the model

    def accepts_signature(self, signature: Signature) -> bool:
        """Return whether `reasoning_details` can hold a signature, and the model's vendor may have issued it."""
        return is_known_issuer(signature) and (
            self._issuers is None or signature.issuer in self._issuers or signature.issuer == DEFAULT_ISSUER
        )

    def lift_mark(self, mark: CacheMark, path: SourcePath) -> None:
        """Send the mark of a message at `path` as the request's, which the provider sets on the last message."""
        self.last_mark = mark
        self.report.approximated((*path, "cache"), "", f"sent as the mark of the request: {FORM_REASON}")


def encode_turn(turn: Turn, plan: DialectPlan) -> list[Any]:
    """Encode one turn of another protocol as messages."""
    extras = _openrouter_extras(turn, plan)
    if plan.has_moving_marks and turn.path != ("system",):
        turn = _lift_only_mark(turn, plan)
    if turn.role == "assistant":
        return _encode_assistant(turn, plan, extras)
    messages: list[Any] = []
    content: list[LocatedPart] = []
    for located_part in turn.parts:
        part = located_part.part
        if isinstance(part, ToolResult) and part.executor == "client":
            messages.append(_encode_result(part, located_part, plan))
        else:
            content.append(LocatedPart(adapt_part(part, located_part.path, plan), located_part.path))
    if content or not messages:
        messages += encode_chat_turn(Turn(turn.role, content, turn.message, turn.path), plan)
    return messages


def _lift_only_mark(turn: Turn, plan: DialectPlan) -> Turn:
    """Return the turn without the mark of its only text, which is sent as a string."""
    content = [located for located in turn.parts if not isinstance(located.part, ToolCall | ToolResult | Reasoning)]
    part = content[0].part if len(content) == 1 else None
    if not isinstance(part, Text) or part.cache is None:
        return turn
    plan.lift_mark(part.cache, content[0].path)
    unmarked = LocatedPart(replace(part, cache=None), content[0].path)
    located_parts = [unmarked if located is content[0] else located for located in turn.parts]
    return Turn(turn.role, located_parts, turn.message, turn.path)


def _openrouter_extras(turn: Turn, plan: DialectPlan) -> dict[str, Raw]:
    """Return the OpenRouter fields that a client of Chat set on an assistant message, by name.

    Those on other messages, and on messages merged into one turn, are reported.
    """
    if turn.message is not None and turn.role == "assistant":
        return (turn.message.extras or {}).get(FAMILY, {})
    merged = [(("messages", number), message) for number, message in turn.messages or ()]
    for path, message in merged if turn.message is None else [(turn.path, turn.message)]:
        for name, value in (message.extras or {}).get(FAMILY, {}).items():
            for pointer in element_pointers(value, name):
                plan.report.dropped(
                    path, f"//{pointer}", "the target supports it only on single-message assistant turns"
                )
    return {}


def _encode_assistant(turn: Turn, plan: DialectPlan, extras: dict[str, Raw]) -> list[Any]:
    """Encode an assistant turn with its reasoning and signatures."""
    reasoning = _ReasoningEncoder(plan)
    content: list[LocatedPart] = []
    moved_parts: list[LocatedPart] = []
    for located_part in turn.parts:
        part: Part = located_part.part
        if isinstance(part, Reasoning):
            if DETAILS_FIELD in extras:
                reasoning.add_plain_text(part)
            else:
                reasoning.add(part, located_part)
            moved_parts += [located_part] if content else []
            continue
        if isinstance(part, ToolCall | Text) and part.signature is not None:
            part = _take_signature(part, part.signature, located_part, reasoning, plan)
        content.append(LocatedPart(adapt_part(part, located_part.path, plan), located_part.path))
    reasoning.finish()
    # A turn of reasoning alone may still be in progress; messages already sent must not change when it continues.
    has_content = content or extras or not turn.parts
    messages = encode_chat_turn(Turn(turn.role, content, turn.message, turn.path), plan) if has_content else []
    if not messages:
        for located_part in reasoning.sent_parts:
            plan.report.dropped(located_part.path, "", "the turn contains only reasoning")
        return []
    sent_paths = {located_part.path for located_part in reasoning.sent_parts}
    for located_part in moved_parts:
        if located_part.path in sent_paths:
            plan.report.approximated(located_part.path, "", "reasoning moved before text and calls")
    messages[-1].update(reasoning.message_fields(), **extras)
    return messages


def _take_signature(
    part: ToolCall | Text,
    signature: Signature,
    located_part: LocatedPart,
    reasoning: "_ReasoningEncoder",
    plan: DialectPlan,
) -> Part:
    """Move the signature of a text or call to `reasoning`, which writes `reasoning_details`.

    Return the part without it, or unchanged if `reasoning_details` cannot hold the signature.
    """
    is_call = isinstance(part, ToolCall)
    if isinstance(part, ToolCall) and part.executor == "server":
        plan.report.dropped((*located_part.path, "signature"), "", "a call sent as text cannot have a signature")
        return part
    if not plan.accepts_signature(signature):
        return part
    reasoning.add_signature(signature, plan.id_of(located_part) if is_call else None)
    return replace(part, signature=None)


class _ReasoningEncoder:
    """The reasoning of a turn: signed entries, and plain text for models that require it."""

    def __init__(self, plan: DialectPlan) -> None:
        self.entries: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.sent_parts: list[LocatedPart] = []
        self._plan = plan
        self._unsigned_parts: list[LocatedPart] = []  # summaries that may belong to an encrypted entry

    def message_fields(self) -> dict[str, Any]:
        """Return the reasoning fields of the assistant message."""
        fields: dict[str, Any] = {"reasoning": "\n\n".join(self.texts)} if self.texts else {}
        return fields | ({DETAILS_FIELD: self.entries} if self.entries else {})

    def add(self, part: Reasoning, located_part: LocatedPart) -> None:
        """Add reasoning; an unsigned summary is held back, since an encrypted part that belongs to it may follow."""
        report_images(part, located_part.path, self._plan.report)
        if part.signature is None or not self._plan.accepts_signature(part.signature):
            if not (part.signature is None and is_summary(part)):
                self.finish()
            self._unsigned_parts.append(located_part)
            return
        if part.signature.kind == "encrypted" and part.signature.issuer not in ("anthropic", "google"):
            # These issuers send encrypted content after its summary, in an entry of its own.
            for summary in self._unsigned_parts:
                content = summary.part.content if isinstance(summary.part, Reasoning) else ()
                part = replace(part, content=(*content, *part.content))
            self.sent_parts += self._unsigned_parts
            self._unsigned_parts = []
        self.finish()
        number = located_part.path[1]
        id = vendor_item_id(part, number, self._plan.messages) if isinstance(number, int) else part.id
        self.entries += encode_entries(part, id, len(self.entries))
        self.sent_parts.append(located_part)

    def add_plain_text(self, part: Reasoning) -> None:
        """Add only the text of reasoning whose `reasoning_details` are sent unchanged."""
        if part.at is not None and not part.at.startswith(f"/{DETAILS_FIELD}"):
            self.texts += [block.text for block in part.content if isinstance(block, ReasoningText)]

    def add_signature(self, signature: Signature, call_id: str | None) -> None:
        """Add the signature of a text, or of the call with this id."""
        self.entries += encode_signature(signature, call_id, len(self.entries))

    def finish(self) -> None:
        """Encode a summary that is still held back, which turned out to be unsigned."""
        for located_part in self._unsigned_parts:
            if isinstance(located_part.part, Reasoning) and (
                texts := _encode_unsigned(located_part.part, located_part, self._plan)
            ):
                self.texts += texts
                self.sent_parts.append(located_part)
        self._unsigned_parts = []


def report_images(part: Reasoning, path: SourcePath, report: LossReport) -> None:
    """Report as losses the images in reasoning."""
    for index, block in enumerate(part.content):
        if isinstance(block, Media):
            report.dropped((*path, "content", index), "", "thinking of the target is text only")


def is_summary(part: Reasoning) -> bool:
    """Return whether reasoning consists of summaries only."""
    return bool(part.content) and all(
        isinstance(block, ReasoningText) and block.kind == "summary" for block in part.content
    )


def _encode_unsigned(part: Reasoning, located_part: LocatedPart, plan: DialectPlan) -> list[str]:
    """Return the texts of unsigned reasoning if the model requires it; else report it and return none."""
    if not plan.requires_reasoning:
        plan.report.dropped(located_part.path, "", "the target only accepts reasoning that it signed")
        return []
    report_reasoning(part, located_part, plan)
    number = located_part.path[1]
    if isinstance(number, int) and is_reasoning_item(plan.messages[number]) and plan.messages[number].id is not None:
        plan.report.dropped(("messages", number), "id")
    return [block.text for block in part.content if isinstance(block, ReasoningText)]


def vendor_item_id(part: Reasoning, number: int, messages: tuple[Message, ...]) -> str | None:
    """Return the issuer's id for reasoning; one from a Responses item has it on message `number`."""
    return messages[number].id if part.id is None and is_reasoning_item(messages[number]) else part.id


def is_reasoning_item(message: Message) -> bool:
    """Return whether a message holds reasoning only, like a reasoning item of the Responses API."""
    return len(message.parts) == 1 and isinstance(message.parts[0], Reasoning)


def encode_signature(signature: Signature, call_id: str | None, index: int) -> list[dict[str, Any]]:
    """Encode the signature of a text or call as an element of `reasoning_details`, in a list.

    A call is identified by its id. `index` is the index of the element in its message.
    """
    kind = "encrypted" if call_id is not None else "signature"
    return encode_entries(Reasoning(signature=replace(signature, kind=kind)), call_id, index)


def adapt_part(part: Part, path: SourcePath, plan: EncodingPlan) -> Part:
    """Return a part that Chat's encoder writes as OpenRouter expects it."""
    match part:
        case Text(cache=CacheMark() as mark) if mark.ttl in CACHE_TTLS and CACHE_FIELD not in (part.extras or {}).get(
            FAMILY, {}
        ):
            plan.cache_marks += 1
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
    """Return media that Chat's encoder would not accept as an opaque part of OpenRouter, else as media."""
    if (body := _encode_dialect_media(part)) is None:
        if part.cache is not None:
            plan.report.dropped((*path, "cache"), "", "the target has cache marks on text only")
        return replace(part, cache=None)
    if isinstance(part.source, Url) and part.media_type is not None:
        plan.report.dropped(path, "media_type", "the target reads it from the URL")
    for field in ("detail", "name"):
        if getattr(part, field) is not None and not (field == "name" and part.kind == "document"):
            plan.report.dropped(path, field)
    for field in ("signature", "cache"):
        if getattr(part, field) is not None:
            plan.report.dropped((*path, field), "")
    return OpaquePart(protocol=FAMILY, kind=str(body["type"]), body=Raw(msgspec.json.encode(body)))


def _encode_dialect_media(part: Media) -> dict[str, Any] | None:
    """Encode video, documents by URL and audio of any format; None for media that Chat's encoder handles."""
    match part.source:
        case Inline() as source if part.kind == "video":
            return {"type": "video_url", "video_url": {"url": data_url(source.data, part.media_type)}}
        case Url() as source if part.kind == "video":
            return {"type": "video_url", "video_url": {"url": source.url}}
        case Url() as source if part.kind == "document":
            file = {"file_data": source.url} | ({} if part.name is None else {"filename": part.name})
            return {"type": "file", "file": file}
        case Inline() as source if part.kind == "audio" and part.media_type is not None:
            subtype = part.media_type.removeprefix("audio/").partition(";")[0]
            audio = {"data": source.data, "format": _AUDIO_FORMATS.get(subtype, subtype)}
            return {"type": "input_audio", "input_audio": audio}
        case _:
            return None


def _encode_result(part: ToolResult, located_part: LocatedPart, plan: DialectPlan) -> dict[str, Any]:
    """Encode a result as a `tool` message, which may hold media."""
    if plan.has_moving_marks:
        part = _lift_inner_mark(part, located_part, plan)
    report_result(replace(part, cache=None), located_part, plan)
    located_parts = [
        LocatedPart(inner, (*located_part.path, "content", index)) for index, inner in enumerate(part.content or ())
    ]
    if plan.target.binary_results == "summary":
        located_parts = summarize_binary(located_parts, plan.report)
    content = encode_parts(
        [LocatedPart(adapt_part(inner.part, inner.path, plan), inner.path) for inner in located_parts], plan
    )
    if part.status != "ok":
        _mark_failed(content)
    if part.cache is not None and plan.has_moving_marks and len(content) == 1 and isinstance(content[0], TextPart):
        plan.lift_mark(part.cache, located_part.path)
    elif part.cache is not None:
        _mark_cached(content, part.cache, located_part, plan)
    only_part = content[0] if len(content) == 1 else None
    is_plain = isinstance(only_part, TextPart) and only_part.prompt_cache_breakpoint is msgspec.UNSET
    body = {"role": "tool", "tool_call_id": plan.call_id(part.call_id or "")}
    return {**body, "content": only_part.text if is_plain and isinstance(only_part, TextPart) else content or ""}


def _lift_inner_mark(part: ToolResult, located_part: LocatedPart, plan: DialectPlan) -> ToolResult:
    """Return a result without the cache mark of its only text, which is sent as a string."""
    text = part.content[0] if part.content is not None and len(part.content) == 1 else None
    if not isinstance(text, Text) or text.cache is None:
        return part
    plan.lift_mark(text.cache, (*located_part.path, "content", 0))
    return replace(part, content=(replace(text, cache=None),))


def _mark_failed(content: list[Any]) -> None:
    """Put the error mark before the encoded content of a failed result."""
    first = content[0] if content else None
    if isinstance(first, TextPart):
        first.text = ERROR_MARK + first.text
    elif isinstance(first, dict) and isinstance(first.get("text"), str):
        first["text"] = ERROR_MARK + first["text"]
    else:
        content.insert(0, TextPart(text=ERROR_MARK))


def _mark_cached(content: list[Any], mark: CacheMark, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """Put the cache mark of a result on the last encoded part, which must be text; else report it."""
    last = content[-1] if content else None
    if not isinstance(last, TextPart):
        plan.report.dropped((*located_part.path, "cache"), "", "the target has cache marks on text only")
        return
    if mark.ttl not in CACHE_TTLS:
        plan.report.approximated((*located_part.path, "cache"), "ttl", f"{mark.ttl} sent as 1h")
        mark = replace(mark, ttl="1h")
    content[-1] = {"type": "text", "text": last.text, CACHE_FIELD: encode_cache(mark)}
