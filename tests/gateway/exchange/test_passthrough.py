"""A provider that speaks the client's own protocol: the client's own bytes, and the provider's own answer."""

import json
from operator import attrgetter
from typing import Any

import pytest

from tests.support.codecs import decode_error
from tests.support.gateway.in_process import run_async, run_gateway_with
from tests.support.servers.http_responses import CHAT_BODY, CHAT_RESPONSE, http_response
from tests.support.servers.upstream import ScriptedUpstream
from toolwire.codec.interface import ResponseContext
from toolwire.journal.records import USAGE_COUNTS
from toolwire.protocols import PROTOCOLS

PATH = "/v1/chat/completions"
# Spaces and escapes as no encoder here writes them.
ASKED = b'{ "messages": [ {"role": "user", "content": "caf\\u00e9",  "name": "Ann"} ], "n": 1, "model": "old" }'
NAMED = 'match = "*"\nmodel = "new"'


def test_what_the_client_wrote_goes_on_under_the_other_name() -> None:
    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        async with run_gateway_with(script, route_options=NAMED) as place:
            assert (await place.post(PATH, ASKED)).status == 200
        body = script.requests[0].partition(b"\r\n\r\n")[2]
        assert b'[ {"role": "user", "content": "caf\\u00e9",  "name": "Ann"} ]' in body
        assert script.bodies == [json.loads(ASKED) | {"model": "new", "stream": False}]

    run_async(work())


def test_of_two_models_only_the_one_that_was_routed_gets_through() -> None:
    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        async with run_gateway_with(script, route_options=NAMED) as place:
            assert (await place.post(PATH, ASKED.replace(b'"n": 1', b'"mod\\u0065l": "other"'))).status == 200
        body = script.requests[0].partition(b"\r\n\r\n")[2]
        assert [name for name, _ in json.loads(body, object_pairs_hook=list)] == ["messages", "model", "stream"]
        assert script.bodies[0]["model"] == "new"

    run_async(work())


@pytest.mark.parametrize("body", [b'{"model": "m", "messages": 5}', b'{"model": "m", "messages": [', b"[]"])
def test_what_nobody_could_read_is_not_passed_on(body: bytes) -> None:
    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        async with run_gateway_with(script) as place:
            answer = await place.post(PATH, body)
            assert answer.status == 400
            assert decode_error("openai-chat", 400, await answer.read(100_000)).kind == "invalid_request"
        assert script.requests == []

    run_async(work())


def test_an_answer_comes_as_it_was_given_and_its_usage_is_counted() -> None:
    given = CHAT_BODY.replace(b'"object"', b'\n "new_field": [1.0, 2],  "object"')

    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(http_response("200 OK", given))) as place:
            answer = await place.post(PATH, ASKED)
            assert await answer.read(100_000) == given
            assert "toolwire-losses" not in answer.headers
            _, metrics = await place.get("/metrics")
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
def test_what_is_no_ordinary_answer_is_decoded_and_told(body: bytes, status: int) -> None:
    async def work() -> None:
        async with run_gateway_with(
            ScriptedUpstream(http_response("200 OK", body)), extra_config="[limits]\nretries = 0"
        ) as place:
            assert (await place.post(PATH, ASKED)).status == status

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
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "fine"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 5},
}


@pytest.mark.parametrize(
    ("protocol", "answer"),
    [
        ("openai-chat", CHAT),
        ("openai-chat", CHAT | {"choices": [{"message": CALLING, "finish_reason": "stop"}]}),
        ("openai-chat", CHAT | {"choices": [{"message": REFUSING, "finish_reason": "stop"}]}),
        ("openai-chat", CHAT | {"choices": [{"message": REFUSING, "finish_reason": "length"}]}),
        ("openai-chat", CHAT | {"choices": [{"message": REFUSING, "finish_reason": None}]}),
        ("openai-chat", CHAT | {"usage": DETAILED}),
        ("anthropic", MESSAGE),
        ("anthropic", MESSAGE | {"stop_reason": None}),
    ],
)
def test_a_glance_sees_what_decoding_does(protocol: str, answer: dict[str, Any]) -> None:
    """Usage includes cached, reasoning and total token counts."""
    codec = PROTOCOLS[protocol]
    body = json.dumps(answer).encode()
    seen, decoded = codec.peek(body), codec.decode_response(body, ResponseContext())
    assert seen is not None
    assert seen.usage is not None
    assert decoded.usage is not None
    counts = attrgetter(*USAGE_COUNTS)
    assert counts(seen.usage) == counts(decoded.usage)
    assert (seen.id, seen.model) == (decoded.id, decoded.model)
    assert [one.stop and one.stop.reason for one in seen.candidates] == [
        one.stop and one.stop.reason for one in decoded.candidates
    ]


@pytest.mark.parametrize(
    ("protocol", "answer"),
    [
        ("openai-chat", CHAT | {"choices": []}),
        ("openai-chat", CHAT | {"error": {"message": "no"}}),
        ("openai-chat", CHAT | {"choices": [CHAT["choices"][0] | {"error": {"message": "no"}}]}),
        ("openai-chat", CHAT | {"usage": None}),
        ("anthropic", MESSAGE | {"type": "error"}),
        ("anthropic", {name: value for name, value in MESSAGE.items() if name != "content"}),
    ],
)
def test_a_glance_does_not_do_for_any_other_answer(protocol: str, answer: dict[str, Any]) -> None:
    assert PROTOCOLS[protocol].peek(json.dumps(answer).encode()) is None
