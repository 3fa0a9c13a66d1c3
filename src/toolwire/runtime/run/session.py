"""A session: a conversation that an agent's journal stores under an id."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, Unpack

from toolwire.canonical.content import Message
from toolwire.canonical.errors import ToolwireError
from toolwire.journal.runs import RunStore
from toolwire.journal.sessions import SessionInUse
from toolwire.runtime.run.model_settings import ModelSettings
from toolwire.runtime.run.result import OutputT_co, Run, RunStream
from toolwire.runtime.run.session_history import SessionHistory
from toolwire.runtime.tool import DepsT

if TYPE_CHECKING:
    from toolwire.agent import Agent
    from toolwire.runtime.run.prompt import Prompt


class Session(Generic[OutputT_co, DepsT]):
    """A conversation with an agent that its journal stores under an id; see `Agent.session`."""

    def __init__(self, agent: "Agent[OutputT_co, DepsT]", runs: RunStore, id: str) -> None:
        self.id = id
        self._agent = agent
        self._runs = runs

    def run(
        self,
        prompt: "Prompt",
        *,
        facts: Mapping[str, str] | None = None,
        deps: DepsT | None = None,
        check: bool = True,
        **settings: Unpack[ModelSettings],
    ) -> Run[OutputT_co]:
        """Continue the conversation with a prompt, as `Agent.run` does.

        Raises `SessionInUse` while another run of the session has not ended or waits for an approval.
        """
        return self._agent.run(prompt, session=self.id, facts=facts, deps=deps, check=check, **settings)

    def stream(
        self,
        prompt: "Prompt",
        *,
        facts: Mapping[str, str] | None = None,
        deps: DepsT | None = None,
        **settings: Unpack[ModelSettings],
    ) -> RunStream[OutputT_co]:
        """Continue the conversation with a prompt, and return a stream of events, as `Agent.stream` does."""
        return self._agent.stream(prompt, session=self.id, facts=facts, deps=deps, **settings)

    def resume(self, *, deps: DepsT | None = None) -> RunStream[OutputT_co]:
        """Resume the last run, if it was interrupted, failed, or waits for an approval."""
        run = self._runs.sessions.find(self.id).run
        if run is None:
            raise ToolwireError(f"session {self.id!r} has no run to resume")
        return self._agent.resume(run, deps=deps)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation, without a run that has not ended."""
        return SessionHistory(self._runs, self.id).messages()

    def delete(self) -> None:
        """Delete the conversation and its runs from the journal; raise `SessionInUse` while one is in progress."""
        run = self._runs.sessions.find(self.id).run
        if run is not None and self._runs.is_held(run):
            raise SessionInUse(f"session {self.id!r} is in use: run {run} has not ended")
        self._runs.delete_session(self.id)
