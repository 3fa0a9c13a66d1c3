"""Clearing of tool results and thinking: triggers, what is kept, and what is excluded."""

import pytest

from toolwire.canonical.content import Message, Reasoning, ReasoningText, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.codec.context_management import ClearThinking, ClearToolUses
from toolwire.protocols import PROTOCOLS
from toolwire.translation.context_edits import CLEARED_RESULT, clear_thinking, clear_tool_uses

NAMES = PROTOCOLS["anthropic"].wire_names


def exchange(number: int, name: str = "read") -> tuple[Message, Message]:
    """Return a call with thinking before it, and its result."""
    thought = Reasoning(content=(ReasoningText(kind="full", text=f"thought {number} " * 10),))
    call = ToolCall(id=f"c{number}", name=name, arguments='{"path":"a file"}')
    result = ToolResult(call_id=f"c{number}", content=(Text(text=f"result {number} " * 20),))
    return Message(role="assistant", parts=(thought, call)), Message(role="user", parts=(result,))


def history(*names: str) -> Request:
    """Return a request whose every call is a turn of its own."""
    messages = [
        message
        for number, name in enumerate(names)
        for message in (Message(role="user", parts=(Text(text="Read it."),)), *exchange(number, name))
    ]
    return Request(origin="anthropic", messages=tuple(messages))


def results_of(request: Request) -> list[bool]:
    """Return for each result whether it was cleared."""
    return [
        part.content == (Text(text=CLEARED_RESULT),)
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolResult)
    ]


@pytest.mark.parametrize(
    ("edit", "tokens", "cleared"),
    [
        (ClearToolUses(), 100_000, [False] * 5),
        (ClearToolUses(), 100_001, [True, True, False, False, False]),
        (ClearToolUses(unit="tool_uses", threshold=5), 10**9, [False] * 5),
        (ClearToolUses(unit="tool_uses", threshold=4), 0, [True, True, False, False, False]),
        (ClearToolUses(threshold=1, keep=0), 2, [True] * 5),
        (ClearToolUses(threshold=1, keep=9), 2, [False] * 5),
        (ClearToolUses(threshold=1, keep=1, excluded_tools=frozenset({"search"})), 2, [True, False, True, True, False]),
        (ClearToolUses(threshold=1, keep=1, least_tokens=10_000), 2, [False] * 5),
    ],
)
def test_old_results_are_cleared(edit: ClearToolUses, tokens: int, cleared: list[bool]) -> None:
    request = history("read", "search", "read", "read", "read")
    edited, applied = clear_tool_uses(request, edit, tokens)
    assert results_of(edited) == cleared
    assert (applied is None) == (not any(cleared))
    if applied is not None:
        assert applied.cleared == sum(cleared)
        assert applied.tokens > 0
    else:
        assert edited is request


def test_cleared_results_are_not_cleared_again() -> None:
    edit = ClearToolUses(threshold=1, keep=1)
    edited, _ = clear_tool_uses(history("read", "read"), edit, 2)
    assert clear_tool_uses(edited, edit, 2) == (edited, None)


def test_arguments_are_cleared_for_named_tools() -> None:
    edit = ClearToolUses(threshold=1, keep=0, arguments=frozenset({"search"}))
    edited, _ = clear_tool_uses(history("read", "search"), edit, 2)
    calls = [part for message in edited.messages for part in message.parts if isinstance(part, ToolCall)]
    assert [call.arguments for call in calls] == ['{"path":"a file"}', "{}"]


@pytest.mark.parametrize(("keep", "left"), [(1, 1), (2, 2), (3, 3), (9, 3), (None, 3)])
def test_thinking_of_old_turns_is_cleared(keep: int | None, left: int) -> None:
    request = history("read", "read", "read")
    edited, applied = clear_thinking(request, ClearThinking(keep=keep), NAMES)
    thoughts = [part for message in edited.messages for part in message.parts if isinstance(part, Reasoning)]
    assert len(thoughts) == left
    assert (0 if applied is None else applied.cleared) == 3 - left


def test_a_turn_lasts_over_its_tool_calls() -> None:
    question = Message(role="user", parts=(Text(text="Read it."),))
    request = Request(origin="anthropic", messages=(question, *exchange(0), *exchange(1)))
    assert clear_thinking(request, ClearThinking(keep=1), NAMES) == (request, None)
