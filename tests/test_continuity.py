"""A proof of reasoning survives a tool cycle through a client of another protocol, and comes back to its issuer."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from toolwire.canonical.content import Reasoning
from toolwire.canonical.fold import fold, unfold
from toolwire.canonical.request import Request
from toolwire.codec.carries import Carrier, restore_carries
from toolwire.codec.interface import Context, Route, Target
from toolwire.protocols import PROTOCOLS

KEY = b"k" * 32
CALL = {"name": "get_weather", "arguments": {"city": "Paris"}}

# What each provider answers: sealed reasoning, then a call.
ANSWERS: dict[str, dict[str, Any]] = {
    "anthropic": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5-5",
        "content": [
            {"type": "thinking", "thinking": "Paris, then.", "signature": "EqQBsigned+/=="},
            {"type": "tool_use", "id": "toolu_1", "name": CALL["name"], "input": CALL["arguments"]},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 7},
    },
    "openai-responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "gpt-6-astra",
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAsealed+/=="},
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": CALL["name"],
                "arguments": json.dumps(CALL["arguments"]),
                "status": "completed",
            },
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    },
}
PROOFS = {"anthropic": "EqQBsigned+/==", "openai-responses": "gAAAAsealed+/=="}
PAIRS = [("anthropic", "openai-responses"), ("openai-responses", "anthropic")]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("issuer", "client"), PAIRS)
def test_the_proof_comes_back_byte_for_byte(issuer: str, client: str, *, streamed: bool) -> None:
    following = _next_request(issuer, client, streamed=streamed)
    restored, missing = restore_carries(following, Carrier([KEY]))
    assert missing == []
    sent = PROTOCOLS[issuer].encode_request(restored, Target()).to_bytes().decode()
    assert sent.count(PROOFS[issuer]) == 1
    assert "tw1." not in sent


@pytest.mark.parametrize(("issuer", "client"), PAIRS)
@pytest.mark.parametrize("carrier", [Carrier([b"x" * 32]), Carrier([KEY], tenant="other"), None])
def test_what_we_did_not_seal_is_never_sent(issuer: str, client: str, carrier: Carrier | None) -> None:
    restored, missing = restore_carries(_next_request(issuer, client, streamed=False), carrier)
    assert missing
    sent = PROTOCOLS[issuer].encode_request(restored, Target()).to_bytes().decode()
    assert PROOFS[issuer] not in sent
    assert "tw1." not in sent


@pytest.mark.parametrize(("issuer", "client"), PAIRS)
def test_without_a_key_the_loss_is_reported(issuer: str, client: str) -> None:
    response = PROTOCOLS[issuer].decode_response(json.dumps(ANSWERS[issuer]).encode(), Context())
    encoding = PROTOCOLS[client].encode_response(response, Context())
    losses = encoding.report.resolve(response, PROTOCOLS[issuer].names)
    places = {"anthropic": "/content/0/signature", "openai-responses": "/output/0/encrypted_content"}
    assert places[issuer] in [loss.path for loss in losses]


def _next_request(issuer: str, client: str, *, streamed: bool) -> Request:
    """What the client sends next: the answer as it got it, echoed as its protocol wants, and the result."""
    context = Context(carrier=Carrier([KEY]))
    answer = PROTOCOLS[issuer].decode_response(json.dumps(ANSWERS[issuer]).encode(), Context())
    if streamed:
        encoder = PROTOCOLS[issuer].stream_encoder(Context())
        wire = encoder.encode(unfold(answer)) + encoder.close()
        decoder = PROTOCOLS[issuer].stream_decoder(Context())
        events = [*decoder.feed(wire), *decoder.close()]
        shown = PROTOCOLS[client].stream_encoder(context)
        heard = PROTOCOLS[client].stream_decoder(Context())
        told = fold([*heard.feed(shown.encode(events) + shown.close()), *heard.close()])
    else:
        body = PROTOCOLS[client].encode_response(answer, context).to_bytes()
        told = PROTOCOLS[client].decode_response(body, Context())
    assert any(isinstance(part, Reasoning) for message in told.candidates[0].messages for part in message.parts)
    asked = Request(origin=told.origin, model="m", messages=told.candidates[0].messages)
    echoed = PROTOCOLS[client].encode_request(asked, Target()).to_bytes()
    return replace(PROTOCOLS[client].decode_request(echoed, Route()), origin=told.origin)
