"""The conversation of a session: loaded when a run starts, and stored when it has answered.

A run that was interrupted, failed or reached a limit stays the session's last run. It can be resumed. If a new run
starts instead, the conversation continues with the recorded turns of the old one, so that the model knows which
calls took effect.
"""

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message
from toolwire.canonical.errors import ToolwireError
from toolwire.journal.runs import RunStore, StoredRun, decode_stored
from toolwire.journal.sessions import SessionInUse, StoredSession
from toolwire.runtime.run.events import RunEnded
from toolwire.runtime.run.recorded_run import conversation, read_turns
from toolwire.runtime.run.state import RunState

_ANSWERED = frozenset({"finished", "refused"})
"""Stop causes after which the conversation is complete."""


class _Prompt(Struct, frozen=True):
    """The part of a stored run's metadata that belongs to the conversation."""

    messages: tuple[Message, ...]


class SessionHistory:
    """The conversation of one session."""

    def __init__(self, runs: RunStore, session: str) -> None:
        self._runs = runs
        self._id = session

    def load(self) -> StoredSession:
        """Return the session with the messages of all its runs; raise `SessionInUse` if one is in progress."""
        stored = self._runs.sessions.find(self._id)
        if stored.run is None or not self._runs.has(stored.run):
            return stored
        run = self._runs.find(stored.run)
        if self._runs.is_held(run.id):
            raise SessionInUse(f"session {self._id!r} is in use: run {run.id} has not ended")
        if _is_waiting(run):
            raise SessionInUse(
                f"run {run.id} of session {self._id!r} waits for an approval: continue it with "
                f"agent.session({self._id!r}).resume()"
            )
        history = (*self._decode(stored), *self._recorded_messages(run))
        return replace(stored, history=msgspec.json.encode(history))

    def start(self, state: RunState) -> None:
        """Make a new run the session's run, and put the conversation before its prompt."""
        stored = self.load()
        if not self._runs.sessions.enter(stored, state.run, stored.history):
            raise SessionInUse(f"session {self._id!r} is in use: another run has just started")
        state.messages = (*self._decode(stored), *state.messages)
        state.agent = stored.agent or state.agent

    def resume(self, state: RunState) -> None:
        """Put the conversation before the prompt of the session's interrupted run."""
        stored = self._runs.sessions.find(self._id)
        if stored.run != state.run:
            raise ToolwireError(f"run {state.run} can't be resumed: session {self._id!r} has continued without it")
        state.messages = (*self._decode(stored), *state.messages)
        state.agent = stored.agent or state.agent

    def save(self, state: RunState) -> None:
        """Store the conversation of a run that has answered."""
        if state.stopped in _ANSWERED:
            self._runs.sessions.save(self._id, state.run, state.agent, msgspec.json.encode(state.messages))

    def messages(self) -> tuple[Message, ...]:
        """Return the messages of the runs that have ended."""
        return self._decode(self._runs.sessions.find(self._id))

    def _decode(self, stored: StoredSession) -> tuple[Message, ...]:
        """Return the messages of a stored session."""
        return decode_stored(stored.history, tuple[Message, ...], f"session {self._id}")

    def _recorded_messages(self, run: StoredRun) -> tuple[Message, ...]:
        """Return the messages that an interrupted run added; none if the model had not responded."""
        prompt = decode_stored(run.metadata, _Prompt, f"the run {run.id}").messages
        turns = read_turns(self._runs.steps(run.id))
        return conversation(prompt, turns) if any(turn.response is not None for turn in turns) else ()


def _is_waiting(run: StoredRun) -> bool:
    """Return True for a run that ended to wait for an approval."""
    ended = run.end_event
    return ended is not None and decode_stored(ended, RunEnded, f"the run {run.id}").stopped == "waiting"
