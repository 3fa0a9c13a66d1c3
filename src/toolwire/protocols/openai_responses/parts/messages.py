"""Items of the Responses API to canonical messages and back: each item is one message."""

from itertools import groupby
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
from toolwire.codec.encoding.fallbacks import LIMIT_READABLE_TEXT, readable_strings
from toolwire.codec.encoding.hosted_tools import hosted_call_as_text, is_mcp_part
from toolwire.codec.encoding.media import ERROR_MARK
from toolwire.codec.encoding.plan import FORM_REASON
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.wire.extras import (
    as_dict,
    collect_extras,
    encode_with_extras,
    none_to_unset,
    restore_extras,
    unset_to_none,
)
from toolwire.codec.wire.reader import JSON_ERRORS, Reader, UnknownVariant, decode_json, decode_members, tag_of
from toolwire.protocols.openai_responses.fast_path import EASY_FORM
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
# Calls and outputs that only make sense together: other protocols get both or neither.
_PAIRED_KINDS = ("multi_agent_call", "program", "shell_call", "tool_search_call", "tool_search_output")

_decode_typed = msgspec.json.Decoder(ItemUnion).decode
_read_item = Reader[Any](ItemUnion, FAMILY).read
_read_easy = Reader[EasyMessage](EasyMessage, FAMILY).read
_read_object = Reader[dict[str, Raw]](dict[str, Raw], FAMILY).read
_read_reference = Reader[ReferenceItem](ReferenceItem, FAMILY).read
_read_additional = Reader[AdditionalTools](AdditionalTools, FAMILY).read
_read_update = Reader[ConfigurationUpdate](ConfigurationUpdate, FAMILY).read


# ---- decode


class ItemDecoder:
    """Decodes the items of one request or response in order.

    `tools` are the declared tools. `is_response`: the items are output of the model, so results among them were
    produced by the provider.
    """

    def __init__(self, tools: tuple[Tool, ...] | None, *, is_response: bool = False) -> None:
        self._is_response = is_response
        self._group_names = frozenset(tool.name for tool in tools or () if isinstance(tool, ToolGroup))
        self.hosted_ids: set[str] = set()  # of calls that the provider runs
        self.answered_ids: set[str] = set()  # of native calls that the provider answered
        self._shell_call_ids: dict[str, str] = {}  # call id by item id of `local_shell_call`
        self._acknowledged_ids: dict[str, set[str]] = {}  # safety checks by call id

    def decode_all(self, items: list[Raw], path: str) -> tuple[Message, ...]:
        """Decode all items to messages."""
        messages = tuple([self.decode(raw, f"{path}/{index}") for index, raw in enumerate(items)])
        if not self._acknowledged_ids:
            return messages
        return tuple([release_acknowledged_checks(message, self._acknowledged_ids) for message in messages])

    def decode(self, raw: Raw, path: str) -> Message:
        """Decode one item."""
        try:
            shape = _decode_typed(raw)
        except JSON_ERRORS:
            return self._decode_untyped(raw, path)
        return self._decode_shape(shape, path)

    def _decode_untyped(self, raw: Raw, path: str) -> Message:
        """Decode an item that no wire type matches: a message without `type`, or an invalid one."""
        if tag_of(raw) is not None:
            return self._decode_shape(_read_item(raw, path), path)
        members = _read_object(raw, path)
        if "role" in members:
            return _decode_message(_read_easy(raw, path), path)
        if "id" in members and bytes(members.get("type", b"null")) == b"null":
            return _decode_reference(_read_reference(raw, path))
        raise DecodeError(FAMILY, f"{path}/type", "an item type", "nothing")

    def _decode_shape(self, shape: Any, path: str) -> Message:
        """Decode an item that was parsed to a wire object, with the decoder for that object's class."""
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

    def _decode_unknown(self, variant: UnknownVariant, path: str) -> Message:
        """Decode an item of a type without a wire class, by the value of `type`."""
        kind, raw = variant.tag, variant.body
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
        """Decode a native call or result of the type `kind`; other items become opaque parts."""
        members = decode_members(raw)
        value = decode_json(members.get("call_id", b"null"))
        call_id = value if isinstance(value, str) else None
        is_provider_run = call_id in self.hosted_ids or is_hosted(kind, members)
        if kind in NATIVE_CALLS:
            if not is_provider_run:
                return self._decode_client_call(kind, members, call_id)
            if call_id is not None:
                self.hosted_ids.add(call_id)
        elif kind in NATIVE_RESULTS.values():
            if not self._is_response and not is_provider_run:
                if call_id is not None and (acknowledged := safety_check_ids(members)):
                    self._acknowledged_ids[call_id] = acknowledged
                return decode_native_result(kind, members, path, self._shell_call_ids)
            if call_id is not None:
                self.answered_ids.add(call_id)
        part = OpaquePart(protocol=FAMILY, kind=kind, body=raw, pair=call_id, gist=_readable_text(kind, members), at="")
        return Message(role="assistant", parts=(attach_meaning(part, members),))

    def _decode_client_call(self, kind: str, members: dict[str, Raw], call_id: str | None) -> Message:
        """Decode a native call that the client runs."""
        message = decode_native_call(kind, members)
        if kind == "local_shell_call" and message.id is not None and call_id is not None:
            self._shell_call_ids[message.id] = call_id
        return message


