"""Programs that call tools, for upstreams that run none: the request as the upstream gets it.

1. `run_code` replaces the provider's code execution tool. The tools that programs may call are described as its
   functions; tools that only programs may call are not declared.
2. In the conversation, a program is one call and its result. The calls that the program made are left out.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Caller, Message, Part, Text, ToolCall, ToolResult
from toolwire.canonical.errors import ApiError, Loss
from toolwire.canonical.node import Extras
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, Grammar, NativeTool, Tool
from toolwire.codec.interface import Codec
from toolwire.codec.losses import WireNames, with_source_positions
from toolwire.gateway.emulation.tool_search import (
    DeferrableTool,
    decode_object,
    flat_name,
    iter_functions,
    opaque_members,
    opaque_part,
    replace_tools,
    tool_path,
)
from toolwire.gateway.errors import RequestRejected
from toolwire.runtime.sandbox.code.description import CodeLimits, code_tool_description, make_stubs
from toolwire.runtime.tool import Tool as Runnable
from toolwire.runtime.tool import ToolOutput

ProgramTool = FunctionTool | FreeformTool


class ProgramCall(NamedTuple):
    """A program in the conversation."""

    id: str
    code: str


class ProgramResult(NamedTuple):
    """The outcome of a program."""

    id: str
    text: str
    is_error: bool = False


class ProgramDialect(Protocol):
    """A protocol's wire form of programs: declarations, calls, results and ids."""

    def unsupported_field(self, request: Request, program_tools: Iterable[ProgramTool]) -> tuple[str, str] | None:
        """Return a request field that the provider rejects beside programs, and the message; None if there is none."""

    def caller_kind(self, tool: ProgramTool) -> str:
        """Return the `caller` type of calls that a program makes of this tool."""

    def new_program_id(self, suffix: str) -> str:
        """Return the id of a new program: the protocol's prefix and this random suffix."""

    def new_call_id(self, suffix: str) -> str:
        """Return the id of a new call made by a program: the protocol's prefix and this random suffix."""

    def runs_programs(self, tool: NativeTool) -> bool:
        """Return whether this hosted tool is the one that runs programs."""

    def decode_program_call(self, part: Part) -> ProgramCall | None:
        """Decode a program call; None for other parts."""

    def decode_program_result(self, part: Part) -> ProgramResult | None:
        """Decode a program's result; None for other parts."""

    def encode_program_call(self, program_call: ProgramCall) -> Part:
        """Encode a program call."""

    def encode_program_result(self, id: str, output: ToolOutput | None) -> Part:
        """Encode a program's result; without output, that it timed out."""

    def container_extras(self, id: str, expires_at: str) -> Extras | None:
        """Return the protocol's response fields about the container of a suspended program; None if it has none."""


_SANDBOX_CALLERS = ("code_execution_20260120", "code_execution_20250825")


class _AnthropicPrograms:
    """Programs as Anthropic's `code_execution` and `allowed_callers` express them."""

    def unsupported_field(self, request: Request, program_tools: Iterable[ProgramTool]) -> tuple[str, str] | None:
        """Return `tools` for strict tools, or `tool_choice` for disabled parallel calls."""
        if any(isinstance(tool, FunctionTool) and tool.strict for tool in program_tools):
            return "tools", "strict is not supported with programmatic tool calling"
        if request.tool_choice is not None and request.tool_choice.parallel is False:
            return "tool_choice", "disable_parallel_tool_use is not supported with programmatic tool calling"
        return None

    def caller_kind(self, tool: ProgramTool) -> str:
        """Return the sandbox version that the tool was declared for: the SDK validates its name."""
        return next(
            (caller for caller in tool.allowed_callers or () if caller in _SANDBOX_CALLERS), _SANDBOX_CALLERS[0]
        )

    def new_program_id(self, suffix: str) -> str:
        """Return the id of a new program: `srvtoolu_` and the random suffix."""
        return f"srvtoolu_{suffix}"

    def new_call_id(self, suffix: str) -> str:
        """Return the id of a new call made by a program: `toolu_` and the random suffix."""
        return f"toolu_{suffix}"

    def runs_programs(self, tool: NativeTool) -> bool:
        """Return whether the tool is `code_execution`."""
        return tool.protocol == "anthropic" and tool.kind == "code_execution"

    def decode_program_call(self, part: Part) -> ProgramCall | None:
        """Decode a `server_tool_use` of `code_execution`."""
        if not isinstance(part, ToolCall) or part.executor != "server" or part.name != "code_execution":
            return None
        code = (decode_object(part.arguments) or {}).get("code")
        return ProgramCall(part.id or "", code) if isinstance(code, str) else None

    def decode_program_result(self, part: Part) -> ProgramResult | None:
        """Decode a `code_execution_tool_result`."""
        if not isinstance(part, ToolResult) or part.native != "code_execution_tool_result":
            return None
        members = opaque_members(part.content[0] if part.content else None)
        texts = [
            text for name in ("stdout", "stderr", "error_code") if isinstance(text := members.get(name), str) and text
        ]
        failed = part.status != "ok" or bool(members.get("return_code"))
        return ProgramResult(part.call_id or "", "\n".join(texts), failed)

    def encode_program_call(self, program_call: ProgramCall) -> Part:
        """Encode a `server_tool_use` of `code_execution`."""
        return opaque_part(
            "anthropic",
            {
                "type": "server_tool_use",
                "id": program_call.id,
                "name": "code_execution",
                "input": {"code": program_call.code},
            },
        )

    def encode_program_result(self, id: str, output: ToolOutput | None) -> Part:
        """Encode a `code_execution_tool_result`."""
        if output is None:
            content: dict[str, Any] = {
                "type": "code_execution_tool_result_error",
                "error_code": "execution_time_exceeded",
            }
        else:
            text, failed = output_text(output), output.is_error
            streams = {"stdout": "" if failed else text, "stderr": text if failed else "", "return_code": int(failed)}
            content = {"type": "code_execution_result", **streams, "content": []}
        return opaque_part("anthropic", {"type": "code_execution_tool_result", "tool_use_id": id, "content": content})

    def container_extras(self, id: str, expires_at: str) -> Extras | None:
        """Return the `container` of the response, with its expiry."""
        container = {"id": "container_" + id.removeprefix("srvtoolu_"), "expires_at": expires_at}
        return {"anthropic": {"container": Raw(msgspec.json.encode(container))}}


