"""Typed answers: the schema that the model gets, validation, corrections, and models without structured output."""

import dataclasses
import json
from typing import Any, Literal, TypedDict, assert_type

import msgspec
import pydantic
import pytest

from tests.support.runtime.scripted_agent import ALLOW_ALL, ScriptedModel, add, model_call, model_turn, text_turn
from tests.support.servers.asgi import serve_app
from toolwire import Agent, RunFailed, ToolwireError, tool
from toolwire.canonical.content import ToolResult
from toolwire.canonical.tools import FunctionTool, OutputFormat
from toolwire.gateway.config import Config, ProviderSection
from toolwire.runtime.run.output import OUTPUT_TOOL, InvalidOutput, OutputType
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script


class City(pydantic.BaseModel):
    name: str
    people: int
    mayor: str | None = None


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Person(TypedDict):
    name: str
    friends: list[str]


class Tree(msgspec.Struct):
    value: int
    children: list["Tree"] = []


class ModelWithoutFormats(ScriptedModel):
    def accepts_output_format(self, output: OutputFormat, *, has_tools: bool) -> bool:
        return False


OSLO = '{"name": "Oslo", "people": 700000}'
VALUES: list[tuple[Any, str, Any]] = [
    (City, OSLO, City(name="Oslo", people=700_000)),
    (Point, '{"x": 1, "y": 2}', Point(1, 2)),
    (Person, '{"name": "Ada", "friends": []}', {"name": "Ada", "friends": []}),
    (Tree, '{"value": 1, "children": [{"value": 2}]}', Tree(1, [Tree(2)])),
    (list[Point], '{"result": [{"x": 1, "y": 2}]}', [Point(1, 2)]),
    (int, '{"result": 7}', 7),
]


@pytest.mark.parametrize(("annotation", "text", "value"), VALUES)
def test_answer_becomes_a_value_of_the_type(annotation: Any, text: str, value: Any) -> None:
    model = ScriptedModel(text_turn(text))
    run = Agent(model, output=annotation).run("Where?")
    assert run.output == value
    assert run.text == text
    (request,) = model.requests
    assert request.output is not None
    assert request.output.kind == "json_schema"
    schema = msgspec.json.decode(request.output.schema or b"")
    assert schema["type"] == "object"
    assert "$ref" not in schema


async def infer_types(point: Agent[Point], cities: Agent[list[City]]) -> None:
    """Never run: `mypy --strict` checks it."""
    assert_type(Agent(output=Person).run("Who?").output, Person)
    assert_type(Agent(output=City).stream("Where?").run.output, City)
    assert_type((await point.run("Where?")).output, Point)
    assert_type(cities.run("Where?").output, list[City])
    assert_type(Agent(output=City | Point).run("Where?").output, City | Point)
    assert_type(Agent(output=Literal["north", "south"]).run("Where?").output, Literal["north", "south"])
    assert_type(Agent(output=dict[str, int]).run("How many?").output, dict[str, int])
    optional: Agent[City | None] = Agent(output=City | None)
    assert_type(optional.run("Where?").output, City | None)


def test_text_is_the_default_output() -> None:
    run = Agent(ScriptedModel(text_turn("Oslo"))).run("Where?")
    assert run.output == run.text == "Oslo"


def test_fenced_answers_and_nulls_for_absent_properties_are_accepted() -> None:
    assert OutputType(City).parse(f"```json\n{OSLO}\n```").name == "Oslo"
    assert OutputType(Tree).parse('{"value": 1, "children": null}') == Tree(1)


@pytest.mark.parametrize("text", ["Oslo", '{"name": "Oslo"}', "[1]", '{"people": "many", "name": "Oslo"}', ""])
def test_invalid_answer_has_a_reason(text: str) -> None:
    with pytest.raises(InvalidOutput, match=r"\w"):
        OutputType(City).parse(text)


