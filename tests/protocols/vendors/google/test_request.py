"""Settings that both of Google's protocols have, translated between them."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.sdk import gemini, gemini_interactions

GEMINI, INTERACTIONS = "gemini", "gemini-interactions"
MODEL = "gemini-3.8-flash"
IMAGE = {"mimeType": "image/png", "data": "iVBO"}
GEMINI_SAFETY = [
    {"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "BLOCK_ONLY_HIGH"},
    {"category": "HARM_CATEGORY_IMAGE_HATE", "threshold": "OFF", "method": "SEVERITY"},
]
INTERACTIONS_SAFETY = [
    {"type": "hate_speech", "threshold": "block_only_high"},
    {"type": "image_hate", "threshold": "off", "method": "severity"},
]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def gemini_request(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": "Hi"}, *parts]}], **fields}


def interactions_request(*content: Any, **fields: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": "Hi"}, *content]
    return {"model": MODEL, "input": [{"type": "user_input", "content": blocks}], **fields}


def to_interactions(body: dict[str, Any]) -> tw.Translation:
    translation = tw.translate(body, GEMINI, INTERACTIONS, model=MODEL)
    assert gemini_interactions.accept_request(translation.value) is None
    return translation


def to_gemini(body: dict[str, Any], model: str = MODEL) -> tw.Translation:
    translation = tw.translate(body, INTERACTIONS, GEMINI, model=model)
    assert gemini.accept_request(translation.value) is None
    return translation


@pytest.mark.parametrize("name", ["safetySettings", "safety_settings"])
def test_safety_settings_round_trip(name: str) -> None:
    translation = to_interactions(gemini_request(**{name: GEMINI_SAFETY}))
    assert (translation.value["safety_settings"], translation.losses) == (INTERACTIONS_SAFETY, [])
    round_trip_body = to_gemini(translation.value)
    assert (round_trip_body.value["safetySettings"], round_trip_body.losses) == (GEMINI_SAFETY, [])


@pytest.mark.parametrize(
    "setting",
    [
        {"category": "HARM_CATEGORY_UNSPECIFIED", "threshold": "OFF"},
        {"category": "HARM_CATEGORY_JAILBREAK", "threshold": "BLOCK_SOME"},
        {"category": "HARM_CATEGORY_JAILBREAK", "threshold": "OFF", "since": 1},
    ],
)
def test_unshared_safety_settings_are_reported(setting: dict[str, Any]) -> None:
    translation = to_interactions(gemini_request(safetySettings=[setting]))
    assert "safety_settings" not in translation.value
    assert [loss.path for loss in translation.losses] == ["/safetySettings/0"]


def test_safety_settings_are_lost_elsewhere() -> None:
    translation = tw.translate(gemini_request(safetySettings=GEMINI_SAFETY), GEMINI, "openai-chat", model="m")
    assert [loss.path for loss in translation.losses] == ["/safetySettings/0", "/safetySettings/1"]


@pytest.mark.parametrize("name", ["mediaResolution", "media_resolution"])
def test_media_resolution_round_trips(name: str) -> None:
    image = {"inlineData": IMAGE, name: {"level": "MEDIA_RESOLUTION_ULTRA_HIGH"}}
    translation = to_interactions(gemini_request(image))
    assert translation.value["input"][0]["content"][1]["resolution"] == "ultra_high"
    assert translation.losses == []
    round_trip_body = to_gemini(translation.value)
    assert round_trip_body.value["contents"][0]["parts"][1]["mediaResolution"] == {
        "level": "MEDIA_RESOLUTION_ULTRA_HIGH"
    }
    assert round_trip_body.losses == []
    unchanged = tw.translate(gemini_request(image), GEMINI, GEMINI, model=MODEL)
    assert unchanged.value == gemini_request(image)


def test_a_resolution_in_tokens_is_lost() -> None:
    image = {"inlineData": IMAGE, "mediaResolution": {"level": "MEDIA_RESOLUTION_LOW", "numTokens": 7}}
    translation = to_interactions(gemini_request(image))
    assert [loss.path for loss in translation.losses] == ["/contents/0/parts/1/mediaResolution"]


def test_media_resolution_in_a_result_is_lost() -> None:
    call = {"type": "function_call", "id": "a", "name": "look", "arguments": {}}
    image = {"type": "image", "data": "iVBO", "mime_type": "image/png", "resolution": "low"}
    body = interactions_request()
    body["input"] += [call, {"type": "function_result", "call_id": "a", "name": "look", "result": [image]}]
    translation = to_gemini(body)
    (media_part,) = translation.value["contents"][2]["parts"][0]["functionResponse"]["parts"]
    assert media_part == {"inlineData": IMAGE}
    assert [loss.path for loss in translation.losses if loss.kind == "dropped"] == ["/input/2/result/0/resolution"]


def test_models_before_gemini_3_get_no_media_resolution() -> None:
    translation = to_gemini(
        interactions_request({"type": "image", "data": "iVBO", "mime_type": "image/png", "resolution": "low"}),
        "gemini-2.5-pro",
    )
    assert "mediaResolution" not in translation.value["contents"][0]["parts"][1]
    assert [loss.path for loss in translation.losses] == ["/input/0/content/1/resolution"]


@pytest.mark.parametrize(("target", "default"), [("openai-chat", "auto"), ("openai-responses", "auto")])
@pytest.mark.parametrize(
    ("level", "expected"), [("LOW", "low"), ("MEDIUM", None), ("HIGH", "high"), ("ULTRA_HIGH", "original")]
)
def test_media_resolution_becomes_openai_detail(target: str, default: str, level: str, expected: str | None) -> None:
    image = {"inlineData": IMAGE, "mediaResolution": {"level": f"MEDIA_RESOLUTION_{level}"}}
    translation = tw.translate(gemini_request(image), GEMINI, target, model="m")
    assert tw.check(translation.value, target) == []
    encoded = str(translation.value)
    assert f"'detail': '{expected or default}'" in encoded
    loss_kinds = [loss.kind for loss in translation.losses if loss.path == "/contents/0/parts/1/mediaResolution/level"]
    assert loss_kinds == ([] if level in {"LOW", "HIGH"} else ["approximated"])


def test_map_location_moves_between_tool_and_tool_config() -> None:
    location = {"latLng": {"latitude": 59.9, "longitude": 10.7}, "languageCode": "nb"}
    translation = to_interactions(gemini_request(tools=[{"googleMaps": {}}], toolConfig={"retrievalConfig": location}))
    assert translation.value["tools"] == [{"type": "google_maps", "latitude": 59.9, "longitude": 10.7}]
    assert [loss.path for loss in translation.losses] == ["/toolConfig/retrievalConfig/languageCode"]
    round_trip_body = to_gemini(translation.value)
    assert round_trip_body.value["toolConfig"]["retrievalConfig"] == {"latLng": location["latLng"]}
    assert round_trip_body.losses == []


def test_map_location_without_maps_is_lost() -> None:
    config = {"retrievalConfig": {"latLng": {"latitude": 59.9, "longitude": 10.7}}}
    translation = to_interactions(gemini_request(tools=[{"googleSearch": {}}], toolConfig=config))
    assert [loss.path for loss in translation.losses] == ["/toolConfig/retrievalConfig"]


@pytest.mark.parametrize("schema_key", ["schema", "jsonSchema"])
@pytest.mark.parametrize("name", ["responseFormat", "response_format"])
@pytest.mark.parametrize("mime", ["application/json", "APPLICATION_JSON"])
def test_a_text_format_is_translated(schema_key: str, name: str, mime: str) -> None:
    body = gemini_request(generationConfig={name: [{"text": {"mimeType": mime, schema_key: SCHEMA}}]})
    translation = to_interactions(body)
    assert translation.value["response_format"] == {"type": "text", "mime_type": "application/json", "schema": SCHEMA}
    assert translation.losses == []
    chat = tw.translate(body, GEMINI, "ollama", model="m")
    assert (chat.value["format"], chat.losses) == (SCHEMA, [])
    assert tw.translate(body, GEMINI, GEMINI, model=MODEL).value == body


@pytest.mark.parametrize(
    "formats", [[{"image": {"imageSize": "IMAGE_SIZE_ONE_K"}}], [{"text": {"mimeType": "text/x.enum", "schema": {}}}]]
)
def test_other_formats_are_reported(formats: list[Any]) -> None:
    translation = to_interactions(gemini_request(generationConfig={"responseFormat": formats}))
    assert "response_format" not in translation.value
    assert [loss.path for loss in translation.losses] == ["/generationConfig/responseFormat/0"]
