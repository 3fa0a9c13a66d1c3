"""The items of the Responses API, to canonical messages and back: one message for each item."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import (
    Foreign,
    ItemRef,
    Message,
    Part,
    Reasoning,
    Role,
    SettingChange,
    Text,
    ToolCall,
    ToolChange,
    ToolResult,
)
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.tools import Tool, ToolGroup
from toolwire.codec.connectors import is_connected
from toolwire.codec.fields import BAD_JSON, Other, Reader, tag_of
from toolwire.codec.hosted import in_words
from toolwire.codec.kept import as_object, emit, given, known, rest, restore
from toolwire.codec.media import ERROR_MARK
from toolwire.codec.turns import Placed
from toolwire.protocols.openai_responses.request.settings import (
    decode_output,
    decode_thinking,
    encode_output,
    encode_thinking,
)
from toolwire.protocols.openai_responses.request.tools import decode_tools, encode_tool
from toolwire.protocols.openai_responses.wire import (
    FAMILY,
    AdditionalTools,
    ConfigurationUpdate,
    CustomCall,
    CustomOutput,
    EasyMessage,
    FunctionCall,
    FunctionOutput,
    InputText,
    ItemUnion,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReferenceItem,
    RefusalPart,
)

from .calls import (
    decode_custom_call,
    decode_function_call,
    decode_result,
    encode_call,
    encode_result,
)
from .content import STRING, decode_content, encode_content
from .natives import (
    ANSWERS,
    CALLS,
    acknowledged,
    check_ids,
    decode_native_call,
    decode_native_result,
    encode_native_call,
    encode_native_result,
    is_hosted,
)
from .ordinary import EASY, read_ordinary
from .plan import ItemPlan
from .reasoning import decode_reasoning, encode_reasoning
from .uses import encode_use, unanswered, understood, was_run

_NO_CONTENT = "openai-responses:absent:content"
_NO_TYPE = "openai-responses:absent:type"
_ROLE = "openai-responses:role:"
_NO_ROLE = "openai-responses:absent:role"

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "developer"}
_ITEM_PARTS = (ToolCall, ToolResult, Reasoning, ItemRef, ToolChange, SettingChange)
_READABLE = frozenset({"text", "query", "queries", "code", "logs", "output", "url", "title", "pattern", "message"})
_UNREADABLE = frozenset({"compaction", "compaction_trigger", "mcp_list_tools", "image_generation_call"})
# Of two halves, others get both or none.
_HALVES = ("multi_agent_call", "program", "shell_call", "tool_search_call", "tool_search_output")

_fast = msgspec.json.Decoder(ItemUnion).decode
_decode = msgspec.json.Decoder().decode
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_read_item = Reader[Any](ItemUnion, FAMILY).read
_read_easy = Reader[EasyMessage](EasyMessage, FAMILY).read
_read_object = Reader[dict[str, Raw]](dict[str, Raw], FAMILY).read
_read_reference = Reader[ReferenceItem](ReferenceItem, FAMILY).read
_read_additional = Reader[AdditionalTools](AdditionalTools, FAMILY).read
_read_update = Reader[ConfigurationUpdate](ConfigurationUpdate, FAMILY).read


# ---- decode


class ItemReader:
    """Reads items in order. `tools` are those declared; `answer`: the items are a model's output, so that results among
    them are the provider's own. `odd` are those that were no ordinary ones: only they can have extras."""

    def __init__(self, tools: tuple[Tool, ...] | None, *, answer: bool = False) -> None:
        self._answer = answer
        self._groups = frozenset(tool.name for tool in tools or () if isinstance(tool, ToolGroup))
        self.hosted: set[str] = set()
        self.answered: set[str] = set()
        self.odd: list[Message] = []
        self._shells: dict[str, str] = {}
        self._seen: dict[str, set[str]] = {}

    def read_all(self, items: list[Raw], path: str) -> tuple[Message, ...]:
        read = tuple([read_ordinary(raw) or self._odd(raw, f"{path}/{index}") for index, raw in enumerate(items)])
        return tuple([acknowledged(message, self._seen) for message in read]) if self._seen else read

    def _odd(self, raw: Raw, path: str) -> Message:
        message = self.read(raw, path)
        self.odd.append(message)
        return message

    def read(self, raw: Raw, path: str) -> Message:
        try:
            shape = _fast(raw)
        except BAD_JSON:
            return self._read_open(raw, path)
        return self._decoded(shape, path)

    def _read_open(self, raw: Raw, path: str) -> Message:
        if tag_of(raw) is not None:
            return self._decoded(_read_item(raw, path), path)
        members = _read_object(raw, path)
        if "role" in members:
            return _decode_message(_read_easy(raw, path), path)
        if "id" in members and bytes(members.get("type", b"null")) == b"null":
            return _decode_reference(_read_reference(raw, path))
        raise DecodeError(FAMILY, f"{path}/type", "the type of an item", "nothing")

    def _decoded(self, shape: Any, path: str) -> Message:
        kind = type(shape)
        if kind is MessageItem:
            return _decode_message(shape, path)
        if kind is FunctionCall:
            return decode_function_call(shape, self._groups)
        if kind is FunctionOutput or kind is CustomOutput:
            return decode_result(shape, path)
        if kind is ReasoningItem:
            return decode_reasoning(shape)
        if kind is CustomCall:
            return decode_custom_call(shape)
        return self._decode_other(shape, path)

    def _decode_other(self, other: Other, path: str) -> Message:
        kind, raw = other.tag, other.body
        match kind:
            case "item_reference":
                return _decode_reference(_read_reference(raw, path))
            case "additional_tools":
                return _decode_additional(_read_additional(raw, path), path)
            case "configuration_update":
                return _decode_update(_read_update(raw, path))
            case _:
                return self._decode_by_name(kind, raw, path)

    def _decode_by_name(self, kind: str, raw: Raw, path: str) -> Message:
        members = _members(raw)
        said = _decode(members.get("call_id", b"null"))
        call_id = said if isinstance(said, str) else None
        if kind in CALLS:
            if call_id not in self.hosted and not is_hosted(kind, members):
                message = decode_native_call(kind, members)
                if kind == "local_shell_call" and message.id is not None and call_id is not None:
                    self._shells[message.id] = call_id
                return message
            if call_id is not None:
                self.hosted.add(call_id)
        elif kind in ANSWERS.values() and not (self._answer or call_id in self.hosted or is_hosted(kind, members)):
            if call_id is not None and (seen := check_ids(members)):
                self._seen[call_id] = seen
            return decode_native_result(kind, members, path, self._shells)
        if kind in ANSWERS.values() and call_id is not None:
            self.answered.add(call_id)
        foreign = Foreign(protocol=FAMILY, kind=kind, body=raw, pair=call_id, gist=_gist(kind, members), at="")
        return Message(role="assistant", parts=(understood(foreign, members),))


