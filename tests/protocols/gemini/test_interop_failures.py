"""The acceptance list, as far as it speaks of Gemini: each test names the failure that was reported elsewhere."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import anthropic_call, anthropic_request, anthropic_result, anthropic_turn

OTHERS = ("anthropic", "openai-chat", "openai-responses")
SIGNATURE = "EpwICpkIAXLI2nxlU6gsWZaZHRYkX1orzuM8vSUFwaAt1JRxEC2hJzPAcAu3PWaKz7X="
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def to_gemini(body: Any, source: str, **options: Any) -> Any:
    return tw.translate(body, source, "gemini", **options).value


def contents(body: Any) -> list[Any]:
    found: list[Any] = body["contents"]
    return found


def inner(body: Any, name: str) -> list[Any]:
    return [part[name] for content in contents(body) for part in content["parts"] if name in part]


def gemini_answer(*parts: Any, reason: str = "STOP") -> Any:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": reason, "index": 0}
    return {"candidates": [candidate], "modelVersion": "gemini-3-flash", "responseId": "r1"}


def gemini_call(city: str, **fields: Any) -> Any:
    return {"functionCall": {"name": "get_weather", "args": {"city": city}, **fields}}


def events(*bodies: Any) -> bytes:
    return b"".join(f"data: {json.dumps(body)}\n\n".encode() for body in bodies)


def chunk(*parts: Any, reason: str | None = None) -> Any:
    body = gemini_answer(*parts)
    if reason is None:
        del body["candidates"][0]["finishReason"]
    return body


def picture(data: str = PICTURE) -> Any:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def test_im_1_an_image_in_a_result_is_in_the_result() -> None:
    result = anthropic_result("c1", [{"type": "text", "text": "here"}, picture()])
    made = to_gemini(anthropic_turn([anthropic_call("c1")], [result]), "anthropic", model="gemini-3-pro")
    (response,) = inner(made, "functionResponse")
    assert response["response"] == {"output": "here"}
    assert response["parts"] == [{"inlineData": {"mimeType": "image/png", "data": PICTURE}}]


def test_im_1_for_older_models_it_stands_right_after() -> None:
    result = anthropic_result("c1", [{"type": "text", "text": "here"}, picture()])
    made = to_gemini(anthropic_turn([anthropic_call("c1")], [result]), "anthropic", model="gemini-2.5-flash")
    parts = contents(made)[2]["parts"]
    assert [next(iter(part)) for part in parts] == ["functionResponse", "inlineData"]


@pytest.mark.parametrize("model", ["gemini-2.5-pro", "gemini-3-pro"])
def test_im_3_each_image_stays_with_its_own_result(model: str) -> None:
    calls = [anthropic_call("c1"), anthropic_call("c2")]
    results = [anthropic_result("c1", [picture("aaaa")]), anthropic_result("c2", [picture("bbbb")])]
    made = to_gemini(anthropic_turn(calls, results), "anthropic", model=model)
    again = tw.translate(made, "gemini", "anthropic", model="m").value
    blocks = [block for message in again["messages"] for block in message["content"] if isinstance(block, dict)]
    seen = [block["content"][-1]["source"]["data"] for block in blocks if block["type"] == "tool_result"]
    assert seen == ["aaaa", "bbbb"]


def test_sv_13_search_beside_functions_asks_for_the_calls_to_be_shown() -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}, {"name": "f", "input_schema": {"type": "object"}}]
    made = tw.translate(anthropic_request(tools=tools), "anthropic", "gemini", model="gemini-3-pro")
    assert made.value["tools"][1] == {"googleSearch": {}}
    assert made.value["toolConfig"] == {"includeServerSideToolInvocations": True}
    assert "/tools/0" in {loss.path for loss in made.losses}
    older = tw.translate(anthropic_request(tools=tools), "anthropic", "gemini", model="gemini-2.5-pro")
    assert len(older.value["tools"]) == 1
    assert "/tools/0" in {loss.path for loss in older.losses}
