"""Dependencies of a run, instructions and tools that depend on the turn, and streams of text."""

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from tests.support.runtime.scripted_agent import ALLOW_ALL
from toolwire import Agent, ToolContext, tool
from toolwire.runtime.run.context import RunContext
from toolwire.runtime.tool import Tool
from toolwire.testing import ScriptedModel, call, fail, respond


@dataclasses.dataclass
class User:
    name: str


@tool(read_only=True)
def greet(context: ToolContext[User], word: str) -> str:
    return f"{word}, {context.deps.name}"


@tool(read_only=True)
def count() -> int:
    return 1


def test_tools_get_the_dependencies_of_their_run() -> None:
    model = ScriptedModel(call("greet", word="Hello"), "done", call("greet", word="Bye"), "done")
    agent = Agent(model, tools=[greet], deps=User)
    assert agent.run("Greet.", deps=User("Ada")).calls[0].summary == "Hello, Ada"
    assert agent.run("Greet.", deps=User("Bob")).calls[0].summary == "Bye, Bob"


def test_sub_agents_and_steps_get_the_dependencies() -> None:
    sub_model = ScriptedModel(call("greet", word="Hello"), "done")
    helper = Agent(sub_model, tools=[greet], deps=User, name="helper")
    model = ScriptedModel(call("helper", task="Greet."), "done")
    Agent(model, tools=[helper], policy=ALLOW_ALL, deps=User).run("Ask.", deps=User("Ada"))
    assert "Hello, Ada" in str(sub_model.requests[-1].messages)

    agent = Agent(ScriptedModel(call("greet", word="Hello"), "done"), tools=[greet], deps=User)
    state = agent.step(agent.start("Greet.", deps=User("Eve")))
    agent.step(state)
    assert "Hello, Eve" in str(state.messages)


def test_resumed_run_gets_the_dependencies_anew(tmp_path: Path) -> None:
    journal = tmp_path / "runs.db"
    first = Agent(ScriptedModel(call("greet", word="Hello"), fail("server")), tools=[greet], deps=User, journal=journal)
    run = first.run("Greet.", deps=User("Ada"), check=False)
    model = ScriptedModel(call("greet", word="Bye"), "done")
    stream = Agent(model, tools=[greet], deps=User, journal=journal).resume(run.id, deps=User("Bob"))
    assert [*stream]
    assert "Hello, Ada" in str(model.requests[0].messages)
    assert [record.summary for record in stream.run.calls] == ["Bye, Bob"]


def test_instructions_and_tools_are_prepared_for_each_turn() -> None:
    async def instructions(context: RunContext[User]) -> str:
        return f"Turn {context.turn} for {context.deps.name}."

    def prepare(context: RunContext[User], tools: Sequence[Tool]) -> Sequence[Tool]:
        return [one for one in tools if one.name != "greet" or context.turn > 1]

    model = ScriptedModel(respond(call("count"), call("greet", word="Hi")), "done")
    agent = Agent(model, tools=[greet, count], deps=User, instructions=instructions, prepare_tools=prepare)
    run = agent.run("Go.", deps=User("Ada"))
    first, second = model.requests
    assert [request.system[0].text for request in (first, second) if request.system] == [
        "Turn 1 for Ada.",
        "Turn 2 for Ada.",
    ]
    assert [len(request.tools or ()) for request in (first, second)] == [1, 2]
    assert {record.tool: record.error for record in run.calls} == {"count": "", "greet": "unknown_tool"}


def test_stream_of_text_works_in_both_worlds() -> None:
    stream = Agent(ScriptedModel(respond("Let me see. ", call("count")), "One.")).stream("How many?")
    assert "".join(stream.stream_text()) == "Let me see. One."
    assert stream.run.output == "One."

    async def main() -> tuple[str, int]:
        text = "".join([piece async for piece in Agent(ScriptedModel("One.")).stream("How many?").stream_text()])
        events = [event async for event in Agent(ScriptedModel("One.")).stream("How many?").stream_events()]
        return text, len(events)

    assert asyncio.run(main()) == ("One.", 5)
