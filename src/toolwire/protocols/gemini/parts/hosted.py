"""Gemini's code and the calls of its own tools, which Google ran itself, to canonical parts and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import Foreign, HostedUse, ToolCall, ToolResult
from toolwire.canonical.tools import HostedKind
from toolwire.codec.hosted import in_words, json_of, use_of
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

from .calls import NO_ARGS, kept, sealed
from .signatures import decode_seal
from .spelling import Spelling, extra, write

_USES: dict[Any, HostedKind] = {"GOOGLE_SEARCH_WEB": "web_search", "URL_CONTEXT": "web_fetch"}
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
    if not plan.home and plan.answering:
        plan.report.dropped(placed.trail, "", "a call that another provider ran")
        return []
    if not plan.home:
        plan.report.approximated(placed.trail, "", "a call that another provider ran: told as text")
        return [PartShape(text=in_words(part))]
    if part.native == "executableCode":
        code = CodeShape(id=given(part.id), **_decode(part.arguments.encode()))
        return [write(sealed(PartShape(executable_code=code), part, placed, plan), part)]
    args = UNSET if NO_ARGS in part.form and part.arguments == "{}" else Raw(part.arguments.encode())
    name = UNSET if _NO_TYPE in part.form else part.name
    call = HostedCallShape(id=given(part.id), tool_type=name, args=args)
    return [write(sealed(PartShape(tool_call=call), part, placed, plan), part)]


def encode_server_result(part: ToolResult, placed: Placed, plan: Plan) -> list[Any]:
    content = part.content[0] if part.content else None
    if not plan.home and plan.answering:
        plan.report.dropped(placed.trail, "", "a result that another provider got")
        return []
    if not plan.home:
        text = content.gist if isinstance(content, Foreign) else None
        plan.report.approximated(placed.trail, "", "a result that another provider got: told as text")
        return [PartShape(text=f"[{part.native}: {text or 'no readable content'}]")]
    body = content.body if isinstance(content, Foreign) else UNSET
    outer = PartShape()
    if part.native == "codeExecutionResult":
        outcome = next((token for token in part.form if token.startswith(_OUTCOME)), None)
        outer.code_execution_result = CodeResultShape(
            id=given(part.call_id),
            output=UNSET if body is UNSET else _decode(body),
            outcome=UNSET if outcome is None else outcome.removeprefix(_OUTCOME),
        )
    else:
        outer.tool_response = HostedResultShape(id=given(part.call_id), tool_type=given(part.name), response=body)
    if "gemini:thought:false" in part.form:
        outer.thought = False
    return [write(outer, part)]
