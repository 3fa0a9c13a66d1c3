"""OpenTelemetry export: a span and two metrics per exchange, if an exporter is configured.

Attribute names follow the semantic conventions for generative AI, which are not stable yet. Message content is exported
only on request.
"""

import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from toolwire.canonical.content import Data, Media, Message, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from toolwire.canonical.errors import counted_losses
from toolwire.installation import missing_extra_message
from toolwire.journal.records import Record, RecordBatch, decode_recorded_request, decode_recorded_response

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import Tracer, TracerProvider

_EXPORTER_VARIABLES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
)
_CAPTURE_CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
# `gen_ai.provider.name` by protocol.
_PROVIDER_NAMES = {
    "anthropic": "anthropic",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "gemini": "gcp.gemini",
    "gemini-interactions": "gcp.gemini",
}
_USAGE_ATTRIBUTES = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read": "gen_ai.usage.cache_read.input_tokens",
    "cache_write": "gen_ai.usage.cache_creation.input_tokens",
}
_DURATION_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKEN_BUCKETS = tuple(4**power for power in range(14))
_NANOSECONDS_PER_SECOND = 1_000_000_000


def configure_telemetry(environment: Mapping[str, str], warn: Callable[[str], None]) -> "Telemetry | None":
    """Return the exporter if the environment or the embedding program configures OpenTelemetry; else None."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if "opentelemetry.sdk.trace" in sys.modules and _is_configured():
        return Telemetry(environment, use_global_providers=True)
    if not any(environment.get(name, "none") != "none" for name in _EXPORTER_VARIABLES):
        return None
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        warn(f"no telemetry is exported: {missing_extra_message('telemetry', 'OpenTelemetry')}")
        return None
    return Telemetry(environment)


def _is_configured() -> bool:
    """Return True if the embedding program has set a global tracer provider."""
    from opentelemetry import trace  # noqa: PLC0415 - called only if it is loaded already

    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


class Telemetry:
    """Exports records as spans and metrics.

    With `use_global_providers`, the providers of the embedding program are used instead of new ones.
    """

    def __init__(self, environment: Mapping[str, str], *, use_global_providers: bool = False) -> None:
        self.captures_content = environment.get(_CAPTURE_CONTENT_VARIABLE, "").lower() in (
            "true",
            "1",
            "span_only",
            "span_and_event",
        )
        self._environment = environment
        self._use_global_providers = use_global_providers
        self._instruments: tuple[Tracer, Histogram, Histogram] | None = None
        self._providers: list[Any] = []

    @property
    def tracer(self) -> "Tracer":
        """The tracer, created on first use."""
        return self._get_instruments()[0]

    def add(self, batch: RecordBatch) -> None:
        """Export a span, the duration and the token counts of each record."""
        tracer, durations, tokens = self._get_instruments()
        for record in batch.records:
            self._record_span(tracer, record)
            attributes = _shared_attributes(record)
            durations.record(record.ended, attributes)
            for count, token_type in (("input_tokens", "input"), ("output_tokens", "output")):
                if count in record.usage:
                    tokens.record(record.usage[count], {**attributes, "gen_ai.token.type": token_type})

    def close(self) -> None:
        """Shut down the providers that were created here."""
        for provider in self._providers:
            provider.shutdown()

    def _get_instruments(self) -> "tuple[Tracer, Histogram, Histogram]":
        """Return the tracer and the histograms of duration and tokens, created on first use."""
        if self._instruments is None:
            self._instruments = self._create_instruments()
        return self._instruments

    def _create_instruments(self) -> "tuple[Tracer, Histogram, Histogram]":
        """Create the tracer and the histograms, in the exporting thread because threads do not survive a fork."""
        from opentelemetry import metrics, trace  # noqa: PLC0415 - optional dependency

        spans: TracerProvider = trace.get_tracer_provider()
        meters: MeterProvider = metrics.get_meter_provider()
        if not self._use_global_providers:
            self._providers = [spans, meters] = create_providers(self._environment)
        meter = meters.get_meter("toolwire")
        return (
            spans.get_tracer("toolwire"),
            meter.create_histogram(
                "gen_ai.client.operation.duration", "s", explicit_bucket_boundaries_advisory=_DURATION_BUCKETS
            ),
            meter.create_histogram(
                "gen_ai.client.token.usage", "{token}", explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS
            ),
        )

    def _record_span(self, tracer: "Tracer", record: Record) -> None:
        """Export one exchange as a span, under the client's trace if it sent a `traceparent`."""
        from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415 - optional dependency
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        parent = (
            TraceContextTextMapPropagator().extract({"traceparent": record.traceparent}) if record.traceparent else None
        )
        attributes = _shared_attributes(record) | _span_attributes(record)
        if self.captures_content:
            attributes |= _content_attributes(record)
        start = int(record.at * _NANOSECONDS_PER_SECOND)
        span = tracer.start_span(
            f"chat {record.model}".strip(), parent, SpanKind.CLIENT, attributes=attributes, start_time=start
        )
        if record.status >= 400 or record.error:
            span.set_status(Status(StatusCode.ERROR, record.error if self.captures_content else None))
        span.end(start + int(record.ended * _NANOSECONDS_PER_SECOND))


