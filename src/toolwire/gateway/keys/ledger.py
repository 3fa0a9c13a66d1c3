"""The ledger: the usage of each key per day and model, and the reservations of requests in progress.

It is a SQLite file for one machine, or PostgreSQL for several. A request of a key with limits reserves the most
that it can use, in one transaction with the check of the limits. When it ends, the reservation is settled. The
reservation of a killed gateway still counts, and is listed as unsettled. Money is in nanodollars, so that sums are
exact.

Every write may be repeated, as the answer to a commit may be lost: a reservation is settled once, and a batch of usage
is added once.
"""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import asdict

from toolwire.gateway.config import KeySection
from toolwire.journal.postgres import PostgresConnection, PostgresSchema, displayed_url
from toolwire.journal.sql import SqlConnection
from toolwire.journal.sqlite_files import (
    DatabaseSchema,
    database_unusable,
    open_database,
    transaction,
)

IN_MEMORY = ":memory:"
LEDGER_SCHEMA = DatabaseSchema(
    migrations=(
        (
            """CREATE TABLE usage (day TEXT, owner TEXT, provider TEXT, model TEXT, requests INTEGER NOT NULL,
            input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cache_read INTEGER NOT NULL,
            cache_write INTEGER NOT NULL, nanodollars INTEGER NOT NULL, unpriced INTEGER NOT NULL,
            PRIMARY KEY (day, owner, provider, model)) WITHOUT ROWID""",
            """CREATE TABLE reservations (id TEXT PRIMARY KEY, owner TEXT NOT NULL, at REAL NOT NULL,
            model TEXT NOT NULL, nanodollars INTEGER NOT NULL) WITHOUT ROWID""",
            "CREATE INDEX reservations_owner ON reservations (owner, at)",
            """CREATE TABLE rates (owner TEXT, minute INTEGER, requests INTEGER NOT NULL, tokens INTEGER NOT NULL,
            PRIMARY KEY (owner, minute)) WITHOUT ROWID""",
        ),
        (
            "CREATE TABLE usage_batches (id TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID",
            "CREATE INDEX usage_batches_at ON usage_batches (at)",
        ),
    ),
    columns={
        "usage": frozenset({"day", "owner", "provider", "model", "requests", "nanodollars", "unpriced"}),
        "reservations": frozenset({"id", "owner", "at", "model", "nanodollars"}),
        "rates": frozenset({"owner", "minute", "requests", "tokens"}),
        "usage_batches": frozenset({"id", "at"}),
    },
)
POSTGRES_SCHEMA = PostgresSchema(
    "ledger",
    migrations=(
        (
            """CREATE TABLE toolwire.usage (
                day text NOT NULL,
                owner text NOT NULL,
                provider text NOT NULL,
                model text NOT NULL,
                requests bigint NOT NULL,
                input_tokens bigint NOT NULL,
                output_tokens bigint NOT NULL,
                cache_read bigint NOT NULL,
                cache_write bigint NOT NULL,
                nanodollars bigint NOT NULL,
                unpriced bigint NOT NULL,
                PRIMARY KEY (day, owner, provider, model)
            )""",
            """CREATE TABLE toolwire.reservations (id text PRIMARY KEY, owner text NOT NULL,
            at double precision NOT NULL, model text NOT NULL, nanodollars bigint NOT NULL)""",
            "CREATE INDEX reservations_owner ON toolwire.reservations (owner, at)",
            """CREATE TABLE toolwire.rates (owner text NOT NULL, minute bigint NOT NULL, requests bigint NOT NULL,
            tokens bigint NOT NULL, PRIMARY KEY (owner, minute))""",
        ),
        (
            "CREATE TABLE toolwire.usage_batches (id text PRIMARY KEY, at double precision NOT NULL)",
            "CREATE INDEX usage_batches_at ON toolwire.usage_batches (at)",
        ),
    ),
)
_ADD_USAGE = """
INSERT INTO usage (
    day, owner, provider, model, requests, input_tokens, output_tokens, cache_read, cache_write, nanodollars, unpriced
) VALUES (
    :day, :owner, :provider, :model, :requests, :input_tokens, :output_tokens, :cache_read, :cache_write, :nanodollars,
    :unpriced
)
ON CONFLICT (day, owner, provider, model) DO UPDATE SET
    requests = usage.requests + excluded.requests,
    input_tokens = usage.input_tokens + excluded.input_tokens,
    output_tokens = usage.output_tokens + excluded.output_tokens,
    cache_read = usage.cache_read + excluded.cache_read,
    cache_write = usage.cache_write + excluded.cache_write,
    nanodollars = usage.nanodollars + excluded.nanodollars,
    unpriced = usage.unpriced + excluded.unpriced
"""
_ADD_RATE = """
INSERT INTO rates (owner, minute, requests, tokens) VALUES (:owner, :minute, :requests, :tokens)
ON CONFLICT (owner, minute) DO UPDATE
SET requests = rates.requests + excluded.requests, tokens = rates.tokens + excluded.tokens
"""
_DROP_RATES = "DELETE FROM rates WHERE minute < :minute"
_SELECT_RATE = "SELECT requests, tokens FROM rates WHERE owner = :owner AND minute = :minute"
_COUNT_OTHERS = "SELECT count(*) FROM reservations WHERE owner = :owner AND at >= :since AND id <> :id"
_SELECT_MONEY = """
SELECT
    (SELECT coalesce(sum(nanodollars), 0) FROM usage WHERE owner = :owner AND day >= :day),
    coalesce(sum(nanodollars), 0), count(*)
FROM reservations WHERE owner = :owner AND at >= :since AND id <> :id
"""
_RESERVE = """
INSERT INTO reservations (id, owner, at, model, nanodollars) VALUES (:id, :owner, :at, :model, :nanodollars)
ON CONFLICT (id) DO NOTHING
"""
_ADD_BATCH = "INSERT INTO usage_batches (id, at) VALUES (:id, :at) ON CONFLICT (id) DO NOTHING"
_DROP_BATCHES = "DELETE FROM usage_batches WHERE at < :before"
_BATCH_SECONDS = 86_400.0  # in which a batch may be added again
_SETTLE = "DELETE FROM reservations WHERE id = :id"
_SELECT_RESERVATIONS = "SELECT id, owner, at, model, nanodollars FROM reservations ORDER BY at"
_SELECT_USAGE = """
SELECT
    day, owner, provider, model, requests, input_tokens, output_tokens, cache_read, cache_write, nanodollars, unpriced
FROM usage WHERE day >= :since ORDER BY day
"""
_LOCK_OWNER = "SELECT pg_advisory_xact_lock(hashtext(:owner))"


