"""Anthropic's calls, what servers ran, and changes of tools, to canonical parts and back."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Caller, Citation, Foreign, HostedUse, ToolCall, ToolChange, ToolResult
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.tools import HostedKind, Tool, ToolRef
from toolwire.codec.connectors import is_connected, text_of
from toolwire.codec.fields import Reader
from toolwire.codec.hosted import asked, in_words, json_of, use_of
from toolwire.codec.kept import emit, given, joined, known, rest
from toolwire.codec.plan import Plan
from toolwire.codec.tools import flattened, lower_input
from toolwire.codec.turns import Placed
from toolwire.protocols.anthropic.request.tools import decode_cache, decode_tool, encode_cache, encode_tool
from toolwire.protocols.anthropic.wire import (
    FAMILY,
    CallerShape,
    ChangeShape,
    McpUse,
    ReferenceShape,
    ServerResult,
    ServerToolUseBlock,
    TextBlock,
    ToolReferenceBlock,
    ToolUseBlock,
)

_TYPE = "anthropic:type:"
_REFERENCES = ("tool_reference", "mcp_tool_reference", "mcp_toolset_reference", "tool_definition")
_USES: dict[str, HostedKind] = {
    "web_search": "web_search",
    "web_fetch": "web_fetch",
    "code_execution": "code_execution",
    "bash_code_execution": "code_execution",
}
NOT_ERROR = "anthropic:is_error:false"
_PROGRAMS = "code_execution_"
"""How the target's own programs are called, whoever runs them for it."""

read_mcp_use = Reader[McpUse](McpUse, FAMILY).read
read_server_result = Reader[ServerResult](ServerResult, FAMILY).read
read_change = Reader[ChangeShape](ChangeShape, FAMILY).read
_read_reference = Reader[ReferenceShape](ReferenceShape, FAMILY).read

_ILLEGAL = re.compile("[^a-zA-Z0-9_]")
_decode = msgspec.json.Decoder().decode
decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_READABLE = frozenset(
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
        use=_decode_use(block.name, json_of(arguments), block.id) if server else None,
        toolset=known(block.toolset_name),
        caller=_decode_caller(block.caller),
        cache=decode_cache(block.cache_control),
        **rest(block, FAMILY),
    )


def _decode_caller(shape: CallerShape | UnsetType) -> Caller | None:
    if shape is UNSET:
        return None
    return Caller(kind=shape.type, id=known(shape.tool_id), **rest(shape, FAMILY))


def decode_mcp_use(shape: McpUse) -> ToolCall:
    return ToolCall(
        id=shape.id,
        name=shape.name,
        namespace=shape.server_name,
        arguments=str(shape.input, "utf-8"),
        executor="server",
        native="mcp_tool_use",
        cache=decode_cache(shape.cache_control),
        **rest(shape, FAMILY),
    )


def decode_server_result(shape: ServerResult) -> ToolResult:
    content = None
    if shape.content is not UNSET:
        content = (
            Foreign(protocol=FAMILY, kind="content", body=shape.content, gist=gist(shape.content), at="/content"),
        )
    said = None if shape.content is UNSET else json_of(shape.content)
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
        use=_decode_use(shape.type, said, shape.tool_use_id),
        caller=_decode_caller(shape.caller),
        cache=decode_cache(shape.cache_control),
        **rest(shape, FAMILY, *form),
    )


def _decode_use(word: str, said: Any, id: str) -> HostedUse | None:
    kind = _USES.get(word.removesuffix("_tool_result"))
    return None if kind is None else use_of(kind, said, id=id)


def decode_tool_reference(block: ToolReferenceBlock) -> ToolRef:
    return ToolRef(name=block.tool_name, cache=decode_cache(block.cache_control), **rest(block, FAMILY))


def decode_change(shape: ChangeShape, path: str) -> ToolChange:
    reference = _read_reference(shape.tool, f"{path}/tool")
    if reference.type not in _REFERENCES:
        raise DecodeError(FAMILY, f"{path}/tool/type", " or ".join(_REFERENCES), repr(reference.type))
    kept = rest(shape, FAMILY)
    added: Tool | ToolRef
    if reference.type == "tool_definition" and reference.definition is not UNSET:
        added = replace(decode_tool(reference.definition, f"{path}/tool/definition"), at="/tool/definition")
        return ToolChange(add=(added,), **joined(kept, rest(reference, FAMILY, under="tool/")))
    added = ToolRef(
        name="" if reference.name is UNSET else reference.name,
        server=known(reference.server_name),
        kind="function" if reference.type == "tool_reference" else "server",
        at="/tool",
        **rest(reference, FAMILY, f"anthropic:type:{reference.type}", *_absent(reference.name)),
    )
    return ToolChange(add=(added,), **kept) if shape.type == "tool_addition" else ToolChange(remove=(added,), **kept)


def _absent(name: str | UnsetType) -> tuple[str, ...]:
    return ("anthropic:absent:name",) if name is UNSET else ()


