"""The latest exchanges, in memory: bounded in count, and their bodies in bytes.

While no page is open and no bodies are captured, an exchange costs one entry at its end.
"""

import secrets
import time
from collections import deque
from collections.abc import Iterator
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Text
from toolwire.canonical.errors import Loss
from toolwire.canonical.request import Request
from toolwire.gateway.exchange.exchange import ClientRequest
from toolwire.gateway.observability.access_log import RequestRecord
from toolwire.gateway.observability.recorder import (
    ExchangeCapture,
    FinishedExchange,
    RequestObserver,
    finish_exchange,
)
from toolwire.upstream.transport import Arrival

MAX_CAPTURE_SECONDS = 3600.0
MAX_USER_TEXT = 4000
_ARRIVAL_SIZE = 100  # bytes in memory
_QUIET_PATHS = ("/favicon.ico",)


class CapturedExchange(Struct, gc=False):
    """The captured data of one exchange: its record with bodies, and the times of the chunks."""

    finished: FinishedExchange
    response_arrivals: list[Arrival]
    answer_arrivals: list[list[Arrival]]
    upstream_path: str = ""
    """Path of the request to the provider."""
    user_text: str = ""
    """Text of the last user message, cut to `MAX_USER_TEXT`."""
    prompt: str | None = None
    """First words of `user_text`, without secrets; None until a page needs them."""

    @property
    def size(self) -> int:
        """Return the approximate size in bytes."""
        arrivals = len(self.response_arrivals) + sum(map(len, self.answer_arrivals))
        return self.finished.size + _ARRIVAL_SIZE * arrivals + len(self.user_text)


class BufferedExchange(Struct, gc=False):
    """One exchange, finished or under way."""

    number: int
    """Position in the order in which exchanges finished, from 1; 0 while under way."""
    at: float
    """Arrival of the request, in seconds since the epoch."""
    tenant: str
    record: RequestRecord
    losses: list[Loss]
    captured: CapturedExchange | None = None
    is_evicted: bool = False
    """Whether the bodies were captured, but dropped to make room for later ones."""


