"""The limit on money: prices of the model catalog, on every protocol."""

from pathlib import Path

import pytest

from tests.support.protocols import ALL_PROTOCOLS
from tests.support.runtime.scripted_agent import ALLOW_ALL
from toolwire import Agent, RunLimits, ToolwireError, tool
from toolwire.canonical.response import Usage
from toolwire.codec.models.info import ModelInfo, Prices
from toolwire.gateway.config import Config
from toolwire.testing import ScriptedModel, call, respond

PROVIDERS = {protocol: protocol for protocol in ALL_PROTOCOLS} | {"openai-responses": "openai"}
DOLLARS = Config(models={"*/simulated": ModelInfo(prices=Prices(input=1_000_000.0, output=1_000_000.0))})


def dollars(cost: float) -> Usage:
    return Usage(input_tokens=1, output_tokens=0, cost=cost)


@tool(read_only=True)
def look(word: str) -> str:
    return f"saw {word}"


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_run_stops_when_its_money_is_spent(protocol: str) -> None:
    """The price of a token is a dollar, so that the first request spends more than 10."""
    model = f"{PROVIDERS[protocol]}/simulated"
    with Agent(model, tools=[look], config=DOLLARS, limits=RunLimits(cost=10)) as agent:
        run = agent.run('look {"word": "sea"}', check=False)
    spent = (run.usage.input_tokens or 0) + (run.usage.output_tokens or 0)
    assert spent > 10
    assert (run.stopped, run.turns, run.usage.cost) == ("cost", 1, spent)
    assert run.reason == f"{spent:.4g} of 10 US dollars were spent"


def test_model_without_a_price_is_refused_before_the_first_request(tmp_path: Path) -> None:
    limits = RunLimits(cost=1.0)
    with (
        Agent("ollama/simulated", limits=limits, journal=tmp_path / "runs.db") as agent,
        pytest.raises(ToolwireError, match=r"the price of ollama/simulated is unknown, .*set `prices` in \[models"),
    ):
        agent.run("Hello")
    with (
        Agent("anthropic/simulated", fallbacks=["ollama/simulated"], limits=limits) as agent,
        pytest.raises(ToolwireError, match="the price of anthropic/simulated is unknown"),
    ):
        agent.run("Hello")

    class UnpricedModel:
        name = "own"
        stream = ScriptedModel("unused").stream

        async def close(self) -> None:
            pass

    with pytest.raises(ToolwireError, match="the price of own is unknown"):
        Agent(UnpricedModel(), limits=limits).run("Hello")


def test_cost_of_sub_agents_counts_for_their_caller() -> None:
    helper = Agent(ScriptedModel(respond("done", usage=dollars(0.75))), name="helper")
    script = ScriptedModel(respond(call("helper", task="Look."), usage=dollars(0.5)), "unused")
    agent = Agent(script, tools=[helper], policy=ALLOW_ALL, limits=RunLimits(cost=1))
    run = agent.run("Go.", check=False)
    assert (run.stopped, run.reason) == ("cost", "1.25 of 1 US dollars were spent")
    unlimited = Agent(ScriptedModel(respond("done", usage=dollars(0.25)))).run("Go.")
    assert unlimited.usage is not None
    assert unlimited.usage.cost == 0.25


def test_resumed_run_knows_what_was_spent(tmp_path: Path) -> None:
    script = ScriptedModel(respond(call("look", word="sea"), usage=dollars(0.75)))
    limits, journal = RunLimits(cost=1), tmp_path / "runs.db"
    run = Agent(script, tools=[look], limits=limits, journal=journal).run("Go.", check=False)
    assert run.stopped == "failed"
    more = ScriptedModel(respond(call("look", word="sky"), usage=dollars(0.5)))
    stream = Agent(more, tools=[look], limits=limits, journal=journal).resume(run.id)
    assert [*stream]
    assert (stream.run.stopped, stream.run.reason) == ("cost", "1.25 of 1 US dollars were spent")
