"""Streams of the Interactions protocol, decoded and encoded."""

import json
import re
from typing import Any

import pytest
from google.genai._gaos.types.interactions.interactionssestreamevent import InteractionSSEStreamEvent
from google.genai._gaos.utils.serializers import unmarshal_json

import toolwire as tw
from tests.support.samples import recorded_bodies
from tests.support.samples.fixture_files import FIXTURES
from tests.support.sdk.gemini_interactions import parse_leniently
from toolwire.canonical.content import Citation, Media, Reasoning, ReasoningText, Signature, Text, ToolCall, ToolResult
from toolwire.canonical.events import (
    CandidateEnd,
    Event,
    MessageEnd,
    MessageStart,
    PartDelta,
    PartDeltas,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    UsageReport,
)
from toolwire.canonical.fold import fold
from toolwire.canonical.response import Response, Stop, Usage
from toolwire.codec.framing import SseSplitter
from toolwire.codec.interface import ResponseContext
from toolwire.protocols.gemini_interactions import CODEC

FOLDER = FIXTURES / "gemini_interactions"


def events(wire: bytes) -> list[Event]:
    decoder = CODEC.stream_decoder(ResponseContext())
    return decoder.feed(wire) + decoder.close()


def stream(name: str, folder: str = "streams") -> bytes:
    return (FOLDER / folder / f"{name}.sse").read_bytes()


def folded(name: str) -> Response:
    return fold(events(stream(name)))


def parts(response: Response) -> list[Any]:
    return [part for message in response.candidates[0].messages for part in message.parts]


def frames(wire: bytes) -> list[Any]:
    splitter = SseSplitter()
    return [json.loads(data) for data in splitter.feed(wire) + splitter.close() if data != b"[DONE]"]


def encode_events(*events: Event) -> list[Any]:
    encoder = CODEC.stream_encoder(ResponseContext())
    return frames(encoder.encode(events) + encoder.close())


def test_every_stream_folds_to_its_response() -> None:
    compared = 0
    for path in sorted((FOLDER / "responses").glob("*.json")):
        if not (FOLDER / "streams" / f"{path.stem}.sse").is_file():
            continue
        body = json.dumps(json.loads(path.read_bytes()), ensure_ascii=False, separators=(",", ":"))
        expected = CODEC.decode_response(body.encode(), ResponseContext())
        streamed = folded(path.stem)
        assert [_content_of(part) for part in parts(streamed)] == [_content_of(part) for part in parts(expected)], (
            path.stem
        )
        assert streamed.usage == expected.usage, path.stem
        assert streamed.candidates[0].stop == expected.candidates[0].stop, path.stem
        compared += 1
    assert compared > 20


def _content_of(part: Any) -> Any:
    """Return the content of a part without its wire form; a summary in several pieces is one text."""
    match part:
        case ToolCall():
            return part.id, part.name, json.loads(part.arguments or "{}"), part.signature, part.executor
        case ToolResult():
            return part.call_id, part.name, part.status, _bodies(part)
        case Reasoning():
            texts = [block.text for block in part.content if isinstance(block, ReasoningText)]
            media = [block.source for block in part.content if isinstance(block, Media)]
            return "".join(texts), media, part.signature, part.hidden
        case Text():
            return part.text, [
                (citation.url, citation.title, citation.start, citation.end) for citation in part.annotations or ()
            ]
        case Media():
            return part.kind, part.source, part.media_type
        case _:
            return part


def _bodies(part: ToolResult) -> list[Any]:
    bodies = [json.loads(bytes(getattr(content, "body", b"null"))) for content in part.content or ()]
    return [body for body in bodies if body != []]


def test_frames_round_trip_unchanged() -> None:
    for name in ("text", "one_call", "parallel_calls", "google_search", "code_execution", "event_ids", "checkpoints"):
        encoder = CODEC.stream_encoder(ResponseContext())
        round_trip = encoder.encode(events(stream(name))) + encoder.close()
        assert frames(round_trip) == frames(stream(name)), name


def test_text_deltas_of_one_read_are_one_event() -> None:
    decoded = events(stream("text"))
    deltas = [event for event in decoded if isinstance(event, PartDeltas)]
    assert len(deltas) == 1
    assert len(deltas[0].texts) > 1


def test_arguments_in_step_start_are_used_without_deltas() -> None:
    (call,) = parts(folded("arguments_in_start"))
    assert json.loads(call.arguments) == {"city": "Paris"}
    (empty,) = parts(folded("call_completed"))
    assert empty.arguments == "{}"


def test_annotation_offsets_count_the_complete_text() -> None:
    (text,) = parts(folded("annotation_alias"))
    assert text.annotations is not None
    assert (text.annotations[0].start, text.annotations[0].end) == (3, 7)


def test_steps_only_in_the_completed_frame_are_emitted() -> None:
    assert [type(part) for part in parts(folded("steps_in_completed"))] == [Reasoning, Text, ToolCall]


def test_truncated_streams_are_broken() -> None:
    for name in ("cut_in_call", "cut_in_frame", "not_json"):
        last = events(stream(name, "broken_streams"))[-1]
        assert isinstance(last, ResponseFailed), name
        assert last.broken, name


def test_an_error_is_not_a_broken_stream() -> None:
    last = events(stream("error_in_text", "broken_streams"))[-1]
    assert isinstance(last, ResponseFailed)
    assert (last.error.kind, last.error.message, last.broken) == ("overloaded", "Overloaded.", False)
    assert isinstance(last := events(stream("failed_with_errors", "broken_streams"))[-1], ResponseFailed)
    assert last.error.kind == "server"


