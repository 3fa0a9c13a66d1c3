"""The loop: declare, request, validate, authorise, execute, continue, until there is an answer or a reason to stop.

A turn has two halves. `propose` asks the model, and says of every call that it wants whether it can and may be run;
`carry_out` has the undecided ones decided, runs what may run, and adds the results. Between the two nothing was
executed: whoever wants to decide or answer by hand does it there.

Each half is made of named steps, written down before their effect is relied on. A run that is taken up again goes
through the same steps and finds what they came to: so it needs no other memory than them.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.canonical.content import Message, Text, ToolCall
from toolwire.canonical.fold import Folder
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, StopReason
from toolwire.canonical.tools import Sampling, Thinking, ToolChoice
from toolwire.canonical.tools import Tool as Declared
from toolwire.canonical.usage import added, plain, spent
from toolwire.journal.runs import decode_entry
from toolwire.journal.secrets import Redactor

from .approval import Nobody, Person
from .caps import Caps, OutOfTime, within
from .consider import consider, reconsider
from .deciding import Deciding, wait_or_deny
from .definitions import Definitions
from .estimates import estimated_usage
from .events import (
    CallProposed,
    RunEnded,
    RunEvent,
    RunStarted,
    StoppedBy,
    TurnEnded,
    TurnStarted,
    Warned,
)
from .execute import Executor, Outcome
from .expanding import expanded
from .model import Model, ModelFailed
from .policy import Policy
from .sandbox.code.keeping import coding_sandbox
from .search.deferred import Deferred, denies
from .state import Origin, Pending, State, identified
from .steps import Steps
from .telling import Telling, retold
from .toolbox import Toolbox
from .toolset import Arguments, Catalog, Output
from .trimming import trimmed

if TYPE_CHECKING:
    from .sandbox.code.tool import Sandbox

_CUT: dict[StopReason, tuple[StoppedBy, str]] = {
    "max_tokens": ("length", "the model reached the length that it may answer"),
    "context_window": ("length", "the conversation is longer than the model can read"),
    "filtered": ("filtered", "the provider withheld the answer"),
    "refusal": ("refused", "the model refused"),
    "malformed_call": ("failed", "the model wrote a call that its provider could not read"),
    "cancelled": ("failed", "the provider cancelled the answer"),
    "error": ("failed", "the answer ended with an error"),
}
"""After these nothing is run, whatever else the answer holds."""

_GOES_ON = frozenset({"paused", "continuation"})
_LONGEST_CYCLE = 8
"""As many turns as may make up a cycle that is seen."""


class Settings(Struct, frozen=True, kw_only=True):
    """How an agent works: the same for all its runs. `search` says which tools are behind one; `code`: the model may
    write programs that call tools."""

    instructions: str = ""
    policy: Policy = Policy()
    caps: Caps = Caps()
    parallel: bool = True
    repair: bool = False
    thinking: Thinking | None = None
    sampling: Sampling | None = None
    redactor: Redactor = field(default_factory=lambda: Redactor(()))
    search: Deferred = field(default_factory=Deferred)
    code: bool = False


class Loop:
    """One run."""

    def __init__(
        self,
        model: Model,
        toolbox: Toolbox,
        settings: Settings,
        steps: Steps,
        person: Person | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._toolbox = toolbox
        self._settings = settings
        self._steps = steps
        self._person = person or Nobody()
        self._clock = clock
        self._catalog = Catalog({})
        self._declared: tuple[Declared, ...] = ()
        self._sandbox: Sandbox | None = None
        self._deciding = Deciding(steps, self._person)
        self._definitions = Definitions(steps)

    async def events(self, state: State, *, resumed: bool = False) -> AsyncIterator[RunEvent]:
        """The whole run, from where it stands."""
        yield RunStarted(run=state.run, model=self._model.name, resumed=resumed)
        state.began = self._clock()
        try:
            while state.stopped is None:
                if not state.pending:
                    async for event in self.propose(state):
                        yield event
                if state.pending and state.stopped is None:
                    async for event in self.carry_out(state):
                        yield event
        except ModelFailed as failed:
            state.stopped, state.why = "failed", str(failed)
        except asyncio.CancelledError:
            state.stopped, state.why = "cancelled", "somebody stopped it"
            raise
        yield ended(state)

    # ---- the first half

    async def propose(self, state: State) -> AsyncIterator[RunEvent]:
        if (reached := self._cap(state)) is not None:
            state.stopped, state.why = reached
            return
        state.turn += 1
        await self._declare(state)
        for warning in (*self._toolbox.warned(), *self._definitions.warned()):
            yield Warned(text=warning)
        folder, name = Folder(), f"turn/{state.turn}"
        known = _answered(self._steps.outcome(name), name)
        yield TurnStarted(turn=state.turn, recorded=known is not None)
        if known is not None:
            response = known
            for told in retold(response):
                yield told
        else:
            self._steps.begin(name, b"")
            telling = Telling()
            request, left_out = self._request(state)
            if left_out:
                yield Warned(text=f"the {left_out} oldest messages are left out: the conversation is too long")
            try:
                async for event in within(lambda: self._left(state), self._model.ask(request)):
                    folder.add(event)
                    if (grown := telling.take(event)) is not None:
                        yield grown
            except OutOfTime:
                state.stopped, state.why = self._over()
                return
            response = folder.response()
            if not spent(response.usage):
                response = replace(response, usage=estimated_usage(request, response))
            self._steps.finish(name, msgspec.json.encode(response))
        reason = _reason(response)
        state.origin = Origin(response.id or "", self._model.name, response.model or "")
        yield TurnEnded(
            turn=state.turn,
            stop=reason,
            usage=plain(response.usage),
            response=response.id or "",
            model=response.model or "",
        )
        for proposed in self._take(state, response, reason):
            yield proposed
        if (repeated := self._count_repeats(state)) is not None and known is None:
            # Who takes such a run up again knows of it, and wants it to go on.
            state.stopped, state.why = "repetition", repeated

    async def _declare(self, state: State) -> None:
        """What there is to call, and what of it the model is told."""
        catalog = await self._toolbox.catalog()
        self._definitions.compare(catalog.tools.values())
        policy = self._settings.policy.extended(*state.rules)
        if self._settings.code:
            if self._sandbox is None:
                self._sandbox = coding_sandbox(self._steps)
            # Code, too, is told of nothing that it may never call.
            code = self._sandbox.tool([tool for tool in catalog.tools.values() if not denies(policy, tool)])
            catalog = replace(catalog, tools={**catalog.tools, code.name: code})
        native = getattr(self._model, "search", None)
        arranged = self._settings.search.arrange(catalog, policy, state.messages, native)
        self._catalog, self._declared = replace(catalog, tools=arranged.tools), arranged.declared

    async def close(self) -> None:
        if self._sandbox is not None:
            await self._sandbox.close()

    def _request(self, state: State) -> tuple[Request, int]:
        """What the model is asked, and how many messages of the conversation are not in it."""
        settings = self._settings
        messages, left_out = state.messages, 0
        if settings.caps.history is not None:
            messages, left_out = trimmed(messages, settings.caps.history)
        request = Request(
            origin="",
            model=self._model.name,
            messages=messages,
            system=(Text(text=settings.instructions),) if settings.instructions else None,
            tools=self._declared or None,
            tool_choice=None if settings.parallel or not self._declared else ToolChoice(parallel=False),
            thinking=settings.thinking,
            sampling=settings.sampling,
            stream=True,
            include_usage=True,
        )
        return request, left_out

    def _take(self, state: State, response: Response, reason: StopReason) -> Iterator[RunEvent]:
        """What the answer says: its calls wait, or the run has stopped."""
        said = response.candidates[0].messages if response.candidates else ()
        said = expanded(tuple(replace(message, at=None) for message in said), self._catalog.tools)
        state.messages += said
        state.usage = added(state.usage, plain(response.usage))
        state.text = "".join(part.text for message in said for part in message.parts if isinstance(part, Text))
        calls = [part for message in said for part in message.parts if isinstance(part, ToolCall)]
        if response.error is not None:
            raise ModelFailed(response.error)
        if reason in _CUT:
            state.stopped, state.why = _CUT[reason]
            return
        policy = self._settings.policy.extended(*state.rules)
        for id, call in identified(state.turn, [call for call in calls if call.executor == "client"]):
            pending = consider(call, id, self._catalog, policy, repair=self._settings.repair)
            state.pending.append(pending)
            yield _proposed(pending)
        if not state.pending and reason not in _GOES_ON:
            state.stopped = "finished"
        state.calls += len(state.pending)

    def _count_repeats(self, state: State) -> str | None:
        """Note the calls of this turn, and say which turns came too often in a row: one, or several by turns."""
        if not state.pending:
            return None
        calls = sorted({(pending.call.name, pending.call.arguments) for pending in state.pending})
        times = self._settings.caps.repeats + 1
        state.recent = (*state.recent, hashlib.sha256(msgspec.json.encode(calls)).digest())[-_LONGEST_CYCLE * times :]
        for length in range(1, _LONGEST_CYCLE + 1):
            last = state.recent[-length * times :]
            if len(last) == length * times and last[length:] == last[:-length]:
                names = ", ".join(sorted({name for name, _ in calls}))
                same = "was called with the same arguments" if length == 1 else f"came back in the same {length} turns"
                return f"{names} {same} {times} times in a row"
        return None

    def _cap(self, state: State) -> tuple[StoppedBy, str] | None:
        caps = self._settings.caps
        if state.turn >= caps.turns:
            return "steps", f"{caps.turns} turns were taken"
        if self._left(state) == 0.0:
            return self._over()
        if caps.tokens is not None and spent(state.usage) >= caps.tokens:
            about = " (estimated)" if state.usage is not None and state.usage.estimated else ""
            return "tokens", f"{spent(state.usage)} of {caps.tokens} tokens were used{about}"
        return None

    def _left(self, state: State) -> float | None:
        seconds = self._settings.caps.seconds
        return None if seconds is None else max(0.0, state.began + seconds - self._clock())

    def _over(self) -> tuple[StoppedBy, str]:
        return "time", f"{self._settings.caps.seconds:g} seconds have passed"

    # ---- the second half

    async def carry_out(self, state: State) -> AsyncIterator[RunEvent]:
        for pending in state.pending:
            if pending.edited and pending.tool is not None:
                reconsider(pending, pending.tool, self._settings.policy.extended(*state.rules))
            if pending.undecided:
                await self._deciding.decide(state, pending)
        if waiting := [pending.call.name for pending in state.pending if pending.undecided]:
            state.stopped, state.why = "waiting", f"{waiting[0]} waits for an approval"
            return
        self._deciding.recall(state)
        told: asyncio.Queue[RunEvent | None] = asyncio.Queue()
        executor = self._executor(state, told.put_nowait)
        batch = asyncio.ensure_future(self._batch(executor, state))
        batch.add_done_callback(lambda _: told.put_nowait(None))
        try:
            while (event := await told.get()) is not None:
                yield event
        finally:
            if not batch.done():
                batch.cancel()
                await asyncio.wait([batch])
        results = batch.result()
        if results is None:
            state.stopped, state.why = self._over()
            return
        outcomes = [outcome for outcome in results if outcome is not None]
        if len(outcomes) < len(results):
            name = state.pending[results.index(None)].call.name
            state.stopped, state.why = "waiting", f"a call that {name} makes waits for an approval"
            return
        state.messages += (Message(role="user", parts=tuple(outcome.result for outcome in outcomes)),)
        for outcome in outcomes:
            state.usage = added(state.usage, outcome.usage)
        state.pending = []

    async def _batch(self, executor: Executor, state: State) -> list[Outcome | None] | None:
        """What the calls came to; None if the time of the run was over first."""
        try:
            async with asyncio.timeout(self._left(state)):
                if self._settings.parallel:
                    return await executor.carry_out(str(state.turn), state.pending)
                return [await executor.of_model(str(state.turn), pending) for pending in state.pending]
        except TimeoutError:
            return None

    def _executor(self, state: State, tell: Callable[[RunEvent], None]) -> Executor:
        settings = self._settings
        counts: dict[str, int] = {}

        async def inner(outer: Pending, name: str, arguments: Arguments, number: str | None) -> Output:
            """A tool calls a tool: under the same rules as the model."""
            counts[outer.id] = counts.get(outer.id, 0) + 1
            id = f"{outer.id}/{number or counts[outer.id]}"
            text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
            call = ToolCall(id=id, name=name, arguments=text)
            # Without the rules of this run, which came later than what was decided on this call, if it was.
            pending = consider(call, id, self._catalog, settings.policy, caller="code")
            tell(_proposed(pending))
            if pending.undecided:
                await self._deciding.decide(state, pending)
            if pending.undecided:
                wait_or_deny(state, outer, pending)
            outcome = await executor.one(str(state.turn), pending)
            executor.charge(outer, outcome.usage)
            return Output(
                content=outcome.result.content or (),
                is_error=outcome.result.status != "ok",
                kind=outcome.record.error,
                structured=outcome.structured,
            )

        cap = settings.caps.tokens
        executor = Executor(
            run=state.run,
            steps=self._steps,
            person=self._person,
            parallel=settings.caps.parallel,
            redactor=settings.redactor,
            tell=tell,
            inner=inner,
            recent=self._toolbox.recent,
            apart=self._toolbox.apart,
            tokens=None if cap is None else max(0, cap - spent(state.usage)),
            origin=state.origin,
        )
        return executor


def ended(state: State) -> RunEnded:
    return RunEnded(
        run=state.run,
        stopped=state.stopped or "finished",
        why=state.why,
        text=state.text,
        usage=state.usage,
        turns=state.turn,
        calls=state.calls,
    )


def _answered(known: bytes | None, name: str) -> Response | None:
    """A turn that was recorded, unless it failed: that is asked for again."""
    response = None if known is None else decode_entry(known, Response, f"the step {name}")
    if response is None or response.error is not None or _CUT.get(_reason(response), ("",))[0] == "failed":
        return None
    return response


def _reason(response: Response) -> StopReason:
    stop = response.candidates[0].stop if response.candidates else None
    return "other" if stop is None else stop.reason


def _proposed(pending: Pending) -> CallProposed:
    call = pending.call
    if pending.refused:
        return CallProposed(call_id=pending.id, tool=call.name, arguments=call.arguments, refused=pending.refused)
    return CallProposed(
        call_id=pending.id, tool=call.name, arguments=call.arguments, verdict=pending.verdict, by=pending.by
    )
