import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.clock import Clock
from tests.patience import turn as turn_loop
from tests.runtime.playing import Played, call, results, says, turn, words
from toolwire import Agent, Calling, Caps, Policy, ToolFault, tool
from toolwire.canonical.content import Text
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import Event, UsageReport
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, StopReason, Usage
from toolwire.runtime.approval import Answer, Approval, Ask, Nobody
from toolwire.runtime.events import CallEnded, CallProgressed, CallProposed, CallStarted, RunEnded, TextGrew
from toolwire.runtime.run import Run
from toolwire.runtime.tools import built_in
from toolwire.runtime.toolset import Output, Rate, Tool

ALL = Policy(allow=["*"])


class Asked:
    """A person who answers as given, and remembers what was asked."""

    name = "person"

    def __init__(self, *answers: Answer, says: str | None = None) -> None:
        self.answers = list(answers)
        self.asks: list[Ask] = []
        self.says = says

    async def approve(self, ask: Ask) -> Answer:
        self.asks.append(ask)
        return self.answers.pop(0)

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return self.says


@tool
def add(a: int, b: int) -> int:
    return a + b


@tool
def fail(how: str) -> str:
    if how == "fault":
        raise ToolFault("there is no such city; try Oslo")
    raise ValueError("sk-" + "a" * 30)


def only(model: Played, tools: Sequence[Any], **more: Any) -> Any:
    """What the model was given for its one call, and the record of it."""
    run = Agent(model, tools=tools, **({"policy": ALL} | more)).run("go")
    (result,) = results(model.asked[1])
    (record,) = run.calls
    return result, record


def test_the_whole_cycle() -> None:
    model = Played(turn(Text(text="Let me add."), call("add", {"a": 2, "b": 3})), says("It is 5."))
    run = Agent(model, tools=[add], policy=ALL, instructions="Be brief.").run("2 + 3?")
    assert (run.text, run.stopped, run.turns) == ("It is 5.", "finished", 2)
    first, second = model.asked
    assert first.system is not None
    assert first.system[0].text == "Be brief."
    assert first.tools is not None
    assert [one.name for one in first.tools] == ["add"]
    (result,) = results(second)
    assert (result.call_id, result.name, result.status, words(result)) == ("c1", "add", "ok", "5")
    assert second.messages[: len(first.messages)] == first.messages
    (record,) = run.calls
    assert (record.tool, record.arguments, record.summary, record.source) == ("add", {"a": 2, "b": 3}, "5", "python")
    assert record.approval == "allow: the rule allow *"


@pytest.mark.parametrize(
    ("made", "error", "said"),
    [
        (call("ad", {"a": 1}), "unknown_tool", "Did you mean add?"),
        (call("add", '{"a": 1'), "json", "not valid JSON"),
        (call("add", {"a": 1, "b": "x"}), "schema", "- /b:"),
        (call("add", {"a": 1, "b": 2}, complete=False), "truncated", "cut off"),
        (call("fail", {"how": "fault"}), "tool", "there is no such city; try Oslo"),
        (call("fail", {"how": "crash"}), "crash", "fail failed: ValueError: [removed]"),
    ],
)
def test_what_goes_wrong_with_a_call_is_a_result_to_act_on(made: Any, error: str, said: str) -> None:
    result, record = only(Played(turn(made), says("ok")), [add, fail])
    assert result.status == "error"
    assert said in words(result)
    assert record.error == error


