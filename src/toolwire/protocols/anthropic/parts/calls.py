"""Anthropic's calls, what servers ran, and changes of tools, to canonical parts and back."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Caller, Citation, HostedUse, OpaquePart, ToolCall, ToolChange, ToolResult
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.tools import HostedKind, Tool, ToolRef
from toolwire.codec.encoding.hosted_tools import (
    decode_hosted_use,
    hosted_call_as_text,
    hosted_query,
    is_mcp_part,
    mcp_result_text,
    parse_json,
)
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import flatten_tool, wrap_freeform_input
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.wire.extras import collect_extras, encode_with_extras, merge_extras, none_to_unset, unset_to_none
from toolwire.codec.wire.reader import Reader, decode_json
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
"""How the target's own programs are called, whoever runs them for it."""

read_mcp_use = Reader[McpUseShape](McpUseShape, FAMILY).read
read_server_result = Reader[ServerResultShape](ServerResultShape, FAMILY).read
read_change = Reader[ChangeShape](ChangeShape, FAMILY).read
_read_reference = Reader[ReferenceShape](ReferenceShape, FAMILY).read

_ILLEGAL = re.compile("[^a-zA-Z0-9_]")
decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_READABLE_FIELDS = frozenset(
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
"""That a tool failed is told by the type of its content."""


# ---- decode


def decode_tool_use(block: ToolUseBlock) -> ToolCall:
    server = type(block) is ServerToolUseBlock
    bare = block.unknown is UNSET and block.nulls is UNSET and block.toolset_name is UNSET
    arguments = "" if block.input is UNSET else str(block.input, "utf-8")
    if bare and not server and block.caller is UNSET and block.cache_control is UNSET:
        return ToolCall(id=block.id, name=block.name, arguments=arguments)
    return ToolCall(
        id=block.id,
        name=block.name,
        arguments=arguments,
        executor="server" if server else "client",
        native="server_tool_use" if server else None,
        use=_decode_hosted_use(block.name, parse_json(arguments), block.id) if server else None,
        toolset=unset_to_none(block.toolset_name),
        caller=_decode_caller(block.caller),
        cache=decode_cache(block.cache_control),
        **collect_extras(block, FAMILY),
    )


def _decode_caller(shape: CallerShape | UnsetType) -> Caller | None:
    if shape is UNSET:
        return None
    return Caller(kind=shape.type, id=unset_to_none(shape.tool_id), **collect_extras(shape, FAMILY))


def decode_mcp_use(shape: McpUseShape) -> ToolCall:
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
    content = None
    if shape.content is not UNSET:
        content = (
            OpaquePart(
                protocol=FAMILY, kind="content", body=shape.content, gist=readable_text(shape.content), at="/content"
            ),
        )
    said = None if shape.content is UNSET else parse_json(shape.content)
    form = () if shape.is_error is not False else (NOT_ERROR,)
    failed = isinstance(said, dict) and str(said.get("type")).endswith("_tool_result_error")
    if failed and shape.is_error is not True:
        form = (*form, _ERROR_CONTENT)
    return ToolResult(
        call_id=shape.tool_use_id,
        content=content,
        status="error" if failed or shape.is_error is True else "ok",
        executor="server",
        native=shape.type,
        use=_decode_hosted_use(shape.type, said, shape.tool_use_id),
        caller=_decode_caller(shape.caller),
        cache=decode_cache(shape.cache_control),
        **collect_extras(shape, FAMILY, *form),
    )


def _decode_hosted_use(tool_name: str, value: Any, id: str) -> HostedUse | None:
    kind = _HOSTED_KINDS.get(tool_name.removesuffix("_tool_result"))
    return None if kind is None else decode_hosted_use(kind, value, id=id)


def decode_tool_reference(block: ToolReferenceBlock) -> ToolRef:
    return ToolRef(name=block.tool_name, cache=decode_cache(block.cache_control), **collect_extras(block, FAMILY))


def decode_change(shape: ChangeShape, path: str) -> ToolChange:
    reference = _read_reference(shape.tool, f"{path}/tool")
    if reference.type not in _REFERENCES:
        raise DecodeError(FAMILY, f"{path}/tool/type", " or ".join(_REFERENCES), repr(reference.type))
    kept = collect_extras(shape, FAMILY)
    added: Tool | ToolRef
    if reference.type == "tool_definition" and reference.definition is not UNSET:
        added = replace(decode_tool(reference.definition, f"{path}/tool/definition"), at="/tool/definition")
        return ToolChange(add=(added,), **merge_extras(kept, collect_extras(reference, FAMILY, prefix="tool/")))
    added = ToolRef(
        name="" if reference.name is UNSET else reference.name,
        server=unset_to_none(reference.server_name),
        kind="function" if reference.type == "tool_reference" else "server",
        at="/tool",
        **collect_extras(reference, FAMILY, f"anthropic:type:{reference.type}", *_absence_form(reference.name)),
    )
    return ToolChange(add=(added,), **kept) if shape.type == "tool_addition" else ToolChange(remove=(added,), **kept)


def _absence_form(name: str | UnsetType) -> tuple[str, ...]:
    return ("anthropic:absent:name",) if name is UNSET else ()


def readable_text(raw: Raw, limit: int = 100_000) -> str | None:
    """The readable text in a value that others can't use as it is."""
    found: list[str] = []

    def walk(value: object, *, readable: bool) -> None:
        if isinstance(value, str) and readable:
            found.append(value)
        elif isinstance(value, dict):
            for name, inner in value.items():
                # The text of a document; all other data is no text.
                walk(inner, readable=name in _READABLE_FIELDS or (name == "data" and value.get("type") == "text"))
        elif isinstance(value, list):
            for inner in value:
                walk(inner, readable=readable)

    walk(decode_json(raw), readable=True)
    text = "\n".join(part for part in found if part)
    return text[:limit] or None


# ---- encode


def encode_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    if part.executor == "server":
        return _encode_server_call(part, located_part, plan)
    if plan.same_protocol:
        arguments = Raw(part.arguments.encode()) if part.arguments else UNSET
    else:
        arguments = _encode_arguments(part, located_part, plan)
    shape = ToolUseBlock(id=plan.id_of(located_part), name=plan.tool_name(part.name, part.namespace), input=arguments)
    if part.caller is not None:
        if plan.same_protocol or part.caller.kind.startswith(_CODE_EXECUTION_PREFIX):
            shape.caller = encode_with_extras(
                CallerShape(type=part.caller.kind, tool_id=none_to_unset(part.caller.id)), part.caller, FAMILY
            )
        elif part.caller.kind != "direct":
            plan.report.dropped(located_part.path, "caller", "the target's programs are another vendor's")
    if part.signature is not None:
        plan.report.dropped(located_part.path, "signature", "a seal goes only to its issuer")
    if part.asynchronous:
        plan.report.dropped(located_part.path, "asynchronous")
    shape.toolset_name = none_to_unset(part.toolset)
    shape.cache_control = encode_cache(part.cache, located_part.path, plan)
    return encode_with_extras(shape, part, FAMILY)


def _encode_arguments(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> Raw:
    """The arguments as the object that the provider insists on."""
    if part.native is not None:
        plan.report.approximated(located_part.path, "", f"{part.native} as a call of a function")
    if part.shape == "freeform":
        return Raw(wrap_freeform_input(part.arguments).encode())
    text = part.arguments.strip().encode()
    if text in (b"", b"null"):
        return Raw(b"{}")
    try:
        decode_members(text)
    except (msgspec.DecodeError, RecursionError):
        plan.report.approximated(located_part.path, "arguments", "not a JSON object: sent as text")
        return Raw(wrap_invalid_arguments(part.arguments))
    return Raw(text)


def wrap_invalid_arguments(arguments: str) -> bytes:
    """Arguments that are no object, inside one."""
    return msgspec.json.encode({"_raw": arguments})


def _encode_server_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    if not plan.same_protocol and plan.for_client:
        if is_mcp_part(part):
            plan.report.approximated(
                located_part.path, "", "a call that another provider ran, told as one of the target's"
            )
            body = Raw(part.arguments.encode()) if isinstance(parse_json(part.arguments), dict) else Raw(b"{}")
            name, server = part.name, part.namespace or ""
            return McpUseShape(type="mcp_tool_use", id=_mcp_id(part.id), name=name, server_name=server, input=body)
        if part.use is None:
            plan.report.dropped(located_part.path, "", "a call that another provider ran")
            return None
        plan.report.approximated(located_part.path, "", "a call that another provider ran, told as one of the target's")
        return encode_hosted_call(hosted_query(part), plan)
    if not plan.same_protocol:
        plan.report.approximated(located_part.path, "", "a call that another provider ran: told as text")
        return TextBlock(text=hosted_call_as_text(part))
    arguments = Raw(part.arguments.encode()) if part.arguments else UNSET
    if part.native == "mcp_tool_use":
        body = Raw(b"{}") if arguments is UNSET else arguments
        name = part.namespace or ""
        use = McpUseShape(type="mcp_tool_use", id=part.id or "", name=part.name, server_name=name, input=body)
        use.cache_control = encode_cache(part.cache, located_part.path, plan)
        return encode_with_extras(use, part, FAMILY)
    shape = ServerToolUseBlock(
        id=part.id or "", name=part.name, input=arguments, toolset_name=none_to_unset(part.toolset)
    )
    if part.caller is not None:
        shape.caller = encode_with_extras(
            CallerShape(type=part.caller.kind, tool_id=none_to_unset(part.caller.id)), part.caller, FAMILY
        )
    shape.cache_control = encode_cache(part.cache, located_part.path, plan)
    return encode_with_extras(shape, part, FAMILY)


def encode_server_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    content = part.content[0] if part.content else None
    if not plan.same_protocol and plan.for_client:
        if is_mcp_part(part):
            plan.report.approximated(
                located_part.path, "", "a result that another provider got, told as one of the target's"
            )
            said = [{"type": "text", "text": mcp_result_text(part)}]
            told = {"tool_use_id": _mcp_id(part.call_id), "is_error": part.status != "ok", "content": said}
            return {"type": "mcp_tool_result", **told}
        if part.use is None:
            plan.report.dropped(located_part.path, "", "a result that another provider got")
            return None
        plan.report.approximated(
            located_part.path, "", "a result that another provider got, told as one of the target's"
        )
        return encode_hosted_result(part.use, located_part, plan, failed=part.status != "ok")
    if not plan.same_protocol:
        text = content.gist if isinstance(content, OpaquePart) else None
        plan.report.approximated(located_part.path, "", "a result that another provider got: told as text")
        failed = "" if part.status == "ok" else " failed"
        return TextBlock(text=f"[{part.native}{failed}: {text or 'no readable content'}]")
    body = content.body if isinstance(content, OpaquePart) else UNSET
    shape = ServerResultShape(type=part.native or "", tool_use_id=part.call_id or "", content=body)
    flagged = part.status == "error" and _ERROR_CONTENT not in part.wire_form
    if flagged or NOT_ERROR in part.wire_form:
        shape.is_error = flagged
    if part.caller is not None:
        shape.caller = encode_with_extras(
            CallerShape(type=part.caller.kind, tool_id=none_to_unset(part.caller.id)), part.caller, FAMILY
        )
    shape.cache_control = encode_cache(part.cache, located_part.path, plan)
    return encode_with_extras(shape, part, FAMILY)


def encode_hosted_call(use: HostedUse, plan: EncodingPlan) -> Any:
    """The call of a hosted tool that another provider ran, for a client to read."""
    said: dict[str, Any] = {}
    if use.queries:
        said["query"] = "; ".join(use.queries)
    if use.urls:
        said["url"] = use.urls[0]
    if use.code is not None:
        said["code"] = use.code
    plan.last_hosted_call_id = _server_id(use.id or f"tw{sum(plan.hosted_uses.values())}")
    plan.hosted_uses[use.kind] = plan.hosted_uses.get(use.kind, 0) + 1
    return {"type": "server_tool_use", "id": plan.last_hosted_call_id, "name": use.kind, "input": said}


def encode_hosted_result(use: HostedUse, located_part: LocatedPart, plan: EncodingPlan, *, failed: bool = False) -> Any:
    """What it found. The proofs that the provider would want back are empty: there are none."""
    content: Any
    match use.kind:
        case "web_search" | "web_fetch" if failed:
            content = {"type": f"{use.kind}_tool_result_error", "error_code": "unavailable"}
        case "web_search":
            content = [_encode_page(page) for page in use.pages if page.url is not None]
            for index in range(len(content)):
                place = f"/content/{plan.output_index}/content/{index}/encrypted_content"
                plan.report.added(located_part.path, "", place, "there is no proof of what others found: it is empty")
        case "web_fetch":
            url = use.pages[0].url if use.pages else ""
            source = {"type": "text", "media_type": "text/plain", "data": use.output or ""}
            content = {"type": "web_fetch_result", "url": url, "content": {"type": "document", "source": source}}
        case "code_execution":
            said = {"stderr" if failed else "stdout": use.output or "", "return_code": int(failed), "content": []}
            content = {"type": "code_execution_result", "stdout": "", "stderr": "", **said}
    id = plan.last_hosted_call_id if use.id is None else _server_id(use.id)
    return {"type": f"{use.kind}_tool_result", "tool_use_id": id, "content": content}


def _encode_page(page: Citation) -> dict[str, Any]:
    told = {"url": page.url, "title": page.title or "", "encrypted_content": "", "page_age": None}
    return {"type": "web_search_result", **told}


def _server_id(id: str) -> str:
    return id if id.startswith("srvtoolu_") else "srvtoolu_" + _ILLEGAL.sub("", id)


def _mcp_id(id: str | None) -> str:
    return id if id is not None and id.startswith("mcptoolu_") else "mcptoolu_" + _ILLEGAL.sub("", id or "tw")


def encode_tool_reference(part: ToolRef, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    shape = ToolReferenceBlock(
        tool_name=plan.tool_name(part.name, part.namespace),
        cache_control=encode_cache(part.cache, located_part.path, plan),
    )
    return encode_with_extras(shape, part, FAMILY)


def encode_change(part: ToolChange, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    if not plan.same_protocol:
        plan.report.approximated(located_part.path, "", "tools that come later are declared from the start")
        return None
    kind, changed = ("tool_addition", part.add) if part.add else ("tool_removal", part.remove)
    tool = changed[0]
    if isinstance(tool, ToolRef):
        kind_of = next(
            (token.removeprefix(_TYPE_FORM) for token in tool.wire_form if token.startswith(_TYPE_FORM)),
            "tool_reference",
        )
        name = UNSET if "anthropic:absent:name" in tool.wire_form else tool.name
        reference = ReferenceShape(type=kind_of, name=name, server_name=none_to_unset(tool.server))
        inner = encode_with_extras(reference, tool, FAMILY)
    else:
        (placed_tool,) = flatten_tool(tool, located_part.path)
        inner = {"type": "tool_definition", "definition": encode_tool(placed_tool, plan)}
    return encode_with_extras(ChangeShape(type=kind, tool=inner), part, FAMILY)