def decode_items(
    items: list[Raw], path: str, tools: tuple[Tool, ...] | None, *, is_response: bool = False
) -> tuple[Message, ...]:
    """Decode the items of a request or response; `tools` are the declared tools."""
    decoder = ItemDecoder(tools, is_response=is_response)
    messages = decoder.decode_all(items, path)
    if is_response and decoder.answered_ids:
        # A call whose output is in the same response was run by the provider.
        decoder.hosted_ids |= decoder.answered_ids
        return decoder.decode_all(items, path)
    return messages


def _decode_message(shape: MessageItem | EasyMessage, path: str) -> Message:
    """Decode a message item."""
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
    """Decode a reference to a stored item."""
    form = (_NO_TYPE,) if shape.type is UNSET else ()
    part = ItemRef(id=shape.id, at="", **collect_extras(shape, FAMILY, *form))
    return Message(role="assistant", parts=(part,))


def _decode_additional(shape: AdditionalTools, path: str) -> Message:
    """Decode tools added in the middle of a conversation."""
    form = () if shape.role == "developer" else (_NO_ROLE if shape.role is UNSET else _ROLE_FORM + shape.role,)
    change = ToolChange(add=decode_tools(shape.tools, f"{path}/tools"), at="", **collect_extras(shape, FAMILY, *form))
    return Message(role="developer", parts=(change,), id=unset_to_none(shape.id))


def _decode_update(shape: ConfigurationUpdate) -> Message:
    """Decode settings changed in the middle of a conversation."""
    thinking, output = decode_thinking(shape.reasoning), decode_output(shape.text)
    change = SettingChange(
        thinking=None if thinking is None else replace(thinking, at=""),
        output=None if output is None else replace(output, at=""),
        at="",
        **collect_extras(shape, FAMILY),
    )
    return Message(role="developer", parts=(change,), id=unset_to_none(shape.id))


def _readable_text(kind: str, members: dict[str, Raw]) -> str | None:
    """Join the readable texts of an item, for protocols that cannot use the item; None if it has none."""
    if kind in _UNREADABLE_KINDS or kind.removesuffix("_output") in _PAIRED_KINDS:
        return None
    texts = [
        text
        for name, raw in members.items()
        for text in readable_strings(decode_json(raw), _READABLE_FIELDS, is_readable=name in _READABLE_FIELDS)
    ]
    lines = [text for text, _ in groupby(texts)]  # some items repeat a text in a list
    return f"[{kind}: {chr(10).join(lines)[:LIMIT_READABLE_TEXT]}]" if lines else None


# ---- encode


