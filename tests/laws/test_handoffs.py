"""Conversations that moved from one provider to another, recorded or written down, translate end to end.

A step is what was sent and what was answered, in its own protocol; the next one went to another provider, by a client
that had turned the conversation into that one's protocol itself. toolwire does the same: what that client carried over
arrives, the next provider takes it, and its answer comes back.
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
    protocol: str
    request: dict[str, Any]
    response: dict[str, Any] | None
    wire: bytes  # the answer as a stream, where it was one


def read(path: Path) -> list[Step]:
    return [Step(step["protocol"], step["request"], step["response"], b"") for step in json.loads(path.read_bytes())]


def handoffs() -> Iterator[Any]:
    """Each step with the one that it was handed to."""
    for path in sorted((FIXTURES / "handoffs").glob("*.json")):
        steps = read(path)
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
            yield pytest.param(_step(parent), _step(exchange), id=exchange.id)


def _step(exchange: corpus.Recording) -> Step:
    return Step(exchange.protocol, exchange.request, exchange.response, exchange.wire)


HANDOFFS = list(handoffs())


def test_the_corpus_has_such_conversations() -> None:
    """Fourteen at its last count, besides the three of our own."""
    assert len(HANDOFFS) >= (17 if corpus.is_present() else 3)


@pytest.mark.parametrize(("before", "after"), HANDOFFS)
def test_what_the_client_carried_over_arrives(before: Step, after: Step) -> None:
    codec = PROTOCOLS[after.protocol]
    recorded = _decoded(after)
    held = _continued(before, recorded)
    moved = codec.encode_request(held, Target(model=recorded.model))
    body = json.loads(moved.to_bytes())
    assert [f for f in tw.check(body, after.protocol, model=recorded.model) if f.level == "error"] == []
    assert validation.accept_request(after.protocol, body) is None
    sent = codec.decode_request(moved.to_bytes(), moved.route)
    carried = 0
    for feature in (conversation_texts, function_calls, function_results):
        known = feature(held)
        common = [exchange for exchange in feature(recorded) if exchange in known]
        carried += len(common)
        assert [one for one in common if one not in feature(sent)] == [], feature.__name__
    assert carried > 1


@pytest.mark.parametrize(("before", "after"), HANDOFFS)
def test_the_answer_comes_back(before: Step, after: Step) -> None:
    """In the protocol of the client that held the conversation so far."""
    if after.wire:
        stream = tw.translate_stream([after.wire], after.protocol, before.protocol)
        heard = validation.fold_stream(before.protocol, b"".join(stream))
        folded = validation.fold_stream(after.protocol, after.wire, tolerant=True)
    else:
        assert after.response is not None
        translated = tw.translate(after.response, after.protocol, before.protocol, "response")
        assert validation.accept_response(before.protocol, translated.value) is None
        heard, folded = (
            validation.summary(before.protocol, translated.value),
            validation.summary(after.protocol, after.response),
        )
    assert heard["text"] == folded["text"]
    assert [(call["name"], call["arguments"]) for call in heard["calls"]] == [
        (call["name"], call["arguments"]) for call in folded["calls"]
    ]


def _continued(step: Step, following: Request) -> Request:
    """The conversation as its client held it: what was asked, what was answered, and what came of that."""
    codec = PROTOCOLS[step.protocol]
    if step.wire:
        decoder = codec.stream_decoder(ResponseContext())
        response = fold([*decoder.feed(step.wire), *decoder.close()])
    else:
        response = codec.decode_response(json.dumps(step.response).encode(), ResponseContext())
    spoken = [number for number, message in enumerate(following.messages) if message.role == "assistant"]
    new = following.messages[spoken[-1] + 1 :] if spoken else ()
    request = _decoded(step)
    later = [replace(message, at=None) for message in (*response.candidates[0].messages, *new)]
    return replace(request, messages=(*request.messages, *later))


def _decoded(step: Step) -> Request:
    return PROTOCOLS[step.protocol].decode_request(json.dumps(step.request).encode(), Route(**_addressed(step)))


def _addressed(step: Step) -> dict[str, Any]:
    return {"model": "gemini-3-pro"} if step.protocol == "gemini" else {}
