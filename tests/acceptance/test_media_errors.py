"""Media in tool results (IM-1 to IM-6)."""

import json
from typing import Any

import pytest

from tests.support.bodies.minimal import PNG_BASE64, anthropic_call, anthropic_result, anthropic_turn
from tests.support.bodies.readers import message_roles, responses_items
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES
from tests.support.translation import has_loss_at, loss_paths, translated_body

TEXT: dict[str, Any] = {"type": "text", "text": "A map."}
IMAGE: dict[str, Any] = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64},
}
PDF: dict[str, Any] = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
}


def request_with_result_content(*content: dict[str, Any]) -> dict[str, Any]:
    """Build a request whose first of two results holds these blocks."""
    results = [anthropic_result("toolu_1", list(content)), anthropic_result("toolu_2", "18C")]
    return anthropic_turn([anthropic_call("toolu_1"), anthropic_call("toolu_2")], results)


@pytest.mark.parametrize("model", ["gemini-3-pro", "gemini-2.5-pro"])
def test_im_1_an_image_in_a_result_for_gemini_is_bound_to_it(model: str) -> None:
    body = anthropic_turn([anthropic_call("toolu_1")], [anthropic_result("toolu_1", [TEXT, IMAGE])])
    parts = translated_body(body, ANTHROPIC, "gemini", model=model)["contents"][2]["parts"]
    blob = {"inlineData": {"mimeType": "image/png", "data": PNG_BASE64}}
    media = parts[0]["functionResponse"].get("parts") if model == "gemini-3-pro" else parts[1:]
    assert media == [blob]


@pytest.mark.parametrize("model", ["gemini-3-pro", "gemini-2.5-pro"])
def test_im_3_images_of_parallel_results_stay_with_their_results(model: str) -> None:
    images = [{**IMAGE, "source": {**IMAGE["source"], "data": data}} for data in ("aaaa", "bbbb")]
    results = [anthropic_result(f"toolu_{index}", [image]) for index, image in enumerate(images)]
    body = anthropic_turn([anthropic_call("toolu_0"), anthropic_call("toolu_1")], results)
    translated = translated_body(body, ANTHROPIC, "gemini", model=model)
    restored = translated_body(translated, "gemini", ANTHROPIC, model=model)["messages"][2]["content"]
    assert [(image["tool_use_id"], image["content"]) for image in restored] == [
        ("toolu_0", [images[0]]),
        ("toolu_1", [images[1]]),
    ]


def test_im_2_an_image_in_a_result_follows_the_tool_messages() -> None:
    body = request_with_result_content(TEXT, IMAGE)
    translated = translated_body(body, ANTHROPIC, CHAT)
    assert message_roles(translated) == ["user", "assistant", "tool", "tool", "user"]
    tool_content = translated["messages"][2]["content"]
    assert "A map." in str(tool_content)
    assert PNG_BASE64 not in str(tool_content)
    urls = [part["image_url"]["url"] for part in translated["messages"][4]["content"] if part["type"] == "image_url"]
    assert urls == [f"data:image/png;base64,{PNG_BASE64}"]
    output = responses_items(translated_body(body, ANTHROPIC, RESPONSES))[3]["output"]
    assert [part["type"] for part in output] == ["input_text", "input_image"]
    assert output[1]["image_url"] == f"data:image/png;base64,{PNG_BASE64}"


def test_im_4_a_document_in_a_result_is_a_native_part() -> None:
    output = responses_items(translated_body(request_with_result_content(TEXT, PDF), ANTHROPIC, RESPONSES))[3]["output"]
    assert [part["type"] for part in output] == ["input_text", "input_file"]
    assert output[1]["file_data"].endswith("JVBERi0=")


def test_im_5_a_list_of_texts_becomes_a_string_unless_it_has_media() -> None:
    items = responses_items(
        translated_body(request_with_result_content(TEXT, {"type": "text", "text": " Of Paris."}), ANTHROPIC, RESPONSES)
    )
    assert isinstance(items[3]["output"], str)
    assert "A map." in items[3]["output"]
    assert " Of Paris." in items[3]["output"]


def test_im_6_a_file_in_a_result_is_not_dropped_silently() -> None:
    body = request_with_result_content(TEXT, PDF)
    translated = translated_body(body, ANTHROPIC, CHAT)
    (file_part,) = [part for part in translated["messages"][4]["content"] if part["type"] == "file"]
    assert file_part["file"]["file_data"].endswith("JVBERi0=")
    assert has_loss_at(loss_paths(body, ANTHROPIC, CHAT), "/messages/2/content/0/content/1")
    summarized = translated_body(body, ANTHROPIC, RESPONSES, binary_results="summary")
    assert "JVBERi0=" not in json.dumps(summarized)
    assert "application/pdf" in str(responses_items(summarized)[3]["output"])