class _ResponsesPrograms:
    """Programs as OpenAI's `programmatic_tool_calling` expresses them."""

    def unsupported_field(self, request: Request, program_tools: Iterable[ProgramTool]) -> tuple[str, str] | None:
        """Return None: OpenAI allows all fields beside programs."""
        return None

    def caller_kind(self, tool: ProgramTool) -> str:
        """Return `program`, the `caller` type of all calls that a program makes."""
        return "program"

    def new_program_id(self, suffix: str) -> str:
        """Return the id of a new program: `call_` and the random suffix, as it appears as `call_id` on the wire."""
        return f"call_{suffix}"

    def new_call_id(self, suffix: str) -> str:
        """Return the id of a new call made by a program: `call_` and the random suffix."""
        return f"call_{suffix}"

    def runs_programs(self, tool: NativeTool) -> bool:
        """Return whether the tool is `programmatic_tool_calling`."""
        return tool.protocol == "openai-responses" and tool.kind == "programmatic_tool_calling"

    def decode_program_call(self, part: Part) -> ProgramCall | None:
        """Decode a `program` item."""
        members = opaque_members(part, "program")
        id, code = members.get("call_id"), members.get("code")
        return ProgramCall(id, code) if isinstance(id, str) and isinstance(code, str) else None

    def decode_program_result(self, part: Part) -> ProgramResult | None:
        """Decode a `program_output` item."""
        members = opaque_members(part, "program_output")
        id, result = members.get("call_id"), members.get("result")
        if not isinstance(id, str):
            return None
        return ProgramResult(id, result if isinstance(result, str) else "", members.get("status") != "completed")

    def encode_program_call(self, program_call: ProgramCall) -> Part:
        """Encode a `program` item."""
        suffix = program_call.id.removeprefix("call_")
        members = {"type": "program", "id": f"prog_{suffix}", "call_id": program_call.id, "code": program_call.code}
        return opaque_part("openai-responses", {**members, "fingerprint": f"tw_{suffix}"})

    def encode_program_result(self, id: str, output: ToolOutput | None) -> Part:
        """Encode a `program_output` item."""
        failed = output is None or output.is_error
        text = "the program timed out waiting to be resumed" if output is None else output_text(output)
        members = {"type": "program_output", "id": f"progo_{id.removeprefix('call_')}", "call_id": id, "result": text}
        return opaque_part("openai-responses", {**members, "status": "incomplete" if failed else "completed"})

    def container_extras(self, id: str, expires_at: str) -> Extras | None:
        """Return None: Responses has no container here."""
        return None


PROGRAM_DIALECTS: dict[str, ProgramDialect] = {
    "anthropic": _AnthropicPrograms(),
    "openai-responses": _ResponsesPrograms(),
}


def with_program_caller(dialect: ProgramDialect, program_id: str, call: ToolCall, tool: ProgramTool) -> ToolCall:
    """Return the call, marked as made by the program with this id."""
    return msgspec.structs.replace(call, caller=Caller(kind=dialect.caller_kind(tool), id=program_id))


