"""Stores of exchange records, limited in age and size, and the one in SQLite.

A row holds a batch of records, because a row per record would dominate the cost of recording. Rows are numbered in
order, so pruning deletes from the start. There is no index of ids: a lookup scans the file, which is fast enough for a
user at the command line.

Export recorded exchanges as a zip file for a bug report.
"""

import io
import json
import os
import platform
import sqlite3
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from toolwire.canonical.errors import ToolwireError
from toolwire.journal.records import Record, RecordBatch, body_content, decode_records, encode_records, record_as_json
from toolwire.journal.redaction import Redactor
from toolwire.journal.sqlite_files import (
    LOCATION_ADVICE,
    DatabaseSchema,
    DatabaseUnusable,
    database_unusable,
    is_busy,
    open_database,
    os_error_reason,
    prepare_database,
)
from toolwire.journal.writer import RecordSink

if TYPE_CHECKING:
    from toolwire.journal.postgres_records import PostgresRecordStore

_DAY = 86_400.0
MIN_PREFIX = 5
"""Characters of an id that select a record: `ex_` and two digits."""
SCHEMA = DatabaseSchema(
    migrations=(("CREATE TABLE IF NOT EXISTS batches (number INTEGER PRIMARY KEY, at REAL, records BLOB)",),),
    columns={"batches": frozenset({"number", "at", "records"})},
)


class JournalError(ToolwireError):
    """The journal can't be opened or read, or does not contain an entry."""


class JournalUnavailable(JournalError):
    """The server of the journal can't be reached; a later attempt may succeed."""


class RecordStore(RecordSink, Protocol):
    """Stores records and finds them by id or number."""

    def find(self, id: str) -> Record | None:
        """Return the record with this id, or the only one whose id begins with it; None if there is none."""
        ...

    def latest(self, count: int) -> list[tuple[int, Record]]:
        """Return the latest records, oldest first, each with its batch number."""
        ...

    def records_after(self, number: int) -> list[tuple[int, Record]]:
        """Return the records of later batches, each with its batch number."""
        ...


def match_record(id: str, records: Iterable[Record]) -> Record | None:
    """Return the record with this id, or the only one whose id begins with it; None if there is none."""
    matches: dict[str, Record] = {}
    for record in records:
        if record.id == id:
            return record
        if len(id) >= MIN_PREFIX and record.id.startswith(id):
            matches[record.id] = record
    if len(matches) > 1:
        raise JournalError(f"more than one exchange begins with {id!r}: {', '.join(sorted(matches)[:5])}")
    return next(iter(matches.values()), None)


class SqliteRecordStore:
    """A record store in a SQLite file.

    `max_age_days` and `max_bytes` limit the file. `is_prepared` means that it was just checked by `prepare_database`.
    """

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
        """The connection, opened on first use by the thread that uses it, so after a fork."""
        return open_database(self._path, SCHEMA, create=self._is_prepared, skip_check=self._is_prepared)

    def add(self, batch: RecordBatch) -> None:
        """Write a batch, then prune the file."""
        data = bytes(batch)
        if batch.bodies and not self._store_bodies:
            data = encode_records([replace(record, bodies=None) for record in batch.records])
        try:
            self._connection.execute("INSERT INTO batches (at, records) VALUES (?, ?)", (batch.at, data))
            self._prune(time.time())
        except sqlite3.Error as error:
            if not is_busy(error):
                self.close()  # the next batch reopens the file
            raise database_unusable(error) from None

    def find(self, id: str) -> Record | None:
        """Return the record with this id, or the only one whose id begins with it; None if there is none."""
        batches = self._read_batches("SELECT number, records FROM batches ORDER BY number DESC")
        return match_record(id, (record for _, records in batches for record in records))

    def latest(self, count: int) -> list[tuple[int, Record]]:
        """Return the latest records, oldest first, each with its batch number for `records_after`."""
        latest: list[tuple[int, Record]] = []
        for number, records in self._read_batches("SELECT number, records FROM batches ORDER BY number DESC"):
            latest = [(number, record) for record in records] + latest
            if len(latest) >= count:
                break
        return latest[len(latest) - min(count, len(latest)) :]

    def records_after(self, number: int) -> list[tuple[int, Record]]:
        """Return the records of up to 100 later batches, each with its batch number."""
        batches = self._read_batches(
            "SELECT number, records FROM batches WHERE number > ? ORDER BY number LIMIT 100", number
        )
        return [(batch_number, record) for batch_number, records in batches for record in records]

    def close(self) -> None:
        """Close the file, if it was opened."""
        if (connection := self.__dict__.pop("_connection", None)) is not None:
            connection.close()

    def _read_batches(self, statement: str, *values: int) -> Iterator[tuple[int, list[Record]]]:
        """Yield the number and the records of each selected batch; raise `JournalError` if they can't be read."""
        try:
            for number, data in self._connection.execute(statement, values):
                yield number, decode_records(data)
        except DatabaseUnusable as error:
            raise JournalError(f"can't read the journal: {self._path}: {error}") from None
        except sqlite3.Error as error:
            raise JournalError(f"can't read the journal: {self._path}: {database_unusable(error)}") from None
        except msgspec.MsgspecError as error:
            raise JournalError(f"the journal contains an invalid record: {error}") from None

    def _prune(self, now: float) -> None:
        """Delete records past their age limit, then the oldest until the file fits."""
        cutoff = None if self._max_age_days is None else now - self._max_age_days * _DAY
        while (cutoff is not None and self._has_record_before(cutoff)) or self._is_too_large():
            self._connection.execute("DELETE FROM batches WHERE number = (SELECT min(number) FROM batches)")
            self._connection.execute("PRAGMA incremental_vacuum").fetchall()

    def _has_record_before(self, moment: float) -> bool:
        """Return True if the oldest batch of records is older than `moment`, in seconds since the epoch."""
        row = self._connection.execute("SELECT at FROM batches ORDER BY number LIMIT 1").fetchone()
        return row is not None and row[0] < moment

    def _is_too_large(self) -> bool:
        """Return True if the file exceeds its size limit and has records left to delete."""
        if self._max_bytes is None:
            return False
        used_bytes = (self._pragma("page_count") - self._pragma("freelist_count")) * self._pragma("page_size")
        if used_bytes <= self._max_bytes:
            return False
        return self._connection.execute("SELECT 1 FROM batches LIMIT 1").fetchone() is not None

    def _pragma(self, name: str) -> int:
        """Return the value of a numeric SQLite setting such as `page_count`."""
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])


