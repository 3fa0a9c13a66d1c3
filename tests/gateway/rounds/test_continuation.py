"""Paused turns are continued by the gateway if the client's protocol has no pause."""

import json

import pytest

from tests.support.gateway.in_process import (
    PROTOCOL_NAMES,
    one_provider_config,
    question_request,
    run_async,
    run_gateway,
)
from tests.support.gateway.paused_turns import (
    FINAL_MESSAGE,
    PAUSED_MESSAGE,
    WEB_SEARCH_RESULT,
    WEB_SEARCH_USE,
    anthropic_stream_response,
    decoded_outcome,
)
from tests.support.servers.http_responses import http_response
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", [name for name in PROTOCOL_NAMES if name != "anthropic"])
def test_two_rounds_become_one_response(protocol: str, stream: bool) -> None:
    async def work() -> None:
        rounds = [PAUSED_MESSAGE, FINAL_MESSAGE]
        script = ScriptedUpstream(
            *(
                anthropic_stream_response(one) if stream else http_response("200 OK", json.dumps(one).encode())
                for one in rounds
            )
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, "anthropic")) as gateway:
            response = await gateway.send_question(protocol, stream=stream)
            text, stop, spent = decoded_outcome(protocol, await response.read(100_000), stream=stream)
            assert text == "Let me look. It is sunny."
            assert stop == "end_turn"
            assert spent == 10
            first, second = script.bodies
            assert second["messages"][:-1] == first["messages"]
            assert second["messages"][-1]["role"] == "assistant"
            assert second["messages"][-1]["content"][1:] == [WEB_SEARCH_USE, WEB_SEARCH_RESULT]
            assert {k: v for k, v in second.items() if k != "messages"} == {
                k: v for k, v in first.items() if k != "messages"
            }

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_pauses_are_bounded(stream: bool) -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            anthropic_stream_response(PAUSED_MESSAGE)
            if stream
            else http_response("200 OK", json.dumps(PAUSED_MESSAGE).encode())
        )
        more = "[limits]\npauses = 2"
        async with (
            serve_upstream(script) as origin,
            run_gateway(one_provider_config(origin, "anthropic", more)) as gateway,
        ):
            response = await gateway.send_question("openai-chat", stream=stream)
            text, stop, _ = decoded_outcome("openai-chat", await response.read(100_000), stream=stream)
            assert text == "Let me look. " * 3
            assert stop == "end_turn"
            assert len(script.requests) == 3

    run_async(work())


def test_client_with_pause_turn_gets_the_pause() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            http_response("200 OK", json.dumps(PAUSED_MESSAGE).encode()),
            http_response("200 OK", json.dumps(FINAL_MESSAGE).encode()),
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, "anthropic")) as gateway:
            path, body = question_request("anthropic")
            response = await gateway.post(path, body)
            assert json.loads(await response.read(100_000))["stop_reason"] == "pause_turn"
            assert len(script.requests) == 1

    run_async(work())
