"""Items of tools that a provider runs: web search, code interpreter, image generation and MCP calls."""

from typing import Any, Literal, TypeGuard

from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import HostedUse, Inline, Media, Message, OpaquePart, Part, Text, ToolCall, ToolResult
from toolwire.canonical.tools import HostedKind
from toolwire.codec.encoding.hosted_tools import (
    decode_hosted_use,
    hosted_query,
    is_mcp_part,
    mcp_result_text,
    parse_json,
)
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.losses import SourcePath
from toolwire.codec.wire.reader import decode_json
from toolwire.protocols.openai_responses.parts.plan import ItemPlan

_HOSTED_KINDS: dict[str, HostedKind] = {"web_search_call": "web_search", "code_interpreter_call": "code_execution"}
_IMAGE_CALL = "image_generation_call"
_MCP_CALL = "mcp_call"

_CALL_FIELDS = ("id", "name", "server_label", "arguments", "output", "error")


# ---- decode


def attach_meaning(item: OpaquePart, members: dict[str, Raw]) -> OpaquePart:
    """Return a hosted item with its vendor-neutral meaning: a tool use, an image, or a call and its result."""
    if item.kind in _HOSTED_KINDS:
        return replace(item, use=_decode_hosted_use(item.kind, members))
    if item.kind == _IMAGE_CALL:
        return replace(item, media=_decode_image(members))
    return replace(item, called=_decode_mcp_call(members)) if item.kind == _MCP_CALL else item


def _decode_hosted_use(kind: str, members: dict[str, Raw]) -> HostedUse:
    """Decode a web search or code interpreter call with its results."""
    id = decode_json(members.get("id", b"null"))
    fields = {name: decode_json(raw) for name, raw in members.items() if name in ("code", "results")}
    hosted_kind = _HOSTED_KINDS[kind]
    if isinstance(action := decode_json(members.get("action", b"null")), dict):
        fields |= action
        hosted_kind = "web_fetch" if action.get("type") in ("open_page", "find_in_page") else hosted_kind
    outputs = decode_json(members.get("outputs", b"null"))
    logs = [output.get("logs") for output in outputs if isinstance(output, dict)] if isinstance(outputs, list) else []
    if texts := [log for log in logs if isinstance(log, str)]:
        fields["output"] = "\n".join(texts)
    use = decode_hosted_use(hosted_kind, fields, id=id if isinstance(id, str) else None)
    return replace(use, failed=True) if bytes(members.get("status", b"")) == b'"failed"' else use


def _decode_image(members: dict[str, Raw]) -> Media | None:
    """Decode the image that an image generation call produced; None if it has none."""
    data, image_format = (decode_json(members.get(name, b"null")) for name in ("result", "output_format"))
    if not isinstance(data, str) or not data:
        return None
    media_type = f"image/{image_format}" if isinstance(image_format, str) else "image/png"
    return Media(kind="image", source=Inline(data=data, at=""), media_type=media_type, at="/result")


def _decode_mcp_call(members: dict[str, Raw]) -> tuple[ToolCall | ToolResult, ...]:
    """Decode an MCP call item as a tool call, followed by its result if it has finished."""
    fields = {name: parse_json(raw) for name, raw in members.items()}
    id, name, server, arguments, output, error = (fields.get(field) for field in _CALL_FIELDS)
    if not (isinstance(id, str) and isinstance(name, str) and isinstance(server, str)):
        return ()
    text = arguments if isinstance(arguments, str) else ""
    call = ToolCall(id=id, name=name, namespace=server, arguments=text, executor="server", native=_MCP_CALL, at="")
    result_text = output if isinstance(output, str) else _error_text(error)
    if result_text is None:
        return (call,)
    status: Literal["ok", "error"] = "ok" if error is None else "error"
    content = (Text(text=result_text, at=""),)
    result = ToolResult(call_id=id, content=content, status=status, executor="server", native=_MCP_CALL, at="")
    return call, result