def encode_items(located_parts: list[LocatedPart], plan: ItemPlan, message: Message) -> list[Any]:
    """Encode parts of one role as items; consecutive content parts share a message item.

    For the same protocol, `message` holds the fields of the item; otherwise only the role and phase.
    """
    items: list[Any] = []
    content: list[LocatedPart] = []
    for located_part in located_parts:
        part = located_part.part
        if is_hosted_part(part, plan):
            if not isinstance(part, OpaquePart) and not _has_hosted_item(part, plan):
                content += _encode_as_text(part, located_part, plan)
                continue
            items += _encode_message(content, plan, message) if content else ()
            content = []
            items += encode_hosted_use(part, located_part, plan, plan.output_index + len(items))
        elif _is_item(part):
            items += _encode_message(content, plan, message) if content else ()
            content = []
            if plan.pending_calls and isinstance(part, ToolCall):
                items += encode_unanswered_calls(plan, plan.output_index + len(items))
            if (item := _encode_item(part, located_part, plan, message)) is not None:
                items.append(item)
        else:
            content.append(located_part)
    if content or (plan.same_protocol and not located_parts):
        items += _encode_message(content, plan, message)
    return items


def _has_hosted_item(part: ToolCall | ToolResult, plan: ItemPlan) -> bool:
    """Return whether this API has an item to show a hosted call or result to the client."""
    return plan.for_client and (part.use is not None or is_mcp_part(part))


def _is_item(part: Part) -> bool:
    """Return whether the part becomes a separate item, not content of a message item."""
    return isinstance(part, _ITEM_PARTS) or (isinstance(part, OpaquePart) and part.at == "" and part.protocol == FAMILY)


def _encode_as_text(part: ToolCall | ToolResult, located_part: LocatedPart, plan: ItemPlan) -> list[LocatedPart]:
    """Return another provider's hosted call or result as text for the model; empty for a client."""
    if plan.for_client:
        plan.report.dropped(located_part.path, "", "server-side call of another provider")
        return []
    if isinstance(part, ToolCall):
        plan.report.approximated(located_part.path, "", "server-side call of another provider, sent as text")
        return [LocatedPart(Text(text=hosted_call_as_text(part)), located_part.path)]
    plan.report.approximated(located_part.path, "", "server-side result of another provider, sent as text")
    gists = [
        result_part.gist
        for result_part in part.content or ()
        if isinstance(result_part, OpaquePart) and result_part.gist
    ]
    text = chr(10).join(gists) or "no readable content"
    error_mark = "" if part.status == "ok" else ERROR_MARK
    return [LocatedPart(Text(text=f"[{part.native}: {error_mark}{text}]"), located_part.path)]


def _encode_item(part: Part, located_part: LocatedPart, plan: ItemPlan, message: Message) -> Any:
    """Encode a part that becomes a separate item; None if it cannot be sent."""
    match part:
        case ToolCall():
            if part.native in NATIVE_CALLS:
                return encode_native_call(
                    part, located_part, plan, message if plan.same_protocol else plan.native_item_header(part)
                )
            prefix = "ctc" if part.shape == "freeform" else "fc"
            header = message if plan.same_protocol else plan.item_header(prefix, complete=part.complete)
            return encode_call(part, located_part, plan, header)
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
    """Encode content parts as message items."""
    blocks = encode_content(content, plan, is_output=message.role == "assistant")
    if plan.same_protocol:
        return [_encode_same_protocol_message(content, blocks, message)]
    if plan.for_client:
        return _encode_client_message(blocks, plan, message)
    if message.role == "assistant":
        return _encode_assistant_history(content, blocks, plan, message)
    only_block = blocks[0] if len(blocks) == 1 else None
    if isinstance(only_block, InputText):
        is_marked = only_block.prompt_cache_breakpoint is not UNSET
        if not is_marked or plan.has_moving_marks:
            if is_marked:
                _report_unsent_mark(content, plan)
            return [EasyMessage(role=message.role, content=only_block.text)]
    return [EasyMessage(role=message.role, content=blocks)] if blocks else []


def _report_unsent_mark(content: list[LocatedPart], plan: ItemPlan) -> None:
    """Report the cache marks of a message that is sent as a string."""
    for located_part in content:
        if getattr(located_part.part, "cache", None) is not None:
            plan.report.dropped((*located_part.path, "cache"), "", FORM_REASON)


