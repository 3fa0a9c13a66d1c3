"""Where records are kept: one SQLite file that only its user may read, bounded in age and size.

A row is a batch, as the writer hands it over: a row for each record would cost more than all the rest of recording it.
Rows are numbered as they come, so that the oldest ones are first and nothing has to be searched to forget them. There
is no index of ids: a look-up is for a person, who can wait for a scan.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from toolwire.canonical.errors import ToolwireError
from toolwire.journal.records import Record, RecordBatch, decode_records, encode_records
from toolwire.journal.sqlite_files import (
    DatabaseSchema,
    DatabaseUnusable,
    database_unusable,
    is_busy,
    open_database,
    os_error_reason,
    prepare_database,
)
from toolwire.journal.writer import RecordSink

_DAY = 86_400.0
SCHEMA = DatabaseSchema(
    migrations=(("CREATE TABLE IF NOT EXISTS batches (number INTEGER PRIMARY KEY, at REAL, records BLOB)",),),
    columns={"batches": frozenset({"number", "at", "records"})},
)


class JournalError(ToolwireError):
    """The journal can't be opened or read, or does not hold what is asked for."""


class RecordStore(RecordSink, Protocol):
    """Keeps records, and finds them again."""

    def find(self, id: str) -> Record | None: ...
    def latest(self, count: int) -> list[tuple[int, Record]]: ...
    def records_after(self, number: int) -> list[tuple[int, Record]]: ...


class SqliteRecordStore:
    """`days` and `size`: how old a record gets, and how many bytes all of them take; `bodies`: they are kept.
    `checked`: the file was found sound when it was prepared."""

    def __init__(
        self,
        path: Path,
        *,
        max_age_days: float | None = None,
        max_bytes: int | None = None,
        store_bodies: bool = True,
        is_prepared: bool = False,
    ) -> None:
        self._path = path
        self._is_prepared = is_prepared
        self._max_age_days = max_age_days
        self._max_bytes = max_bytes
        self._store_bodies = store_bodies

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        """Opened by the thread that uses it, and not taken along by a process that forks."""
        return open_database(self._path, SCHEMA, create=self._is_prepared, skip_check=self._is_prepared)

    def add(self, batch: RecordBatch) -> None:
        data = bytes(batch)
        if batch.bodies and not self._store_bodies:
            data = encode_records([replace(record, bodies=None) for record in batch.records])
        try:
            self._connection.execute("INSERT INTO batches (at, records) VALUES (?, ?)", (batch.at, data))
            self._prune(time.time())
        except sqlite3.Error as error:
            if not is_busy(error):
                self.close()  # the next batch opens the file anew
            raise database_unusable(error) from None

    def find(self, id: str) -> Record | None:
        for _, records in self._read_batches("SELECT number, records FROM batches ORDER BY number DESC"):
            for record in records:
                if record.id == id:
                    return record
        return None

    def latest(self, count: int) -> list[tuple[int, Record]]:
        """The last ones, oldest first, each with a number for `after`."""
        found: list[tuple[int, Record]] = []
        for number, records in self._read_batches("SELECT number, records FROM batches ORDER BY number DESC"):
            found = [(number, record) for record in records] + found
            if len(found) >= count:
                break
        return found[len(found) - min(count, len(found)) :]

    def records_after(self, number: int) -> list[tuple[int, Record]]:
        read = self._read_batches(
            "SELECT number, records FROM batches WHERE number > ? ORDER BY number LIMIT 100", number
        )
        return [(one, record) for one, records in read for record in records]

    def close(self) -> None:
        if (connection := self.__dict__.pop("_connection", None)) is not None:
            connection.close()

    def _read_batches(self, statement: str, *values: int) -> Iterator[tuple[int, list[Record]]]:
        try:
            for number, data in self._connection.execute(statement, values):
                yield number, decode_records(data)
        except DatabaseUnusable as error:
            raise JournalError(f"the journal can't be read: {self._path}: {error}") from None
        except sqlite3.Error as error:
            raise JournalError(f"the journal can't be read: {self._path}: {database_unusable(error)}") from None
        except msgspec.MsgspecError as error:
            raise JournalError(f"the journal holds what is no record: {error}") from None

    def _prune(self, now: float) -> None:
        """Let go of what is too old, and of the oldest while it is too much."""
        oldest = None if self._max_age_days is None else now - self._max_age_days * _DAY
        while (oldest is not None and self._has_record_before(oldest)) or self._is_too_large():
            self._connection.execute("DELETE FROM batches WHERE number = (SELECT min(number) FROM batches)")
            self._connection.execute("PRAGMA incremental_vacuum").fetchall()

    def _has_record_before(self, moment: float) -> bool:
        row = self._connection.execute("SELECT at FROM batches ORDER BY number LIMIT 1").fetchone()
        return row is not None and row[0] < moment

    def _is_too_large(self) -> bool:
        if self._max_bytes is None:
            return False
        used = (self._pragma("page_count") - self._pragma("freelist_count")) * self._pragma("page_size")
        return (
            used > self._max_bytes and self._connection.execute("SELECT 1 FROM batches LIMIT 1").fetchone() is not None
        )

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])


def open_record_store(
    path: Path, *, max_age_days: float, max_bytes: int, store_bodies: bool = True
) -> SqliteRecordStore:
    """A journal to write to, which is made if it is not there."""
    try:
        prepare_database(path, SCHEMA)
    except DatabaseUnusable as error:
        raise JournalError(f"{path}: {error}") from None
    return SqliteRecordStore(
        path, max_age_days=max_age_days, max_bytes=max_bytes, store_bodies=store_bodies, is_prepared=True
    )


def open_existing_store(path: Path) -> SqliteRecordStore:
    """A journal that is there, to look at."""
    if not path.is_file():
        raise JournalError(f"there is no journal at {path}: set journal.enabled, or name another with --journal")
    return SqliteRecordStore(path)


def write_private_file(path: Path, data: bytes) -> None:
    """A file that only its user may read, and that is not there yet."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise JournalError(f"{path}: {os_error_reason(error)}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
