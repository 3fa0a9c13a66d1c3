"""Responses with signed reasoning of each issuer, and a search for their signature fields."""

from typing import Any

from tests.support.bodies.tool_cycles import (
    HISTORY_FIELDS,
    anthropic_call_response,
    gemini_call_part,
    gemini_call_response,
    interactions_call_response,
    openrouter_call_response,
    responses_call_response,
)
from toolwire.codec.envelope import EnvelopeKey
from toolwire.protocols import PROTOCOLS

ENVELOPE_SECRET = b"k" * 32
ENVELOPE_KEY = EnvelopeKey([ENVELOPE_SECRET], "tenant", realm="upstream", model="m")
ENVELOPE_CLIENTS = [name for name, codec in PROTOCOLS.items() if codec.envelope_field is not None]

SIGNED_THINKING = {"type": "thinking", "thinking": "Paris, then.", "signature": "EqQBsigned+/=="}
SIGNED_RESPONSES = {
    "anthropic": ("anthropic", anthropic_call_response(SIGNED_THINKING)),
    "anthropic, redacted": (
        "anthropic",
        anthropic_call_response(SIGNED_THINKING, {"type": "redacted_thinking", "data": "EmwKhidden+/=="}),
    ),
    "anthropic, nothing to read": (
        "anthropic",
        anthropic_call_response({**SIGNED_THINKING, "thinking": ""}, {"type": "text", "text": "So."}),
    ),
    "openai-responses": (
        "openai-responses",
        responses_call_response(
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAsealed+/=="}
        ),
    ),
    "openai-responses, with a summary": (
        "openai-responses",
        responses_call_response(
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
                "encrypted_content": "gAAAAsealed+/==",
            }
        ),
    ),
    "gemini, on a call": ("gemini", gemini_call_response(gemini_call_part(thoughtSignature="CiMBcall+/=="))),
    "gemini, on a text": (
        "gemini",
        gemini_call_response(
            {"text": "I look.", "thoughtSignature": "CiMBtext+/=="}, gemini_call_part(thoughtSignature="CiMBcall+/==")
        ),
    ),
    "gemini, on the end": (
        "gemini",
        gemini_call_response({"text": "Dry."}, {"text": "", "thoughtSignature": "CiMBlast+/=="}),
    ),
    "gemini-interactions": (
        "gemini-interactions",
        interactions_call_response({"type": "thought", "signature": "CtkBstep+/=="}),
    ),
    "gemini-interactions, with a summary": (
        "gemini-interactions",
        interactions_call_response(
            {"type": "thought", "signature": "CtkBstep+/==", "summary": [{"type": "text", "text": "Paris, then."}]}
        ),
    ),
    "openrouter, Anthropic's": (
        "openrouter",
        openrouter_call_response(
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
        openrouter_call_response(
            {"type": "reasoning.summary", "summary": "Paris.", "format": "openai-responses-v1", "index": 0},
            {"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "format": "openai-responses-v1", "index": 1},
        ),
    ),
    "openrouter, Google's": (
        "openrouter",
        openrouter_call_response(
            {"type": "reasoning.encrypted", "data": "CiMB", "id": "call_1", "format": "google-gemini-v1", "index": 0}
        ),
    ),
}

# The fields in which each issuer returns signatures.
SIGNATURE_FIELDS = ("signature", "thoughtSignature", "encrypted_content", "data")


def history_of(body: dict[str, Any], protocol: str) -> list[Any]:
    history: list[Any] = body[HISTORY_FIELDS.get(protocol, "messages")]
    return history


def signature_fields_in(value: Any, path: str = "") -> list[tuple[str, str]]:
    """Return every signature field of a body with its path."""
    if isinstance(value, list):
        return [entry for index, inner in enumerate(value) for entry in signature_fields_in(inner, f"{path}/{index}")]
    if not isinstance(value, dict):
        return []
    fields = [
        (f"{path}/{name}", value[name]) for name in SIGNATURE_FIELDS if isinstance(value.get(name), str) and value[name]
    ]
    return fields + [entry for name, inner in value.items() for entry in signature_fields_in(inner, f"{path}/{name}")]
