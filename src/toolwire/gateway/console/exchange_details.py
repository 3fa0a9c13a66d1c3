"""One exchange in full: its bodies without secrets, its losses, and its streams on a timeline."""

import shlex
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from toolwire import __version__
from toolwire.canonical.errors import Loss
from toolwire.codec.framing import LineSplitter, SseSplitter
from toolwire.gateway.console.exchange_buffer import BufferedExchange, CapturedExchange
from toolwire.gateway.console.exchange_rows import ExchangeRow
from toolwire.gateway.exchange.routing import Router
from toolwire.journal.records import Record, folded_answer, recorded_response_body
from toolwire.journal.redaction import Redactor
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.transport import Arrival

MAX_EVENTS = 2000
MAX_EVENT_TEXT = 4000
MAX_BODY_TEXT = 4 * 1024 * 1024


class StreamEvent(Struct, omit_defaults=True, gc=False):
    """One event of a stream."""

    at: float
    """Seconds since the request arrived."""
    text: str
    cut: int = 0
    """Characters that are left out at the end."""


class StreamEvents(Struct, omit_defaults=True):
    """The events of a stream, in one direction."""

    protocol: str
    events: list[StreamEvent] = []
    more: int = 0
    """Events that are left out at the end."""
    is_hidden: bool = False
    """Contents are hidden, since a secret is split over events."""


class BodyTexts(Struct, omit_defaults=True):
    """The bodies of an exchange as text, streams as one response; cut if they are very long."""

    request: str = ""
    translated: str = ""
    answers: list[str] = []
    response: str = ""


class UpstreamAddress(Struct, omit_defaults=True):
    """The address of a request to a provider, for a command line."""

    url: str = ""
    headers: list[tuple[str, str]] = []
    """Headers without the API key, whose header is `key_header`."""
    key_header: str = ""


class ExchangeDetails(Struct, kw_only=True):
    """Everything that the console shows of an exchange."""

    row: ExchangeRow
    losses: list[Loss]
    error: str
    bodies: BodyTexts | None = None
    missing_bodies: str = ""
    """Reason for missing bodies: `off` or `evicted`."""
    streams: list[StreamEvents] = []
    """Streams of the provider's responses, then of the response to the client."""
    upstream: UpstreamAddress | None = None
    client_headers: list[tuple[str, str]] = []
    strict: str = ""
    replay: str = ""
    """The command that sends the request again; empty unless the journal has it with bodies."""
    stop_reasons: list[str] = []
    response_model: str | None = None
    usage: dict[str, int] = {}
    cut: list[str] = []
    """Names of the bodies that are cut."""


def build_record(exchange: BufferedExchange) -> Record:
    """Return an exchange as a record of the journal."""
    if exchange.captured is not None:
        return exchange.captured.finished.to_record()
    request = exchange.record
    return Record(
        id=request.id,
        at=exchange.at,
        toolwire=__version__,
        client=request.client,
        path=request.path,
        tenant=exchange.tenant,
        provider=request.provider,
        model=request.model,
        status=request.status or 499,
        streamed=request.streamed,
        error=request.error,
        ended=request.duration,
        calls=request.calls or {},
        losses=exchange.losses,
    )


def build_details(
    exchange: BufferedExchange, row: ExchangeRow, router: Router, redactor: Redactor, *, is_journaled: bool
) -> bytes:
    """Return the details of an exchange as JSON without secrets. It may take long for large bodies."""
    original = build_record(exchange)
    record = redactor.redact_record(original)
    details = ExchangeDetails(
        row=row,
        losses=record.losses,
        error=record.error,
        strict="" if not record.strict else "error" if record.strict == "error" else "refuse",
        stop_reasons=record.stop_reasons,
        response_model=record.response_model,
        usage=record.usage,
        client_headers=_client_headers(record),
    )
    if (captured := exchange.captured) is None:
        details.missing_bodies = "evicted" if exchange.is_evicted else "off"
        return msgspec.json.encode(details)
    details.bodies = _body_texts(record, details.cut)
    details.streams = list(_streams(captured, original, record))
    details.upstream = find_address(record.provider, record.protocol, captured.upstream_path, router, redactor)
    if is_journaled and record.bodies is not None and exchange.number:
        details.replay = f"toolwire journal replay {shlex.quote(record.id)}"
    return msgspec.json.encode(details)


