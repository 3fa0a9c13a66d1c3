"""The items of the Responses API, to canonical messages and back: one message for each item."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import (
    ItemRef,
    Message,
    OpaquePart,
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
from toolwire.codec.encoding.hosted_tools import hosted_call_as_text, is_mcp_part
from toolwire.codec.encoding.media import ERROR_MARK
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.wire.extras import (
    as_dict,
    collect_extras,
    encode_with_extras,
    none_to_unset,
    restore_extras,
    unset_to_none,
)
from toolwire.codec.wire.reader import JSON_ERRORS, Reader, UnknownVariant, tag_of
from toolwire.protocols.openai_responses.fast_path import EASY_FORM, read_fast
from toolwire.protocols.openai_responses.parts.calls import (
    decode_custom_call,
    decode_function_call,
    decode_result,
    encode_call,
    encode_result,
)
from toolwire.protocols.openai_responses.parts.content import (
    STRING,
    decode_content,
    decode_reasoning,
    encode_content,
    encode_reasoning,
)
from toolwire.protocols.openai_responses.parts.hosted_calls import (
    attach_meaning,
    encode_hosted_use,
    encode_unanswered_calls,
    is_hosted_part,
)
from toolwire.protocols.openai_responses.parts.native_calls import (
    NATIVE_CALLS,
    NATIVE_RESULTS,
    decode_native_call,
    decode_native_result,
    encode_native_call,
    encode_native_result,
    is_hosted,
    release_acknowledged_checks,
    safety_check_ids,
)
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.settings import decode_output, decode_thinking, encode_output, encode_thinking
from toolwire.protocols.openai_responses.tools import decode_tools, encode_tool
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

_NO_CONTENT = "openai-responses:absent:content"
_NO_TYPE = "openai-responses:absent:type"
_ROLE_FORM = "openai-responses:role:"
_NO_ROLE = "openai-responses:absent:role"

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "developer"}
_ITEM_PARTS = (ToolCall, ToolResult, Reasoning, ItemRef, ToolChange, SettingChange)
_READABLE_FIELDS = frozenset(
    {"text", "query", "queries", "code", "logs", "output", "url", "title", "pattern", "message"}
)
_UNREADABLE_KINDS = frozenset({"compaction", "compaction_trigger", "mcp_list_tools", "image_generation_call"})
# Of two halves, others get both or none.
_PAIRED_KINDS = ("multi_agent_call", "program", "shell_call", "tool_search_call", "tool_search_output")

_decode_typed = msgspec.json.Decoder(ItemUnion).decode
_decode_json = msgspec.json.Decoder().decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_read_item = Reader[Any](ItemUnion, FAMILY).read
_read_easy = Reader[EasyMessage](EasyMessage, FAMILY).read
_read_object = Reader[dict[str, Raw]](dict[str, Raw], FAMILY).read
_read_reference = Reader[ReferenceItem](ReferenceItem, FAMILY).read
_read_additional = Reader[AdditionalTools](AdditionalTools, FAMILY).read
_read_update = Reader[ConfigurationUpdate](ConfigurationUpdate, FAMILY).read


# ---- decode


class ItemDecoder:
    """Reads items in order. `tools` are those declared; `answer`: the items are a model's output, so that results among
    them are the provider's own. `odd` are those that were no ordinary ones: only they can have extras."""

    def __init__(self, tools: tuple[Tool, ...] | None, *, is_response: bool = False) -> None:
        self._is_response = is_response
        self._group_names = frozenset(tool.name for tool in tools or () if isinstance(tool, ToolGroup))
        self.hosted_ids: set[str] = set()
        self.answered_ids: set[str] = set()
        self.slow_messages: list[Message] = []
        self._shell_call_ids: dict[str, str] = {}
        self._acknowledged_ids: dict[str, set[str]] = {}

    def decode_all(self, items: list[Raw], path: str) -> tuple[Message, ...]:
        read = tuple([read_fast(raw) or self._decode_slow(raw, f"{path}/{index}") for index, raw in enumerate(items)])
        return (
            tuple([release_acknowledged_checks(message, self._acknowledged_ids) for message in read])
            if self._acknowledged_ids
            else read
        )

    def _decode_slow(self, raw: Raw, path: str) -> Message:
        message = self.decode(raw, path)
        self.slow_messages.append(message)
        return message

    def decode(self, raw: Raw, path: str) -> Message:
        try:
            shape = _decode_typed(raw)
        except JSON_ERRORS:
            return self._decode_untyped(raw, path)
        return self._decode_shape(shape, path)

    def _decode_untyped(self, raw: Raw, path: str) -> Message:
        if tag_of(raw) is not None:
            return self._decode_shape(_read_item(raw, path), path)
        members = _read_object(raw, path)
        if "role" in members:
            return _decode_message(_read_easy(raw, path), path)
        if "id" in members and bytes(members.get("type", b"null")) == b"null":
            return _decode_reference(_read_reference(raw, path))
        raise DecodeError(FAMILY, f"{path}/type", "the type of an item", "nothing")

    def _decode_shape(self, shape: Any, path: str) -> Message:
        kind = type(shape)
        if kind is MessageItem:
            return _decode_message(shape, path)
        if kind is FunctionCall:
            return decode_function_call(shape, self._group_names)
        if kind is FunctionOutput or kind is CustomOutput:
            return decode_result(shape, path)
        if kind is ReasoningItem:
            return decode_reasoning(shape)
        if kind is CustomCall:
            return decode_custom_call(shape)
        return self._decode_unknown(shape, path)

    def _decode_unknown(self, other: UnknownVariant, path: str) -> Message:
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
        members = _decode_members(raw)
        said = _decode_json(members.get("call_id", b"null"))
        call_id = said if isinstance(said, str) else None
        if kind in NATIVE_CALLS:
            if call_id not in self.hosted_ids and not is_hosted(kind, members):
                message = decode_native_call(kind, members)
                if kind == "local_shell_call" and message.id is not None and call_id is not None:
                    self._shell_call_ids[message.id] = call_id
                return message
            if call_id is not None:
                self.hosted_ids.add(call_id)
        elif kind in NATIVE_RESULTS.values() and not (
            self._is_response or call_id in self.hosted_ids or is_hosted(kind, members)
        ):
            if call_id is not None and (seen := safety_check_ids(members)):
                self._acknowledged_ids[call_id] = seen
            return decode_native_result(kind, members, path, self._shell_call_ids)
        if kind in NATIVE_RESULTS.values() and call_id is not None:
            self.answered_ids.add(call_id)
        foreign = OpaquePart(
            protocol=FAMILY, kind=kind, body=raw, pair=call_id, gist=_readable_text(kind, members), at=""
        )
        return Message(role="assistant", parts=(attach_meaning(foreign, members),))


