"""Raising answers: names and free text are restored, and a stream tells the same as the whole answer."""

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
from toolwire.codec.interface import OriginalTool, ResponseMapping
from toolwire.translation.stages.restore_calls import CallRestoreStage, FreeformInput, restore_calls, restore_part

UNDO = ResponseMapping(
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
    ("part", "raised"),
    [
        (call("n__f"), call("f", namespace="n")),
        (call("a_b_0123"), call("a.b")),
        (call("other"), call("other")),
        (Text(text="patch"), Text(text="patch")),
        (call("patch", '{"input":"a\\n"}'), call("patch", "a\n", shape="freeform")),
        (call("n__edit", '{"input":"é"}'), call("edit", "é", namespace="n", shape="freeform")),
        # A model that does not keep to the shape is not corrected.
        (call("patch", "a\n"), call("patch", "a\n", shape="freeform")),
        (call("patch", '{"text":"a"}'), call("patch", '{"text":"a"}', shape="freeform")),
        (call("patch", '{"input":{}}'), call("patch", '{"input":{}}', shape="freeform")),
        (call("patch", ""), call("patch", "", shape="freeform")),
        # A renamed tool that takes free text as it is.
        (call("a_b_0123", "a\n", shape="freeform"), call("a.b", "a\n", shape="freeform")),
    ],
)
def test_parts(part: Part, raised: Part) -> None:
    assert restore_part(part, UNDO) == raised
    response = Response(origin="", candidates=(Candidate(messages=(Message(role="assistant", parts=(part,)),)),))
    whole = Response(origin="", candidates=(Candidate(messages=(Message(role="assistant", parts=(raised,)),)),))
    assert restore_calls(response, UNDO) == whole
    assert fold(CallRestoreStage(UNDO).process(list(unfold(response)))) == whole


def test_without_anything_to_undo_all_is_passed_on() -> None:
    response = Response(origin="", candidates=(Candidate(messages=(Message(role="assistant", parts=(call("f"),)),)),))
    events = list(unfold(response))
    assert restore_calls(response, ResponseMapping()) is response
    assert CallRestoreStage(ResponseMapping()).process(events) is events


# ---- free text out of JSON


@settings(deadline=None)
@given(st.text(), st.booleans(), st.sampled_from([None, 0, 2]), CUT_POINTS)
def test_any_text_in_any_spelling_and_any_cut(
    text: str, ascii_only: bool, indent: int | None, points: list[int]
) -> None:
    written = json.dumps({"input": text}, ensure_ascii=ascii_only, indent=indent)
    unescaped = FreeformInput()
    assert "".join(unescaped.feed(piece) for piece in slice_at(written, points)) == text
    assert unescaped.close() == ""


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (r'{"input":"\"\\\/\b\f\n\r\t"}', '"\\/\b\f\n\r\t'),
        (r'{"input":"\u00e9\u00E9\ud83d\ude00\uD83D\uDE00"}', "éé😀😀"),
        (r'{"input":"a\\"}', "a\\"),
        (r'{"input":""}', ""),
        (' {\n"input" :\t"a" , "more": "b"}', "a"),
        # Half a character is replaced, and takes nothing with it.
        (r'{"input":"\ud83dabcdefgh"}', "\ufffdabcdefgh"),
        (r'{"input":"\ud83d\n\t\n\t\n\t"}', "\ufffd\n\t\n\t\n\t"),
        (r'{"input":"\ud83d\u00e9"}', "\ufffdé"),
        (r'{"input":"\ud83d\ud83d\ude00"}', "\ufffd😀"),
        (r'{"input":"\ude00a"}', "\ufffda"),
        (r'{"input":"\ud83d"}', "\ufffd"),
        (r'{"input":"\uzzzza"}', "\ufffda"),
        # Cut short, it is what had arrived.
        (r'{"input":"abc', "abc"),
        (r'{"input":"abc\u00', "abc"),
        (r'{"input":"abc\ud83d\u', "abc"),
    ],
)
def test_escapes_at_any_cut(written: str, text: str) -> None:
    for pieces in non_empty(slice_in_two(written)):
        unescaped = FreeformInput()
        assert "".join(map(unescaped.feed, pieces)) + unescaped.close() == text


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
def test_what_is_in_another_shape_comes_as_it_is(written: str) -> None:
    for pieces in [[written], [*written], *slice_in_two(written[:50])]:
        unescaped = FreeformInput()
        assert "".join(map(unescaped.feed, pieces)) == ""
        assert unescaped.close() == "".join(pieces)