def decode_items(
    items: list[Raw], path: str, tools: tuple[Tool, ...] | None, *, answer: bool = False
) -> tuple[Message, ...]:
    reader = ItemReader(tools, answer=answer)
    messages = reader.read_all(items, path)
    if answer and reader.answered:
        # A call whose output is in the same answer was the provider's own after all.
        reader.hosted |= reader.answered
        return reader.read_all(items, path)
    return messages


def _decode_message(shape: MessageItem | EasyMessage, path: str) -> Message:
    role = _ROLES.get(shape.role)
    if role is None:
        raise DecodeError(FAMILY, f"{path}/role", "user, assistant, system or developer", repr(shape.role))
    form = (EASY,) if isinstance(shape, EasyMessage) else ()
    parts: tuple[Part, ...] = ()
    if isinstance(shape.content, str):
        parts, form = (Text(text=shape.content, at="/content"),), (*form, STRING)
    elif shape.content is UNSET:
        form = (*form, _NO_CONTENT)
    else:
        parts = decode_content(shape.content, f"{path}/content", spoken=role == "assistant")
    return Message(
        role=role,
        parts=parts,
        id=known(shape.id),
        status=known(shape.status),
        phase=known(shape.phase),
        **rest(shape, FAMILY, *form),
    )


def _decode_reference(shape: ReferenceItem) -> Message:
    form = (_NO_TYPE,) if shape.type is UNSET else ()
    part = ItemRef(id=shape.id, at="", **rest(shape, FAMILY, *form))
    return Message(role="assistant", parts=(part,))


