"""Gemini's signatures and streamed arguments through every client (TH-1, TH-3, TH-4, TH-9, TH-10, ST-32)."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import anthropic_turn, chat_turn, responses_turn
from tests.support.bodies.readers import stream_frames
from tests.support.bodies.tool_cycles import (
    FIRST_REQUESTS,
    TOOL_ARGUMENTS,
    TOOL_NAME,
    anthropic_call_response,
    decode_response_stream,
    encode_response_stream,
    gemini_call_part,
    gemini_call_response,
    interactions_call_response,
    next_request,
    openrouter_call_response,
    responses_call_response,
)
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES
from tests.support.sdk.validation import fold_stream
from toolwire.codec.envelope import EnvelopeKey

ENVELOPE_KEY = EnvelopeKey([b"k" * 32], "tenant", realm="upstream", model="m")
SIGNATURE = "CiMBsigned+/=="
SKIP_SIGNATURE = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
CLIENTS = [ANTHROPIC, RESPONSES, "gemini-interactions", "openrouter"]
CLIENTS_WITHOUT_FIELD = [CHAT, "ollama"]
UNSIGNED = {
    ANTHROPIC: anthropic_turn(
        [{"type": "tool_use", "id": f"c{n}", "name": TOOL_NAME, "input": {}} for n in (1, 2)],
        [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "18"} for n in (1, 2)],
    ),
    CHAT: chat_turn(
        [{"id": f"c{n}", "type": "function", "function": {"name": TOOL_NAME, "arguments": "{}"}} for n in (1, 2)],
        [{"role": "tool", "tool_call_id": f"c{n}", "content": "18"} for n in (1, 2)],
    ),
    RESPONSES: responses_turn(
        [{"type": "function_call", "call_id": f"c{n}", "name": TOOL_NAME, "arguments": "{}"} for n in (1, 2)],
        [{"type": "function_call_output", "call_id": f"c{n}", "output": "18"} for n in (1, 2)],
    ),
}


def complete_cycle(response: dict[str, Any], issuer: str, client: str, *, stream: bool = False) -> dict[str, Any]:
    """Return the request that the issuer receives after one turn through this client."""
    request = FIRST_REQUESTS[client]
    if stream:
        wire = b"".join(
            tw.translate_stream(
                encode_response_stream(response, issuer), issuer, client, request, envelope_key=ENVELOPE_KEY
            )
        )
        client_response = decode_response_stream(wire, client)
    else:
        client_response = tw.translate(
            response, issuer, client, "response", request=request, envelope_key=ENVELOPE_KEY
        ).value
    translated: dict[str, Any] = tw.translate(
        next_request(request, client_response, client), client, issuer, envelope_key=ENVELOPE_KEY
    ).value
    return translated


def signatures_in(value: Any) -> list[str]:
    if isinstance(value, list):
        return [nested for inner in value for nested in signatures_in(inner)]
    if not isinstance(value, dict):
        return []
    signature = [value["thoughtSignature"]] if "thoughtSignature" in value else []
    return signature + [nested for inner in value.values() for nested in signatures_in(inner)]


@pytest.mark.parametrize("client", [*CLIENTS, *CLIENTS_WITHOUT_FIELD])
def test_th_1_a_call_keeps_its_signature_or_skips_the_check_and_reports_it(client: str) -> None:
    second = {"functionCall": {"id": "call_2", "name": TOOL_NAME, "args": {}}}
    response = gemini_call_response(gemini_call_part(thoughtSignature=SIGNATURE), second)
    client_response = tw.translate(
        response, "gemini", client, "response", request=FIRST_REQUESTS[client], envelope_key=ENVELOPE_KEY
    )
    translated = tw.translate(
        next_request(FIRST_REQUESTS[client], client_response.value, client), client, "gemini", envelope_key=ENVELOPE_KEY
    )
    first, other = translated.value["contents"][1]["parts"]
    invented = [loss.target for loss in translated.losses if loss.kind == "added"]
    assert "thoughtSignature" not in other
    lost = "/candidates/0/content/parts/0/thoughtSignature" in {loss.path for loss in client_response.losses}
    if client in CLIENTS_WITHOUT_FIELD:
        assert (first["thoughtSignature"], lost) == (SKIP_SIGNATURE, True)
        assert "/contents/1/parts/0/thoughtSignature" in invented
    else:
        assert (first["thoughtSignature"], lost) == (SIGNATURE, False)
        assert "/contents/1/parts/0/thoughtSignature" not in invented


@pytest.mark.parametrize("source", UNSIGNED)
def test_an_unsigned_step_skips_the_signature_check_once(source: str) -> None:
    translated = tw.translate(UNSIGNED[source], source, "gemini", model="gemini-3-pro")
    assert signatures_in(translated.value) == [SKIP_SIGNATURE]
    (invented,) = [loss for loss in translated.losses if loss.kind == "added"]
    assert invented.target == "/contents/1/parts/0/thoughtSignature"
    assert not signatures_in(tw.translate(UNSIGNED[source], source, "gemini", model="gemini-2.5-pro").value)


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("client", CLIENTS)
def test_th_3_each_signature_stands_once_on_its_part(client: str, *, stream: bool) -> None:
    parts = [{"text": "Well.", "thoughtSignature": "CiMBtext"}, gemini_call_part(thoughtSignature=SIGNATURE)]
    issuer_request = complete_cycle(gemini_call_response(*parts), "gemini", client, stream=stream)
    assert issuer_request["contents"][1]["parts"] == parts
    assert signatures_in(issuer_request) == ["CiMBtext", SIGNATURE]


@pytest.mark.parametrize("spelling", [SIGNATURE, "CiMBsigned-_=="])
def test_a_repeated_signature_is_sent_once(spelling: str) -> None:
    """Interactions may have it on the thought and on the call, in either base64 alphabet."""
    body = next_request(
        FIRST_REQUESTS["gemini-interactions"],
        interactions_call_response({"type": "thought", "signature": SIGNATURE}),
        GI,
    )
    body["input"][2]["signature"] = spelling
    translated = tw.translate(body, GI, "gemini").value
    assert signatures_in(translated) == [spelling]


GI = "gemini-interactions"
GOOGLE_RESPONSES = {
    "Interactions": (GI, interactions_call_response({"type": "thought", "signature": SIGNATURE})),
    "OpenRouter": (
        "openrouter",
        openrouter_call_response(
            {"type": "reasoning.text", "signature": SIGNATURE, "format": "google-gemini-v1", "index": 0}
        ),
    ),
    "OpenRouter, by the call": (
        "openrouter",
        openrouter_call_response(
            {"type": "reasoning.encrypted", "data": SIGNATURE, "id": "call_1", "format": "google-gemini-v1", "index": 0}
        ),
    ),
}


@pytest.mark.parametrize("case", GOOGLE_RESPONSES)
def test_google_signatures_move_to_the_call(case: str) -> None:
    source, response = GOOGLE_RESPONSES[case]
    translated = tw.translate(next_request(FIRST_REQUESTS[source], response, source), source, "gemini")
    assert translated.value["contents"][1]["parts"] == [gemini_call_part(thoughtSignature=SIGNATURE)]
    assert not [loss for loss in translated.losses if loss.kind == "added"]
    gemini_response = tw.translate(response, source, "gemini", "response").value
    assert gemini_response["candidates"][0]["content"]["parts"] == [gemini_call_part(thoughtSignature=SIGNATURE)]
    wire = b"".join(tw.translate_stream(encode_response_stream(response, source), source, "gemini"))
    assert signatures_in([frame["candidates"] for frame in stream_frames(wire)]) == [SIGNATURE]
    decoded = decode_response_stream(wire, "gemini")["candidates"][0]["content"]["parts"]
    assert decoded == [gemini_call_part(thoughtSignature=SIGNATURE)]


@pytest.mark.parametrize("target", [GI, "openrouter"])
def test_google_signatures_return_to_the_thought(target: str) -> None:
    response = gemini_call_response(gemini_call_part(thoughtSignature=SIGNATURE))
    translated = tw.translate(next_request(FIRST_REQUESTS["gemini"], response, "gemini"), "gemini", target).value
    if target == GI:
        assert translated["input"][1] == {"type": "thought", "signature": SIGNATURE}
    else:
        (entry,) = translated["messages"][1]["reasoning_details"]
        assert entry == {
            "type": "reasoning.encrypted",
            "data": SIGNATURE,
            "id": "call_1",
            "format": "google-gemini-v1",
            "index": 0,
        }


@pytest.mark.parametrize("client", CLIENTS)
def test_th_4_the_signatures_of_a_stream_are_kept_part_by_part(client: str) -> None:
    parts = [
        {"text": "One "},
        {"text": "more.", "thoughtSignature": "c2lnMQ=="},
        gemini_call_part(thoughtSignature="c2lnMg=="),
    ]
    wire = b"".join(b"data: " + json.dumps(gemini_call_response(part)).encode() + b"\n\n" for part in parts)
    translated = b"".join(tw.translate_stream([wire], "gemini", "gemini"))
    translated_parts = [
        part for frame in stream_frames(translated) for part in frame["candidates"][0]["content"]["parts"]
    ]
    assert [part for part in translated_parts if "thoughtSignature" in part] == parts[1:]
    client_response = decode_response_stream(
        b"".join(tw.translate_stream([wire], "gemini", client, FIRST_REQUESTS[client], envelope_key=ENVELOPE_KEY)),
        client,
    )
    issuer_request = tw.translate(
        next_request(FIRST_REQUESTS[client], client_response, client), client, "gemini", envelope_key=ENVELOPE_KEY
    ).value
    assert signatures_in(issuer_request) == ["c2lnMQ==", "c2lnMg=="]
    assert [part for part in issuer_request["contents"][1]["parts"] if "functionCall" in part] == parts[2:]


REASONING_ITEM = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Hm, Paris."}],
    "encrypted_content": "gAAAAABencrypted",
}
REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgB"}


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("client", [ANTHROPIC, "gemini", GI, "openrouter"])
def test_th_9_a_reasoning_item_survives_every_client(client: str, *, stream: bool) -> None:
    issuer_request = complete_cycle(responses_call_response(REASONING_ITEM), RESPONSES, client, stream=stream)
    assert issuer_request["input"][1] == REASONING_ITEM
    assert issuer_request["input"][2]["type"] == "function_call"


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("client", [RESPONSES, "gemini", GI, "openrouter"])
def test_th_10_redacted_thinking_survives_every_client(client: str, *, stream: bool) -> None:
    issuer_request = complete_cycle(anthropic_call_response(REDACTED), ANTHROPIC, client, stream=stream)
    assert issuer_request["messages"][1]["content"][0] == REDACTED


@pytest.mark.parametrize("client", CLIENTS_WITHOUT_FIELD)
@pytest.mark.parametrize(
    ("issuer", "response", "path"),
    [
        (RESPONSES, responses_call_response(REASONING_ITEM), "/output/0/encrypted_content"),
        (ANTHROPIC, anthropic_call_response(REDACTED), "/content/0/data"),
    ],
)
def test_without_a_field_the_lost_signature_is_reported_at_its_position(
    issuer: str, response: dict[str, Any], path: str, client: str
) -> None:
    translated = tw.translate(response, issuer, client, "response", envelope_key=ENVELOPE_KEY)
    assert path in {loss.path for loss in translated.losses if loss.kind == "dropped"}
    assert not [
        signature for signature in ("gAAAAABencrypted", "EmwKAhgB") if signature in translated.to_bytes().decode()
    ]


PARTIAL_CALLS: list[dict[str, Any]] = [
    {"name": TOOL_NAME, "willContinue": True},
    {"partialArgs": [{"jsonPath": "$.city", "stringValue": "Pa", "willContinue": True}], "willContinue": True},
    {"willContinue": True},
    {"partialArgs": [{"jsonPath": "$.city", "stringValue": "ris", "willContinue": True}], "willContinue": True},
    {"partialArgs": [{"jsonPath": "$.city", "stringValue": ""}]},
]


@pytest.mark.parametrize(
    ("target", "kind", "field"),
    [
        (ANTHROPIC, "input_json_delta", "partial_json"),
        (CHAT, "tool_calls", "arguments"),
        (RESPONSES, "response.function_call_arguments.delta", "delta"),
        (GI, "arguments_delta", "arguments"),
        ("openrouter", "tool_calls", "arguments"),
    ],
)
def test_st_32_partial_arguments_of_gemini_are_streamed_as_they_arrive(target: str, kind: str, field: str) -> None:
    chunks = [
        b"data: " + json.dumps(gemini_call_response({"functionCall": piece})).encode() + b"\n\n"
        for piece in PARTIAL_CALLS
    ]
    translated = [data.decode() for data in tw.translate_stream(chunks, "gemini", target)]
    deltas = [data for data in translated if kind in data and field in data]
    assert [word for word in ("Pa", "ris") if any(word in data and "Paris" not in data for data in deltas)] == [
        "Pa",
        "ris",
    ]
    folded = fold_stream(target, "".join(translated).encode())
    assert [call["arguments"] for call in folded["calls"]] == [TOOL_ARGUMENTS]
