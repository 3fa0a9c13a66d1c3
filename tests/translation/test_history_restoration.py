"""Restoring: what carries hold comes back where it stood; what does not open is not sent, nor any proof before it."""

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Reasoning, ReasoningText, Signature, Text, ToolCall
from toolwire.canonical.node import Extras
from toolwire.canonical.request import Request
from toolwire.codec.envelope import EnvelopeKey, EnvelopePayload
from toolwire.protocols import PROTOCOLS
from toolwire.translation.history import digest_before, restore_envelopes

READER = PROTOCOLS["anthropic"]
CARRIER = EnvelopeKey([b"k" * 32], "tenant")
ASKED = Message(role="user", parts=(Text(text="q"),))
PREFIX = digest_before([ASKED])
THOUGHT = Reasoning(
    content=(ReasoningText(kind="summary", text="thought"),),
    signature=Signature(issuer="openai", data="gAAA", kind="encrypted"),
    id="rs_1",
    extras={"openai-responses": {"status": Raw(b'"done"')}},
    wire_form=("openai-responses:null:x",),
)
CARRIED = EnvelopePayload(parts=(THOUGHT,))
SEALED = CARRIER.seal(CARRIED, PREFIX)
FORGED = EnvelopeKey([b"k" * 32], "another tenant").seal(CARRIED, PREFIX)


def reasoning(data: str, **more: Any) -> Reasoning:
    return Reasoning(signature=Signature(issuer="anthropic", data=data, kind="signature"), **more)


NATIVE = reasoning("EqQB")


def request(*parts: Part) -> Request:
    """A conversation with one of these parts in each of the model's messages, each after a text."""
    said = [Message(role="assistant", parts=(Text(text="a"), part)) for part in parts]
    return Request(origin="anthropic", messages=(ASKED, *said), plain=True)


def restore(given: Request, carrier: EnvelopeKey | None = CARRIER, *, home: bool = False) -> tuple[Request, list[str]]:
    restored, report = restore_envelopes(given, READER, carrier, same_protocol=home)
    return restored, [loss.path for loss in report.resolve(given, READER.wire_names)]


def place(number: int, position: int = 1) -> str:
    return f"/messages/{number + 1}/content/{position}/signature"


def parts(request: Request) -> list[Part]:
    return [message.parts[1] for message in request.messages[1:]]


@pytest.mark.parametrize("carrier", [CARRIER, None])
def test_without_a_carry_the_request_is_the_same_one(carrier: EnvelopeKey | None) -> None:
    given = request(NATIVE, Reasoning(), ToolCall(id="1", name="f", arguments=SEALED), Text(text=SEALED))
    restored, lost = restore(given, carrier)
    assert restored is given
    assert lost == []


def test_a_carry_becomes_what_it_carried_in_its_own_place() -> None:
    given = request(NATIVE, reasoning(SEALED, at="/content/1"), reasoning(SEALED), NATIVE)
    restored, lost = restore(given, CARRIER)
    assert lost == []
    assert parts(restored) == [NATIVE, replace(THOUGHT, at="/content/1"), replace(THOUGHT, at=None), NATIVE]
    assert [message.parts[0] for message in restored.messages[1:]] == [Text(text="a")] * 4
    assert restored.messages[0] is given.messages[0]
    assert replace(restored, messages=given.messages, plain=True) == given


def test_what_was_restored_is_searched_for_extras() -> None:
    bare = CARRIER.seal(EnvelopePayload(parts=(replace(THOUGHT, extras=None),)), PREFIX)
    assert restore(request(reasoning(bare)), CARRIER)[0].plain
    assert not restore(request(reasoning(SEALED)), CARRIER)[0].plain


def test_what_a_client_added_is_still_to_be_reported() -> None:
    added: Extras = {"anthropic": {"x": Raw(b"1")}, "openai-responses": {"y": Raw(b"2")}}
    restored, _ = restore(request(reasoning(SEALED, extras=added)), CARRIER)
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
        (EnvelopeKey([b"other"], "tenant").seal(CARRIED, PREFIX), CARRIER),
        (CARRIER.seal(CARRIED, digest_before([])), CARRIER),
        (CARRIER.seal(EnvelopePayload(signature=THOUGHT.signature, call_name="look"), PREFIX), CARRIER),
        (SEALED, None),
    ],
)
def test_what_does_not_open_is_never_sent(data: str, carrier: EnvelopeKey | None) -> None:
    shown = (ReasoningText(kind="full", text="shown"),)
    restored, lost = restore(request(reasoning(data, content=shown, at="/x")), carrier)
    assert parts(restored) == [Reasoning(content=shown, at="/x")]
    assert lost == ["/messages/1/x/signature"]


def test_a_gap_takes_all_earlier_seals_with_it() -> None:
    given = request(NATIVE, reasoning(SEALED), Reasoning(), reasoning(FORGED), NATIVE, reasoning(SEALED))
    restored, lost = restore(given, CARRIER)
    assert lost == [place(0), place(1), place(3)]
    assert parts(restored) == [
        replace(NATIVE, signature=None),
        replace(THOUGHT, signature=None, at=None),
        Reasoning(),
        Reasoning(),
        NATIVE,
        replace(THOUGHT, at=None),
    ]


def test_the_last_of_several_gaps_counts() -> None:
    given = request(reasoning(FORGED), NATIVE, reasoning(FORGED), NATIVE)
    restored, lost = restore(given, CARRIER)
    assert lost == [place(0), place(1), place(2)]
    assert [part.signature is None for part in parts(restored) if isinstance(part, Reasoning)] == [
        True,
        True,
        True,
        False,
    ]


