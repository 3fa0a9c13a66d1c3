"""What stops a run: limits, incomplete responses and repeated calls."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.clock import Clock
from tests.support.runtime.scripted_agent import (
    ALLOW_ALL,
    ScriptedModel,
    add,
    model_call,
    model_turn,
    text_turn,
)
from toolwire import Agent, RunLimits, tool
from toolwire.canonical.content import Text
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import Event, UsageReport
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, StopReason, Usage
from toolwire.runtime.run.events import TextDelta

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


def test_answer_continues_after_the_output_limit_of_the_model() -> None:
    cut = model_turn(Text(text="once upon "), stop="max_tokens")
    model = ScriptedModel(cut, text_turn("a time"))
    run = Agent(model).run("Tell me a tale.")
    assert (run.text, run.stopped) == ("once upon a time", "finished")
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "user"]


def test_continuations_are_limited() -> None:
    cut = model_turn(Text(text="and "), stop="max_tokens")
    model = ScriptedModel(*[cut] * 9)
    run = Agent(model, limits=RunLimits(continuations=2)).run("Tell me a tale.", check=False)
    assert (run.text, run.stopped, len(model.requests)) == ("and and and ", "length", 3)


def test_output_limit_of_the_user_stops_the_run() -> None:
    model = ScriptedModel(model_turn(Text(text="once"), stop="max_tokens"))
    run = Agent(model, max_tokens=10).run("Tell me a tale.", check=False)
    assert (run.text, run.stopped, len(model.requests)) == ("once", "length", 1)


def test_turn_limit_stops_the_run() -> None:
    turns = [model_turn(model_call("add", {"a": n, "b": n})) for n in range(9)]
    run = Agent(ScriptedModel(*turns), tools=[add], policy=ALLOW_ALL, limits=RunLimits(turns=3)).run("go", check=False)
    assert (run.stopped, run.reason, run.turns) == ("turns", "the limit of 3 turns was reached", 3)


def test_token_limit_stops_the_run() -> None:
    turns = [
        model_turn(model_call("add", {"a": n, "b": n}), usage=Usage(input_tokens=40, output_tokens=20))
        for n in range(9)
    ]
    run = Agent(ScriptedModel(*turns), tools=[add], policy=ALLOW_ALL, limits=RunLimits(tokens=100)).run(
        "go", check=False
    )
    assert (run.stopped, run.turns, run.reason) == ("tokens", 2, "120 of 100 tokens were used")
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
    assert run.stopped == "seconds"
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
    assert (run.stopped, run.reason, model.closed) == ("seconds", "the limit of 60 seconds was reached", True)
    stream = agent.resume(run.id)
    assert [event.text for event in stream if isinstance(event, TextDelta)] == ["now it ends"]


def test_repeated_call_stops_the_run_before_executing() -> None:
    model = ScriptedModel(*[model_turn(model_call("add", {"a": 1, "b": 1}, id=f"c{n}")) for n in range(9)])
    run = Agent(model, tools=[add], policy=ALLOW_ALL, limits=RunLimits(repeats=2)).run("go", check=False)
    assert (run.stopped, len(run.calls)) == ("repeats", 2)
    assert "add was called with the same arguments 3 times in a row" in run.reason


def test_paused_turn_continues() -> None:
    model = ScriptedModel(model_turn(Text(text="Still at it. "), stop="paused"), text_turn("Done."))
    run = Agent(model).run("go")
    assert (run.text, run.stopped, len(model.requests)) == ("Still at it. Done.", "finished", 2)


def test_protocol_error_fails_the_run_with_a_clear_message() -> None:
    failed = Response(origin="", error=ApiError(kind="server", message="the provider broke off"))
    run = Agent(ScriptedModel(failed)).run("go", check=False)
    assert (run.stopped, run.reason) == ("failed", "the provider broke off")


def test_run_without_a_response_has_an_empty_usage() -> None:
    async def interrupted() -> Usage:
        stream = Agent(ScriptedModel()).stream("Hi")
        await stream.aclose()
        return stream.run.usage

    assert asyncio.run(interrupted()) == Usage()
