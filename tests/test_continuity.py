"""A proof of reasoning survives a tool cycle through a client of another protocol, and comes back to its issuer."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import toolwire as tw
from tests.conversations import (
    ASKED,
    HISTORY,
    anthropic,
    following,
    gemini,
    gemini_call,
    heard,
    interactions,
    openrouter,
    responses,
    streamed,
)
from tests.loops import some
from toolwire.codec.carries import Carrier, is_carry
from toolwire.protocols import PROTOCOLS

KEY = b"k" * 32
CARRIER = Carrier([KEY], "tenant", realm="upstream", model="m")
CLIENTS = [name for name, codec in PROTOCOLS.items() if codec.carriage is not None]

THINKING = {"type": "thinking", "thinking": "Paris, then.", "signature": "EqQBsigned+/=="}
ANSWERS = {
    "anthropic": ("anthropic", anthropic(THINKING)),
    "anthropic, redacted": ("anthropic", anthropic(THINKING, {"type": "redacted_thinking", "data": "EmwKhidden+/=="})),
    "anthropic, nothing to read": (
        "anthropic",
        anthropic({**THINKING, "thinking": ""}, {"type": "text", "text": "So."}),
    ),
    "openai-responses": (
        "openai-responses",
        responses({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAsealed+/=="}),
    ),
    "openai-responses, with a summary": (
        "openai-responses",
        responses(
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
                "encrypted_content": "gAAAAsealed+/==",
            }
        ),
    ),
    "gemini, on a call": ("gemini", gemini(gemini_call(thoughtSignature="CiMBcall+/=="))),
    "gemini, on a text": (
        "gemini",
        gemini({"text": "I look.", "thoughtSignature": "CiMBtext+/=="}, gemini_call(thoughtSignature="CiMBcall+/==")),
    ),
    "gemini, on the end": ("gemini", gemini({"text": "Dry."}, {"text": "", "thoughtSignature": "CiMBlast+/=="})),
    "gemini-interactions": ("gemini-interactions", interactions({"type": "thought", "signature": "CtkBstep+/=="})),
    "gemini-interactions, with a summary": (
        "gemini-interactions",
        interactions(
            {"type": "thought", "signature": "CtkBstep+/==", "summary": [{"type": "text", "text": "Paris, then."}]}
        ),
    ),
    "openrouter, Anthropic's": (
        "openrouter",
        openrouter(
            {
                "type": "reasoning.text",
                "text": "Paris, then.",
                "signature": "EqQB+/==",
                "format": "anthropic-claude-v1",
                "index": 0,
            }
        ),
    ),
    "openrouter, OpenAI's": (
        "openrouter",
        openrouter(
            {"type": "reasoning.summary", "summary": "Paris.", "format": "openai-responses-v1", "index": 0},
            {"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "format": "openai-responses-v1", "index": 1},
        ),
    ),
    "openrouter, Google's": (
        "openrouter",
        openrouter(
            {"type": "reasoning.encrypted", "data": "CiMB", "id": "call_1", "format": "google-gemini-v1", "index": 0}
        ),
    ),
}

CYCLES = [(case, client) for case, (issuer, _) in ANSWERS.items() for client in CLIENTS if client != issuer]
NO_FIELD = [
    (case, client)
    for case, (issuer, _) in ANSWERS.items()
    for client in PROTOCOLS
    if client not in CLIENTS and client != issuer
]

# What each issuer calls its proofs.
FIELDS = ("signature", "thoughtSignature", "encrypted_content", "data")


def told(case: str, client: str, *, stream: bool = False, asked: Any = None, carrier: Carrier | None = CARRIER) -> Any:
    """The answer as the client has it."""
    issuer, answer = ANSWERS[case]
    asked = ASKED[client] if asked is None else asked
    if stream:
        events = tw.translate_stream(streamed(answer, issuer), issuer, client, asked, carrier=carrier)
        return heard(b"".join(events), client)
    return tw.translate(answer, issuer, client, "response", request=asked, carrier=carrier).value


def turns(body: dict[str, Any], protocol: str) -> list[Any]:
    found: list[Any] = body[HISTORY.get(protocol, "messages")]
    return found


def proofs(value: Any, path: str = "") -> list[tuple[str, str]]:
    """Every proof in a body, with its place."""
    if isinstance(value, list):
        return [one for index, inner in enumerate(value) for one in proofs(inner, f"{path}/{index}")]
    if not isinstance(value, dict):
        return []
    own = [(f"{path}/{name}", value[name]) for name in FIELDS if isinstance(value.get(name), str) and value[name]]
    return own + [one for name, inner in value.items() for one in proofs(inner, f"{path}/{name}")]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_the_issuer_gets_what_a_client_of_its_own_would_have_sent(case: str, client: str, *, stream: bool) -> None:
    issuer, answer = ANSWERS[case]
    sent = tw.translate(
        following(ASKED[client], told(case, client, stream=stream), client), client, issuer, carrier=CARRIER
    )
    assert turns(sent.value, issuer)[1:] == turns(following(ASKED[issuer], answer, issuer), issuer)[1:]
    assert not [loss.path for loss in sent.losses if loss.path.endswith(FIELDS)]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_the_client_has_a_carry_for_each_proof_and_no_loss_of_one(case: str, client: str, *, stream: bool) -> None:
    issuer, answer = ANSWERS[case]
    shown = proofs(told(case, client, stream=stream))
    assert shown
    assert all(is_carry(data) for _, data in shown)
    if client in ("gemini", "gemini-interactions"):
        assert all(base64.b64decode(data, validate=True) for _, data in shown)
    if stream:
        events = tw.translate_stream(streamed(answer, issuer), issuer, client, ASKED[client], carrier=CARRIER)
        assert b"".join(events)
        losses = events.losses
    else:
        losses = tw.translate(answer, issuer, client, "response", request=ASKED[client], carrier=CARRIER).losses
    assert not [loss.path for loss in losses if loss.path.endswith((*FIELDS, "/id"))]


@pytest.mark.parametrize("case", [case for case, (issuer, _) in ANSWERS.items() if issuer != "gemini"])
def test_a_gemini_client_may_spell_the_signature_anew_and_keep_the_thoughts(case: str) -> None:
    issuer, answer = ANSWERS[case]
    shown = told(case, "gemini")
    content = shown["candidates"][0]["content"]
    for part in content["parts"]:
        if signature := part.get("thoughtSignature"):
            part["thoughtSignature"] = signature.replace("+", "-").replace("/", "_").rstrip("=")
    asked = following(ASKED["gemini"], shown, "gemini")
    asked["contents"][1] = content
    sent = tw.translate(asked, "gemini", issuer, carrier=CARRIER).value
    assert turns(sent, issuer)[1:] == turns(following(ASKED[issuer], answer, issuer), issuer)[1:]


SPOILT: dict[str, Callable[[str], str]] = {
    "forged": lambda carry: carry[:-9] + ("A" if carry[-9] != "A" else "B") + carry[-8:],
    "cut": lambda carry: carry[: len(carry) // 2],
    "none": lambda carry: "tw1.",
}
OTHERS = {
    "another key": Carrier([b"x" * 32], "tenant", realm="upstream", model="m"),
    "another tenant": Carrier([KEY], "other", realm="upstream", model="m"),
    "another realm": Carrier([KEY], "tenant", realm="other", model="m"),
    "another model": Carrier([KEY], "tenant", realm="upstream", model="other"),
    "no key": None,
}


def never_sent(body: dict[str, Any], case: str, client: str, carrier: Carrier | None) -> None:
    """Nothing of the proofs or of their carries is in the next request, and each is reported where it stood."""
    issuer, answer = ANSWERS[case]
    sent = tw.translate(body, client, issuer, carrier=carrier)
    text = json.dumps(sent.value)
    assert not [data for _, data in proofs(answer) if data in text]
    assert not [data for _, data in proofs(sent.value) if is_carry(data)]
    name = HISTORY.get(client, "messages")
    carries = [f"/{name}{path}" for path, data in proofs(body[name]) if data.startswith(("tw1.", "dHcxL"))]
    assert carries
    assert set(carries) <= {loss.path for loss in sent.losses if loss.kind == "dropped"}


@pytest.mark.parametrize("who", OTHERS)
@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_what_was_sealed_for_someone_else_is_never_sent(case: str, client: str, who: str) -> None:
    never_sent(following(ASKED[client], told(case, client), client), case, client, OTHERS[who])


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_what_was_spoilt_is_never_sent(case: str, client: str, how: str) -> None:
    body = following(ASKED[client], told(case, client), client)
    text = json.dumps(body)
    for _, carry in proofs(body):
        spoilt = SPOILT[how](carry)
        text = text.replace(carry, spoilt if is_carry(spoilt) else "tw1." + spoilt)
    never_sent(json.loads(text), case, client, CARRIER)


@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_what_belongs_to_another_history_is_never_sent(case: str, client: str) -> None:
    body = following(ASKED[client], told(case, client), client)
    edited = json.loads(json.dumps(body).replace("Weather?", "Snow?"))
    never_sent(edited, case, client, CARRIER)


@pytest.mark.parametrize(("case", "client"), CYCLES)
def test_without_a_key_the_loss_is_reported_where_the_proof_stood(case: str, client: str) -> None:
    issuer, answer = ANSWERS[case]
    encoded = tw.translate(answer, issuer, client, "response", request=ASKED[client])
    shown = [data for _, data in proofs(encoded.value)]
    for path, data in some(proofs(answer)):
        # Or it was all that a text had, which is gone with it.
        places = {path, path.removesuffix("/thoughtSignature")}
        assert (data in shown) != bool(places & {loss.path for loss in encoded.losses})


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("case", "client"), NO_FIELD)
def test_where_there_is_no_field_each_proof_is_a_reported_loss(case: str, client: str, *, stream: bool) -> None:
    issuer, answer = ANSWERS[case]
    if stream:
        events = tw.translate_stream(streamed(answer, issuer), issuer, client, carrier=CARRIER)
        text, losses = b"".join(events).decode(), events.losses
    else:
        encoded = tw.translate(answer, issuer, client, "response", carrier=CARRIER)
        text, losses = encoded.to_bytes().decode(), encoded.losses
    assert not [data for _, data in proofs(answer) if data in text]
    assert {path for path, _ in proofs(answer)} <= {loss.path for loss in losses}


def test_the_documentation_says_where_each_client_has_its_carries() -> None:
    page = (Path(__file__).parents[1] / "docs" / "concepts" / "continuity.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"^\| `([a-z-]+)` \| `?([a-z_A-Z-]+)`? \|", page, re.MULTILINE))
    found = dict.fromkeys(PROTOCOLS, "-")
    for case, client in CYCLES:
        (found[client],) = {path.rpartition("/")[2] for path, _ in proofs(told(case, client))}
    assert said == found