def test_repairs_are_opt_in_and_reported_and_what_was_cut_off_is_not_repaired() -> None:
    made = call("add", {"a": 1, "b": 2.0})
    assert only(Played(turn(made), says("ok")), [add])[1].error == "schema"
    result, record = only(Played(turn(made), says("ok")), [add], repair=True)
    assert (words(result), record.arguments, len(record.repairs)) == ("3", {"a": 1, "b": 2}, 1)
    for cut in (call("add", '{"a": 1, "b": 2.0', complete=False), call("add", '{"a": 1, "b": 2.0')):
        result, record = only(Played(turn(cut), says("ok")), [add], repair=True)
        assert (result.status, record.repairs) == ("error", ())


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ('{"a": 1, "b": 2,}', "json", "not valid JSON"),
        ("{'a': 1, 'b': 2}", "json", "line 1 column 2 (char 1)"),
        ('{"a": 1, "b": ', "truncated", "cut off"),
        ('{"a": 1, "b": "x}', "truncated", "cut off"),
        ('{"a": 1, "b": 2', "truncated", "cut off"),
        ('{"a": 1, "b": tr', "truncated", "cut off"),
        ('{"a": 1, "b": 2}', "truncated", "cut off"),
    ],
)
def test_r_10_invalid_json_is_not_reported_as_cut_off(text: str, error: str, said: str) -> None:
    """R-10: Chat marks a call that is no JSON as incomplete; a trailing comma is no cut."""
    result, record = only(Played(turn(call("add", text, complete=False)), says("ok")), [add])
    assert (record.error, said in words(result)) == (error, True)
    if error == "json":
        result, record = only(Played(turn(call("add", text, complete=False)), says("ok")), [add], repair=True)
        assert (words(result), len(record.repairs)) == ("3", 1)


def test_a_denied_call_says_which_rule_and_runs_nothing() -> None:
    ran: list[int] = []

    def touch() -> None:
        ran.append(1)

    result, record = only(Played(turn(call("touch")), says("ok")), [touch], policy=Policy(deny=["touch"]))
    assert (result.status, record.error, ran) == ("denied", "denied", [])
    assert "the rule deny touch" in words(result)


def test_with_nobody_to_ask_what_no_rule_allows_is_denied() -> None:
    result, record = only(Played(turn(call("add", {"a": 1, "b": 2})), says("ok")), [add], policy=Policy())
    assert result.status == "denied"
    assert "no rule allows it, and nobody is there to ask" in words(result)
    assert record.approval == "no by nobody"


def test_a_tool_that_takes_too_long_is_stopped() -> None:
    stopped: list[bool] = []

    @tool(timeout=0.05)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    result, record = only(Played(turn(call("slow")), says("ok")), [slow])
    assert "took longer than 0.05 seconds" in words(result)
    assert (record.error, stopped) == ("timeout", [True])


def test_r_2_a_thread_that_takes_too_long_may_still_take_effect_and_the_model_is_told() -> None:
    """R-2: the result said that the call was stopped; the thread went on and its effect happened."""
    told, done = threading.Event(), threading.Event()

    @tool(timeout=0.05)
    def slow() -> None:
        told.wait(60)
        done.set()

    result, record = only(Played(turn(call("slow")), says("ok")), [slow])
    assert (record.error, done.is_set()) == ("timeout", False)
    assert "was stopped" not in words(result)
    assert "may still be running. It may have taken effect, or may yet do so." in words(result)
    told.set()
    assert done.wait(60)


@pytest.mark.parametrize(("idempotent", "tries"), [(True, 3), (False, 1)])
def test_only_an_idempotent_tool_is_tried_again_with_the_same_key(idempotent: bool, tries: int) -> None:
    keys: list[tuple[str, int]] = []

    @tool(idempotent=idempotent)
    def shaky(calling: Calling) -> str:
        keys.append((calling.key, calling.attempt))
        if len(keys) < 3:
            raise OSError("try again")
        return "done"

    result, record = only(Played(turn(call("shaky")), says("ok")), [shaky])
    assert len(keys) == tries
    assert len({key for key, _ in keys}) == 1
    assert [attempt for _, attempt in keys] == list(range(1, tries + 1))
    assert record.retries == tries - 1
    assert result.status == ("ok" if idempotent else "error")


def test_a_rate_is_kept() -> None:
    @tool(rate=Rate(1, 60.0))
    def once() -> str:
        return "done"

    model = Played(turn(call("once", id="a"), call("once", {}, id="b")), says("ok"))
    Agent(model, tools=[once], policy=ALL).run("go")
    first, second = results(model.asked[1])
    assert words(first) == "done"
    assert "its limit is 1 calls in 60 seconds" in words(second)


def test_a_rate_is_kept_over_turns_and_runs() -> None:
    @tool(rate=Rate(2, 60.0))
    def twice() -> str:
        return "done"

    turns = [turn(call("twice", id=f"c{n}")) for n in range(2)]
    agent = Agent(Played(*turns, says("ok"), turns[0], says("ok")), tools=[twice], policy=ALL)
    assert [one.error for one in agent.run("go").calls] == ["", ""]
    assert [one.error for one in agent.run("go").calls] == ["rate_limit"]


