"""Programs that call tools, for upstreams that run none: running them.

1. What the code calls are the client's tools: the client gets these calls as its own provider would make them, and the
   program waits, sealed, in the gateway's state. The next request brings the results, and it goes on.
2. A direct call of a tool that only programs may call is denied, and the model told so.
3. A program that is not gone on with in time, or that nobody knows, has timed out.
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
    sign_snapshot,
    verify_snapshot,
)
from toolwire.runtime.sandbox.code.program import open_program as started
from toolwire.runtime.sandbox.code.tool import CodeSandbox, make_helpers, program_output
from toolwire.runtime.tool import ToolError, ToolOutput

PROGRAM_KIND = "program"
_SUSPENSION_SECONDS = 270.0  # seconds: as long as Anthropic keeps a container
_decode_call = msgspec.json.Decoder(ToolCall).decode
_NO_SEARCH = ToolSearchRequest(Request(origin=""), [], "", "", {}, {})


class SuspendedProgram(Struct):
    """A program that waits: the interpreter's snapshot, the calls that the client was given for those that it makes,
    and the call that the model made of it. Of one that ended only that is left."""

    snapshot: bytes
    calls: dict[str, int]
    code: str
    call: Raw
    expires_at: float


class ProgramHost:
    """Where programs run, and where those that wait are kept."""

    def __init__(self, store: StateStore, keys: list[bytes], clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._keys = keys or [secrets.token_bytes(32)]
        self.sandbox = CodeSandbox(CODE_LIMITS)
        self.clock = clock

    def close(self) -> None:
        self.sandbox.close_sync()

    async def store_suspended(self, owner: str, id: str, program: SuspendedProgram) -> None:
        """Store a program that waits, before its client is told of it: the next request brings only results."""
        await self._store.put([self._row(owner, id, program)])

    def store_ended(self, owner: str, id: str, program: SuspendedProgram) -> None:
        """Store what is left of a program that ended: the call that began it, with its proof."""
        self._store.enqueue([self._row(owner, id, program)])

    def _row(self, owner: str, id: str, program: SuspendedProgram) -> Row:
        return Row(
            owner, PROGRAM_KIND, id, sign_snapshot(msgspec.json.encode(program), self._keys[0], f"{owner}\0{id}")
        )

    async def find(self, owner: str, ids: list[str]) -> dict[str, SuspendedProgram]:
        """Those programs that are still there, and ours."""
        rows = await self._store.get(owner, PROGRAM_KIND, ids)
        found = {id: self._unseal(sealed, f"{owner}\0{id}") for id, sealed in rows.items()}
        return {id: waits for id, waits in found.items() if waits is not None}

    def _unseal(self, sealed: bytes, purpose: str) -> SuspendedProgram | None:
        for key in self._keys:
            try:
                return msgspec.json.decode(verify_snapshot(sealed, key, purpose), type=SuspendedProgram)
            except InvalidSnapshot:
                continue
        return None


class ProgramRounds(ToolSearchRounds):
    """The events of several answers as those of one, with programs run between them."""

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
        return call.name in (
            self._program_plan.function_name,
            *self._program_plan.hidden_names,
        ) or super()._is_gateway_call(call)

    def _handle_call(self, call: ToolCall) -> list[Event]:
        if call.name == self._program_plan.function_name:
            self._code_calls.append(call)
            return []
        if call.name in self._program_plan.hidden_names:
            said = f"Denied: only code may call {call.name}. Call it inside {self._program_plan.function_name}."
            self._results.append(program_tool_result(call.id, said, is_error=True))
            return []
        return super()._handle_call(call)

    def _needs_next_round(self) -> bool:
        return bool(self._code_calls) or super()._needs_next_round()

    def _process_event(self, event: Event) -> list[Event]:
        told = super()._process_event(event)
        if isinstance(event, MessageStart) and self._first_parts:
            told += self._part_events(self._first_parts, self._message_offset)
            self._first_parts = []
        return told

    # ---- a program that waits

    async def prepare_first_round(self) -> Response | bytes | None:
        """Go on with the program that waits, if one does. An answer, if it waits again; else what is asked then."""
        await super().prepare_first_round()
        pending = self._program_plan.pending
        if not self._program_plan.program_ids:
            return None
        known = await self._host.find(self._owner, self._program_plan.program_ids)
        self._restore_calls({id: replace(_decode_call(one.call), id=id) for id, one in known.items()})
        if pending is None:
            return self.encode_request()
        waits = known.get(pending.id)
        if waits is None or not waits.snapshot or waits.expires_at < self._host.clock():
            self._first_parts = [self._program_dialect.encode_program_result(pending.id, None)]
            self._append_result(
                program_tool_result(
                    pending.id, "The program was not gone on with in time: it timed out.", is_error=True
                )
            )
            return self.encode_request()
        parts, output = await self._resume_program(pending, waits)
        self.has_effects = True
        if output is None:
            self._is_stopped = True
            return self._suspended_response(pending.id, parts)
        self._first_parts = parts
        self._append_result(program_tool_result(pending.id, output_text(output), is_error=output.is_error))
        return self.encode_request()

    def _suspended_response(self, id: str, parts: list[Part]) -> Response:
        """An answer that only has calls: no model was asked."""
        said = (Message(role="assistant", parts=tuple(parts)),)
        candidate = Candidate(messages=said, stop=Stop(reason="tool_use"), extras=self._container_extras(id))
        return Response(
            origin=self._upstream.name,
            id=f"tw_{secrets.token_hex(12)}",
            model=self._target.model,
            candidates=(candidate,),
            usage=Usage(input_tokens=0, output_tokens=0),
            created=int(self._host.clock()),
        )

    def _restore_calls(self, calls: dict[str | None, ToolCall]) -> None:
        """The calls as the model made them, with what proves them."""

        def restored(message: Message) -> Message:
            parts = [calls.get(one.id, one) if isinstance(one, ToolCall) else one for one in message.parts]
            return replace(message, parts=tuple(parts))

        self._request = replace(self._request, messages=tuple(map(restored, self._request.messages)))

    def _append_result(self, result: ToolResult) -> None:
        messages = (*self._request.messages, Message(role="user", parts=(result,)))
        self._request = replace(self._request, messages=messages)

    # ---- a program that the model just wrote

    async def finish_round(self) -> list[Event]:
        """Run what the model wrote. Of several programs only the first: the others may be called again."""
        told = await super().finish_round()
        if not self._code_calls:
            return told
        (first, *others), self._code_calls = self._code_calls, []
        self._results += [
            program_tool_result(call.id, "One program at a time: call it again.", is_error=True) for call in others
        ]
        id = self._program_dialect.new_program_id(secrets.token_hex(12))
        said = (decode_object(first.arguments.encode()) or {}).get("code")
        code = said if isinstance(said, str) else ""
        parts, output = await self._start_program(id, code, Raw(msgspec.json.encode(first)))
        told += self._message_events([self._program_dialect.encode_program_call(ProgramCall(id, code)), *parts])
        if output is not None:
            self._results.append(program_tool_result(first.id, output_text(output), is_error=output.is_error))
        if output is None or self._has_client_calls:
            self.paused, self._is_stopped = False, True
            extras = self._container_extras(id) if output is None else None
            told.append(CandidateEnd(stop=Stop(reason="tool_use"), extras=extras))
            told += [event for event in self._held_events if isinstance(event, ResponseEnd)]
        return told

    def _container_extras(self, id: str) -> Extras | None:
        until = datetime.fromtimestamp(self._host.clock() + _SUSPENSION_SECONDS, UTC)
        return self._program_dialect.container_extras(id, until.strftime("%Y-%m-%dT%H:%M:%SZ"))

    # ---- the sandbox

    async def _start_program(self, id: str, code: str, call: Raw) -> tuple[list[Part], ToolOutput | None]:
        try:
            return await self._run_program(id, SuspendedProgram(b"", {}, code, call, 0), {})
        except ToolError as fault:
            output = ToolOutput(content=(Text(text=str(fault)),), is_error=True, error_kind=fault.kind)
            return [self._program_dialect.encode_program_result(id, output)], output

    async def _resume_program(
        self, pending: PendingProgram, suspended: SuspendedProgram
    ) -> tuple[list[Part], ToolOutput | None]:
        answers = {host: _decode_call_result(pending.results.get(id)) for id, host in suspended.calls.items()}
        try:
            return await self._run_program(pending.id, suspended, answers)
        except ToolError as fault:
            # It still waits: the client may ask again.
            raise RequestRejected(ApiError(kind="overloaded", message=str(fault), status=529)) from None

    async def _run_program(
        self, id: str, suspended: SuspendedProgram, results: dict[int, HostCallOutcome]
    ) -> tuple[list[Part], ToolOutput | None]:
        """Run it until it waits for the client or ends: what the client is shown, and what came of it in the end."""
        tools = [runtime_tool(tool) for tool in self._program_plan.tools.values()]
        stubs = make_stubs(tools)
        functions = ProgramFunctions(stubs, make_helpers(stubs, tools))
        async with started(await self._host.sandbox.pool(), functions, CODE_LIMITS, suspended.code) as program:
            state = await (program.load(suspended.snapshot) if suspended.snapshot else program.start())
            if results and isinstance(state, ProgramWaiting):
                state = await program.resume(state, results)
            if isinstance(state, ProgramEnded):
                output = program_output(program.output, state, CODE_LIMITS)
                self._host.store_ended(self._owner, id, replace(suspended, snapshot=b"", calls={}))
                return [self._program_dialect.encode_program_result(id, output)], output
            made = {self._program_dialect.new_call_id(secrets.token_hex(12)): one for one in state.calls}
            kept = replace(
                suspended,
                snapshot=await program.dump(state),
                calls={name: one.id for name, one in made.items()},
                expires_at=self._host.clock() + _SUSPENSION_SECONDS,
            )
        await self._host.store_suspended(self._owner, id, kept)
        calls: list[Part] = [
            with_program_caller(
                self._program_dialect, id, self._client_call(name, one), self._program_plan.tools[one.tool]
            )
            for name, one in made.items()
        ]
        return calls, None

    def _client_call(self, id: str, host_call: HostCall) -> ToolCall:
        tool = self._program_plan.tools[host_call.tool]
        if isinstance(tool, FreeformTool):
            text = str(host_call.arguments)
            return ToolCall(id=id, name=tool.name, namespace=tool.namespace, arguments=text, shape="freeform")
        text = msgspec.json.encode(host_call.arguments).decode()
        return ToolCall(id=id, name=tool.name, namespace=tool.namespace, arguments=text)


def _decode_call_result(result: ToolResult | None) -> HostCallOutcome:
    """What the code gets: data where the text is data, else the text."""
    if result is None:
        return CallRaised("there is no result of this call")
    parts = [part for part in result.content or () if isinstance(part, Text | Data)]
    text = "\n".join(part.text if isinstance(part, Text) else bytes(part.json).decode() for part in parts)
    if result.status != "ok":
        return CallRaised(text or "the call failed")
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return CallReturned(text)
    return CallReturned(value if isinstance(value, dict | list) else text)
