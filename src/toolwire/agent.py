"""An agent: a model, tools, and what it may do with them. The same loop in code that is asynchronous or not.

    agent = Agent("anthropic/claude-sonnet-4-5", tools=[weather], policy=Policy(allow=["weather"]))
    print(agent.run("Is it raining in Oslo?").text)

Where an event loop runs already, `run` and `step` are to be awaited, and a stream is read with `async for`.
"""

import asyncio
import os
import secrets
import time
import warnings
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.canonical.content import Media, Message, Text
from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.tools import Sampling, Thinking
from toolwire.gateway.config import Config
from toolwire.gateway.in_process import open_model
from toolwire.journal.redaction import Redactor
from toolwire.journal.runs import RunStepLog, RunStore, decode_stored
from toolwire.journal.telemetry import configure_telemetry
from toolwire.runtime.calls.approval import Approver
from toolwire.runtime.model import Model, ModelFailed
from toolwire.runtime.policy import Policy
from toolwire.runtime.portal import has_running_loop, run_sync
from toolwire.runtime.run.events import RunEvent
from toolwire.runtime.run.limits import RunLimits
from toolwire.runtime.run.loop import Loop, RunSettings, run_ended
from toolwire.runtime.run.recorded_run import ImageBudget
from toolwire.runtime.run.result import Run, RunStream
from toolwire.runtime.run.state import RunState
from toolwire.runtime.run.step_log import InMemoryStepLog, StepLog
from toolwire.runtime.run.tracing import RunTracer
from toolwire.runtime.search.deferred_tools import DeferredTools
from toolwire.runtime.tool import CallDeferred, Tool, ToolContext, ToolOutput, ToolSource
from toolwire.runtime.toolbox import Toolbox

Prompt: TypeAlias = str | Sequence[Text | Media]
Effort = Literal["minimal", "low", "medium", "high"]


class RunMetadata(Struct, frozen=True, kw_only=True):
    """How a run was started: what it takes to take it up again, and `facts` of whoever started it."""

    agent: str
    model: str
    messages: tuple[Message, ...]
    facts: dict[str, str] = field(default_factory=dict)