def _decode_additional(shape: AdditionalTools, path: str) -> Message:
    form = () if shape.role == "developer" else (_NO_ROLE if shape.role is UNSET else _ROLE + shape.role,)
    change = ToolChange(add=decode_tools(shape.tools, f"{path}/tools"), at="", **rest(shape, FAMILY, *form))
    return Message(role="developer", parts=(change,), id=known(shape.id))


def _decode_update(shape: ConfigurationUpdate) -> Message:
    thinking, output = decode_thinking(shape.reasoning), decode_output(shape.text)
    change = SettingChange(
        thinking=None if thinking is None else replace(thinking, at=""),
        output=None if output is None else replace(output, at=""),
        at="",
        **rest(shape, FAMILY),
    )
    return Message(role="developer", parts=(change,), id=known(shape.id))


def _gist(kind: str, members: dict[str, Raw], limit: int = 100_000) -> str | None:
    """The readable text of an item that others can't use as it is."""
    if kind in _UNREADABLE or kind.removesuffix("_output") in _HALVES:
        return None
    found: list[str] = []

    def walk(value: object, *, readable: bool) -> None:
        if isinstance(value, str) and readable and value not in ("", *found[-1:]):
            found.append(value)
        elif isinstance(value, dict):
            for name, inner in value.items():
                walk(inner, readable=name in _READABLE)
        elif isinstance(value, list):
            for inner in value:
                walk(inner, readable=readable)

    for name, raw in members.items():
        walk(_decode(raw), readable=name in _READABLE)
    return f"[{kind}: {chr(10).join(found)[:limit]}]" if found else None


# ---- encode


def encode_items(places: list[Placed], plan: ItemPlan, message: Message) -> list[Any]:
    """The items that some parts of one speaker make: those that are items of their own, and messages around the rest.

    At home `message` is the item's own; else it only has the role.
    """
    items: list[Any] = []
    content: list[Placed] = []
    for placed in places:
        part = placed.part
        if was_run(part, plan):
            if not isinstance(part, Foreign) and not (plan.answering and (part.use is not None or is_connected(part))):
                content += _told(part, placed, plan)
                continue
            items += _encode_message(content, plan, message) if content else ()
            content = []
            items += encode_use(part, placed, plan, plan.count + len(items))
        elif isinstance(part, _ITEM_PARTS) or (isinstance(part, Foreign) and part.at == "" and part.protocol == FAMILY):
            items += _encode_message(content, plan, message) if content else ()
            content = []
            if plan.asked and isinstance(part, ToolCall):
                items += unanswered(plan, plan.count + len(items))
            if (item := _encode_item(part, placed, plan, message)) is not None:
                items.append(item)
        else:
            content.append(placed)
    if content or (plan.home and not places):
        items += _encode_message(content, plan, message)
    return items


def _told(part: ToolCall | ToolResult, placed: Placed, plan: ItemPlan) -> list[Placed]:
    """What another provider ran itself: told as text to a model, and not at all to a client."""
    if plan.answering:
        plan.report.dropped(placed.trail, "", "what another provider ran itself")
        return []
    if isinstance(part, ToolCall):
        plan.report.approximated(placed.trail, "", "a call that another provider ran: told as text")
        return [Placed(Text(text=in_words(part)), placed.trail)]
    plan.report.approximated(placed.trail, "", "a result that another provider got: told as text")
    gists = [one.gist for one in part.content or () if isinstance(one, Foreign) and one.gist]
    text = chr(10).join(gists) or "no readable content"
    mark = "" if part.status == "ok" else ERROR_MARK
    return [Placed(Text(text=f"[{part.native}: {mark}{text}]"), placed.trail)]


def _encode_item(part: Part, placed: Placed, plan: ItemPlan, message: Message) -> Any:
    match part:
        case ToolCall():
            if part.native in CALLS:
                return encode_native_call(part, placed, plan, message if plan.home else plan.native_envelope(part))
            prefix = "ctc" if part.shape == "freeform" else "fc"
            own = message if plan.home else plan.envelope(prefix, complete=part.complete)
            return encode_call(part, placed, plan, own)
        case ToolResult():
            native = part.native in ANSWERS or part.native in ANSWERS.values()
            encode = encode_native_result if native else encode_result
            return encode(part, placed, plan, message if plan.home else plan.envelope("out"))
        case Reasoning():
            return encode_reasoning(part, placed, plan, message)
        case ItemRef():
            return _encode_reference(part, placed, plan)
        case ToolChange():
            return _encode_change(part, placed, plan, message)
        case SettingChange():
            return _encode_setting(part, placed, plan, message)
        case Foreign():
            return part.body
        case _:
            return None


