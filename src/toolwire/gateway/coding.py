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
from toolwire.canonical.events import Event, MessageStart, ResponseEnd, Stopped
from toolwire.canonical.node import Extras
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response, Stop, Usage
from toolwire.canonical.tools import FreeformTool
from toolwire.codec.interface import Undo
from toolwire.runtime.sandbox.code.program import Answer, Ended, Functions, Gave, HostCall, Raised, Waiting
from toolwire.runtime.sandbox.code.program import prepared as started
from toolwire.runtime.sandbox.code.sealing import SnapshotRefused, seal, unseal
from toolwire.runtime.sandbox.code.stubs import stubs_of
from toolwire.runtime.sandbox.code.tool import Sandbox, helpers_for, outcome_of
from toolwire.runtime.toolset import Output, ToolFault

from .dialects import DIALECTS, Begun, inner_call, text_of
from .inner import Crossing, Offer
from .programs import LIMITS, Pending, Prepared, outcome, runnable
from .refusal import Refused
from .searching import Emulated, Searching, object_of
from .state.store import Row, Store

KIND = "program"
_PATIENCE = 270.0  # seconds: as long as Anthropic keeps a container
_DECODE = msgspec.json.Decoder(ToolCall).decode
_NO_SEARCH = Emulated(Request(origin=""), [], "", "", {}, {})


class Waits(Struct):
    """A program that waits: the interpreter's snapshot, the calls that the client was given for those that it makes,
    and the call that the model made of it. Of one that ended only that is left."""

    dumped: bytes
    calls: dict[str, int]
    code: str
    call: Raw
    until: float


