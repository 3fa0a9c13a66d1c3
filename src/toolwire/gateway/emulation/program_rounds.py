"""Programs that call tools, for upstreams that run none: running them.

1. The tools that a program calls are the client's. The client gets the calls in its provider's form, and the program is
   suspended, as a signed snapshot in the gateway's state. The next request brings the results and resumes it.
2. A direct call of a tool that only programs may call is denied, and the model is told.
3. A program that is unknown, or not resumed in time, has timed out.
"""

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Data, Message, Part, Text, ToolCall, ToolResult
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import CandidateEnd, Event, MessageStart, ResponseEnd
from toolwire.canonical.node import Extras
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response, Stop, Usage
from toolwire.canonical.tools import FreeformTool
from toolwire.codec.interface import ResponseMapping
from toolwire.gateway.emulation.programs import (
    CODE_LIMITS,
    PROGRAM_DIALECTS,
    PendingProgram,
    ProgramCall,
    ProgramRequest,
    output_text,
    program_tool_result,
    runtime_tool,
    with_program_caller,
)
from toolwire.gateway.emulation.tool_search import ToolSearchRequest, ToolSearchRounds, decode_object
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.rounds.continuation import ProtocolPair, RouteTools
from toolwire.gateway.state.store import Row, StateStore
from toolwire.runtime.sandbox.code.description import make_stubs
from toolwire.runtime.sandbox.code.program import (
    CallRaised,
    CallReturned,
    HostCall,
    HostCallOutcome,
    InvalidSnapshot,
    ProgramEnded,
    ProgramFunctions,
    ProgramWaiting,
    open_program,
    sign_snapshot,
    verify_snapshot,
)
from toolwire.runtime.sandbox.code.tool import CodeSandbox, make_helpers, program_output
from toolwire.runtime.tool import ToolError, ToolOutput

PROGRAM_KIND = "program"
_SUSPENSION_SECONDS = 270.0  # as long as Anthropic keeps a container
_decode_call = msgspec.json.Decoder(ToolCall).decode
_NO_SEARCH = ToolSearchRequest(Request(origin=""), [], "", "", {}, {})


class SuspendedProgram(Struct):
    """A program that waits for results, or the remains of one that ended."""

    snapshot: bytes
    """The interpreter's state; empty once the program has ended."""
    calls: dict[str, int]
    """The interpreter's call ids, by the ids that the client got."""
    code: str
    call: Raw
    """The model's call that started the program, with its signature."""
    expires_at: float


