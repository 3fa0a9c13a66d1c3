"""Pictures that a model drew: `images` here, parts of what it says elsewhere."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import chat_response
from tests.support.codecs import body_as_stream
from tests.support.sdk import validation

ROUTER = "openrouter"
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}, "index": 0}
LINKED = {"type": "image_url", "image_url": {"url": "https://a.test/b.png"}, "index": 1}


def drawn(*images: dict[str, Any], content: str = "Look:") -> dict[str, Any]:
    return chat_response({"role": "assistant", "content": content, "images": list(images)}, "stop", id="gen-1")


def parts(body: dict[str, Any]) -> Any:
    return body["candidates"][0]["content"]["parts"]


def image_losses(losses: list[tw.Loss]) -> list[str]:
    return [loss.path for loss in losses if "images" in loss.path]


def test_google_shows_them_and_back() -> None:
    made = tw.translate(drawn(PICTURE, LINKED), ROUTER, "gemini", "response")
    assert parts(made.value)[1] == {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    assert parts(made.value)[2]["fileData"]["fileUri"] == "https://a.test/b.png"
    assert image_losses(made.losses) == []
    body = made.value
    del body["candidates"][0]["content"]["parts"][2]
    back = tw.translate(body, "gemini", ROUTER, "response")
    assert back.value["choices"][0]["message"]["images"] == [PICTURE]
    assert back.value["choices"][0]["message"]["content"] == "Look:"
    assert not [loss for loss in back.losses if "/parts/" in loss.path]
    assert validation.accept_response(ROUTER, back.value) is None


@pytest.mark.parametrize("target", ["openai-chat", "anthropic", "openai-responses"])
def test_where_answers_have_none_each_is_a_loss(target: str) -> None:
    made = tw.translate(drawn(PICTURE, LINKED), ROUTER, target, "response")
    assert image_losses(made.losses) == [f"/choices/0/message/images/{index}" for index in (0, 1)]


def test_ollama_has_those_that_came_whole() -> None:
    made = tw.translate(drawn(PICTURE, LINKED), ROUTER, "ollama", "response")
    assert made.value["message"]["images"] == ["iVBORw0KGgo="]
    assert image_losses(made.losses) == ["/choices/0/message/images/1"]


def test_what_says_more_stays_here() -> None:
    odd = {**PICTURE, "image_url": {**PICTURE["image_url"], "detail": "high"}}  # type: ignore[dict-item]
    made = tw.translate(drawn(odd), ROUTER, "gemini", "response")
    assert len(parts(made.value)) == 1
    assert image_losses(made.losses) == ["/choices/0/message/images/0"]


def test_at_home_they_come_back_as_they_were() -> None:
    body = drawn(PICTURE, LINKED)
    assert tw.translate(body, ROUTER, ROUTER, "response").value == body


def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "gen-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"


@pytest.mark.parametrize("content", ["", "!"])
def test_a_stream_shows_them(content: str) -> None:
    said = [chunk({"role": "assistant", "content": "Look"}), chunk({"content": content, "images": [PICTURE]})]
    wire = ("".join(said) + chunk({}, "stop") + "data: [DONE]\n\n").encode()
    stream = tw.translate_stream(wire, ROUTER, "gemini")
    told = b"".join(stream)
    assert told.count(b'"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgo="}') == 1
    assert image_losses(stream.losses) == []
    home = b"".join(tw.translate_stream(wire, ROUTER, ROUTER))
    assert home.count(b"iVBORw0KGgo=") == 1
    assert b'"images"' in home


def test_a_client_gets_them_in_a_stream() -> None:
    shown = [{"text": "Look:"}, {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]
    body = {"candidates": [{"content": {"role": "model", "parts": shown}, "finishReason": "STOP", "index": 0}]}
    stream = tw.translate_stream(body_as_stream(body, "gemini"), "gemini", ROUTER)
    deltas = [
        json.loads(line[6:])["choices"][0]["delta"]
        for line in b"".join(stream).splitlines()
        if line.startswith(b'data: {"id"') and b'"images"' in line
    ]
    assert deltas == [{"images": [PICTURE]}]
    assert not [loss for loss in stream.losses if "/parts/" in loss.path]
