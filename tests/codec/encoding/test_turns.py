"""Turns: alternating roles, results right after their calls, and every part kept or reported."""

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire.canonical.content import Message, Part, Role, Text, ToolCall, ToolResult
from toolwire.canonical.errors import Loss
from toolwire.canonical.request import Request
from toolwire.codec.encoding.turns import (
    UNANSWERED_TEXT,
    Turn,
    assemble,
    is_derived_id,
    leading_system_count,
    one_turn_per_message,
)
from toolwire.codec.losses import LossReport
from toolwire.translation.body import get_codec, translate


def call(id: str | None, name: str = "f", **more: Any) -> ToolCall:
    return ToolCall(id=id, name=name, arguments="{}", **more)


def result(id: str | None, text: str = "done", **more: Any) -> ToolResult:
    return ToolResult(call_id=id, content=(Text(text=text),), **more)


def message(role: Role, *parts: Part | str) -> Message:
    return Message(role=role, parts=tuple(Text(text=part) if isinstance(part, str) else part for part in parts))


def user(*parts: Part | str) -> Message:
    return message("user", *parts)


def assistant(*parts: Part | str) -> Message:
    return message("assistant", *parts)


def system(*parts: Part | str) -> Message:
    return message("system", *parts)


def assembled(*messages: Message, skip: int = 0) -> tuple[list[Turn], list[Loss]]:
    request, report = Request(origin="", messages=messages), LossReport()
    turns = assemble(request, report, skip=skip)
    return turns, report.resolve(request, {})


def shown(turns: list[Turn]) -> list[str]:
    """Return turns in a compact notation: `assistant: a [call 1]`."""
    return [f"{turn.role}: {' '.join(_word(placed.part) for placed in turn.parts)}" for turn in turns]


