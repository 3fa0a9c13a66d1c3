"""`toolwire.testing`: scripted and recorded models."""

from pathlib import Path

import pytest

from tests.support.protocols import ALL_PROTOCOLS
from toolwire import Agent, Policy, RunFailed, ToolwireError, tool
from toolwire.canonical.request import Request
from toolwire.testing import RecordedModel, ScriptedModel, call, fail, respond


@tool(read_only=True)
def weather(city: str) -> str:
    return f"rain in {city}"


def test_script_plays_calls_texts_and_functions() -> None:
    def count(request: Request) -> str:
        return f"{len(request.messages)} messages"

    model = ScriptedModel(call("weather", city="Oslo"), respond("Also ", call("weather", city="Bergen")), count)
    run = Agent(model, tools=[weather]).run("Where does it rain?")
    assert run.text == "5 messages"
    assert [record.summary for record in run.calls] == ["rain in Oslo", "rain in Bergen"]
    assert len(model.requests) == 3


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_script_plays_over_every_protocol(protocol: str) -> None:
    model = ScriptedModel(call("weather", city="Oslo"), "It rains.", protocol=protocol)
    run = Agent(model, tools=[weather]).run("Is it raining in Oslo?")
    assert (run.text, [record.summary for record in run.calls]) == ("It rains.", ["rain in Oslo"])
    assert run.calls[0].version == "scripted"  # the protocol's response names the model


def test_script_fails_as_a_provider_does_and_when_it_is_too_short() -> None:
    with pytest.raises(RunFailed, match="out of credit"):
        Agent(ScriptedModel(fail("billing", "out of credit"))).run("Hello")
    with pytest.raises(RunFailed, match="the script has no turn for request 2"):
        Agent(ScriptedModel(call("weather", city="Oslo")), tools=[weather]).run("Hello")
    with pytest.raises(ToolwireError, match="unknown protocol 'smtp'"):
        ScriptedModel(protocol="smtp")


def test_recorded_model_repeats_a_run_with_the_current_tools(tmp_path: Path) -> None:
    journal = tmp_path / "runs.db"
    script = ScriptedModel(call("weather", city="Oslo"), "It rains.")
    with Agent(script, tools=[weather], journal=journal) as agent:
        agent.run("Is it raining in Oslo?")

    @tool(name="weather")
    def other_weather(city: str) -> str:
        return f"sun in {city}"

    run = Agent(RecordedModel(journal), tools=[other_weather], policy=Policy(allow=["*"])).run("again")
    assert (run.text, run.calls[0].summary) == ("It rains.", "sun in Oslo")
