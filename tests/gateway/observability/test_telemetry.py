"""Spans and metrics of exchanges, as received by a collector on loopback."""

import json
import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.deadlines import DEADLINE
from tests.support.gateway.in_process import (
    PROTOCOL_NAMES,
    RunningGateway,
    journal_config,
    one_provider_config,
    question_request,
    read_journal,
    run_async,
    run_gateway,
)
from tests.support.servers.asgi import serve_app
from tests.support.servers.http_responses import http_response, openai_error_body
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire import __version__
from toolwire.journal.telemetry import configure_telemetry
from toolwire.upstream.provider import Origin, parse_origin
from toolwire.upstream.simulator.app import Simulator

TRACE = "0af7651916cd43dd8448eb211c80319c"
CONTENT = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
SECRET = "upstream-secret-key"


class Collector:
    """Receives OTLP exports."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append((scope["path"], body))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    @property
    def spans(self) -> list[Any]:
        metrics = []
        for path, body in self.bodies:
            if path == "/v1/traces":
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    assert attributes(resource.resource)["service.name"] == "toolwire"
                    metrics += [span for scope in resource.scope_spans for span in scope.spans]
        return metrics

    @property
    def points(self) -> list[tuple[str, dict[str, Any], Any]]:
        """Each with the name of its metric and its attributes."""
        return [
            (metric.name, attributes(point), point)
            for path, body in self.bodies
            if path == "/v1/metrics"
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.histogram.data_points
        ]


def attributes(holder: Any) -> dict[str, Any]:
    spans = {}
    for one in holder.attributes:
        kind = one.value.WhichOneof("value")
        value = getattr(one.value, kind)
        spans[one.key] = [each.string_value for each in value.values] if kind == "array_value" else value
    return spans


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    spans = Collector()
    with serve_app(spans) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)  # read by the exporter
        yield spans


async def exchange_once(
    origin: Origin, protocol: str, client: str, *, stream: bool, more: str = "", **environment: str
) -> int:
    expected = {"OTEL_EXPORTER_OTLP_ENDPOINT": "the collector"} | environment
    async with run_gateway(one_provider_config(origin, protocol, more), environment=expected) as gateway:
        return await _send_request(gateway, client, stream=stream)


async def _send_request(gateway: RunningGateway, client: str, *, stream: bool) -> int:
    path, body = question_request(client, stream=stream, text=f"weather for {SECRET}")
    response = await gateway.post(path, body, traceparent=f"00-{TRACE}-b7ad6b7169203331-01")
    await response.read(100_000)
    return response.status


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_exchange_is_exported_as_span_and_metrics(collector: Collector, protocol: str, stream: bool) -> None:
    with serve_app(Simulator()) as base_url:
        run_async(_check_exports(parse_origin(base_url), protocol, stream))
    (span,) = collector.spans
    told_by_span = attributes(span)
    assert (span.name, span.kind, span.status.code) == ("chat m", 3, 0)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, "b7ad6b7169203331")
    assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 10**10
    names = {"anthropic": "anthropic", "gemini": "gcp.gemini", "gemini-interactions": "gcp.gemini"}
    name = names.get(protocol, "openai" if protocol.startswith("openai") else protocol)
    assert told_by_span["gen_ai.provider.name"] == name
    assert (told_by_span["gen_ai.operation.name"], told_by_span["gen_ai.request.model"]) == ("chat", "m")
    assert told_by_span["gen_ai.usage.input_tokens"] > 5
    assert (told_by_span["toolwire.client"], told_by_span["toolwire.provider"]) == ("anthropic", "up")
    assert (told_by_span["toolwire.streamed"], told_by_span["toolwire.version"]) == (stream, __version__)
    points = {(metric, labels.get("gen_ai.token.type")): (labels, point) for metric, labels, point in collector.points}
    assert set(points) == {
        ("gen_ai.client.operation.duration", None),
        ("gen_ai.client.token.usage", "input"),
        ("gen_ai.client.token.usage", "output"),
    }
    assert told_by_span["gen_ai.response.finish_reasons"] == ["end_turn"]
    assert told_by_span["gen_ai.response.model"]
    labels, point = points["gen_ai.client.token.usage", "input"]
    assert (labels["gen_ai.provider.name"], point.count) == (name, 1)
    assert point.sum == told_by_span["gen_ai.usage.input_tokens"]
    assert b"weather for" not in b"".join(body for _, body in collector.bodies)


async def _check_exports(origin: Origin, protocol: str, stream: bool) -> None:
    assert await exchange_once(origin, protocol, "anthropic", stream=stream) == 200


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", PROTOCOL_NAMES)
def test_content_is_exported_only_if_enabled_and_redacted(
    collector: Collector, client: str, stream: bool, tmp_path: Path
) -> None:
    async def work(origin: Origin) -> None:
        more = journal_config(tmp_path, "bodies = false")
        assert await exchange_once(origin, "gemini", client, stream=stream, more=more, **CONTENT) == 200

    with serve_app(Simulator()) as base_url:
        run_async(work(parse_origin(base_url)))
    (span,) = collector.spans
    spans = attributes(span)
    (message,) = json.loads(spans["gen_ai.input.messages"])
    assert message == {"role": "user", "parts": [{"type": "text", "content": "weather for [removed]"}]}
    (response,) = json.loads(spans["gen_ai.output.messages"])
    assert response["role"] == "assistant"
    assert "weather for [removed]" in response["parts"][-1]["content"]
    assert spans["gen_ai.response.finish_reasons"] == ["end_turn"]
    assert SECRET.encode() not in b"".join(body for _, body in collector.bodies)
    (record,) = read_journal(tmp_path)
    assert record.bodies is None


def test_failed_exchange_exports_only_its_status(collector: Collector) -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            http_response("400 Bad", openai_error_body("weather: too hot", "invalid_request_error"))
        )
        async with serve_upstream(script) as origin:
            assert await exchange_once(origin, "openai-chat", "gemini", stream=False) == 400

    run_async(work())
    (span,) = collector.spans
    assert (span.status.code, span.status.message, attributes(span)["error.type"]) == (2, "", "400")
    assert {labels["error.type"] for _, labels, _ in collector.points} == {"400"}
    assert b"too hot" not in b"".join(body for _, body in collector.bodies)


@pytest.mark.parametrize(
    "environment",
    [{}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}],
)
def test_telemetry_is_off_by_default(environment: dict[str, str]) -> None:
    assert configure_telemetry(environment, print) is None


def test_disabled_telemetry_imports_nothing() -> None:
    program = """
import sys
from toolwire.gateway.config import Config
from toolwire.gateway.server.gateway import build_gateway
gateway = build_gateway(Config(), None, {"HOME": "/nonexistent"})
gateway.simulator_socket.close()
assert gateway.app._recorder is None
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=DEADLINE)


def test_missing_telemetry_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    content: list[str] = []
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    assert configure_telemetry({"OTEL_TRACES_EXPORTER": "otlp"}, content.append) is None
    [message] = content
    assert message.startswith("no telemetry is exported: OpenTelemetry needs the extra `telemetry`: ")


def test_unreachable_collector_does_not_stop_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")

    async def work(origin: Origin) -> None:
        assert await exchange_once(origin, "gemini", "anthropic", stream=False) == 200

    with serve_app(Simulator()) as base_url:
        run_async(work(parse_origin(base_url)))