def test_several_in_one_message() -> None:
    message = Message(role="assistant", parts=(NATIVE, reasoning(SEALED), reasoning(FORGED), reasoning(SEALED)))
    restored, lost = restore(Request(origin="anthropic", messages=(ASKED, message)))
    assert lost == [place(0, number) for number in (0, 1, 2)]
    assert [part.signature for part in restored.messages[1].parts if isinstance(part, Reasoning)] == [
        None,
        None,
        None,
        THOUGHT.signature,
    ]


def test_reasoning_that_was_carried_without_a_seal_leaves_no_gap() -> None:
    sealed = CARRIER.seal(EnvelopePayload(parts=(replace(THOUGHT, signature=None),)), PREFIX)
    restored, lost = restore(request(NATIVE, reasoning(sealed)), CARRIER)
    assert lost == []
    assert parts(restored) == [NATIVE, replace(THOUGHT, signature=None, at=None)]


# ---- proofs of other parts, and where parts stood


LOOK = ToolCall(id="1", name="look", arguments="{}")
PROOF = Signature(issuer="google", data="CiMB", kind="signature")


def told(*said: Part, carriers: str = "anthropic") -> tuple[Part, ...]:
    """What becomes of the parts of one message."""
    given = Request(origin=carriers, messages=(ASKED, Message(role="assistant", parts=said)))
    restored, report = restore_envelopes(given, PROTOCOLS[carriers], CARRIER)
    assert not report
    return tuple(replace(part, at=None) for part in restored.messages[1].parts)


def test_the_proof_of_a_part_goes_to_the_next_of_its_kind() -> None:
    called = CARRIER.seal(EnvelopePayload(signature=PROOF, call_name="look"), PREFIX)
    spoken = CARRIER.seal(EnvelopePayload(signature=PROOF), PREFIX)
    text = Text(text="a")
    assert told(text, reasoning(called), text, LOOK, LOOK) == (text, text, replace(LOOK, signature=PROOF), LOOK)
    assert told(text, reasoning(spoken), Text(text=""), text, LOOK) == (
        text,
        Text(text=""),
        replace(text, signature=PROOF),
        LOOK,
    )


@pytest.mark.parametrize(
    "following", [(), (Text(text="a"),), (replace(LOOK, name="other"), LOOK)], ids=["nothing", "text", "another call"]
)
def test_a_proof_whose_part_is_gone_is_lost(following: tuple[Part, ...]) -> None:
    called = reasoning(CARRIER.seal(EnvelopePayload(signature=PROOF, call_name="look"), PREFIX))
    message = Message(role="assistant", parts=(called, *following))
    restored, lost = restore(Request(origin="anthropic", messages=(ASKED, message, ASKED)))
    assert lost == [place(0, 0)]
    assert PROOF not in [getattr(part, "signature", None) for part in restored.messages[1].parts]


def test_what_stood_elsewhere_goes_back_there() -> None:
    second = replace(THOUGHT, id="rs_2")
    carry = CARRIER.seal(EnvelopePayload(parts=(THOUGHT, second), positions=((0, 0), (1, 2))), PREFIX)
    one, two = Text(text="ab"), Text(text="cd")
    seal = Signature(issuer="google", data=carry, kind="signature")
    assert told(one, LOOK, one, two, replace(LOOK, signature=seal), carriers="gemini") == (
        THOUGHT,
        one,
        LOOK,
        one,
        second,
        two,
        LOOK,
    )


def test_reasoning_that_was_shown_beside_its_carry_is_there_once() -> None:
    shown = Reasoning(content=(ReasoningText(kind="full", text="thou ght"),))
    other = Reasoning(content=(ReasoningText(kind="full", text="another"),))
    assert told(other, shown, reasoning(SEALED)) == (other, THOUGHT)


def test_losses_still_point_to_where_parts_stand() -> None:
    called = reasoning(CARRIER.seal(EnvelopePayload(signature=PROOF, call_name="look"), PREFIX))
    message = Message(role="assistant", parts=(called, LOOK))
    alone = Message(role="assistant", parts=(called,))
    restored, _ = restore(Request(origin="anthropic", messages=(ASKED, message)))
    assert [part.at for part in restored.messages[1].parts] == ["/content/1"]
    restored, _ = restore(Request(origin="anthropic", messages=(ASKED, alone, replace(alone, parts=(LOOK,)))))
    assert [one.at for one in restored.messages] == ["/messages/0", "/messages/2"]


# ---- at home


def test_at_home_no_carry_is_opened_and_nothing_of_it_is_left() -> None:
    given = request(NATIVE, reasoning(SEALED), NATIVE)
    restored, lost = restore(given, home=True)
    assert lost == [place(0), place(1)]
    assert [message.parts[1:] for message in restored.messages[1:]] == [(), (), (NATIVE,)]


def test_at_home_a_call_that_lost_its_proof_has_the_blank_one() -> None:
    seal = Signature(issuer="google", data=SEALED, kind="signature")
    message = Message(role="assistant", parts=(replace(LOOK, signature=seal),))
    given = Request(origin="gemini", messages=(ASKED, message))
    gemini = PROTOCOLS["gemini"]
    restored, report = restore_envelopes(given, gemini, CARRIER, same_protocol=True)
    (call,) = restored.messages[1].parts
    assert isinstance(call, ToolCall)
    assert gemini.envelope_field is not None
    assert call.signature is not None
    assert call.signature.data == gemini.envelope_field.placeholder
    kinds = [(loss.kind, loss.path) for loss in report.resolve(given, gemini.wire_names)]
    where = "/contents/1/parts/0/thoughtSignature"
    assert kinds == [("dropped", where), ("added", where)]
