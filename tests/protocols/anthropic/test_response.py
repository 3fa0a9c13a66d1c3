"""Anthropic's answers, made of those of other protocols."""

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


def test_an_answer_of_another_protocol_has_all_that_the_specification_requires() -> None:
    body = chat_response({"role": "assistant", "content": "Hm.", "tool_calls": [chat_call("call_1")]})
    made = translated_body(body, CHAT, ANTHROPIC, "response")
    assert accept_response(ANTHROPIC, made) is None
    assert (set(made), set(made["usage"])) == (REQUIRED["message"], REQUIRED["usage"])
    text, call = made["content"]
    assert (text["citations"], call["caller"]) == ([], {"type": "direct"})


def test_so_has_the_message_that_a_stream_begins_with() -> None:
    started = stream_frames(
        translate_stream_bytes(chat_stream({"content": "Hm."}, finish_reason="stop"), CHAT, ANTHROPIC)
    )[0]["message"]
    assert (set(started), set(started["usage"])) == (REQUIRED["message"], REQUIRED["usage"])


def test_what_is_not_counted_is_null() -> None:
    body = chat_response({"role": "assistant", "content": "Hm."}, "stop")
    usage = translated_body(body, CHAT, ANTHROPIC, "response")["usage"]
    assert usage["server_tool_use"] is usage["service_tier"] is usage["cache_creation"] is None
