"""Gemini's code and the calls of its own tools, which Google ran itself, to canonical parts and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.content import Foreign, HostedUse, ToolCall, ToolResult
from toolwire.canonical.tools import HostedKind
from toolwire.codec.hosted import asked, in_words, json_of, use_of
from toolwire.codec.kept import given, known
from toolwire.codec.plan import Plan
from toolwire.codec.turns import Placed
from toolwire.protocols.gemini.wire import (
    FAMILY,
    CodeResultShape,
    CodeShape,
    HostedCallShape,
    HostedResultShape,
    PartShape,
)
from toolwire.protocols.google_tools import IMAGES, NEWER, as_object, code_of, type_of

from .calls import NO_ARGS, is_early, kept, sealed
from .signatures import decode_seal
from .spelling import Spelling, extra, write

_USES: dict[Any, HostedKind] = {"GOOGLE_SEARCH_WEB": "web_search", "URL_CONTEXT": "web_fetch"}
_TYPES = {kind: word for word, kind in _USES.items()}
_NO_TYPE = "gemini:absent:toolType"
_OUTCOME = "gemini:outcome:"
_OUTCOMES = ("OUTCOME_OK", "OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED", UNSET)

_decode = msgspec.json.Decoder().decode


# ---- decode


def decode_code(part: PartShape, spelling: Spelling) -> ToolCall:
    code = part.executable_code
    if code is UNSET:
        raise TypeError("no code")
    spelling.read(code, "executableCode")
    written = {name: value for name in ("language", "code") if (value := getattr(code, name)) is not UNSET}
    names = ("gemini:name:arguments=" + spelling.source("executableCode") + "/code",)
    return ToolCall(
        id=known(code.id),
        name="code_execution",
        arguments=msgspec.json.encode(written).decode(),
        executor="server",
        native="executableCode",
        seal=decode_seal(part),
        use=use_of("code_execution", written, id=known(code.id)),
        **kept("ToolCall", part, spelling, (code, "executableCode"), names),
    )


def decode_code_result(part: PartShape, spelling: Spelling) -> ToolResult:
    result = part.code_execution_result
    if result is UNSET:
        raise TypeError("no result")
    spelling.read(result, "codeExecutionResult")
    content = None
    if result.output is not UNSET:
        at = f"/{spelling.source('codeExecutionResult')}/output"
        raw = Raw(msgspec.json.encode(result.output))
        content = (Foreign(protocol=FAMILY, kind="content", body=raw, gist=result.output or None, at=at),)
    outcome = () if result.outcome is UNSET else (_OUTCOME + result.outcome,)
    more = (
        ()
        if result.outcome in _OUTCOMES
        else (extra(spelling.source("codeExecutionResult") + "/outcome", result.outcome),)
    )
    return ToolResult(
        call_id=known(result.id),
        content=content,
        status="ok" if result.outcome in ("OUTCOME_OK", UNSET) else "error",
        executor="server",
        native="codeExecutionResult",
        seal=decode_seal(part),
        use=use_of("code_execution", known(result.output), id=known(result.id)),
        **kept("ToolResult", part, spelling, (result, "codeExecutionResult"), outcome, *more),
    )


def decode_hosted_call(part: PartShape, spelling: Spelling) -> ToolCall:
    call = part.tool_call
    if call is UNSET:
        raise TypeError("no call")
    spelling.read(call, "toolCall")
    place = spelling.source("toolCall")
    form = [f"gemini:name:arguments={place}/args", f"gemini:name:name={spelling.source('toolCall/toolType')}"]
    if call.args is UNSET:
        form.append(NO_ARGS)
    if call.tool_type is UNSET:
        form.append(_NO_TYPE)
    return ToolCall(
        id=known(call.id),
        name="" if call.tool_type is UNSET else call.tool_type,
        arguments="{}" if call.args is UNSET else str(call.args, "utf-8"),
        executor="server",
        native="toolCall",
        seal=decode_seal(part),
        use=_decode_use(call.tool_type, call.args, known(call.id)),
        **kept("ToolCall", part, spelling, (call, "toolCall"), tuple(form)),
    )


def decode_hosted_result(part: PartShape, spelling: Spelling) -> ToolResult:
    result = part.tool_response
    if result is UNSET:
        raise TypeError("no result")
    spelling.read(result, "toolResponse")
    content = None
    if result.response is not UNSET:
        at = f"/{spelling.source('toolResponse')}/response"
        body = result.response
        content = (Foreign(protocol=FAMILY, kind="content", body=body, gist=gist(body), at=at),)
    return ToolResult(
        call_id=known(result.id),
        name=known(result.tool_type),
        content=content,
        executor="server",
        native="toolResponse",
        seal=decode_seal(part),
        use=_decode_use(result.tool_type, result.response, known(result.id)),
        **kept("ToolResult", part, spelling, (result, "toolResponse")),
    )


def _decode_use(word: Any, said: Any, id: str | None) -> HostedUse | None:
    if word not in _USES:
        return None
    return use_of(_USES[word], None if said is UNSET else json_of(said), id=id)


def gist(raw: Raw, limit: int = 100_000) -> str | None:
    """The texts in what a tool of Google's found; the search page that it wants shown is not one."""
    found: list[str] = []

    def walk(value: object) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                if isinstance(inner, str) and name in ("text", "title", "uri", "url", "output"):
                    found.append(inner)
                else:
                    walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(_decode(raw))
    return "\n".join(text for text in found if text)[:limit] or None


