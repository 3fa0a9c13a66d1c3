"""Settings, context, results, edited calls, limits and streams of agents, on the strict simulator of every protocol."""

import base64
import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.assertions import non_empty
from tests.support.gateway.setup import ObservedApp
from tests.support.protocols import ALL_PROTOCOLS
from tests.support.servers.asgi import serve_app
from toolwire import Agent, Policy, RunContext, RunFailed, RunLimits, Tool, ToolContext, tool
from toolwire.canonical.content import Inline, Media, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.codec.interface import Route
from toolwire.gateway.config import Config, LimitsSection, ProviderSection
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script

MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai-chat": "gpt-4.1",
    "openai-responses": "gpt-4.1",
    "gemini": "gemini-2.5-flash",
    "gemini-interactions": "gemini-2.5-flash",
    "ollama": "qwen3:8b",
    "openrouter": "openai/gpt-4.1",
}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)


class Upstream:
    """An agent on a simulated provider, and the requests that the provider gets."""

    def __init__(self, protocol: str, url: str, app: ObservedApp) -> None:
        self.protocol = protocol
        self._app = app
        self.section = ProviderSection(protocol=protocol, base_url=url, api_key="k" * 20)

    def agent(self, **options: Any) -> Agent[Any, Any]:
        """Return an agent with these options."""
        return Agent(f"up/{MODELS[self.protocol]}", config=Config(providers={"up": self.section}), **options)

    @property
    def requests(self) -> list[Request]:
        """The requests that the provider received, decoded."""
        codec = PROTOCOLS[self.protocol]
        return [codec.decode_request(exchange.request_body, Route()) for exchange in self._app.exchanges]


@contextmanager
def serve(protocol: str, *turns: dict[str, Any]) -> Iterator[Upstream]:
    script = parse_script(json.dumps({"turns": turns}).encode(), "script", toml=False) if turns else None
    app = ObservedApp(Simulator([protocol], script=script))
    with serve_app(app) as url:
        yield Upstream(protocol, url, app)


@tool(read_only=True)
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"rain in {city}"


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_settings_reach_the_provider(protocol: str) -> None:
    with serve(protocol) as upstream, upstream.agent(temperature=0.5, max_tokens=900, tools=[weather]) as agent:
        agent.run('weather {"city": "Oslo"}', max_tokens=700, tool_choice="weather")
    first, second = upstream.requests
    for request in (first, second):
        assert request.sampling is not None
        assert (request.sampling.temperature, request.sampling.max_tokens) == (0.5, 700)
    if protocol == "ollama":  # has no tool choice
        return
    assert first.tool_choice is not None
    assert first.tool_choice.mode in ("named", "required")
    assert second.tool_choice is None or second.tool_choice.mode in (None, "auto")


