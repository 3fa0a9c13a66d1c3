"""Accounting of requests: reserve the most that a key's request can use, and record its usage when it ends.

Usage without a reservation is recorded once a second, in a thread, so that requests do not wait for it. While the
database is unavailable, usage is queued, and tried again every second.
"""

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError
from toolwire.canonical.request import Request
from toolwire.canonical.response import Usage
from toolwire.codec.models.info import ModelInfo
from toolwire.codec.models.prices import price_usage
from toolwire.codec.token_count import estimate_tokens
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.exchange.routing import Backend
from toolwire.gateway.keys.client_key import ClientKey
from toolwire.gateway.keys.ledger import LimitExceeded, Reservation, UsageLedger, UsageRow, day_of
from toolwire.gateway.limits import is_heavy_body
from toolwire.gateway.providers.price_book import PriceBook, price_reported
from toolwire.journal.sqlite_files import DatabaseUnusable
from toolwire.upstream.models.price_data import price_hint

_FLUSH_INTERVAL = 1.0
_DAY_SECONDS = 86_400
_COUNTS = UsageRow.__struct_fields__[4:]
_LIMIT_ROWS = 10_000
"""Maximum number of pairs of key and model whose usage is queued while the database is unavailable.

Usage of further pairs is not counted.
"""
_LIMIT_SETTLEMENTS = 100_000
"""Maximum number of queued settlements. Beyond it, reservations stay unsettled."""

_DEFAULT_OUTPUT = 8192
"""Output tokens to reserve if neither the request nor the model has a limit."""


class FinishedRequest(Struct, frozen=True):
    """The usage of a request that has ended."""

    at: float
    owner: str
    provider: str
    model: str
    usage: Usage | None
    is_interrupted: bool = False
    """Whether it ended before its provider reported all usage."""


class _Settlement(Struct, frozen=True):
    """The end of a reservation, and the usage of its request."""

    reservation: Reservation
    tokens: int
    rows: tuple[UsageRow, ...]


