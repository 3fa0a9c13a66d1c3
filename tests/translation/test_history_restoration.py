"""Restoring envelopes: contents return to their position; invalid envelopes and earlier signatures are dropped."""

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
ENVELOPE_KEY = EnvelopeKey([b"k" * 32], "tenant")
QUESTION = Message(role="user", parts=(Text(text="q"),))
DIGEST = digest_before([QUESTION])
REASONING = Reasoning(
    content=(ReasoningText(kind="summary", text="thought"),),
    signature=Signature(issuer="openai", data="gAAA", kind="encrypted"),
    id="rs_1",
    extras={"openai-responses": {"status": Raw(b'"done"')}},
    wire_form=("openai-responses:null:x",),
)
PAYLOAD = EnvelopePayload(parts=(REASONING,))
ENVELOPE = ENVELOPE_KEY.seal(PAYLOAD, DIGEST)
FORGED = EnvelopeKey([b"k" * 32], "another tenant").seal(PAYLOAD, DIGEST)


def reasoning(data: str, **more: Any) -> Reasoning:
    return Reasoning(signature=Signature(issuer="anthropic", data=data, kind="signature"), **more)


NATIVE = reasoning("EqQB")


def request(*parts: Part) -> Request:
    """Build a conversation with one of these parts, after a text, in each assistant message."""
    messages = [Message(role="assistant", parts=(Text(text="a"), part)) for part in parts]
    return Request(origin="anthropic", messages=(QUESTION, *messages))


def restore(
    given: Request, envelope_key: EnvelopeKey | None = ENVELOPE_KEY, *, same_protocol: bool = False
) -> tuple[Request, list[str]]:
    restored, report = restore_envelopes(given, READER, envelope_key, same_protocol=same_protocol)
    return restored, [loss.path for loss in report.resolve(given, READER.wire_names)]


def signature_pointer(number: int, position: int = 1) -> str:
    return f"/messages/{number + 1}/content/{position}/signature"


def parts(request: Request) -> list[Part]:
    return [message.parts[1] for message in request.messages[1:]]


@pytest.mark.parametrize("envelope_key", [ENVELOPE_KEY, None])
def test_request_without_envelopes_is_unchanged(envelope_key: EnvelopeKey | None) -> None:
    given = request(NATIVE, Reasoning(), ToolCall(id="1", name="f", arguments=ENVELOPE), Text(text=ENVELOPE))
    restored, lost = restore(given, envelope_key)
    assert restored is given
    assert lost == []


def test_envelope_is_replaced_by_its_contents_in_signature_pointer() -> None:
    given = request(NATIVE, reasoning(ENVELOPE, at="/content/1"), reasoning(ENVELOPE), NATIVE)
    restored, lost = restore(given, ENVELOPE_KEY)
    assert lost == []
    assert parts(restored) == [
        NATIVE,
        replace(REASONING, at="/content/1"),
        replace(REASONING, at=None),
        NATIVE,
    ]
    assert [message.parts[0] for message in restored.messages[1:]] == [Text(text="a")] * 4
    assert restored.messages[0] is given.messages[0]
    assert replace(restored, messages=given.messages) == given


def test_client_extras_are_kept_for_reporting() -> None:
    added: Extras = {"anthropic": {"x": Raw(b"1")}, "openai-responses": {"y": Raw(b"2")}}
    restored, _ = restore(request(reasoning(ENVELOPE, extras=added)), ENVELOPE_KEY)
    (part,) = parts(restored)
    assert part.extras == {
        "openai-responses": {"status": Raw(b'"done"'), "y": Raw(b"2")},
        "anthropic": {"x": Raw(b"1")},
    }


