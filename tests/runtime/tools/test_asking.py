"""`ask_user`."""

from pathlib import Path

import pytest

from tests.runtime.tools.calling import call, said, tool
from toolwire.runtime.approval import Answer, Ask
from toolwire.runtime.toolset import ToolFault


class Someone:
    name = "someone"

    def __init__(self) -> None:
        self.asked = list[tuple[str, tuple[str, ...]]]()

    async def approve(self, ask: Ask) -> Answer:
        return "no"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        self.asked.append((question, choices))
        return choices[-1] if choices else "42"


def test_a_person_is_asked(tmp_path: Path) -> None:
    someone = Someone()
    assert said(tool(tmp_path, "ask_user"), someone, question="How many?") == "42"
    assert said(tool(tmp_path, "ask_user"), someone, question="Which?", choices=["a", "b"]) == "b"
    assert someone.asked == [("How many?", ()), ("Which?", ("a", "b"))]


def test_nobody_to_ask_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToolFault, match="nobody is there") as fault:
        call(tool(tmp_path, "ask_user"), question="How many?")
    assert fault.value.kind == "no_answer"


def test_it_is_carried_out_by_a_person_who_may_take_their_time(tmp_path: Path) -> None:
    ask = tool(tmp_path, "ask_user")
    assert ask.locus == "human"
    assert ask.timeout > 3600
    assert ask.retries == 0
