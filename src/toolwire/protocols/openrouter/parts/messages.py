"""What OpenRouter's messages say and Chat's can't: proofs of reasoning, cache marks, media in results, more media."""

from collections.abc import Callable
from operator import is_
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import (
    Foreign,
    Inline,
    Media,
    Message,
    Part,
    Reasoning,
    ReasoningText,
    Seal,
    Text,
    ToolCall,
    ToolResult,
    Url,
)
from toolwire.canonical.tools import CacheMark
from toolwire.codec.interface import Target
from toolwire.codec.losses import Report, Trail, elements
from toolwire.codec.media import ERROR_MARK, data_url, summed_up
from toolwire.codec.plan import Plan, Rules
from toolwire.codec.tools import lower_input
from toolwire.codec.turns import Placed, Turn
from toolwire.protocols.openai_chat.parts.calls import report_result
from toolwire.protocols.openai_chat.parts.content import encode_parts
from toolwire.protocols.openai_chat.parts.messages import encode_turn as encode_chat_turn
from toolwire.protocols.openai_chat.parts.reasoning import report_reasoning, wants_reasoning
from toolwire.protocols.openai_chat.wire import FAMILY, TextPart
from toolwire.protocols.openrouter.request.settings import CACHE, TTLS, encode_cache, lift_cache, unmarked

from .details import FIELD, as_it_came, can_prove, encode_entries, lift_message
from .images import lift_images, lower_images

_AUDIO = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav", "x-m4a": "m4a", "mp4": "m4a", "x-flac": "flac"}


# ---- decode


def lift(message: Message) -> Message:
    """A message as Chat reads it, with what only this dialect says as what it means."""
    return _each(lift_images(lift_message(message)) if message.role == "assistant" else message, lift_cache)


def _each(message: Message, change: Callable[[Any], Any]) -> Message:
    """The message with its texts and media changed, those of results, too; the same one if nothing was."""
    parts = tuple([_changed(part, change) for part in message.parts])
    return message if all(map(is_, parts, message.parts)) else replace(message, parts=parts)


def _changed(part: Part, change: Callable[[Any], Any]) -> Part:
    if isinstance(part, Text | Media):
        made: Part = change(part)
        return made
    if isinstance(part, ToolResult) and part.content:
        content = tuple([_changed(inner, change) for inner in part.content])
        return part if all(map(is_, content, part.content)) else replace(part, content=content)
    return part


# ---- encode, at home


def lower(message: Message) -> Message:
    """A message of this protocol as Chat would have read it."""
    return _each(as_it_came(lower_images(message)), unmarked)


# ---- encode, from another protocol


class DialectPlan(Plan):
    """`messages` are those of the request. `recalls`: its model refuses its own calls without the reasoning that led to
    them; Chat's encoder is not told which model it is, since it would say so in Chat's way."""

    def __init__(self, rules: Rules, target: Target, model: str | None, messages: tuple[Message, ...]) -> None:
        super().__init__(rules, Report(), replace(target, model=model), home=False)
        self.recalls = wants_reasoning(self)
        self.messages = messages
        self.target = replace(target, model=None)


def encode_turn(turn: Turn, plan: DialectPlan) -> list[Any]:
    own = _own_fields(turn, plan)
    if turn.role == "assistant":
        return _encode_assistant(turn, plan, own)
    messages: list[Any] = []
    said: list[Placed] = []
    for placed in turn.parts:
        part = placed.part
        if isinstance(part, ToolResult) and part.executor == "client":
            messages.append(_encode_result(part, placed, plan))
        else:
            said.append(Placed(shown(part, placed.trail, plan), placed.trail))
    if said or not messages:
        messages += encode_chat_turn(Turn(turn.role, said, turn.message, turn.trail), plan)
    return messages


