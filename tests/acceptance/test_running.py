"""Failures that can only happen to whoever runs the calls."""

import json
from typing import Any

import pytest

from tests.support.runtime.scripted_agent import (
    ScriptedModel,
    last_results,
    model_call,
    model_turn,
    result_text,
    text_turn,
)
from toolwire import Agent, Policy, RunLimits, tool
from toolwire.canonical.content import Message, Reasoning, ReasoningText, Signature, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.response import StopReason
from toolwire.runtime.run.history import trim_history

ALL = Policy(allow=["*"])


@tool
def add(a: int, b: int) -> int:
    return a + b


def thinking(text: str) -> Reasoning:
    seal = Signature(issuer="openai", data="x" * 100, kind="encrypted")
    return Reasoning(content=(ReasoningText(kind="summary", text=text),), signature=seal)


def long_run(history: int) -> list[Request]:
    model = ScriptedModel(
        *[model_turn(thinking(f"{n}"), model_call("add", {"a": n, "b": n}, id=f"c{n}")) for n in range(12)],
        text_turn("ok"),
    )
    Agent(model, tools=[add], policy=ALL, limits=RunLimits(history=history)).run("the question " + "x" * 400)
    return model.requests


def parts_of(request: Request, kind: type) -> list[Any]:
    return [part for message in request.messages for part in message.parts if isinstance(part, kind)]


def test_or_13_calls_and_outputs_are_pruned_in_pairs_and_keep_their_order() -> None:
    last = long_run(history=600)[-1]
    calls = [part.id for part in parts_of(last, ToolCall)]
    assert 0 < len(calls) < 12
    assert calls == [f"c{n}" for n in range(12 - len(calls), 12)]
    assert [part.call_id for part in parts_of(last, ToolResult)] == calls
    order = [type(part) for message in last.messages for part in message.parts]
    assert order[1:] == [Reasoning, ToolCall, ToolResult] * len(calls)
    assert parts_of(last, Text)[0].text.startswith("the question")


def test_th_12_reasoning_goes_with_the_call_that_it_led_to() -> None:
    said = Message(role="assistant", parts=(thinking("first"),)), Message(role="assistant", parts=(model_call("add"),))
    results = Message(role="user", parts=(ToolResult(call_id="c1", content=(Text(text="1"),)),))
    question = Message(role="user", parts=(Text(text="q"),))
    whole = (question, *said, results, *said, results, *said, results)
    for tokens in range(0, 1000, 20):
        kept, gone = trim_history(whole, tokens)
        assert gone % 3 == 0
        assert kept == (question, *whole[1 + gone :])
    assert trim_history(whole, 0)[1] == 6


def test_pa_10_a_wrapper_is_expanded_into_its_calls() -> None:
    uses = [
        {"recipient_name": "functions.add", "parameters": {"a": 1, "b": 2}},
        {"recipient_name": "add", "parameters": {"a": 3, "b": 4}},
    ]
    model = ScriptedModel(
        model_turn(model_call("multi_tool_use.parallel", {"tool_uses": uses}, id="w")), text_turn("ok")
    )
    run = Agent(model, tools=[add], policy=ALL).run("go")
    assert [(one.tool, one.arguments) for one in run.calls] == [("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})]
    asked = model.requests[1]
    assert [(part.id, part.name) for part in parts_of(asked, ToolCall)] == [("w", "add"), ("w_1", "add")]
    assert [(one.call_id, result_text(one)) for one in last_results(asked)] == [("w", "3"), ("w_1", "7")]


def test_ar_2_no_arguments_for_a_tool_that_needs_some_fail_closed() -> None:
    ran: list[Any] = []

    @tool
    def remove(path: str, force: bool = True) -> None:
        ran.append(path)

    model = ScriptedModel(model_turn(model_call("remove", "")), text_turn("ok"))
    run = Agent(model, tools=[remove], policy=ALL, repair=True).run("go")
    assert ran == []
    assert '"path" is a required property' in result_text(last_results(model.requests[1])[0])
    assert run.calls[0].error == "schema"


def test_ar_5_double_encoded_arguments_are_repaired_if_that_is_asked_for() -> None:
    got: list[Any] = []

    @tool
    def note(items: list[int], text: str) -> None:
        got.append((items, text))

    sent = {"items": "[1, 2]", "text": "[3]"}
    plain = ScriptedModel(model_turn(model_call("note", sent)), text_turn("ok"))
    assert Agent(plain, tools=[note], policy=ALL).run("go").calls[0].error == "schema"
    assert got == []
    mended = ScriptedModel(model_turn(model_call("note", sent)), text_turn("ok"))
    run = Agent(mended, tools=[note], policy=ALL, repair=True).run("go")
    assert got == [([1, 2], "[3]")]
    assert run.calls[0].repairs == ("/items: decoded a JSON string to an array",)
    cut = ScriptedModel(model_turn(model_call("note", json.dumps(sent)[:-5], complete=False)), text_turn("ok"))
    assert Agent(cut, tools=[note], policy=ALL, repair=True).run("go").calls[0].error == "truncated"
    assert len(got) == 1


@pytest.mark.parametrize("reason", ["max_tokens", "filtered", "refusal"])
def test_sr_7_nothing_runs_after_another_end_than_a_tools(reason: StopReason) -> None:
    ran: list[int] = []

    def touch() -> None:
        ran.append(1)

    run = Agent(ScriptedModel(model_turn(model_call("touch"), stop=reason)), tools=[touch], policy=ALL).run(
        "go", check=False
    )
    assert ran == []
    assert run.stopped in ("length", "filtered", "refused")