def test_long_output_keeps_head_and_tail_and_says_what_was_cut() -> None:
    @tool(output_limit=300)
    def flood() -> str:
        return "HEAD" + "x" * 100_000 + "TAIL"

    result, record = only(Played(turn(call("flood")), says("ok")), [flood])
    said = words(result)
    assert said.startswith("HEAD")
    assert said.endswith("TAIL")
    assert "[... 99708 characters were cut here ...]" in said
    assert len(said) < 400
    assert record.truncated


def test_secrets_are_taken_out_of_results_and_records() -> None:
    canary = "canary-value-of-a-key"

    @tool
    def leak(what: str) -> str:
        return f"{what} {canary} AKIAABCDEFGHIJKLMNOP"

    model = Played(turn(call("leak", {"what": canary})), says("ok"))
    agent = Agent(model, tools=[leak], policy=ALL, secrets=[canary])
    run = agent.run("go")
    (result,) = results(model.asked[1])
    assert words(result) == "[removed] [removed] [removed]"
    assert canary not in str(run.calls)
    assert run.calls[0].redacted == 3


def test_secrets_are_taken_out_of_what_is_said_meanwhile() -> None:
    @tool
    def slow(calling: Calling) -> None:
        calling.progress("canary-value-of-a-key, half done")

    model = Played(turn(call("slow")), says("ok"))
    stream = Agent(model, tools=[slow], policy=ALL, secrets=["canary-value-of-a-key"]).stream("go")
    assert [event.text for event in stream if isinstance(event, CallProgressed)] == ["[removed], half done"]


def test_an_output_schema_is_held() -> None:
    @tool(output_schema={"type": "object", "required": ["n"]})
    def count(good: bool) -> Any:
        return {"n": 1} if good else {"m": 1}

    assert only(Played(turn(call("count", {"good": True})), says("ok")), [count])[0].status == "ok"
    result, record = only(Played(turn(call("count", {"good": False})), says("ok")), [count])
    assert '"n" is a required property' in words(result)
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
def test_a_call_after_a_cut_is_never_run(reason: StopReason, stopped: str) -> None:
    ran: list[int] = []

    def touch() -> None:
        ran.append(1)

    model = Played(turn(call("touch"), stop=reason))
    run = Agent(model, tools=[touch], policy=ALL).run("go", check=False)
    assert (run.stopped, ran, len(model.asked)) == (stopped, [], 1)
    assert run.why


def test_turns_are_capped() -> None:
    turns = [turn(call("add", {"a": n, "b": n})) for n in range(9)]
    run = Agent(Played(*turns), tools=[add], policy=ALL, caps=Caps(turns=3)).run("go", check=False)
    assert (run.stopped, run.why, run.turns) == ("steps", "3 turns were taken", 3)


def test_tokens_are_capped() -> None:
    turns = [turn(call("add", {"a": n, "b": n}), usage=Usage(input_tokens=40, output_tokens=20)) for n in range(9)]
    run = Agent(Played(*turns), tools=[add], policy=ALL, caps=Caps(tokens=100)).run("go", check=False)
    assert (run.stopped, run.turns, run.why) == ("tokens", 2, "120 of 100 tokens were used")
    assert run.usage is not None
    assert run.usage.input_tokens == 80


def test_time_is_capped_also_within_a_tool(clock: Clock) -> None:
    cancelled: list[bool] = []

    @tool
    async def slow() -> None:
        try:
            clock.advance(61)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    run = Agent(Played(turn(call("slow"))), tools=[slow], policy=ALL, caps=Caps(seconds=60)).run("go", check=False)
    assert run.stopped == "time"
    assert cancelled == [True]


