"""Hosted calls streamed to clients of other vendors: the SDK folds the stream to the complete response."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.hosted_calls import (
    GEMINI,
    HOSTED_ARGUMENTS,
    HOSTED_CALLS,
    INTERACTIONS,
    response_with_blocks,
    translate_hosted_stream,
)
from tests.support.bodies.readers import stream_frames
from tests.support.protocols import ANTHROPIC, RESPONSES
from tests.support.sdk import gemini, gemini_interactions, streams
from toolwire.translation.stream import TranslatedStream

PAIRS = [(source, target) for source in HOSTED_CALLS for target in HOSTED_CALLS if source != target]


def fold_sdk_stream(protocol: str, wire: bytes) -> Any:
    match protocol:
        case "gemini":
            return gemini.fold_body(wire)
        case "gemini-interactions":
            return gemini_interactions.fold_body(wire)
        case _:
            return streams.fold_body(protocol, wire)


def response_blocks(protocol: str, body: Any) -> list[dict[str, Any]]:
    """Return the blocks of a response, without the nulls that an SDK adds."""
    match protocol:
        case "anthropic":
            blocks = body["content"]
        case "openai-responses":
            blocks = body["output"]
        case "gemini":
            blocks = [part for part in body["candidates"][0]["content"]["parts"] if part != {"text": ""}]
        case _:
            blocks = body["steps"]
    return [_without_nulls(block) for block in blocks]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", HOSTED_ARGUMENTS)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_stream_folds_to_the_complete_response(source: str, target: str, kind: str) -> None:
    blocks = HOSTED_CALLS[source][kind]
    expected = response_blocks(
        target, tw.translate(response_with_blocks(source, blocks), source, target, "response").value
    )
    streamed_blocks = response_blocks(target, fold_sdk_stream(target, translate_hosted_stream(source, blocks, target)))
    for item in (*expected, *streamed_blocks) if target == RESPONSES else ():
        assert item.pop("id").startswith(("ws_", "ci_"))  # derived from the id of the response
    assert streamed_blocks == expected
    assert len(expected) == (1 if target == RESPONSES else 2)


@pytest.mark.parametrize("target", [GEMINI, INTERACTIONS])
@pytest.mark.parametrize("source", [ANTHROPIC, RESPONSES])
def test_a_client_of_google_reads_hosted_calls_of_other_providers(source: str, target: str) -> None:
    """The same call and result, whatever the provider."""
    for kind, arguments in HOSTED_ARGUMENTS.items():
        call, result = response_blocks(
            target,
            tw.translate(response_with_blocks(source, HOSTED_CALLS[source][kind]), source, target, "response").value,
        )
        (argument,) = arguments.values()
        assert argument in str(call)
        assert ("1\n" if kind == "code_execution" else "https://a.test") in [*_values(result)]


def _values(value: Any) -> Any:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _values(inner)
    else:
        yield value


# ---- citations

TEXT = "Å: It rains in Oslo."
PAGE = {"uri": "https://a.test/page", "title": "A"}
GROUNDING: dict[str, list[Any]] = {
    "groundingChunks": [{"web": PAGE}],
    "groundingSupports": [
        {"segment": {"startIndex": 4, "endIndex": 12, "text": "It rains"}, "groundingChunkIndices": [0]}
    ],
}


def grounded_stream(*contents: list[dict[str, Any]]) -> TranslatedStream:
    """Build a Gemini stream whose last chunk has the sources."""
    chunks: list[dict[str, Any]] = [
        {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]} for parts in contents
    ]
    chunks[-1]["candidates"][0] |= {"finishReason": "STOP", "groundingMetadata": GROUNDING}
    wire = b"".join(b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n" for chunk in chunks)
    return tw.translate_stream([wire], GEMINI, RESPONSES)


def notes(stream: TranslatedStream) -> list[Any]:
    output = streams.fold_body(RESPONSES, b"".join(stream))["output"]
    return [note for item in output for block in item.get("content", ()) for note in block["annotations"]]


PROOF = {"text": "", "thoughtSignature": "c2ln"}
LATE = {
    "with the last words": [[{"text": TEXT[:5]}], [{"text": TEXT[5:]}]],
    "with the proof": [[{"text": TEXT}], [PROOF]],
    "after the proof": [[{"text": TEXT}], [PROOF], [{"text": ""}]],
}


@pytest.mark.parametrize("contents", LATE.values(), ids=LATE)
def test_streamed_text_cites_the_sources_of_the_last_chunk(contents: list[Any]) -> None:
    stream = grounded_stream(*contents)
    (note,) = notes(stream)
    assert (note["url"], note["start_index"], note["end_index"]) == (PAGE["uri"], 3, 11)
    assert not [loss for loss in stream.losses if "grounding" in loss.path]


def test_late_sources_of_a_text_before_a_call_are_reported() -> None:
    stream = grounded_stream([{"text": TEXT}], [{"functionCall": {"name": "look", "args": {}}}], [{"text": ""}])
    assert notes(stream) == []
    assert "/candidates/0/groundingMetadata" in [loss.path for loss in stream.losses]


def test_only_the_last_of_two_texts_cites_late_sources() -> None:
    both = [[{"text": TEXT}], [{"functionCall": {"name": "look", "args": {}}}], [{"text": "Again: it rains."}]]
    again = {"segment": {"startIndex": 0, "endIndex": 5, "text": "Again"}, "groundingChunkIndices": [0]}
    chunks: list[dict[str, Any]] = [
        {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]} for parts in both
    ]
    two = {**GROUNDING, "groundingSupports": [*GROUNDING["groundingSupports"], again]}
    chunks[-1]["candidates"][0] |= {"finishReason": "STOP", "groundingMetadata": two}
    wire = b"".join(b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n" for chunk in chunks)
    stream = tw.translate_stream([wire], GEMINI, RESPONSES)
    (note,) = notes(stream)
    assert (note["start_index"], note["end_index"]) == (0, 5)
    lost = [loss.path for loss in stream.losses if "grounding" in loss.path]
    assert lost == ["/candidates/0/groundingMetadata/groundingSupports/0"]
    restored = tw.translate_stream([wire], GEMINI, GEMINI)
    assert two == stream_frames(b"".join(restored))[-1]["candidates"][0]["groundingMetadata"]


# ---- generated images

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE_CALL = {
    "type": "image_generation_call",
    "id": "ig_1",
    "status": "completed",
    "result": PIXEL,
    "output_format": "webp",
}
SHOWN: dict[str, Any] = {
    GEMINI: {"inlineData": {"mimeType": "image/webp", "data": PIXEL}},
    INTERACTIONS: {"type": "model_output", "content": [{"type": "image", "mime_type": "image/webp", "data": PIXEL}]},
}


@pytest.mark.parametrize("target", SHOWN)
def test_a_client_of_google_receives_generated_images(target: str) -> None:
    translated = tw.translate(response_with_blocks(RESPONSES, [IMAGE_CALL]), RESPONSES, target, "response")
    assert response_blocks(target, translated.value) == [SHOWN[target]]
    assert [(loss.kind, loss.path) for loss in translated.losses if "output" in loss.path] == [
        ("approximated", "/output/0")
    ]
    assert response_blocks(
        target, fold_sdk_stream(target, translate_hosted_stream(RESPONSES, [IMAGE_CALL], target))
    ) == [SHOWN[target]]


def test_an_unfinished_image_is_reported() -> None:
    body = response_with_blocks(RESPONSES, [{**IMAGE_CALL, "status": "generating", "result": None}])
    translated = tw.translate(body, RESPONSES, GEMINI, "response")
    assert ("dropped", "/output/0") in [(loss.kind, loss.path) for loss in translated.losses]
    assert tw.translate(body, RESPONSES, RESPONSES, "response").value == body
