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
from toolwire.canonical.fold import ResponseAccumulator
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, StopReason, add_usage, tokens_used, usage_counts
from toolwire.canonical.tools import Sampling, Thinking, ToolChoice
from toolwire.canonical.tools import Tool as Declared
from toolwire.journal.redaction import Redactor
from toolwire.journal.runs import decode_stored
from toolwire.runtime.calls.admission import ApprovalGate, admit_call, apply_policy, defer_or_deny
from toolwire.runtime.calls.approval import Approver, NoApprover
from toolwire.runtime.calls.batched_calls import unwrap_batched_calls
from toolwire.runtime.calls.executor import CallOutcome, Executor
from toolwire.runtime.model import Model, ModelFailed
from toolwire.runtime.policy import Policy
from toolwire.runtime.run.events import (
    CallProposed,
    RunEnded,
    RunEvent,
    RunStarted,
    RunWarning,
    StopCause,
    TextEventMapper,
    TurnEnded,
    TurnStarted,
    text_events,
)
from toolwire.runtime.run.history import UsageEstimator, trim_history
from toolwire.runtime.run.limits import RunLimits, RunTimeout, with_deadline
from toolwire.runtime.run.state import PendingCall, ResponseIdentity, RunState, with_unique_ids
from toolwire.runtime.run.step_log import StepLog, ToolDefinitions
from toolwire.runtime.sandbox.code.durable import durable_sandbox
from toolwire.runtime.search.deferred_tools import DeferredTools, is_denied
from toolwire.runtime.tool import Arguments, ToolCatalog, ToolOutput
from toolwire.runtime.toolbox import Toolbox

if TYPE_CHECKING:
    from toolwire.runtime.sandbox.code.tool import CodeSandbox

_INCOMPLETE_STOPS: dict[StopReason, tuple[StopCause, str]] = {
    "max_tokens": ("length", "the model reached the length that it may answer"),
    "context_window": ("length", "the conversation is longer than the model can read"),
    "filtered": ("filtered", "the provider withheld the answer"),
    "refusal": ("refused", "the model refused"),
    "malformed_call": ("failed", "the model wrote a call that its provider could not read"),
    "cancelled": ("failed", "the provider cancelled the answer"),
    "error": ("failed", "the answer ended with an error"),
}
"""After these nothing is run, whatever else the answer holds."""

_CONTINUING_STOPS = frozenset({"paused", "continuation"})
_MAX_CYCLE_LENGTH = 8
"""As many turns as may make up a cycle that is seen."""


class RunSettings(Struct, frozen=True, kw_only=True):
    """How an agent works: the same for all its runs. `search` says which tools are behind one; `code`: the model may
    write programs that call tools."""

    instructions: str = ""
    policy: Policy = Policy()
    limits: RunLimits = RunLimits()
    parallel: bool = True
    repair: bool = False
    thinking: Thinking | None = None
    sampling: Sampling | None = None
    redactor: Redactor = field(default_factory=lambda: Redactor(()))
    deferred_tools: DeferredTools = field(default_factory=DeferredTools)
    code: bool = False


