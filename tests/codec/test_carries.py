"""Carries: only what was sealed here, for this tenant and place, opens; all else is a missing seal, never an error."""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Reasoning, ReasoningText, Seal, Text, ToolCall
from toolwire.canonical.node import Extras
from toolwire.canonical.request import Request
from toolwire.codec.carries import Carried, Carrier, is_carry, key_id, restore_carries
from toolwire.codec.losses import Trail

KEY = b"k" * 32
CARRIER = Carrier([KEY], "tenant")
THOUGHT = Reasoning(
    content=(ReasoningText(kind="summary", text="thought"),),
    seal=Seal(issuer="openai-responses", data="gAAA", kind="encrypted"),
    id="rs_1",
    extras={"openai-responses": {"status": Raw(b'"done"')}},
    form=("openai-responses:null:x",),
    at="/output/0",
)
CARRIED = Carried(reasoning=THOUGHT, call_id="call_1")
SEALED = CARRIER.seal(CARRIED)

TEXTS = st.text(max_size=6)
BINDINGS = st.fixed_dictionaries({"realm": TEXTS, "model": TEXTS, "prefix": TEXTS})
CARRIES = st.builds(
    Carried,
    reasoning=st.none()
    | st.builds(
        Reasoning,
        content=st.lists(st.builds(ReasoningText, kind=st.sampled_from(["full", "summary"]), text=TEXTS)).map(tuple),
        seal=st.none() | st.builds(Seal, issuer=TEXTS, data=TEXTS, kind=st.sampled_from(["signature", "encrypted"])),
        id=st.none() | TEXTS,
    ),
    call_id=st.none() | TEXTS,
)


# ---- sealing and opening


@settings(deadline=None)
@given(CARRIES, TEXTS, BINDINGS)
def test_what_was_sealed_opens(carried: Carried, tenant: str, binding: Any) -> None:
    sealed = Carrier([KEY], tenant).seal(carried, **binding)
    assert is_carry(sealed)
    assert Carrier([KEY], tenant).open(sealed, **binding) == carried


def test_what_is_carried_keeps_all_it_had() -> None:
    assert CARRIER.open(SEALED) == CARRIED
    assert SEALED.startswith(f"tw1.{key_id(KEY)}.")
    assert not set(SEALED) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


@settings(deadline=None)
@given(st.tuples(TEXTS, BINDINGS), st.tuples(TEXTS, BINDINGS))
def test_it_opens_nowhere_else(here: tuple[str, Any], there: tuple[str, Any]) -> None:
    assume(here != there)
    sealed = Carrier([KEY], here[0]).seal(CARRIED, **here[1])
    assert Carrier([KEY], there[0]).open(sealed, **there[1]) is None


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
    sealed = Carrier([KEY], one[0]).seal(CARRIED, realm=one[1], model=one[2], prefix=one[3])
    assert Carrier([KEY], other[0]).open(sealed, realm=other[1], model=other[2], prefix=other[3]) is None


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
    forged = Carrier([b"other" * 8], "tenant").seal(CARRIED)
    assert CARRIER.open(forged) is None
    assert CARRIER.open(f"tw1.{name}.{mac}.{forged.split('.')[3]}x") is None
    assert CARRIER.open(forged.replace(key_id(b"other" * 8), name)) is None


def test_keys_are_rotated() -> None:
    old, new = b"o" * 32, b"n" * 32
    before, between, after = Carrier([old]), Carrier([new, old]), Carrier([new])
    assert between.open(before.seal(CARRIED)) == CARRIED
    assert before.open(between.seal(CARRIED)) is None
    assert after.open(between.seal(CARRIED)) == CARRIED
    assert after.open(before.seal(CARRIED)) is None


def test_a_carrier_needs_a_key() -> None:
    with pytest.raises(ValueError, match="at least one key"):
        Carrier([])


def test_a_key_id_tells_nothing_of_the_key() -> None:
    assert key_id(KEY) != key_id(KEY + b"\0")
    assert KEY.hex()[:12] != key_id(KEY)


# ---- restoring them


def reasoning(data: str, **more: Any) -> Reasoning:
    return Reasoning(seal=Seal(issuer="anthropic", data=data, kind="signature"), **more)


def request(*parts: Part) -> Request:
    """A conversation with one of these parts in each of the model's messages, each after a text."""
    said = [Message(role="assistant", parts=(Text(text="a"), part)) for part in parts]
    return Request(origin="anthropic", messages=(Message(role="user", parts=(Text(text="q"),)), *said), plain=True)


def place(number: int) -> Trail:
    return ("messages", number + 1, "parts", 1)


