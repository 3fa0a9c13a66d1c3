"""`toolwire ask --detach`, `toolwire work`, and `toolwire runs follow`, `approve`, `deny` and `cancel`."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deadlines import DEADLINE
from tests.support.postgres import POSTGRES, PostgresServer
from tests.support.runtime.cli_process import (
    calls_turn,
    cli_environment,
    run_toolwire,
    start_toolwire,
    text_reply,
    write_file_call,
    write_script,
)

AGENT_MODULE = '''
from pathlib import Path
from toolwire import Agent, Policy, tool

@tool
def note(text: str) -> str:
    """Write a note."""
    Path("note").write_text(text)
    return "noted"

keeper = Agent(tools=[note], policy=Policy(allow=["*"]), journal=".state/toolwire/runs.db", name="keeper")
other = "no agent"
'''


@pytest.fixture(params=["file", POSTGRES])
def state(request: pytest.FixtureRequest) -> str:
    """The configuration of the store of runs."""
    return "" if request.param == "file" else f'[state]\nurl = "{request.getfixturevalue("postgres_url")}"\n'


NOTE = 'note {"text": "kept"}'


def test_detached_run_waits_for_approval_on_a_worker(state: str, tmp_path: Path) -> None:
    """Each command is a process of its own; the answer is the one of an attached run."""
    turns = calls_turn(write_file_call(tmp_path, "a.txt", "hello")), text_reply("written")
    write_script(tmp_path, *turns, extra_config=state)
    detached = run_toolwire(tmp_path, "ask", "write hello", "--detach")
    assert (detached.code, detached.out.strip()) == (0, detached.run)
    run = detached.run
    assert "queued" in run_toolwire(tmp_path, "runs", "list").out
    assert not (tmp_path / "a.txt").exists()

    worked = run_toolwire(tmp_path, "work", "--once")
    assert worked.code == 0, worked.err
    assert f"worker: {run}: waiting" in worked.err
    followed = run_toolwire(tmp_path, "runs", "follow", run)
    assert followed.code == 3
    (command,) = [line.partition("waiting: ")[2] for line in followed.err.splitlines() if "waiting: toolwire" in line]
    assert command.startswith(f"toolwire runs approve {run} ")
    refused = run_toolwire(tmp_path, "runs", "approve", run, "call_unknown")
    assert (refused.code, "is not waiting for approval" in refused.err) == (2, True)

    assert run_toolwire(tmp_path, *command.split()[1:]).code == 0
    assert run_toolwire(tmp_path, "work", "--once").code == 0
    assert (tmp_path / "a.txt").read_text() == "hello"
    followed = run_toolwire(tmp_path, "runs", "follow", run)
    assert (followed.code, followed.out) == (0, "written\n")
    assert [event["event"] for event in run_toolwire(tmp_path, "runs", "follow", run, "--json").events] == [
        *("run_started", "turn_started", "turn_ended", "call_proposed", "call_ended"),
        *("turn_started", "text", "turn_ended", "run_ended"),
    ]


def test_cancelled_run_is_not_executed(state: str, tmp_path: Path) -> None:
    write_script(tmp_path, text_reply("hello"), extra_config=state)
    run = run_toolwire(tmp_path, "ask", "hello", "--detach").run
    assert run_toolwire(tmp_path, "runs", "cancel", run).code == 0
    assert run_toolwire(tmp_path, "work", "--once").code == 0
    assert "cancelled" in run_toolwire(tmp_path, "runs", "list").out
    again = run_toolwire(tmp_path, "runs", "cancel", run)
    assert (again.code, "has ended (cancelled)" in again.err) == (2, True)


def test_worker_executes_runs_of_an_imported_agent(tmp_path: Path) -> None:
    """Its journal is a file of its own, which the worker finds."""
    module = AGENT_MODULE.replace(".state/toolwire/runs.db", "own.db")
    (tmp_path / "keepers.py").write_text(f"{module}\nif __name__ == '__main__':\n    keeper.run_detached({NOTE!r})\n")
    subprocess.run([sys.executable, "keepers.py"], cwd=tmp_path, env=cli_environment(tmp_path), check=True)
    worked = run_toolwire(tmp_path, "work", "--once", "--agent", "keepers:keeper")
    assert f"executes the runs of agent:keeper in {tmp_path}/own.db" in worked.err
    assert (tmp_path / "note").read_text() == "kept"


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("keepers", "name a module and the agent in it"),
        ("nothing:keeper", "No module named 'nothing'"),
        ("keepers:absent", "has no attribute 'absent'"),
        ("keepers:other", "not an Agent"),
    ],
)
def test_agent_that_cannot_be_imported_is_reported(target: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "keepers.py").write_text(AGENT_MODULE)
    refused = run_toolwire(tmp_path, "work", "--once", "--agent", target)
    assert (refused.code, problem in refused.err) == (2, True), refused.err


def test_attached_run_names_the_command_that_approves_it(tmp_path: Path) -> None:
    write_script(tmp_path, calls_turn(write_file_call(tmp_path, "a.txt", "hello")), text_reply("written"))
    run = run_toolwire(tmp_path, "ask", "write hello", "--later").run
    refused = run_toolwire(tmp_path, "runs", "approve", run, "call_1")
    assert (refused.code, f"toolwire runs resume {run} --approve" in refused.err) == (2, True)


@pytest.mark.postgres
def test_worker_starts_before_its_database(private_postgres: PostgresServer, tmp_path: Path) -> None:
    """Both the store of the worker and that of an agent's module wait."""
    url = private_postgres.url
    (tmp_path / "toolwire.toml").write_text(f'[state]\nurl = "{url}"\n')
    (tmp_path / "keepers.py").write_text(AGENT_MODULE.replace(".state/toolwire/runs.db", url))
    private_postgres.stop("immediate")
    worker = start_toolwire(tmp_path, "work", "--agent", "keepers:keeper")
    assert worker.stderr is not None
    assert worker.stderr.readline().startswith("worker: waits for the store of runs: postgresql://127.0.0.1:")
    once = run_toolwire(tmp_path, "work", "--once")
    assert (once.code, "Connection refused" in once.err) == (2, True)
    private_postgres.start()
    lines = iter(worker.stderr.readline, "")
    assert any("executes the runs of ask@" in line and "agent:keeper" in line for line in lines)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(DEADLINE) == 0
    worker.close_streams()
