"""The calls and results of tools that a provider ran itself, Google or another, to canonical and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.content import Foreign, HostedUse, Seal, ToolCall, ToolResult
from toolwire.codec.connectors import is_connected, text_of
from toolwire.codec.fields import Reader
from toolwire.codec.hosted import asked, in_words, json_of, use_of
from toolwire.codec.kept import emit, given, joined, known, rest
from toolwire.codec.turns import Placed
from toolwire.protocols.gemini_interactions.request.tools import HOSTED
from toolwire.protocols.gemini_interactions.wire import FAMILY, ISSUER, ServerCall, ServerResult, TextContent
from toolwire.protocols.google_tools import IMAGES, SILENT, code_of, listed, step_of

from .calls import NO_ARGUMENTS, NOT_ERROR, home_arguments
from .content import gist
from .plan import StepPlan

_NO_NAME = "gemini-interactions:absent:name"

_read_call = Reader[ServerCall](ServerCall, FAMILY).read
_read_result = Reader[ServerResult](ServerResult, FAMILY).read


# ---- decode


def decode_server_call(raw: Raw, path: str) -> ToolCall:
    """What one of Google's own tools was asked."""
    shape = _read_call(raw, path)
    kept = rest(shape, FAMILY)
    form: tuple[str, ...] = () if shape.arguments is not UNSET else (NO_ARGUMENTS,)
    seal = None
    if shape.signature is not UNSET:
        seal = Seal(issuer=ISSUER, data=shape.signature, kind="signature", at="/signature")
    if shape.name is UNSET:
        form = (*form, _NO_NAME)
    if shape.search_type is not UNSET and json_of(shape.search_type) in ("web_search", IMAGES):
        form = (*form, f"{FAMILY}:told:search_type")
    return ToolCall(
        id=known(shape.id),
        name=shape.type.removesuffix("_call") if shape.name is UNSET else shape.name,
        namespace=known(shape.server_name),
        arguments="" if shape.arguments is UNSET else str(shape.arguments, "utf-8"),
        executor="server",
        native=shape.type,
        seal=seal,
        use=_decode_use(shape.type, shape.arguments, known(shape.id)),
        at="",
        **joined(kept, {"form": form}),
    )


def decode_server_result(raw: Raw, path: str) -> ToolResult:
    shape = _read_result(raw, path)
    content = None
    if shape.result is not UNSET:
        told = gist(shape.result)
        content = (Foreign(protocol=FAMILY, kind="result", body=shape.result, gist=told, at="/result"),)
    form = () if shape.is_error is not False else (NOT_ERROR,)
    seal = None
    if shape.signature is not UNSET:
        seal = Seal(issuer=ISSUER, data=shape.signature, kind="signature", at="/signature")
    return ToolResult(
        call_id=known(shape.call_id),
        content=content,
        name=known(shape.name),
        namespace=known(shape.server_name),
        status="error" if shape.is_error is True else "ok",
        executor="server",
        native=shape.type,
        seal=seal,
        use=_decode_use(shape.type, shape.result, known(shape.call_id)),
        at="",
        **rest(shape, FAMILY, *form),
    )


def _decode_use(word: str, said: Raw | UnsetType, id: str | None) -> HostedUse | None:
    kind = HOSTED.kind(word.removesuffix("_call").removesuffix("_result"))
    return None if kind is None else use_of(kind, None if said is UNSET else json_of(said), id=id)


# ---- encode


def encode_server_call(part: ToolCall, placed: Placed, plan: StepPlan) -> Any:
    """The step; of what another provider ran a client reads it as one, and a model as text."""
    if plan.home:
        return _own_call(part)
    if plan.google and (own := _call_of_part(part, placed, plan)) is not None:
        return own
    if not plan.answering:
        plan.report.approximated(placed.trail, "", "a call that another provider ran: told as text")
        return TextContent(text=in_words(part))
    if part.use is None and not is_connected(part):
        plan.report.dropped(placed.trail, "", "a call that another provider ran")
        return None
    plan.report.approximated(placed.trail, "", "a call that another provider ran, told as one of the target's")
    if part.use is None:
        shape = ServerCall(type="mcp_server_tool_call", id=part.id or plan.id_of(placed), name=part.name)
        shape.server_name = part.namespace or ""
        shape.arguments = home_arguments(part)
        return shape
    return _asked(asked(part), plan)


def _own_call(part: ToolCall) -> Any:
    shape = ServerCall(type=part.native or "", id=given(part.id), server_name=given(part.namespace))
    if _NO_NAME not in part.form:
        shape.name = part.name
    if part.arguments or NO_ARGUMENTS not in part.form:
        shape.arguments = home_arguments(part)
    shape.signature = UNSET if part.seal is None else part.seal.data
    return emit(shape, part, FAMILY)


