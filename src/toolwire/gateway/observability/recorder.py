"""Observing requests: each fills a row of the access log, the metrics and the journal, and a loss report.

Data for the journal is captured during the exchange and made into a record at its end.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolwire import __version__
from toolwire.canonical.errors import ApiError, Loss, Strictness
from toolwire.canonical.request import Request
from toolwire.canonical.response import Stop
from toolwire.codec.interface import Route
from toolwire.gateway.config import Config, ConfigError, journal_location
from toolwire.gateway.exchange.call_checks import CallOutcome
from toolwire.gateway.exchange.exchange import BufferedResponse, ClientRequest, ExchangeObserver
from toolwire.gateway.exchange.response import StreamingResponse
from toolwire.gateway.exchange.routing import Backend
from toolwire.gateway.exchange.sender import UpstreamRequest
from toolwire.gateway.keys.accounting import Accounting, FinishedRequest
from toolwire.gateway.keys.ledger import Reservation
from toolwire.gateway.observability.access_log import RequestRecord, encode_losses
from toolwire.gateway.observability.metrics import LossStore, Metrics
from toolwire.gateway.providers.price_book import PriceBook
from toolwire.gateway.server.auth import Principal
from toolwire.gateway.state.background_jobs import BackgroundJob, FrameLogReader
from toolwire.gateway.state.loss_reports import SharedLossReports
from toolwire.journal.records import USAGE_COUNTS, Bodies, Record, UniqueFields, record_size
from toolwire.journal.redaction import Redactor
from toolwire.journal.store import JournalError, open_record_store
from toolwire.journal.telemetry import configure_telemetry
from toolwire.journal.writer import JournalWriter, RecordSink
from toolwire.upstream.transport import AnswerRecorder, Arrival

if TYPE_CHECKING:
    from toolwire.gateway.console.exchange_buffer import ExchangeBuffer

MAX_USER_AGENT = 40


class ExchangeCapture(Struct, gc=False):
    """Data captured of an exchange under way."""

    client_request: ClientRequest
    trace_parent: str
    body_chunks: list[bytes] | None = None
    """Chunks of the response body; None if bodies are not recorded."""
    bytes_left: int = 0
    """Bytes of the response body that may still be recorded."""
    answers: AnswerRecorder | None = None
    """The provider's answers to the upstream request; None if bodies are not recorded."""
    upstream_request: UpstreamRequest | None = None
    sent_at: float | None = None
    responded_at: float | None = None
    losses: list[Loss] | None = None
    response: BufferedResponse | StreamingResponse[bytes] | FrameLogReader | BackgroundJob | None = None
    arrivals: list[Arrival] = []
    """Times and sizes of the chunks of the response body."""

    def set_request(self, upstream_request: UpstreamRequest) -> None:
        """Keep the upstream request and its time, and record the answers to it."""
        if self.body_chunks is not None:
            self.answers = upstream_request.answers = AnswerRecorder(self.bytes_left)
        self.upstream_request, self.sent_at = upstream_request, time.monotonic()

    def set_response(self, response: BufferedResponse | StreamingResponse[bytes] | FrameLogReader) -> None:
        """Keep the response and its time."""
        self.responded_at, self.response = time.monotonic(), response
        if type(response) is BufferedResponse:
            self.losses = response.losses
            if self.body_chunks is not None:
                self.append_body(response.body)

    def append_body(self, data: bytes) -> None:
        """Record response data, up to the limit."""
        if self.body_chunks is not None and self.bytes_left >= len(data):
            self.bytes_left -= len(data)
            self.body_chunks.append(data)
            self.arrivals.append((time.monotonic(), len(data)))
        else:
            self.bytes_left = 0


