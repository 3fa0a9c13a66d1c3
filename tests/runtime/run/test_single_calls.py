"""One call of a run: errors, timeouts, retries, rate limits and output."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.deadlines import DEADLINE
from tests.support.runtime.scripted_agent import (
    ALLOW_ALL,
    ScriptedModel,
    add,
    last_results,
    model_call,
    model_turn,
    result_text,
    text_turn,
)
from toolwire import Agent, Policy, ToolContext, ToolError, tool
from toolwire.runtime.run.events import CallProgressed
from toolwire.runtime.tool import RateLimit


@tool
def fail(how: str) -> str:
    if how == "fault":
        raise ToolError("there is no such city; try Oslo")
    raise ValueError("sk-" + "a" * 30)


def only(model: ScriptedModel, tools: Sequence[Any], **more: Any) -> Any:
    """Run one call, and return its result and record."""
    run = Agent(model, tools=tools, **({"policy": ALLOW_ALL} | more)).run("go")
    (result,) = last_results(model.requests[1])
    (record,) = run.calls
    return result, record


@pytest.mark.parametrize(
    ("proposed", "error", "expected_text"),
    [
        (model_call("ad", {"a": 1}), "unknown_tool", "Did you mean add?"),
        (model_call("add", '{"a": 1'), "json", "not valid JSON"),
        (model_call("add", {"a": 1, "b": "x"}), "schema", "- /b:"),
        (model_call("add", {"a": 1, "b": 2}, complete=False), "truncated", "were truncated"),
        (model_call("fail", {"how": "fault"}), "tool", "there is no such city; try Oslo"),
        (model_call("fail", {"how": "crash"}), "crash", "fail failed: ValueError: [removed]"),
    ],
)
def test_call_errors_are_results_for_the_model(proposed: Any, error: str, expected_text: str) -> None:
    result, record = only(ScriptedModel(model_turn(proposed), text_turn("ok")), [add, fail])
    assert result.status == "error"
    assert expected_text in result_text(result)
    assert record.error == error


def test_repairs_are_opt_in_and_truncated_arguments_are_not_repaired() -> None:
    proposed = model_call("add", {"a": 1, "b": 2.0})
    assert only(ScriptedModel(model_turn(proposed), text_turn("ok")), [add])[1].error == "schema"
    result, record = only(ScriptedModel(model_turn(proposed), text_turn("ok")), [add], repair=True)
    assert (result_text(result), record.arguments, len(record.repairs)) == ("3", {"a": 1, "b": 2}, 1)
    for cut in (model_call("add", '{"a": 1, "b": 2.0', complete=False), model_call("add", '{"a": 1, "b": 2.0')):
        result, record = only(ScriptedModel(model_turn(cut), text_turn("ok")), [add], repair=True)
        assert (result.status, record.repairs) == ("error", ())


@pytest.mark.parametrize(
    ("text", "error", "expected_text"),
    [
        ('{"a": 1, "b": 2,}', "json", "not valid JSON"),
        ("{'a': 1, 'b': 2}", "json", "line 1 column 2 (char 1)"),
        ('{"a": 1, "b": ', "truncated", "were truncated"),
        ('{"a": 1, "b": "x}', "truncated", "were truncated"),
        ('{"a": 1, "b": 2', "truncated", "were truncated"),
        ('{"a": 1, "b": tr', "truncated", "were truncated"),
        ('{"a": 1, "b": 2}', "truncated", "were truncated"),
    ],
)
def test_invalid_json_is_not_reported_as_truncated(text: str, error: str, expected_text: str) -> None:
    """Chat marks a call with invalid JSON as incomplete, but a trailing comma is no truncation."""
    result, record = only(ScriptedModel(model_turn(model_call("add", text, complete=False)), text_turn("ok")), [add])
    assert (record.error, expected_text in result_text(result)) == (error, True)
    if error == "json":
        result, record = only(
            ScriptedModel(model_turn(model_call("add", text, complete=False)), text_turn("ok")), [add], repair=True
        )
        assert (result_text(result), len(record.repairs)) == ("3", 1)


def test_denied_call_names_the_rule_and_does_not_run() -> None:
    ran: list[int] = []

    def touch() -> None:
        ran.append(1)

    result, record = only(
        ScriptedModel(model_turn(model_call("touch")), text_turn("ok")), [touch], policy=Policy(deny=["touch"])
    )
    assert (result.status, record.error, ran) == ("denied", "denied", [])
    assert "matches rule 'deny touch'" in result_text(result)


def test_calls_are_denied_without_rule_and_approver() -> None:
    result, record = only(
        ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 2})), text_turn("ok")), [add], policy=Policy()
    )
    assert result.status == "denied"
    assert "no rule allows it, and no approver is available" in result_text(result)
    assert record.approval == "denied: no approver available"


def test_tool_is_stopped_at_its_timeout() -> None:
    stopped: list[bool] = []

    @tool(timeout=0.05)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    result, record = only(ScriptedModel(model_turn(model_call("slow")), text_turn("ok")), [slow])
    assert "timed out after 0.05 seconds" in result_text(result)
    assert (record.error, stopped) == ("timeout", [True])


def test_timeout_of_a_thread_says_that_it_may_still_run() -> None:
    """The result said that the call was stopped, but the thread continued and took effect."""
    started, released, done = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        started.set()
        released.wait(DEADLINE)
        done.set()

    for timeout in (0.05, 1, 20):  # on a busy machine, the thread may not have begun yet
        timed = tool(timeout=timeout)(slow)
        result, record = only(ScriptedModel(model_turn(model_call("slow")), text_turn("ok")), [timed])
        if started.is_set():
            break
    assert (record.error, done.is_set()) == ("timeout", False)
    assert "was stopped" not in result_text(result)
    assert "may still be running. It may have taken effect, or may still do so." in result_text(result)
    released.set()
    assert done.wait(DEADLINE)


@pytest.mark.parametrize(("idempotent", "tries"), [(True, 3), (False, 1)])
def test_only_idempotent_tools_are_retried_with_the_same_key(idempotent: bool, tries: int) -> None:
    keys: list[tuple[str, int]] = []

    @tool(idempotent=idempotent)
    def shaky(calling: ToolContext) -> str:
        keys.append((calling.idempotency_key, calling.attempt))
        if len(keys) < 3:
            raise OSError("try again")
        return "done"

    result, record = only(ScriptedModel(model_turn(model_call("shaky")), text_turn("ok")), [shaky])
    assert len(keys) == tries
    assert len({key for key, _ in keys}) == 1
    assert [attempt for _, attempt in keys] == list(range(1, tries + 1))
    assert record.retries == tries - 1
    assert result.status == ("ok" if idempotent else "error")


def test_rate_limit_is_enforced() -> None:
    @tool(rate=RateLimit(1, 60.0))
    def once() -> str:
        return "done"

    model = ScriptedModel(model_turn(model_call("once", id="a"), model_call("once", {}, id="b")), text_turn("ok"))
    Agent(model, tools=[once], policy=ALLOW_ALL).run("go")
    first, second = last_results(model.requests[1])
    assert result_text(first) == "done"
    assert "its rate limit is 1 calls in 60 seconds" in result_text(second)


def test_rate_limit_holds_across_turns_and_runs() -> None:
    @tool(rate=RateLimit(2, 60.0))
    def twice() -> str:
        return "done"

    turns = [model_turn(model_call("twice", id=f"c{n}")) for n in range(2)]
    agent = Agent(ScriptedModel(*turns, text_turn("ok"), turns[0], text_turn("ok")), tools=[twice], policy=ALLOW_ALL)
    assert [one.error for one in agent.run("go").calls] == ["", ""]
    assert [one.error for one in agent.run("go").calls] == ["rate_limit"]


def test_long_output_keeps_head_and_tail() -> None:
    @tool(output_limit=300)
    def flood() -> str:
        return "HEAD" + "x" * 100_000 + "TAIL"

    result, record = only(ScriptedModel(model_turn(model_call("flood")), text_turn("ok")), [flood])
    expected_text = result_text(result)
    assert expected_text.startswith("HEAD")
    assert expected_text.endswith("TAIL")
    assert "[... 99708 characters truncated ...]" in expected_text
    assert len(expected_text) < 400
    assert record.truncated


def test_secrets_are_redacted_in_results_and_records() -> None:
    canary = "canary-value-of-a-key"

    @tool
    def leak(what: str) -> str:
        return f"{what} {canary} AKIAABCDEFGHIJKLMNOP"

    model = ScriptedModel(model_turn(model_call("leak", {"what": canary})), text_turn("ok"))
    agent = Agent(model, tools=[leak], policy=ALLOW_ALL, secrets=[canary])
    run = agent.run("go")
    (result,) = last_results(model.requests[1])
    assert result_text(result) == "[removed] [removed] [removed]"
    assert canary not in str(run.calls)
    assert run.calls[0].redacted == 3


def test_secrets_are_redacted_in_progress() -> None:
    @tool
    def slow(calling: ToolContext) -> None:
        calling.report_progress("canary-value-of-a-key, half done")

    model = ScriptedModel(model_turn(model_call("slow")), text_turn("ok"))
    stream = Agent(model, tools=[slow], policy=ALLOW_ALL, secrets=["canary-value-of-a-key"]).stream("go")
    assert [event.text for event in stream if isinstance(event, CallProgressed)] == ["[removed], half done"]


def test_output_is_validated_against_its_schema() -> None:
    @tool(output_schema={"type": "object", "required": ["n"]})
    def count(good: bool) -> Any:
        return {"n": 1} if good else {"m": 1}

    assert (
        only(ScriptedModel(model_turn(model_call("count", {"good": True})), text_turn("ok")), [count])[0].status == "ok"
    )
    result, record = only(ScriptedModel(model_turn(model_call("count", {"good": False})), text_turn("ok")), [count])
    assert '"n" is a required property' in result_text(result)
    assert record.error == "output_schema"
