"""Putting carries in: what is lost of an answer is still reported where it stood, once, and nothing that arrives is."""

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

CARRIER = EnvelopeKey([b"k" * 32])
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}


def losses(answer: Any, source: str, target: str, *, stream: bool, carrier: EnvelopeKey | None = CARRIER) -> list[str]:
    if stream:
        made = tw.translate_stream(
            encode_response_stream(answer, source), source, target, FIRST_REQUESTS[target], envelope_key=carrier
        )
        assert b"".join(made)
        return [loss.path for loss in made.losses]
    return [
        loss.path
        for loss in tw.translate(
            answer, source, target, "response", request=FIRST_REQUESTS[target], envelope_key=carrier
        ).losses
    ]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("target", ["anthropic", "openai-responses"])
def test_losses_behind_a_carry_point_to_where_they_stood(target: str, *, stream: bool) -> None:
    sealed = gemini_call_part(thoughtSignature="CiMB")
    answer = gemini_call_response(
        {"text": "a", "thoughtSignature": "CiMA"}, sealed, PICTURE, {**gemini_call_part(), "thoughtSignature": "CiMC"}
    )
    without = losses(answer, "gemini", target, stream=stream, carrier=None)
    found = losses(answer, "gemini", target, stream=stream)
    place = "/candidates/0/content/parts"
    assert f"{place}/2" in found
    proofs = {f"{place}/{index}/thoughtSignature" for index in (0, 1, 3)}
    assert proofs <= set(without)
    assert set(found) == set(without) - proofs


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("sealed", "reported"), [({"encrypted_content": "gAAA"}, []), ({}, ["/output/0/id"])], ids=["sealed", "bare"]
)
@pytest.mark.parametrize("target", ["anthropic", "gemini", "gemini-interactions"])
def test_the_name_of_a_reasoning_is_lost_only_where_it_is_not_carried(
    target: str, sealed: Any, reported: list[str], *, stream: bool
) -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], **sealed}
    found = losses(responses_call_response(item), "openai-responses", target, stream=stream)
    assert [path for path in found if path.startswith("/output/0")] == reported


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_at_home_nothing_is_carried(*, stream: bool) -> None:
    answer = gemini_call_response(gemini_call_part(thoughtSignature="CiMB"))
    if stream:
        wire = encode_response_stream(answer, "gemini")
        assert b"".join(tw.translate_stream(wire, "gemini", "gemini", envelope_key=CARRIER)) == b"".join(
            tw.translate_stream(wire, "gemini", "gemini")
        )
    else:
        assert tw.translate(answer, "gemini", "gemini", "response", envelope_key=CARRIER).value == answer