@pytest.mark.parametrize(
    ("data", "envelope_key"),
    [
        (FORGED, ENVELOPE_KEY),
        (ENVELOPE[:-1], ENVELOPE_KEY),
        ("tw1.", ENVELOPE_KEY),
        (EnvelopeKey([b"other"], "tenant").seal(PAYLOAD, DIGEST), ENVELOPE_KEY),
        (ENVELOPE_KEY.seal(PAYLOAD, digest_before([])), ENVELOPE_KEY),
        (ENVELOPE_KEY.seal(EnvelopePayload(signature=REASONING.signature, call_name="look"), DIGEST), ENVELOPE_KEY),
        (ENVELOPE, None),
    ],
)
def test_invalid_envelope_is_never_sent(data: str, envelope_key: EnvelopeKey | None) -> None:
    shown = (ReasoningText(kind="full", text="shown"),)
    restored, lost = restore(request(reasoning(data, content=shown, at="/x")), envelope_key)
    assert parts(restored) == [Reasoning(content=shown, at="/x")]
    assert lost == ["/messages/1/x/signature"]


def test_invalid_envelope_drops_all_earlier_signatures() -> None:
    given = request(NATIVE, reasoning(ENVELOPE), Reasoning(), reasoning(FORGED), NATIVE, reasoning(ENVELOPE))
    restored, lost = restore(given, ENVELOPE_KEY)
    assert lost == [signature_pointer(0), signature_pointer(1), signature_pointer(3)]
    assert parts(restored) == [
        replace(NATIVE, signature=None),
        replace(REASONING, signature=None, at=None),
        Reasoning(),
        Reasoning(),
        NATIVE,
        replace(REASONING, at=None),
    ]


def test_last_invalid_envelope_counts() -> None:
    given = request(reasoning(FORGED), NATIVE, reasoning(FORGED), NATIVE)
    restored, lost = restore(given, ENVELOPE_KEY)
    assert lost == [signature_pointer(0), signature_pointer(1), signature_pointer(2)]
    assert [part.signature is None for part in parts(restored) if isinstance(part, Reasoning)] == [
        True,
        True,
        True,
        False,
    ]


def test_several_envelopes_in_one_message() -> None:
    message = Message(role="assistant", parts=(NATIVE, reasoning(ENVELOPE), reasoning(FORGED), reasoning(ENVELOPE)))
    restored, lost = restore(Request(origin="anthropic", messages=(QUESTION, message)))
    assert lost == [signature_pointer(0, number) for number in (0, 1, 2)]
    assert [part.signature for part in restored.messages[1].parts if isinstance(part, Reasoning)] == [
        None,
        None,
        None,
        REASONING.signature,
    ]


def test_unsigned_sealed_reasoning_leaves_no_gap() -> None:
    sealed = ENVELOPE_KEY.seal(EnvelopePayload(parts=(replace(REASONING, signature=None),)), DIGEST)
    restored, lost = restore(request(NATIVE, reasoning(sealed)), ENVELOPE_KEY)
    assert lost == []
    assert parts(restored) == [NATIVE, replace(REASONING, signature=None, at=None)]


# ---- signatures of other parts, and positions


LOOK = ToolCall(id="1", name="look", arguments="{}")
SIGNATURE = Signature(issuer="google", data="CiMB", kind="signature")


def restored_parts(*parts: Part, protocol: str = "anthropic") -> tuple[Part, ...]:
    """Restore one message, and return its parts."""
    given = Request(origin=protocol, messages=(QUESTION, Message(role="assistant", parts=parts)))
    restored, report = restore_envelopes(given, PROTOCOLS[protocol], ENVELOPE_KEY)
    assert not report
    return tuple(replace(part, at=None) for part in restored.messages[1].parts)


def test_signature_goes_to_the_next_part_of_its_kind() -> None:
    call_envelope = ENVELOPE_KEY.seal(EnvelopePayload(signature=SIGNATURE, call_name="look"), DIGEST)
    text_envelope = ENVELOPE_KEY.seal(EnvelopePayload(signature=SIGNATURE), DIGEST)
    text = Text(text="a")
    assert restored_parts(text, reasoning(call_envelope), text, LOOK, LOOK) == (
        text,
        text,
        replace(LOOK, signature=SIGNATURE),
        LOOK,
    )
    assert restored_parts(text, reasoning(text_envelope), Text(text=""), text, LOOK) == (
        text,
        Text(text=""),
        replace(text, signature=SIGNATURE),
        LOOK,
    )


