"""Conversations that move from one provider to another translate end to end.

A step is a request with its response in one protocol. A client converted the conversation for the next provider itself.
toolwire must do the same: the history arrives, the next provider accepts it, and its response is translated back.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

import toolwire as tw
from tests.support.canonical_requests import conversation_texts, function_calls, function_results
from tests.support.samples import corpus
from tests.support.samples.fixture_files import FIXTURES
from tests.support.sdk import validation
from toolwire.canonical.fold import fold
from toolwire.canonical.request import Request
from toolwire.codec.interface import ResponseContext, Route, Target
from toolwire.protocols import PROTOCOLS


class Step(NamedTuple):
    """One exchange of a conversation."""

    protocol: str
    request: dict[str, Any]
    response: dict[str, Any] | None
    wire: bytes  # the streamed response, empty if not streamed


def read_steps(path: Path) -> list[Step]:
    return [Step(step["protocol"], step["request"], step["response"], b"") for step in json.loads(path.read_bytes())]


def handoffs() -> Iterator[Any]:
    """Yield each step with the following step at another provider."""
    for path in sorted((FIXTURES / "handoffs").glob("*.json")):
        steps = read_steps(path)
        for number, (before, after) in enumerate(pairwise(steps)):
            yield pytest.param(before, after, id=f"{path.stem}#{number}")
    recorded = {
        exchange.id: exchange
        for protocol in PROTOCOLS
        for compatible in (False, True)
        for exchange in corpus.recordings(protocol, compatible=compatible, kind="generate")
    }
    for exchange in recorded.values():
        parent = recorded.get(exchange.parent or "")
        if parent is not None and parent.protocol != exchange.protocol:
            yield pytest.param(_to_step(parent), _to_step(exchange), id=exchange.id)


def _to_step(exchange: corpus.Recording) -> Step:
    return Step(exchange.protocol, exchange.request, exchange.response, exchange.wire)


HANDOFFS = list(handoffs())


def test_the_corpus_contains_handoffs() -> None:
    """The corpus has at least 14 handoffs; three more are fixtures."""
    assert len(HANDOFFS) >= (17 if corpus.is_present() else 3)


@pytest.mark.parametrize(("before", "after"), HANDOFFS)
def test_the_handed_over_history_is_preserved(before: Step, after: Step) -> None:
    codec = PROTOCOLS[after.protocol]
    recorded = _decode_request(after)
    history = _continue_conversation(before, recorded)
    encoded = codec.encode_request(history, Target(model=recorded.model))
    body = json.loads(encoded.to_bytes())
    assert [f for f in tw.check(body, after.protocol, model=recorded.model) if f.level == "error"] == []
    assert validation.accept_request(after.protocol, body) is None
    decoded = codec.decode_request(encoded.to_bytes(), encoded.route)
    count = 0
    for feature in (conversation_texts, function_calls, function_results):
        known = feature(history)
        common = [value for value in feature(recorded) if value in known]
        count += len(common)
        assert [value for value in common if value not in feature(decoded)] == [], feature.__name__
    assert count > 1


@pytest.mark.parametrize(("before", "after"), HANDOFFS)
def test_the_response_is_translated_back_to_the_client(before: Step, after: Step) -> None:
    """The client keeps its own protocol."""
    if after.wire:
        stream = tw.translate_stream([after.wire], after.protocol, before.protocol)
        received = validation.fold_stream(before.protocol, b"".join(stream))
        expected = validation.fold_stream(after.protocol, after.wire, tolerant=True)
    else:
        assert after.response is not None
        translated = tw.translate(after.response, after.protocol, before.protocol, "response")
        assert validation.accept_response(before.protocol, translated.value) is None
        received, expected = (
            validation.summary(before.protocol, translated.value),
            validation.summary(after.protocol, after.response),
        )
    assert received["text"] == expected["text"]
    assert [(call["name"], call["arguments"]) for call in received["calls"]] == [
        (call["name"], call["arguments"]) for call in expected["calls"]
    ]


def _continue_conversation(step: Step, next_request: Request) -> Request:
    """Append the response and the new turns of the next request, as the client did."""
    codec = PROTOCOLS[step.protocol]
    if step.wire:
        decoder = codec.stream_decoder(ResponseContext())
        response = fold([*decoder.feed(step.wire), *decoder.close()])
    else:
        response = codec.decode_response(json.dumps(step.response).encode(), ResponseContext())
    assistant_turns = [number for number, message in enumerate(next_request.messages) if message.role == "assistant"]
    new = next_request.messages[assistant_turns[-1] + 1 :] if assistant_turns else ()
    request = _decode_request(step)
    later = [replace(message, at=None) for message in (*response.candidates[0].messages, *new)]
    return replace(request, messages=(*request.messages, *later))


def _decode_request(step: Step) -> Request:
    return PROTOCOLS[step.protocol].decode_request(json.dumps(step.request).encode(), Route(**_route_options(step)))


def _route_options(step: Step) -> dict[str, Any]:
    return {"model": "gemini-3-pro"} if step.protocol == "gemini" else {}
