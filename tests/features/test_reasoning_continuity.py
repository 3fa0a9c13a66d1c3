"""Reasoning signatures survive a tool cycle through a client of another protocol and return to their issuer."""

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
CYCLES_WITHOUT_FIELD = [
    (case, client)
    for case, (issuer, _) in SIGNED_RESPONSES.items()
    for client in PROTOCOLS
    if client not in ENVELOPE_CLIENTS and client != issuer
]


def client_response(
    case: str,
    client: str,
    *,
    stream: bool = False,
    request: Any = None,
    envelope_key: EnvelopeKey | None = ENVELOPE_KEY,
) -> Any:
    """Return the response as the client receives it."""
    issuer, response = SIGNED_RESPONSES[case]
    request = FIRST_REQUESTS[client] if request is None else request
    if stream:
        events = tw.translate_stream(
            encode_response_stream(response, issuer), issuer, client, request, envelope_key=envelope_key
        )
        return decode_response_stream(b"".join(events), client)
    return tw.translate(response, issuer, client, "response", request=request, envelope_key=envelope_key).value


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_the_issuer_receives_the_request_of_a_native_client(case: str, client: str, *, stream: bool) -> None:
    issuer, response = SIGNED_RESPONSES[case]
    translated = tw.translate(
        next_request(FIRST_REQUESTS[client], client_response(case, client, stream=stream), client),
        client,
        issuer,
        envelope_key=ENVELOPE_KEY,
    )
    assert (
        history_of(translated.value, issuer)[1:]
        == history_of(next_request(FIRST_REQUESTS[issuer], response, issuer), issuer)[1:]
    )
    assert not [loss.path for loss in translated.losses if loss.path.endswith(SIGNATURE_FIELDS)]


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_the_client_receives_an_envelope_for_each_signature(case: str, client: str, *, stream: bool) -> None:
    issuer, response = SIGNED_RESPONSES[case]
    envelopes = signature_fields_in(client_response(case, client, stream=stream))
    assert envelopes
    assert all(is_envelope(data) for _, data in envelopes)
    if client in ("gemini", "gemini-interactions"):
        assert all(base64.b64decode(data, validate=True) for _, data in envelopes)
    if stream:
        events = tw.translate_stream(
            encode_response_stream(response, issuer), issuer, client, FIRST_REQUESTS[client], envelope_key=ENVELOPE_KEY
        )
        assert b"".join(events)
        losses = events.losses
    else:
        losses = tw.translate(
            response, issuer, client, "response", request=FIRST_REQUESTS[client], envelope_key=ENVELOPE_KEY
        ).losses
    assert not [loss.path for loss in losses if loss.path.endswith((*SIGNATURE_FIELDS, "/id"))]


@pytest.mark.parametrize("case", [case for case, (issuer, _) in SIGNED_RESPONSES.items() if issuer != "gemini"])
def test_a_gemini_client_may_reencode_the_signature(case: str) -> None:
    issuer, response = SIGNED_RESPONSES[case]
    response_body = client_response(case, "gemini")
    content = response_body["candidates"][0]["content"]
    for part in content["parts"]:
        if signature := part.get("thoughtSignature"):
            part["thoughtSignature"] = signature.replace("+", "-").replace("/", "_").rstrip("=")
    request = next_request(FIRST_REQUESTS["gemini"], response_body, "gemini")
    request["contents"][1] = content
    translated = tw.translate(request, "gemini", issuer, envelope_key=ENVELOPE_KEY).value
    assert (
        history_of(translated, issuer)[1:]
        == history_of(next_request(FIRST_REQUESTS[issuer], response, issuer), issuer)[1:]
    )


