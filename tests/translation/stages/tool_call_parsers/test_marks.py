"""Text without marks passes as it arrives, and text that may begin a mark is held."""

import pytest

from toolwire.canonical.content import Text
from toolwire.canonical.events import Event, PartDelta, PartStart
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool
from toolwire.codec.interface import ResponseContext, TextRecovery
from toolwire.translation.stages.tool_call_parsers.marks import FIRST_SIGNS
from toolwire.translation.stages.tool_call_parsers.prose import LIMIT_PIECES
from toolwire.translation.stages.tool_call_parsers.reasoning import OPEN_REASONING, REASONING_MARKS
from toolwire.translation.stages.tool_call_parsers.registry import DIALECTS, vocabulary
from toolwire.translation.stages.tool_call_parsers.stage import TextRecoveryStage


def stage_after_text() -> TextRecoveryStage:
    """Return a stage that has let text pass."""
    request = Request(origin="openai-chat", model="m", messages=(), tools=(FunctionTool(name="now"),))
    stage = TextRecoveryStage(ResponseContext(request=request), TextRecovery())
    stage.process([PartStart(index=0, part=Text(text="")), delta("Well, ")])
    return stage


def delta(text: str) -> Event:
    return PartDelta(index=0, text=text, plain=True)


@pytest.mark.parametrize("reasoning", ["auto", "off", *REASONING_MARKS, *OPEN_REASONING])
@pytest.mark.parametrize("calls", ["auto", "off", *DIALECTS])
def test_all_marks_in_text_begin_with_a_first_sign(calls: str, reasoning: str) -> None:
    assert vocabulary(calls, reasoning, None, interleaved=False).finder.begins_with_sign


@pytest.mark.parametrize("sign", sorted(FIRST_SIGNS))
def test_a_first_sign_at_the_end_of_a_delta_is_held(sign: str) -> None:
    stage = stage_after_text()
    processed, _ = stage.process([delta("so " + sign)])
    assert [getattr(event, "text", "") for event in processed] == ["so "]
    assert stage.is_holding


@pytest.mark.parametrize("text", ["word", "if a < b: c[0] = f(x)", "[1] of them", "\n\n", "天气"])
def test_text_without_a_mark_passes_as_the_same_list(text: str) -> None:
    stage = stage_after_text()
    for _ in range(2 * LIMIT_PIECES + 2):
        events = [delta(text)]
        processed, others = stage.process(events)
        assert processed is events
        assert others == []


def test_a_fence_far_back_still_shows_code() -> None:
    for opening, kind in (("\n```\n", "text"), ("\n", "call")):
        stage = stage_after_text()
        processed: list[Event] = []
        for text in (
            opening,
            *["line\n"] * 5 * LIMIT_PIECES,
            '<tool_call>{"name": "now", "arguments": {}}</tool_call>',
        ):
            processed += stage.process([delta(text)])[0]
        assert stage.has_changed is (kind == "call")