class ProgramHost:
    """The sandbox that runs programs, and the store of suspended ones."""

    def __init__(self, store: StateStore, keys: list[bytes], clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._keys = keys or [secrets.token_bytes(32)]
        self.sandbox = CodeSandbox(CODE_LIMITS)
        self.clock = clock

    def close(self) -> None:
        """Close the sandbox."""
        self.sandbox.close_sync()

    async def store_suspended(self, owner: str, id: str, program: SuspendedProgram) -> None:
        """Store a program that waits for tool results, before its calls are sent: the next request has only results."""
        await self._store.put([self._row(owner, id, program)])

    async def store_ended(self, owner: str, id: str, program: SuspendedProgram) -> None:
        """Store the model's call that started a program, with its signature, for requests after the program's end."""
        self._store.enqueue([self._row(owner, id, program)])
        await self._store.flush()

    def _row(self, owner: str, id: str, program: SuspendedProgram) -> Row:
        """Build the row of a program, signed for its owner."""
        return Row(
            owner, PROGRAM_KIND, id, sign_snapshot(msgspec.json.encode(program), self._keys[0], f"{owner}\0{id}")
        )

    async def find(self, owner: str, ids: list[str]) -> dict[str, SuspendedProgram]:
        """Return, by id, the programs that are stored and were signed by this gateway."""
        rows = await self._store.get(owner, PROGRAM_KIND, ids)
        programs = {id: self._verify(signed, f"{owner}\0{id}") for id, signed in rows.items()}
        return {id: program for id, program in programs.items() if program is not None}

    def _verify(self, signed: bytes, purpose: str) -> SuspendedProgram | None:
        """Return a stored program, decoded; None if no key matches its signature."""
        for key in self._keys:
            try:
                return msgspec.json.decode(verify_snapshot(signed, key, purpose), type=SuspendedProgram)
            except InvalidSnapshot:
                continue
        return None


class ProgramRounds(ToolSearchRounds):
    """Merges several upstream requests (rounds) into one response, running the model's programs between them.

    A program is code that calls tools. The gateway runs it in a sandbox, as the client's own provider would.
    """

    def __init__(
        self,
        program_plan: ProgramRequest,
        search_plan: ToolSearchRequest | None,
        pair: ProtocolPair,
        mapping: ResponseMapping,
        *,
        host: ProgramHost,
        owner: str,
        route_tools: RouteTools | None = None,
    ) -> None:
        super().__init__(search_plan or _NO_SEARCH, pair, mapping, route_tools)
        self._program_plan = program_plan
        self._program_dialect = PROGRAM_DIALECTS[pair.client.name]
        self._host = host
        self._owner = owner
        self._request = program_plan.request
        self._code_calls: list[ToolCall] = []
        self._first_parts: list[Part] = []

    def _is_gateway_call(self, call: ToolCall) -> bool:
        """Return whether the call starts a program, is reserved for programs, or is a search or route tool."""
        return call.name in (
            self._program_plan.function_name,
            *self._program_plan.hidden_names,
        ) or super()._is_gateway_call(call)

    def _handle_call(self, call: ToolCall) -> list[Event]:
        """Queue a call that starts a program; deny a direct call of a tool that only programs may call.

        Returns the events that the client sees.
        """
        if call.name == self._program_plan.function_name:
            self._code_calls.append(call)
            return []
        if call.name in self._program_plan.hidden_names:
            message = f"Denied: only code may call {call.name}. Call it inside {self._program_plan.function_name}."
            self._results.append(program_tool_result(call.id, message, is_error=True))
            return []
        return super()._handle_call(call)

    def _needs_next_round(self) -> bool:
        """Return whether there is a program to run, or results to send to the model."""
        return bool(self._code_calls) or super()._needs_next_round()

    def _process_event(self, event: Event) -> list[Event]:
        """Return the client events for one upstream event, preceded by the parts of a resumed program."""
        events = super()._process_event(event)
        if isinstance(event, MessageStart) and self._first_parts:
            events += self._part_events(self._first_parts, self._message_offset)
            self._first_parts = []
        return events

    # ---- resuming a program

    async def prepare_first_round(self) -> Response | bytes | None:
        """Resume the program that the request brings results for, if there is one.

        Returns a response with the program's next calls if it needs more results, else the request body for the model;
        None if the request holds no program.
        """
        await super().prepare_first_round()
        pending = self._program_plan.pending
        if not self._program_plan.program_ids:
            return None
        programs = await self._host.find(self._owner, self._program_plan.program_ids)
        self._restore_calls({id: replace(_decode_call(program.call), id=id) for id, program in programs.items()})
        if pending is None:
            return self.encode_request()
        suspended = programs.get(pending.id)
        if suspended is None or not suspended.snapshot or suspended.expires_at < self._host.clock():
            self._first_parts = [self._program_dialect.encode_program_result(pending.id, None)]
            self._append_result(
                program_tool_result(pending.id, "The program timed out waiting to be resumed.", is_error=True)
            )
            return self.encode_request()
        parts, output = await self._resume_program(pending, suspended)
        self.has_effects = True
        if output is None:
            self._is_stopped = True
            return self._suspended_response(pending.id, parts)
        self._first_parts = parts
        self._append_result(program_tool_result(pending.id, output_text(output), is_error=output.is_error))
        return self.encode_request()

    def _suspended_response(self, id: str, parts: list[Part]) -> Response:
        """Build a response of only a program's calls, without asking the model."""
        messages = (Message(role="assistant", parts=tuple(parts)),)
        candidate = Candidate(messages=messages, stop=Stop(reason="tool_use"), extras=self._container_extras(id))
        return Response(
            origin=self._upstream.name,
            id=f"tw_{secrets.token_hex(12)}",
            model=self._target.model,
            candidates=(candidate,),
            usage=Usage(input_tokens=0, output_tokens=0),
            created=int(self._host.clock()),
        )

    def _restore_calls(self, calls: dict[str | None, ToolCall]) -> None:
        """Restore the calls that started programs as the model made them, with their signatures."""

        def restore(message: Message) -> Message:
            """Return the message with the calls that started programs restored."""
            parts = [calls.get(part.id, part) if isinstance(part, ToolCall) else part for part in message.parts]
            return replace(message, parts=tuple(parts))

        self._request = replace(self._request, messages=tuple(map(restore, self._request.messages)))

    def _append_result(self, result: ToolResult) -> None:
        """Append a tool result to the request for the model."""
        messages = (*self._request.messages, Message(role="user", parts=(result,)))
        self._request = replace(self._request, messages=messages)

    # ---- starting a program

    async def finish_round(self) -> list[Event]:
        """Run the program that the model wrote in the upstream response (round) that just ended.

        Returns the events that the client sees: the program, and its result or the calls that it waits for. Waiting
        ends the response. Of several programs only the first one runs.
        """
        events = await super().finish_round()
        if not self._code_calls:
            return events
        (first, *others), self._code_calls = self._code_calls, []
        self._results += [
            program_tool_result(call.id, "Only one program can run at a time: call it again.", is_error=True)
            for call in others
        ]
        id = self._program_dialect.new_program_id(secrets.token_hex(12))
        argument = (decode_object(first.arguments.encode()) or {}).get("code")
        code = argument if isinstance(argument, str) else ""
        parts, output = await self._start_program(id, code, Raw(msgspec.json.encode(first)))
        events += self._message_events([self._program_dialect.encode_program_call(ProgramCall(id, code)), *parts])
        if output is not None:
            self._results.append(program_tool_result(first.id, output_text(output), is_error=output.is_error))
        if output is None or self._has_client_calls:
            self.paused, self._is_stopped = False, True
            extras = self._container_extras(id) if output is None else None
            events.append(CandidateEnd(stop=Stop(reason="tool_use"), extras=extras))
            events += [event for event in self._held_events if isinstance(event, ResponseEnd)]
        return events

    def _container_extras(self, id: str) -> Extras | None:
        """Return the client protocol's fields about a suspended program's container, with its expiry, if it has any."""
        expires_at = datetime.fromtimestamp(self._host.clock() + _SUSPENSION_SECONDS, UTC)
        return self._program_dialect.container_extras(id, expires_at.strftime("%Y-%m-%dT%H:%M:%SZ"))

    # ---- the sandbox

    async def _start_program(self, id: str, code: str, call: Raw) -> tuple[list[Part], ToolOutput | None]:
        """Start a program; a sandbox error becomes its output. Returns as `_run_program`."""
        try:
            return await self._run_program(id, SuspendedProgram(b"", {}, code, call, 0), {})
        except ToolError as error:
            output = ToolOutput(content=(Text(text=str(error)),), is_error=True, error_kind=error.kind)
            return [self._program_dialect.encode_program_result(id, output)], output

    async def _resume_program(
        self, pending: PendingProgram, suspended: SuspendedProgram
    ) -> tuple[list[Part], ToolOutput | None]:
        """Resume a program with the client's results of its calls. Returns as `_run_program`."""
        results = {host: _decode_call_result(pending.results.get(id)) for id, host in suspended.calls.items()}
        try:
            return await self._run_program(pending.id, suspended, results)
        except ToolError as error:
            # It is still suspended: the client may retry.
            raise RequestRejected(ApiError(kind="overloaded", message=str(error), status=529)) from None

    async def _run_program(
        self, id: str, suspended: SuspendedProgram, results: dict[int, HostCallOutcome]
    ) -> tuple[list[Part], ToolOutput | None]:
        """Run a program until it waits for tool results or ends.

        Returns the parts that the client sees, its calls or its result, and the output if it ended.
        """
        tools = [runtime_tool(tool) for tool in self._program_plan.tools.values()]
        stubs = make_stubs(tools)
        functions = ProgramFunctions(stubs, make_helpers(stubs, tools))
        async with open_program(await self._host.sandbox.pool(), functions, CODE_LIMITS, suspended.code) as program:
            state = await (program.load(suspended.snapshot) if suspended.snapshot else program.start())
            if results and isinstance(state, ProgramWaiting):
                state = await program.resume(state, results)
            if isinstance(state, ProgramEnded):
                output = program_output(program.output, state, CODE_LIMITS)
                await self._host.store_ended(self._owner, id, replace(suspended, snapshot=b"", calls={}))
                return [self._program_dialect.encode_program_result(id, output)], output
            host_calls = {
                self._program_dialect.new_call_id(secrets.token_hex(12)): host_call for host_call in state.calls
            }
            updated = replace(
                suspended,
                snapshot=await program.dump(state),
                calls={call_id: host_call.id for call_id, host_call in host_calls.items()},
                expires_at=self._host.clock() + _SUSPENSION_SECONDS,
            )
        await self._host.store_suspended(self._owner, id, updated)
        calls: list[Part] = [
            with_program_caller(
                self._program_dialect,
                id,
                self._client_call(call_id, host_call),
                self._program_plan.tools[host_call.tool],
            )
            for call_id, host_call in host_calls.items()
        ]
        return calls, None

    def _client_call(self, id: str, host_call: HostCall) -> ToolCall:
        """Build the call that the client gets for a call of the program."""
        tool = self._program_plan.tools[host_call.tool]
        if isinstance(tool, FreeformTool):
            text = str(host_call.arguments)
            return ToolCall(id=id, name=tool.name, namespace=tool.namespace, arguments=text, shape="freeform")
        text = msgspec.json.encode(host_call.arguments).decode()
        return ToolCall(id=id, name=tool.name, namespace=tool.namespace, arguments=text)


def _decode_call_result(result: ToolResult | None) -> HostCallOutcome:
    """Convert a client's tool result for the program: JSON objects and arrays are decoded, other text is not."""
    if result is None:
        return CallRaised("the client sent no result for this call")
    parts = [part for part in result.content or () if isinstance(part, Text | Data)]
    text = "\n".join(part.text if isinstance(part, Text) else bytes(part.json).decode() for part in parts)
    if result.status != "ok":
        return CallRaised(text or "the call failed")
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return CallReturned(text)
    return CallReturned(value if isinstance(value, dict | list) else text)
