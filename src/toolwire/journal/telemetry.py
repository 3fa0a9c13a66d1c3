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

from .reading import request_of, response_of
from .records import Batch, Record

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import Tracer, TracerProvider

_ASKING = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
)
_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
# The conventions' names for who answers.
_PROVIDERS = {
    "anthropic": "anthropic",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "gemini": "gcp.gemini",
    "gemini-interactions": "gcp.gemini",
}
_USAGE = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read": "gen_ai.usage.cache_read.input_tokens",
    "cache_write": "gen_ai.usage.cache_creation.input_tokens",
}
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = tuple(4**power for power in range(14))
_NANO = 1_000_000_000


def telemetry_of(environment: Mapping[str, str], say: Callable[[str], None]) -> "Telemetry | None":
    """What exports, if the environment wants that, or a program around this one has set it up already."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if "opentelemetry.sdk.trace" in sys.modules and _is_set_up():
        return Telemetry(environment, around=True)
    if not any(environment.get(name, "none") != "none" for name in _ASKING):
        return None
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        say("telemetry is asked for, and opentelemetry-sdk is not installed: pip install 'toolwire[telemetry]'")
        return None
    return Telemetry(environment)


def _is_set_up() -> bool:
    from opentelemetry import trace  # noqa: PLC0415 - only where it is there anyway

    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


class Telemetry:
    """Takes records. `content`: what was said goes along; `around`: the program around this one exports."""

    def __init__(self, environment: Mapping[str, str], *, around: bool = False) -> None:
        self.content = environment.get(_CONTENT, "").lower() in ("true", "1", "span_only", "span_and_event")
        self._environment = environment
        self._around = around
        self._instruments: tuple[Tracer, Histogram, Histogram] | None = None
        self._providers: list[Any] = []

    @property
    def tracer(self) -> "Tracer":
        return self._ready()[0]

    def add(self, batch: Batch) -> None:
        tracer, seconds, tokens = self._ready()
        for record in batch.records:
            self._span(tracer, record)
            named = _attributes(record)
            seconds.record(record.ended, named)
            for count, kind in (("input_tokens", "input"), ("output_tokens", "output")):
                if count in record.usage:
                    tokens.record(record.usage[count], {**named, "gen_ai.token.type": kind})

    def close(self) -> None:
        for provider in self._providers:
            provider.shutdown()

    def _ready(self) -> "tuple[Tracer, Histogram, Histogram]":
        if self._instruments is None:
            self._instruments = self._set_up()
        return self._instruments

    def _set_up(self) -> "tuple[Tracer, Histogram, Histogram]":
        """Here, in the thread that exports: a process that forks takes no exporter along."""
        from opentelemetry import metrics, trace  # noqa: PLC0415 - an extra

        spans: TracerProvider = trace.get_tracer_provider()
        meters: MeterProvider = metrics.get_meter_provider()
        if not self._around:
            self._providers = [spans, meters] = exporting(self._environment)
        meter = meters.get_meter("toolwire")
        return (
            spans.get_tracer("toolwire"),
            meter.create_histogram(
                "gen_ai.client.operation.duration", "s", explicit_bucket_boundaries_advisory=_SECONDS
            ),
            meter.create_histogram("gen_ai.client.token.usage", "{token}", explicit_bucket_boundaries_advisory=_TOKENS),
        )

    def _span(self, tracer: "Tracer", record: Record) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415 - an extra
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        parent = TraceContextTextMapPropagator().extract({"traceparent": record.parent}) if record.parent else None
        attributes = _attributes(record) | _details(record)
        if self.content:
            attributes |= _said(record)
        start = int(record.at * _NANO)
        span = tracer.start_span(
            f"chat {record.model}".strip(), parent, SpanKind.CLIENT, attributes=attributes, start_time=start
        )
        if record.status >= 400 or record.why:
            span.set_status(Status(StatusCode.ERROR, record.why if self.content else None))
        span.end(start + int(record.ended * _NANO))


def exporting(environment: Mapping[str, str]) -> "list[Any]":
    """Providers of spans and of metrics that export as OpenTelemetry's own variables say."""
    from opentelemetry.sdk.metrics import MeterProvider as Meters  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider as Spans  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    named = environment.get("OTEL_SERVICE_NAME") or "toolwire"
    resource = Resource.create({"service.name": named})
    spans = Spans(resource=resource, shutdown_on_exit=False)
    if (exporter := _exporter(environment, "trace", "TRACES", "Span")) is not None:
        spans.add_span_processor(BatchSpanProcessor(exporter))
    exporter = _exporter(environment, "metric", "METRICS", "Metric")
    readers = [] if exporter is None else [PeriodicExportingMetricReader(exporter)]
    return [spans, Meters(readers, resource=resource, shutdown_on_exit=False)]


def _exporter(environment: Mapping[str, str], folder: str, signal: str, name: str) -> Any:
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


def _attributes(record: Record) -> dict[str, Any]:
    """What spans and metrics share: few values each."""
    found: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _PROVIDERS.get(record.protocol, record.protocol) or "unknown",
        "gen_ai.request.model": record.model,
    }
    if record.status >= 400:
        found["error.type"] = str(record.status)
    elif record.why:
        found["error.type"] = "stream"
    return found


def _details(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = {
        "toolwire.exchange": record.id,
        "toolwire.client": record.client,
        "toolwire.provider": record.provider,
        "toolwire.version": record.toolwire,
        "toolwire.streamed": record.streamed,
        "toolwire.losses": len(record.losses),
    }
    if record.stops:
        found["gen_ai.response.finish_reasons"] = record.stops
    named = {"gen_ai.response.id": record.answer, "gen_ai.response.model": record.answered_by}
    found |= {name: value for name, value in named.items() if value is not None}
    return found | {name: record.usage[count] for count, name in _USAGE.items() if count in record.usage}


def _said(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (request := request_of(record)) is not None:
        found["gen_ai.input.messages"] = _json([_message(one) for one in request.messages])
        if request.system:
            texts = [{"type": "text", "content": part.text} for part in request.system]
            found["gen_ai.system_instructions"] = _json(texts)
    if (response := response_of(record)) is not None:
        messages = [_message(message) for one in response.candidates for message in one.messages]
        found["gen_ai.output.messages"] = _json(messages)
    return found


def _message(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": [_part(part) for part in message.parts]}


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text() | Refusal():
            return {"type": "text", "content": part.text}
        case Reasoning():
            texts = [one.text for one in part.content if not isinstance(one, Media)]
            return {"type": "reasoning", "content": "".join(texts)}
        case ToolCall():
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
        case ToolResult():
            result = [_part(one) for one in part.content or ()]
            return {"type": "tool_call_response", "id": part.call_id, "response": result}
        case Data():
            return {"type": "data", "content": bytes(part.json).decode()}
        case _:
            return {"type": type(part).__name__.lower()}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
