"""Text without marks passes as it arrives, and text that may begin a mark is held."""

import json
from collections.abc import Callable
from itertools import product

import pytest

from tests.support.assertions import non_empty
from tests.support.bodies.chat_text import chat_stream
from toolwire.canonical.content import Reasoning, Text, ToolCall
from toolwire.canonical.events import Event, PartDelta, PartDeltas, PartEnd, PartStart, ResponseEnd, ResponseStart
from toolwire.canonical.fold import fold
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool
from toolwire.codec.fast_path import KNOWN_TEXTS
from toolwire.codec.interface import ResponseContext, TextRecovery
from toolwire.protocols import PROTOCOLS
from toolwire.translation.stages.tool_call_parsers import text_recovery
from toolwire.translation.stages.tool_call_parsers.marks import MarkFinder
from toolwire.translation.stages.tool_call_parsers.reasoning import OPEN_REASONING, REASONING_MARKS
from toolwire.translation.stages.tool_call_parsers.registry import DIALECTS, vocabulary
from toolwire.translation.stages.tool_call_parsers.signs import (
    SEPARATOR,
    _all_marks,
    _mark_finder,
    compile_marks,
    may_begin_with_mark,
    may_hold_mark,
)
from toolwire.translation.stages.tool_call_parsers.text_recovery import LIMIT_UNREAD, TextRecoveryStage
from toolwire.translation.stream import StreamTranslator

CALL = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'


def new_stage() -> TextRecoveryStage:
    request = Request(origin="openai-chat", model="m", messages=(), tools=(FunctionTool(name="now"),))
    return TextRecoveryStage(ResponseContext(request=request), TextRecovery())


def feed(stage: TextRecoveryStage, *events: Event) -> list[Event]:
    """Return the events that come out of a stage, as a translator gets them."""
    arrived = list(events)
    return arrived if stage.pass_unmarked(arrived) else stage.process(arrived)


def stage_after_text() -> TextRecoveryStage:
    """Return a stage that has let text pass."""
    stage = new_stage()
    assert stage.pass_unmarked([PartStart(index=0, part=Text(text="")), delta("Well, ")])
    return stage


def delta(text: str, index: int = 0) -> Event:
    return PartDelta(index=index, text=text)


def texts_of(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, PartDelta)]


@pytest.mark.parametrize(
    ("calls", "reasoning"),
    [
        *product(["auto", "off", *DIALECTS], ["auto", "off"]),
        *product(["auto", "off"], [*REASONING_MARKS, *OPEN_REASONING]),
    ],
)
def test_every_mark_and_every_beginning_of_one_is_noticed(calls: str, reasoning: str) -> None:
    words = vocabulary(calls, reasoning, None, interleaved=False)
    for mark in words.finder.marks:
        for end in range(1, len(mark) + 1):
            assert may_hold_mark(f"so {mark[:end]}")
            assert may_hold_mark(SEPARATOR.join(["well", f"so {mark[:end]}", "then"]))
            assert may_hold_mark(SEPARATOR.join(["so ", mark[:end]]))
            assert may_hold_mark(SEPARATOR.join(["so ", mark[:end], "then"]))
    openings = {*words.start_finder.marks, *[mark for dialect in words.bare for mark in dialect.openers]}
    assert all(map(may_begin_with_mark, openings))


def escape_all(text: str) -> str:
    """Return a JSON string with each character escaped, as some servers write `<`."""
    return '"' + "".join(f"\\u{ord(character):04x}" for character in text) + '"'


