"""A task of twenty calls in one turn of the model, on every protocol."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime.scripted_agent import ScriptedModel, model_call, model_turn, text_turn
from tests.support.servers.asgi import serve_app
from toolwire import Agent, Policy, tool
from toolwire.gateway.config import Config, ProviderSection
from toolwire.journal.runs import RunStore
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script

ROOT = Path(__file__).parents[2]
PROTOCOLS = ["anthropic", "openai-chat", "openai-responses", "gemini", "gemini-interactions", "ollama", "openrouter"]
CODE = """
import asyncio
prices = await asyncio.gather(*[price(item=f"item {n}") for n in range(19)])
await note(text=f"the cheapest costs {min(prices)}")
print("compared", len(prices))
max(prices)
"""


def work(model: Any, config: Config | None = None, **more: Any) -> tuple[Any, list[str]]:
    notes: list[str] = []

    @tool(read_only=True, output_schema={"type": "integer"})
    def price(item: str) -> int:
        return 10 + int(item.split()[1])

    @tool
    def note(text: str) -> str:
        notes.append(text)
        return "noted"

    policy = Policy(allow=["run_code", "note"])
    with Agent(model, tools=[price, note], policy=policy, code=True, config=config, **more) as agent:
        return agent.run("What do twenty things cost?"), notes


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_twenty_calls_take_one_turn(protocol: str) -> None:
    turns = [{"calls": [{"name": "run_code", "arguments": {"code": CODE}}]}, {"text": "28 at most."}]
    script = parse_script(json.dumps({"turns": turns}).encode(), "script", toml=False)
    with serve_app(Simulator([protocol], script=script)) as address:
        up = ProviderSection(protocol=protocol, base_url=address, api_key="k" * 20)
        run, notes = work("up/some-model", Config(providers={"up": up}))
    assert (run.stopped, run.text, run.turns) == ("finished", "28 at most.", 2), run.reason
    assert notes == ["the cheapest costs 10"]
    assert [call.tool for call in run.calls].count("price") == 19
    outer = next(call for call in run.calls if call.tool == "run_code")
    assert outer.summary == "compared 19\n28"


def test_calls_from_code_follow_the_policy() -> None:
    model = ScriptedModel(model_turn(model_call("run_code", {"code": "await secret()"})), text_turn("ok"))

    @tool
    def secret() -> str:
        raise AssertionError("it ran")

    run = Agent(model, tools=[secret], policy=Policy(allow=["run_code"]), code=True).run("go")
    assert {call.tool: call.error for call in run.calls} == {"secret": "denied", "run_code": "code_error"}


def test_code_is_not_offered_tools_that_are_always_denied() -> None:
    code = "print(search_tools('secret'))\nprint(search_tools('public'))"
    model = ScriptedModel(model_turn(model_call("run_code", {"code": code})), text_turn("ok"))

    @tool
    def secret() -> str:
        raise AssertionError("it ran")

    @tool
    def public() -> str:
        return "x"

    policy = Policy(allow=["run_code", "public"], deny=["secret"])
    run = Agent(model, tools=[secret, public], policy=policy, code=True).run("go")
    run_code_tool = next(tool for tool in model.requests[0].tools or () if tool.name == "run_code")
    assert "public" in str(getattr(run_code_tool, "description", ""))
    assert "secret" not in str(getattr(run_code_tool, "description", ""))
    (outer,) = run.calls
    assert outer.summary.startswith("[]\n['async def public")


def test_programs_with_a_reused_call_id_are_separate(tmp_path: Path) -> None:
    @tool(read_only=True)
    def double(n: int) -> int:
        return 2 * n

    codes = ["await double(n=1)", "await double(n=2)"]
    model = ScriptedModel(
        *(model_turn(model_call("run_code", {"code": code}, id="call_0")) for code in codes), text_turn("ok")
    )
    allowed = Policy(allow=["run_code"])
    run = Agent(model, tools=[double], policy=allowed, code=True, journal=tmp_path / "runs.db").run("go")
    assert [call.summary for call in run.calls if call.tool == "run_code"] == ["2", "4"]


DIES = """
import os, sys
from pathlib import Path
from tests.scenarios.test_code_execution import counting_agent
counting_agent(Path(sys.argv[1]), dies_at=3).run("go")
"""
COUNTS = """
said = []
for n in range(6):
    try:
        said.append(await step(n=n))
    except RuntimeError as error:
        said.append(str(error)[:8])
print(said)
"""


def counting_agent(folder: Path, dies_at: int | None = None) -> Agent:
    """Return an agent whose program takes six recorded steps; the process exits during one of them."""

    @tool
    def step(n: int) -> str:
        with (folder / "steps").open("a") as file:
            file.write(f"{n} ")
        if n == dies_at:
            os._exit(9)
        return f"step {n}"

    begins = [] if dies_at is None else [model_turn(model_call("run_code", {"code": COUNTS}))]
    model = ScriptedModel(*begins, text_turn("Counted."))
    allowed = Policy(allow=["run_code", "step"])
    return Agent(model, tools=[step], policy=allowed, code=True, journal=folder / "runs.db")


def test_program_resumes_in_another_process_from_the_journal(tmp_path: Path) -> None:
    died = subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], env=os.environ, cwd=ROOT, check=False)
    assert died.returncode == 9
    (stored,) = RunStore(tmp_path / "runs.db").latest()
    resumed = counting_agent(tmp_path).resume(stored.id)
    assert list(resumed)
    assert (resumed.run.stopped, resumed.run.text) == ("finished", "Counted.")
    outer = next(call for call in resumed.run.calls if call.tool == "run_code")
    assert outer.summary == "['step 0', 'step 1', 'step 2', 'in doubt', 'step 4', 'step 5']"
    assert (tmp_path / "steps").read_text().split() == ["0", "1", "2", "3", "4", "5"]


def test_modified_snapshot_in_the_journal_is_rejected(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], env=os.environ, cwd=ROOT, check=False)
    (stored,) = RunStore(tmp_path / "runs.db").latest()
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as rows, rows:
        snapshots = rows.execute("SELECT name, intent FROM steps WHERE name LIKE '%/code/%'").fetchall()
        changed = [(snapshot[:-1] + bytes([snapshot[-1] ^ 1]), name) for name, snapshot in snapshots]
        rows.executemany("UPDATE steps SET intent = ? WHERE name = ?", changed)
    assert len(changed) == 4
    resumed = counting_agent(tmp_path).resume(stored.id)
    assert list(resumed)
    assert [(call.tool, call.error) for call in resumed.run.calls] == [("run_code", "snapshot")]
    assert (tmp_path / "steps").read_text().split() == ["0", "1", "2", "3"]


def test_large_catalog_is_offered_through_search() -> None:
    fillers = [tool(name=f"filler_{n}", read_only=True)(lambda: "x") for n in range(50)]

    @tool(read_only=True)
    def get_weather(city: str) -> str:
        """Return the weather of a city."""
        return f"rain in {city}"

    model = ScriptedModel(
        model_turn(model_call("find_tools", {"query": "weather of a city"}, id="f")),
        model_turn(model_call("get_weather", {"city": "Oslo"}, id="w")),
        text_turn("rain"),
    )
    run = Agent(model, tools=[*fillers, get_weather], search_above=20).run("go")
    names = [[tool.name for tool in request.tools or ()] for request in model.requests]
    assert names[0] == ["find_tools"]
    assert names[1][0] == "find_tools"
    assert "get_weather" in names[1]
    assert len(names[1]) <= 6
    assert [call.error for call in run.calls] == ["", ""]
