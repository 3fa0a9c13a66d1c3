"""Embedding envelopes: losses keep their pointers, and sealed data is no loss."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.tool_cycles import (
    FIRST_REQUESTS,
    encode_response_stream,
    gemini_call_part,
    gemini_call_response,
    responses_call_response,
)
from toolwire.codec.envelope import EnvelopeKey

ENVELOPE_KEY = EnvelopeKey([b"k" * 32])
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}


def losses(
    response: Any, source: str, target: str, *, stream: bool, envelope_key: EnvelopeKey | None = ENVELOPE_KEY
) -> list[str]:
    if stream:
        translated = tw.translate_stream(
            encode_response_stream(response, source), source, target, FIRST_REQUESTS[target], envelope_key=envelope_key
        )
        assert b"".join(translated)
        return [loss.path for loss in translated.losses]
    return [
        loss.path
        for loss in tw.translate(
            response, source, target, "response", request=FIRST_REQUESTS[target], envelope_key=envelope_key
        ).losses
    ]


@pytest.mark.parametrize("stream", [False, True], ids=["complete", "streamed"])
@pytest.mark.parametrize("target", ["anthropic", "openai-responses"])
def test_losses_after_an_envelope_keep_their_pointers(target: str, *, stream: bool) -> None:
    signed_call = gemini_call_part(thoughtSignature="CiMB")
    response = gemini_call_response(
        {"text": "a", "thoughtSignature": "CiMA"},
        signed_call,
        PICTURE,
        {**gemini_call_part(), "thoughtSignature": "CiMC"},
    )
    without_envelopes = losses(response, "gemini", target, stream=stream, envelope_key=None)
    with_envelopes = losses(response, "gemini", target, stream=stream)
    parts_pointer = "/candidates/0/content/parts"
    assert f"{parts_pointer}/2" in with_envelopes
    signatures = {f"{parts_pointer}/{index}/thoughtSignature" for index in (0, 1, 3)}
    assert signatures <= set(without_envelopes)
    assert set(with_envelopes) == set(without_envelopes) - signatures


@pytest.mark.parametrize("stream", [False, True], ids=["complete", "streamed"])
@pytest.mark.parametrize(
    ("sealed", "reported"), [({"encrypted_content": "gAAA"}, []), ({}, ["/output/0/id"])], ids=["sealed", "bare"]
)
@pytest.mark.parametrize("target", ["anthropic", "gemini", "gemini-interactions"])
def test_reasoning_id_is_lost_only_without_an_envelope(
    target: str, sealed: Any, reported: list[str], *, stream: bool
) -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], **sealed}
    pointers = losses(responses_call_response(item), "openai-responses", target, stream=stream)
    assert [path for path in pointers if path.startswith("/output/0")] == reported


@pytest.mark.parametrize("stream", [False, True], ids=["complete", "streamed"])
def test_same_protocol_embeds_no_envelopes(*, stream: bool) -> None:
    response = gemini_call_response(gemini_call_part(thoughtSignature="CiMB"))
    if stream:
        wire = encode_response_stream(response, "gemini")
        assert b"".join(tw.translate_stream(wire, "gemini", "gemini", envelope_key=ENVELOPE_KEY)) == b"".join(
            tw.translate_stream(wire, "gemini", "gemini")
        )
    else:
        assert tw.translate(response, "gemini", "gemini", "response", envelope_key=ENVELOPE_KEY).value == response