def _own_fields(turn: Turn, plan: DialectPlan) -> dict[str, Raw]:
    """What a client of Chat wrote of this dialect: it stays on a message of the assistant that is a turn of its own."""
    if turn.message is not None and turn.role == "assistant":
        return (turn.message.extras or {}).get(FAMILY, {})
    merged = [(("messages", number), message) for number, message in turn.messages or ()]
    for trail, message in merged if turn.message is None else [(turn.trail, turn.message)]:
        for name, value in (message.extras or {}).get(FAMILY, {}).items():
            for place in elements(value, name):
                plan.report.dropped(trail, f"//{place}", "only a turn of one message can have it, the assistant's")
    return {}


def _encode_assistant(turn: Turn, plan: DialectPlan, own: dict[str, Raw]) -> list[Any]:
    thinking = _Thinking(plan)
    places: list[Placed] = []
    for placed in turn.parts:
        part: Part = placed.part
        if isinstance(part, Reasoning):
            if FIELD in own:
                thinking.repeat(part)
            else:
                thinking.add(part, placed)
            continue
        if isinstance(part, ToolCall) and part.executor == "server" and part.seal is not None:
            plan.report.dropped((*placed.trail, "seal"), "", "a call that is told as text proves nothing")
        elif isinstance(part, ToolCall | Text) and part.seal is not None and can_prove(part.seal):
            thinking.prove(part.seal, plan.id_of(placed) if isinstance(part, ToolCall) else None)
            part = replace(part, seal=None)
        places.append(Placed(shown(part, placed.trail, plan), placed.trail))
    thinking.finish()
    if turn.parts and not places and not own:
        # It may still be going on: then what is said next belongs to it, and what was sent must stay.
        for placed in thinking.proved:
            plan.report.dropped(placed.trail, "", "reasoning that led to nothing has no place")
        return []
    messages = encode_chat_turn(Turn(turn.role, places, turn.message, turn.trail), plan)
    if messages and thinking.texts:
        messages[-1]["reasoning"] = "\n\n".join(thinking.texts)
    if messages and thinking.entries:
        messages[-1][FIELD] = thinking.entries
    if messages:
        messages[-1].update(own)
    return messages


class _Thinking:
    """The reasoning of a turn: entries of what is proved, and plain text for a model that wants it back."""

    def __init__(self, plan: DialectPlan) -> None:
        self.entries: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.proved: list[Placed] = []
        self._plan = plan
        self._waiting: list[Placed] = []

    def add(self, part: Reasoning, placed: Placed) -> None:
        report_images(part, placed.trail, self._plan.report)
        if part.seal is None or not can_prove(part.seal):
            if not (part.seal is None and is_summary(part)):
                self.finish()
            self._waiting.append(placed)
            return
        if part.seal.kind == "encrypted" and part.seal.issuer not in ("anthropic", "google"):
            # What they encrypt stands behind its summary, in an entry of its own.
            for before in self._waiting:
                content = before.part.content if isinstance(before.part, Reasoning) else ()
                part = replace(part, content=(*content, *part.content))
            self.proved += self._waiting
            self._waiting = []
        self.finish()
        number = placed.trail[1]
        id = item_id(part, number, self._plan.messages) if isinstance(number, int) else part.id
        self.entries += encode_entries(part, id, len(self.entries))
        self.proved.append(placed)

    def repeat(self, part: Reasoning) -> None:
        """The plain text beside entries that stay as they came."""
        if part.at is not None and not part.at.startswith(f"/{FIELD}"):
            self.texts += [block.text for block in part.content if isinstance(block, ReasoningText)]

    def prove(self, seal: Seal, call_id: str | None) -> None:
        self.entries += encode_proof(seal, call_id, len(self.entries))

    def finish(self) -> None:
        """What waited for a proof has none."""
        for placed in self._waiting:
            if isinstance(placed.part, Reasoning):
                self.texts += _unproved(placed.part, placed, self._plan)
        self._waiting = []


def report_images(part: Reasoning, trail: Trail, report: Report) -> None:
    for index, block in enumerate(part.content):
        if isinstance(block, Media):
            report.dropped((*trail, "content", index), "", "the target's reasoning is text only")


def is_summary(part: Reasoning) -> bool:
    return bool(part.content) and all(isinstance(one, ReasoningText) and one.kind == "summary" for one in part.content)


