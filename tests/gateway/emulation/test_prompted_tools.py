"""Tools for models without tool calling: declared in the prompt, and recovered from the text of the response."""

import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.chat_text import chat_body, chat_stream, ollama_stream
from tests.support.clock import Clock
from tests.support.gateway.in_process import (
    PROTOCOL_NAMES,
    one_provider_config,
    question_request,
    run_async,
    run_gateway,
    with_memory_state,
)
from tests.support.gateway.setup import routed_model, serve_gateway
from tests.support.servers.asgi import http_client
from tests.support.servers.http_responses import SSE_HEAD, http_response, openai_error_body, transfer_chunk
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire.canonical.content import Message, Text, ToolCall
from toolwire.canonical.fold import fold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.canonical.tools import FunctionTool
from toolwire.codec.interface import ResponseContext
from toolwire.gateway.config import ConfigError, parse_config
from toolwire.gateway.in_process import open_model
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import Script, ScriptedCall, ScriptedTurn

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
PROMPT = 'tool_calling = "prompt"\n'
REFUSALS = {
    "ollama": http_response("400 Bad Request", b'{"error":"registry.ollama.ai/library/x does not support tools"}'),
    "vllm": http_response(
        "400 Bad Request",
        openai_error_body(
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', "BadRequestError"
        ),
    ),
    "llama.cpp": http_response("500 Error", openai_error_body("tools param requires --jinja flag")),
    "openrouter": http_response(
        "404 Not Found",
        b'{"error":{"message":"No endpoints found that support tool use. To learn more about provider routing, '
        b'visit: https://openrouter.ai/docs/provider-routing","code":404}}',
    ),
}
PROTOCOL_OF = {"ollama": "ollama", "vllm": "openai-chat", "llama.cpp": "openai-chat", "openrouter": "openrouter"}
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def text_response(text: str = CALL, *, stream: bool, protocol: str = "openai-chat") -> bytes:
    """Return the response of an upstream that wrote this text."""
    if protocol == "ollama":
        lines = ollama_stream(list(text) if stream else [text])
        if stream:
            data = transfer_chunk(b"".join(lines)) + b"0\r\n\r\n"
            return SSE_HEAD.replace(b"text/event-stream", b"application/x-ndjson") + data
        body = json.loads(lines[-1]) | {"message": json.loads(lines[0])["message"]}
        return http_response("200 OK", json.dumps(body).encode())
    if stream:
        return SSE_HEAD + transfer_chunk(b"".join(chat_stream(text))) + b"0\r\n\r\n"
    return http_response("200 OK", json.dumps(chat_body(text)).encode())


async def send(
    upstream: ScriptedUpstream, path: str, body: bytes, settings: str = PROMPT, protocol: str = "openai-chat"
) -> tuple[bytes, dict[str, str]]:
    """Return the body of the gateway's response, and what it reports of losses."""
    async with serve_upstream(upstream) as origin:
        config = one_provider_config(origin, protocol).replace("[[routes]]", settings + "[[routes]]")
        async with run_gateway(config) as gateway:
            answer = await gateway.post(path, body)
            data = await answer.read(1_000_000)
            assert answer.status == 200, data
            header = json.loads(answer.headers.get("toolwire-losses", '{"losses": []}'))
            return data, {loss["path"]: loss["reason"] for loss in header["losses"]}


def decode(protocol: str, data: bytes, *, stream: bool) -> Response:
    codec = PROTOCOLS[protocol]
    if not stream:
        return codec.decode_response(data, ResponseContext())
    decoder = codec.stream_decoder(ResponseContext())
    return fold([*decoder.feed(data), *decoder.close()])


def calls_of(response: Response) -> list[tuple[str, object]]:
    parts = [part for message in response.candidates[0].messages for part in message.parts]
    return [(part.name, json.loads(part.arguments)) for part in parts if isinstance(part, ToolCall)]


@STREAMS
@pytest.mark.parametrize("upstream_protocol", ["openai-chat", "ollama", "openrouter"])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_tools_are_declared_in_the_prompt_for_every_client(protocol: str, upstream_protocol: str, stream: bool) -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(text_response(stream=stream, protocol=upstream_protocol))
        path, body = question_request(protocol, stream=stream)
        data, losses = await send(upstream, path, body, protocol=upstream_protocol)
        sent = upstream.bodies[-1]  # for Ollama, a look-up of the model may come first
        assert "tools" not in sent
        system, *others = sent["messages"]
        assert system["role"] == "system"
        assert "<tools>" in system["content"]
        assert '"name":"weather"' in system["content"]
        assert '<tool_call>\n{"name": "NAME", "arguments": {"KEY": "VALUE"}}\n</tool_call>' in system["content"]
        assert [message["role"] for message in others] == ["user"]
        assert calls_of(decode(protocol, data, stream=stream)) == [("weather", {"city": "Paris"})]
        reason = "declared in the system text (hermes): the model has no tool calling"
        assert stream or reason in losses.values()

    run_async(work())


