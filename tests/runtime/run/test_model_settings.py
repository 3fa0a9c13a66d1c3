"""Settings of model requests: keywords of the agent, overridden by those of a run; and fallback models."""

import json
from pathlib import Path
from typing import Any, assert_type

import openai
import pytest

import toolwire
from tests.support.runtime.scripted_agent import ALLOW_ALL, ScriptedModel, add, model_call, model_turn, text_turn
from tests.support.servers.asgi import serve_app
from toolwire import Agent, RunLimits, ToolwireError
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
    with pytest.raises(TypeError, match="unknown option 'temprature'; did you mean \"temperature\""):
        agent.run("Hi", temprature=1)  # type: ignore[call-arg]
    with pytest.raises(ToolwireError, match='did you mean "add"'):
        agent.run("Hi", tool_choice="ad")
    with pytest.raises(TypeError, match="unknown option 'instruction'; did you mean \"instructions\""):
        Agent(ScriptedModel(), instruction="Be brief.")  # type: ignore[call-arg]


@pytest.mark.parametrize("tools", ["add", add])
def test_tools_that_are_no_list_are_an_error(tools: Any) -> None:
    with pytest.raises(TypeError, match=r"tools must be a list: write tools=\[...\]"):
        Agent(ScriptedModel(), tools=tools)


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
    assert run.model == "gpt-5.5"


def test_type_checkers_infer_the_output() -> None:
    agent = Agent(ScriptedModel(text_turn('{"result": 3}')), output=int)
    assert_type(agent, Agent[int, None])
    assert_type(agent.run("1 + 2?").output, int)
    assert_type(Agent(ScriptedModel(text_turn("Hi"))).run("Hi").output, str)
    assert_type(Agent(ScriptedModel(text_turn('{"result": [1]}')), output=list[int]).run("Hi").output, list[int])


INVALID_SETTINGS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"effort": "hgih"}, ValueError, "effort='hgih' is unknown; did you mean \"high\""),
    ({"effort": 3}, ValueError, "effort=3 is unknown; use one of none, minimal"),
    ({"temperature": "hot"}, TypeError, "temperature='hot' is invalid: use a number from 0 to 2"),
    ({"temperature": 2.1}, ValueError, "temperature=2.1 is invalid"),
    ({"temperature": True}, TypeError, "temperature=True is invalid"),
    ({"temperature": float("nan")}, TypeError, "temperature=nan is invalid"),
    ({"top_p": -0.1}, ValueError, "top_p=-0.1 is invalid: use a number from 0 to 1"),
    ({"max_tokens": -1}, ValueError, "max_tokens=-1 is invalid: use at least 1"),
    ({"max_tokens": 1.5}, TypeError, "max_tokens=1.5 is invalid: use an integer"),
    ({"seed": "7"}, TypeError, "seed='7' is invalid: use an integer"),
    ({"parallel": "no"}, TypeError, "parallel='no' is invalid: use True or False"),
    ({"stop": 3}, TypeError, "stop=3 is invalid"),
    ({"stop": [""]}, TypeError, r"stop=\[''\] is invalid"),
    ({"tool_choice": ["add"]}, TypeError, r"tool_choice=\['add'\] is invalid"),
]


@pytest.mark.parametrize(("settings", "error", "message"), INVALID_SETTINGS, ids=lambda value: str(value)[:30])
def test_invalid_settings_are_errors_at_once(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    model = ScriptedModel(text_turn("a"))
    with pytest.raises(error, match=message):
        Agent(model, **settings)
    agent = Agent(model)
    with pytest.raises(error, match=message):
        agent.run("Hi", **settings)
    with pytest.raises(error, match=message):
        agent.stream("Hi", **settings)
    assert not model.requests


def test_extreme_valid_settings_are_sent() -> None:
    model = ScriptedModel(text_turn("a"))
    Agent(model, temperature=0, top_p=1, max_tokens=1, stop=["a"], effort="max", parallel=False).run("Hi")
    assert model.requests[0].sampling == Sampling(temperature=0, top_p=1, max_tokens=1, stop=("a",))


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        ({"turns": -1}, ValueError),
        ({"seconds": "60"}, TypeError),
        ({"cost": float("nan")}, ValueError),
        ({"parallel": 0}, ValueError),
        ({"tokens": True}, TypeError),
        ({"compact_at": "now"}, TypeError),
    ],
)
def test_invalid_limits_are_errors(limits: dict[str, Any], error: type[Exception]) -> None:
    (name,) = limits
    with pytest.raises(error, match=rf"RunLimits\({name}="):
        RunLimits(**limits)


@pytest.mark.parametrize("option", ["fallbacks", "always_offered", "secrets"])
def test_single_text_is_no_list_of_texts(option: str) -> None:
    options: dict[str, Any] = {option: "openai/gpt-5.5"}
    with pytest.raises(TypeError, match=f"{option} must be a list of strings, not one string"):
        Agent(ScriptedModel(), **options)


def test_config_may_be_a_path(tmp_path: Path) -> None:
    file = tmp_path / "team.toml"
    with serve_app(Simulator(["ollama"])) as address:
        file.write_text(f'[providers.up]\nprotocol = "ollama"\nbase_url = "{address}"\n')
        for source in (file, str(file)):
            with Agent("up/any", config=source) as agent:
                assert agent.run("Hi").ok
        with openai.OpenAI(http_client=toolwire.http_client("up/any", config=file), api_key="none") as client:
            messages: list[Any] = [{"role": "user", "content": "Hi"}]
            assert client.chat.completions.create(model="any", messages=messages).choices[0].message.content


def test_unusable_config_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ToolwireError, match=r"missing\.toml"):
        Agent(config=tmp_path / "missing.toml")
    invalid: Any = {"providers": {}}
    with pytest.raises(TypeError, match=r"config must be a Config or the path of a .* file, not of type dict$"):
        Agent(config=invalid)