def output_text(output: ToolOutput) -> str:
    """Join the text parts of a tool's output."""
    return "\n".join(text for part in output.content if (text := getattr(part, "text", None)))


FUNCTION_NAME = "run_code"
CODE_LIMITS = CodeLimits()
_HIDDEN_TOOL_REASON = "only programs may call it: declared as a function of the gateway's `run_code`"
_LOSS_REASON = "the target does not run programs: the gateway runs them in Python"


class PendingProgram(Struct, frozen=True):
    """A suspended program that the request resumes, and the results of its calls."""

    id: str
    results: dict[str, ToolResult]


class ProgramRequest(Struct, frozen=True):
    """A request with programs replaced by a `run_code` function."""

    request: Request
    losses: list[Loss]
    function_name: str
    tools: dict[str, DeferrableTool]
    """The tools that programs may call, by flat name."""
    hidden_names: frozenset[str]
    """The tools that only programs may call."""
    program_ids: list[str]
    """The programs in the conversation."""
    pending: PendingProgram | None


def plan_programs(request: Request, client: Codec, upstream: Codec) -> ProgramRequest | None:
    """Adapt a request for an upstream that runs no programs; None if the request has no use for them."""
    dialect = PROGRAM_DIALECTS.get(client.name)
    if client is upstream or dialect is None or not request.tools or not _has_sandbox():
        return None
    runners = _runner_indexes(request.tools, dialect)
    program_tools = {flat_name(tool): tool for tool in iter_functions(request.tools) if _is_for_programs(tool)}
    if not runners or not program_tools:
        return None
    hidden = frozenset(name for name, tool in program_tools.items() if "direct" not in (tool.allowed_callers or ()))
    _check_supported(request, dialect, program_tools, hidden)
    function_name = _free_function_name({flat_name(tool) for tool in iter_functions(request.tools)})
    function = _code_function(function_name, program_tools)
    tools = replace_tools(request.tools, runners, function, hidden, "allowed_callers")
    messages, program_ids, pending = _collapse_programs(request, client.wire_names, dialect, function_name)
    adapted = replace(
        request,
        tools=tuple(tools),
        messages=messages,
        extras=_without_container(request.extras or {}, client.name),
    )
    losses = _program_losses(request.tools, runners, program_tools, hidden)
    return ProgramRequest(adapted, losses, function_name, program_tools, hidden, program_ids, pending)


def _runner_indexes(tools: tuple[Tool, ...], dialect: ProgramDialect) -> list[int]:
    """Return the positions of the provider's own tools that run programs."""
    return [index for index, tool in enumerate(tools) if isinstance(tool, NativeTool) and dialect.runs_programs(tool)]


def _check_supported(
    request: Request, dialect: ProgramDialect, program_tools: Mapping[str, DeferrableTool], hidden_names: frozenset[str]
) -> None:
    """Reject a request that the client's own provider rejects: a field unsupported beside programs, or a bad choice.

    A tool choice must not name one of `hidden_names`, the tools that only programs may call.
    """
    if (unsupported := dialect.unsupported_field(request, program_tools.values())) is not None:
        field, message = unsupported
        raise RequestRejected(ApiError(kind="invalid_request", message=message, status=400, param=field))
    if request.tool_choice is not None and any(tool.name in hidden_names for tool in request.tool_choice.names):
        message = "tool_choice names a tool that only programs may call"
        raise RequestRejected(ApiError(kind="invalid_request", message=message, status=400, param="tool_choice"))


def _free_function_name(taken_names: set[str]) -> str:
    """Return `run_code`, with a number if the client has a tool of that name."""
    candidates = (FUNCTION_NAME, *(f"{FUNCTION_NAME}_{number}" for number in range(2, 99)))
    return next(name for name in candidates if name not in taken_names)


def _program_losses(
    tools: tuple[Tool, ...],
    runner_indexes: list[int],
    program_tools: Mapping[str, DeferrableTool],
    hidden_names: frozenset[str],
) -> list[Loss]:
    """Return losses for the replaced code execution tools, and for the tools that the model no longer sees."""
    replaced = [(tool_path(index, tools[index]), _LOSS_REASON) for index in runner_indexes]
    hidden = [(tool.at or "", _HIDDEN_TOOL_REASON) for name, tool in program_tools.items() if name in hidden_names]
    return [
        Loss(severity="warning", kind="approximated", path=path, reason=reason, direction="request")
        for path, reason in replaced + hidden
    ]


def _without_container(extras: Extras, protocol: str) -> Extras:
    """Return the extras without the `container` field, which names an earlier program of the gateway."""
    fields = {name: raw for name, raw in extras.get(protocol, {}).items() if name != "container"}
    return {**extras, protocol: fields}


@lru_cache(maxsize=1)
def _has_sandbox() -> bool:
    """Return whether the sandbox for programs is installed."""
    return find_spec("pydantic_monty") is not None


