"""Restoring calls: names and freeform text, the same for streams and complete responses."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.assertions import non_empty
from tests.support.slices import CUT_POINTS, slice_at, slice_in_two
from toolwire.canonical.content import Message, Part, Text, ToolCall
from toolwire.canonical.events import Event, MessageEnd, MessageStart, PartDelta, PartEnd, PartStart, ResponseStart
from toolwire.canonical.fold import fold, unfold
from toolwire.canonical.response import Candidate, Response
from toolwire.codec.interface import OriginalTool, ResponseContext, ResponseMapping
from toolwire.protocols import PROTOCOLS
from toolwire.translation.pipeline import adapt_response, run_stages
from toolwire.translation.stages.restore_calls import CallRestoreStage, FreeformInput, restore_part

MAPPING = ResponseMapping(
    tools={
        "n__f": OriginalTool("f", "n"),
        "patch": OriginalTool("patch", None, freeform=True),
        "n__edit": OriginalTool("edit", "n", freeform=True),
        "a_b_0123": OriginalTool("a.b"),
    }
)


def call(name: str, arguments: str = "{}", **more: Any) -> ToolCall:
    return ToolCall(id="1", name=name, arguments=arguments, **more)


@pytest.mark.parametrize(
    ("part", "restored"),
    [
        (call("n__f"), call("f", namespace="n")),
        (call("a_b_0123"), call("a.b")),
        (call("other"), call("other")),
        (Text(text="patch"), Text(text="patch")),
        (call("patch", '{"input":"a\\n"}'), call("patch", "a\n", shape="freeform")),
        (call("n__edit", '{"input":"é"}'), call("edit", "é", namespace="n", shape="freeform")),
        # Arguments of another shape are kept unchanged.
        (call("patch", "a\n"), call("patch", "a\n", shape="freeform")),
        (call("patch", '{"text":"a"}'), call("patch", '{"text":"a"}', shape="freeform")),
        (call("patch", '{"input":{}}'), call("patch", '{"input":{}}', shape="freeform")),
        (call("patch", ""), call("patch", "", shape="freeform")),
        # A renamed tool with native freeform input.
        (call("a_b_0123", "a\n", shape="freeform"), call("a.b", "a\n", shape="freeform")),
    ],
)
def test_parts(part: Part, restored: Part) -> None:
    assert restore_part(part, MAPPING) == restored
    response = Response(origin="", candidates=(Candidate(messages=(Message(role="assistant", parts=(part,)),)),))
    expected = Response(origin="", candidates=(Candidate(messages=(Message(role="assistant", parts=(restored,)),)),))
    gemini, context = PROTOCOLS["gemini"], ResponseContext(mapping=MAPPING)
    assert adapt_response(response, gemini, gemini, context) == expected
    stages = [CallRestoreStage(MAPPING)]
    assert fold([item for event in unfold(response) for item in run_stages(stages, [event])]) == expected


def test_empty_mapping_changes_nothing() -> None:
    response = Response(origin="", candidates=(Candidate(messages=(Message(role="assistant", parts=(call("f"),)),)),))
    assert not CallRestoreStage(ResponseMapping()).applies(response)


# ---- freeform text in JSON


@settings(deadline=None)
@given(st.text(), st.booleans(), st.sampled_from([None, 0, 2]), CUT_POINTS)
def test_freeform_input_is_unescaped_at_any_cut(
    text: str, ascii_only: bool, indent: int | None, points: list[int]
) -> None:
    written = json.dumps({"input": text}, ensure_ascii=ascii_only, indent=indent)
    reader = FreeformInput()
    assert "".join(reader.feed(piece) for piece in slice_at(written, points)) == text
    assert reader.close() == ""


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (r'{"input":"\"\\\/\b\f\n\r\t"}', '"\\/\b\f\n\r\t'),
        (r'{"input":"\u00e9\u00E9\ud83d\ude00\uD83D\uDE00"}', "éé😀😀"),
        (r'{"input":"a\\"}', "a\\"),
        (r'{"input":""}', ""),
        (' {\n"input" :\t"a" , "more": "b"}', "a"),
        # A lone surrogate is replaced, without affecting the following text.
        (r'{"input":"\ud83dabcdefgh"}', "\ufffdabcdefgh"),
        (r'{"input":"\ud83d\n\t\n\t\n\t"}', "\ufffd\n\t\n\t\n\t"),
        (r'{"input":"\ud83d\u00e9"}', "\ufffdé"),
        (r'{"input":"\ud83d\ud83d\ude00"}', "\ufffd😀"),
        (r'{"input":"\ude00a"}', "\ufffda"),
        (r'{"input":"\ud83d"}', "\ufffd"),
        (r'{"input":"\uzzzza"}', "\ufffda"),
        # Truncated input gives the text so far.
        (r'{"input":"abc', "abc"),
        (r'{"input":"abc\u00', "abc"),
        (r'{"input":"abc\ud83d\u', "abc"),
    ],
)
def test_escapes_at_any_cut(written: str, text: str) -> None:
    for pieces in non_empty(slice_in_two(written)):
        reader = FreeformInput()
        assert "".join(map(reader.feed, pieces)) + reader.close() == text


@pytest.mark.parametrize(
    "written",
    [
        "a plain text",
        '{"text":"a"}',
        '{"input":5,"b":"c"}',
        '{"input":null}',
        '{"inputs":"a"}',
        '"input":"a"',
        '["input","a"]',
        '{"a":"input","b":"c"}',
        '{"inp',
        "x" * 5_000,
    ],
)
def test_arguments_of_another_shape_pass_unchanged(written: str) -> None:
    for pieces in [[written], [*written], *slice_in_two(written[:50])]:
        reader = FreeformInput()
        assert "".join(map(reader.feed, pieces)) == ""
        assert reader.close() == "".join(pieces)


def test_input_after_another_member_is_unwrapped() -> None:
    reader = FreeformInput()
    assert reader.feed('{"why":"because","input":"a') == ""
    assert reader.feed('\\n"}') == ""
    assert reader.close() == "a\n"


def test_freeform_text_is_returned_immediately() -> None:
    reader = FreeformInput()
    pieces = ['{"inp', 'ut": ', '"a', "b\\", 'n\\"c', '"', "}"]
    assert [reader.feed(piece) for piece in pieces] == ["", "", "a", "b", '\n"c', "", ""]


def test_buffered_input_stays_small() -> None:
    """Little text is held back between pieces, so that each piece costs its own length."""
    inside, unexpected = FreeformInput(), FreeformInput()
    inside.feed('{"input":"')
    for _ in range(5_000):
        inside.feed("abc\\n\\")
        inside.feed('"')
        assert len(inside._incomplete_escape) <= 12
        unexpected.feed("abcdef")
    assert len(unexpected._head) < 5_000 / 10


# ---- streams


def stream(part: ToolCall, pieces: list[str], final: ToolCall | None = None) -> list[Event]:
    return [
        ResponseStart(origin=""),
        MessageStart(),
        PartStart(index=0, part=part),
        *(PartDelta(index=0, text=piece) for piece in pieces),
        PartEnd(index=0, final=final),
        MessageEnd(),
    ]


@settings(deadline=None)
@given(
    st.text(max_size=20)
    | st.text('{"input":\\ }', max_size=20)
    | st.text().map(lambda text: json.dumps({"input": text})),
    st.sampled_from(["patch", "n__edit", "n__f", "other"]),
    st.booleans(),
    CUT_POINTS,
)
def test_stream_and_complete_response_restore_the_same(
    written: str, name: str, at_start: bool, points: list[int]
) -> None:
    pieces = slice_at(written, points)
    start = call(name, pieces.pop(0) if at_start else "")
    events = stream(start, pieces)
    response = fold(events)
    restored = fold(run_stages([CallRestoreStage(MAPPING)], events))
    try:
        json.loads(written)
    except ValueError:
        # Truncated JSON, or text after its end, cannot be compared: the stream has already sent part of it.
        if written.lstrip().startswith("{"):
            return
    gemini, context = PROTOCOLS["gemini"], ResponseContext(mapping=MAPPING)
    assert restored == adapt_response(response, gemini, gemini, context)


def test_parts_and_candidates_are_kept_apart() -> None:
    events: list[Event] = []
    texts = {(0, 0): "a", (0, 1): "b", (1, 0): "c"}
    for candidate, index in texts:
        events.append(PartStart(candidate=candidate, index=index, part=call("patch", "")))
    for step in range(3):
        for (candidate, index), text in texts.items():
            piece = ['{"input":', f'"{text}\\', 'n"}'][step]
            events.append(PartDelta(candidate=candidate, index=index, text=piece))
    events += [PartEnd(candidate=candidate, index=index) for candidate, index in texts]
    response = fold(run_stages([CallRestoreStage(MAPPING)], events))
    calls = [[part for message in candidate.messages for part in message.parts] for candidate in response.candidates]
    restored = {text: call("patch", f"{text}\n", shape="freeform") for text in "abc"}
    assert calls == [[restored["a"], restored["b"]], [restored["c"]]]


def test_native_freeform_input_passes_unchanged() -> None:
    events = stream(call("a_b_0123", shape="freeform"), ['{"input":', '"a"}'])
    restored = run_stages([CallRestoreStage(MAPPING)], events)
    assert restored[2] == PartStart(index=0, part=call("a.b", shape="freeform"))
    assert restored[3:] == events[3:]


def test_final_part_is_restored() -> None:
    final = call("patch", '{"input":"a"}')
    streamed = stream(call("patch", ""), ['{"input"', ':"a"}'], final)
    events = run_stages([CallRestoreStage(MAPPING)], streamed)
    assert events[-2] == PartEnd(index=0, final=call("patch", "a", shape="freeform"))
