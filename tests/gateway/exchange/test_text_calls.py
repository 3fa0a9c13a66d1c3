"""Calls that the model behind an upstream wrote as text reach clients of every protocol as tool calls."""

import json

import pytest

from tests.support.bodies.chat_text import chat_body, chat_stream
from tests.support.gateway.in_process import PROTOCOL_NAMES, one_provider_config, run_async, run_gateway
from tests.support.servers.http_responses import SSE_HEAD, http_response, transfer_chunk
from tests.support.servers.upstream import reply_with, serve_upstream
from toolwire.canonical.content import ToolCall
from toolwire.canonical.fold import fold
from toolwire.canonical.response import Response
from toolwire.codec.interface import ResponseContext
from toolwire.gateway.config import ConfigError, parse_config
from toolwire.protocols import PROTOCOLS

CALL = "Let me look.\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"


def upstream_response(*, stream: bool, text: str = CALL) -> bytes:
    if stream:
        return SSE_HEAD + transfer_chunk(b"".join(chat_stream(text))) + b"0\r\n\r\n"
    return http_response("200 OK", json.dumps(chat_body(text)).encode())


async def ask(
    protocol: str, *, stream: bool, config: str = "", route: str = "", text: str = CALL
) -> tuple[Response, bytes]:
    """Return the decoded response of the gateway, and its body."""
    async with serve_upstream(reply_with(upstream_response(stream=stream, text=text))) as origin:
        settings = one_provider_config(origin).replace("[[routes]]", f"{config}\n[[routes]]") + route
        async with run_gateway(settings) as gateway:
            answer = await gateway.send_question(protocol, stream=stream)
            data = await answer.read(1_000_000)
            assert answer.status == 200, data
    codec = PROTOCOLS[protocol]
    if not stream:
        return codec.decode_response(data, ResponseContext()), data
    decoder = codec.stream_decoder(ResponseContext())
    return fold([*decoder.feed(data), *decoder.close()]), data


def calls_of(response: Response) -> list[tuple[str, object]]:
    parts = [part for message in response.candidates[0].messages for part in message.parts]
    return [(part.name, json.loads(part.arguments)) for part in parts if isinstance(part, ToolCall)]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_call_written_as_text_reaches_every_client_as_a_call(protocol: str, stream: bool) -> None:
    async def work() -> None:
        response, _ = await ask(protocol, stream=stream)
        assert calls_of(response) == [("weather", {"city": "Paris"})]
        stop = response.candidates[0].stop
        assert stop is None or stop.reason in ("tool_use", "end_turn")
        assert protocol not in ("anthropic", "openai-chat") or (stop is not None and stop.reason == "tool_use")

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("place", ["provider", "route"])
def test_parsers_can_be_switched_off(place: str, stream: bool) -> None:
    off = 'tool_call_parser = "off"\nreasoning_parser = "off"\n'

    async def work() -> None:
        config, route = (off, "") if place == "provider" else ("", off)
        response, data = await ask("openai-chat", stream=stream, config=config, route=route)
        assert calls_of(response) == []
        if stream:
            assert data == b"".join(chat_stream(CALL))

    run_async(work())


@pytest.mark.parametrize("text", ["It is sunny: 20 < 30.", "Use `<tool_call>` for that."])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_answer_without_calls_keeps_its_bytes(text: str, stream: bool) -> None:
    async def work() -> None:
        _, data = await ask("openai-chat", stream=stream, text=text)
        assert data == (b"".join(chat_stream(text)) if stream else json.dumps(chat_body(text)).encode())

    run_async(work())


def test_an_unknown_parser_in_the_configuration_is_refused() -> None:
    config = '[providers.a]\nprotocol = "ollama"\nbase_url = "http://localhost"\ntool_call_parser = "herms"\n'
    with pytest.raises(ConfigError, match="unknown tool_call_parser 'herms'"):
        parse_config(config, {})