class UsageRow(Struct, frozen=True, kw_only=True):
    """The usage of a model by a key on one day (UTC). `nanodollars` does not include `unpriced` requests."""

    day: str
    owner: str
    provider: str
    model: str
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read: int = 0
    cache_write: int = 0
    nanodollars: int = 0
    unpriced: int = 0


class Reservation(Struct, frozen=True, kw_only=True):
    """The most that a request in progress can use."""

    id: str
    owner: str
    at: float
    model: str
    nanodollars: int = 0
    tokens: int = 0

    @property
    def minute(self) -> int:
        """The minute that its tokens count in."""
        return int(self.at // 60)


class LimitExceeded(Exception):
    """A limit of a key is reached; `retry_after` is the seconds until it is lifted."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LedgerDatabase(Protocol):
    """The database of a ledger. Errors are `DatabaseUnusable`."""

    name: str

    def transaction(
        self, owner: str | None = None, *, pipelined: bool = False
    ) -> "contextlib.AbstractContextManager[SqlConnection]":
        """Run a transaction; transactions of the same owner run one after the other.

        In a pipelined transaction, the row count of a statement is known only after rows of a later statement were
        fetched.
        """
        ...

    def close(self) -> None:
        """Close the database."""
        ...


class SqliteLedgerDatabase:
    """A file that processes of one machine share, or memory; opened at first use, and reopened after a failure."""

    def __init__(self, path: Path | str) -> None:
        self.name = str(path)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    @contextlib.contextmanager
    def transaction(self, owner: str | None = None, *, pipelined: bool = False) -> Iterator[SqlConnection]:
        """Run a transaction, while no other runs."""
        with self._lock:
            try:
                if self._connection is None:
                    create = self.name != IN_MEMORY
                    self._connection = open_database(self.name, LEDGER_SCHEMA, create=create, multithreaded=True)
                with transaction(self._connection):
                    yield self._connection
            except sqlite3.Error as error:
                raise database_unusable(error) from None

    def close(self) -> None:
        """Close the connection, if it is open."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


class PostgresLedgerDatabase:
    """A PostgreSQL database that gateways on several machines share."""

    def __init__(self, url: str) -> None:
        self.name = displayed_url(url)
        self._connection = PostgresConnection(url, POSTGRES_SCHEMA)

    @contextlib.contextmanager
    def transaction(self, owner: str | None = None, *, pipelined: bool = False) -> Iterator[SqlConnection]:
        """Run a transaction, alone among those of the same owner."""
        with self._connection.transaction(pipelined=pipelined):
            if owner is not None:
                self._connection.execute(_LOCK_OWNER, {"owner": owner})
            yield self._connection

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class UsageLedger:
    """The usage of all keys, and the checks of their limits."""

    def __init__(self, database: LedgerDatabase, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def reserve(self, section: KeySection, reservation: Reservation) -> None:
        """Reserve the most that a request can use; raise `LimitExceeded` if a limit does not leave enough.

        One request of a key may exceed the remaining money or tokens, if no other is in progress. Otherwise the
        last dollars could never be spent, as most requests use far less than they reserve.
        """
        periods = _money_periods(section, reservation) if section.limits_money else []
        rate = {"owner": reservation.owner, "minute": reservation.minute}
        others_of_minute = {"owner": reservation.owner, "since": reservation.minute * 60.0, "id": reservation.id}
        values = asdict(reservation)
        del values["tokens"]
        with self._database.transaction(reservation.owner, pipelined=True) as connection:
            stored = connection.execute(_RESERVE, values)
            used = connection.execute(_SELECT_RATE, rate)
            others = connection.execute(_COUNT_OTHERS, others_of_minute) if section.tokens_per_minute else None
            sums = [connection.execute(_SELECT_MONEY, {**values, **period.bounds}) for period in periods]
            requests, tokens = used.fetchone() or (0, 0)
            (in_progress,) = (None if others is None else others.fetchone()) or (0,)
            money = [rows.fetchone() for rows in sums]
            if stored.rowcount != 1:  # stored by an attempt whose answer was lost
                return
            _check_rates(section, reservation, requests, tokens, in_progress)
            for period, (spent, reserved, others_of_period) in zip(periods, money, strict=True):
                _check_money(period, reservation, int(spent), int(reserved), others_of_period)
            connection.execute(_ADD_RATE, {**rate, "requests": 1, "tokens": reservation.tokens})

    def settle(self, reservation: Reservation, used_tokens: int, rows: Sequence[UsageRow]) -> None:
        """End a reservation, and add what the request used; without effect if it has ended already."""
        change = used_tokens - reservation.tokens
        rate = {"owner": reservation.owner, "minute": reservation.minute, "requests": 0, "tokens": change}
        with self._database.transaction(reservation.owner) as connection:
            if connection.execute(_SETTLE, {"id": reservation.id}).rowcount == 1:
                connection.execute(_ADD_RATE, rate)
                connection.execute(_DROP_RATES, {"minute": reservation.minute - 2})
                _add_usage(connection, rows)

    def add(self, batch: str, rows: Iterable[UsageRow]) -> None:
        """Add usage without a reservation; without effect if the batch was added already."""
        now = self._clock()
        with self._database.transaction() as connection:
            if connection.execute(_ADD_BATCH, {"id": batch, "at": now}).rowcount == 1:
                connection.execute(_DROP_BATCHES, {"before": now - _BATCH_SECONDS})
                _add_usage(connection, rows)

    def usage_since(self, day: str) -> list[UsageRow]:
        """Return the usage from a day on."""
        with self._database.transaction() as connection:
            rows = connection.execute(_SELECT_USAGE, {"since": day}).fetchall()
        return [UsageRow(**dict(zip(UsageRow.__struct_fields__, row, strict=True))) for row in rows]

    def reservations(self) -> list[Reservation]:
        """Return the reservations of requests in progress, and of those whose gateways were killed, oldest first."""
        with self._database.transaction() as connection:
            rows = connection.execute(_SELECT_RESERVATIONS, {}).fetchall()
        return [
            Reservation(id=id, owner=owner, at=at, model=model, nanodollars=nanodollars)
            for id, owner, at, model, nanodollars in rows
        ]

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def day_of(at: float) -> str:
    """Return the day (UTC) of a time in seconds since the epoch."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _add_usage(connection: SqlConnection, rows: Iterable[UsageRow]) -> None:
    """Add counts to the rows of their day, key and model, always in the same order, so that no two deadlock."""
    for values in sorted([asdict(row) for row in rows], key=lambda row: tuple(row.values())[:4]):
        connection.execute(_ADD_USAGE, values)


def _check_rates(section: KeySection, reservation: Reservation, requests: int, tokens: int, others: int) -> None:
    """Raise `LimitExceeded` if a limit per minute is reached; `others` counts the other requests in progress."""
    wait = 60 - reservation.at % 60
    if section.requests_per_minute is not None and requests >= section.requests_per_minute:
        raise LimitExceeded(f"{section.requests_per_minute} requests per minute (requests_per_minute)", wait)
    limit = section.tokens_per_minute
    if limit is not None and (tokens >= limit or (others and tokens + reservation.tokens > limit)):
        message = f"{limit} tokens per minute (tokens_per_minute): {tokens} are used or reserved, and this request"
        raise LimitExceeded(f"{message} may need {reservation.tokens}", wait)


class _Period(Struct, frozen=True):
    """A day or a month (UTC) with a limit in dollars."""

    name: str
    limit: float
    start: datetime
    end: datetime

    @property
    def bounds(self) -> dict[str, Any]:
        """The start of the period, as parameters of `_SELECT_MONEY`."""
        return {"day": self.start.date().isoformat(), "since": self.start.timestamp()}


def _money_periods(section: KeySection, reservation: Reservation) -> list[_Period]:
    """Return the day and the month of a reservation, without those that have no limit."""
    now = datetime.fromtimestamp(reservation.at, UTC)
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    month = day.replace(day=1)
    periods = []
    if section.dollars_per_day is not None:
        periods.append(_Period("dollars_per_day", section.dollars_per_day, day, day + timedelta(days=1)))
    if section.dollars_per_month is not None:
        next_month = (month + timedelta(days=32)).replace(day=1)
        periods.append(_Period("dollars_per_month", section.dollars_per_month, month, next_month))
    return periods


def _check_money(period: _Period, reservation: Reservation, spent: int, reserved: int, others: int) -> None:
    """Raise `LimitExceeded` if the reservation may exceed the limit of the period."""
    left = round(period.limit * 1e9) - spent - reserved
    if left <= 0 or (others and reservation.nanodollars > left):
        message = f"${period.limit:g} ({period.name}): ${spent / 1e9:.4f} are spent and ${reserved / 1e9:.4f} reserved"
        message += f", and this request may need ${reservation.nanodollars / 1e9:.4f}"
        raise LimitExceeded(message, period.end.timestamp() - reservation.at)
