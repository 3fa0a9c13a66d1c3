"""Decode and encode calls that a provider ran itself: code execution, `toolCall` and `toolResponse` parts."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.content import HostedUse, OpaquePart, ToolCall, ToolResult
from toolwire.canonical.tools import HostedKind
from toolwire.codec.encoding.fallbacks import readable_text
from toolwire.codec.encoding.hosted_tools import decode_hosted_use, hosted_call_as_text, hosted_query, parse_json
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.wire.extras import none_to_unset, unset_to_none
from toolwire.codec.wire.reader import decode_json
from toolwire.protocols.gemini.field_case import FieldCase, encode_shape, make_extra
from toolwire.protocols.gemini.parts.calls import NO_ARGS, is_before_gemini_3, part_extras, with_signature
from toolwire.protocols.gemini.parts.signatures import decode_signature
from toolwire.protocols.gemini.wire import (
    FAMILY,
    CodeResultShape,
    CodeShape,
    HostedCallShape,
    HostedResultShape,
    PartShape,
)
from toolwire.protocols.vendors.google.tools import (
    IMAGE_SEARCH,
    INTERACTIONS,
    as_object_result,
    call_type,
    code_argument,
)

# Not the HTML that Google requires clients to show.
_READABLE_FIELDS = ("text", "title", "uri", "url", "output")
_HOSTED_KINDS: dict[Any, HostedKind] = {"GOOGLE_SEARCH_WEB": "web_search", "URL_CONTEXT": "web_fetch"}
_HOSTED_TYPES = {kind: word for word, kind in _HOSTED_KINDS.items()}
_NO_TYPE = "gemini:absent:toolType"
_OUTCOME_FORM = "gemini:outcome:"
_OUTCOMES = ("OUTCOME_OK", "OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED", UNSET)


_CODE_PARTS = ("executableCode", "codeExecutionResult")
_PART_NAMES = (*_CODE_PARTS, "toolCall", "toolResponse")

# ---- decode


def decode_code(part: PartShape, field_case: FieldCase) -> ToolCall:
    """Decode an `executableCode` part."""
    code = part.executable_code
    if code is UNSET:
        raise TypeError("no code")
    field_case.normalize(code, "executableCode")
    arguments = {name: value for name in ("language", "code") if (value := getattr(code, name)) is not UNSET}
    form = ("gemini:name:arguments=" + field_case.source_pointer("executableCode") + "/code",)
    return ToolCall(
        id=unset_to_none(code.id),
        name="code_execution",
        arguments=msgspec.json.encode(arguments).decode(),
        executor="server",
        native="executableCode",
        signature=decode_signature(part),
        use=decode_hosted_use("code_execution", arguments, id=unset_to_none(code.id)),
        **part_extras("ToolCall", part, field_case, (code, "executableCode"), form),
    )


def decode_code_result(part: PartShape, field_case: FieldCase) -> ToolResult:
    """Decode a `codeExecutionResult` part; its output is opaque to other providers."""
    result = part.code_execution_result
    if result is UNSET:
        raise TypeError("no result")
    field_case.normalize(result, "codeExecutionResult")
    content = None
    if result.output is not UNSET:
        at = f"/{field_case.source_pointer('codeExecutionResult')}/output"
        raw = Raw(msgspec.json.encode(result.output))
        content = (OpaquePart(protocol=FAMILY, kind="content", body=raw, gist=result.output or None, at=at),)
    outcome = () if result.outcome is UNSET else (_OUTCOME_FORM + result.outcome,)
    unknown_outcome = (
        ()
        if result.outcome in _OUTCOMES
        else (make_extra(field_case.source_pointer("codeExecutionResult") + "/outcome", result.outcome),)
    )
    return ToolResult(
        call_id=unset_to_none(result.id),
        content=content,
        status="ok" if result.outcome in ("OUTCOME_OK", UNSET) else "error",
        executor="server",
        native="codeExecutionResult",
        signature=decode_signature(part),
        use=decode_hosted_use("code_execution", unset_to_none(result.output), id=unset_to_none(result.id)),
        **part_extras("ToolResult", part, field_case, (result, "codeExecutionResult"), outcome, *unknown_outcome),
    )


def decode_hosted_call(part: PartShape, field_case: FieldCase) -> ToolCall:
    """Decode a `toolCall` part."""
    call = part.tool_call
    if call is UNSET:
        raise TypeError("no call")
    field_case.normalize(call, "toolCall")
    location = field_case.source_pointer("toolCall")
    form = [
        f"gemini:name:arguments={location}/args",
        f"gemini:name:name={field_case.source_pointer('toolCall/toolType')}",
    ]
    if call.args is UNSET:
        form.append(NO_ARGS)
    if call.tool_type is UNSET:
        form.append(_NO_TYPE)
    return ToolCall(
        id=unset_to_none(call.id),
        name="" if call.tool_type is UNSET else call.tool_type,
        arguments="{}" if call.args is UNSET else str(call.args, "utf-8"),
        executor="server",
        native="toolCall",
        signature=decode_signature(part),
        use=_decode_hosted_use(call.tool_type, call.args, unset_to_none(call.id)),
        **part_extras("ToolCall", part, field_case, (call, "toolCall"), tuple(form)),
    )


def decode_hosted_result(part: PartShape, field_case: FieldCase) -> ToolResult:
    """Decode a `toolResponse` part; its response is opaque to other providers."""
    result = part.tool_response
    if result is UNSET:
        raise TypeError("no result")
    field_case.normalize(result, "toolResponse")
    content = None
    if result.response is not UNSET:
        at = f"/{field_case.source_pointer('toolResponse')}/response"
        body = result.response
        content = (
            OpaquePart(protocol=FAMILY, kind="content", body=body, gist=readable_text(body, _READABLE_FIELDS), at=at),
        )
    return ToolResult(
        call_id=unset_to_none(result.id),
        name=unset_to_none(result.tool_type),
        content=content,
        executor="server",
        native="toolResponse",
        signature=decode_signature(part),
        use=_decode_hosted_use(result.tool_type, result.response, unset_to_none(result.id)),
        **part_extras("ToolResult", part, field_case, (result, "toolResponse")),
    )


def _decode_hosted_use(tool_type: Any, value: Any, id: str | None) -> HostedUse | None:
    """Decode a hosted call or result in vendor-neutral terms; return None for other tool types."""
    if tool_type not in _HOSTED_KINDS:
        return None
    return decode_hosted_use(_HOSTED_KINDS[tool_type], None if value is UNSET else parse_json(value), id=id)


# ---- encode


def encode_server_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    """Encode a call that a provider ran itself.

    Another provider's call becomes text for the model, and a hosted call for the client.
    """
    if plan.same_protocol or _is_returned(part, plan):
        return [encode_shape(with_signature(_encode_same_protocol_call(part), part, located_part, plan), part)]
    if (google_part := _encode_step_call(part, located_part, plan)) is not None:
        return [_with_signature(google_part, part, plan)]
    if not plan.for_client:
        plan.report.approximated(located_part.path, "", "server-side call of another provider, sent as text")
        return [PartShape(text=hosted_call_as_text(part))]
    if part.use is None:
        plan.report.dropped(located_part.path, "", "server-side call of another provider")
        return []
    plan.report.approximated(located_part.path, "", "server-side call of another provider, sent as a server tool call")
    return [_encode_hosted_call(hosted_query(part), plan)]


def _is_returned(part: ToolCall | ToolResult, plan: EncodingPlan) -> bool:
    """Return whether Gemini ran this hosted call, so that the part goes back as it was."""
    if plan.for_client or part.native not in _PART_NAMES:
        return False
    return part.native in _CODE_PARTS or not is_before_gemini_3(plan)


def _encode_same_protocol_call(part: ToolCall) -> PartShape:
    """Encode a server-side call that came from a Gemini client."""
    if part.native == "executableCode":
        return PartShape(executable_code=CodeShape(id=none_to_unset(part.id), **decode_json(part.arguments.encode())))
    args = UNSET if NO_ARGS in part.wire_form and part.arguments == "{}" else Raw(part.arguments.encode())
    name = UNSET if _NO_TYPE in part.wire_form else part.name
    return PartShape(tool_call=HostedCallShape(id=none_to_unset(part.id), tool_type=name, args=args))


def encode_server_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    """Encode the result of a call that a provider ran itself.

    Another provider's result becomes text for the model, and a hosted result for the client.
    """
    content = part.content[0] if part.content else None
    body = content.body if isinstance(content, OpaquePart) else None
    if plan.same_protocol or _is_returned(part, plan):
        return [encode_shape(_with_signature(_encode_same_protocol_result(part, body), part, plan), part)]
    if (google_part := _encode_step_result(part, located_part, plan)) is not None:
        return [_with_signature(google_part, part, plan)]
    if not plan.for_client:
        text = content.gist if isinstance(content, OpaquePart) else None
        plan.report.approximated(located_part.path, "", "server-side result of another provider, sent as text")
        return [PartShape(text=f"[{part.native}: {text or 'no readable content'}]")]
    if part.use is None:
        plan.report.dropped(located_part.path, "", "server-side result of another provider")
        return []
    plan.report.approximated(
        located_part.path, "", "server-side result of another provider, sent as a server tool result"
    )
    return [_encode_hosted_result(part.use, plan, failed=part.status != "ok")]


def _with_signature(shape: PartShape, part: ToolCall | ToolResult, plan: EncodingPlan) -> PartShape:
    """Return the wire part with the thought signature, if Google issued it; report no loss otherwise."""
    if part.signature is not None and (part.signature.data or plan.same_protocol):
        shape.thought_signature = part.signature.data
    return shape


def _encode_same_protocol_result(part: ToolResult, body: Raw | None) -> PartShape:
    """Encode a server-side result that came from a Gemini client; `body` is its response or output."""
    outer = PartShape(thought=False) if "gemini:thought:false" in part.wire_form else PartShape()
    if part.native == "codeExecutionResult":
        outcome = next((token for token in part.wire_form if token.startswith(_OUTCOME_FORM)), None)
        outer.code_execution_result = CodeResultShape(
            id=none_to_unset(part.call_id),
            output=UNSET if body is None else decode_json(body),
            outcome=UNSET if outcome is None else outcome.removeprefix(_OUTCOME_FORM),
        )
    else:
        outer.tool_response = HostedResultShape(
            id=none_to_unset(part.call_id), tool_type=none_to_unset(part.name), response=none_to_unset(body)
        )
    return outer


# ---- steps of the Interactions API


def _encode_step_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> PartShape | None:
    """Encode a call step of the Interactions API; return None if Gemini or the model has no such part."""
    name = (part.native or "").removesuffix("_call")
    arguments = parse_json(part.arguments or "{}")
    if part.native == "code_execution_call":
        code = code_argument(arguments, located_part.path, plan.report)
        return PartShape(executable_code=CodeShape(id=none_to_unset(part.id), language="PYTHON", code=code))
    kind = call_type(
        name,
        image_search=parse_json((part.extras or {}).get(INTERACTIONS, {}).get("search_type", Raw(b"null")))
        == IMAGE_SEARCH,
    )
    if kind is None or part.native == name or is_before_gemini_3(plan) or not isinstance(arguments, dict):
        return None
    args = Raw(part.arguments.encode()) if part.arguments else UNSET
    plan.hosted_call_kinds[part.id] = kind
    return PartShape(tool_call=HostedCallShape(id=none_to_unset(part.id), tool_type=kind, args=args))


def _encode_step_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> PartShape | None:
    """Encode a result step of the Interactions API; return None if Gemini or the model has no such part."""
    name = (part.native or "").removesuffix("_result")
    content = part.content[0] if part.content else None
    opaque = content if isinstance(content, OpaquePart) else None
    if part.native == "code_execution_result":
        use = HostedUse(kind="code_execution", output=None if opaque is None else opaque.gist)
        if part.use is not None and part.use.output is not None:
            use = part.use
        elif opaque is not None:
            plan.report.approximated(located_part.path, "", "only the text output of the code is sent")
        return PartShape(
            code_execution_result=_code_result_shape(use, none_to_unset(part.call_id), failed=part.status != "ok")
        )
    kind = call_type(name)
    if kind is None or part.native == name or is_before_gemini_3(plan):
        return None
    if part.status != "ok":
        plan.report.dropped(located_part.path, "status", "the target does not report failed hosted tools")
    response = UNSET if opaque is None else as_object_result(opaque.body)
    kind = plan.hosted_call_kinds.get(part.call_id, kind)
    return PartShape(tool_response=HostedResultShape(id=none_to_unset(part.call_id), tool_type=kind, response=response))


# ---- hosted calls of other providers, for clients


def encode_hosted_use(use: HostedUse, plan: EncodingPlan) -> list[Any]:
    """Encode a hosted call and its result, which another provider reports as one part, as two parts."""
    return [_encode_hosted_call(use, plan), _encode_hosted_result(use, plan, failed=use.failed)]


def _encode_hosted_call(use: HostedUse, plan: EncodingPlan) -> PartShape:
    """Encode another provider's hosted call, adding an id if it has none."""
    plan.last_hosted_call_id = use.id or f"tw{sum(plan.hosted_uses.values())}"
    plan.hosted_uses[use.kind] = plan.hosted_uses.get(use.kind, 0) + 1
    if use.kind == "code_execution":
        return PartShape(executable_code=CodeShape(language="PYTHON", code=use.code or "", id=plan.last_hosted_call_id))
    args = {"queries": use.queries} if use.kind == "web_search" else {"urls": use.urls}
    call = HostedCallShape(
        id=plan.last_hosted_call_id, tool_type=_HOSTED_TYPES[use.kind], args=Raw(msgspec.json.encode(args))
    )
    return PartShape(tool_call=call)


def _encode_hosted_result(use: HostedUse, plan: EncodingPlan, *, failed: bool) -> PartShape:
    """Encode the pages or output of another provider's hosted call."""
    id = use.id or plan.last_hosted_call_id
    if use.kind == "code_execution":
        return PartShape(code_execution_result=_code_result_shape(use, id, failed=failed))
    pages: list[dict[str, Any]] = [{"url": page.url, "title": page.title} for page in use.pages]
    response = {"result": [{name: value for name, value in page.items() if value is not None} for page in pages]}
    if use.output:
        response["result"].append({"text": use.output})
    body = {"error": "the tool failed"} if failed else response
    result = HostedResultShape(id=id, tool_type=_HOSTED_TYPES[use.kind], response=Raw(msgspec.json.encode(body)))
    return PartShape(tool_response=result)


def _code_result_shape(use: HostedUse, id: str | UnsetType, *, failed: bool) -> CodeResultShape:
    """Build a `codeExecutionResult` from the output of a hosted call."""
    return CodeResultShape(
        outcome="OUTCOME_FAILED" if failed else "OUTCOME_OK", output=none_to_unset(use.output), id=id
    )
