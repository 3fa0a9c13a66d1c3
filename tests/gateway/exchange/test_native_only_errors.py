"""Features that only the client's own provider has are refused with errors that its clients understand."""

import json
from typing import Any

import pytest

from tests.support.bodies.minimal import anthropic_request
from tests.support.codecs import decode_error
from tests.support.gateway.in_process import one_provider_config, run_async, run_gateway
from tests.support.servers.http_responses import CHAT_BODY_WITHOUT_USAGE, http_response
from tests.support.servers.http_responses import CHAT_RESPONSE as CHAT_ANSWER
from tests.support.servers.upstream import ScriptedUpstream, reply_with, serve_upstream

SEALED: dict[str, tuple[str, str, Any]] = {
    "openai-responses": (
        "/v1/responses",
        "/input/0: only the openai-responses provider that created this compaction can read it",
        {
            "model": "m",
            "input": [
                {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA"},
                {"role": "user", "content": "Go on."},
            ],
        },
    ),
    "anthropic": (
        "/v1/messages",
        "/messages/0/content/0: only the anthropic provider that created this compaction can read it",
        anthropic_request(
            {"role": "assistant", "content": [{"type": "compaction", "content": None, "encrypted_content": "x"}]},
            {"role": "user", "content": "Go on."},
        ),
    ),
}


@pytest.mark.parametrize("client", SEALED)
def test_compaction_of_another_provider_is_refused(client: str) -> None:
    """A compaction replaces the history: without it, the model would lack everything said before."""
    path, message, body = SEALED[client]

    async def work() -> None:
        script = ScriptedUpstream(CHAT_ANSWER)
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            response = await gateway.post(path, json.dumps(body).encode())
            assert response.status == 400
            assert decode_error(client, 400, await response.read(10_000)).message.startswith(message)
            assert script.requests == []

    run_async(work())


def test_readable_compaction_becomes_text() -> None:
    block = {"type": "compaction", "content": "They fixed the test.", "encrypted_content": "x"}
    body = anthropic_request({"role": "assistant", "content": [block]}, {"role": "user", "content": "Go on."})

    async def work() -> None:
        script = ScriptedUpstream(CHAT_ANSWER)
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            assert (await gateway.post("/v1/messages", json.dumps(body).encode())).status == 200
            assert script.bodies[0]["messages"][0] == {"role": "assistant", "content": "They fixed the test."}

    run_async(work())


def test_anthropic_thread_is_refused_elsewhere() -> None:
    """Without its history, the next turn of a thread would be answered like a first turn."""
    body = anthropic_request({"role": "user", "content": "Hi."}, thread={"type": "create"})

    async def work() -> None:
        async with (
            serve_upstream(reply_with(http_response("200 OK", CHAT_BODY_WITHOUT_USAGE))) as origin,
            run_gateway(one_provider_config(origin)) as gateway,
        ):
            response = await gateway.post("/v1/messages", json.dumps(body).encode())
            error = json.loads(await response.read(10_000))["error"]
            assert (response.status, error["type"]) == (400, "invalid_request_error")
            assert error["details"] == {"error_code": "thread_unsupported_request"}

    run_async(work())