def _word(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case ToolCall():
            return f"[call {part.id}]"
        case ToolResult():
            content = "-" if part.content is None else " ".join(_word(inner) for inner in part.content)
            return f"[{part.status} {part.call_id}: {content}]"
        case _:
            return type(part).__name__


@pytest.mark.parametrize(
    ("messages", "turns"),
    [
        ([user("a"), user("b"), assistant("c"), assistant("d")], ["user: a b", "assistant: c d"]),
        ([user("a"), system("s"), user("b")], ["user: a", "system: s", "user: b"]),
        ([system("s"), system("t")], ["system: s", "system: t"]),
        # Results come first, in the order of the calls, and from all messages of the turn.
        (
            [assistant(call("1"), call("2")), user("a", result("2")), user(result("1"), "b")],
            ["assistant: [call 1] [call 2]", "user: [ok 1: done] [ok 2: done] a b"],
        ),
        # An unanswered call gets a placeholder, unless its result may still come.
        (
            [assistant(call("1"), call("2")), user(result("2"))],
            ["assistant: [call 1] [call 2]", f"user: [ok 1: {UNANSWERED_TEXT}] [ok 2: done]"],
        ),
        ([assistant(call("1")), user("a")], ["assistant: [call 1]", f"user: [ok 1: {UNANSWERED_TEXT}] a"]),
        (
            [assistant(call("1")), system("s"), user("a")],
            ["assistant: [call 1]", f"user: [ok 1: {UNANSWERED_TEXT}] a", "system: s"],
        ),
        ([assistant(call("1")), system("s")], ["assistant: [call 1]", "system: s"]),
        ([user("a"), assistant(call("1"))], ["user: a", "assistant: [call 1]"]),
        # A late or an orphaned result stays where it is, as text.
        ([user(result("1", "late"))], ["user: [result of a tool, call 1] late"]),
        ([user(result("1", "late", status="error"))], ["user: [result of a tool, call 1: error] late"]),
        (
            [assistant(call("1")), user(result("1")), assistant("a"), user("b", result("1", "late", name="f"))],
            ["assistant: [call 1]", "user: [ok 1: done]", "assistant: a", "user: b [result of f, call 1] late"],
        ),
        # Of two results the last one counts.
        (
            [assistant(call("1"), call("2")), user(result("1", "old"), result("2"), result("1", "new"))],
            ["assistant: [call 1] [call 2]", "user: [ok 1: new] [ok 2: done]"],
        ),
        # Ids may repeat in later turns.
        (
            [assistant(call("1")), user(result("1", "a")), assistant(call("1")), user(result("1", "b"))],
            ["assistant: [call 1]", "user: [ok 1: a]", "assistant: [call 1]", "user: [ok 1: b]"],
        ),
        # Calls that the provider ran need no result.
        (
            [assistant(call("1", executor="server"), result("1", executor="server"), "a"), user("b")],
            ["assistant: [call 1] [ok 1: done] a", "user: b"],
        ),
        # System text moves after the results, however much of it there is.
        (
            [assistant(call("1")), system("s"), message("developer", "t"), user(result("1"), "a"), assistant("b")],
            ["assistant: [call 1]", "user: [ok 1: done] a", "system: s", "developer: t", "assistant: b"],
        ),
        (
            [assistant(call("1")), system("s"), assistant(call("2")), user(result("2"), result("1"))],
            ["assistant: [call 1] [call 2]", "user: [ok 1: done] [ok 2: done]", "system: s"],
        ),
        ([assistant("a"), system("s"), user("b")], ["assistant: a", "system: s", "user: b"]),
        ([], []),
    ],
)
def test_turns(messages: list[Message], turns: list[str]) -> None:
    assert shown(assembled(*messages)[0]) == turns


def test_rearranged_parts_are_reported_at_their_source() -> None:
    losses = assembled(
        user(result("0", "orphan")),
        assistant(call("1"), call("2")),
        user(result("1", "old"), result("1", "new")),
    )[1]
    assert [(loss.kind, loss.path) for loss in losses] == [
        ("approximated", "/messages/0/parts/0/call_id"),
        ("dropped", "/messages/2/parts/0"),
        ("added", "/messages/1/parts/1"),
    ]


def test_ordered_conversation_is_unchanged() -> None:
    messages = (user("a"), assistant("b", call("1"), call("2")), user(result("1"), result("2"), "c"), assistant("d"))
    turns, losses = assembled(*messages)
    assert losses == []
    assert [turn.message for turn in turns] == [*messages]
    assert shown(turns) == shown(one_turn_per_message(messages))


def test_merged_turn_has_no_single_message() -> None:
    turns, _ = assembled(user("a"), user("b"), assistant("c"))
    assert [turn.message is None for turn in turns] == [True, False]
    assert [placed.path for placed in turns[0].parts] == [("messages", 0, "parts", 0), ("messages", 1, "parts", 0)]


def test_one_turn_per_message_moves_nothing() -> None:
    messages = (user("a"), user(result("9"), "b"), assistant(call("1")), assistant("c"))
    turns = one_turn_per_message(messages)
    assert [turn.message for turn in turns] == [*messages]
    assert [[placed.part for placed in turn.parts] for turn in turns] == [[*one.parts] for one in messages]
    assert [placed.path for placed in turns[1].parts] == [("messages", 1, "parts", 0), ("messages", 1, "parts", 1)]


def test_skipped_messages_keep_their_index() -> None:
    turns, _ = assembled(system("s"), user("a"), skip=1)
    assert [placed.path for turn in turns for placed in turn.parts] == [("messages", 1, "parts", 0)]


@pytest.mark.parametrize(
    ("messages", "count"),
    [
        ([], 0),
        ([user("a"), system("s")], 0),
        ([system("s"), message("developer", "t"), user("a"), system("u")], 2),
        ([system("s", call("1")), user("a")], 0),
        ([system()], 1),
    ],
)
def test_only_leading_system_messages_are_counted(messages: list[Message], count: int) -> None:
    assert leading_system_count(tuple(messages)) == count


def test_calls_without_ids_are_matched_by_name_then_by_order() -> None:
    turns, losses = assembled(
        assistant(call(None, "f"), call("", "g"), call("own", "h"), call(None, "g")),
        system("s"),
        user(result(None, "G", name="g"), result(None, "F"), result("own", "H"), result("", "second G", name="g")),
    )
    calls, results = [[placed.part for placed in turn.parts] for turn in turns[:2]]
    assert [(loss.kind, loss.path) for loss in losses] == [("approximated", "/messages/1")]
    ids = [part.id for part in calls if isinstance(part, ToolCall)]
    assert [is_derived_id(id or "") for id in ids] == [True, True, False, True]
    assert len(set(ids)) == 4
    assert [_word(part) for part in results] == [
        f"[ok {id}: {text}]" for id, text in zip(ids, ["F", "G", "H", "second G"], strict=True)
    ]


def test_results_without_ids_match_calls_with_ids() -> None:
    """Google's SDK runs functions itself, and sends results with names only."""
    turns, losses = assembled(
        assistant(call("1", "a"), call("2", "b"), call("3", "a")),
        user(result(None, "B", name="b"), result(None, "A", name="a"), result("3", "second A")),
    )
    assert [_word(placed.part) for placed in turns[1].parts] == ["[ok 1: A]", "[ok 2: B]", "[ok 3: second A]"]
    assert losses == []


def test_derived_ids_do_not_depend_on_later_messages() -> None:
    conversation = (user("a"), assistant(call(None)))
    first = shown(assembled(*conversation)[0])
    longer = shown(assembled(*conversation, user(result(None)), assistant(call(None)))[0])
    assert longer[:2] == first
    assert longer[3] != first[1]


IDS = st.sampled_from(["1", "2", "3"])
PARTS: dict[Role, st.SearchStrategy[Part]] = {
    "user": st.builds(result, IDS, st.text("xyz", max_size=3)) | st.builds(Text, text=st.text("xyz", max_size=3)),
    "assistant": st.builds(call, IDS) | st.builds(Text, text=st.text("xyz", max_size=3)),
    "system": st.builds(Text, text=st.text("xyz", max_size=3)),
}


@st.composite
def messages(draw: st.DrawFn) -> Message:
    role = draw(st.sampled_from([*PARTS]))
    # Calls of one turn that share an id get new ones, as tested below.
    parts = draw(st.lists(PARTS[role], max_size=4, unique_by=lambda part: getattr(part, "id", None) or id(part)))
    return Message(role=role, parts=tuple(parts))


def _distinct(conversation: list[Message]) -> bool:
    """Return whether no two calls share an id within a turn; system text between them is moved."""
    seen: set[str | None] = set()
    for message in conversation:
        if message.role == "user":
            seen = set()
        ids = [part.id for part in message.parts if isinstance(part, ToolCall)]
        if seen & {*ids} or len({*ids}) < len(ids):
            return False
        seen |= {*ids}
    return True


@settings(deadline=None)
@given(st.lists(messages(), max_size=7).filter(_distinct))
def test_calls_are_always_answered_and_nothing_is_lost(conversation: list[Message]) -> None:
    turns, losses = assembled(*conversation)
    dialogue = [turn for turn in turns if turn.role in ("user", "assistant")]
    for index, turn in enumerate(turns):
        calls = [placed.part.id for placed in turn.parts if isinstance(placed.part, ToolCall)]
        # Calls are answered in the next turn, unless the conversation ends there.
        if calls and turn is not dialogue[-1]:
            following = turns[index + 1]
            answers = [placed.part for placed in following.parts[: len(calls)]]
            assert [part.call_id for part in answers if isinstance(part, ToolResult)] == calls
        # And there are no other results.
        before = turns[index - 1] if index else None
        call_count = 0 if before is None else sum(isinstance(placed.part, ToolCall) for placed in before.parts)
        assert sum(isinstance(placed.part, ToolResult) for placed in turn.parts) in (0, call_count)
    for first, second in itertools.pairwise(dialogue):
        between = turns[turns.index(first) + 1 : turns.index(second)]
        assert first.role != second.role or between
    assert _texts(turn_part for turn in turns for turn_part in turn.parts) >= _kept_texts(conversation, losses)


def _kept_texts(conversation: list[Message], losses: list[Loss]) -> Counter[str]:
    """Return the texts of all parts that were not reported as dropped."""
    dropped = {loss.path for loss in losses if loss.kind == "dropped"}
    texts: Counter[str] = Counter()
    for number, message in enumerate(conversation):
        for position, part in enumerate(message.parts):
            if f"/messages/{number}/parts/{position}" not in dropped:
                texts[_text(part)] += 1
    return texts


def _texts(parts: Any) -> Counter[str]:
    return Counter(_text(placed.part) for placed in parts)


def _text(part: Part) -> str:
    if isinstance(part, ToolResult):
        return "".join(inner.text for inner in part.content or () if isinstance(inner, Text))
    return part.text if isinstance(part, Text) else f"call {getattr(part, 'id', None)}"


@pytest.mark.parametrize("target", ["anthropic", "openai-responses", "gemini-interactions", "openrouter"])
def test_calls_with_the_same_id_get_distinct_ids(target: str) -> None:
    """Small servers reuse call ids, which Anthropic rejects."""
    calls = [{"id": "x", "type": "function", "function": {"name": name, "arguments": "{}"}} for name in ("a", "b")]
    results = [{"role": "tool", "tool_call_id": "x", "content": text} for text in ("one", "two")]
    history: list[dict[str, Any]] = [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": calls}]
    translated = translate({"model": "m", "messages": [*history, *results]}, "openai-chat", target)
    decoded = get_codec(target).decode_request(translated.to_bytes(), translated.route)
    parts = [part for message in decoded.messages for part in message.parts]
    ids = [(part.name, part.id) for part in parts if isinstance(part, ToolCall)]
    assert [name for name, _ in ids] == ["a", "b"]
    assert len({id for _, id in ids}) == 2
    answered = [(part.call_id, part.content) for part in parts if isinstance(part, ToolResult)]
    assert [id for id, _ in answered] == [id for _, id in ids]
    texts = [part.text for _, content in answered for part in content or () if isinstance(part, Text)]
    assert texts == ["one", "two"]
    changed = [loss.path for loss in translated.losses if loss.reason == "another call of the turn has the same id"]
    assert changed == ["/messages/1/tool_calls/1/id"]
