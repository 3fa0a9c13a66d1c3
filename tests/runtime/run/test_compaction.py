"""Compaction in a run: when the context fills, requests continue from a summary that the model wrote."""

from pathlib import Path

import pytest

from tests.support.servers.asgi import serve_app
from toolwire import Agent, RunFailed, RunLimits, RunWarning, Text, tool
from toolwire.canonical.content import Message
from toolwire.canonical.request import Request
from toolwire.canonical.response import Usage
from toolwire.gateway.config import Config, ProviderSection
from toolwire.testing import ScriptedModel, call, fail, respond
from toolwire.translation.compaction import SUMMARY_INTRODUCTION, SUMMARY_PROMPT
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script

MODELS = {
    "anthropic": "claude-sonnet-5",
    "openai-chat": "gpt-5.4",
    "openai-responses": "gpt-5.4",
    "gemini": "gemini-3-pro",
    "gemini-interactions": "gemini-3-pro",
    "ollama": "qwen3:8b",
    "openrouter": "openai/gpt-6-astra",
}
HISTORY = [
    Message(role=role, parts=(Text(text=f"{number} " + "word " * 400),))
    for number in range(6)
    for role in ("user", "assistant")
]
SUMMARY = "The user wants the log. It says: rain."


@tool(read_only=True)
def read_log(day: int) -> str:
    """Read the log of a day."""
    return f"day {day}: " + "rain " * 2000


def texts(request: Request) -> list[str]:
    return [part.text for message in request.messages for part in message.parts if isinstance(part, Text)]


def test_full_context_is_replaced_by_a_summary() -> None:
    model = ScriptedModel(
        call("read_log", day=1), respond(SUMMARY, usage=Usage(input_tokens=70, output_tokens=7)), "It rained."
    )
    agent = Agent(model, tools=[read_log], limits=RunLimits(compact_at=1000))
    stream = agent.stream("What does the log say?")
    warnings = [event.text for event in stream if isinstance(event, RunWarning)]
    run = stream.run
    assert run.text == "It rained."
    assert warnings == ["the context is full: a summary replaces the first 3 messages"]
    first, summary, last = model.requests
    assert texts(first) == ["What does the log say?"]
    assert texts(summary)[-1] == SUMMARY_PROMPT
    assert summary.tool_choice is not None
    assert summary.tool_choice.mode == "none"
    prompt, replacement = texts(last)
    assert prompt == "What does the log say?"
    assert replacement.startswith(SUMMARY_INTRODUCTION)
    assert SUMMARY in replacement
    assert len(run.messages) == 4, "the run keeps its complete conversation"
    assert run.usage.requests == 3
    assert (run.usage.input_tokens or 0) >= 70


def test_short_conversation_is_left_alone() -> None:
    model = ScriptedModel(call("read_log", day=1), "It rained.")
    assert Agent(model, tools=[read_log]).run("What does the log say?").ok
    assert len(model.requests) == 2


def test_request_that_exceeds_the_context_is_summarized_and_sent_again() -> None:
    model = ScriptedModel(fail("context_length", "too long"), SUMMARY, "Done.")
    run = Agent(model).run("Go on.", history=HISTORY)
    assert run.warnings == ["the context is full: a summary replaces the first 11 messages"]
    assert run.text == "Done."
    rejected, summary, last = model.requests
    assert any(text.startswith("1 ") for text in texts(rejected))
    assert not any(text.startswith("1 ") for text in texts(summary)), "the summary request leaves out the oldest turns"
    assert any(SUMMARY in text for text in texts(last))
    assert texts(last)[-1] == "Go on."


@pytest.mark.parametrize("limits", [RunLimits(compact_at="never"), RunLimits(history=10_000)])
def test_compaction_can_be_turned_off(limits: RunLimits) -> None:
    model = ScriptedModel(fail("context_length", "too long"), SUMMARY, "Done.")
    with pytest.raises(RunFailed, match="too long"):
        Agent(model, limits=limits).run("Go on.", history=HISTORY)
    assert len(model.requests) == 1


def test_summary_that_fails_leaves_the_conversation_as_it_is() -> None:
    model = ScriptedModel(call("read_log", day=1), call("read_log", day=2), call("read_log", day=3), "It rained.")
    stream = Agent(model, tools=[read_log], limits=RunLimits(compact_at=1000)).stream("What does the log say?")
    warnings = [event.text for event in stream if isinstance(event, RunWarning)]
    assert stream.run.text == "It rained."
    assert warnings == [
        "the conversation could not be summarized: no summary: the model called a tool instead of summarizing"
    ]
    assert len(model.requests[-1].messages) == 5, "it is not tried again at once"


def test_resumed_run_continues_from_the_recorded_summary(tmp_path: Path) -> None:
    limits = RunLimits(compact_at=1000)
    model = ScriptedModel(call("read_log", day=1), SUMMARY, fail("server", "gone"))
    first = Agent(model, tools=[read_log], limits=limits, journal=tmp_path / "runs.db")
    run = first.run("What does the log say?", check=False)
    first.close()
    assert run.stopped == "failed"
    model = ScriptedModel("It rained.")
    with Agent(model, tools=[read_log], limits=limits, journal=tmp_path / "runs.db") as second:
        stream = second.resume(run.id)
        list(stream)
    assert stream.run.text == "It rained."
    (request,) = model.requests
    assert any(SUMMARY in text for text in texts(request))


@pytest.mark.parametrize("protocol", MODELS)
def test_every_provider_accepts_summary_requests_and_compacted_conversations(protocol: str) -> None:
    script = """
    [[turns]]
    calls = [{name = "read_log", arguments = {day = 1}}]
    [[turns]]
    text = "The log says: rain."
    [[turns]]
    text = "It rained."
    """
    with serve_app(Simulator([protocol], script=parse_script(script.encode(), "script"))) as address:
        up = ProviderSection(protocol=protocol, base_url=address, api_key="k" * 20)
        with Agent(
            f"up/{MODELS[protocol]}",
            tools=[read_log],
            limits=RunLimits(compact_at=1000),
            config=Config(providers={"up": up}),
        ) as agent:
            stream = agent.stream("What does the log say?")
            warnings = [event.text for event in stream if isinstance(event, RunWarning)]
    assert warnings == ["the context is full: a summary replaces the first 3 messages"]
    assert stream.run.text == "It rained."
    assert stream.run.usage.requests == 3
