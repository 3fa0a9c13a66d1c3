"""Decode and encode tool calls, server tool results, tool references and tool changes."""

import re
from typing import Any

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Caller, Citation, HostedUse, OpaquePart, ToolCall, ToolChange, ToolResult
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.tools import HostedKind, Tool, ToolRef
from toolwire.codec.encoding.arguments import encode_object_arguments
from toolwire.codec.encoding.fallbacks import readable_text
from toolwire.codec.encoding.hosted_tools import (
    accepts_native,
    decode_hosted_use,
    hosted_call_as_text,
    hosted_query,
    is_mcp_part,
    mcp_result_text,
    parse_json,
)
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import flatten_tool
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.wire.extras import collect_extras, encode_with_extras, merge_extras, none_to_unset, unset_to_none
from toolwire.codec.wire.reader import Reader
from toolwire.protocols.anthropic.tools import decode_cache, decode_tool, encode_cache, encode_tool
from toolwire.protocols.anthropic.wire import (
    FAMILY,
    CallerShape,
    ChangeShape,
    McpUseShape,
    ReferenceShape,
    ServerResultShape,
    ServerToolUseBlock,
    TextBlock,
    ToolReferenceBlock,
    ToolUseBlock,
)

_TYPE_FORM = "anthropic:type:"
_REFERENCES = ("tool_reference", "mcp_tool_reference", "mcp_toolset_reference", "tool_definition")
_HOSTED_KINDS: dict[str, HostedKind] = {
    "web_search": "web_search",
    "web_fetch": "web_fetch",
    "code_execution": "code_execution",
    "bash_code_execution": "code_execution",
}
NOT_ERROR = "anthropic:is_error:false"
_CODE_EXECUTION_PREFIX = "code_execution_"
"""Prefix of the caller kinds that are programs of the model."""

read_mcp_use = Reader[McpUseShape](McpUseShape, FAMILY).read
read_server_result = Reader[ServerResultShape](ServerResultShape, FAMILY).read
read_change = Reader[ChangeShape](ChangeShape, FAMILY).read
_read_reference = Reader[ReferenceShape](ReferenceShape, FAMILY).read

_ILLEGAL = re.compile("[^a-zA-Z0-9_]")
_SERVER_ID_PREFIX = "srvtoolu_"
READABLE_FIELDS = frozenset(
    (
        "text",
        "title",
        "url",
        "stdout",
        "stderr",
        "content",
        "source",
        "tool_name",
        "lines",
        "error_code",
        "error_message",
    )
)
_ERROR_CONTENT = "anthropic:error:content"
"""Wire form of a failed result that only the type of its content marks as failed."""
_SENT_AS_SERVER_CALL = "server-side call of another provider, sent as a server tool call"
_SENT_AS_SERVER_RESULT = "server-side result of another provider, sent as a server tool result"


# ---- decode


def decode_tool_use(block: ToolUseBlock) -> ToolCall:
    """Decode a `tool_use` or `server_tool_use` block; one with only the usual fields takes a fast path."""
    is_server = type(block) is ServerToolUseBlock
    is_plain = block.unknown is UNSET and block.nulls is UNSET and block.toolset_name is UNSET
    arguments = "" if block.input is UNSET else str(block.input, "utf-8")
    if is_plain and not is_server and block.caller is UNSET and block.cache_control is UNSET:
        return ToolCall(id=block.id, name=block.name, arguments=arguments)
    return ToolCall(
        id=block.id,
        name=block.name,
        arguments=arguments,
        executor="server" if is_server else "client",
        native="server_tool_use" if is_server else None,
        use=_decode_hosted_use(block.name, parse_json(arguments), block.id) if is_server else None,
        toolset=unset_to_none(block.toolset_name),
        caller=_decode_caller(block.caller),
        cache=decode_cache(block.cache_control),
        **collect_extras(block, FAMILY),
    )


def _decode_caller(shape: CallerShape | UnsetType) -> Caller | None:
    """Decode `caller`, which tells whether the model or a program that it wrote made the call."""
    if shape is UNSET:
        return None
    return Caller(kind=shape.type, id=unset_to_none(shape.tool_id), **collect_extras(shape, FAMILY))


def decode_mcp_use(shape: McpUseShape) -> ToolCall:
    """Decode a call that the MCP connector made."""
    return ToolCall(
        id=shape.id,
        name=shape.name,
        namespace=shape.server_name,
        arguments=str(shape.input, "utf-8"),
        executor="server",
        native="mcp_tool_use",
        cache=decode_cache(shape.cache_control),
        **collect_extras(shape, FAMILY),
    )