class Agent:
    """`model` is a name as the gateway knows it, or anything that can be asked; None is the default of the only
    provider there is, or the embedded simulator. `person` is who can be asked: with nobody there, what is not allowed
    is denied. `journal` is where runs are kept, so that they can be taken up again. With `code` the model may write
    programs that call tools; more tools than `search_above` are behind a search, but for those `always` told."""

    def __init__(
        self,
        model: str | Model | None = None,
        *,
        tools: Sequence[ToolSource] = (),
        policy: Policy | None = None,
        instructions: str = "",
        limits: RunLimits | None = None,
        approver: Approver | None = None,
        journal: RunStore | Path | str | None = None,
        thinking: Effort | None = None,
        max_tokens: int | None = None,
        parallel: bool = True,
        repair: bool = False,
        code: bool = False,
        search_above: int = 40,
        always_offered: Sequence[str] = (),
        name: str = "agent",
        description: str = "",
        config: Config | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.description = description
        self._model = model
        self._approver = approver
        self._config = config
        self._toolbox = Toolbox(tools)
        self._runs = RunStore(Path(journal)) if isinstance(journal, Path | str) else journal
        self._open_model: tuple[asyncio.AbstractEventLoop, Model] | None = None
        self._telemetry = configure_telemetry(os.environ, warnings.warn)
        self._settings = RunSettings(
            instructions=instructions,
            policy=policy or Policy(),
            limits=limits or RunLimits(),
            parallel=parallel,
            repair=repair,
            thinking=_thinking_settings(thinking),
            sampling=None if max_tokens is None else Sampling(max_tokens=max_tokens),
            redactor=Redactor(secrets),
            deferred_tools=DeferredTools(search_above, always=always_offered),
            code=code,
        )

    # ---- the whole cycle

    def run(
        self,
        prompt: Prompt,
        *,
        history: Sequence[Message] = (),
        facts: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Run:
        """Until there is an answer, or a reason to stop. `after` is the conversation so far. A run that the provider or
        a limit kept from its answer raises `RunFailed`; without `check`, look at `run.ok` and `run.stopped`."""
        return self._run(Run(self.start(prompt, history=history), check=check), facts)

    def stream(
        self, prompt: Prompt, *, history: Sequence[Message] = (), facts: Mapping[str, str] | None = None
    ) -> RunStream:
        """The same, as events."""
        run = Run(self.start(prompt, history=history))
        return RunStream(run, self._events(run, facts))

    def resume(self, run: str) -> RunStream:
        """Take up a run of the journal where it was left. What was finished is not done again."""
        if self._runs is None:
            raise ToolwireError("an agent without a journal has nothing to resume")
        kept = self._runs.find(run)
        about = decode_stored(kept.metadata, RunMetadata, f"the run {kept.id}")
        resumed = Run(RunState(run=kept.id, messages=about.messages))
        return RunStream(resumed, self._events(resumed, resumed=True))

    def _run(self, run: Run, facts: Mapping[str, str] | None) -> Run:
        async def work() -> None:
            async for _ in self._events(run, facts):
                pass

        if has_running_loop():
            run.attach_task(asyncio.ensure_future(work()))
            return run
        run_sync(work())
        return run.check_outcome()

    async def _events(
        self,
        run: Run,
        facts: Mapping[str, str] | None = None,
        *,
        resumed: bool = False,
        token_limit: int | None = None,
    ) -> AsyncIterator[RunEvent]:
        state = run.state
        loop, held = await self._open_loop(state, facts, resumed=resumed, token_limit=token_limit)
        spans = None if self._telemetry is None else RunTracer(self._telemetry.tracer, self.name)
        try:
            async for event in loop.events(state, resumed=resumed):
                run.on_event(event)
                if spans is not None:
                    spans.on_event(event)
                yield event
        finally:
            await loop.close()
            await self._toolbox.end_run(state.run)
            if spans is not None:
                spans.close()
            run.mark_ended()
            if held is not None:
                held.end(msgspec.json.encode(run_ended(state)))

    # ---- one step at a time

    def start(self, prompt: Prompt, *, history: Sequence[Message] = ()) -> RunState:
        """A run that has not begun."""
        parts = (Text(text=prompt),) if isinstance(prompt, str) else tuple(prompt)
        identity = f"run_{time.strftime('%Y%m%d%H%M%S', time.gmtime())}_{secrets.token_hex(4)}"
        return RunState(run=identity, messages=(*history, Message(role="user", parts=parts)))

    def step(self, state: RunState | Prompt) -> RunState:
        """One turn: what waits is carried out, then the model is asked. It stops before anything is executed: look at
        `pending`, and approve, deny or answer."""
        found = state if isinstance(state, RunState) else self.start(state)
        if asks := found.approval_requests:
            raise ToolwireError(f"{asks[0].tool} ({asks[0].call_id}) is to be approved, denied or answered first")
        if has_running_loop():
            found.task = asyncio.ensure_future(self._step(found))
        else:
            run_sync(self._step(found))
        return found

    async def _step(self, state: RunState) -> None:
        if state.stopped is not None:
            raise ToolwireError(f"the run has ended: {state.stopped}")
        if not state.started_at:
            state.started_at = time.monotonic()
        loop, held = await self._open_loop(state, None, resumed=state.turn > 0)
        try:
            if state.pending:
                async for _ in loop.execute_turn(state):
                    pass
            if state.stopped is None:
                async for _ in loop.request_turn(state):
                    pass
        except ModelFailed as failed:
            state.stopped, state.reason = "failed", str(failed)
        finally:
            await loop.close()
            if held is not None and state.stopped is None:
                held.release()  # until the next step
        if state.stopped is not None:
            await self._toolbox.end_run(state.run)
            if held is not None:
                held.end(msgspec.json.encode(run_ended(state)))

    async def _open_loop(
        self, state: RunState, facts: Mapping[str, str] | None, *, resumed: bool, token_limit: int | None = None
    ) -> tuple[Loop, RunStepLog | None]:
        """The loop of a run, and the run in the journal, which is held until it is ended or released. `tokens` is a cap
        beside its own."""
        model = await self._get_model()
        held = None
        if self._runs is not None and resumed:
            held = self._runs.resume(state.run)
        elif self._runs is not None:
            about = RunMetadata(agent=self.name, model=model.name, messages=state.messages, facts=dict(facts or {}))
            held = self._runs.begin(state.run, msgspec.json.encode(about))
        steps: StepLog = InMemoryStepLog() if held is None else held
        settings = self._settings
        if token_limit is not None:
            least = token_limit if settings.limits.tokens is None else min(token_limit, settings.limits.tokens)
            settings = replace(settings, limits=replace(settings.limits, tokens=least))
        return Loop(model, self._toolbox, settings, ImageBudget(steps), self._approver), held

    async def _get_model(self) -> Model:
        """The model, for the event loop that asks."""
        if self._model is not None and not isinstance(self._model, str):
            return self._model
        here = asyncio.get_running_loop()
        if self._open_model is None or self._open_model[0] is not here:
            self._open_model = (here, await open_model(self._model, self._config))
        return self._open_model[1]

    # ---- an agent among the tools of another

    def as_tool(self) -> Tool:
        """Another agent can hand it a task. What it may do is its own policy's to say. With a journal, it is taken up
        again with the run that handed it over, and that run waits for what it waits for."""
        runs = self._runs

        async def work(arguments: Any, calling: ToolContext) -> ToolOutput:
            state = self.start(arguments["task"])
            state.run = f"{calling.run}/{calling.idempotency_key[:8]}"
            run = Run(state)
            again = runs is not None and runs.has(state.run)
            async for _ in self._events(run, resumed=again, token_limit=calling.remaining_tokens):
                pass
            if run.stopped == "waiting" and runs is not None:
                raise CallDeferred
            if run.stopped != "finished":
                return ToolOutput(
                    content=(Text(text=f"it stopped ({run.stopped}): {run.reason}\n{run.text}"),),
                    is_error=True,
                    usage=run.usage,
                )
            return ToolOutput(content=(Text(text=run.text),), usage=run.usage)

        task = {"type": "string", "description": "what it is to do, and all that it needs to know for it"}
        return Tool(
            name=self.name,
            description=self.description or f"hands a task to the agent {self.name}",
            parameters={
                "type": "object",
                "properties": {"task": task},
                "required": ["task"],
                "additionalProperties": False,
            },
            run=work,
            source=f"agent:{self.name}",
            resumable=runs is not None,
            timeout=self._settings.limits.seconds or 86_400.0,
        )

    # ---- what it holds open

    async def aclose(self) -> None:
        await self._toolbox.close()
        if self._open_model is not None and self._open_model[0] is asyncio.get_running_loop():
            await self._open_model[1].close()
        self._open_model = None
        if self._telemetry is not None:
            self._telemetry.close()

    def close(self) -> None:
        _run_blocking(self.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _run_blocking(coroutine: Coroutine[Any, Any, None]) -> None:
    if has_running_loop():
        coroutine.close()
        raise ToolwireError("in asynchronous code, close an agent with `await agent.aclose()`")
    run_sync(coroutine)


def _thinking_settings(effort: Effort | None) -> Thinking | None:
    return None if effort is None else Thinking(enabled=True, effort=effort)
