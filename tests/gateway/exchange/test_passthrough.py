"""Providers that speak the client's protocol: bodies and responses pass through unchanged."""

import json
from operator import attrgetter
from typing import Any

import pytest

from tests.support.codecs import decode_error
from tests.support.gateway.in_process import run_async, run_gateway_with
from tests.support.servers.http_responses import CHAT_BODY, CHAT_RESPONSE, http_response
from tests.support.servers.upstream import ScriptedUpstream
from toolwire.canonical.content import ToolCall
from toolwire.canonical.response import Response
from toolwire.codec.interface import ResponseContext
from toolwire.journal.records import USAGE_COUNTS
from toolwire.protocols import PROTOCOLS

PATH = "/v1/chat/completions"
# Whitespace and escapes that no encoder here produces.
ASKED = b'{ "messages": [ {"role": "user", "content": "caf\\u00e9",  "name": "Ann"} ], "n": 1, "model": "old" }'
NAMED = 'match = "*"\nmodel = "new"'


def test_body_passes_through_with_the_model_replaced() -> None:
    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        async with run_gateway_with(script, route_options=NAMED) as gateway:
            assert (await gateway.post(PATH, ASKED)).status == 200
        body = script.requests[0].partition(b"\r\n\r\n")[2]
        assert b'[ {"role": "user", "content": "caf\\u00e9",  "name": "Ann"} ]' in body
        assert script.bodies == [json.loads(ASKED) | {"model": "new", "stream": False}]

    run_async(work())


def test_duplicate_model_member_is_dropped() -> None:
    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        async with run_gateway_with(script, route_options=NAMED) as gateway:
            assert (await gateway.post(PATH, ASKED.replace(b'"n": 1', b'"mod\\u0065l": "other"'))).status == 200
        body = script.requests[0].partition(b"\r\n\r\n")[2]
        assert [name for name, _ in json.loads(body, object_pairs_hook=list)] == ["messages", "model", "stream"]
        assert script.bodies[0]["model"] == "new"

    run_async(work())


@pytest.mark.parametrize("body", [b'{"model": "m", "messages": 5}', b'{"model": "m", "messages": [', b"[]"])
def test_invalid_body_is_not_passed_through(body: bytes) -> None:
    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        async with run_gateway_with(script) as gateway:
            response = await gateway.post(PATH, body)
            assert response.status == 400
            assert decode_error("openai-chat", 400, await response.read(100_000)).kind == "invalid_request"
        assert script.requests == []

    run_async(work())


def test_response_passes_through_and_its_usage_is_counted() -> None:
    upstream_body = CHAT_BODY.replace(b'"object"', b'\n "new_field": [1.0, 2],  "object"')

    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(http_response("200 OK", upstream_body))) as gateway:
            response = await gateway.post(PATH, ASKED)
            assert await response.read(100_000) == upstream_body
            assert "toolwire-losses" not in response.headers
            _, metrics = await gateway.get("/metrics")
            assert b'toolwire_tokens_total{provider="p0",kind="output"} 4' in metrics

    run_async(work())


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"error": {"message": "out of order", "type": "server_error"}}', 502),
        (CHAT_BODY.replace(b"fine", b"fi\xffne"), 502),
        (CHAT_BODY[:-1], 502),
        (b'{"choices": 3}', 502),
    ],
)
def test_unusual_response_is_decoded(body: bytes, status: int) -> None:
    async def work() -> None:
        async with run_gateway_with(
            ScriptedUpstream(http_response("200 OK", body)), extra_config="[limits]\nretries = 0"
        ) as gateway:
            assert (await gateway.post(PATH, ASKED)).status == status

    run_async(work())


CHAT = json.loads(CHAT_BODY)
DETAILED = {
    "prompt_tokens": 1000,
    "completion_tokens": 40,
    "total_tokens": 1040,
    "prompt_tokens_details": {"cached_tokens": 900, "cache_write_tokens": 10, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 30, "audio_tokens": 0},
    "server_tool_use_details": {"web_search_requests": 2},
    "queue_time": 0.01,
}
FUNCTION = {"name": "f", "arguments": "{}"}
CALLING = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": FUNCTION}]}
REFUSING = {"role": "assistant", "content": None, "refusal": "No."}
CUSTOM_CALLING = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}],
}
TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"city": "Oslo", "days": [1]}}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "fine"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 5},
}


def calls_of(response: Response) -> list[list[tuple[str, str]]]:
    """Return names and arguments of the calls of each candidate."""
    return [
        [
            (part.name, part.arguments)
            for message in candidate.messages
            for part in message.parts
            if isinstance(part, ToolCall)
        ]
        for candidate in response.candidates
    ]


@pytest.mark.parametrize(
    ("protocol", "response"),
    [
        ("openai-chat", CHAT),
        ("openai-chat", CHAT | {"choices": [{"message": CALLING, "finish_reason": "stop"}]}),
        ("openai-chat", CHAT | {"choices": [{"message": REFUSING, "finish_reason": "stop"}]}),
        ("openai-chat", CHAT | {"choices": [{"message": REFUSING, "finish_reason": "length"}]}),
        ("openai-chat", CHAT | {"choices": [{"message": REFUSING, "finish_reason": None}]}),
        ("openai-chat", CHAT | {"usage": DETAILED}),
        ("anthropic", MESSAGE),
        ("anthropic", MESSAGE | {"stop_reason": None}),
        ("anthropic", MESSAGE | {"content": [*MESSAGE["content"], TOOL_USE], "stop_reason": "tool_use"}),
    ],
)
def test_peek_agrees_with_decoding(protocol: str, response: dict[str, Any]) -> None:
    """Including cached, reasoning and total token counts."""
    codec = PROTOCOLS[protocol]
    body = json.dumps(response).encode()
    summary, decoded = codec.peek(body), codec.decode_response(body, ResponseContext())
    assert summary is not None
    assert summary.usage is not None
    assert decoded.usage is not None
    counts = attrgetter(*USAGE_COUNTS)
    assert counts(summary.usage) == counts(decoded.usage)
    assert (summary.id, summary.model) == (decoded.id, decoded.model)
    assert [one.stop and one.stop.reason for one in summary.candidates] == [
        one.stop and one.stop.reason for one in decoded.candidates
    ]
    assert calls_of(summary) == calls_of(decoded)


@pytest.mark.parametrize(
    ("protocol", "response"),
    [
        ("openai-chat", CHAT | {"choices": []}),
        ("openai-chat", CHAT | {"error": {"message": "no"}}),
        ("openai-chat", CHAT | {"choices": [CHAT["choices"][0] | {"error": {"message": "no"}}]}),
        ("openai-chat", CHAT | {"usage": None}),
        ("openai-chat", CHAT | {"choices": [{"message": CUSTOM_CALLING, "finish_reason": "tool_calls"}]}),
        ("anthropic", MESSAGE | {"type": "error"}),
        ("anthropic", {name: value for name, value in MESSAGE.items() if name != "content"}),
    ],
)
def test_peek_declines_unusual_responses(protocol: str, response: dict[str, Any]) -> None:
    assert PROTOCOLS[protocol].peek(json.dumps(response).encode()) is None