class FinishedExchange(Struct, gc=False):
    """A finished exchange; the journal's thread makes the record from it, in batches."""

    request_record: RequestRecord
    ended_at: float
    at: float
    route: Route
    tenant: str
    strict: Strictness
    trace_parent: str
    sent_at: float | None = None
    responded_at: float | None = None
    protocol: str = ""
    response_id: str | None = None
    response_model: str | None = None
    stop_reasons: tuple[Stop | None, ...] = ()
    losses: list[Loss] = []
    bodies: Bodies | None = None
    prices: PriceBook | None = None
    """The prices of models; None if the cost is not recorded."""

    @property
    def size(self) -> int:
        """Return the approximate size of the record in bytes."""
        return record_size(self.losses, self.bodies)

    @property
    def unique_fields(self) -> UniqueFields:
        """Return the record's fields that differ in every exchange, such as its id and times."""
        request, started_at = self.request_record, self.request_record.started_at
        return (
            request.id,
            self.at,
            None if self.sent_at is None else self.sent_at - started_at,
            None if self.responded_at is None else self.responded_at - started_at,
            self.ended_at - started_at,
            self.response_id,
            () if request.usage is None else (*_usage_counts(request.usage), self._nanodollars()),
        )

    def _nanodollars(self) -> int | None:
        """Return the cost in nanodollars; None if it is unknown. It may load prices, so it belongs in a thread."""
        request = self.request_record
        if self.prices is None or request.usage is None:
            return None
        price = self.prices.price(request.provider, request.model, request.usage)
        return None if price is None else round(price * 1_000_000_000)

    @property
    def repeated_fields(self) -> tuple[Any, ...]:
        """Return the record's fields that are often the same in consecutive exchanges, so that they encode once."""
        request = self.request_record
        return (
            *(
                request.client,
                request.path,
                request.provider,
                request.model,
                request.status,
                request.streamed,
                request.error,
                request.failed,
                request.calls,
            ),
            *(self.route, self.tenant, self.strict, self.protocol, self.response_model, self.stop_reasons, self.losses),
            self.trace_parent,
        )

    def to_record(self) -> Record:
        """Build the journal record."""
        request, started_at, nanodollars = self.request_record, self.request_record.started_at, self._nanodollars()
        return Record(
            id=request.id,
            at=self.at,
            toolwire=__version__,
            client=request.client,
            path=request.path,
            route=self.route,
            tenant=self.tenant,
            strict=self.strict,
            provider=request.provider,
            protocol=self.protocol,
            model=request.model,
            status=request.status or 499,
            streamed=request.streamed,
            error=request.error or ("the upstream failed during the response" if request.failed else ""),
            sent=None if self.sent_at is None else self.sent_at - started_at,
            answered=None if self.responded_at is None else self.responded_at - started_at,
            ended=self.ended_at - started_at,
            usage={} if request.usage is None else _named_counts(_usage_counts(request.usage)),
            cost=None if nanodollars is None else nanodollars / 1_000_000_000,
            response_id=self.response_id,
            response_model=self.response_model,
            stop_reasons=[stop.reason for stop in self.stop_reasons if stop is not None],
            calls=request.calls or {},
            losses=self.losses,
            traceparent=self.trace_parent,
            bodies=self.bodies,
        )


def build_recorder(
    config: Config,
    redactor: Redactor,
    environment: Mapping[str, str],
    log: Callable[[str], None],
    prices: PriceBook,
) -> "Recorder | None":
    """Build the recorder for journal and telemetry; None if both are off."""
    section, sinks, captures_bodies = config.journal, list[RecordSink](), False
    if section.enabled:
        location = journal_location(config, environment)
        try:
            store = open_record_store(
                location, max_age_days=section.days, max_bytes=section.size, store_bodies=section.bodies
            )
        except JournalError as error:
            raise ConfigError(f"journal.path: {error}") from None
        sinks.append(store)
        captures_bodies = section.bodies
    if (telemetry := configure_telemetry(environment, log)) is not None:
        sinks.append(telemetry)
        captures_bodies = captures_bodies or telemetry.captures_content
    if not sinks:
        return None
    journal = JournalWriter(sinks, redactor, section.queue, lambda message: log(f"journal: {message}"))
    return Recorder(journal, config.limits.answer if captures_bodies else 0, prices)


class Recorder:
    """Captures exchanges and adds them to the journal; `limit` is the recorded size of a body, 0 for none."""

    def __init__(self, journal: JournalWriter, limit: int, prices: PriceBook | None = None) -> None:
        self.journal = journal
        self._limit = limit
        self._prices = prices

    def start_capture(self, client_request: ClientRequest, headers: dict[bytes, bytes]) -> ExchangeCapture:
        """Start capturing an exchange."""
        header = headers.get(b"traceparent")
        trace_parent = "" if header is None else header.decode("latin-1")
        return (
            ExchangeCapture(client_request, trace_parent, [], self._limit)
            if self._limit
            else ExchangeCapture(client_request, trace_parent)
        )

    def record_exchange(self, request_record: RequestRecord, capture: ExchangeCapture) -> None:
        """Record an exchange now, or when its background job is done."""
        response = capture.response
        job = None if response is None or isinstance(response, BackgroundJob) else response.job
        if job is None or job.task is None:
            self._add(request_record, capture)
        else:
            job.task.add_done_callback(lambda _: self._record_job(request_record, capture, job))

    def _record_job(self, request_record: RequestRecord, capture: ExchangeCapture, job: BackgroundJob) -> None:
        """Record an exchange with the outcome of its background job."""
        capture.response, capture.losses = job, job.losses
        request_record.streamed, request_record.usage = False, None if job.summary is None else job.summary.usage
        if capture.body_chunks is not None:
            capture.body_chunks = []
            capture.append_body(job.final_body)
        if job.failure is not None:
            request_record.status, request_record.error = job.failure.status or 502, job.failure.message
        self._add(request_record, capture)

    def _add(self, request_record: RequestRecord, capture: ExchangeCapture) -> None:
        """Add a finished exchange to the journal."""
        finished = finish_exchange(request_record, capture, with_bodies=bool(self._limit))
        finished.prices = self._prices
        self.journal.add(finished)


