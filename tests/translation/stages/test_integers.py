"""Integral floats become integers where the schema says so, at any cut, and nothing else changes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.support.slices import CUT_POINTS, slice_at
from toolwire.translation.stages.integers import IntegerArguments, with_integers

INTEGER: Any = {"type": "integer"}
RECURSIVE: Any = {"type": "object", "properties": {"n": INTEGER, "next": {"$ref": "#"}}}


def raw(schema: Any) -> Raw:
    return Raw(json.dumps(schema).encode())


@pytest.mark.parametrize(
    ("schema", "before", "after"),
    [
        ({"properties": {"a": INTEGER}}, '{ "a" : 1.0 }', '{ "a" : 1 }'),
        ({"properties": {'q"k': INTEGER}}, '{"q\\"k":1.0}', '{"q\\"k":1}'),
        ({"properties": {"a": INTEGER}}, '{"b":1.0,"a":1.5}', '{"b":1.0,"a":1.5}'),
        ({"properties": {"a": INTEGER}}, '{"a":1.0e3}', '{"a":1.0e3}'),
        ({"properties": {"a": {"items": INTEGER}}}, '{"a":[1.0,2.0,"3.0"]}', '{"a":[1,2,"3.0"]}'),
        ({"properties": {"a": {"oneOf": [INTEGER, {"type": "null"}]}}}, '{"a":1.0}', '{"a":1}'),
        ({"properties": {"a": {"type": ["integer", "number"]}}}, '{"a":1.0}', '{"a":1.0}'),
        (RECURSIVE, '{"next":{"next":{"n":1.0}}}', '{"next":{"next":{"n":1}}}'),
        ({"$ref": "#"}, '{"a":1.0}', '{"a":1.0}'),
        (True, '{"a":1.0}', '{"a":1.0}'),
        ({"properties": {"a": INTEGER}}, '}]"a":1.0,', '}]"a":1.0,'),
        (INTEGER, "1.0", "1.0"),  # arguments other than objects stay unchanged
    ],
)
def test_integral_floats_become_integers(schema: Any, before: str, after: str) -> None:
    assert with_integers(before, raw(schema)) == after


_texts = st.dictionaries(
    st.sampled_from(["n", "x", "k\\\"'é"]), st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.text())
)


@given(arguments=_texts, points=CUT_POINTS)
def test_integers_are_rewritten_at_any_cut(arguments: dict[str, Any], points: list[int]) -> None:
    text = json.dumps(arguments, ensure_ascii=False)
    reader = IntegerArguments(raw(RECURSIVE))
    pieces = "".join(reader.feed(piece) for piece in slice_at(text, points)) + reader.close()
    assert pieces == with_integers(text, raw(RECURSIVE))
    assert json.loads(pieces) == arguments


def test_integer_search_depth_is_bounded() -> None:
    deep = '{"next":' * 5_000 + '{"n":1.0}' + "}" * 5_000
    assert with_integers(deep, raw(RECURSIVE)) == deep
