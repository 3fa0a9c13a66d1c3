"""The agent: a model with tools, and a policy on how it may use them.

    agent = Agent("anthropic/claude-sonnet-4-5", tools=[weather], policy=Policy(allow=["weather"]))
    print(agent.run("Is it raining in Oslo?").text)

The same methods serve synchronous and asynchronous code. Inside an event loop, await `run` and `step`, and read a
stream with `async for`.
"""

import asyncio
import contextlib
import os
import secrets
import time
import warnings
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, cast

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Message, Text
from toolwire.canonical.errors import ToolwireError
from toolwire.gateway.config import ConfigSource, resolve_config
from toolwire.gateway.config.search import with_search_backend
from toolwire.gateway.in_process import open_model
from toolwire.journal.redaction import Redactor
from toolwire.journal.runs import RunStepLog, RunStore, StoredRun, TakenRun, decode_stored
from toolwire.journal.sessions import check_session_id
from toolwire.journal.store import JournalError
from toolwire.journal.telemetry import configure_telemetry
from toolwire.runtime.calls.approval import Approver
from toolwire.runtime.calls.terminal_approver import default_approver
from toolwire.runtime.model import Model, ModelFailed, require_prices
from toolwire.runtime.policy import Policy
from toolwire.runtime.portal import has_running_loop, run_sync
from toolwire.runtime.run.budget import Budget
from toolwire.runtime.run.context import Instructions, ToolPreparation
from toolwire.runtime.run.events import RunEvent, SubAgentEvent
from toolwire.runtime.run.handoff import handoff_tool
from toolwire.runtime.run.hooks import Denied, Hooks
from toolwire.runtime.run.limits import RunLimits
from toolwire.runtime.run.loop import Loop
from toolwire.runtime.run.model_settings import SETTING_NAMES, ModelSettings, merge_settings
from toolwire.runtime.run.option_checks import (
    check_agent_options,
    check_deps,
    check_names,
    check_override,
    check_run,
    check_types,
    check_values,
    require_text_list,
)
from toolwire.runtime.run.output import OutputType
from toolwire.runtime.run.prompt import Prompt, check_history, prompt_message
from toolwire.runtime.run.recorded_run import ImageBudget
from toolwire.runtime.run.result import OutputT_co, Run, RunStream, warn_of
from toolwire.runtime.run.session import Session
from toolwire.runtime.run.session_history import SessionHistory
from toolwire.runtime.run.settings import RunAgent, RunMetadata, RunOptions, RunSettings
from toolwire.runtime.run.state import RunState, UnfinishedStep, run_ended
from toolwire.runtime.run.step_log import InMemoryStepLog, StepLog
from toolwire.runtime.run.tracing import RunTracer
from toolwire.runtime.search.deferred_tools import DeferredTools
from toolwire.runtime.search.embedding import Embed
from toolwire.runtime.tool import CallDeferred, DepsT, Tool, ToolContext, ToolOutput, ToolSource
from toolwire.runtime.toolbox import Toolbox

if TYPE_CHECKING:
    from typing_extensions import TypeForm  # for unions, which are no `type[...]`

_TEXT: Any = str
_NO_DEPS: Any = type(None)


