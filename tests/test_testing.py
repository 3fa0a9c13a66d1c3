"""`toolwire.testing`: scripted and recorded models."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.protocols import ALL_PROTOCOLS
from toolwire import Agent, Policy, RunFailed, ToolwireError, tool
from toolwire.canonical.content import ToolCall
from toolwire.canonical.events import PartDelta, PartEnd
from toolwire.canonical.request import Request
from toolwire.canonical.tools import OutputFormat
from toolwire.runtime.model import ModelFailed
from toolwire.testing import RecordedModel, ScriptedModel, answer, call, fail, respond


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


@pytest.mark.parametrize("protocol", [None, *ALL_PROTOCOLS])
def test_response_breaks_off_behind_its_text(protocol: str | None) -> None:
    model = ScriptedModel(fail("server", "gone", after="It ra"), protocol=protocol)
    stream = Agent(model).stream("Is it raining?")
    assert "".join(stream.stream_text(check=False)) == "It ra"
    assert (stream.run.stopped, stream.run.reason) == ("failed", "gone")


def test_call_in_a_response_that_breaks_off_does_not_run() -> None:
    model = ScriptedModel(fail("server", "gone", after=call("weather", city="Oslo")))
    run = Agent(model, tools=[weather]).run("Is it raining?", check=False)
    assert (run.stopped, run.calls) == ("failed", [])

    async def read() -> list[type]:
        seen = list[type]()
        with contextlib.suppress(ModelFailed):
            async for event in ScriptedModel(fail(after="It ra")).stream(Request(origin="")):
                seen.append(type(event))
        return seen

    assert asyncio.run(read())[-2:] == [PartDelta, PartEnd]  # neither the message nor the response ends


def test_model_of_an_agent_is_replaced_within_a_context() -> None:
    agent = Agent(ScriptedModel("own"), tools=[weather])
    model = ScriptedModel("other")
    with agent.override(model=model) as same:
        assert same.run("Hello").text == "other"
    assert (agent.run("Hello").text, len(model.requests), model.unplayed) == ("own", 1, 0)


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


@dataclasses.dataclass
class City:
    name: str


class ModelWithoutFormats(ScriptedModel):
    def accepts_output_format(self, output: OutputFormat, *, has_tools: bool) -> bool:
        return False


@pytest.mark.parametrize("model", [ScriptedModel, ModelWithoutFormats])
@pytest.mark.parametrize(
    ("output", "value", "expected"),
    [
        (City, City("Oslo"), City("Oslo")),
        (City, {"name": "Oslo"}, City("Oslo")),
        (list[City], [City("Oslo")], [City("Oslo")]),
        (int, 7, 7),
        (City | None, None, None),
        (str, "Oslo", "Oslo"),
    ],
)
def test_answer_is_encoded_as_the_request_asks_for_it(
    model: type[ScriptedModel], output: Any, value: Any, expected: Any
) -> None:
    script = model(call("weather", city="Oslo"), answer(value))
    run = Agent(script, tools=[weather], output=output).run("Which city?")
    assert run.output == expected
    assert script.unplayed == 0
    (answer_part,) = run.messages[3].parts
    assert isinstance(answer_part, ToolCall) == (model is ModelWithoutFormats and output is not str)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fail("rate_limt"), r"kind='rate_limt' is unknown; did you mean \"rate_limit\"\?"),  # type: ignore[arg-type]
        (lambda: fail(5), "kind=5 is unknown; use one of"),  # type: ignore[arg-type]
        (lambda: respond("Hi", stop="length"), "stop='length' is unknown; use one of 'end_turn', 'max_tokens'"),  # type: ignore[arg-type]
    ],
)
def test_misspelt_failures_and_stop_reasons_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: respond(5), r"part=5 is invalid: use a text or call\(...\)"),  # type: ignore[arg-type]
        (lambda: respond("Hi", ["Ho"]), r"part=\['Ho'\] is invalid"),  # type: ignore[arg-type]
        (lambda: respond("Hi", usage=5), r"usage=5 is invalid: use tw.Usage\("),  # type: ignore[arg-type]
        (lambda: call(5), "name=5 is invalid: use the name of the tool"),  # type: ignore[arg-type]
        (lambda: fail(message=5), "message=5 is invalid: use a string"),  # type: ignore[arg-type]
        (lambda: fail(after=5), "part=5 is invalid"),  # type: ignore[arg-type]
    ],
)
def test_parts_of_turns_of_another_type_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()
