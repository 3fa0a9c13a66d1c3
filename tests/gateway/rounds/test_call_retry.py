"""`retry_invalid_calls`: the model is asked once more, before the client sees the invalid call."""

import json
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from tests.support.codecs import decode_events
from tests.support.gateway.emulated_exchange import canonical_response, encode_http_response
from tests.support.gateway.in_process import one_provider_config, run_async, run_gateway
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire import translate
from toolwire.canonical.content import Reasoning, ReasoningText, Text, ToolCall, ToolResult
from toolwire.canonical.events import ResponseFailed
from toolwire.canonical.fold import fold, unfold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Usage
from toolwire.canonical.tools import FunctionTool
from toolwire.codec.interface import ResponseContext, ResponseMapping, Route
from toolwire.gateway.exchange.call_checks import DeclaredTools
from toolwire.gateway.rounds.call_retry import CallRetryRounds
from toolwire.protocols import PROTOCOLS

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
CLIENTS = pytest.mark.parametrize("client", list(PROTOCOLS))
UPSTREAMS = pytest.mark.parametrize("upstream", list(PROTOCOLS))
WEATHER = FunctionTool(name="weather", parameters=Raw(json.dumps(SCHEMA).encode()))
LOOKING = Text(text="Let me see.")


def call(arguments: str, id: str = "c1", name: str = "weather") -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


VALID = call('{"city": "Oslo"}', "c2")


def request_body(client: str, *, stream: bool) -> tuple[str, bytes]:
    tools = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools, "stream": stream}
    translation = translate(body | {"store": False}, "openai-chat", client, model="m", stream=stream)
    return translation.route.path or "", translation.to_bytes()


def exchange(client: str, upstream: str, *answers: Response, stream: bool) -> tuple[Response, list[Any], str]:
    """Return the client's response, the bodies that the upstream received, and the metrics."""
    outcome: list[Any] = []

    async def work() -> None:
        script = ScriptedUpstream(*[encode_http_response(upstream, answer, stream=stream) for answer in answers])
        async with serve_upstream(script) as origin:
            config = one_provider_config(origin, upstream) + "retry_invalid_calls = 1\n"
            async with run_gateway(config) as gateway:
                response = await gateway.post(*request_body(client, stream=stream))
                data = await response.read(100_000)
                assert response.status == 200, data
                _, metrics = await gateway.get("/metrics")
        if stream:
            events = decode_events(client, data)
            assert not any(isinstance(event, ResponseFailed) for event in events)
            outcome.append(fold(events))
        else:
            outcome.append(PROTOCOLS[client].decode_response(data, ResponseContext()))
        outcome.extend((script.bodies, metrics.decode()))

    run_async(work())
    response, bodies, metrics = outcome
    return response, bodies, metrics


def parts_of(response: Response, kind: type) -> list[Any]:
    return [part for message in response.candidates[0].messages for part in message.parts if isinstance(part, kind)]


@MODES
@CLIENTS
@UPSTREAMS
def test_invalid_call_is_requested_again(client: str, upstream: str, stream: bool) -> None:
    broken = canonical_response(LOOKING, call('{"town": "Oslo"}'))
    response, bodies, metrics = exchange(client, upstream, broken, canonical_response(VALID), stream=stream)
    (made,) = parts_of(response, ToolCall)
    assert json.loads(made.arguments) == {"city": "Oslo"}
    assert "".join(part.text for part in parts_of(response, Text)) == LOOKING.text
    assert len(bodies) == 2
    again = PROTOCOLS[upstream].decode_request(json.dumps(bodies[1]).encode(), Route(model="m"))
    (result,) = [part for one in again.messages for part in one.parts if isinstance(part, ToolResult)]
    assert "city" in str(result.content)
    assert 'outcome="schema_mismatch"} 1' in metrics
    assert 'outcome="valid"} 1' in metrics


@MODES
def test_valid_calls_are_not_requested_again(stream: bool) -> None:
    response, bodies, _ = exchange("anthropic", "openai-chat", canonical_response(LOOKING, VALID), stream=stream)
    assert len(bodies) == 1
    assert len(parts_of(response, ToolCall)) == 1


@MODES
def test_second_invalid_call_reaches_the_client(stream: bool) -> None:
    broken = canonical_response(call("{}"))
    response, bodies, _ = exchange("openai-chat", "openai-chat", broken, broken, stream=stream)
    assert (len(bodies), len(parts_of(response, ToolCall))) == (2, 1)


@MODES
def test_every_call_of_the_turn_gets_a_result(stream: bool) -> None:
    first = canonical_response(VALID, call("{", "c3"), call("{}", "c4", name="wether"))
    response, bodies, _ = exchange("anthropic", "openai-chat", first, canonical_response(VALID), stream=stream)
    results = {
        message["tool_call_id"]: str(message["content"])
        for message in bodies[1]["messages"]
        if "tool_call_id" in message
    }
    assert "not run, since another call" in results["c2"]
    assert "not valid JSON" in results["c3"]
    assert "Did you mean weather?" in results["c4"]
    assert len(parts_of(response, ToolCall)) == 1


def test_invalid_call_is_released_if_no_round_is_left() -> None:
    events = list(unfold(canonical_response(LOOKING, call("{}"))))
    tools = DeclaredTools(Request(origin="openai-chat", model="m", tools=(WEATHER,), messages=()))
    rounds = CallRetryRounds(tools, ResponseMapping(), 1, lambda _: None)
    passed = rounds.process(events)
    assert rounds.paused
    released = fold([*passed, *rounds.process(rounds.stop())])
    assert released == fold(events)


@MODES
def test_usage_of_both_rounds_is_reported(stream: bool) -> None:
    answers = [canonical_response(call("{}")), canonical_response(VALID)]
    answers = [replace(one, usage=Usage(input_tokens=10, output_tokens=5)) for one in answers]
    response, _, _ = exchange("anthropic", "openai-chat", *answers, stream=stream)
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (20, 10)


@MODES
def test_thinking_before_the_call_is_not_held_back(stream: bool) -> None:
    thinking = Reasoning(content=(ReasoningText(kind="full", text="Hm."),))
    first = canonical_response(thinking, call("{}"))
    response, _, _ = exchange("openai-chat", "ollama", first, canonical_response(VALID), stream=stream)
    assert len(parts_of(response, ToolCall)) == 1
