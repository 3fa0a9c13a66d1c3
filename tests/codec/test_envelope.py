"""Envelopes open only for the tenant and conversation that they were sealed for, and name their issuer."""

from base64 import b64decode, b64encode
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Reasoning, ReasoningText, Signature, Text
from toolwire.codec.envelope import EnvelopeField, EnvelopeKey, EnvelopePayload, is_envelope, key_id

KEY = b"k" * 32
ENVELOPE_KEY = EnvelopeKey([KEY], "tenant")
REASONING = Reasoning(
    content=(ReasoningText(kind="summary", text="thought"),),
    signature=Signature(issuer="openai-responses", data="gAAA", kind="encrypted"),
    id="rs_1",
    extras={"openai-responses": {"status": Raw(b'"done"')}},
    wire_form=("openai-responses:null:x",),
    at="/output/0",
)
PAYLOAD = EnvelopePayload(
    parts=(REASONING, Text(text="")), positions=((0, 3), (1, 0)), signature=REASONING.signature, call_name="look"
)
ENVELOPE = ENVELOPE_KEY.seal(PAYLOAD)
OPENED = replace(PAYLOAD, issuer=ENVELOPE_KEY.issuer)

TEXTS = st.text(max_size=6)
BINDINGS = st.tuples(TEXTS, TEXTS, TEXTS, TEXTS)
"""Tenant, realm, model and history digest."""
SIGNATURES = st.builds(Signature, issuer=TEXTS, data=TEXTS, kind=st.sampled_from(["signature", "encrypted"]))
REASONINGS = st.builds(
    Reasoning,
    content=st.lists(st.builds(ReasoningText, kind=st.sampled_from(["full", "summary"]), text=TEXTS)).map(tuple),
    signature=st.none() | SIGNATURES,
    id=st.none() | TEXTS,
)
PAYLOADS = st.builds(
    EnvelopePayload,
    parts=st.lists(REASONINGS, max_size=3).map(tuple),
    signature=st.none() | SIGNATURES,
    call_name=st.none() | TEXTS,
)


def envelope_key(tenant: str, realm: str, model: str) -> EnvelopeKey:
    return EnvelopeKey([KEY], tenant, realm=realm, model=model)


# ---- sealing and opening


@settings(deadline=None)
@given(PAYLOADS, BINDINGS)
def test_sealed_envelope_opens(payload: EnvelopePayload, binding: Any) -> None:
    *key_binding, digest = binding
    envelope = envelope_key(*key_binding).seal(payload, digest)
    assert is_envelope(envelope)
    opened = envelope_key(*key_binding).open(envelope, digest)
    assert opened == replace(payload, issuer=envelope_key(*key_binding).issuer)


def test_payload_round_trips_completely() -> None:
    assert ENVELOPE_KEY.open(ENVELOPE) == OPENED
    assert ENVELOPE.startswith(f"tw1.{key_id(KEY)}.")
    assert not set(ENVELOPE) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


@settings(deadline=None)
@given(BINDINGS, BINDINGS)
def test_envelope_opens_only_with_its_binding(binding: Any, other_binding: Any) -> None:
    assume((binding[0], binding[3]) != (other_binding[0], other_binding[3]))
    envelope = envelope_key(*binding[:3]).seal(PAYLOAD, binding[3])
    assert envelope_key(*other_binding[:3]).open(envelope, other_binding[3]) is None


@settings(deadline=None)
@given(BINDINGS, BINDINGS)
def test_opened_envelope_names_its_issuer(binding: Any, other_binding: Any) -> None:
    assume(binding[1:3] != other_binding[1:3])
    tenant, *issuer, digest = binding
    opened = envelope_key(tenant, *other_binding[1:3]).open(envelope_key(tenant, *issuer).seal(PAYLOAD, digest), digest)
    assert opened is not None
    assert opened.issuer == envelope_key("", *issuer).issuer != envelope_key("", *other_binding[1:3]).issuer


