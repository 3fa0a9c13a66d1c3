"""OpenTelemetry: a span and two metrics for each exchange, where an exporter is configured; what was said only if
that is asked for. The names are those of the semantic conventions for generative AI, which are not final yet: this
file is the only place that knows them.
"""

import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from toolwire.canonical.content import Data, Media, Message, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
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
# The conventions' names for who answers.
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
    """What exports, if the environment wants that, or a program around this one has set it up already."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if "opentelemetry.sdk.trace" in sys.modules and _is_configured():
        return Telemetry(environment, use_global_providers=True)
    if not any(environment.get(name, "none") != "none" for name in _EXPORTER_VARIABLES):
        return None
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        warn("telemetry is asked for, and opentelemetry-sdk is not installed: pip install 'toolwire[telemetry]'")
        return None
    return Telemetry(environment)


def _is_configured() -> bool:
    from opentelemetry import trace  # noqa: PLC0415 - only where it is there anyway

    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


class Telemetry:
    """Takes records. `content`: what was said goes along; `around`: the program around this one exports."""

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
        return self._get_instruments()[0]

    def add(self, batch: RecordBatch) -> None:
        tracer, seconds, tokens = self._get_instruments()
        for record in batch.records:
            self._record_span(tracer, record)
            named = _shared_attributes(record)
            seconds.record(record.ended, named)
            for count, kind in (("input_tokens", "input"), ("output_tokens", "output")):
                if count in record.usage:
                    tokens.record(record.usage[count], {**named, "gen_ai.token.type": kind})

    def close(self) -> None:
        for provider in self._providers:
            provider.shutdown()

    def _get_instruments(self) -> "tuple[Tracer, Histogram, Histogram]":
        if self._instruments is None:
            self._instruments = self._create_instruments()
        return self._instruments

    def _create_instruments(self) -> "tuple[Tracer, Histogram, Histogram]":
        """Here, in the thread that exports: a process that forks takes no exporter along."""
        from opentelemetry import metrics, trace  # noqa: PLC0415 - an extra

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
        from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415 - an extra
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
    """Providers of spans and of metrics that export as OpenTelemetry's own variables say."""
    from opentelemetry.sdk.metrics import MeterProvider as Meters  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider as Spans  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    named = environment.get("OTEL_SERVICE_NAME") or "toolwire"
    resource = Resource.create({"service.name": named})
    spans = Spans(resource=resource, shutdown_on_exit=False)
    if (exporter := _create_exporter(environment, "trace", "TRACES", "Span")) is not None:
        spans.add_span_processor(BatchSpanProcessor(exporter))
    exporter = _create_exporter(environment, "metric", "METRICS", "Metric")
    readers = [] if exporter is None else [PeriodicExportingMetricReader(exporter)]
    return [spans, Meters(readers, resource=resource, shutdown_on_exit=False)]


def _create_exporter(environment: Mapping[str, str], folder: str, signal: str, name: str) -> Any:
    kind = environment.get(f"OTEL_{signal}_EXPORTER") or "otlp"
    if kind == "none":
        return None
    if kind == "console":
        package = "trace" if name == "Span" else "metrics"
        return getattr(import_module(f"opentelemetry.sdk.{package}.export"), f"Console{name}Exporter")()
    spoken = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    package = "grpc" if spoken == "grpc" else "http"
    module = import_module(f"opentelemetry.exporter.otlp.proto.{package}.{folder}_exporter")
    return getattr(module, f"OTLP{name}Exporter")()


# ---- what is told


def _shared_attributes(record: Record) -> dict[str, Any]:
    """What spans and metrics share: few values each."""
    found: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _PROVIDER_NAMES.get(record.protocol, record.protocol) or "unknown",
        "gen_ai.request.model": record.model,
    }
    if record.status >= 400:
        found["error.type"] = str(record.status)
    elif record.error:
        found["error.type"] = "stream"
    return found


def _span_attributes(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = {
        "toolwire.exchange": record.id,
        "toolwire.client": record.client,
        "toolwire.provider": record.provider,
        "toolwire.version": record.toolwire,
        "toolwire.streamed": record.streamed,
        "toolwire.losses": len(record.losses),
    }
    if record.stop_reasons:
        found["gen_ai.response.finish_reasons"] = record.stop_reasons
    named = {"gen_ai.response.id": record.response_id, "gen_ai.response.model": record.response_model}
    found |= {name: value for name, value in named.items() if value is not None}
    return found | {name: record.usage[count] for count, name in _USAGE_ATTRIBUTES.items() if count in record.usage}


def _content_attributes(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (request := decode_recorded_request(record)) is not None:
        found["gen_ai.input.messages"] = _to_json([_message_json(one) for one in request.messages])
        if request.system:
            texts = [{"type": "text", "content": part.text} for part in request.system]
            found["gen_ai.system_instructions"] = _to_json(texts)
    if (response := decode_recorded_response(record)) is not None:
        messages = [_message_json(message) for one in response.candidates for message in one.messages]
        found["gen_ai.output.messages"] = _to_json(messages)
    return found


def _message_json(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": [_part_json(part) for part in message.parts]}


def _part_json(part: Part) -> dict[str, Any]:
    match part:
        case Text() | Refusal():
            return {"type": "text", "content": part.text}
        case Reasoning():
            texts = [one.text for one in part.content if not isinstance(one, Media)]
            return {"type": "reasoning", "content": "".join(texts)}
        case ToolCall():
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
        case ToolResult():
            result = [_part_json(one) for one in part.content or ()]
            return {"type": "tool_call_response", "id": part.call_id, "response": result}
        case Data():
            return {"type": "data", "content": bytes(part.json).decode()}
        case _:
            return {"type": type(part).__name__.lower()}


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
