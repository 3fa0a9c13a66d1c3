"""Lone surrogates in a request: replaced and reported, instead of refusing the conversation."""

import json

import pytest

import toolwire as tw
from toolwire.codec.wire.reader import validate_json
from toolwire.codec.wire.surrogates import LIMIT_REPORTED, decode_repaired
from toolwire.protocols import PROTOCOLS

QUESTION = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "cut here: MARK"}]}


@pytest.mark.parametrize(
    ("escape", "text"),
    [
        (r"\ud83d", "\ufffd"),
        (r"\uDE00", "\ufffd"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"\ud83d\\ude00", "\ufffd\\ude00"),
        (r"\\ud83d \ud83dx", "\\ud83d \ufffdx"),
    ],
)
def test_lone_surrogates_are_replaced(escape: str, text: str) -> None:
    raw = json.dumps(QUESTION).replace("MARK", escape).encode()
    translation = tw.translate(raw, "anthropic", "openai-chat")
    assert translation.value["messages"][0]["content"] == f"cut here: {text}"
    assert [(loss.kind, loss.path) for loss in translation.losses if "surrogate" in loss.reason] == [
        ("approximated", "/messages/0/content")
    ]


@pytest.mark.parametrize("target", list(PROTOCOLS))
@pytest.mark.parametrize("source", list(PROTOCOLS))
def test_every_protocol_accepts_lone_surrogates(source: str, target: str) -> None:
    body = tw.translate(QUESTION, "anthropic", source).to_bytes().replace(b"MARK", rb"\ud83d")
    translation = tw.translate(body, source, target)
    assert "cut here: \ufffd" in translation.to_bytes().decode()
    assert "half of a character" in " ".join(map(str, translation.losses))


def test_python_text_with_a_lone_surrogate_is_accepted() -> None:
    body = json.loads(json.dumps(QUESTION).replace("MARK", r"\ud83d"))
    content = tw.translate(body, "anthropic", "openai-chat").value["messages"][0]["content"]
    assert content == "cut here: \ufffd"


def test_names_with_lone_surrogates_are_reported_at_their_object() -> None:
    _, body, losses = decode_repaired(json_object, rb'{"a":[{"\ud83d":1}],"b":"\udc00"}', "response")
    assert body == rb'{"a":[{"\ufffd":1}],"b":"\ufffd"}'
    assert [loss.path for loss in losses] == ["/a/0", "/b"]


def test_number_of_reported_strings_is_bounded() -> None:
    body = b"[%b]" % b",".join([rb'"\ud83d"'] * (2 * LIMIT_REPORTED))
    _, repaired, losses = decode_repaired(json_object, body, "request")
    assert (len(losses), rb"\ud83d" in repaired) == (LIMIT_REPORTED, False)


@pytest.mark.parametrize("body", [b'{"a":', rb'{"a":"\ud83d"', rb'"\ud8"', b"[" * 100_000])
def test_invalid_json_is_refused_as_before(body: bytes) -> None:
    with pytest.raises(tw.DecodeError):
        decode_repaired(json_object, body, "request")


def json_object(body: bytes) -> object:
    """Decode JSON as providers do, without lone surrogates."""
    return validate_json(body, "test")