def decode_items(
    items: list[Raw], path: str, tools: tuple[Tool, ...] | None, *, is_response: bool = False
) -> tuple[Message, ...]:
    reader = ItemDecoder(tools, is_response=is_response)
    messages = reader.decode_all(items, path)
    if is_response and reader.answered_ids:
        # A call whose output is in the same answer was the provider's own after all.
        reader.hosted_ids |= reader.answered_ids
        return reader.decode_all(items, path)
    return messages


def _decode_message(shape: MessageItem | EasyMessage, path: str) -> Message:
    role = _ROLES.get(shape.role)
    if role is None:
        raise DecodeError(FAMILY, f"{path}/role", "user, assistant, system or developer", repr(shape.role))
    form = (EASY_FORM,) if isinstance(shape, EasyMessage) else ()
    parts: tuple[Part, ...] = ()
    if isinstance(shape.content, str):
        parts, form = (Text(text=shape.content, at="/content"),), (*form, STRING)
    elif shape.content is UNSET:
        form = (*form, _NO_CONTENT)
    else:
        parts = decode_content(shape.content, f"{path}/content", is_output=role == "assistant")
    return Message(
        role=role,
        parts=parts,
        id=unset_to_none(shape.id),
        status=unset_to_none(shape.status),
        phase=unset_to_none(shape.phase),
        **collect_extras(shape, FAMILY, *form),
    )


def _decode_reference(shape: ReferenceItem) -> Message:
    form = (_NO_TYPE,) if shape.type is UNSET else ()
    part = ItemRef(id=shape.id, at="", **collect_extras(shape, FAMILY, *form))
    return Message(role="assistant", parts=(part,))


