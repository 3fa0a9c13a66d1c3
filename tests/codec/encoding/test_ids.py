"""Ids: legal ones pass, others are escaped reversibly, and distinct ids stay distinct."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolwire as tw
from tests.support.bodies.minimal import chat_call, chat_result, chat_turn
from toolwire.codec.encoding.turns import DERIVED_PREFIX, derive_call_id, is_derived_id, legal_id, original_id
from toolwire.protocols import PROTOCOLS

STRICT = re.compile(r"[a-zA-Z0-9_-]+")
PRINTABLE = re.compile(r"[\x20-\x7e]+")
ANY = re.compile(r".+", re.DOTALL)
PATTERNS = st.sampled_from([STRICT, PRINTABLE, ANY])
SHORTEST_LIMIT = 28

IDS = st.text(min_size=1, max_size=40).filter(lambda id: not id.startswith(("twx_", "twh_")))
LEGAL = st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True).filter(lambda id: not id.startswith(("twx_", "twh_")))


@settings(deadline=None)
@given(LEGAL)
def test_legal_id_is_unchanged(id: str) -> None:
    assert legal_id(id, STRICT, 64) == id


@settings(deadline=None)
@given(IDS, PATTERNS, st.integers(SHORTEST_LIMIT, 64))
def test_any_id_becomes_legal(id: str, pattern: re.Pattern[str], limit: int) -> None:
    legal = legal_id(id, pattern, limit)
    assert pattern.fullmatch(legal)
    assert len(legal) <= limit
    assert legal_id(legal, pattern, limit) == legal


@settings(deadline=None)
@given(IDS)
def test_escaped_id_is_restored(id: str) -> None:
    escaped = legal_id(id, STRICT, 1_000)
    assert (original_id(escaped) or escaped) == id
    # A protocol that accepts the original gets it, even if the history passed through one that did not.
    assert legal_id(escaped, ANY, 1_000) == id


@settings(deadline=None)
@given(st.lists(IDS, unique=True, max_size=12), st.integers(SHORTEST_LIMIT, 64))
def test_distinct_ids_stay_distinct(ids: list[str], limit: int) -> None:
    assert len({legal_id(id, STRICT, limit) for id in ids}) == len(ids)


@pytest.mark.parametrize(
    ("id", "escaped"),
    [
        ("call:1", "twx_call_3a_1"),
        ("::", "twx__3a__3a_"),
        (":3a:", "twx__3a_3a_3a_"),
        ("a_b:", "twx_a_5f_b_3a_"),
        ("\U0001f600", "twx__1f600_"),
        ("", "twx_"),
    ],
)
def test_escapes(id: str, escaped: str) -> None:
    assert legal_id(id, STRICT, 64) == escaped
    assert original_id(escaped) == id


@pytest.mark.parametrize(
    "id",
    [
        "call_1",
        "twh_0123",
        "twx__ffffffff_",  # beyond the last code point
        "twx__110000_",
        "twx__d800_",  # a lone surrogate, which JSON text cannot hold
        "twx__41_",  # A is never escaped
        "twx__003a_",  # not the canonical spelling
        "twx_a_b",
    ],
)
def test_ids_that_were_not_escaped_stay(id: str) -> None:
    assert original_id(id) is None
    for pattern in (STRICT, ANY):
        assert legal_id(id, pattern, 64) == id


@settings(deadline=None)
@given(st.text(max_size=30))
def test_restored_id_is_encodable(rest: str) -> None:
    assert json.dumps(legal_id("twx_" + rest, ANY, 64), ensure_ascii=False).encode()


def test_long_id_becomes_a_digest() -> None:
    first, second = legal_id("a" * 65, STRICT, 64), legal_id("a" * 66, STRICT, 64)
    assert first != second
    assert first == legal_id("a" * 65, STRICT, 64)
    assert original_id(first) is None


@settings(deadline=None)
@given(st.text(), st.text(), st.integers(0, 99), st.integers(0, 99))
def test_derived_id_is_stable_legal_and_recognizable(name: str, arguments: str, turn: int, part: int) -> None:
    derived = derive_call_id(name, arguments, turn, part)
    assert derived == derive_call_id(name, arguments, turn, part)
    assert is_derived_id(derived)
    assert legal_id(derived, STRICT, 40) == derived
    others = [derive_call_id(name + "x", arguments, turn, part), derive_call_id(name, arguments + "x", turn, part)]
    others += [derive_call_id(name, arguments, turn + 1, part), derive_call_id(name, arguments, turn, part + 1)]
    assert derived not in others


@pytest.mark.parametrize(
    "id", ["call_1", "toolu_01", "", "x" + DERIVED_PREFIX, DERIVED_PREFIX, DERIVED_PREFIX + "0" * 25]
)
def test_other_ids_are_not_derived(id: str) -> None:
    assert not is_derived_id(id)


@pytest.mark.parametrize("client", [name for name in PROTOCOLS if name not in ("ollama", "gemini-interactions")])
def test_response_id_is_derived_from_the_conversation(client: str) -> None:
    """Claude Code treats responses with the same id as pieces of one."""
    answer = {"model": "m", "message": {"role": "assistant", "content": "Hm."}, "done": True, "done_reason": "stop"}
    field = "responseId" if client == "gemini" else "id"
    ids = []
    for text in ("Hello.", "Go on.", "Go on."):
        request = tw.translate({"model": "m", "messages": [{"role": "user", "content": text}]}, "openai-chat", client)
        ids.append(tw.translate(answer, "ollama", client, "response", request=request.value).value[field])
    first, second, again = ids
    assert second == again
    assert first != second


@pytest.mark.parametrize("target", ["gemini", "ollama"])
def test_issued_id_that_resembles_a_derived_one_is_kept(target: str) -> None:
    """One in 3,844 ids of OpenAI begins with `call_tw`."""
    id = "call_twBJEEhJmhYlK4noeBJeztyd"
    body = tw.translate(chat_turn([chat_call(id)], [chat_result(id)]), "openai-chat", target, model="m").to_bytes()
    assert body.count(id.encode()) == 2
