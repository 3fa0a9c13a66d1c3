"""Bodies as parsed JSON: they are encoded and decoded as by `json`, whichever library does it."""

import datetime as dt
import json
from collections import OrderedDict
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolwire as tw
from toolwire.translation.body import body_bytes


class Number(IntEnum):
    ONE = 1


class Word(str):
    __slots__ = ()


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
KEYS = st.text() | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner) | st.tuples(inner, inner), max_leaves=12
)


def json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


@given(st.dictionaries(st.text(), VALUES))
def test_parsed_body_is_encoded_as_by_json(body: dict[str, Any]) -> None:
    assert body_bytes(body, "anthropic") == json_bytes(body)


@pytest.mark.parametrize(
    "value",
    [
        1e16,
        -1e22,
        1e-7,
        1.5e300,
        -0.0,
        10**30,
        Number.ONE,
        Word("word"),
        OrderedDict(a=1),
        {Word("key"): 1},
        {1e300: 1},
    ],
    ids=repr,
)
def test_unusual_value_is_encoded_as_by_json(value: Any) -> None:
    assert body_bytes({"list": [value]}, "anthropic") == json_bytes({"list": [value]})


@pytest.mark.parametrize(
    "value",
    [
        *(b"bytes", bytearray(b"x"), {1}, frozenset({1}), dt.date(2026, 1, 1), Decimal(1), object(), 1j),
        *(
            float("nan"),
            float("inf"),
            -float("inf"),
            {float("nan"): 1},
            {(1, 2): 3},
            {b"key": 1},
        ),
        10**5000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_value_that_json_cannot_express_is_rejected(value: Any) -> None:
    for body in ({"list": [{"deep": value}]}, {"direct": value}):
        with pytest.raises(tw.DecodeError, match="JSON data"):
            body_bytes(body, "anthropic")


def test_cycle_is_rejected() -> None:
    body: dict[str, Any] = {}
    body["self"] = [body]
    with pytest.raises(tw.DecodeError, match="JSON data"):
        body_bytes(body, "anthropic")


@pytest.mark.parametrize("number", ["1e400", "-0", "1E5", "0.1", "12345678901234567890123", r'"\u00e9"'])
def test_translated_value_is_parsed_as_by_json(number: str) -> None:
    body = b'{"model":"m","messages":[],"temperature_of_tomorrow":[%b]}' % number.encode()
    translation = tw.translate(body, "openai-chat", "openai-chat")
    assert translation.value["temperature_of_tomorrow"] == json.loads(f"[{number}]")
    assert translation.value == json.loads(translation.to_bytes())