def parts(request: Request) -> list[Part]:
    return [message.parts[1] for message in request.messages[1:]]


FORGED = Carrier([KEY], "another tenant").seal(CARRIED)
NATIVE = reasoning("EqQB")


@pytest.mark.parametrize("carrier", [CARRIER, None])
def test_without_a_carry_the_request_is_the_same_one(carrier: Carrier | None) -> None:
    given = request(NATIVE, Reasoning(), ToolCall(id="1", name="f", arguments=SEALED), Text(text=SEALED))
    restored, lost = restore_carries(given, carrier)
    assert restored is given
    assert lost == []


def test_a_carry_becomes_what_it_carried_in_its_own_place() -> None:
    given = request(NATIVE, reasoning(SEALED, at="/content/1"), reasoning(SEALED), NATIVE)
    restored, lost = restore_carries(given, CARRIER)
    assert lost == []
    assert parts(restored) == [NATIVE, replace(THOUGHT, at="/content/1"), replace(THOUGHT, at=None), NATIVE]
    assert [message.parts[0] for message in restored.messages[1:]] == [Text(text="a")] * 4
    assert restored.messages[0] is given.messages[0]
    assert replace(restored, messages=given.messages, plain=True) == given


def test_what_was_restored_is_searched_for_extras() -> None:
    bare = CARRIER.seal(Carried(reasoning=replace(THOUGHT, extras=None)))
    assert restore_carries(request(reasoning(bare)), CARRIER)[0].plain
    assert not restore_carries(request(reasoning(SEALED)), CARRIER)[0].plain


def test_what_a_client_added_is_still_to_be_reported() -> None:
    added: Extras = {"anthropic": {"x": Raw(b"1")}, "openai-responses": {"y": Raw(b"2")}}
    restored, _ = restore_carries(request(reasoning(SEALED, extras=added)), CARRIER)
    (part,) = parts(restored)
    assert part.extras == {
        "openai-responses": {"status": Raw(b'"done"'), "y": Raw(b"2")},
        "anthropic": {"x": Raw(b"1")},
    }


@pytest.mark.parametrize(
    ("data", "carrier"),
    [
        (FORGED, CARRIER),
        (SEALED[:-1], CARRIER),
        ("tw1.", CARRIER),
        (Carrier([b"other"], "tenant").seal(CARRIED), CARRIER),
        (CARRIER.seal(Carried(call_id="call_1")), CARRIER),
        (SEALED, None),
    ],
)
def test_what_does_not_open_is_never_sent(data: str, carrier: Carrier | None) -> None:
    shown = (ReasoningText(kind="full", text="shown"),)
    restored, lost = restore_carries(request(reasoning(data, content=shown, at="/x")), carrier)
    assert parts(restored) == [Reasoning(content=shown, at="/x")]
    assert lost == [place(0)]


def test_a_gap_takes_all_earlier_seals_with_it() -> None:
    given = request(NATIVE, reasoning(SEALED), Reasoning(), reasoning(FORGED), NATIVE, reasoning(SEALED))
    restored, lost = restore_carries(given, CARRIER)
    assert lost == [place(0), place(1), place(3)]
    assert parts(restored) == [
        replace(NATIVE, seal=None),
        replace(THOUGHT, seal=None, at=None),
        Reasoning(),
        Reasoning(),
        NATIVE,
        replace(THOUGHT, at=None),
    ]


def test_the_last_of_several_gaps_counts() -> None:
    given = request(reasoning(FORGED), NATIVE, reasoning(FORGED), NATIVE)
    restored, lost = restore_carries(given, CARRIER)
    assert lost == [place(0), place(1), place(2)]
    assert [part.seal is None for part in parts(restored) if isinstance(part, Reasoning)] == [True, True, True, False]


def test_several_in_one_message() -> None:
    message = Message(role="assistant", parts=(NATIVE, reasoning(SEALED), reasoning(FORGED), reasoning(SEALED)))
    restored, lost = restore_carries(Request(origin="anthropic", messages=(message,)), CARRIER)
    assert lost == [("messages", 0, "parts", number) for number in (0, 1, 2)]
    assert [part.seal for part in restored.messages[0].parts if isinstance(part, Reasoning)] == [
        None,
        None,
        None,
        THOUGHT.seal,
    ]


def test_reasoning_that_was_carried_without_a_seal_leaves_no_gap() -> None:
    sealed = CARRIER.seal(Carried(reasoning=replace(THOUGHT, seal=None)))
    restored, lost = restore_carries(request(NATIVE, reasoning(sealed)), CARRIER)
    assert lost == []
    assert parts(restored) == [NATIVE, replace(THOUGHT, seal=None, at=None)]
