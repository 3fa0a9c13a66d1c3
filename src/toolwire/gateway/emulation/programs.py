"""How providers tell of programs that call tools, for clients of theirs in front of other upstreams.

Programs that call tools, for upstreams that run none: the request as the upstream gets it.

1. `run_code` is declared in place of the provider's own, with the tools that programs may call as functions. What only
   programs may call is not declared.
2. A program is one call and its result: what it called stands nowhere in what the model reads.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Caller, Message, OpaquePart, Part, Text, ToolCall, ToolResult
from toolwire.canonical.errors import ApiError
from toolwire.canonical.loss import Loss
from toolwire.canonical.node import Extras
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, Grammar, NativeTool, Tool, ToolGroup
from toolwire.codec.interface import Codec
from toolwire.codec.losses import WireNames, with_source_positions
from toolwire.gateway.emulation.tool_search import DeferrableTool, decode_object, flat_name, iter_functions, tool_path
from toolwire.gateway.errors import RequestRejected
from toolwire.runtime.sandbox.code.description import CodeLimits, code_tool_description, make_stubs
from toolwire.runtime.tool import Tool as Runnable
from toolwire.runtime.tool import ToolOutput

ProgramTool = FunctionTool | FreeformTool


class ProgramCall(NamedTuple):
    id: str
    code: str


class ProgramResult(NamedTuple):
    id: str
    text: str
    is_error: bool = False


class ProgramDialect(Protocol):
    """What a client declares, sees and repeats of programs. `forbidden`: which field its provider refuses beside them,
    and why. `caller_of` is the word for a program as the caller of a tool."""

    def unsupported_field(self, request: Request, program_tools: Iterable[ProgramTool]) -> tuple[str, str] | None: ...
    def caller_kind(self, tool: ProgramTool) -> str: ...
    def new_program_id(self, suffix: str) -> str: ...
    def new_call_id(self, suffix: str) -> str: ...
    def runs_programs(self, tool: NativeTool) -> bool: ...
    def decode_program_call(self, part: Part) -> ProgramCall | None: ...
    def decode_program_result(self, part: Part) -> ProgramResult | None: ...
    def encode_program_call(self, program_call: ProgramCall) -> Part: ...
    def encode_program_result(self, id: str, output: ToolOutput | None) -> Part: ...
    def container_extras(self, id: str, expires_at: str) -> Extras | None: ...


_SANDBOX_CALLERS = ("code_execution_20260120", "code_execution_20250825")


class _AnthropicPrograms:
    def unsupported_field(self, request: Request, program_tools: Iterable[ProgramTool]) -> tuple[str, str] | None:
        if any(isinstance(tool, FunctionTool) and tool.strict for tool in program_tools):
            return "tools", "strict is not supported with programmatic tool calling"
        if request.tool_choice is not None and request.tool_choice.parallel is False:
            return "tool_choice", "disable_parallel_tool_use is not supported with programmatic tool calling"
        return None

    def caller_kind(self, tool: ProgramTool) -> str:
        """The sandbox that the tool was declared for, where the official SDK reads its name in an answer."""
        return next((one for one in tool.allowed_callers or () if one in _SANDBOX_CALLERS), _SANDBOX_CALLERS[0])

    def new_program_id(self, suffix: str) -> str:
        return f"srvtoolu_{suffix}"

    def new_call_id(self, suffix: str) -> str:
        return f"toolu_{suffix}"

    def runs_programs(self, tool: NativeTool) -> bool:
        return tool.protocol == "anthropic" and tool.kind == "code_execution"

    def decode_program_call(self, part: Part) -> ProgramCall | None:
        if not isinstance(part, ToolCall) or part.executor != "server" or part.name != "code_execution":
            return None
        code = _decode_members(part.arguments).get("code")
        return ProgramCall(part.id or "", code) if isinstance(code, str) else None

    def decode_program_result(self, part: Part) -> ProgramResult | None:
        if not isinstance(part, ToolResult) or part.native != "code_execution_tool_result":
            return None
        content = part.content[0] if part.content else None
        said = _decode_members(bytes(content.body)) if isinstance(content, OpaquePart) else {}
        texts = [
            text for name in ("stdout", "stderr", "error_code") if isinstance(text := said.get(name), str) and text
        ]
        failed = part.status != "ok" or bool(said.get("return_code"))
        return ProgramResult(part.call_id or "", "\n".join(texts), failed)

    def encode_program_call(self, program_call: ProgramCall) -> Part:
        return _opaque_part(
            "anthropic",
            {
                "type": "server_tool_use",
                "id": program_call.id,
                "name": "code_execution",
                "input": {"code": program_call.code},
            },
        )

    def encode_program_result(self, id: str, output: ToolOutput | None) -> Part:
        if output is None:
            content: dict[str, Any] = {
                "type": "code_execution_tool_result_error",
                "error_code": "execution_time_exceeded",
            }
        else:
            text, failed = output_text(output), output.is_error
            said = {"stdout": "" if failed else text, "stderr": text if failed else "", "return_code": int(failed)}
            content = {"type": "code_execution_result", **said, "content": []}
        return _opaque_part("anthropic", {"type": "code_execution_tool_result", "tool_use_id": id, "content": content})

    def container_extras(self, id: str, expires_at: str) -> Extras | None:
        container = {"id": "container_" + id.removeprefix("srvtoolu_"), "expires_at": expires_at}
        return {"anthropic": {"container": Raw(msgspec.json.encode(container))}}


class _ResponsesPrograms:
    def unsupported_field(self, request: Request, program_tools: Iterable[ProgramTool]) -> tuple[str, str] | None:
        return None

    def caller_kind(self, tool: ProgramTool) -> str:
        return "program"

    def new_program_id(self, suffix: str) -> str:
        return f"call_{suffix}"

    def new_call_id(self, suffix: str) -> str:
        return f"call_{suffix}"

    def runs_programs(self, tool: NativeTool) -> bool:
        return tool.protocol == "openai-responses" and tool.kind == "programmatic_tool_calling"

    def decode_program_call(self, part: Part) -> ProgramCall | None:
        said = _decode_members(bytes(part.body)) if isinstance(part, OpaquePart) and part.kind == "program" else {}
        id, code = said.get("call_id"), said.get("code")
        return ProgramCall(id, code) if isinstance(id, str) and isinstance(code, str) else None

    def decode_program_result(self, part: Part) -> ProgramResult | None:
        said = (
            _decode_members(bytes(part.body)) if isinstance(part, OpaquePart) and part.kind == "program_output" else {}
        )
        id, result = said.get("call_id"), said.get("result")
        if not isinstance(id, str):
            return None
        return ProgramResult(id, result if isinstance(result, str) else "", said.get("status") != "completed")

    def encode_program_call(self, program_call: ProgramCall) -> Part:
        id = program_call.id.removeprefix("call_")
        said = {"type": "program", "id": f"prog_{id}", "call_id": program_call.id, "code": program_call.code}
        return _opaque_part("openai-responses", {**said, "fingerprint": f"tw_{id}"})

    def encode_program_result(self, id: str, output: ToolOutput | None) -> Part:
        failed = output is None or output.is_error
        text = "the program was not gone on with in time" if output is None else output_text(output)
        said = {"type": "program_output", "id": f"progo_{id.removeprefix('call_')}", "call_id": id, "result": text}
        return _opaque_part("openai-responses", {**said, "status": "incomplete" if failed else "completed"})

    def container_extras(self, id: str, expires_at: str) -> Extras | None:
        return None


PROGRAM_DIALECTS: dict[str, ProgramDialect] = {
    "anthropic": _AnthropicPrograms(),
    "openai-responses": _ResponsesPrograms(),
}


def with_program_caller(dialect: ProgramDialect, program_id: str, call: ToolCall, tool: ProgramTool) -> ToolCall:
    """A call that a program makes, as the client is told of it."""
    return msgspec.structs.replace(call, caller=Caller(kind=dialect.caller_kind(tool), id=program_id))


def output_text(output: ToolOutput) -> str:
    return "\n".join(text for part in output.content if (text := getattr(part, "text", None)))


def _opaque_part(protocol: str, body: dict[str, Any]) -> OpaquePart:
    return OpaquePart(protocol=protocol, kind=body["type"], body=Raw(msgspec.json.encode(body)), at="")


def _decode_members(text: str | bytes) -> dict[str, Any]:
    try:
        said = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


FUNCTION_NAME = "run_code"
CODE_LIMITS = CodeLimits()
_HIDDEN_TOOL_REASON = "only programs may call it: it is a function in the gateway's"
_LOSS_REASON = "the target runs no programs: the gateway runs them, in Python"


class PendingProgram(Struct, frozen=True):
    """The program that a request goes on with, and what its calls gave."""

    id: str
    results: dict[str, ToolResult]


class ProgramRequest(Struct, frozen=True):
    """The request without programs. `tools`: what they may call, by flat name; `hidden`: what only they may.
    `programs` are those of the conversation."""

    request: Request
    losses: list[Loss]
    function_name: str
    tools: dict[str, DeferrableTool]
    hidden_names: frozenset[str]
    program_ids: list[str]
    pending: PendingProgram | None


def plan_programs(request: Request, client: Codec, upstream: Codec) -> ProgramRequest | None:
    """The request for an upstream without programs; None if it asks for none."""
    dialect = PROGRAM_DIALECTS.get(client.name)
    if client is upstream or dialect is None or not request.tools or not _has_sandbox():
        return None
    runner = [n for n, one in enumerate(request.tools) if isinstance(one, NativeTool) and dialect.runs_programs(one)]
    if not runner:
        return None
    called = {flat_name(one): one for one in iter_functions(request.tools) if _is_for_programs(one)}
    if not called:
        return None
    if (forbidden := dialect.unsupported_field(request, called.values())) is not None:
        raise RequestRejected(ApiError(kind="invalid_request", message=forbidden[1], status=400, param=forbidden[0]))
    hidden = frozenset(name for name, one in called.items() if "direct" not in (one.allowed_callers or ()))
    if request.tool_choice is not None and any(one.name in hidden for one in request.tool_choice.names):
        why = "tool_choice names a tool that only programs may call"
        raise RequestRejected(ApiError(kind="invalid_request", message=why, status=400, param="tool_choice"))
    names = {flat_name(one) for one in iter_functions(request.tools)}
    function = next(
        name for name in (FUNCTION_NAME, *(f"{FUNCTION_NAME}_{n}" for n in range(2, 99))) if name not in names
    )
    tools = tuple(_declared_tools(request.tools, runner, hidden, _code_function(function, called)))
    messages, programs, pending = _collapse_programs(request, client.wire_names, dialect, function)
    losses = [Loss(kind="approximated", path=tool_path(n, request.tools[n]), reason=_LOSS_REASON) for n in runner]
    losses += [
        Loss(kind="approximated", path=called[name].at or "", reason=_HIDDEN_TOOL_REASON)
        for name in called
        if name in hidden
    ]
    extras = {family: kept for family, kept in (request.extras or {}).items() if family != client.name}
    kept = {key: raw for key, raw in (request.extras or {}).get(client.name, {}).items() if key != "container"}
    made = replace(request, tools=tools, messages=messages, extras={**extras, client.name: kept}, plain=False)
    return ProgramRequest(made, losses, function, called, hidden, programs, pending)


@lru_cache(maxsize=1)
def _has_sandbox() -> bool:
    return find_spec("pydantic_monty") is not None


def _is_for_programs(tool: DeferrableTool) -> bool:
    return any(caller != "direct" for caller in tool.allowed_callers or ())


def _declared_tools(
    tools: tuple[Tool, ...], runner_indexes: list[int], hidden_names: frozenset[str], code_function: FunctionTool
) -> Iterator[Tool]:
    for index, tool in enumerate(tools):
        at = tool_path(index, tool)
        if index in runner_indexes:
            if index == runner_indexes[0]:
                yield replace(code_function, at=at)
        elif isinstance(tool, ToolGroup):
            members = [
                replace(one, allowed_callers=None, at=tool_path(place, one))
                for place, one in enumerate(tool.tools)
                if f"{tool.name}__{one.name}" not in hidden_names
            ]
            if members:
                yield replace(tool, tools=tuple(members), at=at)
        elif isinstance(tool, NativeTool):
            yield replace(tool, at=at)
        elif flat_name(tool) not in hidden_names:
            yield replace(tool, allowed_callers=None, at=at)


def _code_function(function_name: str, program_tools: Mapping[str, DeferrableTool]) -> FunctionTool:
    said = code_tool_description(make_stubs(map(runtime_tool, program_tools.values())), CODE_LIMITS)
    said += "\n\nA result that is a JSON object or array comes as such, all others as text."
    schema = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
    return FunctionTool(name=function_name, description=said, parameters=Raw(msgspec.json.encode(schema)))


def runtime_tool(tool: DeferrableTool) -> Runnable:
    """For its stub: it is the client who runs it."""
    grammar = None
    schema: dict[str, Any] | None = None
    given: dict[str, Any] | None = None
    if isinstance(tool, FreeformTool):
        grammar = tool.grammar or Grammar(syntax="text", definition="")
    else:
        schema = None if tool.parameters is None else decode_object(bytes(tool.parameters))
        given = None if tool.output_schema is None else decode_object(bytes(tool.output_schema))
    return Runnable(
        name=flat_name(tool),
        description=tool.description or "",
        parameters=schema or {"type": "object", "properties": {}},
        grammar=grammar,
        output_schema=given,
        run=_reject_run,
    )


async def _reject_run(arguments: Any, context: Any) -> None:
    raise AssertionError("the client runs it")


# ---- what the upstream reads


def _collapse_programs(
    request: Request, names: WireNames, dialect: ProgramDialect, function_name: str
) -> tuple[tuple[Message, ...], list[str], PendingProgram | None]:
    """The conversation with each program as one call and its result, the programs in it, and the one that waits."""
    found: list[Message] = []
    inner: dict[str, str] = {}
    results: dict[str, dict[str, ToolResult]] = {}
    programs: list[str] = []
    waiting: str | None = None
    for message in with_source_positions(request, names, "messages").messages:
        parts: list[Part] = []
        for part in with_source_positions(message, names).parts:
            if (begun := dialect.decode_program_call(part)) is not None:
                waiting = begun.id
                programs.append(begun.id)
                code = msgspec.json.encode({"code": begun.code}).decode()
                parts.append(ToolCall(id=begun.id, name=function_name, arguments=code, at=part.at))
            elif isinstance(part, ToolCall) and _is_program_call(part):
                inner[part.id or ""] = (part.caller.id if part.caller is not None else "") or ""
            elif isinstance(part, ToolResult) and part.call_id in inner:
                results.setdefault(inner[part.call_id or ""], {})[part.call_id or ""] = part
            elif (finished := dialect.decode_program_result(part)) is not None:
                waiting = None if waiting == finished.id else waiting
                found += [replace(message, parts=tuple(parts))] if parts else []
                result = replace(
                    program_tool_result(finished.id, finished.text, is_error=finished.is_error), at=part.at
                )
                found.append(Message(role="user", parts=(result,), at=message.at))
                parts = []
            else:
                parts.append(part)
        if parts or not message.parts:
            found.append(replace(message, parts=tuple(parts)))
    pending = None if waiting is None else PendingProgram(waiting, results.get(waiting, {}))
    return tuple(found), programs, pending


def _is_program_call(call: ToolCall) -> bool:
    return call.caller is not None and call.caller.kind != "direct"


def program_tool_result(call_id: str | None, text: str, *, is_error: bool) -> ToolResult:
    """What the model is told of a program."""
    return ToolResult(call_id=call_id, content=(Text(text=text),), status="error" if is_error else "ok")
