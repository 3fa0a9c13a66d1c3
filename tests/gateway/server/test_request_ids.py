"""Ids of requests and traces: taken from the client, returned, and in the log."""

import json
from typing import Any

import pytest

from tests.support.bodies.minimal import anthropic_response
from tests.support.gateway.in_process import RunningGateway, one_provider_config, run_async, run_gateway
from tests.support.servers.http_responses import http_response
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
FINE = http_response(
    "200 OK", json.dumps(anthropic_response({"type": "text", "text": "fine"}, stop_reason="end_turn")).encode()
)
QUESTION: dict[str, Any] = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}


def headers_of(path: str, *, stream: bool = False, **headers: str) -> dict[str, str]:
    found: dict[str, str] = {}

    async def work() -> None:
        async with (
            serve_upstream(ScriptedUpstream(FINE)) as origin,
            run_gateway(one_provider_config(origin, "anthropic")) as gateway,
        ):
            response = await gateway.post(path, json.dumps({**QUESTION, "stream": stream}).encode(), **headers)
            await response.read(1_000_000)
            found.update(response.headers)

    run_async(work())
    return found


@pytest.mark.parametrize("path", ["/v1/messages", "/nowhere"])
def test_ids_of_the_client_are_returned(path: str) -> None:
    """On errors as well; the span of the exchange is a child of the client's."""
    headers = headers_of(path, x_request_id="req-7", traceparent=f"00-{TRACE}-00f067aa0ba902b7-01")
    exchange = headers["toolwire-exchange"]
    assert headers["x-request-id"] == "req-7"
    assert headers["traceparent"] == f"00-{TRACE}-{exchange.removeprefix('ex_')}-01"


def test_stream_returns_the_ids_of_the_client() -> None:
    headers = headers_of("/v1/messages", stream=True, x_request_id="req-7")
    assert headers["x-request-id"] == "req-7"


@pytest.mark.parametrize(
    "ids",
    [
        {},
        {"x_request_id": "two words", "traceparent": "00-1-2-3"},
        {"x_request_id": "x" * 129, "traceparent": f"00-{'0' * 32}-00f067aa0ba902b7-01"},
    ],
)
def test_id_of_the_exchange_replaces_a_missing_or_invalid_one(ids: dict[str, Any]) -> None:
    headers = headers_of("/v1/messages", stream=False, **ids)
    assert headers["x-request-id"] == headers["toolwire-exchange"]
    assert "traceparent" not in headers


def test_probes_tell_liveness_and_readiness_apart() -> None:
    async def work() -> None:
        async with (
            serve_upstream(ScriptedUpstream(FINE)) as origin,
            run_gateway(one_provider_config(origin)) as gateway,
        ):
            assert await probe(gateway) == (200, 200, 200)
            gateway.gateway.app.is_stopping = True
            assert await probe(gateway) == (200, 503, 200)

    run_async(work())


async def probe(gateway: RunningGateway) -> tuple[int, ...]:
    return tuple([(await gateway.get(path))[0] for path in ("/livez", "/readyz", "/healthz")])


def test_metrics_have_the_time_to_the_first_token_of_streams() -> None:
    async def work() -> None:
        async with (
            serve_upstream(ScriptedUpstream(FINE)) as origin,
            run_gateway(one_provider_config(origin, "anthropic")) as gateway,
        ):
            for stream in (True, False):
                response = await gateway.post("/v1/messages", json.dumps({**QUESTION, "stream": stream}).encode())
                await response.read(1_000_000)
            metrics = (await gateway.get("/metrics"))[1].decode()
            assert "toolwire_request_seconds_count 2\n" in metrics
            assert "toolwire_first_token_seconds_count 1\n" in metrics
            assert "# TYPE toolwire_event_loop_lag_seconds histogram\n" in metrics

    run_async(work())
