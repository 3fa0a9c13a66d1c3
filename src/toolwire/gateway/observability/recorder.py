"""From an exchange to the record of it: what was at hand anyway is noted on the way, and put together at the end."""

import time
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from msgspec import Struct

from toolwire import __version__
from toolwire.canonical.loss import Loss
from toolwire.canonical.response import Stop
from toolwire.codec.interface import Route
from toolwire.gateway.config import Config, configured_secrets, journal_path
from toolwire.gateway.exchange.types import BufferedResponse, ClientRequest, StreamingResponse, UpstreamRequest
from toolwire.gateway.observability.access_log import RequestRecord
from toolwire.gateway.state.background_jobs import BackgroundJob, FrameLogReader
from toolwire.journal.records import USAGE_COUNTS, Bodies, Record, UniqueFields, record_size
from toolwire.journal.redaction import Redactor
from toolwire.journal.store import open_record_store
from toolwire.journal.telemetry import configure_telemetry
from toolwire.journal.writer import JournalWriter, RecordSink
from toolwire.upstream.provider import Provider


class ExchangeCapture(Struct, gc=False):
    """What is known of an exchange under way. `pieces` are those of the answer, if they are kept, and `room` is how
    many bytes more may be."""

    client_request: ClientRequest
    trace_parent: str
    body_chunks: list[bytes] | None = None
    bytes_left: int = 0
    upstream_request: UpstreamRequest | None = None
    sent_at: float | None = None
    responded_at: float | None = None
    losses: list[Loss] | None = None
    response: BufferedResponse | StreamingResponse | FrameLogReader | BackgroundJob | None = None

    def on_request_sent(self, upstream_request: UpstreamRequest) -> None:
        self.upstream_request, self.sent_at = upstream_request, time.monotonic()

    def on_response(self, response: BufferedResponse | StreamingResponse | FrameLogReader) -> None:
        self.responded_at, self.response = time.monotonic(), response
        if type(response) is BufferedResponse:
            self.losses = response.losses
            if self.body_chunks is not None:
                self.append_body(response.body)

    def append_body(self, data: bytes) -> None:
        if self.body_chunks is not None and self.bytes_left >= len(data):
            self.bytes_left -= len(data)
            self.body_chunks.append(data)
        else:
            self.bytes_left = 0


class FinishedExchange(Struct, gc=False):
    """What is known of an exchange that is over: the journal's thread makes the record of it, many in a row."""

    request_record: RequestRecord
    ended_at: float
    at: float
    route: Route
    tenant: str
    strict: bool
    trace_parent: str
    sent_at: float | None = None
    responded_at: float | None = None
    protocol: str = ""
    response_id: str | None = None
    response_model: str | None = None
    stop_reasons: tuple[Stop | None, ...] = ()
    losses: list[Loss] = []
    bodies: Bodies | None = None

    @property
    def size(self) -> int:
        return record_size(self.losses, self.bodies)

    @property
    def unique_fields(self) -> UniqueFields:
        line, began = self.request_record, self.request_record.started_at
        return (
            line.id,
            self.at,
            None if self.sent_at is None else self.sent_at - began,
            None if self.responded_at is None else self.responded_at - began,
            self.ended_at - began,
            self.response_id,
            () if line.usage is None else _usage_counts(line.usage),
        )

    @property
    def repeated_fields(self) -> tuple[Any, ...]:
        line = self.request_record
        return (
            *(line.client, line.path, line.provider, line.model, line.status, line.streamed, line.error, line.failed),
            *(self.route, self.tenant, self.strict, self.protocol, self.response_model, self.stop_reasons, self.losses),
            self.trace_parent,
        )

    def to_record(self) -> Record:
        line, began = self.request_record, self.request_record.started_at
        return Record(
            id=line.id,
            at=self.at,
            toolwire=__version__,
            client=line.client,
            path=line.path,
            route=self.route,
            tenant=self.tenant,
            strict=self.strict,
            provider=line.provider,
            protocol=self.protocol,
            model=line.model,
            status=line.status or 499,
            streamed=line.streamed,
            error=line.error or ("the upstream failed midway" if line.failed else ""),
            sent=None if self.sent_at is None else self.sent_at - began,
            answered=None if self.responded_at is None else self.responded_at - began,
            ended=self.ended_at - began,
            usage={} if line.usage is None else _named_counts(_usage_counts(line.usage)),
            response_id=self.response_id,
            response_model=self.response_model,
            stop_reasons=[stop.reason for stop in self.stop_reasons if stop is not None],
            losses=self.losses,
            traceparent=self.trace_parent,
            bodies=self.bodies,
        )