def _decode_additional(shape: AdditionalTools, path: str) -> Message:
    form = () if shape.role == "developer" else (_NO_ROLE if shape.role is UNSET else _ROLE_FORM + shape.role,)
    change = ToolChange(add=decode_tools(shape.tools, f"{path}/tools"), at="", **collect_extras(shape, FAMILY, *form))
    return Message(role="developer", parts=(change,), id=unset_to_none(shape.id))


def _decode_update(shape: ConfigurationUpdate) -> Message:
    thinking, output = decode_thinking(shape.reasoning), decode_output(shape.text)
    change = SettingChange(
        thinking=None if thinking is None else replace(thinking, at=""),
        output=None if output is None else replace(output, at=""),
        at="",
        **collect_extras(shape, FAMILY),
    )
    return Message(role="developer", parts=(change,), id=unset_to_none(shape.id))


def _readable_text(kind: str, members: dict[str, Raw], limit: int = 100_000) -> str | None:
    """The readable text of an item that others can't use as it is."""
    if kind in _UNREADABLE_KINDS or kind.removesuffix("_output") in _PAIRED_KINDS:
        return None
    found: list[str] = []

    def walk(value: object, *, readable: bool) -> None:
        if isinstance(value, str) and readable and value not in ("", *found[-1:]):
            found.append(value)
        elif isinstance(value, dict):
            for name, inner in value.items():
                walk(inner, readable=name in _READABLE_FIELDS)
        elif isinstance(value, list):
            for inner in value:
                walk(inner, readable=readable)

    for name, raw in members.items():
        walk(_decode_json(raw), readable=name in _READABLE_FIELDS)
    return f"[{kind}: {chr(10).join(found)[:limit]}]" if found else None


# ---- encode


def encode_items(located_parts: list[LocatedPart], plan: ItemPlan, message: Message) -> list[Any]:
    """The items that some parts of one speaker make: those that are items of their own, and messages around the rest.

    At home `message` is the item's own; else it only has the role.
    """
    items: list[Any] = []
    content: list[LocatedPart] = []
    for placed in located_parts:
        part = placed.part
        if is_hosted_part(part, plan):
            if not isinstance(part, OpaquePart) and not (
                plan.for_client and (part.use is not None or is_mcp_part(part))
            ):
                content += _encode_as_text(part, placed, plan)
                continue
            items += _encode_message(content, plan, message) if content else ()
            content = []
            items += encode_hosted_use(part, placed, plan, plan.output_index + len(items))
        elif isinstance(part, _ITEM_PARTS) or (
            isinstance(part, OpaquePart) and part.at == "" and part.protocol == FAMILY
        ):
            items += _encode_message(content, plan, message) if content else ()
            content = []
            if plan.pending_calls and isinstance(part, ToolCall):
                items += encode_unanswered_calls(plan, plan.output_index + len(items))
            if (item := _encode_item(part, placed, plan, message)) is not None:
                items.append(item)
        else:
            content.append(placed)
    if content or (plan.same_protocol and not located_parts):
        items += _encode_message(content, plan, message)
    return items


def _encode_as_text(part: ToolCall | ToolResult, located_part: LocatedPart, plan: ItemPlan) -> list[LocatedPart]:
    """What another provider ran itself: told as text to a model, and not at all to a client."""
    if plan.for_client:
        plan.report.dropped(located_part.path, "", "what another provider ran itself")
        return []
    if isinstance(part, ToolCall):
        plan.report.approximated(located_part.path, "", "a call that another provider ran: told as text")
        return [LocatedPart(Text(text=hosted_call_as_text(part)), located_part.path)]
    plan.report.approximated(located_part.path, "", "a result that another provider got: told as text")
    gists = [one.gist for one in part.content or () if isinstance(one, OpaquePart) and one.gist]
    text = chr(10).join(gists) or "no readable content"
    mark = "" if part.status == "ok" else ERROR_MARK
    return [LocatedPart(Text(text=f"[{part.native}: {mark}{text}]"), located_part.path)]


