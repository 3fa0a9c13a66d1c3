"""Ids: legal ones pass, others are escaped in a way that can be undone, and no two become one."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolwire as tw
from tests.support.bodies.minimal import chat_call, chat_result, chat_turn
from toolwire.codec.encoding.ids import DERIVED_PREFIX, derive_call_id, is_derived_id, legal_id, original_id
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
def test_a_legal_id_is_unchanged(id: str) -> None:
    assert legal_id(id, STRICT, 64) == id


@settings(deadline=None)
@given(IDS, PATTERNS, st.integers(SHORTEST_LIMIT, 64))
def test_any_id_becomes_a_legal_one(id: str, pattern: re.Pattern[str], limit: int) -> None:
    legal = legal_id(id, pattern, limit)
    assert pattern.fullmatch(legal)
    assert len(legal) <= limit
    assert legal_id(legal, pattern, limit) == legal


@settings(deadline=None)
@given(IDS)
def test_an_escaped_id_is_turned_back(id: str) -> None:
    escaped = legal_id(id, STRICT, 1_000)
    assert (original_id(escaped) or escaped) == id
    # A protocol that takes the original gets it, though the history came through one that did not.
    assert legal_id(escaped, ANY, 1_000) == id


@settings(deadline=None)
@given(st.lists(IDS, unique=True, max_size=12), st.integers(SHORTEST_LIMIT, 64))
def test_no_two_ids_become_one(ids: list[str], limit: int) -> None:
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
        "twx__ffffffff_",  # beyond the last character
        "twx__110000_",
        "twx__d800_",  # half a character, which no JSON text can hold
        "twx__41_",  # A is never escaped
        "twx__003a_",  # not as it is written
        "twx_a_b",
    ],
)
def test_what_was_never_escaped_stays(id: str) -> None:
    assert original_id(id) is None
    for pattern in (STRICT, ANY):
        assert legal_id(id, pattern, 64) == id


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_text_after_the_mark_can_be_sent(rest: str) -> None:
    assert json.dumps(legal_id("twx_" + rest, ANY, 64), ensure_ascii=False).encode()


def test_a_long_id_becomes_a_digest_of_itself() -> None:
    one, other = legal_id("a" * 65, STRICT, 64), legal_id("a" * 66, STRICT, 64)
    assert one != other
    assert one == legal_id("a" * 65, STRICT, 64)
    assert original_id(one) is None


@settings(deadline=None)
@given(st.text(), st.text(), st.integers(0, 99), st.integers(0, 99))
def test_a_made_id_is_stable_legal_and_known_as_made(name: str, arguments: str, turn: int, part: int) -> None:
    made = derive_call_id(name, arguments, turn, part)
    assert made == derive_call_id(name, arguments, turn, part)
    assert is_derived_id(made)
    assert legal_id(made, STRICT, 40) == made
    others = [derive_call_id(name + "x", arguments, turn, part), derive_call_id(name, arguments + "x", turn, part)]
    others += [derive_call_id(name, arguments, turn + 1, part), derive_call_id(name, arguments, turn, part + 1)]
    assert made not in others


@pytest.mark.parametrize(
    "id", ["call_1", "toolu_01", "", "x" + DERIVED_PREFIX, DERIVED_PREFIX, DERIVED_PREFIX + "0" * 25]
)
def test_other_ids_are_not_made(id: str) -> None:
    assert not is_derived_id(id)


@pytest.mark.parametrize("client", [name for name in PROTOCOLS if name not in ("ollama", "gemini-interactions")])
def test_answers_without_an_id_get_one_of_their_own_conversation(client: str) -> None:
    """Claude Code takes answers of the same id for pieces of one."""
    answer = {"model": "m", "message": {"role": "assistant", "content": "Hm."}, "done": True, "done_reason": "stop"}
    field = "responseId" if client == "gemini" else "id"
    ids = []
    for text in ("Hello.", "Go on.", "Go on."):
        asked = tw.translate({"model": "m", "messages": [{"role": "user", "content": text}]}, "openai-chat", client)
        ids.append(tw.translate(answer, "ollama", client, "response", request=asked.value).value[field])
    first, second, again = ids
    assert second == again
    assert first != second


@pytest.mark.parametrize("target", ["gemini", "ollama"])
def test_f_11_an_issued_id_that_looks_made_is_kept(target: str) -> None:
    """One in 3,844 ids of OpenAI begins with `call_tw`."""
    id = "call_twBJEEhJmhYlK4noeBJeztyd"
    body = tw.translate(chat_turn([chat_call(id)], [chat_result(id)]), "openai-chat", target, model="m").to_bytes()
    assert body.count(id.encode()) == 2