def gist(raw: Raw, limit: int = 100_000) -> str | None:
    """The readable text in a value that others can't use as it is."""
    found: list[str] = []

    def walk(value: object, *, readable: bool) -> None:
        if isinstance(value, str) and readable:
            found.append(value)
        elif isinstance(value, dict):
            for name, inner in value.items():
                # The text of a document; all other data is no text.
                walk(inner, readable=name in _READABLE or (name == "data" and value.get("type") == "text"))
        elif isinstance(value, list):
            for inner in value:
                walk(inner, readable=readable)

    walk(_decode(raw), readable=True)
    text = "\n".join(part for part in found if part)
    return text[:limit] or None


# ---- encode


def encode_call(part: ToolCall, placed: Placed, plan: Plan) -> Any:
    if part.executor == "server":
        return _encode_server_call(part, placed, plan)
    if plan.home:
        arguments = Raw(part.arguments.encode()) if part.arguments else UNSET
    else:
        arguments = _encode_arguments(part, placed, plan)
    shape = ToolUseBlock(id=plan.id_of(placed), name=plan.name(part.name, part.namespace), input=arguments)
    if part.caller is not None:
        if plan.home or part.caller.kind.startswith(_PROGRAMS):
            shape.caller = emit(CallerShape(type=part.caller.kind, tool_id=given(part.caller.id)), part.caller, FAMILY)
        elif part.caller.kind != "direct":
            plan.report.dropped(placed.trail, "caller", "the target's programs are another vendor's")
    if part.seal is not None:
        plan.report.dropped(placed.trail, "seal", "a seal goes only to its issuer")
    if part.asynchronous:
        plan.report.dropped(placed.trail, "asynchronous")
    shape.toolset_name = given(part.toolset)
    shape.cache_control = encode_cache(part.cache, placed.trail, plan)
    return emit(shape, part, FAMILY)


def _encode_arguments(part: ToolCall, placed: Placed, plan: Plan) -> Raw:
    """The arguments as the object that the provider insists on."""
    if part.native is not None:
        plan.report.approximated(placed.trail, "", f"{part.native} as a call of a function")
    if part.shape == "freeform":
        return Raw(lower_input(part.arguments).encode())
    text = part.arguments.strip().encode()
    if text in (b"", b"null"):
        return Raw(b"{}")
    try:
        decode_object(text)
    except (msgspec.DecodeError, RecursionError):
        plan.report.approximated(placed.trail, "arguments", "not a JSON object: sent as text")
        return Raw(unreadable(part.arguments))
    return Raw(text)


def unreadable(arguments: str) -> bytes:
    """Arguments that are no object, inside one."""
    return msgspec.json.encode({"_raw": arguments})


def _encode_server_call(part: ToolCall, placed: Placed, plan: Plan) -> Any:
    if not plan.home and plan.answering:
        if is_connected(part):
            plan.report.approximated(placed.trail, "", "a call that another provider ran, told as one of the target's")
            body = Raw(part.arguments.encode()) if isinstance(json_of(part.arguments), dict) else Raw(b"{}")
            name, server = part.name, part.namespace or ""
            return McpUse(type="mcp_tool_use", id=_mcp_id(part.id), name=name, server_name=server, input=body)
        if part.use is None:
            plan.report.dropped(placed.trail, "", "a call that another provider ran")
            return None
        plan.report.approximated(placed.trail, "", "a call that another provider ran, told as one of the target's")
        return encode_asked(asked(part), plan)
    if not plan.home:
        plan.report.approximated(placed.trail, "", "a call that another provider ran: told as text")
        return TextBlock(text=in_words(part))
    arguments = Raw(part.arguments.encode()) if part.arguments else UNSET
    if part.native == "mcp_tool_use":
        body = Raw(b"{}") if arguments is UNSET else arguments
        name = part.namespace or ""
        use = McpUse(type="mcp_tool_use", id=part.id or "", name=part.name, server_name=name, input=body)
        use.cache_control = encode_cache(part.cache, placed.trail, plan)
        return emit(use, part, FAMILY)
    shape = ServerToolUseBlock(id=part.id or "", name=part.name, input=arguments, toolset_name=given(part.toolset))
    if part.caller is not None:
        shape.caller = emit(CallerShape(type=part.caller.kind, tool_id=given(part.caller.id)), part.caller, FAMILY)
    shape.cache_control = encode_cache(part.cache, placed.trail, plan)
    return emit(shape, part, FAMILY)