def test_another_order_is_the_same_shape() -> None:
    unescaped = FreeformInput()
    assert unescaped.feed('{"why":"because","input":"a') == ""
    assert unescaped.feed('\\n"}') == ""
    assert unescaped.close() == "a\n"


def test_the_text_comes_as_soon_as_it_is_there() -> None:
    unescaped = FreeformInput()
    pieces = ['{"inp', 'ut": ', '"a', "b\\", 'n\\"c', '"', "}"]
    assert [unescaped.feed(piece) for piece in pieces] == ["", "", "a", "b", '\n"c', "", ""]


def test_a_long_text_is_looked_at_once() -> None:
    """Whatever is held back between pieces stays small, so that each piece costs its own length."""
    inside, strange = FreeformInput(), FreeformInput()
    inside.feed('{"input":"')
    for _ in range(5_000):
        inside.feed("abc\\n\\")
        inside.feed('"')
        assert len(inside._incomplete_escape) <= 12
        strange.feed("abcdef")
    assert len(strange._head) < 5_000 / 10


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
def test_a_stream_tells_what_the_whole_answer_would(written: str, name: str, at_start: bool, points: list[int]) -> None:
    pieces = slice_at(written, points)
    start = call(name, pieces.pop(0) if at_start else "")
    events = stream(start, pieces)
    whole = fold(events)
    raised = fold(CallRestoreStage(UNDO).process(events))
    try:
        json.loads(written)
    except ValueError:
        # A text that breaks off, or goes on after its end, has shown what it could by then.
        if written.lstrip().startswith("{"):
            return
    assert raised == restore_calls(whole, UNDO)


def test_parts_and_candidates_are_told_apart() -> None:
    events: list[Event] = []
    texts = {(0, 0): "a", (0, 1): "b", (1, 0): "c"}
    for candidate, index in texts:
        events.append(PartStart(candidate=candidate, index=index, part=call("patch", "")))
    for step in range(3):
        for (candidate, index), text in texts.items():
            piece = ['{"input":', f'"{text}\\', 'n"}'][step]
            events.append(PartDelta(candidate=candidate, index=index, text=piece))
    events += [PartEnd(candidate=candidate, index=index) for candidate, index in texts]
    response = fold(CallRestoreStage(UNDO).process(events))
    calls = [[part for one in candidate.messages for part in one.parts] for candidate in response.candidates]
    raised = {text: call("patch", f"{text}\n", shape="freeform") for text in "abc"}
    assert calls == [[raised["a"], raised["b"]], [raised["c"]]]


def test_free_text_that_was_never_lowered_passes_as_it_comes() -> None:
    events = stream(call("a_b_0123", shape="freeform"), ['{"input":', '"a"}'])
    raised = list(CallRestoreStage(UNDO).process(events))
    assert raised[2] == PartStart(index=0, part=call("a.b", shape="freeform"))
    assert raised[3:] == events[3:]


def test_a_final_part_is_raised_too() -> None:
    final = call("patch", '{"input":"a"}')
    events = list(CallRestoreStage(UNDO).process(stream(call("patch", ""), ['{"input"', ':"a"}'], final)))
    assert events[-2] == PartEnd(index=0, final=call("patch", "a", shape="freeform"))