def _error_text(error: Any) -> str | None:
    """Return the message of an MCP error; None if there is no error."""
    if isinstance(error, str):
        return error
    members = error if isinstance(error, dict) else {}
    content = members.get("content")
    texts = [block.get("text") for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    texts.append(members.get("message"))
    return "\n".join(text for text in texts if isinstance(text, str)) if members else None


# ---- encode


def is_hosted_part(part: Part, plan: ItemPlan) -> TypeGuard[ToolCall | ToolResult | OpaquePart]:
    """Return whether a provider ran the part itself, a call or result.

    An opaque part that holds both call and result counts only in responses to clients.
    """
    if isinstance(part, OpaquePart):
        return part.use is not None and plan.for_client and not plan.same_protocol
    return isinstance(part, ToolCall | ToolResult) and part.executor == "server"


def encode_hosted_use(
    part: ToolCall | ToolResult | OpaquePart, located_part: LocatedPart, plan: ItemPlan, index: int
) -> list[Any]:
    """Encode another provider's hosted call or result as items; empty for a call, which waits for its result.

    One item holds both call and result. `index` is the output index of the next item.
    """
    plan.report.approximated(
        located_part.path, "", "server-side call of another provider, sent as an item of the target"
    )
    if isinstance(part, OpaquePart):
        if part.use is None:
            raise TypeError(f"{part.kind} is not a hosted tool use")
        return [
            _encode_hosted_item(part.use, "failed" if part.use.failed else "completed", plan, located_part.path, index)
        ]
    if isinstance(part, ToolCall):
        plan.pending_calls[part.id] = part if is_mcp_part(part) else hosted_query(part), located_part.path
        return []
    use, _ = plan.pending_calls.pop(part.call_id, (part.use, located_part.path))
    if isinstance(use, ToolCall) or use is None or part.use is None:
        call = use if isinstance(use, ToolCall) else ToolCall(id=part.call_id, name=part.name or "", arguments="{}")
        return [_encode_mcp_call(call, part, plan)]
    answered_use = replace(use, pages=part.use.pages, output=part.use.output)
    return [
        _encode_hosted_item(
            answered_use, "completed" if part.status == "ok" else "failed", plan, located_part.path, index
        )
    ]


def encode_unanswered_calls(plan: ItemPlan, index: int) -> list[Any]:
    """Encode items for hosted calls that never got a result; `index` is the output index of the next item."""
    uses, plan.pending_calls = plan.pending_calls, {}
    return [
        _encode_mcp_call(use, None, plan)
        if isinstance(use, ToolCall)
        else _encode_hosted_item(use, "incomplete", plan, path, position)
        for position, (use, path) in enumerate(uses.values(), index)
    ]


def _encode_mcp_call(call: ToolCall, result: ToolResult | None, plan: ItemPlan) -> dict[str, Any]:
    """Encode an MCP call and its result as one item."""
    header = plan.item_header("mcp")
    call_fields = {"name": call.name, "arguments": call.arguments or "{}", "server_label": call.namespace or ""}
    item: dict[str, Any] = {"type": _MCP_CALL, "id": header.id, **call_fields, "approval_request_id": None}
    if result is None:
        return {**item, "status": "incomplete", "output": None, "error": None}
    text = mcp_result_text(result)
    if result.status == "ok":
        return {**item, "status": "completed", "output": text, "error": None}
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
    return {**item, "status": "failed", "output": None, "error": error}


def _encode_hosted_item(use: HostedUse, status: str, plan: ItemPlan, path: SourcePath, index: int) -> dict[str, Any]:
    """Encode a web search, page fetch or code interpreter call as an item."""
    header: Message = plan.item_header("ci" if use.kind == "code_execution" else "ws")
    item: dict[str, Any] = {"id": header.id, "status": status}
    if use.kind == "code_execution":
        outputs = None if use.output is None else [{"type": "logs", "logs": use.output}]
        plan.report.added(
            path, "", f"/output/{index}/container_id", "the target requires a container id; left empty", severity="info"
        )
        return {"type": "code_interpreter_call", **item, "container_id": "", "code": use.code, "outputs": outputs}
    if use.kind == "web_fetch":
        url = use.urls[0] if use.urls else use.pages[0].url if use.pages else None
        return {"type": "web_search_call", **item, "action": {"type": "open_page", "url": url}}
    sources = [{"type": "url", "url": page.url} for page in use.pages]
    action = {"type": "search", "query": "; ".join(use.queries), "queries": list(use.queries), "sources": sources}
    return {"type": "web_search_call", **item, "action": action}