class Observability(Struct, frozen=True):
    """The outputs that requests are reported to: access log, metrics, loss reports, and journal and console if any."""

    log: Callable[[RequestRecord], None]
    metrics: Metrics
    loss_store: LossStore
    recorder: Recorder | None
    shared_losses: SharedLossReports
    exchanges: "ExchangeBuffer | None" = None
    """The exchanges that the console shows; None if it is disabled."""
    accounting: Accounting | None = None


class RequestObserver(ExchangeObserver):
    """Follows one request to its end, and reports it to all outputs."""

    outputs: Observability
    record: RequestRecord
    principal: Principal = Principal("")
    capture: ExchangeCapture | None = None
    """The data of the exchange for journal and console; None if neither needs it."""
    request_losses: list[Loss] | None = None
    """The losses of the request sent last; None until one is sent."""
    losses: list[Loss] | None = None
    """The losses stored last; None if there is no loss report yet."""
    loss_report: bytes = b""
    loss_entry: int | None = None
    reservation: Reservation | None = None
    """The reservation of the key for the request; None if it has no limits."""
    job: BackgroundJob | None = None
    """The job that produces the response in the background; None if there is none."""

    async def reserve(self, request: Request, backends: Sequence[Backend], body: bytes) -> None:
        """Reserve what the request may use of the limits of its key, or raise `RequestRejected`."""
        if self.outputs.accounting is not None and (key := self.principal.key) is not None:
            self.reservation = await self.outputs.accounting.reserve(self.record.id, key, request, backends, body)

    def start_capture(self, client_request: ClientRequest, headers: dict[bytes, bytes]) -> None:
        """Start to capture the exchange, if there is a journal or an open console."""
        recorder, exchanges = self.outputs.recorder, self.outputs.exchanges
        if recorder is not None:
            self.capture = recorder.start_capture(client_request, headers)
        if exchanges is not None:
            self.record.user_agent = headers.get(b"user-agent", b"")[:MAX_USER_AGENT]
            if exchanges.is_watched:
                exchanges.start(self, client_request)

    def on_backend(self, backend: Backend) -> None:
        """Set the backend of the log row."""
        self.record.provider, self.record.model = backend.provider.name, backend.model or ""

    def on_model(self, requested: str) -> None:
        """Note the requested model for the console."""
        self.record.client_model = requested

    def on_default_model(self, requested: str) -> None:
        """Note the unknown model for the log."""
        self.record.requested = requested

    def on_failover(self, backend: Backend, error: ApiError) -> None:
        """Count the failure of a backend after which the next one is tried."""
        self.record.failovers += 1
        self.outputs.metrics.count_failover(backend.provider.name, error.kind)

    def on_request_sent(self, upstream_request: UpstreamRequest) -> None:
        """Store the losses of the request, if the client knows the id, to query them while the upstream works."""
        if self.capture is not None:
            self.capture.set_request(upstream_request)
        self.request_losses = upstream_request.losses
        if self.losses is not None:
            self.store_losses(upstream_request.losses)

    def on_refusal(self, losses: list[Loss]) -> None:
        """Store the losses for which the request is refused."""
        self.store_losses(losses)

    def on_settings_refused(self, backend: Backend, model: str, settings: list[str]) -> None:
        """Count the settings that the backend refused."""
        for setting in settings:
            self.outputs.metrics.count_refused_setting(backend.provider.name, model, setting)

    def on_call(self, backend: Backend, outcome: CallOutcome) -> None:
        """Count a call of the model."""
        record = self.record
        record.calls = record.calls or {}
        record.calls[outcome] = record.calls.get(outcome, 0) + 1
        self.outputs.metrics.count_call(backend.provider.name, backend.model or "", outcome)

    def on_response(self, response: BufferedResponse | StreamingResponse[bytes] | FrameLogReader) -> None:
        """Capture the response, which for a stream has just begun."""
        self.record.responded_at = time.monotonic()
        self.job = response.job
        if self.capture is not None:
            self.capture.set_response(response)

    def store_request_losses(self) -> None:
        """Store the losses of a request that failed, unless a report is stored already."""
        if self.losses is None:
            self.store_losses(self.request_losses or [])

    def store_losses(self, losses: list[Loss]) -> bytes:
        """Store the loss report for later queries, if it is new, and return it as JSON; empty if nothing was lost."""
        if losses != self.losses:
            self.losses, self.loss_report = losses, encode_losses(losses) if losses else b""
            self.loss_entry = self.outputs.loss_store.add(
                self.record.id, self.principal, self.loss_report, self.loss_entry
            )
            if self.loss_report:
                self.outputs.shared_losses.add(self.principal.tenant, self.record.id, self.loss_report)
        return self.loss_report

    def finish(self) -> None:
        """Log, count and record the request."""
        record, outputs = self.record, self.outputs
        if self.request_losses:
            self.store_request_losses()
        record.duration = time.monotonic() - record.started_at
        if self.losses:
            severities = list(map(_loss_severity, self.losses))
            record.losses = len(severities) - severities.count("info")
            record.loss_errors = severities.count("error")
            if self.capture is not None:
                self.capture.losses = self.losses
        outputs.metrics.count_request(record)
        outputs.log(record)
        if outputs.exchanges is not None:
            outputs.exchanges.add(self)
        if outputs.accounting is not None and (record.provider or self.reservation is not None):
            self._book_usage(outputs.accounting)
        if outputs.recorder is not None and self.capture is not None:
            outputs.recorder.record_exchange(record, self.capture)

    def _book_usage(self, accounting: Accounting) -> None:
        """Book the usage now, or when the background job is done."""
        job, record, reservation = self.job, self.record, self.reservation
        owner = self.principal.tenant if self.principal.key is None else self.principal.key.name
        if job is not None and job.task is not None and not job.task.done():
            job.task.add_done_callback(lambda _: accounting.book(_finished_job(record, owner, job), reservation))
            return
        is_interrupted = record.status == 499 or record.failed or (record.usage is None and record.status == 200)
        finished = FinishedRequest(time.time(), owner, record.provider, record.model, record.usage, is_interrupted)
        accounting.book(finished, reservation)