CORRUPTIONS: dict[str, Callable[[str], str]] = {
    "forged": lambda envelope: envelope[:-9] + ("A" if envelope[-9] != "A" else "B") + envelope[-8:],
    "truncated": lambda envelope: envelope[: len(envelope) // 2],
    "none": lambda envelope: "tw1.",
}
OTHER_KEYS = {
    "another key": EnvelopeKey([b"x" * 32], "tenant", realm="upstream", model="m"),
    "another tenant": EnvelopeKey([ENVELOPE_SECRET], "other", realm="upstream", model="m"),
    "another realm": EnvelopeKey([ENVELOPE_SECRET], "tenant", realm="other", model="m"),
    "another model": EnvelopeKey([ENVELOPE_SECRET], "tenant", realm="upstream", model="other"),
    "no key": None,
}


def assert_never_sent(
    body: dict[str, Any], case: str, client: str, envelope_key: EnvelopeKey | None, variant: str = ""
) -> None:
    """Check that no signature or envelope is in the next request, and that each is reported.

    A failure shows the `variant` of the body or the key.
    """
    issuer, response = SIGNED_RESPONSES[case]
    translated = tw.translate(body, client, issuer, envelope_key=envelope_key)
    text = json.dumps(translated.value)
    assert not [data for _, data in signature_fields_in(response) if data in text]
    assert not [data for _, data in signature_fields_in(translated.value) if is_envelope(data)]
    name = HISTORY_FIELDS.get(client, "messages")
    envelope_paths = [
        f"/{name}{path}" for path, data in signature_fields_in(body[name]) if data.startswith(("tw1.", "dHcxL"))
    ]
    assert envelope_paths
    assert set(envelope_paths) <= {loss.path for loss in translated.losses if loss.kind == "dropped"}


@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_signatures_for_another_issuer_are_never_sent(case: str, client: str) -> None:
    body = next_request(FIRST_REQUESTS[client], client_response(case, client), client)
    for variant, key in OTHER_KEYS.items():
        assert_never_sent(body, case, client, key, variant)


@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_corrupted_envelopes_are_never_sent(case: str, client: str) -> None:
    body = next_request(FIRST_REQUESTS[client], client_response(case, client), client)
    for variant, corrupt in CORRUPTIONS.items():
        text = json.dumps(body)
        for _, envelope in signature_fields_in(body):
            corrupted = corrupt(envelope)
            text = text.replace(envelope, corrupted if is_envelope(corrupted) else "tw1." + corrupted)
        assert_never_sent(json.loads(text), case, client, ENVELOPE_KEY, variant)


@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_envelopes_of_another_history_are_never_sent(case: str, client: str) -> None:
    body = next_request(FIRST_REQUESTS[client], client_response(case, client), client)
    edited = json.loads(json.dumps(body).replace("Weather?", "Snow?"))
    assert_never_sent(edited, case, client, ENVELOPE_KEY)


@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_without_a_key_the_lost_signature_is_reported_at_its_position(case: str, client: str) -> None:
    issuer, response = SIGNED_RESPONSES[case]
    encoded = tw.translate(response, issuer, client, "response", request=FIRST_REQUESTS[client])
    signatures = [data for _, data in signature_fields_in(encoded.value)]
    for path, data in non_empty(signature_fields_in(response)):
        # A text part that held only the signature is dropped completely.
        paths = {path, path.removesuffix("/thoughtSignature")}
        assert (data in signatures) != bool(paths & {loss.path for loss in encoded.losses})


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize(("case", "client"), CYCLES_WITHOUT_FIELD)
def test_without_a_field_each_lost_signature_is_reported(case: str, client: str, *, stream: bool) -> None:
    issuer, response = SIGNED_RESPONSES[case]
    if stream:
        events = tw.translate_stream(
            encode_response_stream(response, issuer), issuer, client, envelope_key=ENVELOPE_KEY
        )
        text, losses = b"".join(events).decode(), events.losses
    else:
        encoded = tw.translate(response, issuer, client, "response", envelope_key=ENVELOPE_KEY)
        text, losses = encoded.to_bytes().decode(), encoded.losses
    assert not [data for _, data in signature_fields_in(response) if data in text]
    assert {path for path, _ in signature_fields_in(response)} <= {loss.path for loss in losses}


def test_the_documentation_lists_the_envelope_field_of_each_client() -> None:
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "continuity.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `([a-z-]+)` \| `?([a-z_A-Z-]+)`? \|", page, re.MULTILINE))
    fields = dict.fromkeys(PROTOCOLS, "none")
    for case, client in CYCLES:
        (fields[client],) = {path.rpartition("/")[2] for path, _ in signature_fields_in(client_response(case, client))}
    assert documented == fields
