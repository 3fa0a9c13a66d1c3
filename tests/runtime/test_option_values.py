"""Options of agents, tools, sessions and runs: a value of another type is an error where it is passed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import toolwire as tw
from toolwire.testing import ScriptedModel

Agent: Any = tw.Agent
tool: Any = tw.tool


def look() -> str:
    """Look."""
    return "seen"


def agent(**options: Any) -> Any:
    return Agent(ScriptedModel("Hello."), tools=[look], **options)


def in_journal(path: Path) -> Any:
    return agent(journal=path / "runs.db")


AGENT_OPTIONS: list[tuple[dict[str, object], str]] = [
    ({"journal": 5}, "journal=5 is invalid: use a path such as 'runs.db', or the URL of a database"),
    ({"search_above": "x"}, "search_above='x' is invalid: use an integer"),
    ({"search_above": -1}, "search_above=-1 is invalid: use at least 0"),
    ({"output_retries": "x"}, "output_retries='x' is invalid: use an integer"),
    ({"repair": "no"}, "repair='no' is invalid: use True or False"),
    ({"code": "no"}, "code='no' is invalid: use True or False"),
    ({"name": 5}, "name=5 is invalid: use a non-empty string"),
    ({"name": ""}, "name='' is invalid: use a non-empty string"),
    ({"description": 5}, "description=5 is invalid: use a string"),
    ({"prepare_tools": 5}, "prepare_tools=5 is invalid: use a function"),
    ({"embed": 5}, "embed=5 is invalid: use a function"),
    ({"always_offered": 5}, "always_offered must be a list of strings"),
    ({"secrets": [5]}, "secrets must be a list of strings"),
    ({"fallbacks": None}, "fallbacks must be a list of strings"),
    ({"handoffs": [5]}, r"5 is no agent: write handoffs=\[tw.Agent\(...\)\]"),
    ({"policy": "*"}, r"use tw.Policy\("),
    ({"config": 5}, "config must be a Config or the path of a configuration file"),
]


@pytest.mark.parametrize(("options", "message"), AGENT_OPTIONS)
def test_option_of_an_agent(options: dict[str, object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        agent(**options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tw.RunLimits(trns=3), r'RunLimits\(trns=...\) is unknown; did you mean "turns"\?'),  # type: ignore[call-arg]
        (lambda: tw.RunLimits(dollars=3), "is unknown; use turns, seconds, tokens, requests, cost"),  # type: ignore[call-arg]
        (lambda: tw.RateLimit(cals=3), r'RateLimit\(cals=...\) is unknown; did you mean "calls"\?'),  # type: ignore[call-arg]
        (lambda: tw.Hooks(befor_model=print), r'did you mean "before_model"'),  # type: ignore[call-arg]
        (lambda: tw.WebSearch(max_use=3), r'WebSearch\(max_use=...\) is unknown; did you mean "max_uses"\?'),  # type: ignore[call-arg]
    ],
)
def test_misspelt_option_is_an_error_with_the_nearest_one(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize("model", [5, ["gpt-5.5"], ScriptedModel, object()])
def test_model_of_another_type(model: object) -> None:
    with pytest.raises(TypeError, match=r"is invalid: use a name such as 'anthropic/"):
        Agent(model)
    with pytest.raises(TypeError, match=r"is invalid: use a name such as 'anthropic/"), agent().override(model=model):
        raise AssertionError("the block runs")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 5}, r"rate=5 is invalid: use tw.RateLimit\(calls=5\)"),
        ({"output_limit": "a"}, "output_limit='a' is invalid: use an integer"),
        ({"output_limit": 0}, "output_limit=0 is invalid: use at least 1"),
        ({"timeout": "5"}, "timeout='5' is invalid: use a number"),
        ({"timeout": -1}, "timeout=-1 is invalid: use a positive number"),
        ({"timeout": float("nan")}, "timeout=nan is invalid: use a positive number"),
        ({"retries": "x"}, "retries='x' is invalid: use an integer"),
        ({"name": 5}, "name=5 is invalid: use a string"),
        ({"description": 5}, "description=5 is invalid: use a string"),
        ({"read_only": "no"}, "read_only='no' is invalid: use True or False"),
        ({"destructive": None}, "destructive=None is invalid: use True or False"),
        ({"process": "no"}, "process='no' is invalid: use True or False"),
        ({"resumable": 1}, "resumable=1 is invalid: use True or False"),
        ({"locus": "lcoal"}, r"locus='lcoal' is unknown; did you mean \"local\"\?"),
        ({"grammar": "start: WORD"}, "grammar='start: WORD' is invalid: use a Grammar"),
        ({"preview": "x"}, "preview='x' is invalid: use a function of the call's arguments"),
        ({"requires_human": True}, "requires_human=True is invalid: use a function of the call's arguments"),
    ],
)
def test_option_of_a_tool(options: dict[str, object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        tool(**options)(look)


RUN_OPTIONS: dict[str, tuple[Callable[[Any], object], str]] = {
    "session": (lambda agent: agent.session(42), "the id of a session is a string, not 42"),
    "session of a run": (lambda agent: agent.run("Hi", session=42), "the id of a session is a string, not 42"),
    "facts": (lambda agent: agent.run("Hi", facts=5), "facts=5 is invalid: use a dict of strings"),
    "fact": (lambda agent: agent.run("Hi", facts={"user": 5}), "is invalid: use a dict of strings"),
    "check": (lambda agent: agent.run("Hi", check="no"), "check='no' is invalid: use True or False"),
    "check of a text": (lambda agent: agent.stream("Hi").stream_text(check=0), "check=0 is invalid: use True or False"),
    "resume": (lambda agent: agent.resume(5), "run=5 is invalid: use a string"),
    "sessions": (lambda agent: agent.sessions("x"), "count='x' is invalid: use an integer"),
    "queue": (lambda agent: agent.run_detached("Hi", queue=5), "queue=5 is invalid: use the name of a queue"),
    "approver": (
        lambda agent: agent.override(model=ScriptedModel(), approver=5).__enter__(),
        "use an object with `name` and `async def approve`",
    ),
}


@pytest.mark.parametrize("option", RUN_OPTIONS)
def test_option_of_a_run(option: str, tmp_path: Path) -> None:
    make, message = RUN_OPTIONS[option]
    with pytest.raises(TypeError, match=message):
        make(in_journal(tmp_path))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tw.RateLimit("5"), "calls='5' is invalid: use an integer"),  # type: ignore[arg-type]
        (lambda: tw.RateLimit(0), "calls=0 is invalid: use at least 1"),
        (lambda: tw.RateLimit(5, 0), "seconds=0 is invalid: use a positive number"),
        (lambda: tw.Hooks(before_model=5), "before_model=5 is invalid: use a function of the RunContext"),  # type: ignore[arg-type]
        (lambda: tw.Policy(rules=["pay"]), r"pass strings as allow=\[...\], ask=\[...\] or deny=\[...\]"),  # type: ignore[list-item]
        (lambda: tw.Policy(rules=5), r"rules are Rule objects"),  # type: ignore[arg-type]
    ],
)
def test_part_of_an_agent(make: Callable[[], object], message: str) -> None:
    with pytest.raises((TypeError, ValueError, tw.ToolwireError), match=message):
        make()