def open_record_store(
    location: Path | str, *, max_age_days: float, max_bytes: int, store_bodies: bool = True
) -> "SqliteRecordStore | PostgresRecordStore":
    """Open a journal for writing, and create it unless it exists.

    A locked file is opened by the first batch, and a PostgreSQL database (`postgresql://...`) as well.
    """
    if isinstance(location, str):
        from toolwire.journal.postgres_records import PostgresRecordStore  # noqa: PLC0415 - it builds on this module

        return PostgresRecordStore(location, max_age_days=max_age_days, max_bytes=max_bytes, store_bodies=store_bodies)
    is_prepared = True
    try:
        prepare_database(location, SCHEMA)
    except DatabaseUnusable as error:
        if not error.busy:
            raise JournalError(f"{location}: {error.reason}; {error.advice or LOCATION_ADVICE}") from None
        is_prepared = False
    return SqliteRecordStore(
        location, max_age_days=max_age_days, max_bytes=max_bytes, store_bodies=store_bodies, is_prepared=is_prepared
    )


def open_existing_store(location: Path | str) -> "SqliteRecordStore | PostgresRecordStore":
    """Open an existing journal for reading: a file, or a PostgreSQL database."""
    if isinstance(location, str):
        from toolwire.journal.postgres_records import PostgresRecordStore  # noqa: PLC0415 - it builds on this module

        return PostgresRecordStore(location)
    if not location.is_file():
        raise JournalError(
            f"no journal at {location}: start the gateway with --record, or pass another file with --journal"
        )
    return SqliteRecordStore(location)


def write_private_file(path: Path, data: bytes) -> None:
    """Write a new file with mode 0600; raise `JournalError` if it exists."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise JournalError(f"{path} exists: remove it, or name another file") from None
    except OSError as error:
        raise JournalError(f"{path}: {os_error_reason(error)}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


_README = """\
Exchanges recorded by toolwire, for a bug report. Known keys, and text that looks like a key, were removed. Everything
else is unchanged: review it before you share it. `toolwire journal replay` sends such an exchange again.

    ID/record.json      metadata of the exchange, including losses
    ID/request.*        the client's request
    ID/translated.*     the translated request, as sent to the provider
    ID/answer.*         the answer of the provider; answer_1, answer_2 and so on after retries and further rounds
    ID/response.*       the response to the client

The last four exist only if bodies were recorded.
"""


def build_bundle(records: Sequence[Record], redactor: Redactor, version: str) -> bytes:
    """Build the zip file of a bug report: the records without tenants and secrets.

    Secrets that were configured only after the recording are removed as well.
    """
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README.txt", _README)
        environment = {"toolwire": version, "python": platform.python_version(), "system": platform.system()}
        archive.writestr("environment.json", _format_json(environment))
        for record in map(redactor.redact_record, records):
            bodies = {} if record.bodies is None else record.bodies.by_name
            archive.writestr(
                f"{record.id}/record.json", _format_json(record_as_json(replace(record, tenant="", bodies=None)))
            )
            for name, data in bodies.items():
                if data:
                    extension = "txt" if isinstance(body_content(data), str) else "json"
                    archive.writestr(f"{record.id}/{name}.{extension}", data)
    return file.getvalue()


def _format_json(value: object) -> bytes:
    """Encode a value as indented JSON with a final newline."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