def test_time_is_capped_also_while_the_model_answers(tmp_path: Path, clock: Clock) -> None:
    class Endless(Played):
        """Says a word now and then, for ever."""

        closed = False

        async def ask(self, request: Request) -> AsyncIterator[Event]:
            try:
                async for event in super().ask(request):
                    yield event
                    while len(self.asked) == 1:
                        yield UsageReport(usage=Usage(output_tokens=1))
                        clock.advance(61)
                        await asyncio.sleep(61)
            finally:
                self.closed = True

    model = Endless(says("x"), says("now it ends"))
    agent = Agent(model, caps=Caps(seconds=60), journal=tmp_path / "runs.db")
    run = agent.run("go", check=False)
    assert (run.stopped, run.why, model.closed) == ("time", "60 seconds have passed", True)
    stream = agent.resume(run.id)
    assert [event.text for event in stream if isinstance(event, TextGrew)] == ["now it ends"]


def test_the_same_call_again_and_again_is_stopped_before_it_runs_once_more() -> None:
    model = Played(*[turn(call("add", {"a": 1, "b": 1}, id=f"c{n}")) for n in range(9)])
    run = Agent(model, tools=[add], policy=ALL, caps=Caps(repeats=2)).run("go", check=False)
    assert (run.stopped, len(run.calls)) == ("repetition", 2)
    assert "add was called with the same arguments 3 times in a row" in run.why


def test_a_pause_goes_on() -> None:
    model = Played(turn(Text(text="still at it"), stop="paused"), says("done"))
    run = Agent(model).run("go")
    assert (run.text, run.stopped, len(model.asked)) == ("done", "finished", 2)


def test_a_fault_of_the_protocol_stops_with_a_clear_error() -> None:
    failed = Response(origin="", error=ApiError(kind="server", message="the provider broke off"))
    run = Agent(Played(failed)).run("go", check=False)
    assert (run.stopped, run.why) == ("failed", "the provider broke off")


# ---- batches


def test_independent_calls_run_at_once_and_results_stay_in_order() -> None:
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

    calls = [call("wait", {"last": n == 2}, id=f"c{n}") for n in range(5)]
    model = Played(turn(*calls), says("ok"))
    Agent(model, tools=[wait], policy=ALL, caps=Caps(parallel=3)).run("go")
    assert most == 3
    assert [one.call_id for one in results(model.asked[1])] == [f"c{n}" for n in range(5)]


