"""Streams of the Interactions API, read and written."""

import json
import re
from typing import Any

import pytest
from google.genai._gaos.types.interactions.interactionssestreamevent import InteractionSSEStreamEvent
from google.genai._gaos.utils.serializers import unmarshal_json

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


def written(*told: Event) -> list[Any]:
    encoder = CODEC.stream_encoder(ResponseContext())
    return frames(encoder.encode(told) + encoder.close())


def test_every_stream_folds_to_its_response() -> None:
    compared = 0
    for path in sorted((FOLDER / "responses").glob("*.json")):
        if not (FOLDER / "streams" / f"{path.stem}.sse").is_file():
            continue
        body = json.dumps(json.loads(path.read_bytes()), ensure_ascii=False, separators=(",", ":"))
        whole = CODEC.decode_response(body.encode(), ResponseContext())
        told = folded(path.stem)
        assert [_said(part) for part in parts(told)] == [_said(part) for part in parts(whole)], path.stem
        assert told.usage == whole.usage, path.stem
        assert told.candidates[0].stop == whole.candidates[0].stop, path.stem
        compared += 1
    assert compared > 20


def _said(part: Any) -> Any:
    """A part without how it was spelt; a summary in several pieces is one text."""
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
            return part.text, [(note.url, note.title, note.start, note.end) for note in part.annotations or ()]
        case Media():
            return part.kind, part.source, part.media_type
        case _:
            return part


def _bodies(part: ToolResult) -> list[Any]:
    bodies = [json.loads(bytes(getattr(one, "body", b"null"))) for one in part.content or ()]
    return [body for body in bodies if body != []]


def test_frames_of_ordinary_streams_come_home_one_by_one() -> None:
    for name in ("text", "one_call", "parallel_calls", "google_search", "code_execution", "event_ids", "checkpoints"):
        encoder = CODEC.stream_encoder(ResponseContext())
        again = encoder.encode(events(stream(name))) + encoder.close()
        assert frames(again) == frames(stream(name)), name


def test_plain_deltas_are_marked() -> None:
    deltas = [event for event in events(stream("text")) if isinstance(event, PartDelta)]
    assert all(delta.plain for delta in deltas[1:])


def test_arguments_of_the_start_count_if_there_are_no_others() -> None:
    (call,) = parts(folded("arguments_in_start"))
    assert json.loads(call.arguments) == {"city": "Paris"}
    (empty,) = parts(folded("call_completed"))
    assert empty.arguments == "{}"


def test_annotations_count_the_whole_text() -> None:
    (text,) = parts(folded("annotation_alias"))
    assert text.annotations is not None
    assert (text.annotations[0].start, text.annotations[0].end) == (3, 7)


def test_steps_that_only_the_end_tells() -> None:
    assert [type(part) for part in parts(folded("steps_in_completed"))] == [Reasoning, Text, ToolCall]


def test_a_cut_stream_is_broken() -> None:
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


# ---- from others


def test_two_texts_are_two_steps() -> None:
    told = written(
        ResponseStart(origin="anthropic", id="msg_1", model="m"),
        MessageStart(),
        PartStart(index=0, part=Text(text="")),
        PartDelta(index=0, text="a", plain=True),
        PartEnd(index=0),
        PartStart(index=1, part=Text(text="")),
        PartDelta(index=1, text="b", plain=True),
        PartEnd(index=1),
        MessageEnd(),
        CandidateEnd(stop=Stop(reason="end_turn")),
        UsageReport(usage=Usage(input_tokens=3, output_tokens=5, reasoning=2)),
        ResponseEnd(),
    )
    kinds = [(frame["event_type"], frame.get("index")) for frame in told]
    step = ["step.start", "step.delta", "step.stop"]
    assert kinds == [
        ("interaction.created", None),
        *[(kind, 0) for kind in step],
        *[(kind, 1) for kind in step],
        ("interaction.completed", None),
    ]
    usage = told[-1]["interaction"]["usage"]
    assert (usage["total_output_tokens"], usage["total_thought_tokens"], usage["total_tokens"]) == (3, 2, 8)


def test_interleaved_calls_follow_one_another() -> None:
    told = written(
        ResponseStart(origin="openai-chat"),
        PartStart(index=0, part=ToolCall(id="a", name="f", arguments="")),
        PartStart(index=1, part=ToolCall(id="b", name="f", arguments="")),
        PartDelta(index=1, text='{"x":', plain=True),
        PartDelta(index=0, text="{}", plain=True),
        PartDelta(index=1, text="1}", plain=True),
        PartEnd(index=0),
        PartEnd(index=1),
        ResponseEnd(),
    )
    order = [frame["index"] for frame in told if "index" in frame]
    assert order == sorted(order)
    texts: dict[int, str] = {}
    for frame in told:
        if frame["event_type"] == "step.delta":
            texts[frame["index"]] = texts.get(frame["index"], "") + frame["delta"]["arguments"]
    assert texts == {0: "{}", 1: '{"x":1}'}
    assert told[-1]["interaction"]["status"] == "requires_action"


def test_a_thought_opens_when_there_is_something_to_show() -> None:
    hidden = Signature(issuer="anthropic", data="x", kind="encrypted")
    told = written(
        ResponseStart(origin="anthropic"),
        PartStart(index=0, part=Reasoning(signature=hidden)),
        PartEnd(index=0),
        PartStart(index=1, part=Reasoning()),
        PartDelta(index=1, text="hm", kind="full"),
        PartEnd(index=1),
        ResponseEnd(),
    )
    assert [frame["event_type"] for frame in told[1:4]] == ["step.start", "step.delta", "step.stop"]
    assert told[2]["delta"] == {"type": "thought_summary", "content": {"type": "text", "text": "hm"}}


def test_citations_of_others_count_bytes() -> None:
    note = Citation(url="https://a", start=3, end=7)
    told = written(
        ResponseStart(origin="openai-chat"),
        PartStart(index=0, part=Text(text="")),
        PartDelta(index=0, text="Le café est", plain=True),
        PartDelta(index=0, annotation=note),
        PartEnd(index=0),
        ResponseEnd(),
    )
    (cited,) = [frame["delta"]["annotations"][0] for frame in told if "annotations" in frame.get("delta", {})]
    assert (cited["start_index"], cited["end_index"]) == (3, 8)


def test_a_stream_that_is_cut_ends_with_an_error() -> None:
    told = written(
        ResponseStart(origin="anthropic"), PartStart(index=0, part=Text(text="")), PartDelta(index=0, text="a")
    )
    assert told[-1]["event_type"] == "error"
    assert told[-1]["error"]["code"] == "internal"


def test_the_sentinel_ends_it() -> None:
    encoder = CODEC.stream_encoder(ResponseContext())
    wire = encoder.encode([ResponseStart(origin="anthropic"), ResponseEnd()]) + encoder.close()
    assert wire.endswith(b"event: done\ndata: [DONE]\n\n")


@pytest.mark.parametrize("name", recorded_bodies.fixture_streams("gemini-interactions"))
def test_our_reader_of_events_is_the_sdks(name: str) -> None:
    wire = recorded_bodies.fixture_streams("gemini-interactions")[name].decode()
    told = re.findall(r"^data: (\{.*)$", wire, re.MULTILINE)
    assert told
    for event in [*told, *(re.sub(r'("(?:event_)?type": ?")', r"\1of_tomorrow.", event) for event in told)]:
        data = f'{{"data":{event}}}'
        assert parse_leniently(data) == unmarshal_json(data, InteractionSSEStreamEvent)