def encode_server_result(part: ToolResult, placed: Placed, plan: StepPlan) -> Any:
    if plan.home:
        return _own_result(part)
    if plan.google and (own := _result_of_part(part, placed, plan)) is not None:
        return own
    if not plan.answering:
        plan.report.approximated(placed.trail, "", "a result that another provider got: told as text")
        gists = [one.gist for one in part.content or () if isinstance(one, Foreign) and one.gist]
        return TextContent(text=f"[{part.native}: {chr(10).join(gists) or 'no readable content'}]")
    if part.use is None and not is_connected(part):
        plan.report.dropped(placed.trail, "", "a result that another provider got")
        return None
    plan.report.approximated(placed.trail, "", "a result that another provider got, told as one of the target's")
    if part.use is None:
        shape = ServerResult(type="mcp_server_tool_result", call_id=part.call_id or plan.served)
        shape.result = Raw(msgspec.json.encode(text_of(part)))
        if part.status != "ok":
            plan.report.dropped(placed.trail, "status", "the target does not say that a server's tool failed")
        return shape
    return _found(part.use, plan, failed=part.status != "ok")


def _own_result(part: ToolResult) -> Any:
    shape = ServerResult(type=part.native or "", call_id=given(part.call_id), name=given(part.name))
    shape.server_name = given(part.namespace)
    if part.content and isinstance(only := part.content[0], Foreign):
        shape.result = only.body
    if part.status != "ok" or NOT_ERROR in part.form:
        shape.is_error = part.status != "ok"
    shape.signature = UNSET if part.seal is None else part.seal.data
    return emit(shape, part, FAMILY)


# ---- what Google's other protocol tells in parts


def _call_of_part(part: ToolCall, placed: Placed, plan: StepPlan) -> ServerCall | None:
    """The step for a part of Google's other protocol; None if there is none."""
    word = "code_execution" if part.native == "executableCode" else step_of(part.name)
    if word is None:
        return None
    plan.served = part.id or plan.id_of(placed)
    shape = ServerCall(type=f"{word}_call", id=plan.served)
    if part.native == "executableCode":
        code = code_of(json_of(part.arguments or "{}"), placed.trail, plan.report)
        said = {"language": "python", "code": code}
        shape.arguments = Raw(msgspec.json.encode(said))
    elif word not in SILENT:
        shape.arguments = home_arguments(part)
    elif part.arguments not in ("", "{}"):
        plan.report.dropped(placed.trail, "arguments", f"the target does not say what {word} was asked")
    if part.name == "GOOGLE_SEARCH_IMAGE":
        shape.search_type = Raw(msgspec.json.encode(IMAGES))
    shape.signature = given(_proof(part))
    return shape


def _result_of_part(part: ToolResult, placed: Placed, plan: StepPlan) -> ServerResult | None:
    word = "code_execution" if part.native == "codeExecutionResult" else step_of(part.name or "")
    if word is None:
        return None
    shape = ServerResult(type=f"{word}_result", call_id=part.call_id or plan.served)
    if part.native == "codeExecutionResult":
        shape.result = Raw(msgspec.json.encode("" if part.use is None else part.use.output or ""))
        if part.status != "ok":
            shape.is_error = True
    elif part.content and isinstance(only := part.content[0], Foreign):
        if word in SILENT:
            plan.report.dropped((*placed.trail, "content", 0), "", f"the target does not say what {word} found")
        else:
            shape.result = listed(only.body)
    elif word not in SILENT:
        shape.result = Raw(b"[]")
    shape.signature = given(_proof(part))
    return shape


def _proof(part: ToolCall | ToolResult) -> str | None:
    return part.seal.data or None if part.seal is not None else None


# ---- what others ran, for a client to read


def encode_used(use: HostedUse, plan: StepPlan) -> list[Any]:
    """What another provider tells at once, as a call and its result."""
    return [_asked(use, plan), _found(use, plan, failed=use.failed)]


def _asked(use: HostedUse, plan: StepPlan) -> ServerCall:
    plan.served = use.id or f"tw{sum(plan.uses.values())}"
    plan.uses[use.kind] = plan.uses.get(use.kind, 0) + 1
    said: dict[str, Any]
    match use.kind:
        case "web_search":
            said = {"queries": use.queries}
        case "web_fetch":
            said = {"urls": use.urls}
        case "code_execution":
            said = {"language": "python", "code": use.code or ""}
    word = HOSTED.words[use.kind][0]
    return ServerCall(type=f"{word}_call", id=plan.served, arguments=Raw(msgspec.json.encode(said)))


def _found(use: HostedUse, plan: StepPlan, *, failed: bool) -> ServerResult:
    """What it found. Google's own searches say a page of suggestions there, others the pages that they found."""
    found: Any
    match use.kind:
        case "web_search":
            found = [{"url": page.url, "title": page.title or ""} for page in use.pages]
        case "web_fetch":
            found = [{"url": page.url, "status": "error" if failed else "success"} for page in use.pages]
        case "code_execution":
            found = use.output or ""
    shape = ServerResult(type=f"{HOSTED.words[use.kind][0]}_result", call_id=use.id or plan.served)
    shape.result = Raw(msgspec.json.encode(found))
    if failed:
        shape.is_error = True
    return shape