# ---- encode


def encode_server_call(part: ToolCall, placed: Placed, plan: Plan) -> list[Any]:
    if plan.home:
        return [write(sealed(_own_call(part), part, placed, plan), part)]
    if (own := _call_of_step(part, placed, plan)) is not None:
        return [_proved(own, part, plan)]
    if not plan.answering:
        plan.report.approximated(placed.trail, "", "a call that another provider ran: told as text")
        return [PartShape(text=in_words(part))]
    if part.use is None:
        plan.report.dropped(placed.trail, "", "a call that another provider ran")
        return []
    plan.report.approximated(placed.trail, "", "a call that another provider ran, told as one of the target's")
    return [_asked(asked(part), plan)]


def _own_call(part: ToolCall) -> PartShape:
    if part.native == "executableCode":
        return PartShape(executable_code=CodeShape(id=given(part.id), **_decode(part.arguments.encode())))
    args = UNSET if NO_ARGS in part.form and part.arguments == "{}" else Raw(part.arguments.encode())
    name = UNSET if _NO_TYPE in part.form else part.name
    return PartShape(tool_call=HostedCallShape(id=given(part.id), tool_type=name, args=args))


def encode_server_result(part: ToolResult, placed: Placed, plan: Plan) -> list[Any]:
    content = part.content[0] if part.content else None
    body = content.body if isinstance(content, Foreign) else None
    if plan.home:
        return [write(_proved(_own_result(part, body), part, plan), part)]
    if (own := _result_of_step(part, placed, plan)) is not None:
        return [_proved(own, part, plan)]
    if not plan.answering:
        text = content.gist if isinstance(content, Foreign) else None
        plan.report.approximated(placed.trail, "", "a result that another provider got: told as text")
        return [PartShape(text=f"[{part.native}: {text or 'no readable content'}]")]
    if part.use is None:
        plan.report.dropped(placed.trail, "", "a result that another provider got")
        return []
    plan.report.approximated(placed.trail, "", "a result that another provider got, told as one of the target's")
    return [_found(part.use, plan, failed=part.status != "ok")]


def _proved(shape: PartShape, part: ToolCall | ToolResult, plan: Plan) -> PartShape:
    if part.seal is not None and (part.seal.data or plan.home):
        shape.thought_signature = part.seal.data
    return shape


def _own_result(part: ToolResult, body: Raw | None) -> PartShape:
    outer = PartShape(thought=False) if "gemini:thought:false" in part.form else PartShape()
    if part.native == "codeExecutionResult":
        outcome = next((token for token in part.form if token.startswith(_OUTCOME)), None)
        outer.code_execution_result = CodeResultShape(
            id=given(part.call_id),
            output=UNSET if body is None else _decode(body),
            outcome=UNSET if outcome is None else outcome.removeprefix(_OUTCOME),
        )
    else:
        outer.tool_response = HostedResultShape(
            id=given(part.call_id), tool_type=given(part.name), response=given(body)
        )
    return outer