def encode_server_result(part: ToolResult, placed: Placed, plan: Plan) -> Any:
    content = part.content[0] if part.content else None
    if not plan.home and plan.answering:
        if is_connected(part):
            plan.report.approximated(
                placed.trail, "", "a result that another provider got, told as one of the target's"
            )
            said = [{"type": "text", "text": text_of(part)}]
            told = {"tool_use_id": _mcp_id(part.call_id), "is_error": part.status != "ok", "content": said}
            return {"type": "mcp_tool_result", **told}
        if part.use is None:
            plan.report.dropped(placed.trail, "", "a result that another provider got")
            return None
        plan.report.approximated(placed.trail, "", "a result that another provider got, told as one of the target's")
        return encode_found(part.use, placed, plan, failed=part.status != "ok")
    if not plan.home:
        text = content.gist if isinstance(content, Foreign) else None
        plan.report.approximated(placed.trail, "", "a result that another provider got: told as text")
        failed = "" if part.status == "ok" else " failed"
        return TextBlock(text=f"[{part.native}{failed}: {text or 'no readable content'}]")
    body = content.body if isinstance(content, Foreign) else UNSET
    shape = ServerResult(type=part.native or "", tool_use_id=part.call_id or "", content=body)
    flagged = part.status == "error" and _ERROR_CONTENT not in part.form
    if flagged or NOT_ERROR in part.form:
        shape.is_error = flagged
    if part.caller is not None:
        shape.caller = emit(CallerShape(type=part.caller.kind, tool_id=given(part.caller.id)), part.caller, FAMILY)
    shape.cache_control = encode_cache(part.cache, placed.trail, plan)
    return emit(shape, part, FAMILY)


def encode_asked(use: HostedUse, plan: Plan) -> Any:
    """The call of a hosted tool that another provider ran, for a client to read."""
    said: dict[str, Any] = {}
    if use.queries:
        said["query"] = "; ".join(use.queries)
    if use.urls:
        said["url"] = use.urls[0]
    if use.code is not None:
        said["code"] = use.code
    plan.served = _server_id(use.id or f"tw{sum(plan.uses.values())}")
    plan.uses[use.kind] = plan.uses.get(use.kind, 0) + 1
    return {"type": "server_tool_use", "id": plan.served, "name": use.kind, "input": said}


def encode_found(use: HostedUse, placed: Placed, plan: Plan, *, failed: bool = False) -> Any:
    """What it found. The proofs that the provider would want back are empty: there are none."""
    content: Any
    match use.kind:
        case "web_search" | "web_fetch" if failed:
            content = {"type": f"{use.kind}_tool_result_error", "error_code": "unavailable"}
        case "web_search":
            content = [_encode_page(page) for page in use.pages if page.url is not None]
            for index in range(len(content)):
                place = f"/content/{plan.count}/content/{index}/encrypted_content"
                plan.report.invented(placed.trail, "", place, "there is no proof of what others found: it is empty")
        case "web_fetch":
            url = use.pages[0].url if use.pages else ""
            source = {"type": "text", "media_type": "text/plain", "data": use.output or ""}
            content = {"type": "web_fetch_result", "url": url, "content": {"type": "document", "source": source}}
        case "code_execution":
            said = {"stderr" if failed else "stdout": use.output or "", "return_code": int(failed), "content": []}
            content = {"type": "code_execution_result", "stdout": "", "stderr": "", **said}
    id = plan.served if use.id is None else _server_id(use.id)
    return {"type": f"{use.kind}_tool_result", "tool_use_id": id, "content": content}


def _encode_page(page: Citation) -> dict[str, Any]:
    told = {"url": page.url, "title": page.title or "", "encrypted_content": "", "page_age": None}
    return {"type": "web_search_result", **told}


def _server_id(id: str) -> str:
    return id if id.startswith("srvtoolu_") else "srvtoolu_" + _ILLEGAL.sub("", id)


def _mcp_id(id: str | None) -> str:
    return id if id is not None and id.startswith("mcptoolu_") else "mcptoolu_" + _ILLEGAL.sub("", id or "tw")


def encode_tool_reference(part: ToolRef, placed: Placed, plan: Plan) -> Any:
    shape = ToolReferenceBlock(
        tool_name=plan.name(part.name, part.namespace), cache_control=encode_cache(part.cache, placed.trail, plan)
    )
    return emit(shape, part, FAMILY)


def encode_change(part: ToolChange, placed: Placed, plan: Plan) -> Any:
    if not plan.home:
        plan.report.approximated(placed.trail, "", "tools that come later are declared from the start")
        return None
    kind, changed = ("tool_addition", part.add) if part.add else ("tool_removal", part.remove)
    tool = changed[0]
    if isinstance(tool, ToolRef):
        kind_of = next((token.removeprefix(_TYPE) for token in tool.form if token.startswith(_TYPE)), "tool_reference")
        name = UNSET if "anthropic:absent:name" in tool.form else tool.name
        reference = ReferenceShape(type=kind_of, name=name, server_name=given(tool.server))
        inner = emit(reference, tool, FAMILY)
    else:
        (placed_tool,) = flattened(tool, placed.trail)
        inner = {"type": "tool_definition", "definition": encode_tool(placed_tool, plan)}
    return emit(ChangeShape(type=kind, tool=inner), part, FAMILY)