def _unproved(part: Reasoning, placed: Placed, plan: DialectPlan) -> list[str]:
    """The plain text of a reasoning that nobody proves, for models that refuse their own calls without it."""
    if not plan.recalls:
        plan.report.dropped(placed.trail, "", "reasoning goes only to a provider that sealed it")
        return []
    report_reasoning(part, placed, plan)
    return [block.text for block in part.content if isinstance(block, ReasoningText)]


def item_id(part: Reasoning, number: int, messages: tuple[Message, ...]) -> str | None:
    """What its vendor calls a reasoning: where each is an item of its own, that is the name of its message."""
    return messages[number].id if part.id is None and is_item(messages[number]) else part.id


def is_item(message: Message) -> bool:
    return len(message.parts) == 1 and isinstance(message.parts[0], Reasoning)


def encode_proof(seal: Seal, call_id: str | None, index: int) -> list[dict[str, Any]]:
    """A seal that stood on a text or a call: here only reasoning has one, and a call is named by its id."""
    kind = "encrypted" if call_id is not None else "signature"
    return encode_entries(Reasoning(seal=replace(seal, kind=kind)), call_id, index)


def shown(part: Part, trail: Trail, plan: Plan) -> Part:
    """A part as Chat's encoder will write it for this dialect."""
    match part:
        case Text(cache=CacheMark() as mark) if mark.ttl in TTLS and CACHE not in (part.extras or {}).get(FAMILY, {}):
            return replace(part, cache=None, extras={FAMILY: {CACHE: Raw(msgspec.json.encode(encode_cache(mark)))}})
        case Media():
            return _shown_media(part, trail, plan)
        case ToolCall(shape="freeform", executor="client"):
            return replace(part, shape="json", arguments=lower_input(part.arguments))
        case _:
            return part


def _shown_media(part: Media, trail: Trail, plan: Plan) -> Part:
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
            body = {"type": "input_audio", "input_audio": {"data": source.data, "format": _AUDIO.get(word, word)}}
        case _:
            if part.cache is not None:
                plan.report.dropped((*trail, "cache"), "", "the target has cache marks on text only")
            return replace(part, cache=None)
    if isinstance(part.source, Url) and part.media_type is not None:
        plan.report.dropped(trail, "media_type", "the target asks the address for it")
    for field in ("detail", "name"):
        if getattr(part, field) is not None and not (field == "name" and part.kind == "document"):
            plan.report.dropped(trail, field)
    for field in ("seal", "cache"):
        if getattr(part, field) is not None:
            plan.report.dropped((*trail, field), "", "the target has no place for it on media")
    return Foreign(protocol=FAMILY, kind=str(body["type"]), body=Raw(msgspec.json.encode(body)))


def _encode_result(part: ToolResult, placed: Placed, plan: Plan) -> dict[str, Any]:
    """The message of one result, with its media where they belong."""
    report_result(replace(part, cache=None), placed, plan)
    places = [Placed(inner, (*placed.trail, "content", index)) for index, inner in enumerate(part.content or ())]
    if plan.target.binary_results == "summary":
        places = summed_up(places, plan.report)
    content = encode_parts([Placed(shown(one.part, one.trail, plan), one.trail) for one in places], plan)
    if part.status != "ok":
        _mark_failed(content)
    if part.cache is not None:
        _mark_cached(content, part.cache, placed, plan)
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


def _mark_cached(content: list[Any], mark: CacheMark, placed: Placed, plan: Plan) -> None:
    """A mark on a whole result stands on its last part here, and only text can have one."""
    last = content[-1] if content else None
    if not isinstance(last, TextPart):
        plan.report.dropped((*placed.trail, "cache"), "", "the target has cache marks on text only")
        return
    if mark.ttl not in TTLS:
        plan.report.approximated((*placed.trail, "cache"), "ttl", f"{mark.ttl} is told as 1h")
        mark = replace(mark, ttl="1h")
    content[-1] = {"type": "text", "text": last.text, CACHE: encode_cache(mark)}
