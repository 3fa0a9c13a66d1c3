"""The state store in PostgreSQL, shared by gateways on several machines (extra `postgres`).

A thread writes and several read, each with a connection of its own. Written frames of background responses are
announced with NOTIFY, so that followers on other machines need not poll.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from toolwire.gateway.state.sql_store import SqlStateStore
from toolwire.gateway.state.store import ChildWait, Row, StoreLimits
from toolwire.journal.listener import PostgresListener
from toolwire.journal.postgres import PostgresConnection, PostgresSchema, displayed_url, storable_text
from toolwire.journal.sqlite_files import LOCK_TIMEOUT

STATE_SCHEMA = PostgresSchema(
    "state",
    migrations=(
        (
            """CREATE TABLE toolwire.kept (
                serial bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                owner text COLLATE "C" NOT NULL,
                kind text COLLATE "C" NOT NULL,
                id text COLLATE "C" NOT NULL,
                parent text COLLATE "C",
                body bytea NOT NULL,
                used double precision NOT NULL,
                UNIQUE (owner, kind, id)
            )""",
            "CREATE INDEX kept_under ON toolwire.kept (owner, kind, parent, serial) WHERE parent IS NOT NULL",
            "CREATE INDEX kept_used ON toolwire.kept (used)",
        ),
    ),
)
_READERS = 4
_CHANNEL = "toolwire_rows"
_LISTEN = "LISTEN toolwire_rows"
_ANNOUNCED_KINDS = frozenset({"frames"})
_COUNT_INTERVAL = 60.0  # seconds between counts of the rows that all gateways wrote
_TRIM_TIMEOUT = 120_000  # milliseconds
_TRIM_LOCK = 0x7477_7472_696D  # "twtrim"
_SET_TIMEOUT = "SELECT set_config('statement_timeout', :milliseconds, false)"
_INSERT_ROWS = """
INSERT INTO kept (owner, kind, id, parent, body, used)
SELECT new.owner, new.kind, new.id, new.parent, new.body, :used FROM unnest(
    CAST(:owners AS text[]), CAST(:kinds AS text[]), CAST(:ids AS text[]), CAST(:parents AS text[]),
    CAST(:bodies AS bytea[])
) WITH ORDINALITY AS new (owner, kind, id, parent, body, number) ORDER BY new.number
ON CONFLICT (owner, kind, id) DO UPDATE SET parent = excluded.parent, body = excluded.body, used = excluded.used
"""
_SELECT_ROWS = """
SELECT serial, used, id, body FROM kept WHERE owner = :owner AND kind = :kind AND id = ANY(:ids) AND used > :since
"""
# `LATERAL` and `OFFSET 0` make the server look each ancestor up by its id. With statistics of a table that was still
# empty, it would read all rows of the owner instead.
_LINEAGE = """
WITH RECURSIVE line (serial, used, id, parent, body, depth) AS (
    SELECT serial, used, id, parent, body, 0 FROM kept
    WHERE owner = :owner AND kind = :kind AND id = :id AND used > :since
    UNION ALL
    SELECT ancestor.serial, ancestor.used, ancestor.id, ancestor.parent, ancestor.body, line.depth + 1
    FROM line CROSS JOIN LATERAL (
        SELECT serial, used, id, parent, body FROM kept
        WHERE owner = :owner AND kind = :kind AND id = line.parent AND used > :since OFFSET 0
    ) AS ancestor WHERE line.depth < :deepest
)
SELECT serial, used, id, parent, body FROM line ORDER BY depth DESC
"""


class PostgresStateStore(SqlStateStore[PostgresConnection]):
    """A `StateStore` in PostgreSQL."""

    is_shared = True
    lineage_statement = _LINEAGE

    def __init__(
        self,
        url: str,
        limits: StoreLimits,
        *,
        timeout: float = LOCK_TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`timeout` limits the seconds to connect, and those of each statement and each wait for a lock."""
        super().__init__(displayed_url(url), limits, readers=_READERS, busy_timeout=timeout, clock=clock)
        self._url = url
        self._counted_at = 0.0
        self._listener = PostgresListener(url, STATE_SCHEMA, _LISTEN, timeout)

    def version(self) -> object:
        """Return a new object, since other machines write without telling."""
        return object()

    @contextmanager
    def watch_children(self, owner: str, kind: str, parent: str) -> Iterator[ChildWait]:
        """Return a function that waits until rows with this parent are announced, for a second at most."""
        with self._listener.watch(_topic(owner, kind, parent)) as wait:
            yield wait

    def close(self) -> None:
        """Write queued rows and close all connections."""
        self._listener.close()
        super().close()

    def _connect(self) -> PostgresConnection:
        connection = PostgresConnection(self._url, STATE_SCHEMA, timeout=self._busy_timeout, clock=self._clock)
        connection.open()
        return connection

    def _transaction(self, connection: PostgresConnection) -> AbstractContextManager[None]:
        return connection.transaction()

    def _lock_row(self, connection: PostgresConnection, row: Row) -> None:
        digest = hashlib.blake2b(f"{row.owner}\0{row.kind}\0{row.id}".encode(errors="surrogatepass"), digest_size=8)
        lock = int.from_bytes(digest.digest(), signed=True)
        connection.execute("SELECT pg_advisory_xact_lock(:lock)", {"lock": lock})

    def _insert_rows(self, connection: PostgresConnection, rows: Sequence[Row]) -> None:
        """Insert or replace rows in one statement, which is a transaction."""
        self._write_rows(connection, rows)
        self._note_written(rows)

    def _write_rows(self, connection: PostgresConnection, rows: Sequence[Row]) -> None:
        latest = {(row.owner, row.kind, row.id): row for row in rows}.values()
        columns = {
            "owners": [row.owner for row in latest],
            "kinds": [row.kind for row in latest],
            "ids": [row.id for row in latest],
            "parents": [row.parent for row in latest],
            "bodies": [row.body for row in latest],
        }
        connection.execute(_INSERT_ROWS, {**columns, "used": time.time()})
        topics = {_topic(row.owner, row.kind, row.parent or "") for row in rows if row.kind in _ANNOUNCED_KINDS}
        for topic in topics:
            connection.execute("SELECT pg_notify(:channel, :topic)", {"channel": _CHANNEL, "topic": topic})

    def _select_rows(
        self, connection: PostgresConnection, owner: str, kind: str, ids: Sequence[str]
    ) -> list[tuple[Any, ...]]:
        asked = {storable_text(id): id for id in ids}
        values = {"owner": owner, "kind": kind, "ids": list(asked), "since": self._expiry_cutoff()}
        rows = {
            id: (serial, used, asked[id], body) for serial, used, id, body in connection.execute(_SELECT_ROWS, values)
        }
        return [rows[id] for id in asked if id in rows]

    def _needs_trim(self) -> bool:
        """Count rows from time to time, since other machines write too."""
        return time.time() - self._counted_at > _COUNT_INTERVAL or super()._needs_trim()

    def _trim_rows(self, connection: PostgresConnection) -> None:
        """Trim the rows, unless another machine does it now."""
        with self._long_statements(connection):
            if not connection.execute("SELECT pg_try_advisory_lock(:lock)", {"lock": _TRIM_LOCK}).fetchone()[0]:
                return
            try:
                self._load_counts(connection)
                super()._trim_rows(connection)
            finally:
                connection.execute("SELECT pg_advisory_unlock(:lock)", {"lock": _TRIM_LOCK})

    def _load_counts(self, connection: PostgresConnection) -> None:
        super()._load_counts(connection)
        self._counted_at = time.time()

    @contextmanager
    def _long_statements(self, connection: PostgresConnection) -> Iterator[None]:
        """Allow statements to take longer than those that requests wait for."""
        connection.execute(_SET_TIMEOUT, {"milliseconds": str(_TRIM_TIMEOUT)})
        try:
            yield
        finally:
            connection.execute(_SET_TIMEOUT, {"milliseconds": str(round(1000 * self._busy_timeout))})


def _topic(owner: str, kind: str, parent: str) -> str:
    """Return what announces rows with this parent."""
    return hashlib.blake2s(f"{owner}\0{kind}\0{parent}".encode(errors="surrogatepass"), digest_size=16).hexdigest()
