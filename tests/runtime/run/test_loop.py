"""The agent loop: calls, limits, approvals, steps and streams."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import Clock
from tests.support.deadlines import run_event_loop as turn_loop
from tests.support.runtime.scripted_agent import (
    ALLOW_ALL,
    ScriptedApprover,
    ScriptedModel,
    add,
    last_results,
    model_call,
    model_turn,
    result_text,
    text_turn,
)
from toolwire import Agent, Policy, RunLimits, ToolContext, ToolError, tool
from toolwire.canonical.content import Text
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import Event, UsageReport
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, StopReason, Usage
from toolwire.runtime.calls.approval import Approval, ApprovalAnswer, ApprovalRequest, NoApprover
from toolwire.runtime.run.events import CallEnded, CallProgressed, CallProposed, CallStarted, RunEnded, TextDelta
from toolwire.runtime.run.result import Run
from toolwire.runtime.tool import RateLimit, Tool, ToolOutput
from toolwire.runtime.tools import built_in_tools


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


def test_complete_run_with_one_tool_call() -> None:
    model = ScriptedModel(
        model_turn(Text(text="Let me add."), model_call("add", {"a": 2, "b": 3})), text_turn("It is 5.")
    )
    run = Agent(model, tools=[add], policy=ALLOW_ALL, instructions="Be brief.").run("2 + 3?")
    assert (run.text, run.stopped, run.turns) == ("It is 5.", "finished", 2)
    first, second = model.requests
    assert first.system is not None
    assert first.system[0].text == "Be brief."
    assert first.tools is not None
    assert [one.name for one in first.tools] == ["add"]
    (result,) = last_results(second)
    assert (result.call_id, result.name, result.status, result_text(result)) == ("c1", "add", "ok", "5")
    assert second.messages[: len(first.messages)] == first.messages
    (record,) = run.calls
    assert (record.tool, record.arguments, record.summary, record.source) == ("add", {"a": 2, "b": 3}, "5", "python")
    assert record.approval == "allow: matches rule 'allow *'"


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
    released, done = threading.Event(), threading.Event()

    @tool(timeout=0.05)
    def slow() -> None:
        released.wait(60)
        done.set()

    result, record = only(ScriptedModel(model_turn(model_call("slow")), text_turn("ok")), [slow])
    assert (record.error, done.is_set()) == ("timeout", False)
    assert "was stopped" not in result_text(result)
    assert "may still be running. It may have taken effect, or may still do so." in result_text(result)
    released.set()
    assert done.wait(60)


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


# ---- stops

CUT: list[tuple[StopReason, str]] = [
    ("max_tokens", "length"),
    ("context_window", "length"),
    ("filtered", "filtered"),
    ("refusal", "refused"),
    ("malformed_call", "failed"),
    ("error", "failed"),
    ("cancelled", "failed"),
]


@pytest.mark.parametrize(("reason", "stopped"), CUT)
def test_calls_of_an_incomplete_response_never_run(reason: StopReason, stopped: str) -> None:
    ran: list[int] = []

    def touch() -> None:
        ran.append(1)

    model = ScriptedModel(model_turn(model_call("touch"), stop=reason))
    run = Agent(model, tools=[touch], policy=ALLOW_ALL).run("go", check=False)
    assert (run.stopped, ran, len(model.requests)) == (stopped, [], 1)
    assert run.reason


def test_turn_limit_stops_the_run() -> None:
    turns = [model_turn(model_call("add", {"a": n, "b": n})) for n in range(9)]
    run = Agent(ScriptedModel(*turns), tools=[add], policy=ALLOW_ALL, limits=RunLimits(turns=3)).run("go", check=False)
    assert (run.stopped, run.reason, run.turns) == ("steps", "the limit of 3 turns was reached", 3)


def test_token_limit_stops_the_run() -> None:
    turns = [
        model_turn(model_call("add", {"a": n, "b": n}), usage=Usage(input_tokens=40, output_tokens=20))
        for n in range(9)
    ]
    run = Agent(ScriptedModel(*turns), tools=[add], policy=ALLOW_ALL, limits=RunLimits(tokens=100)).run(
        "go", check=False
    )
    assert (run.stopped, run.turns, run.reason) == ("tokens", 2, "120 of 100 tokens were used")
    assert run.usage is not None
    assert run.usage.input_tokens == 80


def test_time_limit_stops_a_running_tool(clock: Clock) -> None:
    cancelled: list[bool] = []

    @tool
    async def slow() -> None:
        try:
            clock.advance(61)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    run = Agent(
        ScriptedModel(model_turn(model_call("slow"))), tools=[slow], policy=ALLOW_ALL, limits=RunLimits(seconds=60)
    ).run("go", check=False)
    assert run.stopped == "time"
    assert cancelled == [True]


def test_time_limit_stops_a_streaming_response(tmp_path: Path, clock: Clock) -> None:
    class Endless(ScriptedModel):
        """Yield a text delta now and then, forever."""

        closed = False

        async def stream(self, request: Request) -> AsyncIterator[Event]:
            try:
                async for event in super().stream(request):
                    yield event
                    while len(self.requests) == 1:
                        yield UsageReport(usage=Usage(output_tokens=1))
                        clock.advance(61)
                        await asyncio.sleep(61)
            finally:
                self.closed = True

    model = Endless(text_turn("x"), text_turn("now it ends"))
    agent = Agent(model, limits=RunLimits(seconds=60), journal=tmp_path / "runs.db")
    run = agent.run("go", check=False)
    assert (run.stopped, run.reason, model.closed) == ("time", "the limit of 60 seconds was reached", True)
    stream = agent.resume(run.id)
    assert [event.text for event in stream if isinstance(event, TextDelta)] == ["now it ends"]


def test_repeated_call_stops_the_run_before_executing() -> None:
    model = ScriptedModel(*[model_turn(model_call("add", {"a": 1, "b": 1}, id=f"c{n}")) for n in range(9)])
    run = Agent(model, tools=[add], policy=ALLOW_ALL, limits=RunLimits(repeats=2)).run("go", check=False)
    assert (run.stopped, len(run.calls)) == ("repetition", 2)
    assert "add was called with the same arguments 3 times in a row" in run.reason


def test_paused_turn_continues() -> None:
    model = ScriptedModel(model_turn(Text(text="still at it"), stop="paused"), text_turn("done"))
    run = Agent(model).run("go")
    assert (run.text, run.stopped, len(model.requests)) == ("done", "finished", 2)


def test_protocol_error_fails_the_run_with_a_clear_message() -> None:
    failed = Response(origin="", error=ApiError(kind="server", message="the provider broke off"))
    run = Agent(ScriptedModel(failed)).run("go", check=False)
    assert (run.stopped, run.reason) == ("failed", "the provider broke off")


# ---- batches


def test_independent_calls_run_in_parallel_with_results_in_order() -> None:
    running, most = 0, 0
    full = asyncio.Event()

    @tool
    async def wait(last: bool) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await full.wait()
        if not last:
            await turn_loop()  # so the last is done first
        running -= 1

    calls = [model_call("wait", {"last": n == 2}, id=f"c{n}") for n in range(5)]
    model = ScriptedModel(model_turn(*calls), text_turn("ok"))
    Agent(model, tools=[wait], policy=ALLOW_ALL, limits=RunLimits(parallel=3)).run("go")
    assert most == 3
    assert [one.call_id for one in last_results(model.requests[1])] == [f"c{n}" for n in range(5)]


def test_parallel_calls_can_be_disabled() -> None:
    running, most = 0, 0

    @tool
    async def wait(n: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await turn_loop()
        running -= 1

    model = ScriptedModel(model_turn(*[model_call("wait", {"n": n}, id=f"c{n}") for n in range(3)]), text_turn("ok"))
    Agent(model, tools=[wait], policy=ALLOW_ALL, parallel=False).run("go")
    assert most == 1
    choice = model.requests[0].tool_choice
    assert choice is not None
    assert choice.parallel is False


def test_calls_with_a_common_resource_run_one_by_one() -> None:
    order: list[str] = []
    third = asyncio.Event()

    async def write(arguments: Any, calling: ToolContext) -> None:
        order.append(f"start {arguments['n']}")
        if arguments["n"] == 3:
            third.set()
        if arguments["n"] == 1:
            await third.wait()
            await turn_loop()
        order.append(f"end {arguments['n']}")

    proposed = Tool(
        name="write", run=write, parameters={"type": "object"}, resources=lambda given: frozenset({given["file"]})
    )
    calls = [model_call("write", {"n": n + 1, "file": "a" if n < 2 else "b"}, id=f"c{n}") for n in range(3)]
    Agent(ScriptedModel(model_turn(*calls), text_turn("ok")), tools=[proposed], policy=ALLOW_ALL).run("go")
    assert order.index("end 1") < order.index("start 2")
    assert order.index("start 3") < order.index("end 1")


async def _awaited(run: Run) -> None:
    await run


def test_resource_locks_cover_nested_calls_and_other_runs(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{n}\n" for n in range(8)), encoding="utf-8")
    each = "replace(file_path='a.txt', old_string=f'{n}\\n', new_string=f'{n}!\\n')"
    code = f"import asyncio\nlen(await asyncio.gather(*[{each} for n in range(8)]))"
    model = ScriptedModel(model_turn(model_call("run_code", {"code": code})), text_turn("ok"))
    Agent(model, tools=built_in_tools(tmp_path), policy=ALLOW_ALL, code=True).run("go")
    assert result_text(last_results(model.requests[1])[0]) == "8"
    assert (tmp_path / "a.txt").read_text() == "".join(f"{n}!\n" for n in range(8))

    async def two_runs() -> None:
        each = [{"file_path": "a.txt", "old_string": f"{n}!", "new_string": f"{n}?"} for n in range(2)]
        model = ScriptedModel(
            *[model_turn(model_call("replace", one)) for one in each], text_turn("ok"), text_turn("ok")
        )
        agent = Agent(model, tools=built_in_tools(tmp_path), policy=ALLOW_ALL)
        await asyncio.gather(*[_awaited(agent.run("go")) for _ in each])

    for _ in range(5):
        (tmp_path / "a.txt").write_text("0!\n1!\n", encoding="utf-8")
        asyncio.run(two_runs())
        assert (tmp_path / "a.txt").read_text() == "0?\n1?\n"

    async def outer(arguments: Any, calling: ToolContext) -> ToolOutput:
        assert calling.call is not None
        return await calling.call("inner", {})

    async def inner(arguments: Any, calling: ToolContext) -> str:
        return "done"

    both = [Tool(name=one.__name__, run=one, resources=lambda _: None) for one in (outer, inner)]
    model = ScriptedModel(model_turn(model_call("outer")), text_turn("ok"))
    Agent(model, tools=both, policy=ALLOW_ALL, limits=RunLimits(seconds=120)).run("go")
    assert result_text(last_results(model.requests[1])[0]) == "done"


# ---- approvals


def test_approvals_are_requested_before_any_call_of_the_batch_runs() -> None:
    ran: list[int] = []

    @tool(read_only=True)
    def look(n: int) -> int:
        ran.append(n)
        return n

    class Watching(ScriptedApprover):
        async def approve(self, ask: ApprovalRequest) -> ApprovalAnswer:
            assert ran == []
            return await super().approve(ask)

    person = Watching("yes", "no")
    calls = [
        model_call("look", {"n": 1}, id="r"),
        model_call("add", {"a": 1, "b": 2}, id="y"),
        model_call("add", {"a": 3, "b": 4}, id="n"),
    ]
    model = ScriptedModel(model_turn(*calls), text_turn("ok"))
    run = Agent(model, tools=[look, add], approver=person).run("go")
    looked, yes, no = last_results(model.requests[1])
    assert (result_text(looked), result_text(yes), no.status) == ("1", "3", "denied")
    assert "denied by person" in result_text(no)
    assert [ask.arguments for ask in person.requests] == ['{"a": 1, "b": 2}', '{"a": 3, "b": 4}']
    assert person.requests[0].reason == "no rule allows it"
    assert {one.call_id: one.approval for one in run.calls}["y"] == "approved by person"


def test_always_answer_covers_the_tool_for_the_run() -> None:
    person = ScriptedApprover("always", "no", "no", "no")
    turns = [model_turn(model_call("add", {"a": n, "b": 0}, id=f"c{n}")) for n in range(3)]
    agent = Agent(ScriptedModel(*turns, text_turn("ok"), *turns, text_turn("ok")), tools=[add], approver=person)
    assert [one.error for one in agent.run("go").calls] == ["", "", ""]
    assert len(person.requests) == 1
    assert agent.run("again").calls[0].error == "denied"  # another run asks again


def test_always_answer_does_not_override_a_deny_rule() -> None:
    person = ScriptedApprover("always")
    turns = [model_turn(model_call("add", {"a": n, "b": 0}, id=f"c{n}")) for n in range(2)]
    agent = Agent(
        ScriptedModel(*turns, text_turn("ok")), tools=[add], approver=person, policy=Policy(deny=["add(a=1)"])
    )
    assert [one.error for one in agent.run("go").calls] == ["", "denied"]


def test_later_answer_pauses_the_run() -> None:
    run = Agent(
        ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 2}))),
        tools=[add],
        approver=ScriptedApprover("later"),
    ).run("go")
    assert (run.stopped, run.calls) == ("waiting", [])
    assert [ask.call_id for ask in run.state.approval_requests] == ["c1"]


def test_approval_covers_one_call_only() -> None:
    ask = ApprovalRequest(run="r", call_id="c", tool="t", arguments='{"a":1}', reason="")
    approval = Approval(answer="yes", digest=ask.digest, decided_by="person")
    assert approval.covers("r", "c", "t", '{"a":1}')
    for other in [
        ("q", "c", "t", '{"a":1}'),
        ("r", "d", "t", '{"a":1}'),
        ("r", "c", "u", '{"a":1}'),
        ("r", "c", "t", '{"a": 1}'),
    ]:
        assert not approval.covers(*other)
    assert not Approval(answer="no", digest=ask.digest, decided_by="person").covers("r", "c", "t", '{"a":1}')


def test_approval_digests_of_different_calls_differ() -> None:
    from toolwire.runtime.calls.approval import approval_digest

    assert approval_digest("r", "c", 't","x', "y") != approval_digest("r", "c", "t", 'x","y')
    assert approval_digest("r", "cd", "t", "y") != approval_digest("r", "c", "dt", "y")


def test_approval_of_another_call_does_not_run_this_one() -> None:
    agent = Agent(ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 2})), text_turn("ok")), tools=[add])
    state = agent.step("go")
    (pending,) = state.pending
    state.approve("c1")
    pending.validated_text = '{"a": 666, "b": 2}'  # changed after it was approved
    agent.step(state)
    assert state.messages[-2].parts[0].status == "denied"  # type: ignore[union-attr]


# ---- step by step


def test_step_stops_before_execution() -> None:
    ran: list[int] = []

    def touch(n: int) -> str:
        ran.append(n)
        return "touched"

    model = ScriptedModel(
        model_turn(
            model_call("touch", {"n": 1}, id="a"),
            model_call("touch", {"n": 2}, id="b"),
            model_call("touch", {"n": 3}, id="c"),
        ),
        text_turn("done"),
    )
    agent = Agent(model, tools=[touch])
    state = agent.step("go")
    assert ran == []
    assert [(one.id, one.verdict) for one in state.pending] == [("a", "ask"), ("b", "ask"), ("c", "ask")]
    with pytest.raises(Exception, match="awaits approval: approve, deny or answer it"):
        agent.step(state)
    state.approve("a")
    state.deny("b", "not that one")
    state.answer("c", {"by": "hand"})
    agent.step(state)
    assert ran == [1]
    first, second, third = last_results(model.requests[1])
    assert result_text(first) == "touched"
    assert second.status == "denied"
    assert "not that one" in result_text(second)
    assert result_text(third) == '{"by": "hand"}'
    assert (state.stopped, state.text) == ("finished", "done")
    with pytest.raises(Exception, match="the run has already ended"):
        agent.step(state)


def test_run_and_step_work_in_asynchronous_code() -> None:
    async def main() -> None:
        model = ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 2})), text_turn("3"))
        async with Agent(model, tools=[add], policy=ALLOW_ALL) as agent:
            run = agent.run("go")
            with pytest.raises(Exception, match="await it first"):
                run.text  # noqa: B018
            assert (await run).text == "3"
        model = ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 2})), text_turn("3"))
        agent = Agent(model, tools=[add], policy=ALLOW_ALL)
        events = [event async for event in agent.stream("go")]
        kinds = [type(event) for event in events]
        assert kinds.index(CallProposed) < kinds.index(CallStarted) < kinds.index(CallEnded) < kinds.index(TextDelta)
        assert isinstance(events[-1], RunEnded)
        model = ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 2})), text_turn("3"))
        state = await Agent(model, tools=[add], policy=ALLOW_ALL).step("go")
        assert [one.id for one in state.pending] == ["c1"]

    asyncio.run(main())


def test_stream_works_without_an_event_loop() -> None:
    stream = Agent(ScriptedModel(text_turn("hello")), policy=ALLOW_ALL).stream("go")
    assert [event.text for event in stream if isinstance(event, TextDelta)] == ["hello"]
    assert stream.run.stopped == "finished"


def test_cancelling_a_run_cancels_its_tools() -> None:
    seen: list[str] = []
    begun = asyncio.Event()

    @tool
    async def slow() -> None:
        seen.append("started")
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        agent = Agent(ScriptedModel(model_turn(model_call("slow"))), tools=[slow], policy=ALLOW_ALL)

        async def work() -> None:
            async for _ in agent.stream("go"):
                pass

        task = asyncio.ensure_future(work())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert seen == ["started", "cancelled"]


def test_agent_as_a_tool_has_its_own_policy() -> None:
    inner = Agent(
        ScriptedModel(model_turn(model_call("add", {"a": 4, "b": 4})), text_turn("eight")),
        tools=[add],
        policy=ALLOW_ALL,
        name="helper",
        description="Adds.",
    )
    model = ScriptedModel(model_turn(model_call("helper", {"task": "add 4 and 4"})), text_turn("It is eight."))
    run = Agent(model, tools=[inner], policy=Policy(allow=["helper"])).run("go")
    assert result_text(last_results(model.requests[1])[0]) == "eight"
    assert run.calls[0].source == "agent:helper"


def test_duplicate_tool_names_are_refused() -> None:
    with pytest.raises(Exception, match="duplicate tool name 'add'"):
        Agent(tools=[add, add])


def test_no_approver_denies_and_gives_no_answer() -> None:
    ask = ApprovalRequest(run="r", call_id="c", tool="t", arguments="", reason="")
    assert asyncio.run(NoApprover().approve(ask)) == "no"
    assert asyncio.run(NoApprover().answer("?")) is None