# ---- encode from other protocols


def test_two_foreign_texts_become_two_steps() -> None:
    encoded = encode_events(
        ResponseStart(origin="anthropic", id="msg_1", model="m"),
        MessageStart(),
        PartStart(index=0, part=Text(text="")),
        PartDelta(index=0, text="a"),
        PartEnd(index=0),
        PartStart(index=1, part=Text(text="")),
        PartDelta(index=1, text="b"),
        PartEnd(index=1),
        MessageEnd(),
        CandidateEnd(stop=Stop(reason="end_turn")),
        UsageReport(usage=Usage(input_tokens=3, output_tokens=5, reasoning=2)),
        ResponseEnd(),
    )
    frame_kinds = [(frame["event_type"], frame.get("index")) for frame in encoded]
    step_kinds = ["step.start", "step.delta", "step.stop"]
    assert frame_kinds == [
        ("interaction.created", None),
        *[(kind, 0) for kind in step_kinds],
        *[(kind, 1) for kind in step_kinds],
        ("interaction.completed", None),
    ]
    usage = encoded[-1]["interaction"]["usage"]
    assert (usage["total_output_tokens"], usage["total_thought_tokens"], usage["total_tokens"]) == (3, 2, 8)


def test_interleaved_foreign_calls_are_sequenced() -> None:
    encoded = encode_events(
        ResponseStart(origin="openai-chat"),
        PartStart(index=0, part=ToolCall(id="a", name="f", arguments="")),
        PartStart(index=1, part=ToolCall(id="b", name="f", arguments="")),
        PartDelta(index=1, text='{"x":'),
        PartDelta(index=0, text="{}"),
        PartDelta(index=1, text="1}"),
        PartEnd(index=0),
        PartEnd(index=1),
        ResponseEnd(),
    )
    order = [frame["index"] for frame in encoded if "index" in frame]
    assert order == sorted(order)
    texts: dict[int, str] = {}
    for frame in encoded:
        if frame["event_type"] == "step.delta":
            texts[frame["index"]] = texts.get(frame["index"], "") + frame["delta"]["arguments"]
    assert texts == {0: "{}", 1: '{"x":1}'}
    assert encoded[-1]["interaction"]["status"] == "requires_action"


def test_a_foreign_thought_opens_with_its_first_text() -> None:
    signature = Signature(issuer="anthropic", data="x", kind="encrypted")
    encoded = encode_events(
        ResponseStart(origin="anthropic"),
        PartStart(index=0, part=Reasoning(signature=signature)),
        PartEnd(index=0),
        PartStart(index=1, part=Reasoning()),
        PartDelta(index=1, text="hm", kind="full"),
        PartEnd(index=1),
        ResponseEnd(),
    )
    assert [frame["event_type"] for frame in encoded[1:4]] == ["step.start", "step.delta", "step.stop"]
    assert encoded[2]["delta"] == {"type": "thought_summary", "content": {"type": "text", "text": "hm"}}


def test_foreign_citation_offsets_become_byte_offsets() -> None:
    citation = Citation(url="https://a", start=3, end=7)
    encoded = encode_events(
        ResponseStart(origin="openai-chat"),
        PartStart(index=0, part=Text(text="")),
        PartDelta(index=0, text="Le café est"),
        PartDelta(index=0, annotation=citation),
        PartEnd(index=0),
        ResponseEnd(),
    )
    (annotation,) = [frame["delta"]["annotations"][0] for frame in encoded if "annotations" in frame.get("delta", {})]
    assert (annotation["start_index"], annotation["end_index"]) == (3, 8)


def test_an_incomplete_source_ends_with_an_error() -> None:
    encoded = encode_events(
        ResponseStart(origin="anthropic"), PartStart(index=0, part=Text(text="")), PartDelta(index=0, text="a")
    )
    assert encoded[-1]["event_type"] == "error"
    assert encoded[-1]["error"]["code"] == "internal"


def test_the_stream_ends_with_the_done_sentinel() -> None:
    encoder = CODEC.stream_encoder(ResponseContext())
    wire = encoder.encode([ResponseStart(origin="anthropic"), ResponseEnd()]) + encoder.close()
    assert wire.endswith(b"event: done\ndata: [DONE]\n\n")


@pytest.mark.parametrize("name", recorded_bodies.fixture_streams("gemini-interactions"))
def test_lenient_event_parser_matches_the_sdk(name: str) -> None:
    wire = recorded_bodies.fixture_streams("gemini-interactions")[name].decode()
    payloads = re.findall(r"^data: (\{.*)$", wire, re.MULTILINE)
    assert payloads
    for payload in [
        *payloads,
        *(re.sub(r'("(?:event_)?type": ?")', r"\1of_tomorrow.", payload) for payload in payloads),
    ]:
        data = f'{{"data":{payload}}}'
        assert parse_leniently(data) == unmarshal_json(data, InteractionSSEStreamEvent)


@pytest.mark.parametrize("arguments", [1, -1.5, True, "x", [2]])
def test_a_hosted_call_of_gemini_with_any_arguments_becomes_a_step(arguments: Any) -> None:
    part = {"toolCall": {"toolType": "URL_CONTEXT", "args": arguments, "id": "u"}}
    chunk = {"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]}
    wire = b"data: %b\n\n" % json.dumps(chunk).encode()
    frames = b"".join(tw.translate_stream([wire], "gemini", "gemini-interactions")).decode()
    assert f'"arguments":{json.dumps(arguments)}' in frames
    assert "interaction.complete" in frames