def _encode_message(content: list[Placed], plan: ItemPlan, message: Message) -> list[Any]:
    spoken = message.role == "assistant"
    blocks = encode_content(content, plan, spoken=spoken)
    if plan.home:
        return [_encode_home_message(content, blocks, message)]
    if plan.answering:
        if plan.held is None:  # a stream has announced each of them
            blocks = [block for block in blocks if not isinstance(block, OutputText) or block.text or block.annotations]
        if not blocks:
            return []
        own = plan.envelope("msg")
        shape = MessageItem(role="assistant", id=given(own.id), status=given(own.status), content=blocks)
        shape.phase = given(message.phase)
        return [shape]
    if not spoken:
        only = blocks[0] if len(blocks) == 1 else None
        if isinstance(only, InputText) and only.prompt_cache_breakpoint is UNSET:
            return [EasyMessage(role=message.role, content=only.text)]
        return [EasyMessage(role=message.role, content=blocks)] if blocks else []
    # What the model said needs an id to be more than a string.
    texts = [block.refusal if isinstance(block, RefusalPart) else block.text for block in blocks]
    for placed, block in zip(content, blocks, strict=False):
        if isinstance(block, RefusalPart):
            plan.report.approximated(placed.trail, "", "a refusal is told as text")
    return [EasyMessage(role="assistant", content=text, phase=given(message.phase)) for text in texts if text]


def _encode_home_message(content: list[Placed], blocks: list[Any], message: Message) -> Any:
    only = content[0].part if len(content) == 1 else None
    body: Any = blocks
    if STRING in message.form and isinstance(only, Text) and not only.cache and not only.extras:
        body = only.text
    elif not blocks and _NO_CONTENT in message.form:
        body = UNSET
    kind = EasyMessage if EASY in message.form else MessageItem
    shape = kind(role=message.role, content=body, id=given(message.id), status=given(message.status))
    shape.phase = given(message.phase)
    return emit(shape, message, FAMILY)


def _encode_reference(part: ItemRef, placed: Placed, plan: ItemPlan) -> Any:
    if not plan.home:
        plan.report.dropped(placed.trail, "id", "what another provider stored can't be named to this one")
        return None
    return emit(ReferenceItem(id=part.id, type=UNSET if _NO_TYPE in part.form else "item_reference"), part, FAMILY)


def _encode_change(part: ToolChange, placed: Placed, plan: ItemPlan, message: Message) -> Any:
    if any(isinstance(one, ToolResult) for one in message.parts) and plan.home:
        return None  # the tools that a search loaded stand in its output
    for index in range(len(part.remove)):
        plan.report.dropped((*placed.trail, "remove", index), "", "the target can't take a tool away")
    tools = [encode_tool(tool, (*placed.trail, "add", index), plan) for index, tool in enumerate(part.add)]
    tools = [tool for tool in tools if tool is not None]
    if not tools and not plan.home:
        return None
    role = next((token[len(_ROLE) :] for token in part.form if token.startswith(_ROLE)), "developer")
    shape = AdditionalTools(type="additional_tools", tools=tools, role=UNSET if _NO_ROLE in part.form else role)
    shape.id = given(message.id) if plan.home else UNSET
    return emit(shape, part, FAMILY)


def _encode_setting(part: SettingChange, placed: Placed, plan: ItemPlan, message: Message) -> Any:
    shape = ConfigurationUpdate(type="configuration_update", id=given(message.id) if plan.home else UNSET)
    shape.reasoning = encode_thinking(part.thinking, (*placed.trail, "thinking"), plan)
    shape.text = encode_output(part.output, (*placed.trail, "output"), plan)
    if not plan.home and shape.reasoning is UNSET and shape.text is UNSET:
        return None
    out = as_object(shape)
    for node in (part.thinking, part.output, part):
        restore(out, node, FAMILY)
    return out
