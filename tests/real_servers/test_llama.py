"""A real llama.cpp server with a real model as the upstream of clients of every protocol."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import toolwire as tw
from tests.agents.recordings import VARIANTS, read_recording
from tests.host_matrix.cells import WEB_SEARCHES
from tests.support.gateway.in_process import (
    PROTOCOL_NAMES,
    RunningGateway,
    one_provider_config,
    run_async,
    run_gateway,
)
from toolwire.canonical.content import Text, ToolCall
from toolwire.canonical.fold import fold
from toolwire.canonical.response import Response
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import parse_origin

UPSTREAMS = ["openai-chat", "anthropic", "openai-responses"]
SYSTEM_TEXT = "Answer in one word."
WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Get the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
# Claude Code sends system messages between turns; Codex sends developer messages.
LATE_SYSTEM_MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hello! How can I help?"},
    {"role": "system", "content": SYSTEM_TEXT},
    {"role": "user", "content": "What is the capital of France?"},
]


async def ask(gateway: RunningGateway, protocol: str, path: str, body: bytes, *, stream: bool) -> Response:
    """Send a request, and return its decoded response, which must be a success."""
    answer = await gateway.post(path, body)
    data = await answer.read(4_000_000)
    assert answer.status == 200, data
    codec = PROTOCOLS[protocol]
    if not stream:
        return codec.decode_response(data, ResponseContext())
    decoder = codec.stream_decoder(ResponseContext())
    response = fold([*decoder.feed(data), *decoder.close()])
    assert response.error is None, response.error
    return response


def parts_of(response: Response) -> list[Any]:
    return [part for message in response.candidates[0].messages for part in message.parts]


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", PROTOCOL_NAMES)
def test_every_client_gets_an_answer(llama: Callable[[str], str], client: str, upstream: str, stream: bool) -> None:
    async def work() -> None:
        async with run_gateway(one_provider_config(parse_origin(llama("default")), upstream, timeout=600)) as gateway:
            messages = [{"role": "user", "content": "What is the weather in Paris?"}]
            response = await ask(gateway, client, *_translated(client, messages, stream), stream=stream)
            texts = [part.text for part in parts_of(response) if isinstance(part, Text)]
            assert any(texts)
            assert response.usage is not None
            assert response.usage.output_tokens

    run_async(work())


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
def test_late_system_messages_pass_a_strict_template(llama: Callable[[str], str], client: str) -> None:
    """The template of Qwen 3.5 and later rejects them with status 500."""
    chat_body = {"model": "m", "messages": LATE_SYSTEM_MESSAGES, "max_tokens": 8}
    translation = tw.translate(chat_body, "openai-chat", client, model="m")
    assert translation.route.path is not None
    path, body = translation.route.path, translation.to_bytes()

    async def work() -> None:
        config = one_provider_config(parse_origin(llama("strict-system"))).replace(
            "timeout", 'host = "llamacpp"\ntimeout'
        )
        async with run_gateway(config) as gateway:
            response = await ask(gateway, client, path, body, stream=False)
            assert any(isinstance(part, Text) for part in parts_of(response))

    run_async(work())


def test_strict_template_rejects_late_system_messages(llama: Callable[[str], str]) -> None:
    """Without toolwire, the server refuses that conversation."""

    async def work() -> None:
        config = one_provider_config(parse_origin(llama("strict-system"))).replace(
            "timeout", 'host = "compatible"\ntimeout'
        )
        async with run_gateway(config) as gateway:
            body = json.dumps({"model": "m", "messages": LATE_SYSTEM_MESSAGES, "max_tokens": 8}).encode()
            answer = await gateway.post("/v1/chat/completions", body)
            assert answer.status >= 400
            assert b"System message must be at the beginning" in await answer.read(100_000)

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("client", PROTOCOL_NAMES)
def test_call_written_as_text_reaches_every_client(llama: Callable[[str], str], client: str, stream: bool) -> None:
    """The model writes a call as text; a grammar forces its form, but the model chooses the city."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "What is the weather in Paris?"}]

    async def work() -> None:
        async with run_gateway(one_provider_config(parse_origin(llama("text-calls")))) as gateway:
            response = await ask(gateway, client, *_translated(client, messages, stream, limit=96), stream=stream)
            (call,) = [part for part in parts_of(response) if isinstance(part, ToolCall)]
            assert call.name == "weather"
            assert json.loads(call.arguments)["city"].lower() == "paris"
            # The next turn, with call and result, is accepted.
            messages.append(
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "weather", "arguments": call.arguments},
                        }
                    ],
                }
            )
            messages.append({"role": "tool", "tool_call_id": "call_1", "content": "Sunny, 20 degrees."})
            await ask(gateway, client, *_translated(client, messages, stream, limit=96), stream=stream)

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("recording", [name for name in VARIANTS.values() if name not in WEB_SEARCHES])
def test_requests_of_agents_are_accepted(
    llama: Callable[[str], str], recording: str, upstream: str, stream: bool
) -> None:
    """Each agent's first request, and the one with the results of its first calls."""
    protocol, _, bodies = read_recording(recording)

    async def work() -> None:
        blind = '[models."*"]\nvision = false'
        config = one_provider_config(parse_origin(llama("agents")), upstream, blind, timeout=600)
        async with run_gateway(config.replace("timeout", 'host = "llamacpp"\ntimeout')) as gateway:
            for body in bodies:
                await ask(gateway, protocol, *_shortened(protocol, body, stream), stream=stream)

    run_async(work())


def _shortened(protocol: str, body: dict[str, Any], stream: bool) -> tuple[str, bytes]:
    """Return path and body of an agent's request for an answer of a few tokens."""
    short = tw.translate(body, protocol, protocol, model="m", stream=stream, cache="off")
    fields = json.loads(short.to_bytes())
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
        fields.pop(name, None)
    if protocol == "gemini":
        fields.setdefault("generationConfig", {})["maxOutputTokens"] = 4
    else:
        fields["max_output_tokens" if protocol == "openai-responses" else "max_tokens"] = 4
    thinking = fields.get("thinking")
    if isinstance(thinking, dict) and "budget_tokens" in thinking:
        fields["thinking"] = {"type": "disabled"}
    assert short.route.path is not None
    return short.route.path, json.dumps(fields).encode()


def _translated(client: str, messages: list[dict[str, Any]], stream: bool, limit: int = 16) -> tuple[str, bytes]:
    """Return path and body of a conversation in the protocol of a client."""
    chat_body = {"model": "m", "messages": messages, "tools": [WEATHER_TOOL], "max_tokens": limit, "stream": stream}
    if stream:
        chat_body["stream_options"] = {"include_usage": True}
    translation = tw.translate(chat_body, "openai-chat", client, model="m", stream=stream)
    assert translation.route.path is not None
    return translation.route.path, translation.to_bytes()
