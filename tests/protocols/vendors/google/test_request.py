"""What a request says in the words of either of Google's protocols passes from one to the other."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.sdk import gemini, gemini_interactions

GEMINI, INTERACTIONS = "gemini", "gemini-interactions"
MODEL = "gemini-3.8-flash"
PICTURE = {"mimeType": "image/png", "data": "iVBO"}
OLDER_SAFETY = [
    {"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "BLOCK_ONLY_HIGH"},
    {"category": "HARM_CATEGORY_IMAGE_HATE", "threshold": "OFF", "method": "SEVERITY"},
]
NEWER_SAFETY = [
    {"type": "hate_speech", "threshold": "block_only_high"},
    {"type": "image_hate", "threshold": "off", "method": "severity"},
]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def older(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": "Hi"}, *parts]}], **fields}


def newer(*content: Any, **fields: Any) -> dict[str, Any]:
    said = [{"type": "text", "text": "Hi"}, *content]
    return {"model": MODEL, "input": [{"type": "user_input", "content": said}], **fields}


def to_newer(body: dict[str, Any]) -> tw.Translation:
    made = tw.translate(body, GEMINI, INTERACTIONS, model=MODEL)
    assert gemini_interactions.accept_request(made.value) is None
    return made


def to_older(body: dict[str, Any], model: str = MODEL) -> tw.Translation:
    made = tw.translate(body, INTERACTIONS, GEMINI, model=model)
    assert gemini.accept_request(made.value) is None
    return made


@pytest.mark.parametrize("name", ["safetySettings", "safety_settings"])
def test_what_is_blocked(name: str) -> None:
    made = to_newer(older(**{name: OLDER_SAFETY}))
    assert (made.value["safety_settings"], made.losses) == (NEWER_SAFETY, [])
    back = to_older(made.value)
    assert (back.value["safetySettings"], back.losses) == (OLDER_SAFETY, [])


@pytest.mark.parametrize(
    "setting",
    [
        {"category": "HARM_CATEGORY_UNSPECIFIED", "threshold": "OFF"},
        {"category": "HARM_CATEGORY_JAILBREAK", "threshold": "BLOCK_SOME"},
        {"category": "HARM_CATEGORY_JAILBREAK", "threshold": "OFF", "since": 1},
    ],
)
def test_what_only_one_can_block_is_reported(setting: dict[str, Any]) -> None:
    made = to_newer(older(safetySettings=[setting]))
    assert "safety_settings" not in made.value
    assert [loss.path for loss in made.losses] == ["/safetySettings/0"]


def test_others_do_not_have_it() -> None:
    made = tw.translate(older(safetySettings=OLDER_SAFETY), GEMINI, "openai-chat", model="m")
    assert [loss.path for loss in made.losses] == ["/safetySettings/0", "/safetySettings/1"]


@pytest.mark.parametrize("name", ["mediaResolution", "media_resolution"])
def test_how_closely_a_picture_is_looked_at(name: str) -> None:
    picture = {"inlineData": PICTURE, name: {"level": "MEDIA_RESOLUTION_ULTRA_HIGH"}}
    made = to_newer(older(picture))
    assert made.value["input"][0]["content"][1]["resolution"] == "ultra_high"
    assert made.losses == []
    back = to_older(made.value)
    assert back.value["contents"][0]["parts"][1]["mediaResolution"] == {"level": "MEDIA_RESOLUTION_ULTRA_HIGH"}
    assert back.losses == []
    home = tw.translate(older(picture), GEMINI, GEMINI, model=MODEL)
    assert home.value == older(picture)


def test_a_resolution_in_tokens_is_only_the_older_ones() -> None:
    picture = {"inlineData": PICTURE, "mediaResolution": {"level": "MEDIA_RESOLUTION_LOW", "numTokens": 7}}
    made = to_newer(older(picture))
    assert [loss.path for loss in made.losses] == ["/contents/0/parts/1/mediaResolution"]


def test_a_result_has_no_resolution() -> None:
    call = {"type": "function_call", "id": "a", "name": "look", "arguments": {}}
    picture = {"type": "image", "data": "iVBO", "mime_type": "image/png", "resolution": "low"}
    body = newer()
    body["input"] += [call, {"type": "function_result", "call_id": "a", "name": "look", "result": [picture]}]
    made = to_older(body)
    (shown,) = made.value["contents"][2]["parts"][0]["functionResponse"]["parts"]
    assert shown == {"inlineData": PICTURE}
    assert [loss.path for loss in made.losses if loss.kind == "dropped"] == ["/input/2/result/0/resolution"]


def test_an_early_model_looks_at_all_alike() -> None:
    made = to_older(
        newer({"type": "image", "data": "iVBO", "mime_type": "image/png", "resolution": "low"}), "gemini-2.5-pro"
    )
    assert "mediaResolution" not in made.value["contents"][0]["parts"][1]
    assert [loss.path for loss in made.losses] == ["/input/0/content/1/resolution"]


@pytest.mark.parametrize(("target", "detail"), [("openai-chat", "auto"), ("openai-responses", "auto")])
@pytest.mark.parametrize(
    ("level", "told"), [("LOW", "low"), ("MEDIUM", None), ("HIGH", "high"), ("ULTRA_HIGH", "original")]
)
def test_openai_has_words_of_its_own(target: str, detail: str, level: str, told: str | None) -> None:
    picture = {"inlineData": PICTURE, "mediaResolution": {"level": f"MEDIA_RESOLUTION_{level}"}}
    made = tw.translate(older(picture), GEMINI, target, model="m")
    assert tw.check(made.value, target) == []
    said = str(made.value)
    assert f"'detail': '{told or detail}'" in said
    changed = [loss.kind for loss in made.losses if loss.path == "/contents/0/parts/1/mediaResolution/level"]
    assert changed == ([] if level in {"LOW", "HIGH"} else ["approximated"])


def test_where_maps_look() -> None:
    place = {"latLng": {"latitude": 59.9, "longitude": 10.7}, "languageCode": "nb"}
    made = to_newer(older(tools=[{"googleMaps": {}}], toolConfig={"retrievalConfig": place}))
    assert made.value["tools"] == [{"type": "google_maps", "latitude": 59.9, "longitude": 10.7}]
    assert [loss.path for loss in made.losses] == ["/toolConfig/retrievalConfig/languageCode"]
    back = to_older(made.value)
    assert back.value["toolConfig"]["retrievalConfig"] == {"latLng": place["latLng"]}
    assert back.losses == []


def test_without_maps_nobody_looks() -> None:
    config = {"retrievalConfig": {"latLng": {"latitude": 59.9, "longitude": 10.7}}}
    made = to_newer(older(tools=[{"googleSearch": {}}], toolConfig=config))
    assert [loss.path for loss in made.losses] == ["/toolConfig/retrievalConfig"]


@pytest.mark.parametrize("word", ["schema", "jsonSchema"])
@pytest.mark.parametrize("name", ["responseFormat", "response_format"])
@pytest.mark.parametrize("mime", ["application/json", "APPLICATION_JSON"])
def test_a_format_of_text_is_one_everywhere(word: str, name: str, mime: str) -> None:
    body = older(generationConfig={name: [{"text": {"mimeType": mime, word: SCHEMA}}]})
    made = to_newer(body)
    assert made.value["response_format"] == {"type": "text", "mime_type": "application/json", "schema": SCHEMA}
    assert made.losses == []
    chat = tw.translate(body, GEMINI, "ollama", model="m")
    assert (chat.value["format"], chat.losses) == (SCHEMA, [])
    assert tw.translate(body, GEMINI, GEMINI, model=MODEL).value == body


@pytest.mark.parametrize(
    "formats", [[{"image": {"imageSize": "IMAGE_SIZE_ONE_K"}}], [{"text": {"mimeType": "text/x.enum", "schema": {}}}]]
)
def test_a_format_of_anything_else_is_reported(formats: list[Any]) -> None:
    made = to_newer(older(generationConfig={"responseFormat": formats}))
    assert "response_format" not in made.value
    assert [loss.path for loss in made.losses] == ["/generationConfig/responseFormat/0"]
