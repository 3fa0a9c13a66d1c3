"""Comparison of recorded exchanges, field by field."""

import json
from typing import Any

import msgspec
import pytest

from toolwire.canonical.errors import Loss
from toolwire.journal.differences import compare_records, find_differences
from toolwire.journal.records import Bodies, Record, recorded_response_body


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, ["changed /a: 1 -> 2"]),
        ({"a": 1}, {"a": 1.0}, ["changed /a: 1 -> 1.0"]),
        ({"a": 1}, {"a": True}, ["changed /a: 1 -> true"]),
        ({"a": None}, {}, ["removed /a: null"]),
        ({}, {"a/b": [1]}, ["added /a~1b: [1]"]),
        ({"a": [1, 2, 3]}, {"a": [1, 4]}, ["changed /a/1: 2 -> 4", "removed /a/2: 3"]),
        ({"a": []}, {"a": {}}, ["changed /a: [] -> {}"]),
        ("x", "y", ['changed: "x" -> "y"']),
    ],
)
def test_every_differing_field_is_reported(before: Any, after: Any, expected: list[str]) -> None:
    assert [str(one) for one in find_differences(before, after)] == expected


def test_volatile_fields_are_compared_only_on_request() -> None:
    before, after = (
        {"id": "a", "content": [{"id": "x", "text": "t"}]},
        {"id": "b", "content": [{"id": "y", "text": "u"}]},
    )
    assert [one.path for one in find_differences(before, after)] == ["/content/0/text"]
    assert [one.path for one in find_differences(before, after, include_volatile=True)] == [
        "/id",
        "/content/0/id",
        "/content/0/text",
    ]


def test_long_value_is_truncated() -> None:
    (one,) = find_differences({"a": "x" * 1000}, {"a": ""})
    assert len(str(one)) < 200
    assert "(1002 characters)" in str(one)


def record(**more: Any) -> Record:
    comparison = Record(id="ex", at=0.0, toolwire="0", client="openai-chat", path="/", status=200)
    return msgspec.structs.replace(comparison, **more)


STREAM = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
    b'{"role":"assistant","content":"Hi"},"finish_reason":null}]}\n\n'
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},'
    b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
REQUEST = b'{"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true}'


def test_stream_is_compared_as_a_buffered_response() -> None:
    streamed = record(streamed=True, bodies=Bodies(request=REQUEST, response=STREAM))
    answer = json.loads(recorded_response_body(streamed))
    assert answer["choices"][0]["message"]["content"] == "Hi"
    other = record(streamed=True, bodies=Bodies(request=REQUEST, response=STREAM.replace(b"Hi", b"Ho")))
    comparison = compare_records(streamed, other)
    assert [str(one) for one in comparison["response"]] == ['changed /choices/0/message/content: "Hi" -> "Ho"']
    assert list(comparison) == ["response"]


def test_invalid_stream_is_compared_as_text() -> None:
    assert recorded_response_body(record(streamed=True, bodies=Bodies(request=b"{", response=b"what?"))) == b"what?"


def test_requests_are_compared_only_for_the_same_protocol() -> None:
    before = record(protocol="gemini", bodies=Bodies(translated=b'{"a":1}', response=b"{}"))
    same = record(protocol="gemini", bodies=Bodies(translated=b'{"a":2}', response=b"{}"))
    other = record(protocol="ollama", status=500, bodies=Bodies(translated=b'{"a":2}', response=b"{}"))
    assert [str(one) for one in compare_records(before, same)["request"]] == ["changed /a: 1 -> 2"]
    assert list(compare_records(before, other)) == ["status"]


def test_losses_are_compared_by_path() -> None:
    common_loss, gone, come = (
        Loss(severity="warning", direction="request", kind="dropped", path=f"/{name}", reason="no place")
        for name in ("kept", "gone", "come")
    )
    comparison = compare_records(record(losses=[common_loss, gone]), record(losses=[common_loss, come]))
    assert [str(one) for one in comparison["losses"]] == [
        'removed /gone: "warning dropped: no place"',
        'added /come: "warning dropped: no place"',
    ]
