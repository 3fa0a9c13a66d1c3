"""Calls recovered from the text of responses: whole and streamed, into every protocol."""

import json
import random
from typing import Any

import pytest

from tests.support.assertions import non_empty
from tests.support.bodies.chat_text import chat_body, chat_call, chat_chunk, chat_stream, ollama_stream
from tests.support.samples.corpus import needs_recordings, recordings
from tests.support.samples.text_calls import CONTRADICTORY, fixture_cases, outcome, parse_whole
from toolwire.canonical.content import Reasoning, Text, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.interface import Codec, ResponseContext, Route, TextRecovery
from toolwire.protocols import PROTOCOLS
from toolwire.translation.body import translate, translate_stream
from toolwire.translation.stages.tool_call_parsers.text_recovery import recover_text

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
ON: dict[str, Any] = {"tool_call_parser": "auto", "reasoning_parser": "auto"}


def request_of(tools: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a Chat request that declares these tools."""
    declared = [
        {"type": "function", "function": {"name": name, "parameters": json.loads(bytes(schema or b"{}"))}}
        for name, schema in tools.items()
    ]
    return {"model": "m", "messages": [{"role": "user", "content": "?"}], "tools": declared, **more}


WEATHER = request_of({"get_weather": json.dumps(SCHEMA).encode(), "now": None})
WEATHER_AT_GEMINI = translate(WEATHER, "openai-chat", "gemini", model="m").value
ANTHROPIC: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "?"}],
    "tools": [{"name": "get_weather", "input_schema": SCHEMA}],
}


def decode_stream(protocol: str, chunks: list[bytes]) -> Response:
    from toolwire.canonical.fold import fold

    decoder = PROTOCOLS[protocol].stream_decoder(ResponseContext())
    return fold([*decoder.feed(b"".join(chunks)), *decoder.close()])


def parts_of(response: Response) -> list[tuple[str, str]]:
    """Return the parts of a response as kind and text, neighbors of one kind joined."""
    found: list[tuple[str, str]] = []
    for message in response.candidates[0].messages:
        for part in message.parts:
            match part:
                case Text():
                    item = ("text", part.text)
                case Reasoning():
                    item = ("reasoning", "".join([getattr(block, "text", "") for block in part.content]))
                case ToolCall():
                    item = ("call", json.dumps([part.name, json.loads(part.arguments)], sort_keys=True))
                case _:
                    raise AssertionError(part)
            found.append(item)
    return found


def cut(text: str, numbers: random.Random) -> list[str]:
    places = sorted(numbers.randrange(len(text) + 1) for _ in range(5))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


CASES = {
    case.id: case
    for case in fixture_cases()
    if case.id not in CONTRADICTORY and case.kind != "plain" and not any("." in name for name in case.tools)
}


@pytest.mark.parametrize("id", list(CASES)[::3])
def test_a_stream_to_another_protocol_has_the_parts_of_the_complete_response(id: str) -> None:
    case = CASES[id]
    request, finish = request_of(case.tools), "stop" if case.finished else "length"
    client = translate(request, "openai-chat", "gemini", model="m").value
    whole = translate(chat_body(case.text, finish=finish), "openai-chat", "gemini", "response", request=client, **ON)
    response = PROTOCOLS["gemini"].decode_response(whole.to_bytes(), ResponseContext())
    chunks = chat_stream(cut(case.text, random.Random(id)), finish=finish)
    streamed = translate_stream(chunks, "openai-chat", "gemini", client, **ON)
    calls = [part for part in parts_of(decode_stream("gemini", list(streamed))) if part[0] == "call"]
    assert calls == [part for part in parts_of(response) if part[0] == "call"]
    expected = outcome(parse_whole(case)).calls
    assert [json.loads(text) for _, text in calls] == [[call["name"], call["arguments"]] for call in expected]


def test_text_around_calls_is_kept_in_order() -> None:
    text = f"<think>hm</think>First.\n{CALL}\nThen.\n{CALL}"
    body = translate(chat_body(text), "openai-chat", "anthropic", "response", request=ANTHROPIC, **ON).value
    assert [block["type"] for block in body["content"]] == ["thinking", "text", "tool_use", "text", "tool_use"]
    assert body["stop_reason"] == "tool_use"
    assert len({block["id"] for block in body["content"] if block["type"] == "tool_use"}) == 2
    streamed = translate_stream(chat_stream(text), "openai-chat", "anthropic", ANTHROPIC, **ON)
    kinds = [kind for kind, _ in parts_of(decode_stream("anthropic", list(streamed)))]
    assert kinds == ["reasoning", "text", "call", "text", "call"]


@pytest.mark.parametrize("target", ["anthropic", "openai-chat"])
def test_each_recovery_is_reported_with_its_dialect(target: str) -> None:
    request = ANTHROPIC if target == "anthropic" else WEATHER
    whole = translate(chat_body(f"<think>hm</think>{CALL}"), "openai-chat", target, "response", request=request, **ON)
    streamed = translate_stream(chat_stream(f"<think>hm</think>{CALL}"), "openai-chat", target, request, **ON)
    list(streamed)
    for losses in (whole.losses, streamed.losses):
        (loss,) = [loss for loss in losses if loss.kind == "approximated"]
        assert loss.path == "/choices/0/message/content"
        assert loss.reason.endswith("reasoning, call (hermes)")


@pytest.mark.parametrize("protocol", ["openai-chat", "ollama"])
def test_a_stream_of_the_clients_own_protocol_without_a_mark_keeps_its_bytes(protocol: str) -> None:
    stream = chat_stream if protocol == "openai-chat" else ollama_stream
    texts = [case.text for case in fixture_cases() if case.dialect == "none" and case.kind in ("negative", "plain")]
    for text in non_empty([text for text in texts if "<think>" not in text]):
        chunks = stream(text)
        request = WEATHER if protocol == "openai-chat" else {**WEATHER, "stream": True}
        translated = translate_stream(chunks, protocol, protocol, request, **ON)
        assert b"".join(translated) == b"".join(chunks)
        assert translated.losses == []


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_stream_of_the_clients_own_protocol_gets_structured_calls(size: int) -> None:
    text = f"Let me see.\n{CALL}"
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    response = decode_stream(
        "openai-chat", list(translate_stream(chat_stream(pieces), "openai-chat", "openai-chat", WEATHER, **ON))
    )
    assert parts_of(response) == [("text", "Let me see.\n"), ("call", '["get_weather", {"city": "Oslo"}]')]
    assert response.candidates[0].stop is not None
    assert response.candidates[0].stop.reason == "tool_use"


def test_streamed_and_complete_responses_give_the_same_ids() -> None:
    whole = translate(chat_body(CALL), "openai-chat", "openai-chat", "response", request=WEATHER, **ON).value
    streamed = translate_stream(chat_stream(CALL), "openai-chat", "openai-chat", WEATHER, **ON)
    (call,) = [
        part
        for message in decode_stream("openai-chat", list(streamed)).candidates[0].messages
        for part in message.parts
        if isinstance(part, ToolCall)
    ]
    assert call.id == whole["choices"][0]["message"]["tool_calls"][0]["id"]


def test_a_call_written_by_an_ollama_model_is_recovered() -> None:
    streamed = translate_stream(ollama_stream(f"Now.\n{CALL}"), "ollama", "anthropic", ANTHROPIC, **ON)
    assert [kind for kind, _ in parts_of(decode_stream("anthropic", list(streamed)))] == ["text", "call"]


def test_text_beside_structured_calls_is_left_alone() -> None:
    body = chat_body(CALL, finish="tool_calls", calls=[chat_call("get_weather", '{"city":"Oslo"}')])
    value = translate(body, "openai-chat", "openai-chat", "response", request=WEATHER, **ON).value
    assert value["choices"][0]["message"]["content"] == CALL
    assert len(value["choices"][0]["message"]["tool_calls"]) == 1


@pytest.mark.parametrize("arguments", ['{"city":"Oslo"}', '{"city":"Rome"}'])
def test_a_structured_copy_of_a_recovered_call_is_dropped(arguments: str) -> None:
    chunks = chat_stream(f"Now.{CALL} Done.", finish="tool_calls")
    chunks[-2:-2] = [chat_chunk({"tool_calls": [chat_call("get_weather", arguments)]})]
    streamed = translate_stream(chunks, "openai-chat", "anthropic", ANTHROPIC, **ON)
    calls = [text for kind, text in parts_of(decode_stream("anthropic", list(streamed))) if kind == "call"]
    cities = ["Oslo"] if "Oslo" in arguments else ["Oslo", "Rome"]
    assert [json.loads(call)[1]["city"] for call in calls] == cities


def test_held_text_before_a_structured_call_goes_out_as_text() -> None:
    chunks = chat_stream('{"name": "get_weather", "arguments": {}}', finish="tool_calls")
    chunks[-2:-2] = [chat_chunk({"tool_calls": [chat_call("get_weather", "{}")]})]
    streamed = translate_stream(chunks, "openai-chat", "anthropic", ANTHROPIC, **ON)
    assert [kind for kind, _ in parts_of(decode_stream("anthropic", list(streamed)))] == ["text", "call"]


def test_text_after_a_structured_call_is_left_alone() -> None:
    chunks = chat_stream(["Now.", CALL], finish="tool_calls")
    chunks[2:2] = [chat_chunk({"tool_calls": [chat_call("get_weather", "{}")]})]
    streamed = translate_stream(chunks, "openai-chat", "gemini", WEATHER_AT_GEMINI, **ON)
    calls = [part for part in parts_of(decode_stream("gemini", list(streamed))) if part[0] == "call"]
    assert calls == [("call", '["get_weather", {}]')]


def test_a_truncated_call_stays_text_with_the_upstreams_stop_reason() -> None:
    text = CALL[: CALL.index("Oslo")]
    streamed = translate_stream(chat_stream(text, finish="length"), "openai-chat", "anthropic", ANTHROPIC, **ON)
    response = decode_stream("anthropic", list(streamed))
    assert parts_of(response) == [("text", text)]
    assert response.candidates[0].stop is not None
    assert response.candidates[0].stop.reason == "max_tokens"


@pytest.mark.parametrize(
    "request_body",
    [
        {key: value for key, value in WEATHER.items() if key != "tools"},
        {**WEATHER, "tool_choice": "none"},
        request_of({"other": None}),
    ],
)
def test_only_calls_to_tools_that_may_be_called_are_recovered(request_body: dict[str, Any]) -> None:
    value = translate(chat_body(CALL), "openai-chat", "openai-chat", "response", request=request_body, **ON).value
    assert value["choices"][0]["message"]["content"] == CALL


def test_json_that_the_client_asked_for_is_no_call() -> None:
    text = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
    request = {**WEATHER, "response_format": {"type": "json_object"}}
    value = translate(chat_body(text), "openai-chat", "openai-chat", "response", request=request, **ON).value
    assert value["choices"][0]["message"]["content"] == text
    value = translate(chat_body(text), "openai-chat", "openai-chat", "response", request=WEATHER, **ON).value
    assert value["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("target", ["anthropic", "openai-chat"])
def test_held_text_goes_out_before_the_failure_of_a_stream(target: str) -> None:
    chunks = chat_stream("Now. <tool_call>")[:-2]
    request = ANTHROPIC if target == "anthropic" else WEATHER
    out = b"".join(
        translate_stream([*chunks, b'data: {"error": {"message": "no"}}\n\n'], "openai-chat", target, request, **ON)
    )
    assert out.index(b"tool_call") < out.rindex(b"error")


def test_several_candidates_are_recovered_independently() -> None:
    texts = {0: "No tool.", 1: CALL}
    chunks = [chat_chunk({"role": "assistant", "content": ""}, index=index) for index in texts]
    for place in range(max(map(len, texts.values()))):
        chunks += [
            chat_chunk({"content": text[place]}, index=index) for index, text in texts.items() if place < len(text)
        ]
    chunks += [chat_chunk({}, "stop", index=index) for index in texts]
    response = decode_stream(
        "openai-chat",
        list(translate_stream([*chunks, b"data: [DONE]\n\n"], "openai-chat", "openai-chat", WEATHER, **ON)),
    )
    reasons = [candidate.stop.reason for candidate in response.candidates if candidate.stop is not None]
    assert reasons == ["end_turn", "tool_use"]


def test_an_unknown_parser_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown tool_call_parser 'herms'"):
        translate(chat_body(""), "openai-chat", "anthropic", "response", tool_call_parser="herms")


@needs_recordings
@pytest.mark.parametrize("protocol", ["anthropic", "openai-chat", "openai-responses", "gemini", "ollama"])
def test_no_recorded_answer_gives_a_call_that_was_not_made(protocol: str) -> None:
    codec = PROTOCOLS[protocol]
    checked = 0
    for exchange in [*recordings(protocol), *recordings(protocol, compatible=True)]:
        if exchange.kind != "generate" or not exchange.accepted:
            continue
        request = None if exchange.request is None else _request(codec, exchange.request)
        context = ResponseContext(request=request, text_recovery=TextRecovery())
        try:
            if exchange.response is None:
                response = decode_stream(protocol, [exchange.wire])
            else:
                response = codec.decode_response(json.dumps(exchange.response).encode(), context)
        except DecodeError:
            continue  # no answer of a model
        recovered = recover_text(response, context)
        checked += 1
        assert _calls(recovered) == _calls(response), exchange.id
    assert checked > 10


def _request(codec: Codec, body: Any) -> Request:
    return codec.decode_request(json.dumps(body).encode(), Route())


def _calls(response: Response) -> int:
    return sum(
        isinstance(part, ToolCall)
        for candidate in response.candidates
        for message in candidate.messages
        for part in message.parts
    )