# ---- what Google's other protocol tells in steps


def _call_of_step(part: ToolCall, placed: Placed, plan: Plan) -> PartShape | None:
    """The part for a step of Google's other protocol; None if there is none, or the model knows none."""
    word = (part.native or "").removesuffix("_call")
    said = json_of(part.arguments or "{}")
    if part.native == "code_execution_call":
        code = code_of(said, placed.trail, plan.report)
        return PartShape(executable_code=CodeShape(id=given(part.id), language="PYTHON", code=code))
    kind = type_of(word, images=json_of((part.extras or {}).get(NEWER, {}).get("search_type", Raw(b"null"))) == IMAGES)
    if kind is None or part.native == word or is_early(plan) or not isinstance(said, dict):
        return None
    args = Raw(part.arguments.encode()) if part.arguments else UNSET
    plan.steps[part.id] = kind
    return PartShape(tool_call=HostedCallShape(id=given(part.id), tool_type=kind, args=args))


def _result_of_step(part: ToolResult, placed: Placed, plan: Plan) -> PartShape | None:
    word = (part.native or "").removesuffix("_result")
    content = part.content[0] if part.content else None
    found = content if isinstance(content, Foreign) else None
    if part.native == "code_execution_result":
        use = HostedUse(kind="code_execution", output=None if found is None else found.gist)
        if part.use is not None and part.use.output is not None:
            use = part.use
        elif found is not None:
            plan.report.approximated(placed.trail, "", "of what code gave only the text is told")
        return PartShape(code_execution_result=_code_result(use, given(part.call_id), failed=part.status != "ok"))
    kind = type_of(word)
    if kind is None or part.native == word or is_early(plan):
        return None
    if part.status != "ok":
        plan.report.dropped(placed.trail, "status", "the target does not say whether its own tools failed")
    response = UNSET if found is None else as_object(found.body)
    kind = plan.steps.get(part.call_id, kind)
    return PartShape(tool_response=HostedResultShape(id=given(part.call_id), tool_type=kind, response=response))


# ---- what others ran, for a client to read


def encode_used(use: HostedUse, plan: Plan) -> list[Any]:
    """What another provider tells at once, as a call and its result."""
    return [_asked(use, plan), _found(use, plan, failed=use.failed)]


def _asked(use: HostedUse, plan: Plan) -> PartShape:
    plan.served = use.id or f"tw{sum(plan.uses.values())}"
    plan.uses[use.kind] = plan.uses.get(use.kind, 0) + 1
    if use.kind == "code_execution":
        return PartShape(executable_code=CodeShape(language="PYTHON", code=use.code or "", id=plan.served))
    args = {"queries": use.queries} if use.kind == "web_search" else {"urls": use.urls}
    call = HostedCallShape(id=plan.served, tool_type=_TYPES[use.kind], args=Raw(msgspec.json.encode(args)))
    return PartShape(tool_call=call)


def _found(use: HostedUse, plan: Plan, *, failed: bool) -> PartShape:
    id = use.id or plan.served
    if use.kind == "code_execution":
        return PartShape(code_execution_result=_code_result(use, id, failed=failed))
    pages: list[dict[str, Any]] = [{"url": page.url, "title": page.title} for page in use.pages]
    found = {"result": [{name: value for name, value in page.items() if value is not None} for page in pages]}
    if use.output:
        found["result"].append({"text": use.output})
    said = {"error": "the tool failed"} if failed else found
    result = HostedResultShape(id=id, tool_type=_TYPES[use.kind], response=Raw(msgspec.json.encode(said)))
    return PartShape(tool_response=result)


def _code_result(use: HostedUse, id: str | UnsetType, *, failed: bool) -> CodeResultShape:
    return CodeResultShape(outcome="OUTCOME_FAILED" if failed else "OUTCOME_OK", output=given(use.output), id=id)