def build_recorder(
    config: Config, providers: Iterable[Provider], environment: Mapping[str, str], log: Callable[[str], None]
) -> "Recorder | None":
    """What records exchanges, if a journal or telemetry wants them."""
    section, sinks, content = config.journal, list[RecordSink](), False
    if section.enabled:
        path = journal_path(config, environment)
        sinks.append(
            open_record_store(path, max_age_days=section.days, max_bytes=section.size, store_bodies=section.bodies)
        )
        content = section.bodies
    if (telemetry := configure_telemetry(environment, log)) is not None:
        sinks.append(telemetry)
        content = content or telemetry.captures_content
    if not sinks:
        return None
    redactor = Redactor(configured_secrets(config, providers))
    journal = JournalWriter(sinks, redactor, section.queue, lambda why: log(f"journal: {why}"))
    return Recorder(journal, config.limits.answer if content else 0)


class Recorder:
    """`limit` is how much of an answer is kept, 0 if no bodies are."""

    def __init__(self, journal: JournalWriter, limit: int) -> None:
        self.journal = journal
        self._limit = limit

    def start_capture(self, client_request: ClientRequest, headers: dict[bytes, bytes]) -> ExchangeCapture:
        parent = headers.get(b"traceparent")
        told = "" if parent is None else parent.decode("latin-1")
        return (
            ExchangeCapture(client_request, told, [], self._limit)
            if self._limit
            else ExchangeCapture(client_request, told)
        )

    def record_exchange(self, request_record: RequestRecord, capture: ExchangeCapture) -> None:
        """Record it now; what is made in the background once that is over, as if the client had waited for it."""
        answer = capture.response
        work = None if answer is None or isinstance(answer, BackgroundJob) else answer.job
        if work is None or work.task is None:
            self.journal.add(_finish_exchange(request_record, capture))
        else:
            work.task.add_done_callback(lambda _: self._record_job(request_record, capture, work))

    def _record_job(self, request_record: RequestRecord, capture: ExchangeCapture, job: BackgroundJob) -> None:
        capture.response, capture.losses = job, job.losses
        request_record.streamed, request_record.usage = False, None if job.summary is None else job.summary.usage
        if capture.body_chunks is not None:
            capture.body_chunks = []
            capture.append_body(job.final_body)
        if job.failure is not None:
            request_record.status, request_record.error = job.failure.status or 502, job.failure.message
        self.journal.add(_finish_exchange(request_record, capture))


def _finish_exchange(request_record: RequestRecord, capture: ExchangeCapture) -> FinishedExchange:
    """What every exchange goes through: no more than must be done at once."""
    asked, sent, answer, now = capture.client_request, capture.upstream_request, capture.response, time.monotonic()
    entry = FinishedExchange(
        request_record,
        now,
        time.time() - (now - request_record.started_at),
        asked.route,
        asked.tenant,
        asked.strict,
        capture.trace_parent,
    )
    entry.sent_at, entry.responded_at = capture.sent_at, capture.responded_at
    if sent is not None:
        entry.protocol = sent.codec.name
    if answer is not None and (told := answer.summary) is not None:
        entry.response_id, entry.response_model, entry.stop_reasons = (
            told.id,
            told.model,
            tuple(map(_candidate_stop, told.candidates)),
        )
    if capture.losses:
        entry.losses = capture.losses
    if capture.body_chunks is not None:
        translated = b"" if sent is None else sent.body
        entry.bodies = Bodies(request=asked.body, translated=translated, response=b"".join(capture.body_chunks))
    return entry


def _named_counts(counts: tuple[int | None, ...]) -> dict[str, int]:
    return {name: count for name, count in zip(USAGE_COUNTS, counts, strict=True) if count is not None}


_usage_counts = attrgetter(*USAGE_COUNTS)
_candidate_stop = attrgetter("stop")