def _encode_client_message(blocks: list[Any], plan: ItemPlan, message: Message) -> list[Any]:
    """Encode a message item of a response.

    Empty texts are left out unless a stream has announced them.
    """
    if plan.announced_header is None:
        blocks = [block for block in blocks if not isinstance(block, OutputText) or block.text or block.annotations]
    if not blocks:
        return []
    header = plan.item_header("msg")
    shape = MessageItem(
        role="assistant", id=none_to_unset(header.id), status=none_to_unset(header.status), content=blocks
    )
    shape.phase = none_to_unset(message.phase)
    return [shape]


def _encode_assistant_history(
    content: list[LocatedPart], blocks: list[Any], plan: ItemPlan, message: Message
) -> list[Any]:
    """Encode earlier assistant text as one string message per text, since content lists need an item id."""
    texts = [block.refusal if isinstance(block, RefusalPart) else block.text for block in blocks]
    for located_part, block in zip(content, blocks, strict=False):
        if isinstance(block, RefusalPart):
            plan.report.approximated(located_part.path, "", "refusal sent as text")
    return [EasyMessage(role="assistant", content=text, phase=none_to_unset(message.phase)) for text in texts if text]


def _encode_same_protocol_message(content: list[LocatedPart], blocks: list[Any], message: Message) -> Any:
    """Encode a message that came from this API, as string or list and with `type` like the source."""
    only_part = content[0].part if len(content) == 1 else None
    body: Any = blocks
    if STRING in message.wire_form and isinstance(only_part, Text) and not only_part.cache and not only_part.extras:
        body = only_part.text
    elif not blocks and _NO_CONTENT in message.wire_form:
        body = UNSET
    kind = EasyMessage if EASY_FORM in message.wire_form else MessageItem
    shape = kind(role=message.role, content=body, id=none_to_unset(message.id), status=none_to_unset(message.status))
    shape.phase = none_to_unset(message.phase)
    return encode_with_extras(shape, message, FAMILY)


def _encode_reference(part: ItemRef, located_part: LocatedPart, plan: ItemPlan) -> Any:
    """Encode a reference to a stored item; report it and return None if another provider stores the item."""
    if not plan.same_protocol:
        plan.report.dropped(located_part.path, "id", "stored by another provider")
        return None
    return encode_with_extras(
        ReferenceItem(id=part.id, type=UNSET if _NO_TYPE in part.wire_form else "item_reference"), part, FAMILY
    )


def _encode_change(part: ToolChange, located_part: LocatedPart, plan: ItemPlan, message: Message) -> Any:
    """Encode added tools as an item; removed tools are reported as losses."""
    if any(isinstance(other, ToolResult) for other in message.parts) and plan.same_protocol:
        return None  # tools loaded by tool search are part of its output
    for index in range(len(part.remove)):
        plan.report.dropped((*located_part.path, "remove", index), "", "the target cannot remove tools")
    tools = [encode_tool(tool, (*located_part.path, "add", index), plan) for index, tool in enumerate(part.add)]
    tools = [tool for tool in tools if tool is not None]
    if not tools and not plan.same_protocol:
        return None
    role = next((token[len(_ROLE_FORM) :] for token in part.wire_form if token.startswith(_ROLE_FORM)), "developer")
    shape = AdditionalTools(type="additional_tools", tools=tools, role=UNSET if _NO_ROLE in part.wire_form else role)
    shape.id = none_to_unset(message.id) if plan.same_protocol else UNSET
    return encode_with_extras(shape, part, FAMILY)


def _encode_setting(part: SettingChange, located_part: LocatedPart, plan: ItemPlan, message: Message) -> Any:
    """Encode settings changed in the middle of a conversation."""
    shape = ConfigurationUpdate(
        type="configuration_update", id=none_to_unset(message.id) if plan.same_protocol else UNSET
    )
    shape.reasoning = encode_thinking(part.thinking, (*located_part.path, "thinking"), plan)
    shape.text = encode_output(part.output, (*located_part.path, "output"), plan)
    if not plan.same_protocol and shape.reasoning is UNSET and shape.text is UNSET:
        return None
    body = as_dict(shape)
    for node in (part.thinking, part.output, part):
        restore_extras(body, node, FAMILY)
    return body