@pytest.mark.parametrize(
    ("binding", "other_binding"),
    [
        (("ab", "", "", ""), ("a", "", "", "b")),
        (("", "", "", "ab"), ("a", "", "", "b")),
        (("", "", "", "a"), ("a", "", "", "")),
    ],
)
def test_bindings_are_not_ambiguous(binding: tuple[str, ...], other_binding: tuple[str, ...]) -> None:
    envelope = envelope_key(*binding[:3]).seal(PAYLOAD, binding[3])
    assert envelope_key(*other_binding[:3]).open(envelope, other_binding[3]) is None


def test_modified_envelope_does_not_open() -> None:
    for index in range(len(ENVELOPE)):
        for modified in {
            ENVELOPE[:index] + ENVELOPE[index + 1 :],
            *(ENVELOPE[:index] + character + ENVELOPE[index + 1 :] for character in "Aa0-_.=! é"),
            *(ENVELOPE[:index] + character + ENVELOPE[index:] for character in "A.= \n!"),
        } - {ENVELOPE}:
            assert ENVELOPE_KEY.open(modified) is None, modified
    for suffix in ("A", "=", ".", "\n", " "):
        assert ENVELOPE_KEY.open(ENVELOPE + suffix) is None


@settings(deadline=None)
@given(
    st.text()
    | st.text().map("tw1.{}".format)
    | st.lists(st.text("Aa1_-=é", max_size=8), max_size=5).map(lambda texts: ".".join(["tw1", key_id(KEY), *texts]))
)
def test_opening_arbitrary_text_never_raises(text: str) -> None:
    assert ENVELOPE_KEY.open(text) is None


def test_forged_payload_does_not_open() -> None:
    name, mac = ENVELOPE.split(".")[1:3]
    forged = EnvelopeKey([b"other" * 8], "tenant").seal(PAYLOAD)
    assert ENVELOPE_KEY.open(forged) is None
    assert ENVELOPE_KEY.open(f"tw1.{name}.{mac}.{forged.split('.')[3]}x") is None
    assert ENVELOPE_KEY.open(forged.replace(key_id(b"other" * 8), name)) is None


def test_keys_can_be_rotated() -> None:
    old, new = b"o" * 32, b"n" * 32
    before, between, after = EnvelopeKey([old]), EnvelopeKey([new, old]), EnvelopeKey([new])
    assert between.open(before.seal(PAYLOAD)) == OPENED
    assert before.open(between.seal(PAYLOAD)) is None
    assert after.open(between.seal(PAYLOAD)) == OPENED
    assert after.open(before.seal(PAYLOAD)) is None


def test_envelope_key_requires_a_secret() -> None:
    with pytest.raises(ValueError, match="at least one secret"):
        EnvelopeKey([])


def test_key_id_does_not_reveal_the_key() -> None:
    assert key_id(KEY) != key_id(KEY + b"\0")
    assert KEY.hex()[:12] != key_id(KEY)


# ---- where only base64 is legal


@given(st.binary(max_size=40))
def test_base64_envelope_opens_in_either_alphabet_and_padding(extra: bytes) -> None:
    payload = EnvelopePayload(signature=Signature(issuer="google", data=b64encode(extra).decode(), kind="signature"))
    data = EnvelopeField(issuer="google", kind="signature", base64=True).encode(ENVELOPE_KEY.seal(payload)).data
    assert b64encode(b64decode(data, validate=True)).decode() == data
    for spelling in (data, data.rstrip("="), data.translate(str.maketrans("+/", "-_"))):
        assert is_envelope(spelling)
        assert ENVELOPE_KEY.open(spelling) == replace(payload, issuer=ENVELOPE_KEY.issuer)


@pytest.mark.parametrize("text", ["dHcxL", "dHcxLg==", "dHcxLmE", "dHcxLé", "dHcxL$$", "dHcxM2E="])
def test_text_that_resembles_an_envelope_does_not_open(text: str) -> None:
    assert ENVELOPE_KEY.open(text) is None
