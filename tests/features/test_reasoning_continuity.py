"""A proof of reasoning survives a tool cycle through a client of another protocol, and comes back to its issuer."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import toolwire as tw
from tests.support.assertions import non_empty
from tests.support.bodies.signed_responses import (
    ENVELOPE_CLIENTS,
    ENVELOPE_KEY,
    ENVELOPE_SECRET,
    SIGNATURE_FIELDS,
    SIGNED_RESPONSES,
    history_of,
    signature_fields_in,
)
from tests.support.bodies.tool_cycles import (
    FIRST_REQUESTS,
    HISTORY_FIELDS,
    decode_response_stream,
    encode_response_stream,
    next_request,
)
from toolwire.codec.envelope import EnvelopeKey, is_envelope
from toolwire.protocols import PROTOCOLS

CYCLES = [
    (case, client) for case, (issuer, _) in SIGNED_RESPONSES.items() for client in ENVELOPE_CLIENTS if client != issuer
]
NO_FIELD = [
    (case, client)
    for case, (issuer, _) in SIGNED_RESPONSES.items()
    for client in PROTOCOLS
    if client not in ENVELOPE_CLIENTS and client != issuer
]


def told(
    case: str, client: str, *, stream: bool = False, asked: Any = None, carrier: EnvelopeKey | None = ENVELOPE_KEY
) -> Any:
    """The answer as the client has it."""
    issuer, answer = SIGNED_RESPONSES[case]
    asked = FIRST_REQUESTS[client] if asked is None else asked
    if stream:
        events = tw.translate_stream(
            encode_response_stream(answer, issuer), issuer, client, asked, envelope_key=carrier
        )
        return decode_response_stream(b"".join(events), client)
    return tw.translate(answer, issuer, client, "response", request=asked, envelope_key=carrier).value


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_the_issuer_gets_what_a_client_of_its_own_would_have_sent(case: str, client: str, *, stream: bool) -> None:
    issuer, answer = SIGNED_RESPONSES[case]
    sent = tw.translate(
        next_request(FIRST_REQUESTS[client], told(case, client, stream=stream), client),
        client,
        issuer,
        envelope_key=ENVELOPE_KEY,
    )
    assert (
        history_of(sent.value, issuer)[1:]
        == history_of(next_request(FIRST_REQUESTS[issuer], answer, issuer), issuer)[1:]
    )
    assert not [loss.path for loss in sent.losses if loss.path.endswith(SIGNATURE_FIELDS)]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_the_client_has_a_carry_for_each_proof_and_no_loss_of_one(case: str, client: str, *, stream: bool) -> None:
    issuer, answer = SIGNED_RESPONSES[case]
    shown = signature_fields_in(told(case, client, stream=stream))
    assert shown
    assert all(is_envelope(data) for _, data in shown)
    if client in ("gemini", "gemini-interactions"):
        assert all(base64.b64decode(data, validate=True) for _, data in shown)
    if stream:
        events = tw.translate_stream(
            encode_response_stream(answer, issuer), issuer, client, FIRST_REQUESTS[client], envelope_key=ENVELOPE_KEY
        )
        assert b"".join(events)
        losses = events.losses
    else:
        losses = tw.translate(
            answer, issuer, client, "response", request=FIRST_REQUESTS[client], envelope_key=ENVELOPE_KEY
        ).losses
    assert not [loss.path for loss in losses if loss.path.endswith((*SIGNATURE_FIELDS, "/id"))]


@pytest.mark.parametrize("case", [case for case, (issuer, _) in SIGNED_RESPONSES.items() if issuer != "gemini"])
def test_a_gemini_client_may_spell_the_signature_anew_and_keep_the_thoughts(case: str) -> None:
    issuer, answer = SIGNED_RESPONSES[case]
    shown = told(case, "gemini")
    content = shown["candidates"][0]["content"]
    for part in content["parts"]:
        if signature := part.get("thoughtSignature"):
            part["thoughtSignature"] = signature.replace("+", "-").replace("/", "_").rstrip("=")
    asked = next_request(FIRST_REQUESTS["gemini"], shown, "gemini")
    asked["contents"][1] = content
    sent = tw.translate(asked, "gemini", issuer, envelope_key=ENVELOPE_KEY).value
    assert history_of(sent, issuer)[1:] == history_of(next_request(FIRST_REQUESTS[issuer], answer, issuer), issuer)[1:]


SPOILT: dict[str, Callable[[str], str]] = {
    "forged": lambda carry: carry[:-9] + ("A" if carry[-9] != "A" else "B") + carry[-8:],
    "cut": lambda carry: carry[: len(carry) // 2],
    "none": lambda carry: "tw1.",
}
OTHERS = {
    "another key": EnvelopeKey([b"x" * 32], "tenant", realm="upstream", model="m"),
    "another tenant": EnvelopeKey([ENVELOPE_SECRET], "other", realm="upstream", model="m"),
    "another realm": EnvelopeKey([ENVELOPE_SECRET], "tenant", realm="other", model="m"),
    "another model": EnvelopeKey([ENVELOPE_SECRET], "tenant", realm="upstream", model="other"),
    "no key": None,
}


def never_sent(body: dict[str, Any], case: str, client: str, carrier: EnvelopeKey | None) -> None:
    """Nothing of the proofs or of their carries is in the next request, and each is reported where it stood."""
    issuer, answer = SIGNED_RESPONSES[case]
    sent = tw.translate(body, client, issuer, envelope_key=carrier)
    text = json.dumps(sent.value)
    assert not [data for _, data in signature_fields_in(answer) if data in text]
    assert not [data for _, data in signature_fields_in(sent.value) if is_envelope(data)]
    name = HISTORY_FIELDS.get(client, "messages")
    carries = [f"/{name}{path}" for path, data in signature_fields_in(body[name]) if data.startswith(("tw1.", "dHcxL"))]
    assert carries
    assert set(carries) <= {loss.path for loss in sent.losses if loss.kind == "dropped"}


@pytest.mark.parametrize("who", OTHERS)
@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_what_was_sealed_for_someone_else_is_never_sent(case: str, client: str, who: str) -> None:
    never_sent(next_request(FIRST_REQUESTS[client], told(case, client), client), case, client, OTHERS[who])


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_what_was_spoilt_is_never_sent(case: str, client: str, how: str) -> None:
    body = next_request(FIRST_REQUESTS[client], told(case, client), client)
    text = json.dumps(body)
    for _, carry in signature_fields_in(body):
        spoilt = SPOILT[how](carry)
        text = text.replace(carry, spoilt if is_envelope(spoilt) else "tw1." + spoilt)
    never_sent(json.loads(text), case, client, ENVELOPE_KEY)


@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_what_belongs_to_another_history_is_never_sent(case: str, client: str) -> None:
    body = next_request(FIRST_REQUESTS[client], told(case, client), client)
    edited = json.loads(json.dumps(body).replace("Weather?", "Snow?"))
    never_sent(edited, case, client, ENVELOPE_KEY)


@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_without_a_key_the_loss_is_reported_where_the_proof_stood(case: str, client: str) -> None:
    issuer, answer = SIGNED_RESPONSES[case]
    encoded = tw.translate(answer, issuer, client, "response", request=FIRST_REQUESTS[client])
    shown = [data for _, data in signature_fields_in(encoded.value)]
    for path, data in non_empty(signature_fields_in(answer)):
        # Or it was all that a text had, which is gone with it.
        places = {path, path.removesuffix("/thoughtSignature")}
        assert (data in shown) != bool(places & {loss.path for loss in encoded.losses})


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("case", "client"), NO_FIELD)
def test_where_there_is_no_field_each_proof_is_a_reported_loss(case: str, client: str, *, stream: bool) -> None:
    issuer, answer = SIGNED_RESPONSES[case]
    if stream:
        events = tw.translate_stream(encode_response_stream(answer, issuer), issuer, client, envelope_key=ENVELOPE_KEY)
        text, losses = b"".join(events).decode(), events.losses
    else:
        encoded = tw.translate(answer, issuer, client, "response", envelope_key=ENVELOPE_KEY)
        text, losses = encoded.to_bytes().decode(), encoded.losses
    assert not [data for _, data in signature_fields_in(answer) if data in text]
    assert {path for path, _ in signature_fields_in(answer)} <= {loss.path for loss in losses}


def test_the_documentation_says_where_each_client_has_its_carries() -> None:
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "continuity.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"^\| `([a-z-]+)` \| `?([a-z_A-Z-]+)`? \|", page, re.MULTILINE))
    found = dict.fromkeys(PROTOCOLS, "none")
    for case, client in CYCLES:
        (found[client],) = {path.rpartition("/")[2] for path, _ in signature_fields_in(told(case, client))}
    assert said == found
