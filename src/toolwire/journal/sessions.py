"""The store of sessions: conversations with an id, which several runs continue one after the other.

A session holds the messages of its ended runs, and names the run that is in progress or was interrupted. A version
number makes sure that only one of several processes adds the next run.
"""

import time
from typing import Any

from msgspec import Struct

from toolwire.codec.options import require_integer
from toolwire.journal.run_database import RunDatabase
from toolwire.journal.store import JournalError

_COLUMNS = "id, began, updated, version, agent, run, history"
_INSERT = """
INSERT INTO sessions (id, began, updated, version, agent, run, history)
VALUES (:session, :at, :at, 1, :agent, :run, :history) ON CONFLICT (id) DO NOTHING
"""
_ENTER = """
UPDATE sessions SET updated = :at, version = version + 1, agent = :agent, run = :run, history = :history
WHERE id = :session AND version = :version
"""
_SAVE = """
UPDATE sessions SET updated = :at, version = version + 1, agent = :agent, run = NULL, history = :history
WHERE id = :session AND run = :run
"""
_MAX_ID_LENGTH = 200


class SessionInUse(JournalError):
    """A run of the session is in progress or waits for an approval, so no other run can start."""


class StoredSession(Struct, frozen=True):
    """A session as stored."""

    id: str
    began_at: float
    """Start of its first run, in seconds since the epoch."""
    updated_at: float
    version: int = 0
    """Number of changes."""
    agent: str = ""
    """Name of the agent that answered last."""
    run: str | None = None
    """The run that is in progress or was interrupted."""
    history: bytes = b"[]"
    """Messages of the runs before it, as JSON."""


class SessionStore:
    """The sessions in the database of a run store."""

    def __init__(self, database: RunDatabase, max_age_days: float) -> None:
        self._database = database
        self._max_age = max_age_days * 86_400.0

    def find(self, session: str) -> StoredSession:
        """Return a session; an empty one if none is stored."""
        check_session_id(session)
        rows = self._database.select(f"SELECT {_COLUMNS} FROM sessions WHERE id = :session", {"session": session})  # noqa: S608 - constant
        return StoredSession(*rows[0]) if rows else StoredSession(session, time.time(), time.time())

    def latest(self, count: int = 100) -> list[StoredSession]:
        """Return the sessions that changed last, newest first."""
        require_integer("count", count, 1)
        statement = f"SELECT {_COLUMNS} FROM sessions ORDER BY updated DESC, id LIMIT :count"  # noqa: S608 - constant
        return [StoredSession(*row) for row in self._database.select(statement, {"count": count})]

    def enter(self, session: StoredSession, run: str, history: bytes) -> bool:
        """Make `run` the run of a session, after `history`; False if the session has changed since it was read."""
        self._prune()
        values = self._values(session.id, run, session.agent, history)
        statement = _ENTER if session.version else _INSERT
        if session.version:
            values["version"] = session.version
        if self._database.update(statement, values) != 1 and self.find(session.id).run != run:
            return False
        self._database.update("UPDATE runs SET session = :session WHERE id = :run", {"session": session.id, "run": run})
        return True

    def save(self, session: str, run: str, agent: str, history: bytes) -> None:
        """Store the messages of a session after a run, unless another run has followed."""
        self._database.update(_SAVE, self._values(session, run, agent, history))

    def runs(self, session: str) -> list[str]:
        """Return the ids of a session's runs and of the runs of their sub-agents."""
        found = list[str]()
        for (run,) in self._database.select("SELECT id FROM runs WHERE session = :session", {"session": session}):
            children = {"first": f"{run}/", "last": f"{run}0"}
            rows = self._database.select("SELECT id FROM runs WHERE id >= :first AND id < :last", children)
            found += [run, *(child for (child,) in rows)]
        return found

    def delete(self, session: str) -> None:
        """Delete a session; `RunStore.delete_session` deletes its runs as well."""
        self._database.update("DELETE FROM sessions WHERE id = :session", {"session": session})

    def _values(self, session: str, run: str, agent: str, history: bytes) -> dict[str, Any]:
        """Return the values of a statement that changes a session."""
        return {"session": session, "run": run, "agent": agent, "history": history, "at": time.time()}

    def _prune(self) -> None:
        """Delete sessions that have not changed for too long; their runs have an age limit of their own."""
        self._database.update("DELETE FROM sessions WHERE updated < :cutoff", {"cutoff": time.time() - self._max_age})


def check_session_id(session: str) -> None:
    """Raise `JournalError` unless a text can be the id of a session, and `TypeError` for other values."""
    if not isinstance(session, str):
        raise TypeError(f"the id of a session is a string, not {session!r:.50}")
    if not session or len(session) > _MAX_ID_LENGTH or not session.isprintable():
        raise JournalError(f"invalid session id {session[:50]!r}: use 1 to {_MAX_ID_LENGTH} printable characters")