class _UsageBatch:
    """Usage without reservations. Its id lets the ledger add it only once, even if the gateway sends it twice."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(16)
        self._rows: dict[tuple[str, str, str, str], UsageRow] = {}

    @property
    def rows(self) -> list[UsageRow]:
        """The usage of each day, key and model."""
        return list(self._rows.values())

    def add(self, row: UsageRow) -> None:
        """Add the usage of a request."""
        rows, key = self._rows, (row.day, row.owner, row.provider, row.model)
        if key in rows or len(rows) < _LIMIT_ROWS:
            rows[key] = _add_rows(rows[key], row) if key in rows else row


class Accounting:
    """Reserves and books the usage of requests, in a thread of its own."""

    def __init__(
        self,
        ledger: UsageLedger,
        prices: PriceBook,
        *,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.prices = prices
        self._ledger = ledger
        self._log = log
        self.on_cost: Callable[[str, float], None] = lambda _provider, _dollars: None
        """Receives the provider and the dollars of booked requests, on the event loop."""
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "toolwire-usage")
        self._finished: list[FinishedRequest] = []
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._last_error = ""
        self._batch = _UsageBatch()
        self._tried_batch: _UsageBatch | None = None
        self._settlements: deque[_Settlement] = deque()

    async def reserve(
        self, id: str, key: ClientKey, request: Request, backends: Sequence[Backend], body: bytes
    ) -> Reservation | None:
        """Reserve the most that a request can use, within the limits of its key; None if the key has no limits.

        Raise `RequestRejected` if a limit is reached, or can't be enforced for the model.
        """
        if not key.section.is_limited:
            return None
        heavy = is_heavy_body(body)
        run = asyncio.get_running_loop().run_in_executor
        if key.section.limits_money:
            for backend in backends:
                await self.prices.ask(backend.provider.name, backend.model or "")
        try:
            tokens = await run(self._thread, estimate_tokens, body) if heavy else estimate_tokens(body)
            return await run(self._thread, self._reserve, id, key, request, backends, tokens)
        except LimitExceeded as limit:
            message = f"the key {key.name!r} has reached its limit of {limit}"
            wait = max(1.0, limit.retry_after)
            raise RequestRejected(ApiError(kind="rate_limit", message=message, status=429, retry_after=wait)) from None
        except DatabaseUnusable as error:
            self._report(error)
            message = "the limits of this key can't be checked, as the usage database is unavailable: try again later"
            raise RequestRejected(ApiError(kind="overloaded", message=message, status=503)) from None

    def _reserve(
        self, id: str, key: ClientKey, request: Request, backends: Sequence[Backend], input_tokens: int
    ) -> Reservation:
        """Reserve for the most expensive backend, since the first one may fail."""
        requested = request.sampling.max_tokens if request.sampling is not None else None
        tokens, nanodollars = 0, 0
        for backend in backends:
            info = self.prices.find(backend.provider.name, backend.model or "")
            output = min(requested or info.output or _DEFAULT_OUTPUT, info.output or requested or _DEFAULT_OUTPUT)
            tokens = max(tokens, input_tokens + output)
            price = price_usage(Usage(input_tokens=input_tokens, output_tokens=output), info)
            if price is None and key.section.limits_money and key.section.unpriced == "refuse":
                raise _unpriced_model(key, backend)
            nanodollars = max(nanodollars, round((price or 0) * 1_000_000_000))
        reservation = Reservation(
            id=id,
            owner=key.name,
            at=self._clock(),
            model=backends[0].name,
            nanodollars=nanodollars,
            tokens=tokens,
        )
        try:
            self._ledger.reserve(key.section, reservation)
        except DatabaseUnusable as error:
            if not error.lost:
                raise
            self._settlements.append(_Settlement(reservation, 0, ()))  # it may be stored nevertheless
            self._ledger.reserve(key.section, reservation)  # on a new connection
            self._settlements.pop()
        return reservation

    def book(self, finished: FinishedRequest, reservation: Reservation | None = None) -> None:
        """Record a request that has ended: immediately if it has a reservation, otherwise in the next batch."""
        loop = asyncio.get_running_loop()
        if reservation is not None:
            self._submit(self._settle, finished, reservation, loop)
            return
        self._finished.append(finished)
        self._schedule_flush(loop)

    def _schedule_flush(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule a flush of the queue in one second, unless one is scheduled."""
        if self._timer is None and not self._closed:
            self._timer = loop.call_later(_FLUSH_INTERVAL, self._flush, loop)

    def _flush(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Hand the finished requests to the thread."""
        self._timer = None
        finished, self._finished = self._finished, []
        self._submit(self._add, finished, loop)

    def _submit(self, task: Callable[..., None], *args: object) -> None:
        """Run a task in the thread, unless the gateway has stopped."""
        with contextlib.suppress(RuntimeError):
            self._thread.submit(task, *args)

    # ---- in the thread

    def _settle(
        self, finished: FinishedRequest, reservation: Reservation, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        """Settle a reservation; until that succeeds, it continues to count."""
        (row,) = self._sum_usage([finished])
        tokens = row.input_tokens + row.output_tokens
        if finished.is_interrupted:  # the provider charges for more than it reported
            row = replace(row, nanodollars=max(row.nanodollars, reservation.nanodollars))
            tokens = max(tokens, reservation.tokens)
        if len(self._settlements) < _LIMIT_SETTLEMENTS:
            self._settlements.append(_Settlement(reservation, tokens, (row,)))
        self._record(loop)

    def _add(self, finished: list[FinishedRequest], loop: asyncio.AbstractEventLoop | None) -> None:
        """Add the usage of requests."""
        for row in self._sum_usage(finished):
            self._batch.add(row)
        self._record(loop)

    def _record(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Record the queued usage; if the database is unavailable, schedule another attempt."""
        try:
            while self._settlements:
                settlement = self._settlements[0]
                self._ledger.settle(settlement.reservation, settlement.tokens, settlement.rows)
                self._settlements.popleft()
                self._publish(settlement.rows, loop)
            while self._tried_batch is not None or self._batch.rows:
                if self._tried_batch is None:
                    self._tried_batch, self._batch = self._batch, _UsageBatch()
                rows = self._tried_batch.rows
                self._ledger.add(self._tried_batch.id, rows)
                self._tried_batch = None
                self._publish(rows, loop)
        except DatabaseUnusable as error:
            self._report(error)
            if loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._schedule_flush, loop)
        else:
            self._last_error = ""

    def _publish(self, rows: Iterable[UsageRow], loop: asyncio.AbstractEventLoop | None) -> None:
        """Publish the cost of booked requests on the event loop."""
        for row in rows:
            if row.nanodollars and loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self.on_cost, row.provider, row.nanodollars / 1e9)

    def _sum_usage(self, finished: Iterable[FinishedRequest]) -> list[UsageRow]:
        """Return the usage of requests, each at its own price, summed by day, key and model."""
        sums: dict[tuple[int, str, str, str], list[int]] = {}
        infos: dict[tuple[str, str], ModelInfo] = {}
        for request in finished:
            model, usage = (request.provider, request.model), request.usage
            key = (int(request.at // _DAY_SECONDS), request.owner, *model)
            if (counts := sums.get(key)) is None:
                counts = sums[key] = [0] * 7
            counts[0] += 1
            if usage is None:
                continue
            counts[1] += usage.input_tokens or 0
            counts[2] += usage.output_tokens or 0
            counts[3] += usage.cache_read or 0
            counts[4] += usage.cache_write or 0
            if (info := infos.get(model)) is None:
                info = infos[model] = self.prices.find(*model)
            if info.prices is None or (price := price_reported(usage, info)) is None:
                counts[6] += 1
            else:
                counts[5] += round(price * 1_000_000_000)
        return [
            UsageRow(
                day=day_of(day * _DAY_SECONDS),
                owner=owner,
                provider=provider,
                model=name,
                **dict(zip(_COUNTS, counts, strict=True)),
            )
            for (day, owner, provider, name), counts in sums.items()
        ]

    def _report(self, error: DatabaseUnusable) -> None:
        """Log a failure of the database, once."""
        if str(error) != self._last_error:
            self._last_error = str(error)
            self._log(f"usage: {error}")

    def close(self) -> None:
        """Book what is left, and close the ledger."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._flush()
        self._thread.shutdown()
        self._ledger.close()


def _add_rows(first: UsageRow, second: UsageRow) -> UsageRow:
    """Return the sum of two rows of the same day, key and model."""
    counts = {name: getattr(first, name) + getattr(second, name) for name in _COUNTS}
    return replace(first, **counts)


def _unpriced_model(key: ClientKey, backend: Backend) -> RequestRejected:
    """Return the rejection of a model whose price is unknown, for a key with a limit in dollars."""
    message = (
        f"the price of {backend.name} is unknown, so the limit in dollars of the key {key.name!r} can't be enforced: "
        f'{price_hint(backend.name)}, or set keys.{key.name}.unpriced = "allow"'
    )
    return RequestRejected(ApiError(kind="permission", message=message, status=403))
