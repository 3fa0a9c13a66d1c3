"""Carries: only what was sealed here, for this tenant, upstream and place, opens; all else is none, never an error."""

from base64 import b64decode, b64encode
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from toolwire.canonical.content import Reasoning, ReasoningText, Signature, Text
from toolwire.codec.envelope import EnvelopeField, EnvelopeKey, EnvelopePayload, is_envelope, key_id

KEY = b"k" * 32
CARRIER = EnvelopeKey([KEY], "tenant")
THOUGHT = Reasoning(
    content=(ReasoningText(kind="summary", text="thought"),),
    signature=Signature(issuer="openai-responses", data="gAAA", kind="encrypted"),
    id="rs_1",
    extras={"openai-responses": {"status": Raw(b'"done"')}},
    wire_form=("openai-responses:null:x",),
    at="/output/0",
)
CARRIED = EnvelopePayload(
    parts=(THOUGHT, Text(text="")), positions=((0, 3), (1, 0)), signature=THOUGHT.signature, call_name="look"
)
SEALED = CARRIER.seal(CARRIED)

TEXTS = st.text(max_size=6)
BINDINGS = st.tuples(TEXTS, TEXTS, TEXTS, TEXTS)
"""Tenant, realm, model and prefix."""
SEALS = st.builds(Signature, issuer=TEXTS, data=TEXTS, kind=st.sampled_from(["signature", "encrypted"]))
THOUGHTS = st.builds(
    Reasoning,
    content=st.lists(st.builds(ReasoningText, kind=st.sampled_from(["full", "summary"]), text=TEXTS)).map(tuple),
    signature=st.none() | SEALS,
    id=st.none() | TEXTS,
)
CARRIES = st.builds(
    EnvelopePayload,
    parts=st.lists(THOUGHTS, max_size=3).map(tuple),
    signature=st.none() | SEALS,
    call_name=st.none() | TEXTS,
)


def carrier(tenant: str, realm: str, model: str) -> EnvelopeKey:
    return EnvelopeKey([KEY], tenant, realm=realm, model=model)


# ---- sealing and opening


@settings(deadline=None)
@given(CARRIES, BINDINGS)
def test_what_was_sealed_opens(carried: EnvelopePayload, binding: Any) -> None:
    *bound, prefix = binding
    sealed = carrier(*bound).seal(carried, prefix)
    assert is_envelope(sealed)
    assert carrier(*bound).open(sealed, prefix) == carried


def test_what_is_carried_keeps_all_it_had() -> None:
    assert CARRIER.open(SEALED) == CARRIED
    assert SEALED.startswith(f"tw1.{key_id(KEY)}.")
    assert not set(SEALED) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


@settings(deadline=None)
@given(BINDINGS, BINDINGS)
def test_it_opens_nowhere_else(here: Any, there: Any) -> None:
    assume(here != there)
    sealed = carrier(*here[:3]).seal(CARRIED, here[3])
    assert carrier(*there[:3]).open(sealed, there[3]) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "", "", ""), ("a", "b", "", "")),
        (("", "ab", "", ""), ("", "a", "b", "")),
        (("", "", "ab", ""), ("", "", "a", "b")),
        (("", "a", "", ""), ("", "", "a", "")),
        (("", "", "", "a"), ("a", "", "", "")),
    ],
)
def test_what_is_bound_can_not_be_shifted(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    sealed = carrier(*one[:3]).seal(CARRIED, one[3])
    assert carrier(*other[:3]).open(sealed, other[3]) is None


def test_no_character_can_be_changed_taken_or_added() -> None:
    for place in range(len(SEALED)):
        for spoilt in {
            SEALED[:place] + SEALED[place + 1 :],
            *(SEALED[:place] + character + SEALED[place + 1 :] for character in "Aa0-_.=! é"),
            *(SEALED[:place] + character + SEALED[place:] for character in "A.= \n!"),
        } - {SEALED}:
            assert CARRIER.open(spoilt) is None, spoilt
    for more in ("A", "=", ".", "\n", " "):
        assert CARRIER.open(SEALED + more) is None


@settings(deadline=None)
@given(
    st.text()
    | st.text().map("tw1.{}".format)
    | st.lists(st.text("Aa1_-=é", max_size=8), max_size=5).map(lambda texts: ".".join(["tw1", key_id(KEY), *texts]))
)
def test_any_text_is_a_carry_or_not_and_never_an_error(text: str) -> None:
    assert CARRIER.open(text) is None


def test_a_forged_payload_is_not_read() -> None:
    name, mac = SEALED.split(".")[1:3]
    forged = EnvelopeKey([b"other" * 8], "tenant").seal(CARRIED)
    assert CARRIER.open(forged) is None
    assert CARRIER.open(f"tw1.{name}.{mac}.{forged.split('.')[3]}x") is None
    assert CARRIER.open(forged.replace(key_id(b"other" * 8), name)) is None


def test_keys_are_rotated() -> None:
    old, new = b"o" * 32, b"n" * 32
    before, between, after = EnvelopeKey([old]), EnvelopeKey([new, old]), EnvelopeKey([new])
    assert between.open(before.seal(CARRIED)) == CARRIED
    assert before.open(between.seal(CARRIED)) is None
    assert after.open(between.seal(CARRIED)) == CARRIED
    assert after.open(before.seal(CARRIED)) is None


def test_a_carrier_needs_a_key() -> None:
    with pytest.raises(ValueError, match="at least one key"):
        EnvelopeKey([])


def test_a_key_id_tells_nothing_of_the_key() -> None:
    assert key_id(KEY) != key_id(KEY + b"\0")
    assert KEY.hex()[:12] != key_id(KEY)


# ---- where only base64 is legal


@given(st.binary(max_size=40))
def test_a_carry_in_base64_opens_in_either_alphabet_padded_or_not(extra: bytes) -> None:
    carried = EnvelopePayload(signature=Signature(issuer="google", data=b64encode(extra).decode(), kind="signature"))
    data = EnvelopeField(issuer="google", kind="signature", base64=True).encode(CARRIER.seal(carried)).data
    assert b64encode(b64decode(data, validate=True)).decode() == data
    for spelling in (data, data.rstrip("="), data.translate(str.maketrans("+/", "-_"))):
        assert is_envelope(spelling)
        assert CARRIER.open(spelling) == carried


@pytest.mark.parametrize("text", ["dHcxL", "dHcxLg==", "dHcxLmE", "dHcxLé", "dHcxL$$", "dHcxM2E="])
def test_what_only_looks_like_one_does_not_open(text: str) -> None:
    assert CARRIER.open(text) is None