CONVERSATION: dict[str, Any] = {
    "model": "qwen3-coder",
    "messages": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Paris and Rome?"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}},
                {"id": "b", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
        {"role": "tool", "tool_call_id": "b", "content": "rain"},
        {"role": "user", "content": "And Oslo?"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        }
    ],
}


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_the_model_sees_its_calls_in_its_own_words_and_their_results(protocol: str) -> None:
    translation = tw.translate(CONVERSATION | {"stream": False}, "openai-chat", protocol)
    assert translation.route.path is not None
    path = translation.route.path

    async def work() -> None:
        upstream = ScriptedUpstream(text_response("Fine.", stream=False))
        await send(upstream, path, translation.to_bytes())
        (sent,) = upstream.bodies
        assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "user"]
        system, _, assistant, results = [message["content"] for message in sent["messages"]]
        assert system.startswith("Be short.\n\n# Tools")
        assert assistant == "I look.\n" + "\n".join(
            f"<tool_call>\n<function=weather>\n<parameter=city>\n{city}\n</parameter>\n</function>\n</tool_call>"
            for city in ("Paris", "Rome")
        )
        assert results == (
            "<tool_response>\nsunny\n</tool_response>\n<tool_response>\nrain\n</tool_response>\n\nAnd Oslo?"
        )
        assert not {"tools", "tool_choice"} & sent.keys()
        assert all("tool_calls" not in message for message in sent["messages"])

    run_async(work())


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"tool_choice": "required"}, "You must call at least one function now."),
        ({"tool_choice": "none"}, "Do not call any function now."),
        (
            {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
            "You must call this function now: weather.",
        ),
        ({"parallel_tool_calls": False}, "Call at most one function at a time."),
        ({"tool_choice": "auto"}, "The results follow in the next message."),
    ],
)
def test_the_tool_choice_is_stated_in_words(choice: dict[str, Any], words: str) -> None:
    body = json.dumps(CONVERSATION | choice).encode()

    async def work() -> None:
        upstream = ScriptedUpstream(text_response("Fine.", stream=False))
        await send(upstream, "/v1/chat/completions", body)
        (sent,) = upstream.bodies
        assert sent["messages"][0]["content"].endswith(words)
        assert not {"tools", "tool_choice", "parallel_tool_calls"} & sent.keys()

    run_async(work())


@STREAMS
@pytest.mark.parametrize("server", REFUSALS)
def test_a_server_that_refuses_tools_gets_them_in_the_prompt(server: str, stream: bool) -> None:
    protocol = PROTOCOL_OF[server]

    async def work() -> None:
        upstream = ScriptedUpstream(REFUSALS[server], *[text_response(stream=stream, protocol=protocol)] * 2)
        path, body = question_request("anthropic", stream=stream)
        async with serve_upstream(upstream) as origin, run_gateway(one_provider_config(origin, protocol)) as gateway:
            for _ in range(2):
                answer = await gateway.post(path, body)
                data = await answer.read(1_000_000)
                assert answer.status == 200, data
                assert calls_of(decode("anthropic", data, stream=stream)) == [("weather", {"city": "Paris"})]
        assert ["tools" in sent for sent in upstream.bodies] == [True, False, False]

    run_async(work())


def test_a_refusal_is_forgotten_after_an_hour(clock: Clock) -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(REFUSALS["vllm"], *[text_response(stream=False)] * 2)
        path, body = question_request("openai-chat")
        async with serve_upstream(upstream) as origin, run_gateway(one_provider_config(origin)) as gateway:
            assert (await gateway.post(path, body)).status == 200
            clock.advance(3601)
            assert (await gateway.post(path, body)).status == 200
        assert ["tools" in sent for sent in upstream.bodies] == [True, False, True]

    run_async(work())


@pytest.mark.parametrize("settings", ['tool_calling = "native"\n', PROMPT])
def test_a_refusal_is_returned_if_prompting_is_ruled_out_or_was_tried(settings: str) -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(REFUSALS["vllm"])
        path, body = question_request("openai-chat")
        async with serve_upstream(upstream) as origin:
            config = one_provider_config(origin).replace("[[routes]]", settings + "[[routes]]")
            async with run_gateway(config) as gateway:
                assert (await gateway.post(path, body)).status == 400
        assert len(upstream.bodies) == 1

    run_async(work())