def test_parallel_calls_can_be_turned_off() -> None:
    running, most = 0, 0

    @tool
    async def wait(n: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await turn_loop()
        running -= 1

    model = Played(turn(*[call("wait", {"n": n}, id=f"c{n}") for n in range(3)]), says("ok"))
    Agent(model, tools=[wait], policy=ALL, parallel=False).run("go")
    assert most == 1
    choice = model.asked[0].tool_choice
    assert choice is not None
    assert choice.parallel is False


def test_calls_that_touch_the_same_wait_for_each_other() -> None:
    order: list[str] = []
    third = asyncio.Event()

    async def write(arguments: Any, calling: Calling) -> None:
        order.append(f"start {arguments['n']}")
        if arguments["n"] == 3:
            third.set()
        if arguments["n"] == 1:
            await third.wait()
            await turn_loop()
        order.append(f"end {arguments['n']}")

    made = Tool(
        name="write", run=write, parameters={"type": "object"}, touches=lambda given: frozenset({given["file"]})
    )
    calls = [call("write", {"n": n + 1, "file": "a" if n < 2 else "b"}, id=f"c{n}") for n in range(3)]
    Agent(Played(turn(*calls), says("ok")), tools=[made], policy=ALL).run("go")
    assert order.index("end 1") < order.index("start 2")
    assert order.index("start 3") < order.index("end 1")


async def _awaited(run: Run) -> None:
    await run


def test_so_do_those_of_a_program_or_of_another_run_but_not_for_who_calls_them(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{n}\n" for n in range(8)), encoding="utf-8")
    each = "replace(file_path='a.txt', old_string=f'{n}\\n', new_string=f'{n}!\\n')"
    code = f"import asyncio\nlen(await asyncio.gather(*[{each} for n in range(8)]))"
    model = Played(turn(call("run_code", {"code": code})), says("ok"))
    Agent(model, tools=built_in(tmp_path), policy=ALL, code=True).run("go")
    assert words(results(model.asked[1])[0]) == "8"
    assert (tmp_path / "a.txt").read_text() == "".join(f"{n}!\n" for n in range(8))

    async def two_runs() -> None:
        each = [{"file_path": "a.txt", "old_string": f"{n}!", "new_string": f"{n}?"} for n in range(2)]
        model = Played(*[turn(call("replace", one)) for one in each], says("ok"), says("ok"))
        agent = Agent(model, tools=built_in(tmp_path), policy=ALL)
        await asyncio.gather(*[_awaited(agent.run("go")) for _ in each])

    for _ in range(5):
        (tmp_path / "a.txt").write_text("0!\n1!\n", encoding="utf-8")
        asyncio.run(two_runs())
        assert (tmp_path / "a.txt").read_text() == "0?\n1?\n"

    async def outer(arguments: Any, calling: Calling) -> Output:
        assert calling.call is not None
        return await calling.call("inner", {})

    async def inner(arguments: Any, calling: Calling) -> str:
        return "done"

    both = [Tool(name=one.__name__, run=one, touches=lambda _: None) for one in (outer, inner)]
    model = Played(turn(call("outer")), says("ok"))
    Agent(model, tools=both, policy=ALL, caps=Caps(seconds=120)).run("go")
    assert words(results(model.asked[1])[0]) == "done"


# ---- approvals


def test_a_person_decides_before_anything_of_the_batch_runs() -> None:
    ran: list[int] = []

    @tool(read_only=True)
    def look(n: int) -> int:
        ran.append(n)
        return n

    class Watching(Asked):
        async def approve(self, ask: Ask) -> Answer:
            assert ran == []
            return await super().approve(ask)

    person = Watching("yes", "no")
    calls = [
        call("look", {"n": 1}, id="r"),
        call("add", {"a": 1, "b": 2}, id="y"),
        call("add", {"a": 3, "b": 4}, id="n"),
    ]
    model = Played(turn(*calls), says("ok"))
    run = Agent(model, tools=[look, add], person=person).run("go")
    looked, yes, no = results(model.asked[1])
    assert (words(looked), words(yes), no.status) == ("1", "3", "denied")
    assert "person said no" in words(no)
    assert [ask.arguments for ask in person.asks] == ['{"a": 1, "b": 2}', '{"a": 3, "b": 4}']
    assert person.asks[0].why == "no rule allows it"
    assert {one.call_id: one.approval for one in run.calls}["y"] == "yes by person"


def test_always_holds_for_this_tool_in_this_run() -> None:
    person = Asked("always", "no", "no", "no")
    turns = [turn(call("add", {"a": n, "b": 0}, id=f"c{n}")) for n in range(3)]
    agent = Agent(Played(*turns, says("ok"), *turns, says("ok")), tools=[add], person=person)
    assert [one.error for one in agent.run("go").calls] == ["", "", ""]
    assert len(person.asks) == 1
    assert agent.run("again").calls[0].error == "denied"  # another run asks again


def test_always_does_not_overrule_a_deny_rule() -> None:
    person = Asked("always")
    turns = [turn(call("add", {"a": n, "b": 0}, id=f"c{n}")) for n in range(2)]
    agent = Agent(Played(*turns, says("ok")), tools=[add], person=person, policy=Policy(deny=["add(a=1)"]))
    assert [one.error for one in agent.run("go").calls] == ["", "denied"]


def test_a_later_answer_leaves_the_run_waiting() -> None:
    run = Agent(Played(turn(call("add", {"a": 1, "b": 2}))), tools=[add], person=Asked("later")).run("go")
    assert (run.stopped, run.calls) == ("waiting", [])
    assert [ask.call_id for ask in run.state.asks] == ["c1"]


def test_an_approval_is_for_one_call_and_no_other() -> None:
    ask = Ask(run="r", call_id="c", tool="t", arguments='{"a":1}', why="")
    approval = Approval(answer="yes", binding=ask.binding, by="person")
    assert approval.covers("r", "c", "t", '{"a":1}')
    for other in [
        ("q", "c", "t", '{"a":1}'),
        ("r", "d", "t", '{"a":1}'),
        ("r", "c", "u", '{"a":1}'),
        ("r", "c", "t", '{"a": 1}'),
    ]:
        assert not approval.covers(*other)
    assert not Approval(answer="no", binding=ask.binding, by="person").covers("r", "c", "t", '{"a":1}')


def test_no_two_calls_have_one_binding() -> None:
    from toolwire.runtime.approval import binding

    assert binding("r", "c", 't","x', "y") != binding("r", "c", "t", 'x","y')
    assert binding("r", "cd", "t", "y") != binding("r", "c", "dt", "y")


def test_an_approval_of_another_call_does_not_run_this_one() -> None:
    agent = Agent(Played(turn(call("add", {"a": 1, "b": 2})), says("ok")), tools=[add])
    state = agent.step("go")
    (pending,) = state.pending
    state.approve("c1")
    pending.input = '{"a": 666, "b": 2}'  # changed after it was approved
    agent.step(state)
    assert state.messages[-2].parts[0].status == "denied"  # type: ignore[union-attr]


# ---- step by step


def test_a_step_stops_before_execution() -> None:
    ran: list[int] = []

    def touch(n: int) -> str:
        ran.append(n)
        return "touched"

    model = Played(
        turn(call("touch", {"n": 1}, id="a"), call("touch", {"n": 2}, id="b"), call("touch", {"n": 3}, id="c")),
        says("done"),
    )
    agent = Agent(model, tools=[touch])
    state = agent.step("go")
    assert ran == []
    assert [(one.id, one.verdict) for one in state.pending] == [("a", "ask"), ("b", "ask"), ("c", "ask")]
    with pytest.raises(Exception, match="approved, denied or answered first"):
        agent.step(state)
    state.approve("a")
    state.deny("b", "not that one")
    state.answer("c", {"by": "hand"})
    agent.step(state)
    assert ran == [1]
    first, second, third = results(model.asked[1])
    assert words(first) == "touched"
    assert second.status == "denied"
    assert "not that one" in words(second)
    assert words(third) == '{"by": "hand"}'
    assert (state.stopped, state.text) == ("finished", "done")
    with pytest.raises(Exception, match="the run has ended"):
        agent.step(state)


def test_everything_works_in_asynchronous_code() -> None:
    async def main() -> None:
        model = Played(turn(call("add", {"a": 1, "b": 2})), says("3"))
        async with Agent(model, tools=[add], policy=ALL) as agent:
            run = agent.run("go")
            with pytest.raises(Exception, match="await it first"):
                run.text  # noqa: B018
            assert (await run).text == "3"
        model = Played(turn(call("add", {"a": 1, "b": 2})), says("3"))
        agent = Agent(model, tools=[add], policy=ALL)
        events = [event async for event in agent.stream("go")]
        kinds = [type(event) for event in events]
        assert kinds.index(CallProposed) < kinds.index(CallStarted) < kinds.index(CallEnded) < kinds.index(TextGrew)
        assert isinstance(events[-1], RunEnded)
        model = Played(turn(call("add", {"a": 1, "b": 2})), says("3"))
        state = await Agent(model, tools=[add], policy=ALL).step("go")
        assert [one.id for one in state.pending] == ["c1"]

    asyncio.run(main())


def test_a_stream_can_be_read_without_an_event_loop() -> None:
    stream = Agent(Played(says("hello")), policy=ALL).stream("go")
    assert [event.text for event in stream if isinstance(event, TextGrew)] == ["hello"]
    assert stream.run.stopped == "finished"


def test_cancelling_a_run_reaches_its_tools() -> None:
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
        agent = Agent(Played(turn(call("slow"))), tools=[slow], policy=ALL)

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


def test_an_agent_can_be_a_tool_under_its_own_policy() -> None:
    inner = Agent(
        Played(turn(call("add", {"a": 4, "b": 4})), says("eight")),
        tools=[add],
        policy=ALL,
        name="helper",
        description="Adds.",
    )
    model = Played(turn(call("helper", {"task": "add 4 and 4"})), says("It is eight."))
    run = Agent(model, tools=[inner], policy=Policy(allow=["helper"])).run("go")
    assert words(results(model.asked[1])[0]) == "eight"
    assert run.calls[0].source == "agent:helper"


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(Exception, match="two tools named 'add'"):
        Agent(tools=[add, add])


def test_nobody_denies_and_knows_nothing() -> None:
    ask = Ask(run="r", call_id="c", tool="t", arguments="", why="")
    assert asyncio.run(Nobody().approve(ask)) == "no"
    assert asyncio.run(Nobody().answer("?")) is None