@dataclasses.dataclass
class Account:
    user: str
    languages: list[str]


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_dependencies_reach_instructions_and_tools_of_each_turn(protocol: str) -> None:
    @tool(read_only=True)
    def greet(context: ToolContext[Account]) -> str:
        """Greet the user."""
        return f"Hello, {context.deps.user}"

    def instructions(context: RunContext[Account]) -> str:
        return f"Turn {context.turn}: speak {' or '.join(context.deps.languages)}."

    def first_turn_only(context: RunContext[Account], tools: Sequence[Tool]) -> Sequence[Tool]:
        return tools if context.turn == 1 else [one for one in tools if one.name != "weather"]

    with (
        serve(protocol) as upstream,
        upstream.agent(
            deps=Account, instructions=instructions, prepare_tools=first_turn_only, tools=[greet, weather]
        ) as agent,
    ):
        run = agent.run("greet {}", deps=Account("Ada", ["Polish", "Dutch"]))
    assert run.text == "greet returned: Hello, Ada"
    for turn, request in enumerate(upstream.requests, 1):
        assert str(request).count(f"Turn {turn}: speak Polish or Dutch.") == 1
        assert str(request).count("speak Polish") == 1
    declared = [{one.name for one in request.tools or ()} for request in upstream.requests]
    assert declared == [{"greet", "weather"}, {"greet"}]


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_results_are_json_and_pictures(protocol: str) -> None:
    @dataclasses.dataclass
    class City:
        name: str
        rain: float

    @tool(read_only=True)
    def look() -> Any:
        """Look around."""
        return (City(name, rain) for name, rain in [("Oslo", 0.5), ("Rome", float("nan"))])

    @tool(read_only=True)
    def show() -> bytes:
        """Return a picture."""
        return PNG

    calls = [{"name": "look", "arguments": {}}, {"name": "show", "arguments": {}}]
    turns: list[dict[str, Any]] = [{"calls": calls}, {"text": "Seen."}]
    with serve(protocol, *turns) as upstream, upstream.agent(tools=[look, show]) as agent:
        assert agent.run("Look.").text == "Seen."
    parts = [part for message in upstream.requests[1].messages for part in message.parts]
    results = [part for part in parts if isinstance(part, ToolResult)]
    assert [result.status for result in results] == ["ok", "ok"]
    # Ollama and Chat take pictures beside results only.
    contents = [*parts, *(part for result in results for part in result.content or ())]
    assert any(isinstance(part, Media) and (part.media_type or "").startswith("image/") for part in contents)
    encoded = "".join(part.text for part in results[0].content or () if isinstance(part, Text))
    if not encoded:  # a result that the protocol has as JSON
        encoded = str(bytes(results[0].content[0].json), "utf-8")  # type: ignore[index,union-attr]
    found = json.loads(encoded)
    found = found.get("result", found.get("output", found)) if isinstance(found, dict) else found
    assert (json.loads(found) if isinstance(found, str) else found) == [
        {"name": "Oslo", "rain": 0.5},
        {"name": "Rome", "rain": None},
    ]


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_edited_arguments_run_and_the_model_learns_them(protocol: str) -> None:
    paid: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return f"paid {amount}"

    with serve(protocol) as upstream, upstream.agent(tools=[pay]) as agent:
        state = agent.step('pay {"amount": 500}')
        (request,) = state.approval_requests
        state.approve(request.call_id, arguments={"amount": 5})
        agent.step(state)
    assert paid == [5]
    parts = [part for message in upstream.requests[1].messages for part in message.parts]
    (call,) = [part for part in parts if isinstance(part, ToolCall)]
    assert json.loads(call.arguments) == {"amount": 500}, "the history keeps what the model wrote"
    (result,) = [part for part in parts if isinstance(part, ToolResult)]
    told = str(result)
    assert "paid 5" in told
    assert "The arguments were edited before approval" in told


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_failure_has_the_reason_of_the_provider(protocol: str) -> None:
    error = {"kind": "invalid_request", "message": "the model is on holiday"}
    with serve(protocol, {"error": error}, {"error": error}) as upstream, upstream.agent() as agent:
        with pytest.raises(RunFailed, match="the model is on holiday") as failed:
            agent.run("Hi")
        run = agent.run("Hi", check=False)
    assert failed.value.run.stopped == "failed"
    assert (run.ok, run.stopped, "on holiday" in run.reason) == (False, "failed", True)


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
@pytest.mark.parametrize(
    ("limits", "stopped"),
    [(RunLimits(requests=1), "requests"), (RunLimits(tokens=1), "tokens"), (RunLimits(turns=1), "turns")],
    ids=["requests", "tokens", "turns"],
)
def test_stop_has_the_name_of_its_limit(protocol: str, limits: RunLimits, stopped: str) -> None:
    with serve(protocol) as upstream, upstream.agent(tools=[weather], limits=limits) as agent:
        run = agent.run('weather {"city": "Oslo"}', check=False)
    assert (run.stopped, len(run.calls), len(upstream.requests)) == (stopped, 1, 1)


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_stream_is_text_while_it_arrives(protocol: str) -> None:
    with serve(protocol) as upstream, upstream.agent(tools=[weather], policy=Policy()) as agent:
        stream = agent.stream('weather {"city": "Oslo"}')
        texts = [*stream.stream_text()]
    assert len(texts) > 1, "the simulator streams in pieces"
    assert "".join(texts).endswith("weather returned: rain in Oslo")
    assert stream.run.text == "weather returned: rain in Oslo"


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_images_of_a_prompt_reach_the_provider(protocol: str) -> None:
    with serve(protocol, {"text": "A cat."}, {"text": "Gray."}) as upstream, upstream.agent() as agent:
        run = agent.run(["What is this?", PNG])
        run = agent.run("Which color?", history=run.messages)
    assert run.text == "Gray."
    for request in non_empty(upstream.requests):
        parts = [part for part in request.messages[0].parts if isinstance(part, Media | Text)]
        assert [part.text for part in parts if isinstance(part, Text)] == ["What is this?"]
        (picture,) = [part for part in parts if isinstance(part, Media)]
        assert isinstance(picture.source, Inline)
        assert base64.b64decode(picture.source.data) == PNG


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_fallback_on_another_protocol_finishes_the_task(protocol: str) -> None:
    """The first provider is overloaded in the second turn, so that the fallback gets a call and result of the first."""
    calls = {"calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]}
    overloaded = {"error": {"kind": "overloaded"}, "repeat": 9}
    other = ALL_PROTOCOLS[(ALL_PROTOCOLS.index(protocol) + 1) % len(ALL_PROTOCOLS)]
    with serve(protocol, calls, overloaded) as first, serve(other, {"text": "It rains."}) as second:
        sections = {"up": first.section, "other": second.section}
        config = Config(providers=sections, limits=LimitsSection(retries=0))
        agent = Agent(f"up/{MODELS[protocol]}", fallbacks=[f"other/{MODELS[other]}"], config=config, tools=[weather])
        with agent:
            run = agent.run("Is it raining in Oslo?")
    assert (run.text, [record.summary for record in run.calls]) == ("It rains.", ["rain in Oslo"])
    assert (len(first.requests), len(second.requests)) == (2, 1)
    assert "rain in Oslo" in str(second.requests[0].messages)
    assert run.model == MODELS[other]


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_answer_that_is_cut_off_is_continued(protocol: str) -> None:
    turns = [{"text": "It ", "stop": "max_tokens"}, {"text": "rains."}]
    with serve(protocol, *turns) as upstream, upstream.agent() as agent:
        run = agent.run("Is it raining in Oslo?")
    assert (run.text, run.stopped, len(upstream.requests)) == ("It rains.", "finished", 2)
    assert "Continue it exactly where it stopped." in str(upstream.requests[1].messages[-1])