def test_model_corrects_an_invalid_answer() -> None:
    model = ScriptedModel(text_turn('{"name": "Oslo"}'), text_turn(OSLO))
    run = Agent(model, output=City).run("Where?")
    assert run.output.people == 700_000
    correction = model.requests[1].messages[-1]
    assert correction.role == "user"
    assert "people" in correction.parts[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize("model_type", [ScriptedModel, ModelWithoutFormats])
def test_run_fails_after_too_many_invalid_answers(model_type: type[ScriptedModel]) -> None:
    model = model_type(*[text_turn("somewhere")] * 5)
    with pytest.raises(RunFailed, match="does not match the output type") as failed:
        Agent(model, output=City, output_retries=1).run("Where?")
    assert failed.value.run.stopped == "output"
    assert len(model.requests) == 2
    with pytest.raises(RunFailed):
        _ = failed.value.run.output


def test_tool_for_answers_replaces_the_format() -> None:
    model = ModelWithoutFormats(
        model_turn(model_call("add", {"a": 1, "b": 2}, id="a")),
        model_turn(model_call(OUTPUT_TOOL, {"name": "Oslo"}, id="b")),
        model_turn(model_call(OUTPUT_TOOL, json.loads(OSLO), id="c")),
    )
    run = Agent(model, tools=[add], policy=ALLOW_ALL, output=City).run("Where?")
    assert run.output == City(name="Oslo", people=700_000)
    first = model.requests[0]
    assert first.output is None
    assert first.tool_choice is not None
    assert first.tool_choice.mode == "required"
    assert [one.name for one in first.tools or () if isinstance(one, FunctionTool)] == ["add", OUTPUT_TOOL]
    (result,) = run.messages[-1].parts
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.status) == ("c", "ok")


def test_output_is_requested_in_one_way_if_that_changes_between_turns() -> None:
    """A model may accept the format only in turns without tools."""

    class Model(ScriptedModel):
        def accepts_output_format(self, output: OutputFormat, *, has_tools: bool) -> bool:
            return not has_tools

    model = Model(model_turn(model_call("add", {"a": 1, "b": 2})), text_turn(OSLO))
    agent = Agent(
        model,
        tools=[add],
        policy=ALLOW_ALL,
        output=City,
        prepare_tools=lambda context, tools: tools if context.turn == 1 else (),
    )
    assert agent.run("Where?").output.name == "Oslo"
    first, second = model.requests
    assert first.output is None
    assert first.tools is not None
    assert len(first.tools) == 2
    assert second.output is not None
    assert second.tools is None
    assert second.tool_choice is None


def test_policy_does_not_apply_to_answers() -> None:
    model = ModelWithoutFormats(model_turn(model_call(OUTPUT_TOOL, json.loads(OSLO))))
    assert Agent(model, output=City, policy=type(ALLOW_ALL)(deny=["*"])).run("Where?").ok


def test_tool_with_the_name_of_the_tool_for_answers_is_refused() -> None:
    @tool(name=OUTPUT_TOOL, read_only=True)
    def answer() -> str:
        return "42"

    with pytest.raises(ToolwireError, match=OUTPUT_TOOL):
        Agent(ModelWithoutFormats(), tools=[answer], output=City).run("Where?")


def serve_city(protocol: str, *, as_call: bool) -> Simulator:
    call = {"name": OUTPUT_TOOL, "arguments": json.loads(OSLO)}
    turn = {"calls": [call]} if as_call else {"text": OSLO}
    return Simulator([protocol], script=parse_script(json.dumps({"turns": [turn]}).encode(), "script", toml=False))


@pytest.mark.parametrize(
    ("protocol", "model", "as_call"),
    [
        ("anthropic", "claude-sonnet-4-5", False),
        ("anthropic", "claude-3-5-haiku-latest", True),
        ("openai-chat", "gpt-5.5", False),
        ("openai-responses", "gpt-5.5", False),
        ("gemini", "gemini-3-pro", False),
        ("gemini", "gemini-2.5-flash", True),
        ("gemini-interactions", "gemini-3-pro", False),
        ("ollama", "qwen3:8b", True),
        ("openrouter", "openai/gpt-5.5", False),
    ],
)
def test_every_protocol_gives_typed_answers(protocol: str, model: str, *, as_call: bool) -> None:
    with serve_app(serve_city(protocol, as_call=as_call)) as address:
        up = ProviderSection(protocol=protocol, base_url=address, api_key="k" * 20)
        with Agent(f"up/{model}", tools=[add], output=City, config=Config(providers={"up": up})) as agent:
            run = agent.run("Where?", max_tokens=500)
    assert run.output == City(name="Oslo", people=700_000)
    assert run.turns == 1