def _client_headers(record: Record) -> list[tuple[str, str]]:
    """Return the headers of the client's protocol, with the version that the client sent."""
    codec = PROTOCOLS.get(record.client)
    if codec is None:
        return []
    headers = dict(codec.surface.headers)
    return list((headers | dict(record.route.headers)).items())


def _body_texts(record: Record, cut: list[str]) -> BodyTexts:
    """Return the bodies of a record as text, and add the names of those that are cut."""

    def decode(name: str, data: bytes) -> str:
        """Return a body as text."""
        if len(data) > MAX_BODY_TEXT:
            cut.append(name)
        return data[:MAX_BODY_TEXT].decode("utf-8", "replace")

    bodies = record.bodies
    if bodies is None:
        return BodyTexts()
    response = recorded_response_body(record) if bodies.response else b""
    answers = [bodies.response] if bodies.is_passed_through else bodies.answers
    return BodyTexts(
        request=decode("request", bodies.request),
        translated=decode("translated", bodies.translated),
        answers=[decode("answer", folded_answer(record, answer)) for answer in answers if answer],
        response=decode("response", response),
    )


def _streams(captured: CapturedExchange, original: Record, record: Record) -> Sequence[StreamEvents]:
    """Return the streams of an exchange, each event with its time."""
    bodies, redacted = original.bodies, record.bodies
    if bodies is None or redacted is None or not original.streamed:
        return []
    started_at = captured.finished.request_record.started_at
    answers = bodies.answers
    redacted_answers = redacted.answers
    if bodies.is_passed_through:
        answers, redacted_answers = [bodies.response], [redacted.response]
    streams = [
        split_stream(original.protocol, answer, arrivals, started_at, is_hidden=answer != shown)
        for answer, shown, arrivals in zip(answers, redacted_answers, captured.answer_arrivals, strict=False)
    ]
    response, is_hidden = bodies.response, redacted.response != bodies.response
    return [
        *streams,
        split_stream(original.client, response, captured.response_arrivals, started_at, is_hidden=is_hidden),
    ]


def split_stream(
    protocol: str, data: bytes, arrivals: Sequence[Arrival], started_at: float, *, is_hidden: bool = False
) -> StreamEvents:
    """Return the events of a recorded stream, each with the time at which its end arrived."""
    codec = PROTOCOLS.get(protocol)
    is_lines = codec is not None and codec.surface.stream_type != "text/event-stream"
    splitter = LineSplitter() if is_lines else SseSplitter()
    stream = StreamEvents(protocol, is_hidden=is_hidden)
    position, at = 0, started_at
    for at, size in arrivals:
        _add_events(stream, splitter.feed(data[position : position + size]), at - started_at)
        position += size
    _add_events(stream, splitter.close(), at - started_at)
    return stream


def _add_events(stream: StreamEvents, frames: list[bytes], at: float) -> None:
    """Add events that arrived at one time, up to the limit."""
    for frame in frames:
        if len(stream.events) >= MAX_EVENTS:
            stream.more += 1
            continue
        text = "" if stream.is_hidden else frame.decode("utf-8", "replace")
        stream.events.append(StreamEvent(at, text[:MAX_EVENT_TEXT], max(0, len(text) - MAX_EVENT_TEXT)))


def find_address(name: str, protocol: str, path: str, router: Router, redactor: Redactor) -> UpstreamAddress | None:
    """Return the address of a request to a provider; None for cloud platforms, whose paths hold account data."""
    provider, codec = router.providers.get(name), PROTOCOLS.get(protocol)
    if provider is None or codec is None or provider.address is not None:
        return None
    host = f"{provider.origin.scheme}://{provider.origin.authority}"
    target = provider.request_target(path or "/")
    own = {header.lower() for header in provider.headers}
    headers = {"content-type": "application/json"} | dict(codec.surface.headers)
    headers = {header: value for header, value in headers.items() if header not in own}
    key_header = codec.surface.auth_header("$KEY")[0] if provider.has_key else ""
    return UpstreamAddress(redactor.redact_text(host + target), list(headers.items()), key_header)