@pytest.mark.parametrize(
    "following",
    [(), (Text(text="a"),), (replace(LOOK, name="other"), LOOK)],
    ids=["nothing", "text", "another call"],
)
def test_signature_of_a_missing_part_is_lost(following: tuple[Part, ...]) -> None:
    envelope_part = reasoning(ENVELOPE_KEY.seal(EnvelopePayload(signature=SIGNATURE, call_name="look"), DIGEST))
    message = Message(role="assistant", parts=(envelope_part, *following))
    restored, lost = restore(Request(origin="anthropic", messages=(QUESTION, message, QUESTION)))
    assert lost == [signature_pointer(0, 0)]
    assert SIGNATURE not in [getattr(part, "signature", None) for part in restored.messages[1].parts]


def test_moved_parts_return_to_their_positions() -> None:
    second = replace(REASONING, id="rs_2")
    envelope = ENVELOPE_KEY.seal(EnvelopePayload(parts=(REASONING, second), positions=((0, 0), (1, 2))), DIGEST)
    first_text, second_text = Text(text="ab"), Text(text="cd")
    signature = Signature(issuer="google", data=envelope, kind="signature")
    assert restored_parts(
        first_text, LOOK, first_text, second_text, replace(LOOK, signature=signature), protocol="gemini"
    ) == (
        REASONING,
        first_text,
        LOOK,
        first_text,
        second,
        second_text,
        LOOK,
    )


def test_reasoning_shown_beside_its_envelope_is_removed() -> None:
    shown = Reasoning(content=(ReasoningText(kind="full", text="thou ght"),))
    other = Reasoning(content=(ReasoningText(kind="full", text="another"),))
    assert restored_parts(other, shown, reasoning(ENVELOPE)) == (other, REASONING)


def test_restored_parts_keep_their_source_positions() -> None:
    envelope_part = reasoning(ENVELOPE_KEY.seal(EnvelopePayload(signature=SIGNATURE, call_name="look"), DIGEST))
    message = Message(role="assistant", parts=(envelope_part, LOOK))
    alone = Message(role="assistant", parts=(envelope_part,))
    restored, _ = restore(Request(origin="anthropic", messages=(QUESTION, message)))
    assert [part.at for part in restored.messages[1].parts] == ["/content/1"]
    restored, _ = restore(Request(origin="anthropic", messages=(QUESTION, alone, replace(alone, parts=(LOOK,)))))
    assert [message.at for message in restored.messages] == ["/messages/0", "/messages/2"]


# ---- same protocol


@pytest.mark.parametrize("data", ["EqQC", ENVELOPE], ids=["signature", "envelope"])
def test_host_that_signs_nothing_keeps_the_text_of_reasoning(data: str) -> None:
    shown = reasoning(data, content=(ReasoningText(kind="full", text="Hm."),))
    given = request(shown, reasoning(data))
    restored, report = restore_envelopes(
        given, READER, ENVELOPE_KEY, same_protocol=True, foreign={"EqQC"}, accepts_unsigned=True
    )
    assert [message.parts[1:] for message in restored.messages[1:]] == [
        (replace(reasoning(""), content=shown.content),),
        (),
    ]
    assert len(report.resolve(given, READER.wire_names)) == 2


def test_same_protocol_removes_only_envelopes() -> None:
    given = request(NATIVE, reasoning(ENVELOPE), NATIVE)
    restored, lost = restore(given, same_protocol=True)
    assert lost == [signature_pointer(1)]
    assert [message.parts[1:] for message in restored.messages[1:]] == [(NATIVE,), (), (NATIVE,)]


def test_same_protocol_drops_signatures_before_an_invalid_envelope() -> None:
    given = request(NATIVE, reasoning(FORGED), NATIVE)
    restored, lost = restore(given, same_protocol=True)
    assert lost == [signature_pointer(0), signature_pointer(1)]
    assert [message.parts[1:] for message in restored.messages[1:]] == [(), (), (NATIVE,)]


