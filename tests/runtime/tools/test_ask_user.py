"""The `ask_user` tool."""

from pathlib import Path

import pytest

from tests.support.runtime.tool_calls import built_in_tool, run_tool, run_tool_for_text
from toolwire.runtime.calls.approval import ApprovalAnswer, ApprovalRequest
from toolwire.runtime.tool import ToolError


class RecordingApprover:
    name = "someone"

    def __init__(self) -> None:
        self.asked = list[tuple[str, tuple[str, ...]]]()

    async def approve(self, ask: ApprovalRequest) -> ApprovalAnswer:
        return "no"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        self.asked.append((question, choices))
        return choices[-1] if choices else "42"


def test_user_is_asked(tmp_path: Path) -> None:
    someone = RecordingApprover()
    assert run_tool_for_text(built_in_tool(tmp_path, "ask_user"), someone, question="How many?") == "42"
    assert run_tool_for_text(built_in_tool(tmp_path, "ask_user"), someone, question="Which?", choices=["a", "b"]) == "b"
    assert someone.asked == [("How many?", ()), ("Which?", ("a", "b"))]


def test_without_a_user_an_error_is_returned(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="no user is available") as fault:
        run_tool(built_in_tool(tmp_path, "ask_user"), question="How many?")
    assert fault.value.kind == "no_answer"


def test_tool_has_human_locus_and_a_long_timeout(tmp_path: Path) -> None:
    ask = built_in_tool(tmp_path, "ask_user")
    assert ask.locus == "human"
    assert ask.timeout > 3600
    assert ask.retries == 0