def _is_for_programs(tool: DeferrableTool) -> bool:
    """Return whether programs may call this tool."""
    return any(caller != "direct" for caller in tool.allowed_callers or ())


def _code_function(function_name: str, program_tools: Mapping[str, DeferrableTool]) -> FunctionTool:
    """Declare the function by which the model runs a program, with stubs of the tools that the program may call."""
    description = code_tool_description(make_stubs(map(runtime_tool, program_tools.values())), CODE_LIMITS)
    description += "\n\nA result that is a JSON object or array comes as such, all others as text."
    schema = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
    return FunctionTool(name=function_name, description=description, parameters=Raw(msgspec.json.encode(schema)))


def runtime_tool(tool: DeferrableTool) -> Runnable:
    """Return a client's tool in the runtime's form, to make its stub; only the client can run it."""
    grammar = None
    parameters: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    if isinstance(tool, FreeformTool):
        grammar = tool.grammar or Grammar(syntax="text", definition="")
    else:
        parameters = None if tool.parameters is None else decode_object(bytes(tool.parameters))
        output_schema = None if tool.output_schema is None else decode_object(bytes(tool.output_schema))
    return Runnable(
        name=flat_name(tool),
        description=tool.description or "",
        parameters=parameters or {"type": "object", "properties": {}},
        grammar=grammar,
        output_schema=output_schema,
        run=_reject_run,
    )


async def _reject_run(arguments: Any, context: Any) -> None:
    """Raise: the client runs its own tools."""
    raise AssertionError("tools of the client are run by the client")


# ---- the conversation


def _collapse_programs(
    request: Request, names: WireNames, dialect: ProgramDialect, function_name: str
) -> tuple[tuple[Message, ...], list[str], PendingProgram | None]:
    """Reduce each program in the conversation to one call of the code function and its result.

    Returns the messages, the program ids, and the program that waits for results, if any.
    """
    collapser = _ProgramCollapser(dialect, function_name)
    for message in with_source_positions(request, names, "messages").messages:
        collapser.add(message, with_source_positions(message, names).parts)
    return tuple(collapser.messages), collapser.program_ids, collapser.pending()


class _ProgramCollapser:
    """Rewrites a conversation message by message, leaving out the calls that programs made."""

    def __init__(self, dialect: ProgramDialect, function_name: str) -> None:
        self.messages: list[Message] = []
        self.program_ids: list[str] = []
        self._dialect = dialect
        self._function_name = function_name
        self._program_of_call: dict[str, str] = {}
        self._results: dict[str, dict[str, ToolResult]] = {}
        self._running_id: str | None = None

    def add(self, message: Message, parts: Iterable[Part]) -> None:
        """Add a message; the result of a program becomes a user message of its own."""
        remaining: list[Part] = []
        for part in parts:
            if (call := self._dialect.decode_program_call(part)) is not None:
                self._running_id = call.id
                self.program_ids.append(call.id)
                arguments = msgspec.json.encode({"code": call.code}).decode()
                remaining.append(ToolCall(id=call.id, name=self._function_name, arguments=arguments, at=part.at))
            elif self._absorb(part):
                continue
            elif (result := self._dialect.decode_program_result(part)) is not None:
                if self._running_id == result.id:
                    self._running_id = None
                if remaining:
                    self.messages.append(replace(message, parts=tuple(remaining)))
                tool_result = program_tool_result(result.id, result.text, is_error=result.is_error)
                self.messages.append(Message(role="user", parts=(replace(tool_result, at=part.at),), at=message.at))
                remaining = []
            else:
                remaining.append(part)
        if remaining or not message.parts:
            self.messages.append(replace(message, parts=tuple(remaining)))

    def _absorb(self, part: Part) -> bool:
        """Take a call that a program made, or its result, out of the conversation; return whether the part is one."""
        if isinstance(part, ToolCall) and part.caller is not None and part.caller.kind != "direct":
            self._program_of_call[part.id or ""] = part.caller.id or ""
            return True
        if isinstance(part, ToolResult) and part.call_id in self._program_of_call:
            program_id = self._program_of_call[part.call_id or ""]
            self._results.setdefault(program_id, {})[part.call_id or ""] = part
            return True
        return False

    def pending(self) -> PendingProgram | None:
        """Return the program without a result, with the results of its calls; None if every program has ended."""
        if self._running_id is None:
            return None
        return PendingProgram(self._running_id, self._results.get(self._running_id, {}))


def program_tool_result(call_id: str | None, text: str, *, is_error: bool) -> ToolResult:
    """Build the result of a program as the model gets it."""
    return ToolResult(call_id=call_id, content=(Text(text=text),), status="error" if is_error else "ok")
