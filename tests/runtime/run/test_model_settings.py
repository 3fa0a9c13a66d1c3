"""Settings of model requests: keywords of the agent, overridden by those of a run; and fallback models."""

import json
from typing import assert_type

import pytest

from tests.support.runtime.scripted_agent import ALLOW_ALL, ScriptedModel, add, model_call, model_turn, text_turn
from tests.support.servers.asgi import serve_app
from toolwire import Agent, ToolwireError
from toolwire.canonical.tools import Sampling, Thinking, ToolChoice, ToolRef
from toolwire.gateway.config import Config, ProviderSection
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script


def test_settings_of_a_run_override_those_of_the_agent() -> None:
    model = ScriptedModel(text_turn("a"), text_turn("b"))
    agent = Agent(model, temperature=0.1, stop="END", seed=7, effort="low")
    agent.run("Hi")
    agent.run("Hi", temperature=0.9, top_p=0.5, max_tokens=50, effort=None)
    first, second = model.requests
    assert first.sampling == Sampling(temperature=0.1, stop=("END",), seed=7)
    assert first.thinking == Thinking(enabled=True, effort="low")
    assert second.sampling == Sampling(temperature=0.9, top_p=0.5, max_tokens=50, stop=("END",), seed=7)
    assert second.thinking is None


def test_streams_take_settings() -> None:
    model = ScriptedModel(text_turn("a"))
    assert [*Agent(model).stream("Hi", temperature=1.5)]
    assert model.requests[0].sampling == Sampling(temperature=1.5)


def test_forced_tool_choice_holds_for_the_first_turn() -> None:
    model = ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 2})), text_turn("3"))
    Agent(model, tools=[add], policy=ALLOW_ALL, parallel=False).run("1 + 2?", tool_choice="add")
    first, second = model.requests
    assert first.tool_choice == ToolChoice(mode="named", names=(ToolRef(name="add"),), parallel=False)
    assert second.tool_choice == ToolChoice(parallel=False)


def test_tools_stay_forbidden_in_every_turn() -> None:
    model = ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 2})), text_turn("3"))
    Agent(model, tools=[add], policy=ALLOW_ALL, tool_choice="none").run("1 + 2?")
    assert [request.tool_choice for request in model.requests] == [ToolChoice(mode="none")] * 2


def test_unknown_settings_and_tools_are_errors_with_suggestions() -> None:
    agent = Agent(ScriptedModel(text_turn("a")), tools=[add])
    with pytest.raises(TypeError, match="unknown setting 'temprature'; did you mean \"temperature\""):
        agent.run("Hi", temprature=1)  # type: ignore[call-arg]
    with pytest.raises(ToolwireError, match='did you mean "add"'):
        agent.run("Hi", tool_choice="ad")


def test_fallback_models_answer_when_the_first_is_overloaded() -> None:
    failing = json.dumps({"turns": [{"error": {"kind": "overloaded"}}] * 9}).encode()
    answering = json.dumps({"turns": [{"text": "from the fallback"}]}).encode()
    with (
        serve_app(Simulator(["anthropic"], script=parse_script(failing, "s", toml=False))) as first,
        serve_app(Simulator(["openai-chat"], script=parse_script(answering, "s", toml=False))) as second,
    ):
        providers = {
            "a": ProviderSection(protocol="anthropic", base_url=first, api_key="k" * 20),
            "b": ProviderSection(protocol="openai-chat", base_url=second, api_key="k" * 20),
        }
        config = Config(providers=providers)
        with Agent("a/claude-sonnet-4-5", fallbacks=["b/gpt-5.5"], config=config) as agent:
            run = agent.run("Hi", effort="low")
    assert run.text == "from the fallback"


def test_type_checkers_infer_the_output() -> None:
    agent = Agent(ScriptedModel(text_turn('{"result": 3}')), output=int)
    assert_type(agent, Agent[int, None])
    assert_type(agent.run("1 + 2?").output, int)
    assert_type(Agent(ScriptedModel(text_turn("Hi"))).run("Hi").output, str)
    assert_type(Agent(ScriptedModel(text_turn('{"result": [1]}')), output=list[int]).run("Hi").output, list[int])
