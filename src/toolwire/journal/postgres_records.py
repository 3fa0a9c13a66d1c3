"""The PostgreSQL store of exchange records, which several gateways write to.

As in SQLite, a row holds a batch of records. Batches are numbered in the order of their commits, so that a follower
misses none.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from toolwire.journal.postgres import PostgresConnection, PostgresSchema, displayed_url
from toolwire.journal.records import Record, RecordBatch, decode_records, encode_records
from toolwire.journal.sqlite_files import DatabaseUnusable
from toolwire.journal.store import MIN_PREFIX, JournalError, match_record

SCHEMA = PostgresSchema(
    "journal",
    migrations=(
        (
            """CREATE TABLE toolwire.batches (
                number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                at double precision NOT NULL,
                ids text[] COLLATE "C" NOT NULL,
                records bytea NOT NULL
            )""",
            "ALTER TABLE toolwire.batches ALTER COLUMN records SET STORAGE EXTERNAL",
        ),
    ),
)
_DAY = 86_400.0
_WRITE_LOCK = 0x7477_6A6F_7572  # "twjour"
_PAGE_SIZE = 20  # batches
_INSERT = "INSERT INTO batches (at, ids, records) VALUES (:at, :ids, :records)"
_SELECT_LATEST = "SELECT number, records FROM batches WHERE number < :before ORDER BY number DESC LIMIT :limit"
_SELECT_AFTER = "SELECT number, records FROM batches WHERE number > :after ORDER BY number LIMIT 100"
_SELECT_BY_ID = """
SELECT number, records FROM batches
WHERE :id = ANY(ids) OR (:is_prefix AND EXISTS (
    SELECT 1 FROM unnest(ids) AS found (id) WHERE starts_with(found.id, :id)
)) ORDER BY number DESC LIMIT 100
"""
_DELETE_OLD = "DELETE FROM batches WHERE at < :cutoff"
_DELETE_LARGE = """
DELETE FROM batches WHERE number <= (
    SELECT max(number) FROM (
        SELECT number, sum(length(records)) OVER (ORDER BY number DESC) AS size FROM batches
    ) AS sized WHERE size > :max_bytes
)
"""


class PostgresRecordStore:
    """A record store in PostgreSQL; `max_age_days` and `max_bytes` limit the records of all gateways together."""

    def __init__(
        self,
        url: str,
        *,
        max_age_days: float | None = None,
        max_bytes: int | None = None,
        store_bodies: bool = True,
        prune_interval: float = 60.0,
    ) -> None:
        self._name = displayed_url(url)
        self._connection = PostgresConnection(url, SCHEMA)
        self._max_age_days = max_age_days
        self._max_bytes = max_bytes
        self._store_bodies = store_bodies
        self._prune_interval = prune_interval
        self._pruned_at = 0.0

    def add(self, batch: RecordBatch) -> None:
        """Write a batch, and prune the records from time to time."""
        data = bytes(batch)
        if batch.bodies and not self._store_bodies:
            data = encode_records([replace(record, bodies=None) for record in batch.records])
        values = {"at": batch.at, "ids": [record.id for record in batch.records], "records": data}
        with self._connection.transaction():
            self._connection.execute("SELECT pg_advisory_xact_lock(:lock)", {"lock": _WRITE_LOCK})
            self._connection.execute(_INSERT, values)
        if time.time() - self._pruned_at > self._prune_interval:
            self._pruned_at = time.time()
            self._prune()

    def find(self, id: str) -> Record | None:
        """Return the record with this id, or the only one whose id begins with it; None if there is none."""
        batches = self._read_batches(_SELECT_BY_ID, {"id": id, "is_prefix": len(id) >= MIN_PREFIX})
        return match_record(id, (record for _, records in batches for record in records))

    def latest(self, count: int) -> list[tuple[int, Record]]:
        """Return the latest records, oldest first, each with its batch number for `records_after`."""
        latest: list[tuple[int, Record]] = []
        before = 2**62
        while len(latest) < count:
            page = list(self._read_batches(_SELECT_LATEST, {"before": before, "limit": _PAGE_SIZE}))
            for number, records in page:
                latest = [(number, record) for record in records] + latest
                before = number
            if len(page) < _PAGE_SIZE:
                break
        return latest[len(latest) - min(count, len(latest)) :]

    def records_after(self, number: int) -> list[tuple[int, Record]]:
        """Return the records of up to 100 later batches, each with its batch number."""
        batches = self._read_batches(_SELECT_AFTER, {"after": number})
        return [(batch_number, record) for batch_number, records in batches for record in records]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _read_batches(self, statement: str, values: Mapping[str, Any]) -> Iterator[tuple[int, list[Record]]]:
        """Yield the number and the records of each selected batch; raise `JournalError` if they can't be read."""
        try:
            for number, data in self._connection.execute(statement, values).fetchall():
                yield number, decode_records(data)
        except DatabaseUnusable as error:
            raise JournalError(f"can't read the journal: {self._name}: {error}") from None
        except msgspec.MsgspecError as error:
            raise JournalError(f"the journal contains an invalid record: {error}") from None

    def _prune(self) -> None:
        """Delete records past their age limit, then the oldest until the rest fits."""
        if self._max_age_days is not None:
            self._connection.execute(_DELETE_OLD, {"cutoff": time.time() - self._max_age_days * _DAY})
        if self._max_bytes is not None:
            self._connection.execute(_DELETE_LARGE, {"max_bytes": self._max_bytes})
