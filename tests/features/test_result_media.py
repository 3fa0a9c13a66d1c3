"""Media in tool results for every target: native media, media after the results, or one line of text."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import PNG_BASE64, anthropic_call, anthropic_result, anthropic_turn
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES

GEMINI, INTERACTIONS, OLLAMA, ROUTER = "gemini", "gemini-interactions", "ollama", "openrouter"
TARGETS = (ANTHROPIC, CHAT, RESPONSES, GEMINI, INTERACTIONS, OLLAMA, ROUTER)
PDF, WAV = "JVBERi0=", "UklGRg=="
MEDIA_PATH = "/contents/2/parts/0/functionResponse/parts/0"
DATA = {"image/png": PNG_BASE64, "application/pdf": PDF, "audio/wav": WAV}
# Media that a target does not support: a line of text replaces them, and the loss is reported.
UNSUPPORTED = {
    (ANTHROPIC, "audio/wav"),
    (RESPONSES, "audio/wav"),
    (OLLAMA, "application/pdf"),
    (OLLAMA, "audio/wav"),
}


def file_result_request(media_type: str) -> dict[str, Any]:
    """Build a Gemini request in which a tool returned a file."""
    blob = {"inlineData": {"mimeType": media_type, "data": DATA[media_type]}}
    response = {"id": "c1", "name": "read", "response": {"output": "Read."}, "parts": [blob]}
    return {
        "contents": [
            {"role": "user", "parts": [{"text": "Go"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "read", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": response}]},
        ]
    }


@pytest.mark.parametrize("media_type", DATA)
@pytest.mark.parametrize("target", [target for target in TARGETS if target != GEMINI])
def test_media_are_sent_natively_or_replaced_by_a_line_of_text(target: str, media_type: str) -> None:
    translated = tw.translate(file_result_request(media_type), GEMINI, target, model="m")
    text = translated.to_bytes().decode()
    assert (DATA[media_type] in text) is ((target, media_type) not in UNSUPPORTED)
    if (target, media_type) in UNSUPPORTED:
        assert any(loss.kind == "dropped" and loss.path.startswith(MEDIA_PATH) for loss in translated.losses)
        assert f"Binary content of type {media_type} was processed." in text


@pytest.mark.parametrize("media_type", DATA)
@pytest.mark.parametrize("target", [target for target in TARGETS if target != GEMINI])
def test_a_summary_is_one_line_of_text(target: str, media_type: str) -> None:
    translated = tw.translate(file_result_request(media_type), GEMINI, target, model="m", binary_results="summary")
    text = translated.to_bytes().decode()
    assert DATA[media_type] not in text
    assert f"Binary content of type {media_type} was processed." in text
    assert ("approximated", MEDIA_PATH) in [(loss.kind, loss.path) for loss in translated.losses]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}}
IMAGE_RESULT = anthropic_turn(
    [anthropic_call("toolu_1")], [anthropic_result("toolu_1", [{"type": "text", "text": "A"}, IMAGE])]
)


def test_media_stand_in_results_since_gemini_3_and_beside_them_before() -> None:
    blob = {"inlineData": {"mimeType": "image/png", "data": PNG_BASE64}}
    later = tw.translate(IMAGE_RESULT, ANTHROPIC, GEMINI, model="gemini-3-pro").value["contents"][-1]["parts"]
    assert [part["functionResponse"]["parts"] for part in later] == [[blob]]
    early = tw.translate(IMAGE_RESULT, ANTHROPIC, GEMINI, model="gemini-2.5-pro").value["contents"][-1]["parts"]
    assert early[1:] == [blob]
    assert "parts" not in early[0]["functionResponse"]
    for model in ("gemini-3-pro", "gemini-2.5-pro"):
        body = tw.translate(IMAGE_RESULT, ANTHROPIC, GEMINI, model=model).value
        (result,) = tw.translate(body, GEMINI, ANTHROPIC, model=model).value["messages"][-1]["content"]
        assert result["content"] == [{"type": "text", "text": "A"}, IMAGE]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (RESPONSES, {"type": "input_image", "image_url": f"data:image/png;base64,{PNG_BASE64}", "detail": "auto"}),
        (INTERACTIONS, {"type": "image", "mime_type": "image/png", "data": PNG_BASE64}),
    ],
)
def test_media_stand_in_the_result(target: str, expected: Any) -> None:
    item = tw.translate(IMAGE_RESULT, ANTHROPIC, target).value["input"][-1]
    assert item["output" if target == RESPONSES else "result"][1] == expected


def test_ollama_has_images_beside_the_text_of_a_result() -> None:
    message = tw.translate(IMAGE_RESULT, ANTHROPIC, OLLAMA).value["messages"][-1]
    assert (message["role"], message["content"], message["images"]) == ("tool", "A", [PNG_BASE64])


def test_media_follow_the_results_in_chat_and_stand_in_them_in_openrouter() -> None:
    *_, tool_message, user_message = tw.translate(IMAGE_RESULT, ANTHROPIC, CHAT).value["messages"]
    assert (tool_message["role"], user_message["role"]) == ("tool", "user")
    assert PNG_BASE64 not in str(tool_message)
    assert user_message["content"][1] == {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{PNG_BASE64}"},
    }
    last = tw.translate(IMAGE_RESULT, ANTHROPIC, ROUTER).value["messages"][-1]
    assert (last["role"], last["content"][1]["type"]) == ("tool", "image_url")
