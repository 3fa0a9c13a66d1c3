"""A greeting through the gateway: its loss report is short enough to be read for every pair of protocols."""

import json
from collections import Counter

import pytest

import toolwire as tw
from tests.support.assertions import non_empty
from tests.support.gateway.in_process import PROTOCOL_NAMES, one_provider_config, run_async, run_gateway
from tests.support.servers.asgi import serve_app
from toolwire.upstream.provider import parse_origin
from toolwire.upstream.simulator.app import Simulator

LIMIT_WARNINGS = 2


def _greeting(protocol: str, *, stream: bool) -> tuple[str, bytes]:
    """Return path and body of a request with no more than a client must send."""
    if protocol == "anthropic":
        body = {"model": "m", "max_tokens": 100, "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
        return "/v1/messages", json.dumps(body).encode()
    chat_body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    translation = tw.translate(chat_body, "openai-chat", protocol, stream=stream)
    assert translation.route.path is not None
    return translation.route.path, translation.to_bytes()


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("upstream", PROTOCOL_NAMES)
def test_greeting_has_no_error_and_at_most_two_warnings(upstream: str, stream: bool) -> None:
    async def work(base_url: str) -> None:
        async with run_gateway(one_provider_config(parse_origin(base_url), upstream)) as gateway:
            for client in PROTOCOL_NAMES:
                path, body = _greeting(client, stream=stream)
                response = await gateway.post(path, body)
                data = await response.read(100_000)
                assert response.status == 200, data
                report = await gateway.get(f"/toolwire/exchanges/{response.headers['toolwire-exchange']}/losses")
                losses = json.loads(report[1])["losses"]
                if client == upstream:
                    assert losses == []
                    continue
                for loss in losses:
                    assert loss["direction"] in ("request", "response")
                counts = Counter(loss["severity"] for loss in losses)
                assert counts["error"] == 0, (client, losses)
                assert counts["warning"] <= LIMIT_WARNINGS, (client, losses)

    with serve_app(Simulator()) as base_url:
        run_async(work(base_url))


def test_greeting_shows_what_a_target_requires() -> None:
    request = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    losses = tw.translate(request, "openai-chat", "anthropic").losses
    assert [(loss.severity, loss.direction, loss.target) for loss in non_empty(losses)] == [
        ("warning", "request", "/max_tokens")
    ]
