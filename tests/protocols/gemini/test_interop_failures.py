"""Interop failures reported for other gateways that concern Gemini; the test ids name them."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import anthropic_call, anthropic_request, anthropic_result, anthropic_turn

OTHERS = ("anthropic", "openai-chat", "openai-responses")
SIGNATURE = "EpwICpkIAXLI2nxlU6gsWZaZHRYkX1orzuM8vSUFwaAt1JRxEC2hJzPAcAu3PWaKz7X="
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def to_gemini(body: Any, source: str, **options: Any) -> Any:
    return tw.translate(body, source, "gemini", **options).value


def contents(body: Any) -> list[Any]:
    contents: list[Any] = body["contents"]
    return contents


def inner(body: Any, name: str) -> list[Any]:
    return [part[name] for content in contents(body) for part in content["parts"] if name in part]


def gemini_response(*parts: Any, reason: str = "STOP") -> Any:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": reason, "index": 0}
    return {"candidates": [candidate], "modelVersion": "gemini-3-flash", "responseId": "r1"}


def gemini_call(city: str, **fields: Any) -> Any:
    return {"functionCall": {"name": "get_weather", "args": {"city": city}, **fields}}


def events(*bodies: Any) -> bytes:
    return b"".join(f"data: {json.dumps(body)}\n\n".encode() for body in bodies)


def chunk(*parts: Any, reason: str | None = None) -> Any:
    body = gemini_response(*parts)
    if reason is None:
        del body["candidates"][0]["finishReason"]
    return body


def image_block(data: str = PNG) -> Any:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def test_im_1_an_image_in_a_result_stays_in_the_result() -> None:
    result = anthropic_result("c1", [{"type": "text", "text": "here"}, image_block()])
    encoded = to_gemini(anthropic_turn([anthropic_call("c1")], [result]), "anthropic", model="gemini-3-pro")
    (response,) = inner(encoded, "functionResponse")
    assert response["response"] == {"output": "here"}
    assert response["parts"] == [{"inlineData": {"mimeType": "image/png", "data": PNG}}]


def test_im_1_older_models_get_the_image_after_the_result() -> None:
    result = anthropic_result("c1", [{"type": "text", "text": "here"}, image_block()])
    encoded = to_gemini(anthropic_turn([anthropic_call("c1")], [result]), "anthropic", model="gemini-2.5-flash")
    parts = contents(encoded)[2]["parts"]
    assert [next(iter(part)) for part in parts] == ["functionResponse", "inlineData"]


@pytest.mark.parametrize("model", ["gemini-2.5-pro", "gemini-3-pro"])
def test_im_3_each_image_stays_with_its_own_result(model: str) -> None:
    calls = [anthropic_call("c1"), anthropic_call("c2")]
    results = [anthropic_result("c1", [image_block("aaaa")]), anthropic_result("c2", [image_block("bbbb")])]
    encoded = to_gemini(anthropic_turn(calls, results), "anthropic", model=model)
    round_trip = tw.translate(encoded, "gemini", "anthropic", model="m").value
    blocks = [block for message in round_trip["messages"] for block in message["content"] if isinstance(block, dict)]
    image_data = [block["content"][-1]["source"]["data"] for block in blocks if block["type"] == "tool_result"]
    assert image_data == ["aaaa", "bbbb"]


def test_sv_13_search_with_functions_requests_server_side_invocations() -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}, {"name": "f", "input_schema": {"type": "object"}}]
    translation = tw.translate(anthropic_request(tools=tools), "anthropic", "gemini", model="gemini-3-pro")
    assert translation.value["tools"][1] == {"googleSearch": {}}
    assert translation.value["toolConfig"] == {"includeServerSideToolInvocations": True}
    assert "/tools/0" in {loss.path for loss in translation.losses}
    older = tw.translate(anthropic_request(tools=tools), "anthropic", "gemini", model="gemini-2.5-pro")
    assert len(older.value["tools"]) == 1
    assert "/tools/0" in {loss.path for loss in older.losses}