def _encode_item(part: Part, located_part: LocatedPart, plan: ItemPlan, message: Message) -> Any:
    match part:
        case ToolCall():
            if part.native in NATIVE_CALLS:
                return encode_native_call(
                    part, located_part, plan, message if plan.same_protocol else plan.native_item_header(part)
                )
            prefix = "ctc" if part.shape == "freeform" else "fc"
            own = message if plan.same_protocol else plan.item_header(prefix, complete=part.complete)
            return encode_call(part, located_part, plan, own)
        case ToolResult():
            native = part.native in NATIVE_RESULTS or part.native in NATIVE_RESULTS.values()
            encode = encode_native_result if native else encode_result
            return encode(part, located_part, plan, message if plan.same_protocol else plan.item_header("out"))
        case Reasoning():
            return encode_reasoning(part, located_part, plan, message)
        case ItemRef():
            return _encode_reference(part, located_part, plan)
        case ToolChange():
            return _encode_change(part, located_part, plan, message)
        case SettingChange():
            return _encode_setting(part, located_part, plan, message)
        case OpaquePart():
            return part.body
        case _:
            return None


def _encode_message(content: list[LocatedPart], plan: ItemPlan, message: Message) -> list[Any]:
    spoken = message.role == "assistant"
    blocks = encode_content(content, plan, is_output=spoken)
    if plan.same_protocol:
        return [_encode_same_protocol_message(content, blocks, message)]
    if plan.for_client:
        if plan.announced_header is None:  # a stream has announced each of them
            blocks = [block for block in blocks if not isinstance(block, OutputText) or block.text or block.annotations]
        if not blocks:
            return []
        own = plan.item_header("msg")
        shape = MessageItem(
            role="assistant", id=none_to_unset(own.id), status=none_to_unset(own.status), content=blocks
        )
        shape.phase = none_to_unset(message.phase)
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
            plan.report.approximated(placed.path, "", "a refusal is told as text")
    return [EasyMessage(role="assistant", content=text, phase=none_to_unset(message.phase)) for text in texts if text]


def _encode_same_protocol_message(content: list[LocatedPart], blocks: list[Any], message: Message) -> Any:
    only = content[0].part if len(content) == 1 else None
    body: Any = blocks
    if STRING in message.wire_form and isinstance(only, Text) and not only.cache and not only.extras:
        body = only.text
    elif not blocks and _NO_CONTENT in message.wire_form:
        body = UNSET
    kind = EasyMessage if EASY_FORM in message.wire_form else MessageItem
    shape = kind(role=message.role, content=body, id=none_to_unset(message.id), status=none_to_unset(message.status))
    shape.phase = none_to_unset(message.phase)
    return encode_with_extras(shape, message, FAMILY)


def _encode_reference(part: ItemRef, located_part: LocatedPart, plan: ItemPlan) -> Any:
    if not plan.same_protocol:
        plan.report.dropped(located_part.path, "id", "what another provider stored can't be named to this one")
        return None
    return encode_with_extras(
        ReferenceItem(id=part.id, type=UNSET if _NO_TYPE in part.wire_form else "item_reference"), part, FAMILY
    )


def _encode_change(part: ToolChange, located_part: LocatedPart, plan: ItemPlan, message: Message) -> Any:
    if any(isinstance(one, ToolResult) for one in message.parts) and plan.same_protocol:
        return None  # the tools that a search loaded stand in its output
    for index in range(len(part.remove)):
        plan.report.dropped((*located_part.path, "remove", index), "", "the target can't take a tool away")
    tools = [encode_tool(tool, (*located_part.path, "add", index), plan) for index, tool in enumerate(part.add)]
    tools = [tool for tool in tools if tool is not None]
    if not tools and not plan.same_protocol:
        return None
    role = next((token[len(_ROLE_FORM) :] for token in part.wire_form if token.startswith(_ROLE_FORM)), "developer")
    shape = AdditionalTools(type="additional_tools", tools=tools, role=UNSET if _NO_ROLE in part.wire_form else role)
    shape.id = none_to_unset(message.id) if plan.same_protocol else UNSET
    return encode_with_extras(shape, part, FAMILY)


def _encode_setting(part: SettingChange, located_part: LocatedPart, plan: ItemPlan, message: Message) -> Any:
    shape = ConfigurationUpdate(
        type="configuration_update", id=none_to_unset(message.id) if plan.same_protocol else UNSET
    )
    shape.reasoning = encode_thinking(part.thinking, (*located_part.path, "thinking"), plan)
    shape.text = encode_output(part.output, (*located_part.path, "output"), plan)
    if not plan.same_protocol and shape.reasoning is UNSET and shape.text is UNSET:
        return None
    out = as_dict(shape)
    for node in (part.thinking, part.output, part):
        restore_extras(out, node, FAMILY)
    return out
