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
from toolwire.gateway.inside import open_model
from toolwire.journal.runs import Runs, RunSteps, decode_entry
from toolwire.journal.secrets import Redactor
from toolwire.journal.telemetry import telemetry_of
from toolwire.runtime.approval import Person
from toolwire.runtime.caps import Caps
from toolwire.runtime.events import RunEvent
from toolwire.runtime.keeping import BoundPictures
from toolwire.runtime.loop import Loop, Settings, ended
from toolwire.runtime.model import Model, ModelFailed
from toolwire.runtime.policy import Policy
from toolwire.runtime.portal import is_asynchronous, wait_for
from toolwire.runtime.run import Run, RunStream
from toolwire.runtime.search.deferred import Deferred
from toolwire.runtime.spans import RunSpans
from toolwire.runtime.state import State
from toolwire.runtime.steps import Remembered, Steps
from toolwire.runtime.toolbox import Toolbox
from toolwire.runtime.toolset import Calling, Offered, Output, Postponed, Tool

Prompt: TypeAlias = str | Sequence[Text | Media]
Effort = Literal["minimal", "low", "medium", "high"]


class About(Struct, frozen=True, kw_only=True):
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
        tools: Sequence[Offered] = (),
        policy: Policy | None = None,
        instructions: str = "",
        caps: Caps | None = None,
        person: Person | None = None,
        journal: Runs | Path | str | None = None,
        thinking: Effort | None = None,
        max_tokens: int | None = None,
        parallel: bool = True,
        repair: bool = False,
        code: bool = False,
        search_above: int = 40,
        always: Sequence[str] = (),
        name: str = "agent",
        description: str = "",
        config: Config | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.description = description
        self._model = model
        self._person = person
        self._config = config
        self._toolbox = Toolbox(tools)
        self._runs = Runs(Path(journal)) if isinstance(journal, Path | str) else journal
        self._opened: tuple[asyncio.AbstractEventLoop, Model] | None = None
        self._telemetry = telemetry_of(os.environ, warnings.warn)
        self._settings = Settings(
            instructions=instructions,
            policy=policy or Policy(),
            caps=caps or Caps(),
            parallel=parallel,
            repair=repair,
            thinking=_thinking(thinking),
            sampling=None if max_tokens is None else Sampling(max_tokens=max_tokens),
            redactor=Redactor(secrets),
            search=Deferred(search_above, always=always),
            code=code,
        )

    # ---- the whole cycle

    def run(
        self,
        prompt: Prompt,
        *,
        after: Sequence[Message] = (),
        facts: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Run:
        """Until there is an answer, or a reason to stop. `after` is the conversation so far. A run that the provider or
        a limit kept from its answer raises `RunFailed`; without `check`, look at `run.ok` and `run.stopped`."""
        return self._run(Run(self.start(prompt, after=after), check=check), facts)

    def stream(
        self, prompt: Prompt, *, after: Sequence[Message] = (), facts: Mapping[str, str] | None = None
    ) -> RunStream:
        """The same, as events."""
        run = Run(self.start(prompt, after=after))
        return RunStream(run, self._events(run, facts))

    def resume(self, run: str) -> RunStream:
        """Take up a run of the journal where it was left. What was finished is not done again."""
        if self._runs is None:
            raise ToolwireError("an agent without a journal has nothing to resume")
        kept = self._runs.find(run)
        about = decode_entry(kept.about, About, f"the run {kept.id}")
        resumed = Run(State(run=kept.id, messages=about.messages))
        return RunStream(resumed, self._events(resumed, resumed=True))

    def _run(self, run: Run, facts: Mapping[str, str] | None) -> Run:
        async def work() -> None:
            async for _ in self._events(run, facts):
                pass

        if is_asynchronous():
            run.follow(asyncio.ensure_future(work()))
            return run
        wait_for(work())
        return run.checked()

    async def _events(
        self,
        run: Run,
        facts: Mapping[str, str] | None = None,
        *,
        resumed: bool = False,
        tokens: int | None = None,
    ) -> AsyncIterator[RunEvent]:
        state = run.state
        loop, held = await self._loop(state, facts, resumed=resumed, tokens=tokens)
        spans = None if self._telemetry is None else RunSpans(self._telemetry.tracer, self.name)
        try:
            async for event in loop.events(state, resumed=resumed):
                run.take(event)
                if spans is not None:
                    spans.take(event)
                yield event
        finally:
            await loop.close()
            await self._toolbox.end_run(state.run)
            if spans is not None:
                spans.close()
            run.end()
            if held is not None:
                held.end(msgspec.json.encode(ended(state)))

    # ---- one step at a time

    def start(self, prompt: Prompt, *, after: Sequence[Message] = ()) -> State:
        """A run that has not begun."""
        parts = (Text(text=prompt),) if isinstance(prompt, str) else tuple(prompt)
        identity = f"run_{time.strftime('%Y%m%d%H%M%S', time.gmtime())}_{secrets.token_hex(4)}"
        return State(run=identity, messages=(*after, Message(role="user", parts=parts)))

    def step(self, state: State | Prompt) -> State:
        """One turn: what waits is carried out, then the model is asked. It stops before anything is executed: look at
        `pending`, and approve, deny or answer."""
        found = state if isinstance(state, State) else self.start(state)
        if asks := found.asks:
            raise ToolwireError(f"{asks[0].tool} ({asks[0].call_id}) is to be approved, denied or answered first")
        if is_asynchronous():
            found.working = asyncio.ensure_future(self._step(found))
        else:
            wait_for(self._step(found))
        return found

    async def _step(self, state: State) -> None:
        if state.stopped is not None:
            raise ToolwireError(f"the run has ended: {state.stopped}")
        if not state.began:
            state.began = time.monotonic()
        loop, held = await self._loop(state, None, resumed=state.turn > 0)
        try:
            if state.pending:
                async for _ in loop.carry_out(state):
                    pass
            if state.stopped is None:
                async for _ in loop.propose(state):
                    pass
        except ModelFailed as failed:
            state.stopped, state.why = "failed", str(failed)
        finally:
            await loop.close()
            if held is not None and state.stopped is None:
                held.release()  # until the next step
        if state.stopped is not None:
            await self._toolbox.end_run(state.run)
            if held is not None:
                held.end(msgspec.json.encode(ended(state)))

    async def _loop(
        self, state: State, facts: Mapping[str, str] | None, *, resumed: bool, tokens: int | None = None
    ) -> tuple[Loop, RunSteps | None]:
        """The loop of a run, and the run in the journal, which is held until it is ended or released. `tokens` is a cap
        beside its own."""
        model = await self._open()
        held = None
        if self._runs is not None and resumed:
            held = self._runs.take_up(state.run)
        elif self._runs is not None:
            about = About(agent=self.name, model=model.name, messages=state.messages, facts=dict(facts or {}))
            held = self._runs.begin(state.run, msgspec.json.encode(about))
        steps: Steps = Remembered() if held is None else held
        settings = self._settings
        if tokens is not None:
            least = tokens if settings.caps.tokens is None else min(tokens, settings.caps.tokens)
            settings = replace(settings, caps=replace(settings.caps, tokens=least))
        return Loop(model, self._toolbox, settings, BoundPictures(steps), self._person), held

    async def _open(self) -> Model:
        """The model, for the event loop that asks."""
        if self._model is not None and not isinstance(self._model, str):
            return self._model
        here = asyncio.get_running_loop()
        if self._opened is None or self._opened[0] is not here:
            self._opened = (here, await open_model(self._model, self._config))
        return self._opened[1]

    # ---- an agent among the tools of another

    def as_tool(self) -> Tool:
        """Another agent can hand it a task. What it may do is its own policy's to say. With a journal, it is taken up
        again with the run that handed it over, and that run waits for what it waits for."""
        runs = self._runs

        async def work(arguments: Any, calling: Calling) -> Output:
            state = self.start(arguments["task"])
            state.run = f"{calling.run}/{calling.key[:8]}"
            run = Run(state)
            again = runs is not None and runs.has(state.run)
            async for _ in self._events(run, resumed=again, tokens=calling.tokens):
                pass
            if run.stopped == "waiting" and runs is not None:
                raise Postponed
            if run.stopped != "finished":
                return Output(
                    content=(Text(text=f"it stopped ({run.stopped}): {run.why}\n{run.text}"),),
                    is_error=True,
                    usage=run.usage,
                )
            return Output(content=(Text(text=run.text),), usage=run.usage)

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
            timeout=self._settings.caps.seconds or 86_400.0,
        )

    # ---- what it holds open

    async def aclose(self) -> None:
        await self._toolbox.close()
        if self._opened is not None and self._opened[0] is asyncio.get_running_loop():
            await self._opened[1].close()
        self._opened = None
        if self._telemetry is not None:
            self._telemetry.close()

    def close(self) -> None:
        _blocking(self.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _blocking(coroutine: Coroutine[Any, Any, None]) -> None:
    if is_asynchronous():
        coroutine.close()
        raise ToolwireError("in asynchronous code, close an agent with `await agent.aclose()`")
    wait_for(coroutine)


def _thinking(effort: Effort | None) -> Thinking | None:
    return None if effort is None else Thinking(enabled=True, effort=effort)