def _finished_job(record: RequestRecord, owner: str, job: BackgroundJob) -> FinishedRequest:
    """Return the usage of a background job that has ended."""
    usage = None if job.summary is None else job.summary.usage
    return FinishedRequest(time.time(), owner, record.provider, record.model, usage, usage is None)


def finish_exchange(request_record: RequestRecord, capture: ExchangeCapture, *, with_bodies: bool) -> FinishedExchange:
    """Return what the journal's thread needs for the record, doing no more than must happen on the event loop."""
    client_request, upstream_request, response, now = (
        capture.client_request,
        capture.upstream_request,
        capture.response,
        time.monotonic(),
    )
    entry = FinishedExchange(
        request_record,
        now,
        time.time() - (now - request_record.started_at),
        client_request.route,
        client_request.tenant,
        client_request.strict,
        capture.trace_parent,
    )
    entry.sent_at, entry.responded_at = capture.sent_at, capture.responded_at
    if upstream_request is not None:
        entry.protocol = upstream_request.codec.name
    if response is not None and (summary := response.summary) is not None:
        entry.response_id, entry.response_model, entry.stop_reasons = (
            summary.id,
            summary.model,
            tuple(map(_candidate_stop, summary.candidates)),
        )
    if capture.losses:
        entry.losses = capture.losses
    if with_bodies and capture.body_chunks is not None:
        translated = b"" if upstream_request is None else upstream_request.body
        entry.bodies = Bodies(
            request=client_request.body, translated=translated, response=b"".join(capture.body_chunks)
        )
        entry.bodies.set_answers([] if capture.answers is None else capture.answers.bodies)
    return entry


def _named_counts(counts: tuple[int | None, ...]) -> dict[str, int]:
    """Return token counts by name, without unknown ones."""
    return {name: count for name, count in zip(USAGE_COUNTS, counts, strict=True) if count is not None}


_usage_counts = attrgetter(*USAGE_COUNTS)
_candidate_stop = attrgetter("stop")
_loss_severity = attrgetter("severity")