def decode_server_result(shape: ServerResultShape) -> ToolResult:
    """Decode the result of a tool that Anthropic ran; its content stays opaque."""
    content = None
    if shape.content is not UNSET:
        content = (
            OpaquePart(
                protocol=FAMILY,
                kind="content",
                body=shape.content,
                gist=readable_text(shape.content, READABLE_FIELDS),
                at="/content",
            ),
        )
    value = None if shape.content is UNSET else parse_json(shape.content)
    wire_form = () if shape.is_error is not False else (NOT_ERROR,)
    failed = isinstance(value, dict) and str(value.get("type")).endswith("_tool_result_error")
    if failed and shape.is_error is not True:
        wire_form = (*wire_form, _ERROR_CONTENT)
    return ToolResult(
        call_id=shape.tool_use_id,
        content=content,
        status="error" if failed or shape.is_error is True else "ok",
        executor="server",
        native=shape.type,
        use=_decode_hosted_use(shape.type, value, shape.tool_use_id),
        caller=_decode_caller(shape.caller),
        cache=decode_cache(shape.cache_control),
        **collect_extras(shape, FAMILY, *wire_form),
    )


def _decode_hosted_use(tool_name: str, value: Any, id: str) -> HostedUse | None:
    """Decode a hosted tool's call or result in vendor-neutral terms; None if the tool has none."""
    kind = _HOSTED_KINDS.get(tool_name.removesuffix("_tool_result"))
    return None if kind is None else decode_hosted_use(kind, value, id=id)


def decode_tool_reference(block: ToolReferenceBlock) -> ToolRef:
    """Decode a reference to a deferred tool."""
    return ToolRef(name=block.tool_name, cache=decode_cache(block.cache_control), **collect_extras(block, FAMILY))


def decode_change(shape: ChangeShape, path: str) -> ToolChange:
    """Decode a `tool_addition` or `tool_removal`."""
    reference = _read_reference(shape.tool, f"{path}/tool")
    if reference.type not in _REFERENCES:
        raise DecodeError(FAMILY, f"{path}/tool/type", " or ".join(_REFERENCES), repr(reference.type))
    extras = collect_extras(shape, FAMILY)
    tool: Tool | ToolRef
    if reference.type == "tool_definition" and reference.definition is not UNSET:
        tool = replace(decode_tool(reference.definition, f"{path}/tool/definition"), at="/tool/definition")
        return ToolChange(add=(tool,), **merge_extras(extras, collect_extras(reference, FAMILY, prefix="tool/")))
    tool = ToolRef(
        name="" if reference.name is UNSET else reference.name,
        server=unset_to_none(reference.server_name),
        kind="function" if reference.type == "tool_reference" else "server",
        at="/tool",
        **collect_extras(reference, FAMILY, f"anthropic:type:{reference.type}", *_missing_name_token(reference.name)),
    )
    return ToolChange(add=(tool,), **extras) if shape.type == "tool_addition" else ToolChange(remove=(tool,), **extras)


def _missing_name_token(name: str | UnsetType) -> tuple[str, ...]:
    """Return the wire-form token that records a missing `name`, or an empty tuple if there is a name."""
    return ("anthropic:absent:name",) if name is UNSET else ()


# ---- encode


def encode_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode a tool call."""
    if part.executor == "server":
        return _encode_server_call(part, located_part, plan)
    if plan.same_protocol:
        arguments = Raw(part.arguments.encode()) if part.arguments else UNSET
    else:
        if part.native is not None:
            plan.report.approximated(located_part.path, "", f"{part.native} sent as a function call")
        arguments = encode_object_arguments(part, located_part, plan)
    shape = ToolUseBlock(id=plan.id_of(located_part), name=plan.tool_name(part.name, part.namespace), input=arguments)
    if part.caller is not None:
        if plan.same_protocol or part.caller.kind.startswith(_CODE_EXECUTION_PREFIX):
            shape.caller = _encode_caller(part.caller)
        elif part.caller.kind != "direct":
            plan.report.dropped(located_part.path, "caller", "called by a program of another vendor")
    if part.signature is not None:
        plan.report.dropped(located_part.path, "signature", "signatures are only valid for their issuer")
    if part.asynchronous:
        plan.report.dropped(located_part.path, "asynchronous")
    shape.toolset_name = none_to_unset(part.toolset)
    shape.cache_control = encode_cache(part.cache, located_part.path, plan)
    return encode_with_extras(shape, part, FAMILY)


def _encode_server_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode a call that a provider ran itself; for the model, another provider's call becomes text."""
    is_native = plan.same_protocol or _is_returned(part, part.id, plan)
    if not is_native and plan.for_client:
        return _encode_foreign_call_for_client(part, located_part, plan)
    if not is_native:
        plan.report.approximated(located_part.path, "", "server-side call of another provider, sent as text")
        return TextBlock(text=hosted_call_as_text(part))
    arguments = Raw(part.arguments.encode()) if part.arguments else UNSET
    if part.native == "mcp_tool_use":
        input_json = Raw(b"{}") if arguments is UNSET else arguments
        server = part.namespace or ""
        use = McpUseShape(type="mcp_tool_use", id=part.id or "", name=part.name, server_name=server, input=input_json)
        use.cache_control = encode_cache(part.cache, located_part.path, plan)
        return encode_with_extras(use, part, FAMILY)
    shape = ServerToolUseBlock(
        id=part.id or "", name=part.name, input=arguments, toolset_name=none_to_unset(part.toolset)
    )
    shape.caller = _encode_caller(part.caller)
    shape.cache_control = encode_cache(part.cache, located_part.path, plan)
    return encode_with_extras(shape, part, FAMILY)


