"""The SDK validators reject invalid bodies and streams, and accept recorded traffic with listed exceptions."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.support.assertions import non_empty
from tests.support.samples.corpus import Recording, needs_recordings, recordings
from tests.support.samples.corpus_exceptions import (
    EXCEPTIONS,
    exception_for,
    stream_with_current_fields,
    with_current_fields,
)
from tests.support.samples.fixture_files import PROTOCOLS as EVERY_PROTOCOL
from tests.support.samples.fixture_files import fixture
from tests.support.sdk.validation import (
    InvalidStream,
    accept_error,
    accept_request,
    accept_response,
    fold_stream,
    summary,
)

# Protocols whose SDKs have an accumulator; the other validators are tested with their protocols.
PROTOCOLS = ("anthropic", "openai-chat", "openai-responses")

# Below these paths the vendor's types accept any JSON, so a change cannot be detected.
FREE_FORM = frozenset(
    {
        "input_schema",
        "schema",
        "parameters",
        "output_schema",
        "input",
        "input_examples",
        "trigger",
        "metadata",
        "headers",
    }
)

STREAMS = {protocol: fixture(protocol, "streams", "minimal").decode() for protocol in PROTOCOLS}
# Exceptions that the SDKs raise, besides ours, for a stream they cannot read.
REFUSALS = (RuntimeError, ValueError, IndexError, anthropic.AnthropicError, openai.OpenAIError)
CALL_IDS = {"anthropic": "toolu_1", "openai-chat": "call_1", "openai-responses": "call_1"}
INPUT_TOKENS = {"anthropic": 10, "openai-chat": 9, "openai-responses": 9}
OUTPUT_TOKENS = {"anthropic": 12, "openai-chat": 7, "openai-responses": 7}

# (protocol, text to replace in the minimal stream, replacement): each breaks a rule of an official client.
BROKEN = [
    ("anthropic", "event: message_start", "event: ping"),
    ("anthropic", '"index":0,"content_block"', '"index":1,"content_block"'),
    ("anthropic", '"index":0,"delta"', '"index":1,"delta"'),
    ("anthropic", '{"type":"content_block_stop","index":0}', '{"type":"content_block_stop","index":1}'),
    ("anthropic", "event: message_stop", "event: ping"),
    ("anthropic", '"stop_reason":"tool_use"', '"stop_reason":null'),
    ("anthropic", '"stop_reason":"tool_use"', '"stop_reason":"tool_calls"'),
    ("anthropic", '{\\"city\\"', "{city"),
    ("anthropic", '"partial_json"', '"arguments"'),
    ("anthropic", '"usage":{"output_tokens":12}', '"usage":{}'),
    ("openai-chat", '"role":"assistant",', ""),
    ("openai-chat", '"finish_reason":"tool_calls"', '"finish_reason":null'),
    ("openai-chat", '"finish_reason":"tool_calls"', '"finish_reason":"tool_use"'),
    ("openai-chat", '"tool_calls":[{"index":0,"id"', '"tool_calls":[{"index":1,"id"'),
    ("openai-chat", '"tool_calls":[{"index":0,"id"', '"tool_calls":[{"id"'),
    ("openai-chat", '"id":"call_1",', ""),
    ("openai-chat", '"type":"function",', ""),
    ("openai-chat", '"name":"get_weather",', ""),
    ("openai-chat", '"function":{"arguments":"{', '"id":"call_1","function":{"arguments":"{'),
    ("openai-chat", '"function":{"arguments":"{', '"function":{"name":"get_weather","arguments":"{'),
    ("openai-chat", '"delta":{},', '"delta":{"role":"assistant"},'),
    ("openai-chat", '"choices":[],', '"choices":[{"index":0,"delta":{"content":"more"},"finish_reason":null}],'),
    ("openai-chat", '"object":"chat.completion.chunk",', ""),
    ("openai-responses", "response.created", "response.in_progress"),
    ("openai-responses", '"sequence_number":4', '"sequence_number":9'),
    ("openai-responses", '"output_index":0,"delta"', '"output_index":1,"delta"'),
    ("openai-responses", '"arguments":"","status"', '"status"'),
    ("openai-responses", '"delta":"{', '"delta":"{ '),
    (
        "openai-responses",
        '"call_id":"call_1","name":"get_weather","arguments":""',
        '"call_id":"x","name":"f","arguments":""',
    ),
    (
        "openai-responses",
        '"output":[{"type":"function_call","id":"fc_1"',
        '"output":[{"type":"function_call","id":"fc_9"',
    ),
    ("openai-responses", '"status":"completed","model"', '"status":"done","model"'),
    (
        "openai-responses",
        '"response":{"id":"resp_1","object":"response","created_at":1,"status":"completed"',
        '"response":{"id":"resp_2","object":"response","created_at":1,"status":"completed"',
    ),
    ("openai-responses", '"cached_tokens":0,"cache_write_tokens":0', '"cached_tokens":0'),
    ("openai-responses", "response.completed", "response.finished"),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_minimal_stream_of_the_wire_facts_folds(protocol: str) -> None:
    folded = fold_stream(protocol, STREAMS[protocol].encode())
    assert folded["calls"] == [{"id": CALL_IDS[protocol], "name": "get_weather", "arguments": {"city": "Paris"}}]
    assert folded["stop"] == "tool_use"
    assert folded["usage"] == {
        "input": INPUT_TOKENS[protocol],
        "output": OUTPUT_TOKENS[protocol],
        "cache_read": 0,
        "cache_write": 0,
        "reasoning": 0,
    }
    assert (folded["text"], folded["reasoning"], folded["refusal"], folded["other_choices"]) == ("", "", "", [])


@pytest.mark.parametrize(("protocol", "old", "new"), BROKEN)
def test_broken_stream_does_not_fold(protocol: str, old: str, new: str) -> None:
    assert old in STREAMS[protocol]
    with pytest.raises(REFUSALS):
        fold_stream(protocol, STREAMS[protocol].replace(old, new).encode())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_stream_cut_after_any_event_does_not_fold(protocol: str) -> None:
    frames = [f"{frame}\n\n" for frame in STREAMS[protocol].strip().split("\n\n")]
    # Chat is complete with its finish reason: the usage chunk and `[DONE]` may be missing.
    complete_length = len(frames) - (2 if protocol == "openai-chat" else 0)
    for end in range(complete_length):
        with pytest.raises((InvalidStream, RuntimeError)):
            fold_stream(protocol, "".join(frames[:end]).encode())
    assert fold_stream(protocol, "".join(frames[:complete_length]).encode())["stop"] == "tool_use"


def _nodes(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every object that has a type and is described by the vendor's types."""
    if isinstance(value, dict):
        if "type" in value:
            yield path
        for key, child in value.items():
            if key not in FREE_FORM or (isinstance(child, list) and key == "input"):
                yield from _nodes(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _nodes(child, (*path, index))


def _changed(body: Any, path: tuple[str | int, ...], key: str, value: Any) -> Any:
    changed = copy.deepcopy(body)
    node = changed
    for step in path:
        node = node[step]
    node[key] = value
    return changed


def _any_json(protocol: str, path: tuple[str | int, ...]) -> bool:
    """Return whether the types accept any JSON here, such as members of OpenAI's `allowed_tools`."""
    return protocol.startswith("openai") and (
        (path[0] == "tool_choice" and path[-2:-1] == ("tools",)) or path[0] == "context_management"
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_wrong_type_at_any_depth_of_a_request_is_rejected(protocol: str) -> None:
    body = fixture(protocol, "requests", "full")
    assert accept_request(protocol, body) is None
    paths = [path for path in _nodes(body) if not _any_json(protocol, path)]
    assert len(paths) > 20
    accepted = [path for path in paths if accept_request(protocol, _changed(body, path, "type", "nonsense")) is None]
    assert accepted == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_unknown_field_at_any_depth_of_a_request_is_rejected_unless_allowed(protocol: str) -> None:
    body = fixture(protocol, "requests", "full")
    for path in non_empty(_nodes(body)):
        if not _any_json(protocol, path):
            changed = _changed(body, path, "toolwire_unknown", 1)
            assert accept_request(protocol, changed) is not None, path
            assert accept_request(protocol, changed, unknown_fields=True) is None, path


@pytest.mark.parametrize(
    ("protocol", "name", "count"),
    [("anthropic", "server_tools", 10), ("openai-chat", "tool_calls", 3), ("openai-responses", "mcp", 5)],
)
def test_wrong_type_at_any_depth_of_a_response_is_rejected(protocol: str, name: str, count: int) -> None:
    body = fixture(protocol, "responses", name)
    assert accept_response(protocol, body) is None
    paths = [path for path in _nodes(body) if "tools" not in path and "content" not in path[-2:-1]]
    paths += [path for path in _nodes(body) if path[-2:-1] == ("content",) and len(path) == 2]
    assert len(paths) >= count
    for path in paths:
        assert accept_response(protocol, _changed(body, path, "type", "nonsense")) is not None, path


@pytest.mark.parametrize(
    ("protocol", "key", "value"),
    [
        ("anthropic", "max_tokens", "64"),
        ("anthropic", "max_tokens", None),
        ("anthropic", "messages", "Hello"),
        ("anthropic", "messages", [{"role": "tool", "content": "x"}]),
        ("anthropic", "messages", [{"role": "user"}]),
        ("anthropic", "messages", [{"role": "user", "content": [{"type": "text"}]}]),
        ("anthropic", "tools", [{"name": "f"}]),
        ("anthropic", "tools", [{"type": "function", "function": {"name": "f"}}]),
        ("anthropic", "tool_choice", "auto"),
        ("anthropic", "temperature", 1.0),
        ("anthropic", "betas", ["x"]),
        ("openai-chat", "messages", [{"role": "tool", "content": "x"}]),
        (
            "openai-chat",
            "messages",
            [{"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        ),
        ("openai-chat", "messages", [{"role": "tool", "tool_call_id": "a", "content": [{"type": "image_url"}]}]),
        ("openai-chat", "tools", [{"type": "function", "name": "f"}]),
        ("openai-chat", "tool_choice", {"type": "function", "name": "f"}),
        ("openai-chat", "tool_choice", {"type": "any"}),
        ("openai-chat", "n", True),
        ("openai-responses", "input", [{"type": "function_call", "name": "f", "arguments": "{}"}]),
        ("openai-responses", "input", [{"type": "function_call", "call_id": "a", "name": "f", "arguments": {}}]),
        ("openai-responses", "input", [{"type": "custom_tool_call_output", "output": "x"}]),
        ("openai-responses", "input", [{"role": "tool", "content": "x"}]),
        ("openai-responses", "tools", [{"type": "function", "function": {"name": "f"}}]),
        ("openai-responses", "tools", [{"type": "function", "name": "f", "parameters": {}}]),
        ("openai-responses", "tool_choice", {"type": "function", "function": {"name": "f"}}),
        ("openai-responses", "stop", ["END"]),
    ],
)
def test_invalid_small_request_is_rejected(protocol: str, key: str, value: Any) -> None:
    body = fixture(protocol, "requests", "minimal")
    assert accept_request(protocol, body) is None
    assert accept_request(protocol, {**body, key: value}) is not None


def test_rejection_names_the_path() -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}
    assert accept_request("anthropic", body) == (
        "messages.0.role=user.content.0.type=text.text: Input should be a valid string"
    )


@pytest.mark.parametrize(
    ("protocol", "body"),
    [
        ("anthropic", {"error": {"type": "api_error", "message": "x"}}),
        ("anthropic", {"type": "error", "error": {"type": "server_error", "message": "x"}}),
        ("anthropic", {"type": "error", "error": {"type": "api_error"}}),
        ("openai-chat", {"error": "x"}),
        ("openai-chat", {"error": {"type": "x", "code": None, "param": None}}),
        ("openai-responses", {"type": "error", "message": "x"}),
    ],
)
def test_malformed_error_is_rejected(protocol: str, body: Any) -> None:
    assert accept_error(protocol, body) is not None


def test_equal_responses_have_equal_summaries_in_all_protocols() -> None:
    summaries = []
    for protocol in PROTOCOLS:
        name = "max_tokens" if protocol == "anthropic" else "length"
        name = "incomplete_max_output_tokens" if protocol == "openai-responses" else name
        response_summary = summary(protocol, fixture(protocol, "responses", name))
        summaries.append(
            (response_summary["text"], response_summary["stop"], response_summary["calls"], response_summary["refusal"])
        )
    assert summaries == [("A story that will not", "max_tokens", [], "")] * 3


def _rejections(protocol: str, accept: Callable[[Recording], str | None]) -> dict[str, str]:
    results = {exchange.id: accept(exchange) for exchange in recordings(protocol)}
    return {name: refusal for name, refusal in results.items() if refusal is not None}


def _reject_request(exchange: Recording) -> str | None:
    if exchange.kind != "generate" or not exchange.accepted or exchange.request is None:
        return None
    return accept_request(exchange.protocol, with_current_fields(exchange.protocol, exchange.request))


def _reject_response(exchange: Recording) -> str | None:
    if exchange.kind not in ("generate", "retrieve") or exchange.response is None:
        return None
    accept = accept_response if exchange.status < 400 else accept_error
    return accept(exchange.protocol, with_current_fields(exchange.protocol, exchange.response))


def _reject_stream(exchange: Recording) -> str | None:
    if not exchange.sse:
        return None
    try:
        fold_stream(exchange.protocol, stream_with_current_fields(exchange.protocol, exchange.sse))
    except REFUSALS as error:
        return repr(error)
    return None


@needs_recordings
@pytest.mark.parametrize("protocol", EVERY_PROTOCOL)
def test_recordings_are_accepted_with_listed_exceptions(protocol: str) -> None:
    rejected: dict[str, str] = {}
    for accept in (_reject_request, _reject_response, _reject_stream):
        rejected |= _rejections(protocol, accept)
    assert {name: refusal for name, refusal in rejected.items() if not exception_for(name)} == {}
    recorded = {exchange.id for exchange in recordings(protocol) if exception_for(exchange.id)}
    of_this_protocol = [start for start in EXCEPTIONS if any(name.startswith(start) for name in recorded)]
    assert [start for start in of_this_protocol if not any(name.startswith(start) for name in rejected)] == []
