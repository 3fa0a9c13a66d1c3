"""An agent without an approver: it asks at the terminal, or warns with the code that would allow the call."""

import os
import sys
from pathlib import Path

import pytest

from tests.support.runtime.cli_process import open_terminal
from toolwire import Agent, tool
from toolwire.runtime.calls.terminal_approver import CallDeniedWarning
from toolwire.testing import ScriptedModel, call

PROGRAM = """
import os
os.environ.pop("PYTEST_CURRENT_TEST", None)
import toolwire as tw
from toolwire.testing import ScriptedModel, call

def pay(amount: int) -> str:
    return f"paid {amount}"

model = ScriptedModel(call("pay", amount=5), call("pay", amount=6), "done")
run = tw.Agent(model, tools=[pay]).run("Pay.")
print([record.summary.partition(" (")[0] for record in run.calls])
"""


@tool
def pay(amount: int) -> str:
    return f"paid {amount}"


def test_call_without_an_approver_is_denied_with_the_code_that_allows_it() -> None:
    """A first tool was denied, and nothing told the developer."""
    agent = Agent(ScriptedModel(call("pay", amount=5), call("pay", amount=6), "done"), tools=[pay])
    with pytest.warns(CallDeniedWarning) as warned:
        run = agent.run("Pay.")
    assert [record.error for record in run.calls] == ["denied", "denied"]
    (warning,) = warned
    assert str(warning.message) == (
        "pay was denied: no rule allows it, and there is no approver. To allow it, write "
        "Agent(..., policy=tw.Policy(allow=['pay'])); for a function that changes nothing, @tw.tool(read_only=True); "
        "to decide on each call, Agent(..., approver=...)."
    )


def test_sub_agent_without_an_approver_warns_too() -> None:
    helper = Agent(ScriptedModel(call("pay", amount=5), "done"), tools=[pay], name="helper")
    with pytest.warns(CallDeniedWarning, match="helper was denied"):
        Agent(ScriptedModel(call("helper", task="Pay."), "done"), tools=[helper]).run("Go.")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_agent_asks_at_the_terminal(tmp_path: Path) -> None:
    with open_terminal(tmp_path, program=PROGRAM) as screen:
        prompt = "run it? [y]es, [n]o, [a]lways pay in this run: "
        assert "? pay (no rule allows it)" in screen.read_until(prompt)
        screen.type_text("later\n")
        assert "'later' is not an answer: type y, n or a" in screen.read_until(prompt)
        screen.type_text("y\n")
        assert "amount: 6" in screen.read_until(prompt)
        screen.type_text("n\n")
        code, output = screen.wait()
    assert code == 0
    assert "['paid 5', 'denied: pay was not run']" in output


def test_agent_does_not_ask_within_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `pytest -s` at a terminal, a test would wait for its user."""
    assert "PYTEST_CURRENT_TEST" in os.environ
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    with pytest.warns(CallDeniedWarning):
        Agent(ScriptedModel(call("pay", amount=5), "done"), tools=[pay]).run("Pay.")
