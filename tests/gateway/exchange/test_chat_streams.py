"""Chat chunks as programs read them (`chunk.choices[0]` of each), and same-protocol streams."""

import json
from typing import Any

import openai
import pytest

from tests.support.deadlines import DEADLINE
from tests.support.gateway.in_process import PROTOCOL_NAMES, one_provider_config, run_async, run_gateway
from tests.support.samples import recorded_bodies
from tests.support.servers.http_responses import SSE_HEAD, STREAM_START, chat_sse_event, transfer_chunk
from tests.support.servers.upstream import reply_with, serve_upstream
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS
from toolwire.translation.body import translate_stream
from toolwire.translation.stream import StreamTranslator

TIMINGS = {"prompt_n": 12, "predicted_n": 34}
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def with_members(wire: bytes, **members: Any) -> bytes:
    """Return a chunk with other members."""
    return b"data: " + json.dumps(json.loads(wire.removeprefix(b"data: ")) | members).encode() + b"\n\n"


# llama.cpp sends timings in its last chunk; Azure starts with filter results and sends usage unasked.
LLAMA = STREAM_START + with_members(chat_sse_event({}, "stop"), timings=TIMINGS) + b"data: [DONE]\n\n"
UNASKED = (
    with_members(chat_sse_event({}), choices=[], prompt_filter_results=[{"prompt_index": 0}])
    + STREAM_START
    + chat_sse_event({}, "stop")
    + with_members(chat_sse_event({}), choices=[], usage=USAGE)
    + b"data: [DONE]\n\n"
)


def streams() -> dict[str, tuple[str, bytes]]:
    """Return a streamed response of every upstream protocol, and of Chat servers other than OpenAI."""
    streams_by_name = {"llama.cpp": ("openai-chat", LLAMA), "unasked usage": ("openai-chat", UNASKED)}
    for name in PROTOCOL_NAMES:
        streams_by_name[name] = (name, b"".join(translate_stream(LLAMA, "openai-chat", name)))
    tier = b'"service_tier":"default",'
    responses = streams_by_name["openai-responses"][1].replace(b'"object":"response",', b'"object":"response",' + tier)
    assert tier in responses
    return streams_by_name | {"service tier": ("openai-responses", responses)}


ANSWERS = streams()


@pytest.mark.parametrize("asks_usage", [False, True], ids=["plain", "usage"])
@pytest.mark.parametrize("case", ANSWERS)
def test_sdk_quickstart_runs_on_every_upstream(case: str, asks_usage: bool) -> None:
    protocol, wire = ANSWERS[case]
    kind = PROTOCOLS[protocol].surface.stream_type.encode()
    response = SSE_HEAD.replace(b"text/event-stream", kind) + transfer_chunk(wire) + b"0\r\n\r\n"
    options: dict[str, Any] = {"stream_options": {"include_usage": True}} if asks_usage else {}

    async def work() -> None:
        async with (
            serve_upstream(reply_with(response)) as origin,
            run_gateway(one_provider_config(origin, protocol)) as gateway,
            openai.AsyncOpenAI(
                base_url=gateway.root + "/v1", api_key="none", max_retries=0, timeout=DEADLINE
            ) as client,
        ):
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Hi"}], stream=True, **options
            )
            chunks = [chunk async for chunk in stream]
        if asks_usage and not chunks[-1].choices:
            chunks.pop()
        if not (asks_usage and case == "unasked usage"):  # it sends other chunks with empty choices, too
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            assert text == "It is sunny"
        if case == "llama.cpp":
            assert chunks[-1].choices[0].finish_reason == "stop"
            assert getattr(chunks[-1], "timings") == TIMINGS  # noqa: B009 - a member that the SDK does not know
        if case == "unasked usage":
            assert any(getattr(chunk, "prompt_filter_results", None) for chunk in chunks)

    run_async(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_same_protocol_stream_passes_through_frame_by_frame(protocol: str) -> None:
    """Chunks of any size; each frame arrives unchanged."""
    tried = 0
    for name, wire in recorded_bodies.fixture_streams(protocol).items():
        if name in {"json_array", "framing", "no_done"}:
            continue
        wire = wire.replace(b"\r\n", b"\n")  # noqa: PLW2901 - line ends are no part of a frame
        translation = StreamTranslator(PROTOCOLS[protocol], PROTOCOLS[protocol], ResponseContext())
        pieces = [wire[start : start + 37] for start in range(0, len(wire), 37)]
        passed = b"".join([*map(translation.feed, pieces), translation.close()])
        if translation.error is None and wire.endswith(b"\n"):
            tried += 1
            assert passed.split() == wire.split(), name
    assert tried > 5


def test_stream_left_open_by_the_provider_is_closed() -> None:
    wire = STREAM_START + chat_sse_event({}, "stop")
    assert b"".join(translate_stream(wire, "openai-chat", "openai-chat")) == wire + b"data: [DONE]\n\n"