class Desk:
    """Where programs run, and where those that wait are kept."""

    def __init__(self, store: Store, keys: list[bytes], clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._keys = keys or [secrets.token_bytes(32)]
        self.sandbox = Sandbox(LIMITS)
        self.clock = clock

    def close(self) -> None:
        self.sandbox.end()

    async def keep(self, owner: str, id: str, waits: Waits) -> None:
        """Store a program that waits, before its client is told of it: the next request brings only results."""
        await self._store.put([self._row(owner, id, waits)])

    def note(self, owner: str, id: str, waits: Waits) -> None:
        """Store what is left of a program that ended: the call that began it, with its proof."""
        self._store.keep([self._row(owner, id, waits)])

    def _row(self, owner: str, id: str, waits: Waits) -> Row:
        return Row(owner, KIND, id, seal(msgspec.json.encode(waits), self._keys[0], f"{owner}\0{id}"))

    async def find(self, owner: str, ids: list[str]) -> dict[str, Waits]:
        """Those programs that are still there, and ours."""
        rows = await self._store.get(owner, KIND, ids)
        found = {id: self._opened(sealed, f"{owner}\0{id}") for id, sealed in rows.items()}
        return {id: waits for id, waits in found.items() if waits is not None}

    def _opened(self, sealed: bytes, purpose: str) -> Waits | None:
        for key in self._keys:
            try:
                return msgspec.json.decode(unseal(sealed, key, purpose), type=Waits)
            except SnapshotRefused:
                continue
        return None


class Coding(Searching):
    """The events of several answers as those of one, with programs run between them."""

    def __init__(
        self,
        plan: Prepared,
        search: Emulated | None,
        crossing: Crossing,
        undo: Undo,
        *,
        desk: Desk,
        owner: str,
        offer: Offer | None = None,
    ) -> None:
        super().__init__(search or _NO_SEARCH, crossing, undo, offer)
        self._plan = plan
        self._shows = DIALECTS[crossing.client.name]
        self._desk = desk
        self._owner = owner
        self._request = plan.request
        self._code: list[ToolCall] = []
        self._first: list[Part] = []

    def _is_ours(self, call: ToolCall) -> bool:
        return call.name in (self._plan.function, *self._plan.hidden) or super()._is_ours(call)

    def _called(self, call: ToolCall) -> list[Event]:
        if call.name == self._plan.function:
            self._code.append(call)
            return []
        if call.name in self._plan.hidden:
            said = f"Denied: only code may call {call.name}. Call it inside {self._plan.function}."
            self._results.append(outcome(call.id, said, failed=True))
            return []
        return super()._called(call)

    def _goes_on(self) -> bool:
        return bool(self._code) or super()._goes_on()

    def _told_all(self, event: Event) -> list[Event]:
        told = super()._told_all(event)
        if isinstance(event, MessageStart) and self._first:
            told += self._shown(self._first, self._messages)
            self._first = []
        return told

    # ---- a program that waits

    async def open(self) -> Response | bytes | None:
        """Go on with the program that waits, if one does. An answer, if it waits again; else what is asked then."""
        await super().open()
        pending = self._plan.pending
        if not self._plan.programs:
            return None
        known = await self._desk.find(self._owner, self._plan.programs)
        self._restore({id: replace(_DECODE(one.call), id=id) for id, one in known.items()})
        if pending is None:
            return self.encoded()
        waits = known.get(pending.id)
        if waits is None or not waits.dumped or waits.until < self._desk.clock():
            self._first = [self._shows.show_finished(pending.id, None)]
            self._answer(outcome(pending.id, "The program was not gone on with in time: it timed out.", failed=True))
            return self.encoded()
        parts, output = await self._resumed(pending, waits)
        self.acted = True
        if output is None:
            self._given_up = True
            return self._waiting(pending.id, parts)
        self._first = parts
        self._answer(outcome(pending.id, text_of(output), failed=output.is_error))
        return self.encoded()

    def _waiting(self, id: str, parts: list[Part]) -> Response:
        """An answer that only has calls: no model was asked."""
        said = (Message(role="assistant", parts=tuple(parts)),)
        candidate = Candidate(messages=said, stop=Stop(reason="tool_use"), extras=self._held_by(id))
        return Response(
            origin=self._upstream.name,
            id=f"tw_{secrets.token_hex(12)}",
            model=self._target.model,
            candidates=(candidate,),
            usage=Usage(input_tokens=0, output_tokens=0),
            created=int(self._desk.clock()),
        )

    def _restore(self, calls: dict[str | None, ToolCall]) -> None:
        """The calls as the model made them, with what proves them."""

        def restored(message: Message) -> Message:
            parts = [calls.get(one.id, one) if isinstance(one, ToolCall) else one for one in message.parts]
            return replace(message, parts=tuple(parts))

        self._request = replace(self._request, messages=tuple(map(restored, self._request.messages)))

    def _answer(self, result: ToolResult) -> None:
        messages = (*self._request.messages, Message(role="user", parts=(result,)))
        self._request = replace(self._request, messages=messages)

    # ---- a program that the model just wrote

    async def settle(self) -> list[Event]:
        """Run what the model wrote. Of several programs only the first: the others may be called again."""
        told = await super().settle()
        if not self._code:
            return told
        (first, *others), self._code = self._code, []
        self._results += [outcome(call.id, "One program at a time: call it again.", failed=True) for call in others]
        id = self._shows.new_id(secrets.token_hex(12))
        said = (object_of(first.arguments.encode()) or {}).get("code")
        code = said if isinstance(said, str) else ""
        parts, output = await self._started(id, code, Raw(msgspec.json.encode(first)))
        told += self._in_message([self._shows.show_begun(Begun(id, code)), *parts])
        if output is not None:
            self._results.append(outcome(first.id, text_of(output), failed=output.is_error))
        if output is None or self._others:
            self.paused, self._given_up = False, True
            extras = self._held_by(id) if output is None else None
            told.append(Stopped(stop=Stop(reason="tool_use"), extras=extras))
            told += [event for event in self._held if isinstance(event, ResponseEnd)]
        return told

    def _held_by(self, id: str) -> Extras | None:
        until = datetime.fromtimestamp(self._desk.clock() + _PATIENCE, UTC)
        return self._shows.held(id, until.strftime("%Y-%m-%dT%H:%M:%SZ"))

    # ---- the sandbox

    async def _started(self, id: str, code: str, call: Raw) -> tuple[list[Part], Output | None]:
        try:
            return await self._run(id, Waits(b"", {}, code, call, 0), {})
        except ToolFault as fault:
            output = Output(content=(Text(text=str(fault)),), is_error=True, kind=fault.kind)
            return [self._shows.show_finished(id, output)], output

    async def _resumed(self, pending: Pending, waits: Waits) -> tuple[list[Part], Output | None]:
        answers = {host: _answer_of(pending.results.get(id)) for id, host in waits.calls.items()}
        try:
            return await self._run(pending.id, waits, answers)
        except ToolFault as fault:
            # It still waits: the client may ask again.
            raise Refused(ApiError(kind="overloaded", message=str(fault), status=529)) from None

    async def _run(self, id: str, waits: Waits, answers: dict[int, Answer]) -> tuple[list[Part], Output | None]:
        """Run it until it waits for the client or ends: what the client is shown, and what came of it in the end."""
        tools = [runnable(tool) for tool in self._plan.tools.values()]
        stubs = stubs_of(tools)
        functions = Functions(stubs, helpers_for(stubs, tools))
        async with started(await self._desk.sandbox.pool(), functions, LIMITS, waits.code) as program:
            state = await (program.load(waits.dumped) if waits.dumped else program.start())
            if answers and isinstance(state, Waiting):
                state = await program.resume(state, answers)
            if isinstance(state, Ended):
                output = outcome_of(program.printed, state, LIMITS)
                self._desk.note(self._owner, id, replace(waits, dumped=b"", calls={}))
                return [self._shows.show_finished(id, output)], output
            made = {self._shows.call_id(secrets.token_hex(12)): one for one in state.calls}
            kept = replace(
                waits,
                dumped=await program.dump(state),
                calls={name: one.id for name, one in made.items()},
                until=self._desk.clock() + _PATIENCE,
            )
        await self._desk.keep(self._owner, id, kept)
        calls: list[Part] = [
            inner_call(self._shows, id, self._call(name, one), self._plan.tools[one.tool]) for name, one in made.items()
        ]
        return calls, None

    def _call(self, id: str, made: HostCall) -> ToolCall:
        tool = self._plan.tools[made.tool]
        if isinstance(tool, FreeformTool):
            text = str(made.arguments)
            return ToolCall(id=id, name=tool.name, namespace=tool.namespace, arguments=text, shape="freeform")
        text = msgspec.json.encode(made.arguments).decode()
        return ToolCall(id=id, name=tool.name, namespace=tool.namespace, arguments=text)


def _answer_of(result: ToolResult | None) -> Answer:
    """What the code gets: data where the text is data, else the text."""
    if result is None:
        return Raised("there is no result of this call")
    parts = [part for part in result.content or () if isinstance(part, Text | Data)]
    text = "\n".join(part.text if isinstance(part, Text) else bytes(part.json).decode() for part in parts)
    if result.status != "ok":
        return Raised(text or "the call failed")
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return Gave(text)
    return Gave(value if isinstance(value, dict | list) else text)
