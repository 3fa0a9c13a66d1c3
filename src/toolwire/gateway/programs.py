"""Programs that call tools, for upstreams that run none: the request as the upstream gets it.

1. `run_code` is declared in place of the provider's own, with the tools that programs may call as functions. What only
   programs may call is not declared.
2. A program is one call and its result: what it called stands nowhere in what the model reads.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Text, ToolCall, ToolResult
from toolwire.canonical.errors import ApiError
from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, Grammar, NativeTool, Tool, ToolGroup
from toolwire.codec.interface import Codec
from toolwire.codec.losses import Names, pinned
from toolwire.runtime.sandbox.code.limits import Limits
from toolwire.runtime.sandbox.code.python import description
from toolwire.runtime.sandbox.code.stubs import stubs_of
from toolwire.runtime.toolset import Tool as Runnable

from .dialects import DIALECTS, ProgramDialect
from .refusal import Refused
from .searching import Deferred, each_function, flat_name, object_of, place_of

FUNCTION = "run_code"
LIMITS = Limits()
_INSIDE = "only programs may call it: it is a function in the gateway's"
_WHY = "the target runs no programs: the gateway runs them, in Python"


class Pending(Struct, frozen=True):
    """The program that a request goes on with, and what its calls gave."""

    id: str
    results: dict[str, ToolResult]


class Prepared(Struct, frozen=True):
    """The request without programs. `tools`: what they may call, by flat name; `hidden`: what only they may.
    `programs` are those of the conversation."""

    request: Request
    losses: list[Loss]
    function: str
    tools: dict[str, Deferred]
    hidden: frozenset[str]
    programs: list[str]
    pending: Pending | None


def prepared(request: Request, client: Codec, upstream: Codec) -> Prepared | None:
    """The request for an upstream without programs; None if it asks for none."""
    dialect = DIALECTS.get(client.name)
    if client is upstream or dialect is None or not request.tools or not _has_sandbox():
        return None
    runner = [n for n, one in enumerate(request.tools) if isinstance(one, NativeTool) and dialect.runs_programs(one)]
    if not runner:
        return None
    called = {flat_name(one): one for one in each_function(request.tools) if _is_for_programs(one)}
    if not called:
        return None
    if (forbidden := dialect.forbidden(request, called.values())) is not None:
        raise Refused(ApiError(kind="invalid_request", message=forbidden[1], status=400, param=forbidden[0]))
    hidden = frozenset(name for name, one in called.items() if "direct" not in (one.allowed_callers or ()))
    if request.tool_choice is not None and any(one.name in hidden for one in request.tool_choice.names):
        why = "tool_choice names a tool that only programs may call"
        raise Refused(ApiError(kind="invalid_request", message=why, status=400, param="tool_choice"))
    names = {flat_name(one) for one in each_function(request.tools)}
    function = next(name for name in (FUNCTION, *(f"{FUNCTION}_{n}" for n in range(2, 99))) if name not in names)
    tools = tuple(_declared(request.tools, runner, hidden, _run_code(function, called)))
    messages, programs, pending = _collapsed(request, client.names, dialect, function)
    losses = [Loss(kind="approximated", path=place_of(n, request.tools[n]), why=_WHY) for n in runner]
    losses += [Loss(kind="approximated", path=called[name].at or "", why=_INSIDE) for name in called if name in hidden]
    extras = {family: kept for family, kept in (request.extras or {}).items() if family != client.name}
    kept = {key: raw for key, raw in (request.extras or {}).get(client.name, {}).items() if key != "container"}
    made = replace(request, tools=tools, messages=messages, extras={**extras, client.name: kept}, plain=False)
    return Prepared(made, losses, function, called, hidden, programs, pending)


@lru_cache(maxsize=1)
def _has_sandbox() -> bool:
    return find_spec("pydantic_monty") is not None


def _is_for_programs(tool: Deferred) -> bool:
    return any(caller != "direct" for caller in tool.allowed_callers or ())


def _declared(
    tools: tuple[Tool, ...], runner: list[int], hidden: frozenset[str], function: FunctionTool
) -> Iterator[Tool]:
    for index, tool in enumerate(tools):
        at = place_of(index, tool)
        if index in runner:
            if index == runner[0]:
                yield replace(function, at=at)
        elif isinstance(tool, ToolGroup):
            members = [
                replace(one, allowed_callers=None, at=place_of(place, one))
                for place, one in enumerate(tool.tools)
                if f"{tool.name}__{one.name}" not in hidden
            ]
            if members:
                yield replace(tool, tools=tuple(members), at=at)
        elif isinstance(tool, NativeTool):
            yield replace(tool, at=at)
        elif flat_name(tool) not in hidden:
            yield replace(tool, allowed_callers=None, at=at)


def _run_code(function: str, called: Mapping[str, Deferred]) -> FunctionTool:
    said = description(stubs_of(map(runnable, called.values())), LIMITS)
    said += "\n\nA result that is a JSON object or array comes as such, all others as text."
    schema = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
    return FunctionTool(name=function, description=said, parameters=Raw(msgspec.json.encode(schema)))


def runnable(tool: Deferred) -> Runnable:
    """For its stub: it is the client who runs it."""
    grammar = None
    schema: dict[str, Any] | None = None
    given: dict[str, Any] | None = None
    if isinstance(tool, FreeformTool):
        grammar = tool.grammar or Grammar(syntax="text", definition="")
    else:
        schema = None if tool.parameters is None else object_of(bytes(tool.parameters))
        given = None if tool.output_schema is None else object_of(bytes(tool.output_schema))
    return Runnable(
        name=flat_name(tool),
        description=tool.description or "",
        parameters=schema or {"type": "object", "properties": {}},
        grammar=grammar,
        output_schema=given,
        run=_nobody,
    )


async def _nobody(arguments: Any, calling: Any) -> None:
    raise AssertionError("the client runs it")


# ---- what the upstream reads


def _collapsed(
    request: Request, names: Names, dialect: ProgramDialect, function: str
) -> tuple[tuple[Message, ...], list[str], Pending | None]:
    """The conversation with each program as one call and its result, the programs in it, and the one that waits."""
    found: list[Message] = []
    inner: dict[str, str] = {}
    results: dict[str, dict[str, ToolResult]] = {}
    programs: list[str] = []
    waiting: str | None = None
    for message in pinned(request, names, "messages").messages:
        parts: list[Part] = []
        for part in pinned(message, names).parts:
            if (begun := dialect.begun(part)) is not None:
                waiting = begun.id
                programs.append(begun.id)
                code = msgspec.json.encode({"code": begun.code}).decode()
                parts.append(ToolCall(id=begun.id, name=function, arguments=code, at=part.at))
            elif isinstance(part, ToolCall) and _is_inner(part):
                inner[part.id or ""] = (part.caller.id if part.caller is not None else "") or ""
            elif isinstance(part, ToolResult) and part.call_id in inner:
                results.setdefault(inner[part.call_id or ""], {})[part.call_id or ""] = part
            elif (finished := dialect.finished(part)) is not None:
                waiting = None if waiting == finished.id else waiting
                found += [replace(message, parts=tuple(parts))] if parts else []
                result = replace(outcome(finished.id, finished.text, failed=finished.failed), at=part.at)
                found.append(Message(role="user", parts=(result,), at=message.at))
                parts = []
            else:
                parts.append(part)
        if parts or not message.parts:
            found.append(replace(message, parts=tuple(parts)))
    pending = None if waiting is None else Pending(waiting, results.get(waiting, {}))
    return tuple(found), programs, pending


def _is_inner(call: ToolCall) -> bool:
    return call.caller is not None and call.caller.kind != "direct"


def outcome(call_id: str | None, text: str, *, failed: bool) -> ToolResult:
    """What the model is told of a program."""
    return ToolResult(call_id=call_id, content=(Text(text=text),), status="error" if failed else "ok")