def test_a_route_overrides_the_provider_and_a_request_without_tools_is_unchanged() -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(text_response(stream=False))
        path, body = question_request("openai-chat")
        plain = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": False}).encode()
        async with serve_upstream(upstream) as origin, run_gateway(one_provider_config(origin) + PROMPT) as gateway:
            assert (await gateway.post(path, body)).status == 200
            assert (await gateway.post(path, plain)).status == 200
        assert "tools" not in upstream.bodies[0]
        assert upstream.bodies[1] == json.loads(plain)

    run_async(work())


def test_the_parser_names_the_dialect_of_the_prompt() -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(text_response(stream=False))
        path, body = question_request("anthropic")
        await send(upstream, path, body, PROMPT + 'tool_call_parser = "kimi_k2"\n')
        assert "functions.NAME:0<|tool_call_argument_begin|>" in upstream.bodies[0]["messages"][0]["content"]

    run_async(work())


def test_prompted_calls_are_recovered_even_if_the_parsers_are_off() -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(text_response(stream=False))
        path, body = question_request("anthropic")
        off = 'tool_call_parser = "off"\nreasoning_parser = "off"\n'
        data, _ = await send(upstream, path, body, PROMPT + off)
        assert calls_of(decode("anthropic", data, stream=False)) == [("weather", {"city": "Paris"})]

    run_async(work())


@pytest.mark.parametrize("settings", ["", PROMPT], ids=["refused", "configured"])
def test_agents_prompt_models_without_tools(settings: str) -> None:
    question = Request(
        origin="",
        messages=(Message(role="user", parts=(Text(text="Paris?"),)),),
        tools=(FunctionTool(name="weather"),),
    )

    async def work() -> None:
        responses = [] if settings else [REFUSALS["vllm"]]
        upstream = ScriptedUpstream(*responses, text_response(stream=True))
        async with AsyncExitStack() as stack:
            origin = await stack.enter_async_context(serve_upstream(upstream))
            config = one_provider_config(origin).replace("[[routes]]", settings + "[[routes]]")
            model = await open_model("m", with_memory_state(parse_config(config, {})), {"HOME": "/nonexistent"})
            stack.push_async_callback(model.close)
            response = fold([event async for event in model.stream(question)])
            assert [loss.path for loss in model.losses if "system text" in loss.reason]
        assert calls_of(response) == [("weather", {"city": "Paris"})]
        assert "tools" not in upstream.bodies[-1]

    run_async(work())


def test_an_unknown_mode_is_refused() -> None:
    config = '[providers.a]\nprotocol = "ollama"\nbase_url = "http://localhost"\ntool_calling = "promt"\n'
    with pytest.raises(ConfigError, match="tool_calling"):
        parse_config(config, {})


@pytest.mark.parametrize(("thinking", "declared"), [({"type": "adaptive"}, [False]), (None, [True, False])])
def test_an_ollama_model_without_tools_gets_them_in_the_prompt(thinking: Any, declared: list[bool]) -> None:
    """With thinking, `/api/show` is looked up, and lists no tools; otherwise the first request is refused."""
    turn = ScriptedTurn(calls=(ScriptedCall(name="weather", arguments={"city": "Paris"}),), dialect="hermes", repeat=0)
    with serve_gateway(Simulator(["ollama"], script=Script((turn,)), tool_calling=False)) as setup:
        path, body = question_request("anthropic", model=routed_model("ollama"))
        content = json.loads(body) | ({} if thinking is None else {"thinking": thinking})
        answer = http_client.post(f"{setup.base_url}{path}", json=content)
        assert answer.status_code == 200, answer.text
        assert calls_of(decode("anthropic", answer.content, stream=False)) == [("weather", {"city": "Paris"})]
        assert ["tools" in json.loads(exchange.request_body) for exchange in setup.upstream.exchanges] == declared


def test_a_model_that_lists_no_tools_gets_none_if_prompting_is_ruled_out() -> None:
    simulator = Simulator(["ollama"], tool_calling=False)
    with serve_gateway(simulator, '[[routes]]\nmatch = "*"\nprovider = "ollama"\ntool_calling = "native"\n') as setup:
        path, body = question_request("anthropic", model="any")
        answer = http_client.post(f"{setup.base_url}{path}", json=json.loads(body) | {"thinking": {"type": "adaptive"}})
        assert answer.status_code == 400
        assert "does not support tools" in answer.text
        assert [b'"tools"' in exchange.request_body for exchange in setup.upstream.exchanges] == [True]
