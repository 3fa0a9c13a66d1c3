"""Replay of recorded runs."""

from typing import Any

from toolwire import Agent, Policy
from toolwire.journal.runs import RunStore
from toolwire.runtime.run.recorded_run import read_turns
from toolwire.runtime.run.replay import ReplayApprover, ReplayModel, compare_calls, replay_tools

ALLOW_ALL = Policy(allow=["*"])


def replay_differences(
    runs: RunStore, id: str, tools: list[Any], *, live: bool = False, **more: Any
) -> list[list[str]]:
    turns = read_turns(runs.steps(id))
    settings: dict[str, Any] = {"policy": ALLOW_ALL, "approver": ReplayApprover(turns), **more}
    agent = Agent(ReplayModel("played", turns), tools=tools if live else replay_tools(tools, turns), **settings)
    run = agent.run("go")
    comparisons = compare_calls(turns, run.messages[1:], None if live else run.calls)
    return [[f"{comparison.id} {difference}" for difference in comparison.differences] for comparison in comparisons]