def _is_returned(part: ToolCall | ToolResult, id: str | None, plan: EncodingPlan) -> bool:
    """Return whether Anthropic ran this hosted call, so that the block goes back as it was.

    Only Anthropic's own blocks decode to these kinds, and other vendors' ids lack the prefix.
    """
    kind = part.native or ""
    is_hosted = kind == "server_tool_use" or kind.endswith("_tool_result")
    is_accepted = not plan.for_client and accepts_native("server", plan.target.host)
    return is_hosted and (id or "").startswith(_SERVER_ID_PREFIX) and is_accepted


def _encode_foreign_call_for_client(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode a call that a non-Anthropic provider ran, to show it to the client; None without equivalent."""
    if is_mcp_part(part):
        plan.report.approximated(located_part.path, "", _SENT_AS_SERVER_CALL)
        input_json = Raw(part.arguments.encode()) if isinstance(parse_json(part.arguments), dict) else Raw(b"{}")
        name, server = part.name, part.namespace or ""
        return McpUseShape(type="mcp_tool_use", id=_mcp_id(part.id), name=name, server_name=server, input=input_json)
    if part.use is None:
        plan.report.dropped(located_part.path, "", "server-side call of another provider")
        return None
    plan.report.approximated(located_part.path, "", _SENT_AS_SERVER_CALL)
    return encode_hosted_call(hosted_query(part), plan)


def _encode_caller(caller: Caller | None) -> Any:
    """Encode `caller`, which made the call: the model or a program; UNSET without one."""
    if caller is None:
        return UNSET
    return encode_with_extras(CallerShape(type=caller.kind, tool_id=none_to_unset(caller.id)), caller, FAMILY)


def encode_server_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode the result of a call that a provider ran; for the model, another provider's result becomes text."""
    is_native = plan.same_protocol or _is_returned(part, part.call_id, plan)
    if not is_native and plan.for_client:
        return _encode_foreign_result_for_client(part, located_part, plan)
    content = part.content[0] if part.content else None
    if not is_native:
        text = content.gist if isinstance(content, OpaquePart) else None
        plan.report.approximated(located_part.path, "", "server-side result of another provider, sent as text")
        failed = "" if part.status == "ok" else " failed"
        return TextBlock(text=f"[{part.native}{failed}: {text or 'no readable content'}]")
    body = content.body if isinstance(content, OpaquePart) else UNSET
    shape = ServerResultShape(type=part.native or "", tool_use_id=part.call_id or "", content=body)
    is_flagged = part.status == "error" and _ERROR_CONTENT not in part.wire_form
    if is_flagged or NOT_ERROR in part.wire_form:
        shape.is_error = is_flagged
    shape.caller = _encode_caller(part.caller)
    shape.cache_control = encode_cache(part.cache, located_part.path, plan)
    return encode_with_extras(shape, part, FAMILY)


def _encode_foreign_result_for_client(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode a result from a non-Anthropic provider's own tool, to show it to the client; None if impossible."""
    failed = part.status != "ok"
    if is_mcp_part(part):
        plan.report.approximated(located_part.path, "", _SENT_AS_SERVER_RESULT)
        content = [{"type": "text", "text": mcp_result_text(part)}]
        id = _mcp_id(part.call_id)
        return {"type": "mcp_tool_result", "tool_use_id": id, "is_error": failed, "content": content}
    if part.use is None:
        plan.report.dropped(located_part.path, "", "server-side result of another provider")
        return None
    plan.report.approximated(located_part.path, "", _SENT_AS_SERVER_RESULT)
    return encode_hosted_result(part.use, located_part, plan, failed=failed)


def encode_hosted_call(use: HostedUse, plan: EncodingPlan) -> Any:
    """Encode a non-Anthropic provider's hosted tool call as a `server_tool_use` to show to the client."""
    arguments: dict[str, Any] = {}
    if use.queries:
        arguments["query"] = "; ".join(use.queries)
    if use.urls:
        arguments["url"] = use.urls[0]
    if use.code is not None:
        arguments["code"] = use.code
    plan.last_hosted_call_id = _server_id(use.id or f"tw{sum(plan.hosted_uses.values())}")
    plan.hosted_uses[use.kind] = plan.hosted_uses.get(use.kind, 0) + 1
    return {"type": "server_tool_use", "id": plan.last_hosted_call_id, "name": use.kind, "input": arguments}


def encode_hosted_result(use: HostedUse, located_part: LocatedPart, plan: EncodingPlan, *, failed: bool = False) -> Any:
    """Encode a non-Anthropic provider's hosted tool result to show to the client.

    Encrypted fields, which only Anthropic could fill, are empty.
    """
    content: Any
    match use.kind:
        case "web_search" | "web_fetch" if failed:
            content = {"type": f"{use.kind}_tool_result_error", "error_code": "unavailable"}
        case "web_search":
            content = [_encode_page(page) for page in use.pages if page.url is not None]
            for index in range(len(content)):
                pointer = f"/content/{plan.output_index}/content/{index}/encrypted_content"
                plan.report.added(
                    located_part.path,
                    "",
                    pointer,
                    "no encrypted content for results of another provider",
                    severity="info",
                )
        case "web_fetch":
            url = use.pages[0].url if use.pages else ""
            source = {"type": "text", "media_type": "text/plain", "data": use.output or ""}
            content = {"type": "web_fetch_result", "url": url, "content": {"type": "document", "source": source}}
        case "code_execution":
            output = {"stderr" if failed else "stdout": use.output or "", "return_code": int(failed), "content": []}
            content = {"type": "code_execution_result", "stdout": "", "stderr": "", **output}
    id = plan.last_hosted_call_id if use.id is None else _server_id(use.id)
    return {"type": f"{use.kind}_tool_result", "tool_use_id": id, "content": content}


def _encode_page(page: Citation) -> dict[str, Any]:
    """Encode one web search result."""
    fields = {"url": page.url, "title": page.title or "", "encrypted_content": "", "page_age": None}
    return {"type": "web_search_result", **fields}


def _server_id(id: str) -> str:
    """Return the id with the `srvtoolu_` prefix and characters that server tool calls require."""
    return id if id.startswith(_SERVER_ID_PREFIX) else _SERVER_ID_PREFIX + _ILLEGAL.sub("", id)


def _mcp_id(id: str | None) -> str:
    """Return the id with the `mcptoolu_` prefix and characters that MCP calls require."""
    return id if id is not None and id.startswith("mcptoolu_") else "mcptoolu_" + _ILLEGAL.sub("", id or "tw")


def encode_tool_reference(part: ToolRef, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode a reference to a deferred tool."""
    shape = ToolReferenceBlock(
        tool_name=plan.tool_name(part.name, part.namespace),
        cache_control=encode_cache(part.cache, located_part.path, plan),
    )
    return encode_with_extras(shape, part, FAMILY)


def encode_change(part: ToolChange, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode a tool change of an Anthropic client; None for other protocols, whose tools are all declared at start."""
    if not plan.same_protocol:
        plan.report.approximated(
            located_part.path, "", "tools that are loaded later are declared from the start", severity="info"
        )
        return None
    kind, changed = ("tool_addition", part.add) if part.add else ("tool_removal", part.remove)
    tool = changed[0]
    if isinstance(tool, ToolRef):
        reference_type = next(
            (token.removeprefix(_TYPE_FORM) for token in tool.wire_form if token.startswith(_TYPE_FORM)),
            "tool_reference",
        )
        name = UNSET if "anthropic:absent:name" in tool.wire_form else tool.name
        reference = ReferenceShape(type=reference_type, name=name, server_name=none_to_unset(tool.server))
        inner = encode_with_extras(reference, tool, FAMILY)
    else:
        (located_tool,) = flatten_tool(tool, located_part.path)
        inner = {"type": "tool_definition", "definition": encode_tool(located_tool, plan)}
    return encode_with_extras(ChangeShape(type=kind, tool=inner), part, FAMILY)