class ExchangeBuffer:
    """The latest exchanges of one process, and those under way while a page is open."""

    def __init__(self, count: int, size: int, *, body_limit: int, captures_always: bool = False) -> None:
        self.id = secrets.token_hex(4)
        """Identifies this buffer in a position, which is invalid for any other buffer."""
        self.is_watched = captures_always
        """Whether exchanges are followed from their start: a page is open, or bodies are captured."""
        self.last_number = 0
        self._ring: deque[BufferedExchange] = deque()
        self._count = max(1, count)
        self._size = size
        self._used = 0
        self._captured: deque[BufferedExchange] = deque()
        self._body_limit = min(body_limit, size)
        self._captures_always = captures_always
        self._capture_ends_at = 0.0  # on the monotonic clock
        self._watchers = 0
        self._open: dict[str, RequestObserver] = {}

    def reconfigure(self, count: int, size: int, *, body_limit: int, captures_always: bool) -> None:
        """Apply a reloaded configuration; keep the exchanges that fit its limits."""
        self._count, self._size = max(1, count), size
        self._body_limit, self._captures_always = min(body_limit, size), captures_always
        self._drop_oldest()
        self._update_watched()

    @property
    def capture_seconds(self) -> float | None:
        """Return for how many more seconds bodies are captured; None for always."""
        return None if self._captures_always else max(0.0, self._capture_ends_at - time.monotonic())

    def capture_for(self, seconds: float) -> None:
        """Capture the bodies of exchanges that start within this time; 0 stops capturing."""
        self._capture_ends_at = time.monotonic() + min(seconds, MAX_CAPTURE_SECONDS)
        self._update_watched()

    def watch(self) -> None:
        """Count a page that was opened."""
        self._watchers += 1
        self._update_watched()

    def unwatch(self) -> None:
        """Count a page that was closed."""
        self._watchers -= 1
        self._update_watched()

    def _update_watched(self) -> None:
        """Start or stop following exchanges from their start, and drop those in progress when stopping."""
        self.is_watched = bool(self._watchers) or self.capture_seconds != 0
        if not self._watchers:
            self._open.clear()

    def start(self, observer: RequestObserver, client_request: ClientRequest) -> None:
        """Follow an exchange from its start, and capture its bodies if that is on."""
        if self._watchers:
            self._open[observer.record.id] = observer
            if not self._capture_ends_at and not self._captures_always:
                return
        if self.capture_seconds == 0:
            self._capture_ends_at = 0.0
            if not self._watchers:
                self.is_watched = False  # the time of capturing is over
        elif observer.capture is None or observer.capture.body_chunks is None:
            trace_parent = "" if observer.capture is None else observer.capture.trace_parent
            observer.capture = ExchangeCapture(client_request, trace_parent, [], self._body_limit)

    def add(self, observer: RequestObserver) -> None:
        """Add a finished exchange. Requests that are no exchanges are added only if they failed."""
        record = observer.record
        if self._open:
            self._open.pop(record.id, None)
        if not record.client and (record.status < 400 or record.path in _QUIET_PATHS):
            return
        self.last_number = number = self.last_number + 1
        exchange = _summarize(observer, number)
        self._ring.append(exchange)
        if observer.capture is not None and (captured := _captured(observer.capture, exchange)) is not None:
            exchange.captured = captured
            self._captured.append(exchange)
            self._used += captured.size
        if len(self._ring) > self._count or self._used > self._size:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drop the oldest exchanges until the count fits, then the oldest bodies until the size fits."""
        while len(self._ring) > self._count:
            if self._ring.popleft().captured is not None:
                self._evict_oldest()
        while self._used > self._size and self._captured:
            self._evict_oldest()

    def _evict_oldest(self) -> None:
        """Drop the bodies of the oldest exchange that has any."""
        exchange = self._captured.popleft()
        if exchange.captured is not None:
            self._used -= exchange.captured.size
        exchange.captured, exchange.is_evicted = None, True

    def after(self, number: int, limit: int) -> list[BufferedExchange]:
        """Return at most `limit` exchanges that finished after the one with this number, in order."""
        first = self.last_number - len(self._ring) + 1
        start = max(0, number + 1 - first)
        return list(islice(self._ring, start, start + limit))

    def under_way(self, seconds: float, known: dict[str, bool]) -> Iterator[BufferedExchange]:
        """Yield the exchanges that have been under way for longer than this, without bodies.

        `known` holds those that were yielded before, and whether their response had begun; only changes are yielded.
        """
        now = time.monotonic()
        for id in [id for id in known if id not in self._open]:
            del known[id]
        for id, observer in self._open.items():
            has_begun = observer.record.responded_at is not None
            if now - observer.record.started_at > seconds and known.get(id) is not has_begun:
                known[id] = has_begun
                yield _summarize(observer, 0)

    def find(self, id: str) -> BufferedExchange | None:
        """Return an exchange by its id; None if it is unknown or too old."""
        if (observer := self._open.get(id)) is not None:
            exchange = _summarize(observer, 0)
            if observer.capture is not None:
                exchange.captured = _captured(observer.capture, exchange)
            return exchange
        return next((exchange for exchange in reversed(self._ring) if exchange.record.id == id), None)

    def __len__(self) -> int:
        return len(self._ring)

    @property
    def used_bytes(self) -> int:
        """Return the approximate bytes of all captured bodies."""
        return self._used


def _summarize(observer: RequestObserver, number: int) -> BufferedExchange:
    """Return an exchange as far as it is known, without bodies."""
    record = observer.record
    if record.exception is not None:
        record = replace(record, exception=None)  # its frames would keep everything alive
    losses = observer.losses
    if losses is None:
        losses = observer.request_losses or []
    at = time.time() - (time.monotonic() - record.started_at)
    return BufferedExchange(number, at, observer.principal.tenant, record, losses)


def _captured(capture: ExchangeCapture, exchange: BufferedExchange) -> CapturedExchange | None:
    """Return the captured data of an exchange; None if its bodies are not captured."""
    if capture.body_chunks is None:
        return None
    if not capture.losses:
        capture.losses = exchange.losses
    upstream_request = capture.upstream_request
    return CapturedExchange(
        finish_exchange(exchange.record, capture, with_bodies=True),
        capture.arrivals,
        [] if capture.answers is None else capture.answers.arrivals,
        "" if upstream_request is None else upstream_request.route.path or "",
        "" if upstream_request is None else _last_user_text(upstream_request.context.request),
    )


def _last_user_text(request: Request | None) -> str:
    """Return the last text that a user wrote; texts in tags are those of the client's program."""
    for message in () if request is None else reversed(request.messages):
        if message.role != "user":
            continue
        for part in reversed(message.parts):
            if isinstance(part, Text) and not (text := part.text[:MAX_USER_TEXT].lstrip()).startswith("<") and text:
                return text
    return ""
