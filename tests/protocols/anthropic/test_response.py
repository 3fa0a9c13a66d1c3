"""Responses of other protocols, encoded for Anthropic clients."""

from tests.support.bodies.minimal import chat_call, chat_response, chat_stream
from tests.support.bodies.readers import stream_frames
from tests.support.protocols import ANTHROPIC, CHAT
from tests.support.sdk.validation import accept_response
from tests.support.translation import translate_stream_bytes, translated_body

REQUIRED = {
    "message": {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence"}
    | {"stop_details", "container", "usage"},
    "usage": {"input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"}
    | {"cache_creation", "output_tokens_details", "server_tool_use", "service_tier", "inference_geo"},
}


def test_response_has_all_required_fields() -> None:
    body = chat_response({"role": "assistant", "content": "Hm.", "tool_calls": [chat_call("call_1")]})
    translated = translated_body(body, CHAT, ANTHROPIC, "response")
    assert accept_response(ANTHROPIC, translated) is None
    assert (set(translated), set(translated["usage"])) == (REQUIRED["message"], REQUIRED["usage"])
    text, call = translated["content"]
    assert (text["citations"], call["caller"]) == ([], {"type": "direct"})


def test_message_start_has_all_required_fields() -> None:
    message = stream_frames(
        translate_stream_bytes(chat_stream({"content": "Hm."}, finish_reason="stop"), CHAT, ANTHROPIC)
    )[0]["message"]
    assert (set(message), set(message["usage"])) == (REQUIRED["message"], REQUIRED["usage"])


def test_unknown_counts_are_null() -> None:
    body = chat_response({"role": "assistant", "content": "Hm."}, "stop")
    usage = translated_body(body, CHAT, ANTHROPIC, "response")["usage"]
    assert usage["server_tool_use"] is usage["service_tier"] is usage["cache_creation"] is None