def escape_none(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def encoded_deltas(texts: list[str], encode: Callable[[str], str]) -> PartDeltas:
    return PartDeltas(index=0, texts=texts, wire="\n".join(map(encode, texts)).encode())


@pytest.mark.parametrize("encode", [escape_all, escape_none, json.dumps])
def test_every_mark_and_every_beginning_of_one_is_noticed_in_json(encode: Callable[[str], str]) -> None:
    stage = stage_after_text()
    for mark in non_empty(vocabulary("auto", "auto", None, interleaved=False).finder.marks):
        for end in range(1, len(mark) + 1):
            for texts in (["so ", mark[:end]], ["so ", *mark[:end]], [f"so {mark[0]}", *mark[1:end]]):
                for before in ([], ["Well, this is long enough."]):
                    assert not stage.pass_deltas(encoded_deltas([*before, *texts], encode))


@pytest.mark.parametrize("encode", [escape_none, json.dumps])
def test_json_of_text_without_a_mark_passes_unread(
    encode: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_after_text()
    monkeypatch.setattr(text_recovery, "may_hold_mark", None)  # no text is searched
    for texts in (
        ["Well", ", of course", " it"],
        ["a\\nb", '"c"\n', "\t" * 20],
        ["for more", "fun", "ctional", " code"],
    ):
        assert stage.pass_deltas(encoded_deltas(texts, encode))


@pytest.mark.parametrize("text", ["word", " f(x)", "of", "ctools", "<b", "Ω"])
def test_short_texts_are_known_once_they_passed(text: str) -> None:
    stage = stage_after_text()
    deltas = encoded_deltas([text], json.dumps)
    assert stage.pass_deltas(deltas)
    assert KNOWN_TEXTS[deltas.wire] == text


def test_texts_that_may_begin_a_mark_are_never_known() -> None:
    for text in ("<", "so <", "[", "]", "f", " fun", "◁"):
        deltas = encoded_deltas([text], json.dumps)
        assert not stage_after_text().pass_deltas(deltas)
        assert deltas.wire not in KNOWN_TEXTS


def test_few_texts_are_known_and_none_that_is_long() -> None:
    stage = stage_after_text()
    long = encoded_deltas(["a text of more than twenty bytes"], json.dumps)
    assert stage.pass_deltas(long)
    assert long.wire not in KNOWN_TEXTS
    for number in range(3 * 8192):
        assert stage.pass_deltas(encoded_deltas([f" w{number}"], json.dumps))
    assert 0 < len(KNOWN_TEXTS) <= 8192


@pytest.mark.parametrize("sign", sorted("<[]◁f"))
def test_a_first_sign_at_the_end_of_a_delta_is_held(sign: str) -> None:
    stage = stage_after_text()
    assert texts_of(feed(stage, delta("so " + sign))) == ["so "]
    assert stage.is_holding


@pytest.mark.parametrize("text", ["word", "if a < b: c[0] = f(x)", "[1] of them", "\n\n", "天气"])
def test_text_without_a_mark_passes(text: str) -> None:
    stage = stage_after_text()
    for _ in range(2 * LIMIT_UNREAD + 2):
        assert stage.pass_unmarked([delta(text)])
    assert stage.pass_unmarked([delta(text)] * 3 * LIMIT_UNREAD)


def test_deltas_of_other_parts_pass() -> None:
    stage = new_stage()
    start: list[Event] = [PartStart(index=0, part=Reasoning())]
    assert stage.pass_unmarked(start)
    thought: list[Event] = [PartDelta(index=0, text="Let me think", kind="full")]
    assert stage.pass_unmarked(thought)
    assert feed(stage, *[PartDelta(index=0, text=f"{CALL} and [", kind="full")] * 2) == [
        *[PartDelta(index=0, text=f"{CALL} and [", kind="full")] * 2
    ]
    assert not stage.has_changed


def test_a_mark_that_is_cut_by_deltas_of_a_call_is_found() -> None:
    stage = new_stage()
    call = ToolCall(id=None, name="now", arguments="")
    feed(stage, PartStart(index=0, part=Text(text="")), delta("Well. "), PartStart(index=1, part=call))
    events: list[Event] = [delta("</thi"), delta("{}", 1), delta("nk>"), PartEnd(index=1), PartEnd(index=0)]
    feed(stage, *events)
    assert stage.has_changed


@pytest.mark.parametrize("first", ["", " ", "\n", "{", "[", "`", "commentary", "Here is"])
def test_a_text_that_may_begin_with_a_mark_does_not_pass(first: str) -> None:
    stage = new_stage()
    assert not stage.pass_unmarked([PartStart(index=0, part=Text(text="")), delta(first)])
    assert not new_stage().pass_unmarked([PartStart(index=0, part=Text(text=""))])


def test_nothing_passes_unread_while_reasoning_is_open() -> None:
    request = Request(origin="openai-chat", model="m", messages=())
    stage = TextRecoveryStage(ResponseContext(request=request), TextRecovery(reasoning="deepseek_r1"))
    start = PartStart(index=0, part=Text(text=""))
    processed = [*feed(stage, start, delta("Hm.")), *feed(stage, delta(" Well. ")), *feed(stage, delta("</think>Yes."))]
    assert stage.has_changed
    assert [type(event.part) for event in processed if isinstance(event, PartStart)] == [Reasoning, Text]


def test_a_fence_far_back_still_shows_code() -> None:
    for opening, kind in (("\n```\n", "text"), ("\n", "call")):
        stage = stage_after_text()
        for text in (opening, *["line\n"] * 5 * LIMIT_UNREAD, CALL):
            feed(stage, delta(text))
        assert stage.has_changed is (kind == "call")


def test_long_texts_are_not_kept() -> None:
    stage = stage_after_text()
    for _ in range(LIMIT_UNREAD // 2):
        assert stage.pass_unmarked([delta("line\n" * 2_000)])
    assert sum(len(text) for text in texts_of(stage._unread)) < 20_000


def test_a_response_that_ended_is_forgotten_and_the_next_one_read() -> None:
    stage = stage_after_text()
    assert stage.pass_deltas(encoded_deltas([" word"], json.dumps))
    assert stage.pass_unmarked([PartEnd(index=0), ResponseEnd()])
    assert stage._unread == []
    assert stage.passed_texts is None
    feed(stage, ResponseStart(origin="openai-chat"), PartStart(index=0, part=Text(text="")), delta("Well, "))
    assert not stage.has_changed
    feed(stage, delta(CALL), PartEnd(index=0), ResponseEnd())
    assert stage.has_changed


def test_known_deltas_are_read_once_they_are_many() -> None:
    stage = stage_after_text()
    for _ in range(3 * LIMIT_UNREAD):
        assert stage.pass_deltas(PartDeltas(index=0, texts=["word"]))
        assert len(stage._unread) <= LIMIT_UNREAD + 4
    assert not stage.pass_deltas(PartDeltas(index=0, texts=["so <", "word"]))


@pytest.mark.parametrize("writer", ["openai-chat", "anthropic"])
def test_a_stream_of_known_deltas_is_read_once_they_are_many(writer: str) -> None:
    context = ResponseContext(text_recovery=TextRecovery())
    translator = StreamTranslator(PROTOCOLS["openai-chat"], PROTOCOLS[writer], context)
    recovery = translator._recovery
    assert recovery is not None
    passed = []
    for frame in chat_stream(["word"] * 3 * LIMIT_UNREAD):
        translator.feed(frame)
        passed.append(len(recovery.passed_texts or ()))
    assert LIMIT_UNREAD // 2 < max(passed) <= LIMIT_UNREAD


def test_text_that_was_held_and_released_stays_part_of_the_response() -> None:
    chat = PROTOCOLS["openai-chat"]
    request = Request(origin="openai-chat", model="m", messages=(), tools=(FunctionTool(name="now"),))
    translator = StreamTranslator(chat, chat, ResponseContext(request=request, text_recovery=TextRecovery()))
    frames = chat_stream(["<tool", "box, ", f"then {CALL}"])
    wire = b"".join([*map(translator.feed, frames), translator.close()])
    decoder = chat.stream_decoder(ResponseContext())
    response = fold([*decoder.feed(wire), *decoder.close()])
    text, call = response.candidates[0].messages[0].parts
    assert isinstance(text, Text)
    assert (text.text, type(call)) == ("<toolbox, then ", ToolCall)
    assert (translator.summary.id, translator.summary.model) == (response.id, response.model) != (None, None)


def test_pattern_is_compiled_when_a_text_may_hold_a_mark() -> None:
    finder = MarkFinder(["<think>", "[CALL]"])
    assert not finder.is_in("a text without brackets")
    assert "_regex" not in vars(finder)
    assert finder.is_in("a < b, or a mark: <th")
    assert "_regex" in vars(finder)


def test_servers_compile_all_marks_in_advance() -> None:
    compile_marks()
    finders = [_mark_finder(), _all_marks().finder, _all_marks().opening_finder]
    assert ["_regex" in vars(finder) for finder in finders] == [True] * 3