# ---- signatures of other issuers


@pytest.mark.parametrize(("realm", "model"), [("another account", "m"), ("account", "another model")])
def test_envelope_of_another_issuer_leaves_those_before_it_valid(realm: str, model: str) -> None:
    key, other = (
        EnvelopeKey([b"k" * 32], "tenant", realm=one, model=two) for one, two in [("account", "m"), (realm, model)]
    )
    given = request(reasoning(key.seal(PAYLOAD, DIGEST)))
    given = replace(given, messages=(*given.messages, QUESTION, Message(role="assistant", parts=(LOOK,))))
    foreign = reasoning(other.seal(PAYLOAD, digest_before(given.messages[:3])))
    given = replace(given, messages=(*given.messages[:3], Message(role="assistant", parts=(foreign, LOOK))))
    restored, lost = restore(given, key)
    assert lost == ["/messages/3/content/0/signature"]
    assert [part.signature for message in restored.messages for part in message.parts if type(part) is Reasoning] == [
        REASONING.signature,
        None,
    ]


def test_signature_of_another_issuer_is_removed_and_reported() -> None:
    other = reasoning("EqQC")
    given = request(NATIVE, other, NATIVE)
    restored, report = restore_envelopes(given, READER, ENVELOPE_KEY, same_protocol=True, foreign={"EqQC"})
    assert [message.parts[1:] for message in restored.messages[1:]] == [(NATIVE,), (), (NATIVE,)]
    (loss,) = report.resolve(given, READER.wire_names)
    assert (loss.kind, loss.path) == ("dropped", signature_pointer(1))
    assert "another provider" in loss.reason


def test_same_protocol_call_gets_a_placeholder_signature() -> None:
    signature = Signature(issuer="google", data=ENVELOPE, kind="signature")
    message = Message(role="assistant", parts=(replace(LOOK, signature=signature),))
    given = Request(origin="gemini", messages=(QUESTION, message))
    gemini = PROTOCOLS["gemini"]
    restored, report = restore_envelopes(given, gemini, ENVELOPE_KEY, same_protocol=True)
    (call,) = restored.messages[1].parts
    assert isinstance(call, ToolCall)
    assert gemini.envelope_field is not None
    assert call.signature is not None
    assert call.signature.data == gemini.envelope_field.placeholder
    kinds = [(loss.kind, loss.path) for loss in report.resolve(given, gemini.wire_names)]
    pointer = "/contents/1/parts/0/thoughtSignature"
    assert kinds == [("dropped", pointer), ("added", pointer)]


def responses_item(part: Part, id: str) -> Message:
    return Message(role="assistant", parts=(part,), id=id)


def test_items_lose_their_ids_with_their_reasoning_item() -> None:
    def encrypted(data: str) -> Reasoning:
        return Reasoning(signature=Signature(issuer="openai", data=data, kind="encrypted"))

    messages = (
        QUESTION,
        responses_item(encrypted("gAAA"), "rs_1"),
        responses_item(LOOK, "fc_1"),
        QUESTION,
        responses_item(encrypted(ENVELOPE), "rs_2"),
        responses_item(Text(text="a"), "msg_2"),
        QUESTION,
        responses_item(encrypted("gAAB"), "rs_3"),
        responses_item(LOOK, "fc_3"),
        QUESTION,
        responses_item(LOOK, "fc_4"),
    )
    given = Request(origin="openai-responses", messages=messages)
    responses = PROTOCOLS["openai-responses"]
    restored, report = restore_envelopes(given, responses, ENVELOPE_KEY, same_protocol=True)
    assert [message.id for message in restored.messages if message.role == "assistant"] == [
        None,
        None,
        "rs_3",
        "fc_3",
        "fc_4",
    ]
    lost = {loss.path for loss in report.resolve(given, responses.wire_names)}
    assert {"/input/2/id", "/input/5/id"} < lost
    assert "/input/8/id" not in lost
