"""Decode and encode calls and results of tools that a provider ran itself."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.content import HostedUse, OpaquePart, Signature, ToolCall, ToolResult
from toolwire.codec.encoding.fallbacks import readable_text
from toolwire.codec.encoding.hosted_tools import (
    decode_hosted_use,
    hosted_call_as_text,
    hosted_query,
    is_mcp_part,
    mcp_result_text,
    parse_json,
)
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.wire.extras import collect_extras, encode_with_extras, merge_extras, none_to_unset, unset_to_none
from toolwire.codec.wire.reader import Reader
from toolwire.protocols.gemini_interactions.parts.calls import NO_ARGUMENTS, NOT_ERROR, same_protocol_arguments
from toolwire.protocols.gemini_interactions.parts.content import READABLE_FIELDS, StepPlan
from toolwire.protocols.gemini_interactions.tools import HOSTED_TOOLS
from toolwire.protocols.gemini_interactions.wire import FAMILY, ISSUER, ServerCall, ServerResult, TextContent
from toolwire.protocols.vendors.google.tools import (
    IMAGE_SEARCH,
    STEPS_WITHOUT_CONTENT,
    as_list_result,
    code_argument,
    step_name,
)

_NO_NAME = "gemini-interactions:absent:name"

_read_call = Reader[ServerCall](ServerCall, FAMILY).read
_read_result = Reader[ServerResult](ServerResult, FAMILY).read


# ---- decode


def decode_server_call(raw: Raw, path: str) -> ToolCall:
    """Decode a call step of a hosted tool."""
    shape = _read_call(raw, path)
    extras = collect_extras(shape, FAMILY)
    form: tuple[str, ...] = () if shape.arguments is not UNSET else (NO_ARGUMENTS,)
    signature = None
    if shape.signature is not UNSET:
        signature = Signature(issuer=ISSUER, data=shape.signature, kind="signature", at="/signature")
    if shape.name is UNSET:
        form = (*form, _NO_NAME)
    if shape.search_type is not UNSET and parse_json(shape.search_type) in ("web_search", IMAGE_SEARCH):
        form = (*form, f"{FAMILY}:canonical:search_type")
    return ToolCall(
        id=unset_to_none(shape.id),
        name=shape.type.removesuffix("_call") if shape.name is UNSET else shape.name,
        namespace=unset_to_none(shape.server_name),
        arguments="" if shape.arguments is UNSET else str(shape.arguments, "utf-8"),
        executor="server",
        native=shape.type,
        signature=signature,
        use=_decode_hosted_use(shape.type, shape.arguments, unset_to_none(shape.id)),
        at="",
        **merge_extras(extras, {"wire_form": form}),
    )


def decode_server_result(raw: Raw, path: str) -> ToolResult:
    """Decode a result step of a hosted tool; its result is opaque to other providers."""
    shape = _read_result(raw, path)
    content = None
    if shape.result is not UNSET:
        gist = readable_text(shape.result, READABLE_FIELDS)
        content = (OpaquePart(protocol=FAMILY, kind="result", body=shape.result, gist=gist, at="/result"),)
    form = () if shape.is_error is not False else (NOT_ERROR,)
    signature = None
    if shape.signature is not UNSET:
        signature = Signature(issuer=ISSUER, data=shape.signature, kind="signature", at="/signature")
    return ToolResult(
        call_id=unset_to_none(shape.call_id),
        content=content,
        name=unset_to_none(shape.name),
        namespace=unset_to_none(shape.server_name),
        status="error" if shape.is_error is True else "ok",
        executor="server",
        native=shape.type,
        signature=signature,
        use=_decode_hosted_use(shape.type, shape.result, unset_to_none(shape.call_id)),
        at="",
        **collect_extras(shape, FAMILY, *form),
    )


def _decode_hosted_use(tool_name: str, value: Raw | UnsetType, id: str | None) -> HostedUse | None:
    """Decode a hosted call or result in vendor-neutral terms; return None for other tools."""
    kind = HOSTED_TOOLS.kind(tool_name.removesuffix("_call").removesuffix("_result"))
    return None if kind is None else decode_hosted_use(kind, None if value is UNSET else parse_json(value), id=id)


# ---- encode


def encode_server_call(part: ToolCall, located_part: LocatedPart, plan: StepPlan) -> Any:
    """Encode a call that a provider ran itself.

    Another provider's call becomes text for the model, and a step for the client.
    """
    if plan.same_protocol or _is_returned(part, plan):
        return _encode_same_protocol_call(part)
    if plan.from_gemini and (step := _encode_part_call(part, located_part, plan)) is not None:
        return step
    if not plan.for_client:
        plan.report.approximated(located_part.path, "", "server-side call of another provider, sent as text")
        return TextContent(text=hosted_call_as_text(part))
    if part.use is None and not is_mcp_part(part):
        plan.report.dropped(located_part.path, "", "server-side call of another provider")
        return None
    plan.report.approximated(located_part.path, "", "server-side call of another provider, sent as a server tool call")
    if part.use is None:
        plan.last_hosted_call_id = part.id or plan.id_of(located_part)
        shape = ServerCall(type="mcp_server_tool_call", id=plan.last_hosted_call_id, name=part.name)
        shape.server_name = part.namespace or ""
        shape.arguments = same_protocol_arguments(part)
        return shape
    return _encode_hosted_call(hosted_query(part), plan)


def _is_returned(part: ToolCall | ToolResult, plan: StepPlan) -> bool:
    """Return whether the Interactions API ran this hosted call, so that the step goes back as it was."""
    kind = part.native or ""
    name = kind.removesuffix("_call").removesuffix("_result")
    return not plan.for_client and name != kind and HOSTED_TOOLS.kind(name) is not None


def _encode_same_protocol_call(part: ToolCall) -> Any:
    """Encode a hosted call step that came from the Interactions API."""
    shape = ServerCall(type=part.native or "", id=none_to_unset(part.id), server_name=none_to_unset(part.namespace))
    if _NO_NAME not in part.wire_form:
        shape.name = part.name
    if part.arguments or NO_ARGUMENTS not in part.wire_form:
        shape.arguments = same_protocol_arguments(part)
    shape.signature = UNSET if part.signature is None else part.signature.data
    return encode_with_extras(shape, part, FAMILY)


def encode_server_result(part: ToolResult, located_part: LocatedPart, plan: StepPlan) -> Any:
    """Encode the result of a call that a provider ran itself.

    Another provider's result becomes text for the model, and a step for the client.
    """
    if plan.same_protocol or _is_returned(part, plan):
        return _encode_same_protocol_result(part)
    if plan.from_gemini and (step := _encode_part_result(part, located_part, plan)) is not None:
        return step
    if not plan.for_client:
        plan.report.approximated(located_part.path, "", "server-side result of another provider, sent as text")
        gists = [content.gist for content in part.content or () if isinstance(content, OpaquePart) and content.gist]
        return TextContent(text=f"[{part.native}: {chr(10).join(gists) or 'no readable content'}]")
    if part.use is None and not is_mcp_part(part):
        plan.report.dropped(located_part.path, "", "server-side result of another provider")
        return None
    plan.report.approximated(
        located_part.path, "", "server-side result of another provider, sent as a server tool result"
    )
    if part.use is None:
        shape = ServerResult(type="mcp_server_tool_result", call_id=part.call_id or plan.last_hosted_call_id)
        shape.result = Raw(msgspec.json.encode(mcp_result_text(part)))
        if part.status != "ok":
            plan.report.dropped(located_part.path, "status", "the target does not report failed server tools")
        return shape
    return _encode_hosted_result(part.use, plan, failed=part.status != "ok")


def _encode_same_protocol_result(part: ToolResult) -> Any:
    """Encode a hosted result step that came from the Interactions API."""
    shape = ServerResult(type=part.native or "", call_id=none_to_unset(part.call_id), name=none_to_unset(part.name))
    shape.server_name = none_to_unset(part.namespace)
    if part.content and isinstance(only := part.content[0], OpaquePart):
        shape.result = only.body
    if part.status != "ok" or NOT_ERROR in part.wire_form:
        shape.is_error = part.status != "ok"
    shape.signature = UNSET if part.signature is None else part.signature.data
    return encode_with_extras(shape, part, FAMILY)


# ---- parts of `generateContent`


def _encode_part_call(part: ToolCall, located_part: LocatedPart, plan: StepPlan) -> ServerCall | None:
    """Encode a hosted call of `generateContent` as a step; return None if there is no such step."""
    name = "code_execution" if part.native == "executableCode" else step_name(part.name)
    if name is None:
        return None
    plan.last_hosted_call_id = part.id or plan.id_of(located_part)
    shape = ServerCall(type=f"{name}_call", id=plan.last_hosted_call_id)
    if part.native == "executableCode":
        code = code_argument(parse_json(part.arguments or "{}"), located_part.path, plan.report)
        arguments = {"language": "python", "code": code}
        shape.arguments = Raw(msgspec.json.encode(arguments))
    elif name not in STEPS_WITHOUT_CONTENT:
        shape.arguments = same_protocol_arguments(part)
    elif part.arguments not in ("", "{}"):
        plan.report.dropped(located_part.path, "arguments", f"the target does not report arguments of {name}")
    if part.name == "GOOGLE_SEARCH_IMAGE":
        shape.search_type = Raw(msgspec.json.encode(IMAGE_SEARCH))
    shape.signature = none_to_unset(_signature_data(part))
    return shape


def _encode_part_result(part: ToolResult, located_part: LocatedPart, plan: StepPlan) -> ServerResult | None:
    """Encode a hosted result of `generateContent` as a step; return None if there is no such step."""
    name = "code_execution" if part.native == "codeExecutionResult" else step_name(part.name or "")
    if name is None:
        return None
    shape = ServerResult(type=f"{name}_result", call_id=part.call_id or plan.last_hosted_call_id)
    if part.native == "codeExecutionResult":
        shape.result = Raw(msgspec.json.encode("" if part.use is None else part.use.output or ""))
        if part.status != "ok":
            shape.is_error = True
    elif part.content and isinstance(only := part.content[0], OpaquePart):
        if name in STEPS_WITHOUT_CONTENT:
            plan.report.dropped((*located_part.path, "content", 0), "", f"the target does not report results of {name}")
        else:
            shape.result = as_list_result(only.body)
    elif name not in STEPS_WITHOUT_CONTENT:
        shape.result = Raw(b"[]")
    shape.signature = none_to_unset(_signature_data(part))
    return shape


def _signature_data(part: ToolCall | ToolResult) -> str | None:
    """Return the signature string of a call or result; None if it is absent or empty."""
    return part.signature.data or None if part.signature is not None else None


# ---- hosted calls of other providers, for clients


def encode_hosted_use(use: HostedUse, plan: StepPlan) -> list[Any]:
    """Encode a hosted call and its result, which another provider reports as one part, as two steps."""
    return [_encode_hosted_call(use, plan), _encode_hosted_result(use, plan, failed=use.failed)]


def _encode_hosted_call(use: HostedUse, plan: StepPlan) -> ServerCall:
    """Encode another provider's hosted call as a step, adding an id if it has none."""
    plan.last_hosted_call_id = use.id or f"tw{sum(plan.hosted_uses.values())}"
    plan.hosted_uses[use.kind] = plan.hosted_uses.get(use.kind, 0) + 1
    arguments: dict[str, Any]
    match use.kind:
        case "web_search":
            arguments = {"queries": use.queries}
        case "web_fetch":
            arguments = {"urls": use.urls}
        case "code_execution":
            arguments = {"language": "python", "code": use.code or ""}
    name = HOSTED_TOOLS.names[use.kind][0]
    return ServerCall(type=f"{name}_call", id=plan.last_hosted_call_id, arguments=Raw(msgspec.json.encode(arguments)))


def _encode_hosted_result(use: HostedUse, plan: StepPlan, *, failed: bool) -> ServerResult:
    """Encode the pages or output of another provider's hosted call as a result step.

    Google returns a page of search suggestions here; results of other providers list the pages found.
    """
    result: Any
    match use.kind:
        case "web_search":
            result = [{"url": page.url, "title": page.title or ""} for page in use.pages]
        case "web_fetch":
            result = [{"url": page.url, "status": "error" if failed else "success"} for page in use.pages]
        case "code_execution":
            result = use.output or ""
    shape = ServerResult(type=f"{HOSTED_TOOLS.names[use.kind][0]}_result", call_id=use.id or plan.last_hosted_call_id)
    shape.result = Raw(msgspec.json.encode(result))
    if failed:
        shape.is_error = True
    return shape
