"""A recording repeats earlier ones if it has nothing that is new in its protocol."""

from typing import Any

import pytest

from tests.support.samples.corpus import Recording
from tests.support.samples.repeats import find_repeats

REQUEST: dict[str, Any] = {"messages": [{"role": "user", "content": "one"}], "stream": True}
RESPONSE = {"content": [{"type": "text", "text": "two"}]}
SSE = 'data: {"delta": {"text": "three"}}\n\n'


def recording(id: str, **changed: Any) -> Recording:
    fields: dict[str, Any] = dict.fromkeys(Recording.__dataclass_fields__)
    same = {"protocol": "p", "request": REQUEST, "response": RESPONSE, "sse": SSE}
    return Recording(**fields | same | {"id": id} | changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"request": REQUEST | {"messages": [{"role": "user", "content": "other text"}]}},
        {"response": {"content": [{"type": "text", "text": "other text"}]}},
        {"sse": SSE.replace("three", "other text") * 3},
    ],
)
def test_recording_with_other_texts_is_a_repeat(changed: dict[str, Any]) -> None:
    assert find_repeats([recording("first"), recording("second", **changed)]) == {"second"}


@pytest.mark.parametrize(
    "changed",
    [
        {"protocol": "other"},
        {"request": REQUEST | {"seed": 1}},
        {"request": REQUEST | {"stream": None}},
        {"request": REQUEST | {"messages": [{"role": "developer", "content": "one"}]}},
        {"request": REQUEST | {"messages": REQUEST["messages"] * 2}},
        {"request": REQUEST | {"messages": []}},
        {"response": {"content": [{"type": "refusal", "text": "two"}]}},
        {"response": {"content": [{"type": "text", "text": ""}]}},
        {"sse": SSE.replace("text", "thinking")},
        {"sse": "data: {\n\n"},
    ],
)
def test_recording_with_anything_new_is_not_a_repeat(changed: dict[str, Any]) -> None:
    assert find_repeats([recording("first"), recording("second", **changed)]) == frozenset()
