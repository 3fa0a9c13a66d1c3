"""Unsigned reasoning returns to the model with its calls, through clients that drop or shorten it."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.signed_responses import ENVELOPE_CLIENTS, ENVELOPE_KEY, history_of, signature_fields_in
from tests.support.bodies.tool_cycles import (
    FIRST_REQUESTS,
    TOOL_ARGUMENTS,
    TOOL_NAME,
    decode_response_stream,
    encode_response_stream,
    interactions_call_response,
    next_request,
)
from toolwire.codec.envelope import EnvelopeKey, is_envelope

THOUGHT = "Paris, then.\nNot Rome."
MODELS = {"openai-chat": "deepseek-chat", "ollama": "qwen3", "openrouter": "deepseek/deepseek-chat"}


def chat(message: dict[str, Any], reason: str = "tool_calls") -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


CALL = {"id": "call_1", "type": "function", "function": {"name": TOOL_NAME, "arguments": '{"city":"Paris"}'}}
MESSAGE = {"reasoning_content": THOUGHT, "content": "I look.", "tool_calls": [CALL]}
RESPONSE_BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": chat({**MESSAGE, "content": None}),
    "ollama": {
        "model": "m",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {
            "role": "assistant",
            "content": "",
            "thinking": THOUGHT,
            "tool_calls": [{"function": {"index": 0, "name": TOOL_NAME, "arguments": TOOL_ARGUMENTS}}],
        },
        "done": True,
        "done_reason": "stop",
    },
    "openrouter": chat({"content": None, "reasoning": THOUGHT, "tool_calls": [CALL]}),
}
CYCLES = [(issuer, client) for issuer in RESPONSE_BODIES for client in ENVELOPE_CLIENTS if client != issuer]


def client_response(
    response: dict[str, Any],
    issuer: str,
    client: str,
    *,
    stream: bool = False,
    envelope_key: EnvelopeKey | None = ENVELOPE_KEY,
) -> Any:
    """Return the response as the client receives it."""
    request = FIRST_REQUESTS[client]
    if stream:
        events = tw.translate_stream(
            encode_response_stream(response, issuer), issuer, client, request, envelope_key=envelope_key
        )
        return decode_response_stream(b"".join(events), client)
    return tw.translate(response, issuer, client, "response", request=request, envelope_key=envelope_key).value


def client_request(response: dict[str, Any], client: str) -> dict[str, Any]:
    """Build the next request of the client: opencode drops unsigned thinking, Codex keeps only the summary."""
    if client == "anthropic":
        blocks = [block for block in response["content"] if block["type"] != "thinking" or block["signature"]]
        response = {**response, "content": blocks}
    if client == "openai-responses":
        items = [{**item, "content": None} if item["type"] == "reasoning" else item for item in response["output"]]
        response = {**response, "output": items}
    return next_request(FIRST_REQUESTS[client], response, client)


def restored_history(response: dict[str, Any], issuer: str, client: str, model: str | None = None) -> list[Any]:
    translated = tw.translate(
        client_request(response, client), client, issuer, model=model or MODELS[issuer], envelope_key=ENVELOPE_KEY
    )
    return history_of(translated.value, issuer)[1:]


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize(("issuer", "client"), CYCLES)
def test_the_model_receives_its_reasoning_before_a_call(issuer: str, client: str, *, stream: bool) -> None:
    response = RESPONSE_BODIES[issuer]
    restored = restored_history(client_response(response, issuer, client, stream=stream), issuer, client)
    expected = history_of(next_request(FIRST_REQUESTS[issuer], response, issuer), issuer)[1:]
    assert _comparable(restored) == _comparable(expected)


def _comparable(messages: list[Any]) -> Any:
    """Remove the call ids, which Ollama adds, and empty values."""
    first, *others = messages
    calls = [{name: value for name, value in call.items() if name != "id"} for call in first["tool_calls"]]
    return {**{name: value for name, value in first.items() if value}, "tool_calls": calls}, len(others)


@pytest.mark.parametrize("client", ENVELOPE_CLIENTS)
def test_text_before_a_call_stays_after_the_reasoning(client: str) -> None:
    restored = restored_history(
        client_response(chat(MESSAGE), "openai-chat", client, stream=True), "openai-chat", client
    )
    assert {name: restored[0][name] for name in ("reasoning_content", "content")} == {
        "reasoning_content": THOUGHT,
        "content": "I look.",
    }


def test_responses_without_calls_get_no_envelope() -> None:
    """Models need their reasoning back only with a call."""
    response = chat({"reasoning_content": THOUGHT, "content": "Dry."}, "stop")
    parts = client_response(response, "openai-chat", "gemini")["candidates"][0]["content"]["parts"]
    assert parts == [{"text": THOUGHT, "thought": True}, {"text": "Dry."}]


@pytest.mark.parametrize("client", [client for client in ENVELOPE_CLIENTS if client != "gemini-interactions"])
def test_a_summary_gets_no_envelope(client: str) -> None:
    """A summary is for people. Google's models sign their calls elsewhere."""
    response = interactions_call_response({"type": "thought", "summary": [{"type": "text", "text": "Paris."}]})
    assert not [
        proof
        for _, proof in signature_fields_in(client_response(response, "gemini-interactions", client))
        if is_envelope(proof)
    ]


def test_unsigned_reasoning_is_not_sent_to_models_that_sign() -> None:
    response = client_response(RESPONSE_BODIES["ollama"], "ollama", "anthropic")
    assert is_envelope(response["content"][0]["signature"])
    for envelope_key in (ENVELOPE_KEY, EnvelopeKey([b"k" * 32], "tenant", realm="elsewhere", model="m")):
        translated = tw.translate(
            client_request(response, "anthropic"), "anthropic", "anthropic", envelope_key=envelope_key
        ).value
        assert [block["type"] for block in translated["messages"][1]["content"]] == ["tool_use"]
