"""Failures of an agent that runs the calls."""

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

ALLOW_ALL = Policy(allow=["*"])


@tool
def add(a: int, b: int) -> int:
    return a + b


def reasoning_part(text: str) -> Reasoning:
    signature = Signature(issuer="openai", data="x" * 100, kind="encrypted")
    return Reasoning(content=(ReasoningText(kind="summary", text=text),), signature=signature)


def run_with_history_limit(history: int) -> list[Request]:
    model = ScriptedModel(
        *[model_turn(reasoning_part(f"{n}"), model_call("add", {"a": n, "b": n}, id=f"c{n}")) for n in range(12)],
        text_turn("ok"),
    )
    Agent(model, tools=[add], policy=ALLOW_ALL, limits=RunLimits(history=history)).run("the question " + "x" * 400)
    return model.requests


def parts_of(request: Request, kind: type) -> list[Any]:
    return [part for message in request.messages for part in message.parts if isinstance(part, kind)]


def test_or_13_calls_and_outputs_are_pruned_in_pairs_and_keep_their_order() -> None:
    last = run_with_history_limit(history=600)[-1]
    calls = [part.id for part in parts_of(last, ToolCall)]
    assert 0 < len(calls) < 12
    assert calls == [f"c{n}" for n in range(12 - len(calls), 12)]
    assert [part.call_id for part in parts_of(last, ToolResult)] == calls
    order = [type(part) for message in last.messages for part in message.parts]
    assert order[1:] == [Reasoning, ToolCall, ToolResult] * len(calls)
    assert parts_of(last, Text)[0].text.startswith("the question")


def test_th_12_reasoning_is_kept_with_the_call_it_led_to() -> None:
    turn = (
        Message(role="assistant", parts=(reasoning_part("first"),)),
        Message(role="assistant", parts=(model_call("add"),)),
    )
    results = Message(role="user", parts=(ToolResult(call_id="c1", content=(Text(text="1"),)),))
    question = Message(role="user", parts=(Text(text="q"),))
    history = (question, *turn, results, *turn, results, *turn, results)
    for tokens in range(0, 1000, 20):
        trimmed, removed = trim_history(history, tokens)
        assert removed % 3 == 0
        assert trimmed == (question, *history[1 + removed :])
    assert trim_history(history, 0)[1] == 6


def test_pa_10_a_parallel_wrapper_is_expanded_into_its_calls() -> None:
    uses = [
        {"recipient_name": "functions.add", "parameters": {"a": 1, "b": 2}},
        {"recipient_name": "add", "parameters": {"a": 3, "b": 4}},
    ]
    model = ScriptedModel(
        model_turn(model_call("multi_tool_use.parallel", {"tool_uses": uses}, id="w")), text_turn("ok")
    )
    run = Agent(model, tools=[add], policy=ALLOW_ALL).run("go")
    assert [(call.tool, call.arguments) for call in run.calls] == [("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})]
    request = model.requests[1]
    assert [(part.id, part.name) for part in parts_of(request, ToolCall)] == [("w", "add"), ("w_1", "add")]
    assert [(result.call_id, result_text(result)) for result in last_results(request)] == [("w", "3"), ("w_1", "7")]


def test_ar_2_missing_required_arguments_fail_closed() -> None:
    executions: list[Any] = []

    @tool
    def remove(path: str, force: bool = True) -> None:
        executions.append(path)

    model = ScriptedModel(model_turn(model_call("remove", "")), text_turn("ok"))
    run = Agent(model, tools=[remove], policy=ALLOW_ALL, repair=True).run("go")
    assert executions == []
    assert '"path" is a required property' in result_text(last_results(model.requests[1])[0])
    assert run.calls[0].error == "schema"


def test_ar_5_double_encoded_arguments_are_repaired_on_request() -> None:
    calls: list[Any] = []

    @tool
    def note(items: list[int], text: str) -> None:
        calls.append((items, text))

    arguments = {"items": "[1, 2]", "text": "[3]"}
    plain = ScriptedModel(model_turn(model_call("note", arguments)), text_turn("ok"))
    assert Agent(plain, tools=[note], policy=ALLOW_ALL).run("go").calls[0].error == "schema"
    assert calls == []
    repairing = ScriptedModel(model_turn(model_call("note", arguments)), text_turn("ok"))
    run = Agent(repairing, tools=[note], policy=ALLOW_ALL, repair=True).run("go")
    assert calls == [([1, 2], "[3]")]
    assert run.calls[0].repairs == ("/items: decoded a JSON string to an array",)
    truncated = ScriptedModel(
        model_turn(model_call("note", json.dumps(arguments)[:-5], complete=False)), text_turn("ok")
    )
    assert Agent(truncated, tools=[note], policy=ALLOW_ALL, repair=True).run("go").calls[0].error == "truncated"
    assert len(calls) == 1


@pytest.mark.parametrize("reason", ["max_tokens", "filtered", "refusal"])
def test_sr_7_no_tool_runs_unless_the_response_stopped_for_tools(reason: StopReason) -> None:
    executions: list[int] = []

    def touch() -> None:
        executions.append(1)

    run = Agent(ScriptedModel(model_turn(model_call("touch"), stop=reason)), tools=[touch], policy=ALLOW_ALL).run(
        "go", check=False
    )
    assert executions == []
    assert run.stopped in ("length", "filtered", "refused")