class Agent(Generic[OutputT_co, DepsT]):
    """A model that calls tools in a loop until it answers or a limit stops it.

    Args:
        model: A model name as configured in the gateway, or a `Model`. None uses the default model of the only
            configured provider, or the built-in simulator.
        fallbacks: Models to try, in order, if the first is not available.
        output: The type of the answer, `run.output`: a pydantic model, dataclass, TypedDict, msgspec struct, or a list
            or union of such types. The default is text.
        output_retries: How often the model may correct an answer that does not match the type.
        tools: Tools and toolsets that the model may call, and hosted tools (`WebSearch()`) that the provider may run.
        handoffs: Agents that may take over the conversation; more can be added to the attribute `handoffs`.
        policy: Rules that allow, deny or require approval for tool calls.
        instructions: The system prompt, or a function of the `RunContext` that returns it for each turn.
        deps: The type of the dependencies that a run gets (`run(..., deps=...)`) and that tools find in
            `ToolContext[Deps]`. With it, a run without `deps` raises `TypeError`.
        prepare_tools: A function of the `RunContext` and the agent's tools that returns the tools of each turn.
        hooks: Functions that run before and after each model request and tool call, and may change or deny it.
        limits: Bounds on turns, time, model requests, tokens and money.
        approver: Decides calls that need approval. Without one, the user at the terminal is asked; without a terminal,
            such calls are denied, with a warning.
        journal: The store that records runs so that they can be resumed, its path, or the URL of a PostgreSQL database.
        repair: Repair invalid arguments where the intent is unambiguous.
        code: Let the model write programs that call tools.
        search_above: With more tools than this, offer them through a tool search.
        always_offered: Names of tools that stay outside the tool search.
        embed: A function that returns a vector for each of a list of texts. With it, the tool search ranks by meaning
            as well as by words.
        name: The agent's name, in traces and as a tool of another agent.
        description: What the agent does, for agents that call it as a tool.
        config: The gateway configuration, or the path of its file. None uses the providers whose keys are in the
            environment.
        secrets: Values to redact from recorded runs.
        settings: `temperature`, `top_p`, `max_tokens`, `stop`, `seed`, `effort`, `tool_choice` and `parallel`. A run
            can override each of them.

    """

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters: Any) -> Any:
            """Complete `Agent[Output]` by the default of `DepsT`, as type checkers do."""
            complete = parameters if isinstance(parameters, tuple) else (parameters, type(None))
            return super().__class_getitem__(complete)

    def __init__(
        self,
        model: str | Model | None = None,
        *,
        fallbacks: Sequence[str] = (),
        output: "TypeForm[OutputT_co]" = _TEXT,
        output_retries: int = 2,
        tools: Sequence[ToolSource] = (),
        handoffs: "Sequence[Agent[OutputT_co, Any]]" = (),
        policy: Policy | None = None,
        instructions: Instructions = "",
        deps: "TypeForm[DepsT]" = _NO_DEPS,
        prepare_tools: ToolPreparation | None = None,
        hooks: Sequence[Hooks] = (),
        limits: RunLimits | None = None,
        approver: Approver | None = None,
        journal: RunStore | Path | str | None = None,
        repair: bool = False,
        code: bool = False,
        search_above: int = 40,
        always_offered: Sequence[str] = (),
        embed: Embed | None = None,
        name: str = "agent",
        description: str = "",
        config: ConfigSource | None = None,
        secrets: Sequence[str] = (),
        **settings: Unpack[ModelSettings],
    ) -> None:
        check_names(settings, Agent.__init__, SETTING_NAMES)
        lists = {"tools": tools, "handoffs": handoffs, "hooks": hooks}
        check_agent_options(model=model, policy=policy, limits=limits, approver=approver, journal=journal, lists=lists)
        check_types(instructions=instructions, output=output, deps=deps, prepare_tools=prepare_tools, embed=embed)
        counts = {"output_retries": output_retries, "search_above": search_above}
        check_values(name, description, switches={"repair": repair, "code": code}, counts=counts)
        self.name = name
        self.description = description
        self.handoffs: list[Agent[Any, Any]] = list(handoffs)
        self._model = model
        self._fallbacks = require_text_list("fallbacks", fallbacks)
        if self._fallbacks and not isinstance(model, str | None):
            raise TypeError("fallbacks need a model name: a Model has its own connection")
        self._deps_type = deps
        self._approver = approver
        self._config = resolve_config(config)
        self._toolbox = Toolbox(with_search_backend(tools, self._config.search), policy)
        self._runs = RunStore(journal) if isinstance(journal, Path | str) else journal
        self._open_model: tuple[asyncio.AbstractEventLoop, Model] | None = None
        self._telemetry = configure_telemetry(os.environ, warnings.warn)
        self._settings = RunSettings(
            instructions=instructions,
            prepare_tools=prepare_tools,
            hooks=tuple(hooks),
            policy=policy or Policy(),
            limits=limits or RunLimits(),
            repair=repair,
            model=merge_settings(settings),
            output=None if output is str else OutputType(output),
            output_retries=output_retries,
            redactor=Redactor(require_text_list("secrets", secrets)),
            deferred_tools=DeferredTools(
                search_above, always=require_text_list("always_offered", always_offered), embed=embed
            ),
            code=code,
        )

    # ---- complete runs

    def run(
        self,
        prompt: Prompt,
        *,
        history: Sequence[Message] = (),
        session: str | None = None,
        facts: Mapping[str, str] | None = None,
        deps: DepsT | None = None,
        check: bool = True,
        **settings: Unpack[ModelSettings],
    ) -> Run[OutputT_co]:
        """Run until the model answers or a limit stops the run.

        `history` is the conversation before the prompt; with the id of a `session`, it is that of the session.
        `settings` override those of the agent. Raises `RunFailed` if the run ends without an answer; with
        `check=False`, inspect `run.ok` and `run.stopped` instead.
        """
        options = self._run_options(history, session, facts, deps, settings)
        run = Run[OutputT_co](self.start(prompt, history=history))
        return RunStream(run, self._events(run, options)).finish(check=check)

    def stream(
        self,
        prompt: Prompt,
        *,
        history: Sequence[Message] = (),
        session: str | None = None,
        facts: Mapping[str, str] | None = None,
        deps: DepsT | None = None,
        **settings: Unpack[ModelSettings],
    ) -> RunStream[OutputT_co]:
        """Start a run like `run`, and return a stream of its events."""
        options = self._run_options(history, session, facts, deps, settings)
        run = Run[OutputT_co](self.start(prompt, history=history))
        return RunStream(run, self._events(run, options))

    def run_detached(
        self,
        prompt: Prompt,
        *,
        history: Sequence[Message] = (),
        facts: Mapping[str, str] | None = None,
        queue: str | None = None,
        **settings: Unpack[ModelSettings],
    ) -> str:
        """Store a run for the workers that serve this agent (`toolwire work`), and return its id.

        The default queue is `agent:` and the agent's name. Tools of such runs get no `deps`.
        """
        if self._runs is None:
            raise ToolwireError("cannot detach a run: the agent has no journal")
        check_run(facts=facts, queue=queue)
        state = self.start(prompt, history=history)
        options = RunOptions(facts=dict(facts or {}), settings=merge_settings(settings))
        model = self._model if isinstance(self._model, str) else getattr(self._model, "name", "")
        self._runs.enqueue(state.run, self._encode_metadata(state, options, model), queue or f"agent:{self.name}")
        return state.run

    def resume(self, run: str, *, deps: DepsT | None = None) -> RunStream[OutputT_co]:
        """Resume an interrupted run from the journal, without its finished steps, as its stream is read or finished."""
        if self._runs is None:
            raise ToolwireError("cannot resume a run: the agent has no journal")
        check_deps(self._deps_type, deps)
        return self._resume(self._runs.find(run), RunOptions(deps=deps))

    @property
    def runs(self) -> RunStore | None:
        """The store of its runs, in its journal; None if it has none."""
        return self._runs

    def continue_taken(self, taken: TakenRun, approver: Approver) -> RunStream[OutputT_co]:
        """Execute a run that a worker took from a queue; `approver` decides if the agent has none."""
        return self._resume(taken.run, RunOptions(lease=taken.lease, approver=approver))

    def _resume(self, stored: StoredRun, options: RunOptions) -> RunStream[OutputT_co]:
        """Continue a stored run."""
        metadata = decode_stored(stored.metadata, RunMetadata, f"the run {stored.id}")
        resumed = Run[OutputT_co](RunState(run=stored.id, messages=metadata.messages))
        options = replace(options, settings=metadata.settings, session=metadata.session)
        return RunStream(resumed, self._events(resumed, options, resumed=True))

    async def _events(
        self,
        run: Run[Any],
        options: RunOptions,
        *,
        resumed: bool = False,
    ) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of a run, and close its resources at the end."""
        state = run.state
        loop, step_log = await self._open_loop(state, options, resumed=resumed)
        tracer = None if self._telemetry is None else RunTracer(self._telemetry.tracer, self.name)
        can_continue = False
        try:
            async for event in loop.events(state, resumed=resumed):
                run.on_event(event)
                if tracer is not None:
                    tracer.on_event(event)
                yield event
        except JournalError:
            can_continue = True  # in another process, or when the journal can be written again
            raise
        except Exception as error:
            if state.stopped is None:
                state.stopped, state.reason = "failed", f"{type(error).__name__}: {error}"
            raise
        finally:
            await loop.close()
            await loop.end_run(state)
            if tracer is not None:
                tracer.close()
            run.mark_ended()
            if step_log is not None and can_continue:
                with contextlib.suppress(JournalError):
                    step_log.release()
            elif step_log is not None:
                step_log.end(msgspec.json.encode(run_ended(state)))
            if self._runs is not None and options.session is not None and not can_continue:
                SessionHistory(self._runs, options.session).save(state)

    def _run_options(
        self,
        history: Sequence[Message],
        session: str | None,
        facts: Mapping[str, str] | None,
        deps: DepsT | None,
        settings: ModelSettings,
    ) -> RunOptions:
        """Return the options of a new run."""
        check_names(settings, Agent.run, SETTING_NAMES, elsewhere=Agent.__init__)
        check_run(facts=facts)
        check_deps(self._deps_type, deps)
        if session is not None:
            self._require_journal("sessions")
            check_session_id(session)
            if history:
                raise ToolwireError("a session has its own history: pass either `session` or `history`")
        return RunOptions(facts=dict(facts or {}), settings=merge_settings(settings), deps=deps, session=session)

    def _require_journal(self, feature: str) -> RunStore:
        """Return the journal; raise `ToolwireError` if the agent has none."""
        if self._runs is None:
            raise ToolwireError(f"{feature} need a journal: use Agent(..., journal='runs.db')")
        return self._runs

    # ---- sessions

    def session(self, id: str) -> "Session[OutputT_co, DepsT]":
        """Return the session with this id: a conversation in the journal that each run continues."""
        check_session_id(id)
        return Session(self, self._require_journal("sessions"), id)

    def sessions(self, count: int = 100) -> "list[Session[OutputT_co, DepsT]]":
        """Return the sessions in the journal, those that changed last first."""
        runs = self._require_journal("sessions")
        return [Session(self, runs, stored.id) for stored in runs.sessions.latest(count)]

    # ---- single steps

    def start(self, prompt: Prompt, *, history: Sequence[Message] = (), deps: DepsT | None = None) -> RunState:
        """Create the state of a run without starting it. Its steps pass `deps` to tools."""
        check_history(history)
        run_id = f"run_{time.strftime('%Y%m%d%H%M%S', time.gmtime())}_{secrets.token_hex(4)}"
        messages = (*history, prompt_message(prompt))
        return RunState(run=run_id, messages=messages, deps=deps, agent=self.name)

    def step(self, state: RunState | Prompt) -> RunState:
        """Advance a run by one turn.

        Executes the pending calls, then requests the next response. Stops before executing new calls: inspect
        `state.pending`, then approve, deny or answer each one.
        """
        run_state = state if isinstance(state, RunState | UnfinishedStep) else self.start(state)
        if requests := run_state.approval_requests:
            call = f"{requests[0].tool} ({requests[0].call_id})"
            raise ToolwireError(f"{call} awaits approval: approve, deny or answer it before the next step")
        if has_running_loop():
            return cast("RunState", UnfinishedStep(run_state, asyncio.ensure_future(self._step(run_state))))
        run_sync(self._step(run_state))
        return run_state

    async def _step(self, state: RunState) -> None:
        """Execute the pending calls and request one response, updating the state."""
        if state.stopped is not None:
            raise ToolwireError(f"the run has already ended ({state.stopped})")
        if not state.started_at:
            state.started_at = time.monotonic()
        loop, step_log = await self._open_loop(state, RunOptions(deps=state.deps), resumed=state.turn > 0)
        try:
            if state.pending:
                async for event in loop.execute_turn(state):
                    warn_of(event)
            if state.stopped is None:
                async for event in loop.request_turn(state):
                    warn_of(event)
        except ModelFailed as failure:
            state.stopped, state.reason = "failed", str(failure)
        except Denied as denial:
            state.stopped, state.reason = "denied", str(denial)
        finally:
            await loop.close()
            if step_log is not None and state.stopped is None:
                step_log.release()  # until the next step
        if state.stopped is not None:
            await loop.end_run(state)
            if step_log is not None:
                step_log.end(msgspec.json.encode(run_ended(state)))

    async def _open_loop(
        self,
        state: RunState,
        options: RunOptions,
        *,
        resumed: bool,
    ) -> tuple[Loop, RunStepLog | None]:
        """Create the loop of a run, and its journal entry if the agent has a journal.

        The entry stays locked until it is ended or released.
        """
        agent = await self.open_for_run(options.settings)
        parent = None if options.parent is None else options.parent.budget
        budget = Budget(self._settings.limits) if parent is None else parent.nest(self._settings.limits)
        team = self._team()
        if budget.has_cost_limit:
            for member in team.values():
                await require_prices((await member.open_for_run(options.settings)).model)
        step_log = None
        if options.lease is not None:
            step_log = options.lease
        elif self._runs is not None and resumed:
            step_log = self._runs.resume(state.run)
        elif self._runs is not None:
            step_log = self._runs.begin(state.run, self._encode_metadata(state, options, agent.model.name))
        if self._runs is not None and step_log is not None and options.session is not None:
            self._join_session(SessionHistory(self._runs, options.session), state, step_log, resumed=resumed)
        steps: StepLog = InMemoryStepLog() if step_log is None else step_log

        async def open_agent(name: str) -> RunAgent:
            """Return another agent of the team, for a hand-off."""
            return await team[name].open_for_run(options.settings)

        if agent.approver is None:
            agent = replace(agent, approver=options.approver or default_approver())
        loop = Loop(agent, ImageBudget(steps), open_agent=open_agent, deps=options.deps, budget=budget)
        if state.agent != self.name and state.agent in team:
            await loop.change_agent(state, state.agent)
        else:
            state.agent = self.name
        return loop, step_log

    def _join_session(self, history: SessionHistory, state: RunState, step_log: RunStepLog, *, resumed: bool) -> None:
        """Put the conversation of a session before the prompt of a run; a run that can't join is not stored."""
        try:
            if resumed:
                history.resume(state)
            else:
                history.start(state)
        except ToolwireError:
            step_log.release()
            if not resumed and self._runs is not None:
                self._runs.delete(state.run)
            raise

    def _encode_metadata(self, state: RunState, options: RunOptions, model: str) -> bytes:
        """Encode the data that is stored when a run starts."""
        metadata = RunMetadata(
            agent=self.name,
            model=model,
            messages=state.messages,
            facts=options.facts,
            settings=options.settings,
            session=options.session,
        )
        return msgspec.json.encode(metadata)

    async def _get_model(self) -> Model:
        """Return the model, opened once per event loop."""
        if self._model is not None and not isinstance(self._model, str):
            return self._model
        loop = asyncio.get_running_loop()
        if self._open_model is None or self._open_model[0] is not loop:
            self._open_model = (loop, await open_model(self._model, self._config, fallbacks=self._fallbacks))
        return self._open_model[1]

    # ---- hand-offs

    async def open_for_run(self, settings: ModelSettings) -> RunAgent:
        """Open the model, and return the agent as a run with these settings uses it."""
        agent_settings = self._settings
        if settings:
            agent_settings = replace(agent_settings, model=merge_settings(agent_settings.model, settings))
        return RunAgent(
            name=self.name,
            model=await self._get_model(),
            toolbox=self._toolbox,
            settings=agent_settings,
            approver=self._approver,
            handoff_tools=lambda: [handoff_tool(agent.name, agent.description) for agent in self.handoffs],
        )

    def _team(self) -> "dict[str, Agent[Any, Any]]":
        """Return this agent and all that it may hand off to, directly or not, by name."""
        team, waiting = dict[str, Agent[Any, Any]](), [cast("Agent[Any, Any]", self)]
        while waiting:
            agent = waiting.pop()
            if (known := team.setdefault(agent.name, agent)) is not agent:
                raise ToolwireError(f"two agents of a team have the name {known.name!r}: pass Agent(name=...)")
            waiting += [other for other in agent.handoffs if team.get(other.name) is not other]
        return team

    # ---- sub-agents

    def as_tool(self) -> Tool:
        """Return a tool through which another agent hands this agent a task.

        The agent's own policy applies. Its usage counts for the run that called it, whose limits apply as well, and its
        events are among those of that run. Without an approver of its own, it uses that of the caller. With a journal,
        the sub-run resumes together with the run that called it, and that run waits while the sub-run waits.
        """
        runs = self._runs

        async def run_task(arguments: Any, context: ToolContext[Any]) -> ToolOutput:
            """Run this agent on the task in the arguments, and return its answer as the tool's output."""
            state = self.start(arguments["task"])
            state.run = f"{context.run}/{context.idempotency_key[:8]}"
            run = Run[OutputT_co](state)
            resumed = runs is not None and runs.has(state.run)
            parent = context.parent_run
            options = RunOptions(deps=context.deps, parent=parent, approver=context.approver)
            try:
                async for event in self._events(run, options, resumed=resumed):
                    if parent is not None:
                        parent.on_event(SubAgentEvent(agent=self.name, call_id=context.id, inner=event))
            finally:
                if parent is not None:
                    parent.add_usage(state.usage)
            if run.stopped == "waiting" and runs is not None:
                raise CallDeferred
            if run.stopped != "finished":
                message = f"the agent stopped ({run.stopped}): {run.reason}\n{run.text}"
                return ToolOutput(content=(Text(text=message),), is_error=True)
            return ToolOutput(content=(Text(text=run.text),))

        task = {"type": "string", "description": "the task, with all the context that the agent needs"}
        return Tool(
            name=self.name,
            description=self.description or f"Hand a task to the agent {self.name}.",
            parameters={
                "type": "object",
                "properties": {"task": task},
                "required": ["task"],
                "additionalProperties": False,
            },
            run=run_task,
            source=f"agent:{self.name}",
            resumable=runs is not None,
            timeout=self._settings.limits.seconds or 86_400.0,
        )

    @contextlib.contextmanager
    def override(self, *, model: Model | str, approver: Approver | None = None) -> Iterator[Self]:
        """Use another model, and another approver if given, for runs that start within the context, as in tests."""
        check_override(model, approver)
        before = self._model, self._open_model, self._fallbacks, self._approver
        self._model, self._open_model, self._fallbacks, self._approver = model, None, (), approver or self._approver
        try:
            yield self
        finally:
            self._model, self._open_model, self._fallbacks, self._approver = before

    # ---- resources

    async def aclose(self) -> None:
        """Close the tools, the model and telemetry."""
        await self._toolbox.close()
        if self._open_model is not None and self._open_model[0] is asyncio.get_running_loop():
            await self._open_model[1].close()
        self._open_model = None
        if self._telemetry is not None:
            self._telemetry.close()

    def close(self) -> None:
        """Close the agent from synchronous code."""
        _run_blocking(self.aclose())

    def __enter__(self) -> Self:
        if has_running_loop():
            raise ToolwireError("an event loop is running: use `async with`")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _run_blocking(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, unless an event loop is already running."""
    if has_running_loop():
        coroutine.close()
        raise ToolwireError("an event loop is running: use `await agent.aclose()`")
    run_sync(coroutine)