class Loop:
    """One run."""

    def __init__(
        self,
        model: Model,
        toolbox: Toolbox,
        settings: RunSettings,
        step_log: StepLog,
        approver: Approver | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._toolbox = toolbox
        self._settings = settings
        self._step_log = step_log
        self._approver = approver or NoApprover()
        self._clock = clock
        self._catalog = ToolCatalog({})
        self._declarations: tuple[Declared, ...] = ()
        self._sandbox: CodeSandbox | None = None
        self._approval_gate = ApprovalGate(step_log, self._approver)
        self._tool_definitions = ToolDefinitions(step_log)
        self._usage_estimator = UsageEstimator()

    async def events(self, state: RunState, *, resumed: bool = False) -> AsyncIterator[RunEvent]:
        """The whole run, from where it stands."""
        yield RunStarted(run=state.run, model=self._model.name, resumed=resumed)
        state.started_at = self._clock()
        try:
            while state.stopped is None:
                if not state.pending:
                    async for event in self.request_turn(state):
                        yield event
                if state.pending and state.stopped is None:
                    async for event in self.execute_turn(state):
                        yield event
        except ModelFailed as failed:
            state.stopped, state.reason = "failed", str(failed)
        except asyncio.CancelledError:
            state.stopped, state.reason = "cancelled", "somebody stopped it"
            raise
        yield run_ended(state)

    # ---- the first half

    async def request_turn(self, state: RunState) -> AsyncIterator[RunEvent]:
        if (reached := self._limit_reached(state)) is not None:
            state.stopped, state.reason = reached
            return
        state.turn += 1
        await self._declare_tools(state)
        for warning in (*self._toolbox.take_warnings(), *self._tool_definitions.take_warnings()):
            yield RunWarning(text=warning)
        folder, name = ResponseAccumulator(), f"turn/{state.turn}"
        known = _recorded_response(self._step_log.outcome(name), name)
        yield TurnStarted(turn=state.turn, recorded=known is not None)
        if known is not None:
            response = known
            for told in text_events(response):
                yield told
        else:
            self._step_log.begin(name, b"")
            telling = TextEventMapper()
            request, left_out = self._build_request(state)
            if left_out:
                yield RunWarning(text=f"the {left_out} oldest messages are left out: the conversation is too long")
            try:
                async for event in with_deadline(lambda: self._remaining_seconds(state), self._model.stream(request)):
                    folder.add(event)
                    if (grown := telling.map_event(event)) is not None:
                        yield grown
            except RunTimeout:
                state.stopped, state.reason = self._time_limit()
                return
            response = folder.response()
            if not tokens_used(response.usage):
                response = replace(response, usage=self._usage_estimator.estimate(request, response))
            self._step_log.finish(name, msgspec.json.encode(response))
        reason = _stop_reason(response)
        state.last_response = ResponseIdentity(response.id or "", self._model.name, response.model or "")
        yield TurnEnded(
            turn=state.turn,
            stop=reason,
            usage=usage_counts(response.usage),
            response=response.id or "",
            model=response.model or "",
        )
        for proposed in self._apply_response(state, response, reason):
            yield proposed
        if (repeated := self._detect_repetition(state)) is not None and known is None:
            # Who takes such a run up again knows of it, and wants it to go on.
            state.stopped, state.reason = "repetition", repeated

    async def _declare_tools(self, state: RunState) -> None:
        """What there is to call, and what of it the model is told."""
        catalog = await self._toolbox.catalog()
        self._tool_definitions.check_changes(catalog.tools.values())
        policy = self._settings.policy.with_rules(*state.rules)
        if self._settings.code:
            if self._sandbox is None:
                self._sandbox = durable_sandbox(self._step_log)
            # Code, too, is told of nothing that it may never call.
            code = self._sandbox.tool([tool for tool in catalog.tools.values() if not is_denied(policy, tool)])
            catalog = replace(catalog, tools={**catalog.tools, code.name: code})
        native = getattr(self._model, "search", None)
        arranged = self._settings.deferred_tools.select(catalog, policy, state.messages, native)
        self._catalog, self._declarations = replace(catalog, tools=arranged.tools), arranged.declarations

    async def close(self) -> None:
        if self._sandbox is not None:
            await self._sandbox.close()

    def _build_request(self, state: RunState) -> tuple[Request, int]:
        """What the model is asked, and how many messages of the conversation are not in it."""
        settings = self._settings
        messages, left_out = state.messages, 0
        if settings.limits.history is not None:
            messages, left_out = trim_history(messages, settings.limits.history)
        request = Request(
            origin="",
            model=self._model.name,
            messages=messages,
            system=(Text(text=settings.instructions),) if settings.instructions else None,
            tools=self._declarations or None,
            tool_choice=None if settings.parallel or not self._declarations else ToolChoice(parallel=False),
            thinking=settings.thinking,
            sampling=settings.sampling,
            stream=True,
            include_usage=True,
        )
        return request, left_out

    def _apply_response(self, state: RunState, response: Response, reason: StopReason) -> Iterator[RunEvent]:
        """What the answer says: its calls wait, or the run has stopped."""
        said = response.candidates[0].messages if response.candidates else ()
        said = unwrap_batched_calls(tuple(replace(message, at=None) for message in said), self._catalog.tools)
        state.messages += said
        state.usage = add_usage(state.usage, usage_counts(response.usage))
        state.text = "".join(part.text for message in said for part in message.parts if isinstance(part, Text))
        calls = [part for message in said for part in message.parts if isinstance(part, ToolCall)]
        if response.error is not None:
            raise ModelFailed(response.error)
        if reason in _INCOMPLETE_STOPS:
            state.stopped, state.reason = _INCOMPLETE_STOPS[reason]
            return
        policy = self._settings.policy.with_rules(*state.rules)
        for id, call in with_unique_ids(state.turn, [call for call in calls if call.executor == "client"]):
            pending = admit_call(call, id, self._catalog, policy, repair=self._settings.repair)
            state.pending.append(pending)
            yield _proposed_event(pending)
        if not state.pending and reason not in _CONTINUING_STOPS:
            state.stopped = "finished"
        state.call_count += len(state.pending)

    def _detect_repetition(self, state: RunState) -> str | None:
        """Note the calls of this turn, and say which turns came too often in a row: one, or several by turns."""
        if not state.pending:
            return None
        calls = sorted({(pending.call.name, pending.call.arguments) for pending in state.pending})
        times = self._settings.limits.repeats + 1
        state.recent_call_digests = (*state.recent_call_digests, hashlib.sha256(msgspec.json.encode(calls)).digest())[
            -_MAX_CYCLE_LENGTH * times :
        ]
        for length in range(1, _MAX_CYCLE_LENGTH + 1):
            last = state.recent_call_digests[-length * times :]
            if len(last) == length * times and last[length:] == last[:-length]:
                names = ", ".join(sorted({name for name, _ in calls}))
                same = "was called with the same arguments" if length == 1 else f"came back in the same {length} turns"
                return f"{names} {same} {times} times in a row"
        return None

    def _limit_reached(self, state: RunState) -> tuple[StopCause, str] | None:
        caps = self._settings.limits
        if state.turn >= caps.turns:
            return "steps", f"{caps.turns} turns were taken"
        if self._remaining_seconds(state) == 0.0:
            return self._time_limit()
        if caps.tokens is not None and tokens_used(state.usage) >= caps.tokens:
            about = " (estimated)" if state.usage is not None and state.usage.estimated else ""
            return "tokens", f"{tokens_used(state.usage)} of {caps.tokens} tokens were used{about}"
        return None

    def _remaining_seconds(self, state: RunState) -> float | None:
        seconds = self._settings.limits.seconds
        return None if seconds is None else max(0.0, state.started_at + seconds - self._clock())

    def _time_limit(self) -> tuple[StopCause, str]:
        return "time", f"{self._settings.limits.seconds:g} seconds have passed"

    # ---- the second half

    async def execute_turn(self, state: RunState) -> AsyncIterator[RunEvent]:
        for pending in state.pending:
            if pending.edited and pending.tool is not None:
                apply_policy(pending, pending.tool, self._settings.policy.with_rules(*state.rules))
            if pending.needs_approval:
                await self._approval_gate.resolve(state, pending)
        if waiting := [pending.call.name for pending in state.pending if pending.needs_approval]:
            state.stopped, state.reason = "waiting", f"{waiting[0]} waits for an approval"
            return
        self._approval_gate.restore_rules(state)
        told: asyncio.Queue[RunEvent | None] = asyncio.Queue()
        executor = self._build_executor(state, told.put_nowait)
        batch = asyncio.ensure_future(self._execute_batch(executor, state))
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
            state.stopped, state.reason = self._time_limit()
            return
        outcomes = [outcome for outcome in results if outcome is not None]
        if len(outcomes) < len(results):
            name = state.pending[results.index(None)].call.name
            state.stopped, state.reason = "waiting", f"a call that {name} makes waits for an approval"
            return
        state.messages += (Message(role="user", parts=tuple(outcome.result for outcome in outcomes)),)
        for outcome in outcomes:
            state.usage = add_usage(state.usage, outcome.usage)
        state.pending = []

    async def _execute_batch(self, executor: Executor, state: RunState) -> list[CallOutcome | None] | None:
        """What the calls came to; None if the time of the run was over first."""
        try:
            async with asyncio.timeout(self._remaining_seconds(state)):
                if self._settings.parallel:
                    return await executor.execute_batch(str(state.turn), state.pending)
                return [await executor.execute_model_call(str(state.turn), pending) for pending in state.pending]
        except TimeoutError:
            return None

    def _build_executor(self, state: RunState, on_event: Callable[[RunEvent], None]) -> Executor:
        settings = self._settings
        counts: dict[str, int] = {}

        async def inner(outer: PendingCall, name: str, arguments: Arguments, number: str | None) -> ToolOutput:
            """A tool calls a tool: under the same rules as the model."""
            counts[outer.id] = counts.get(outer.id, 0) + 1
            id = f"{outer.id}/{number or counts[outer.id]}"
            text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
            call = ToolCall(id=id, name=name, arguments=text)
            # Without the rules of this run, which came later than what was decided on this call, if it was.
            pending = admit_call(call, id, self._catalog, settings.policy, caller="code")
            on_event(_proposed_event(pending))
            if pending.needs_approval:
                await self._approval_gate.resolve(state, pending)
            if pending.needs_approval:
                defer_or_deny(state, outer, pending)
            outcome = await executor.execute_call(str(state.turn), pending)
            executor.add_nested_usage(outer, outcome.usage)
            return ToolOutput(
                content=outcome.result.content or (),
                is_error=outcome.result.status != "ok",
                error_kind=outcome.record.error,
                structured=outcome.structured,
            )

        cap = settings.limits.tokens
        executor = Executor(
            run=state.run,
            step_log=self._step_log,
            approver=self._approver,
            parallel=settings.limits.parallel,
            redactor=settings.redactor,
            on_event=on_event,
            call_nested=inner,
            recent_calls=self._toolbox.recent_calls,
            locks=self._toolbox.locks,
            remaining_tokens=None if cap is None else max(0, cap - tokens_used(state.usage)),
            last_response=state.last_response,
        )
        return executor


def run_ended(state: RunState) -> RunEnded:
    return RunEnded(
        run=state.run,
        stopped=state.stopped or "finished",
        why=state.reason,
        text=state.text,
        usage=state.usage,
        turns=state.turn,
        calls=state.call_count,
    )


def _recorded_response(outcome: bytes | None, name: str) -> Response | None:
    """A turn that was recorded, unless it failed: that is asked for again."""
    response = None if outcome is None else decode_stored(outcome, Response, f"the step {name}")
    if (
        response is None
        or response.error is not None
        or _INCOMPLETE_STOPS.get(_stop_reason(response), ("",))[0] == "failed"
    ):
        return None
    return response


def _stop_reason(response: Response) -> StopReason:
    stop = response.candidates[0].stop if response.candidates else None
    return "other" if stop is None else stop.reason


def _proposed_event(pending: PendingCall) -> CallProposed:
    call = pending.call
    if pending.refusal:
        return CallProposed(call_id=pending.id, tool=call.name, arguments=call.arguments, refused=pending.refusal)
    return CallProposed(
        call_id=pending.id, tool=call.name, arguments=call.arguments, verdict=pending.verdict, by=pending.verdict_reason
    )
