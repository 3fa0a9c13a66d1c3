"""The agent loop: request a turn from the model, execute its tool calls, and repeat until there is an answer.

A turn has two halves. `request_turn` sends the request, then validates each call and applies the policy. `execute_turn`
obtains approvals, runs the calls and adds their results. Nothing is executed between the two, so a caller can approve,
deny or answer calls there.

Both halves consist of named steps, which the step log records before their effect is used. A resumed run goes through
the same steps and takes their recorded outcomes, so it needs no other state.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Message, Text, ToolCall
from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.fold import ResponseAccumulator
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, StopReason, Usage, add_usage, tokens_used, usage_counts
from toolwire.canonical.tools import Tool as Declared
from toolwire.canonical.tools import ToolChoice
from toolwire.journal.runs import RunCancelled
from toolwire.runtime.calls.admission import ApprovalGate, admit_call, apply_policy
from toolwire.runtime.calls.approval import Approver, NoApprover
from toolwire.runtime.calls.executor import CallOutcome, Executor
from toolwire.runtime.model import ModelFailed, SupportsPrices
from toolwire.runtime.native_forms import NO_FORMS, choose_forms
from toolwire.runtime.policy import Policy, is_denied
from toolwire.runtime.rule_checks import check_arguments, find_unused_restrictions
from toolwire.runtime.run.answer import AnswerCollector
from toolwire.runtime.run.budget import Budget
from toolwire.runtime.run.compaction import Compactor
from toolwire.runtime.run.context import RunContext, resolve
from toolwire.runtime.run.events import (
    HandedOff,
    RunEvent,
    RunStarted,
    RunWarning,
    StopCause,
    TextEventMapper,
    TurnEnded,
    TurnStarted,
    text_events,
)
from toolwire.runtime.run.handoff import check_handoff, handoff_target
from toolwire.runtime.run.history import UsageEstimator, trim_history
from toolwire.runtime.run.hooks import Denied, HookChain
from toolwire.runtime.run.hosted_calls import HostedCallObserver
from toolwire.runtime.run.limits import RunTimeout, with_deadline
from toolwire.runtime.run.model_settings import (
    require_tool,
    sampling_of,
    thinking_of,
    tool_choice_of,
)
from toolwire.runtime.run.nested_calls import NestedCalls
from toolwire.runtime.run.repetition import add_digest, describe_repetition
from toolwire.runtime.run.settings import RunAgent
from toolwire.runtime.run.state import (
    ResponseIdentity,
    RunState,
    call_proposed,
    run_ended,
    unwrap_batched_calls,
    with_unique_ids,
)
from toolwire.runtime.run.step_log import StepLog, ToolDefinitions
from toolwire.runtime.run.stops import CONTINUING_STOPS, INCOMPLETE_STOPS, recorded_response, stop_reason_of
from toolwire.runtime.sandbox.code.durable import durable_sandbox
from toolwire.runtime.tool import Tool, ToolCatalog
from toolwire.runtime.toolbox import Toolbox

if TYPE_CHECKING:
    from toolwire.runtime.sandbox.code.tool import CodeSandbox

OpenAgent = Callable[[str], Awaitable[RunAgent]]
"""Returns the agent with a name, for a hand-off."""


class Loop:
    """Executes one run."""

    def __init__(
        self,
        agent: RunAgent,
        step_log: StepLog,
        *,
        open_agent: OpenAgent | None = None,
        deps: Any = None,
        budget: Budget | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the loop of a run that begins with an agent; `open_agent` returns others, for hand-offs."""
        self._step_log = step_log
        self._approver: Approver = NoApprover()
        limits = self._limits = agent.settings.limits
        self._compactor = Compactor(agent.model, step_log, limits.compact_at if limits.history is None else "never")
        self._toolboxes: list[Toolbox] = []
        self._use_agent(agent)
        self._open_agent = open_agent
        self._deps = deps
        self._budget = budget or Budget(self._limits)
        self._clock = clock
        self._catalog = ToolCatalog({})
        self._declarations: tuple[Declared, ...] = ()
        self._instructions = ""
        self._forms = NO_FORMS
        self._sandbox: CodeSandbox | None = None
        self._tool_definitions = ToolDefinitions(step_log)
        self._usage_estimator = UsageEstimator()
        self._warned: set[str] = set()

    def _use_agent(self, agent: RunAgent) -> None:
        """Continue with an agent. The limits stay those of the agent that the run began with."""
        self._agent = agent
        self._model, self._toolbox = agent.model, agent.toolbox
        self._settings = replace(agent.settings, limits=self._limits)
        self._compactor.use_model(agent.model)
        self._approver = agent.approver or self._approver
        self._answer = AnswerCollector(self._settings, self._step_log)
        self._hooks = HookChain(agent.settings.hooks, self._step_log)
        self._hosted_calls = HostedCallObserver(self._step_log, agent.settings.redactor)
        self._approval_gate = ApprovalGate(self._step_log, self._approver)
        self._toolboxes.append(agent.toolbox)

    async def change_agent(self, state: RunState, name: str) -> None:
        """Move the conversation to another agent."""
        if self._open_agent is None:
            raise AssertionError("only agents with hand-offs have tools for them")
        self._use_agent(await self._open_agent(name))
        state.agent = name

    async def events(self, state: RunState, *, resumed: bool = False) -> AsyncIterator[RunEvent]:
        """Continue the run from its current state, and yield its events."""
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
        except ModelFailed as error:
            state.stopped, state.reason = "failed", str(error)
        except Denied as denial:
            state.stopped, state.reason = "denied", str(denial)
        except RunCancelled as error:
            state.stopped, state.reason = "cancelled", str(error)
        except asyncio.CancelledError:
            state.stopped, state.reason = "cancelled", "interrupted"
            raise
        yield run_ended(state)

    # First half of a turn: the model request

    async def request_turn(self, state: RunState) -> AsyncIterator[RunEvent]:
        """Request a turn from the model, or take its recorded response, and set `state.pending` to its calls."""
        if (limit := self._limit_reached(state)) is not None:
            state.stopped, state.reason = limit
            return
        state.turn += 1
        self._add_summary_usage(state, self._compactor.restore(state.turn))
        await self._declare_tools(state)
        for text in (*self._toolbox.take_warnings(), *self._tool_definitions.take_warnings()):
            yield RunWarning(text=text)
        name = f"turn/{state.turn}"
        recorded = recorded_response(self._step_log.outcome(name), name)
        yield TurnStarted(turn=state.turn, recorded=recorded is not None)
        received: list[Response] = [] if recorded is None else [recorded]
        if recorded is None:
            async for event in self._receive(state, name, received):
                yield event
            if not received:
                return
        else:
            for text_event in text_events(recorded):
                yield text_event
        response = received[0]
        self._compactor.count(response.usage, state.messages)
        stop_reason = stop_reason_of(response)
        yield self._turn_ended(state, response, stop_reason)
        async for proposed in self._apply_response(state, response, stop_reason):
            yield proposed
        repetition = self._detect_repetition(state)
        # Resuming a run that stopped for repetition means to continue it, so recorded turns do not stop it again.
        if repetition is not None and recorded is None:
            state.stopped, state.reason = "repeats", repetition

    async def _receive(self, state: RunState, step: str, received: list[Response]) -> AsyncIterator[RunEvent]:
        """Send the request of a turn, yield the events of its response, and append it unless the time is up."""
        self._step_log.begin(step, b"")
        accumulator, mapper = ResponseAccumulator(), TextEventMapper()
        policy = self._settings.policy.with_rules(*state.rules)
        self._hosted_calls.start_turn(state.turn, self._catalog, policy, self._model.name)
        request, omitted_count = self._build_request(state)
        request = await self._hooks.before_model(self._run_context(state), request)
        on_summary = partial(self._add_summary_usage, state)
        request = await self._compactor.fit(state.turn, request, state.messages, on_summary)
        if omitted_count:
            text = f"the conversation is too long: omitted the {omitted_count} oldest messages"
            yield RunWarning(text=text, subject="conversation")
        events = self._compactor.stream(state.turn, request, state.messages, on_summary)
        try:
            async for event in with_deadline(self._remaining_seconds(state), events):
                accumulator.add(event)
                for observed in (mapper.map_event(event), self._hosted_calls.observe(event)):
                    if observed is not None:
                        yield observed
                for warning in await self._show_hosted_calls(state):
                    yield warning
        except RunTimeout:
            state.stopped, state.reason = self._time_limit()
            return
        response = self._with_usage(request, accumulator.response())
        for hosted_event in self._hosted_calls.end_turn(response):
            yield hosted_event
        for warning in await self._show_hosted_calls(state):
            yield warning
        response = await self._check_response(state, response)
        self._step_log.finish(step, msgspec.json.encode(response))
        for text in self._compactor.take_warnings():
            yield RunWarning(text=text, subject="conversation")
        received.append(response)

    async def _show_hosted_calls(self, state: RunState) -> list[RunWarning]:
        """Show the hooks the calls that the provider has begun or ended; return warnings."""
        warnings: list[RunWarning] = []
        for call, output in self._hosted_calls.take_for_hooks():
            texts = await self._hooks.observe_hosted_call(self._run_context(state), call, output)
            warnings += [RunWarning(text=text) for text in texts]
        return warnings

    async def _check_response(self, state: RunState, response: Response) -> Response:
        """Return a response as the hooks leave it. The usage of a denied one counts, too."""
        try:
            return await self._hooks.after_model(self._run_context(state), response)
        except Denied:
            self._add_usage(state, replace(usage_counts(response.usage) or Usage(), requests=1))
            raise

    def _with_usage(self, request: Request, response: Response) -> Response:
        """Return a response with its usage; it is estimated if the provider reports none."""
        if not tokens_used(response.usage):
            usage = self._usage_estimator.estimate(request, response)
            if self._budget.has_cost_limit and isinstance(self._model, SupportsPrices):
                usage = replace(usage, cost=self._model.price(usage))
            response = replace(response, usage=usage)
        return response

    def _turn_ended(self, state: RunState, response: Response, stop_reason: StopReason) -> TurnEnded:
        """Set `state.last_response`, and build the event that ends the turn."""
        state.last_response = ResponseIdentity(response.id or "", self._model.name, response.model or "")
        return TurnEnded(
            turn=state.turn,
            stop=stop_reason,
            usage=usage_counts(response.usage),
            response=response.id or "",
            model=response.model or "",
        )

    async def _declare_tools(self, state: RunState) -> None:
        """Gather the tools of this turn, and select those to declare to the model."""
        catalog = await self._toolbox.catalog()
        listed_tools = catalog.tools
        context = self._run_context(state)
        instructions = self._settings.instructions
        self._instructions = instructions if isinstance(instructions, str) else await resolve(instructions(context))
        if self._settings.prepare_tools is not None:
            offered = await resolve(self._settings.prepare_tools(context, tuple(catalog.tools.values())))
            if offered is None:
                raise TypeError("prepare_tools returned None: return the tools to offer, or an empty list")
            catalog = replace(catalog, tools={tool.name: tool for tool in offered})
        policy = self._settings.policy.with_rules(*state.rules)
        catalog, warnings = self._toolbox.hosted.choose_for(self._model, catalog, policy, code=self._settings.code)
        self._warn_once(warnings)
        catalog, self._forms = choose_forms(self._model, catalog, policy)
        self._tool_definitions.check_changes(catalog.tools.values())
        if self._settings.code:
            if self._sandbox is None:
                self._sandbox = durable_sandbox(self._step_log)
            # Programs, too, see no tool that the policy always denies.
            code_tool = self._sandbox.tool([tool for tool in catalog.tools.values() if not is_denied(policy, tool)])
            catalog = replace(catalog, tools={**catalog.tools, code_tool.name: code_tool})
        native_search = getattr(self._model, "search", None)
        selection = self._settings.deferred_tools.select(catalog, policy, state.messages, native_search)
        self._catalog, self._declarations = replace(catalog, tools=selection.tools), selection.declarations
        self._declare_handoffs()
        self._check_rules({**listed_tools, **self._catalog.tools})
        self._catalog, self._declarations = self._answer.declare(self._model, self._catalog, self._declarations)

    def _check_rules(self, tools: Mapping[str, Tool]) -> None:
        """Raise `PolicyError` for a rule with an unknown argument; warn of each that restricts nothing."""
        check_arguments(self._settings.policy, tools)
        if not self._toolbox.lists_all_tools:
            return
        natives = [name for tool in self._catalog.native_tools for name in (tool.name, tool.kind) if name is not None]
        self._warn_once(find_unused_restrictions(self._settings.policy, tools.values(), natives))

    def _warn_once(self, warnings: Iterable[str]) -> None:
        """Add the warnings that are new in this run."""
        new = [warning for warning in warnings if warning not in self._warned]
        self._toolbox.warnings += new
        self._warned.update(new)

    def _declare_handoffs(self) -> None:
        """Offer the tools that move the conversation to another agent."""
        tools = {tool.name: tool for tool in self._agent.handoff_tools()}
        if not tools:
            return
        if taken := tools.keys() & self._catalog.tools.keys():
            raise ToolwireError(f"a tool of an agent with hand-offs can't have the name {min(taken)!r}")
        self._catalog = replace(self._catalog, tools={**self._catalog.tools, **tools})
        self._declarations += tuple(tool.declaration() for tool in tools.values())

    def _run_context(self, state: RunState) -> RunContext[Any]:
        """Return the context of the turn that begins."""
        return RunContext(
            run=state.run,
            agent=self._agent.name,
            turn=state.turn,
            deps=self._deps,
            messages=state.messages,
            usage=state.usage,
        )

    async def close(self) -> None:
        """Stop the code sandbox, if one was started."""
        if self._sandbox is not None:
            await self._sandbox.close()

    async def end_run(self, state: RunState) -> None:
        """Release what the tools of all agents of the run hold for it."""
        for toolbox in self._toolboxes:
            await toolbox.end_run(state.run)

    def _build_request(self, state: RunState) -> tuple[Request, int]:
        """Build the model request; returns it with the number of messages omitted from the history."""
        settings = self._settings
        messages, omitted_count = self._compactor.shorten(state.messages), 0
        if settings.limits.history is not None:
            messages, omitted_count = trim_history(messages, settings.limits.history)
        request = Request(
            origin="",
            model=self._model.name,
            messages=messages,
            system=tuple(Text(text=text) for text in (self._instructions, self._forms.notes) if text) or None,
            tools=self._declarations or None,
            tool_choice=self._tool_choice(state),
            thinking=thinking_of(settings.model),
            sampling=sampling_of(settings.model),
            output=self._answer.response_format,
            stream=True,
            include_usage=True,
        )
        return request, omitted_count

    def _tool_choice(self, state: RunState) -> ToolChoice | None:
        """Return the tool choice of this turn."""
        choice = tool_choice_of(self._settings.model, tuple(self._catalog.tools), is_first_turn=state.turn == 1)
        return require_tool(choice) if self._answer.has_tool else choice

    async def _apply_response(
        self, state: RunState, response: Response, stop_reason: StopReason
    ) -> AsyncIterator[RunEvent]:
        """Add a response to the state: its calls become pending, or the run stops."""
        calls = self._add_messages(state, response)
        if response.error is not None:
            raise ModelFailed(response.error)
        if stop_reason == "max_tokens" and not calls and self._answer.continue_text(state):
            return
        if stop_reason in INCOMPLETE_STOPS:
            state.stopped, state.reason = INCOMPLETE_STOPS[stop_reason]
            return
        policy = self._settings.policy.with_rules(*state.rules)
        for id, call in with_unique_ids(state.turn, [call for call in calls if call.executor == "client"]):
            # The policy is about effects, and an answer has none.
            applied = Policy() if self._answer.is_answer(call.name) else policy
            pending = admit_call(self._forms.adapt_call(call), id, self._catalog, applied, repair=self._settings.repair)
            pending.requested_name = call.name
            if not self._answer.is_answer(call.name):
                check_handoff(state, pending, self._limits.handoffs)
                await self._hooks.before_tool(self._run_context(state), pending, policy)
            state.pending.append(pending)
            yield call_proposed(pending)
        if not state.pending and stop_reason in CONTINUING_STOPS:
            state.text_before = state.text
        elif not state.pending:
            self._answer.take_text(state)
        state.call_count += len(state.pending)

    def _add_messages(self, state: RunState, response: Response) -> list[ToolCall]:
        """Add messages, text and usage of a response to the state, and return its tool calls."""
        messages = response.candidates[0].messages if response.candidates else ()
        messages = unwrap_batched_calls(tuple(replace(message, at=None) for message in messages), self._catalog.tools)
        state.messages += messages
        usage = usage_counts(response.usage) or Usage()
        self._add_usage(state, replace(usage, requests=1))
        parts = [part for message in messages for part in message.parts]
        state.text = state.text_before + "".join(part.text for part in parts if isinstance(part, Text))
        state.text_before = ""
        return [part for part in parts if isinstance(part, ToolCall)]

    def _add_summary_usage(self, state: RunState, usage: Usage | None) -> None:
        """Add the usage of a summary, if there was one."""
        if usage is not None:
            self._add_usage(state, replace(usage, requests=1))

    def _add_usage(self, state: RunState, *usages: Usage | None) -> None:
        """Add the usage of a response, or of all calls of a turn."""
        for usage in usages:
            state.usage = add_usage(state.usage, usage)
        self._budget.settle(state.usage)

    def _detect_repetition(self, state: RunState) -> str | None:
        """Note the calls of this turn, and describe a turn or cycle of turns that repeats too often; else None."""
        if not state.pending:
            return None
        calls, repeats = [pending.call for pending in state.pending], self._settings.limits.repeats
        state.recent_call_digests = add_digest(state.recent_call_digests, calls, repeats)
        return describe_repetition(state.recent_call_digests, calls, repeats)

    def _limit_reached(self, state: RunState) -> tuple[StopCause, str] | None:
        """Return the stop cause and its details if a limit is reached; else None."""
        limits = self._settings.limits
        self._budget.settle(state.usage)
        if state.turn >= limits.turns:
            return "turns", f"the limit of {limits.turns} turns was reached"
        if self._remaining_seconds(state) == 0.0:
            return self._time_limit()
        return self._budget.exceeded()

    def _remaining_seconds(self, state: RunState) -> float | None:
        """Return the time that is left; None if it is unlimited."""
        seconds = self._settings.limits.seconds
        return None if seconds is None else max(0.0, state.started_at + seconds - self._clock())

    def _time_limit(self) -> tuple[StopCause, str]:
        """Return the stop cause `seconds` with its description."""
        return "seconds", f"the limit of {self._settings.limits.seconds:g} seconds was reached"

    # Second half of a turn: the tool calls

    async def execute_turn(self, state: RunState) -> AsyncIterator[RunEvent]:
        """Obtain approvals for the pending calls, execute them, and add their results to the messages."""
        await self._resolve_approvals(state)
        if waiting := [pending.call.name for pending in state.pending if pending.needs_approval]:
            state.stopped, state.reason = "waiting", f"{waiting[0]} is waiting for approval"
            return
        self._approval_gate.restore_rules(state)
        events: asyncio.Queue[RunEvent | None] = asyncio.Queue()
        executor = self._build_executor(state, events.put_nowait)
        batch = asyncio.ensure_future(self._execute_batch(executor, state))
        batch.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
        finally:
            if not batch.done():
                batch.cancel()
                await asyncio.wait([batch])
            if not batch.cancelled():
                batch.exception()  # retrieved, also if another exception ends the turn
        calls = state.pending
        self._apply_outcomes(state, batch.result())
        if (target := handoff_target(state, calls, batch.result())) is not None:
            previous = self._agent.name
            await self.change_agent(state, target)
            state.handoffs += 1
            yield HandedOff(agent=target, previous=previous)

    async def _resolve_approvals(self, state: RunState) -> None:
        """Apply the policy to edited calls, and ask for the approvals that are needed."""
        for pending in state.pending:
            if pending.edited and pending.tool is not None:
                policy = self._settings.policy.with_rules(*state.rules)
                apply_policy(pending, pending.tool, policy)
                await self._hooks.before_tool(self._run_context(state), pending, policy)
            if pending.needs_approval:
                await self._approval_gate.resolve(state, pending)

    def _apply_outcomes(self, state: RunState, results: list[CallOutcome | None] | None) -> None:
        """Add the results of a batch to the messages, or stop the run: at the time limit or for an approval."""
        if results is None:
            state.stopped, state.reason = self._time_limit()
            return
        outcomes = [outcome for outcome in results if outcome is not None]
        if len(outcomes) < len(results):
            name = state.pending[results.index(None)].call.name
            state.stopped, state.reason = "waiting", f"a call made by {name} is waiting for approval"
            return
        state.messages += (Message(role="user", parts=tuple(outcome.result for outcome in outcomes)),)
        self._add_usage(state, *(outcome.usage for outcome in outcomes))
        calls, state.pending = state.pending, []
        for pending, outcome in zip(calls, outcomes, strict=True):
            if self._answer.is_answer(pending.call.name) and state.stopped is None:
                self._answer.take_call(state, pending, outcome)

    async def _execute_batch(self, executor: Executor, state: RunState) -> list[CallOutcome | None] | None:
        """Execute the pending calls, and return their outcomes; None if the time limit is reached first."""
        try:
            async with asyncio.timeout(self._remaining_seconds(state)):
                if self._settings.model.get("parallel", True):
                    return await executor.execute_batch(str(state.turn), state.pending)
                return [await executor.execute_model_call(str(state.turn), pending) for pending in state.pending]
        except TimeoutError:
            return None

    def _build_executor(self, state: RunState, on_event: Callable[[RunEvent], None]) -> Executor:
        """Build the executor for one turn."""
        settings = self._settings
        self._budget.settle(state.usage)
        context = self._run_context(state)
        nested = NestedCalls(
            state,
            context,
            catalog=self._catalog,
            policy=settings.policy,
            hooks=self._hooks,
            gate=self._approval_gate,
            on_event=on_event,
        )
        executor = Executor(
            run=state.run,
            step_log=self._step_log,
            approver=self._approver,
            parallel=settings.limits.parallel,
            redactor=settings.redactor,
            on_event=on_event,
            call_nested=nested.call,
            recent_calls=self._toolbox.recent_calls,
            locks=self._toolbox.locks,
            deps=self._deps,
            budget=self._budget,
            after_tool=partial(self._hooks.after_tool, context),
            model=self._model,
            last_response=state.last_response,
        )
        nested.executor = executor
        return executor
