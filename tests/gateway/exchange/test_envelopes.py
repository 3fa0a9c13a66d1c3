"""Envelopes outlive the gateway that made them, and are worthless to other tenants."""

import json
from pathlib import Path
from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import USER_MESSAGE, anthropic_request, responses_request
from tests.support.gateway.in_process import one_provider_config, run_async, run_gateway
from tests.support.servers.http_responses import http_response
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire.gateway.config import ServerSection
from toolwire.gateway.signing_keys import load_signing_keys

PATHS = {"anthropic": "/v1/messages", "openai-responses": "/v1/responses"}
SIGNATURE = "c2lnbmF0dXJlLW9mLWdvb2dsZQ=="
CALL = {
    "functionCall": {"id": "call_1", "name": "get_weather", "args": {"city": "Paris"}},
    "thoughtSignature": SIGNATURE,
}
ANSWERED = {"candidates": [{"content": {"parts": [CALL], "role": "model"}, "finishReason": "STOP"}], "responseId": "r"}
KEY = {"x_api_key": "first-key-1"}


async def call_and_result(
    script: ScriptedUpstream, client: str, first: str, second: str, key: dict[str, str]
) -> tuple[int, Any, list[str]]:
    """Send a call through one gateway and its result through another; return the upstream request and the losses."""
    request_body = anthropic_request() if client == "anthropic" else responses_request(USER_MESSAGE, store=False)
    async with serve_upstream(script) as origin:
        async with run_gateway(one_provider_config(origin, "gemini", first)) as gateway:
            response = await gateway.post(PATHS[client], json.dumps(request_body).encode(), **KEY)
            first_body = json.loads(await response.read(100_000))
        following = toolwire.continue_request(request_body, first_body, [{"id": "call_1", "output": "sunny"}], client)
        async with run_gateway(one_provider_config(origin, "gemini", second)) as gateway:
            response = await gateway.post(PATHS[client], json.dumps(following).encode(), **key)
            await response.read(100_000)
            exchange = response.headers["toolwire-exchange"]
            _, losses = await gateway.get(f"/toolwire/exchanges/{exchange}/losses", **key)
            lost = json.loads(losses)["losses"]
            return response.status, script.bodies[-1]["contents"][1]["parts"], [loss["path"] for loss in lost]


@pytest.mark.parametrize("client", PATHS)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('[server]\nseal_keys = ["a-seal"]', '[server]\nseal_keys = ["a-seal"]'),
        ('[server]\nseal_keys = ["old-seal"]', '[server]\nseal_keys = ["new-seal", "old-seal"]'),
        ('[server]\nkeys = ["first-key-1"]', '[server]\nkeys = ["first-key-1"]'),
    ],
    ids=["restarted", "keys turned over", "derived from the server's keys"],
)
def test_envelope_verifies_in_another_gateway_with_the_same_keys(client: str, first: str, second: str) -> None:
    async def work() -> None:
        script = ScriptedUpstream(http_response("200 OK", json.dumps(ANSWERED).encode()))
        status, parts, lost = await call_and_result(script, client, first, second, KEY)
        assert status == 200
        assert [part.get("thoughtSignature") for part in parts] == [SIGNATURE]
        assert not any("signature" in path or "encrypted" in path for path in lost)

    run_async(work())


@pytest.mark.parametrize("client", PATHS)
@pytest.mark.parametrize(
    ("second", "key"),
    [
        ('[server]\nseal_keys = ["other-seal"]\nkeys = ["first-key-1"]', "first-key-1"),
        ('[server]\nseal_keys = ["a-seal"]\nkeys = ["first-key-1", "second-key-2"]', "second-key-2"),
    ],
    ids=["another seal", "another caller"],
)
def test_foreign_envelope_is_dropped_and_reported(client: str, second: str, key: str) -> None:
    async def work() -> None:
        script = ScriptedUpstream(http_response("200 OK", json.dumps(ANSWERED).encode()))
        first = '[server]\nseal_keys = ["a-seal"]\nkeys = ["first-key-1"]'
        status, parts, lost = await call_and_result(script, client, first, second, {"x_api_key": key})
        assert status == 200
        assert SIGNATURE not in json.dumps(parts)
        assert any("signature" in path or "encrypted" in path for path in lost)

    run_async(work())


def test_generated_key_is_reused(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    assert load_signing_keys(ServerSection(), environment) == load_signing_keys(ServerSection(), environment)
    assert load_signing_keys(ServerSection(), environment) != load_signing_keys(
        ServerSection(), {"XDG_STATE_HOME": str(tmp_path / "other")}
    )