def create_providers(environment: Mapping[str, str]) -> "list[Any]":
    """Create the tracer and meter providers that the `OTEL_*` variables configure."""
    from opentelemetry.sdk.metrics import MeterProvider as Meters  # noqa: PLC0415 - optional dependency
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider as Spans  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    service_name = environment.get("OTEL_SERVICE_NAME") or "toolwire"
    resource = Resource.create({"service.name": service_name})
    spans = Spans(resource=resource, shutdown_on_exit=False)
    if (exporter := _create_exporter(environment, "trace", "TRACES", "Span")) is not None:
        spans.add_span_processor(BatchSpanProcessor(exporter))
    exporter = _create_exporter(environment, "metric", "METRICS", "Metric")
    readers = [] if exporter is None else [PeriodicExportingMetricReader(exporter)]
    return [spans, Meters(readers, resource=resource, shutdown_on_exit=False)]


def _create_exporter(environment: Mapping[str, str], folder: str, signal: str, name: str) -> Any:
    """Create the OTLP or console exporter of a signal; None if the environment turns it off.

    `signal` names it in variables (`TRACES`), `folder` in module paths and `name` in classes (`Span`).
    """
    kind = environment.get(f"OTEL_{signal}_EXPORTER") or "otlp"
    if kind == "none":
        return None
    if kind == "console":
        package = "trace" if name == "Span" else "metrics"
        return getattr(import_module(f"opentelemetry.sdk.{package}.export"), f"Console{name}Exporter")()
    protocol = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    package = "grpc" if protocol == "grpc" else "http"
    module = import_module(f"opentelemetry.exporter.otlp.proto.{package}.{folder}_exporter")
    return getattr(module, f"OTLP{name}Exporter")()


# Attributes


def _shared_attributes(record: Record) -> dict[str, Any]:
    """Return the attributes of both spans and metrics: operation, provider, model and error type.

    Each has few distinct values, as metrics require.
    """
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _PROVIDER_NAMES.get(record.protocol, record.protocol) or "unknown",
        "gen_ai.request.model": record.model,
    }
    if record.status >= 400:
        attributes["error.type"] = str(record.status)
    elif record.error:
        attributes["error.type"] = "stream"
    return attributes


def _span_attributes(record: Record) -> dict[str, Any]:
    """Return the attributes that only spans have: ids, finish reasons, token counts and toolwire's own fields.

    They differ from exchange to exchange, so metrics can't use them.
    """
    attributes: dict[str, Any] = {
        "toolwire.exchange": record.id,
        "toolwire.client": record.client,
        "toolwire.provider": record.provider,
        "toolwire.version": record.toolwire,
        "toolwire.streamed": record.streamed,
        "toolwire.losses": len(counted_losses(record.losses)),
    }
    if record.stop_reasons:
        attributes["gen_ai.response.finish_reasons"] = record.stop_reasons
    identity = {"gen_ai.response.id": record.response_id, "gen_ai.response.model": record.response_model}
    attributes |= {name: value for name, value in identity.items() if value is not None}
    usage = {name: record.usage[count] for count, name in _USAGE_ATTRIBUTES.items() if count in record.usage}
    return attributes | usage


def _content_attributes(record: Record) -> dict[str, Any]:
    """Return the recorded input and output messages of the exchange as span attributes."""
    attributes: dict[str, Any] = {}
    if (request := decode_recorded_request(record)) is not None:
        attributes["gen_ai.input.messages"] = _to_json([_message_json(message) for message in request.messages])
        if request.system:
            texts = [{"type": "text", "content": part.text} for part in request.system]
            attributes["gen_ai.system_instructions"] = _to_json(texts)
    if (response := decode_recorded_response(record)) is not None:
        messages = [_message_json(message) for candidate in response.candidates for message in candidate.messages]
        attributes["gen_ai.output.messages"] = _to_json(messages)
    return attributes


def _message_json(message: Message) -> dict[str, Any]:
    """Convert a message to JSON data as OpenTelemetry's GenAI conventions define it."""
    return {"role": message.role, "parts": [_part_json(part) for part in message.parts]}


def _part_json(part: Part) -> dict[str, Any]:
    """Convert a part to JSON data of the GenAI conventions; parts unknown to them are named by type only."""
    match part:
        case Text() | Refusal():
            return {"type": "text", "content": part.text}
        case Reasoning():
            texts = [content.text for content in part.content if not isinstance(content, Media)]
            return {"type": "reasoning", "content": "".join(texts)}
        case ToolCall():
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
        case ToolResult():
            result = [_part_json(content) for content in part.content or ()]
            return {"type": "tool_call_response", "id": part.call_id, "response": result}
        case Data():
            return {"type": "data", "content": bytes(part.json).decode()}
        case _:
            return {"type": type(part).__name__.lower()}


def _to_json(value: Any) -> str:
    """Encode a value as JSON text, for an attribute."""
    return json.dumps(value, ensure_ascii=False)
