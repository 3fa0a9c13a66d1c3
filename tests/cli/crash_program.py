"""A program that is killed at every point of its journal and then resumed; `test_runs.py` runs it as a process.

It forks, to save start-up time: one child runs an agent and kills itself at the n-th point, and the next child
resumes the run. For each n it prints one line of JSON: the journal at the time of death, and the outcome.
"""

import gc
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema_rs  # noqa: F401 - imported once instead of in each child

from toolwire.agent import Agent
from toolwire.canonical.content import Message, Text, ToolCall, ToolResult
from toolwire.canonical.events import Event
from toolwire.canonical.fold import unfold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response, Stop
from toolwire.journal.run_database import RunDatabase
from toolwire.journal.runs import RunStepLog, RunStore
from toolwire.journal.store import JournalError
from toolwire.runtime.calls.approval import AutoApprover
from toolwire.runtime.function_tool import tool
from toolwire.runtime.policy import Policy

BATCHES = (("a", "b"), ("c",))
"""Two turns of calls: the first at once, and `b` after an approval."""

IN_CODE = "code" in sys.argv
PROGRAM = "\n".join(
    f"try:\n    print(await write_{one}())\nexcept RuntimeError as error:\n    print(error)" for one in ("a", "b")
)
"""The same from a program that the model writes, one after the other."""


class Model:
    """A model whose next turn depends on the results in the conversation."""

    name = "by-heart"

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        done = sum(isinstance(part, ToolResult) for message in request.messages for part in message.parts)
        batch = {0: BATCHES[0], 2: BATCHES[1]}.get(done, ())
        calls = tuple(ToolCall(id=one, name=f"write_{one}", arguments="{}") for one in batch)
        if IN_CODE:
            program = ToolCall(id="p", name="run_code", arguments=json.dumps({"code": PROGRAM}))
            calls = () if done else (program,)
        message = Message(role="assistant", parts=calls or (Text(text="all is done"),))
        stop = Stop(reason="tool_use" if calls else "end_turn")
        response = Response(origin="", candidates=(Candidate(messages=(message,), stop=stop),))
        for event in unfold(response):
            yield event

    async def close(self) -> None:
        pass


class KillPoints:
    """Counts the points, and kills the process at one of them, by number or name."""

    def __init__(self, deadly: int | str | None) -> None:
        self.names: list[str] = []
        self._deadly = deadly

    def pass_point(self, name: str) -> None:
        if self._deadly in (name, len(self.names)):
            os.kill(os.getpid(), signal.SIGKILL)
        self.names.append(name)

    def around(self, name: str, work: Callable[[], Any]) -> Any:
        self.pass_point(f"before {name}")
        result = work()
        self.pass_point(f"after {name}")
        return result


class CrashingSteps(RunStepLog):
    points: KillPoints

    def begin(self, name: str, intent: bytes) -> None:
        self.points.around(f"begin {name}", lambda: super(CrashingSteps, self).begin(name, intent))

    def finish(self, name: str, outcome: bytes) -> None:
        self.points.around(f"finish {name}", lambda: super(CrashingSteps, self).finish(name, outcome))

    def end(self, ended: bytes) -> None:
        self.points.around("end", lambda: super(CrashingSteps, self).end(ended))


class CrashingRuns(RunStore):
    def __init__(self, path: Path, points: KillPoints) -> None:
        super().__init__(path)
        self.points = points

    def _step_log(self, run: str, token: str) -> CrashingSteps:
        steps = CrashingSteps(self._database, run, token, self._heartbeat)
        steps.points = self.points
        return steps

    def begin(self, run: str, about: bytes) -> RunStepLog:
        held: RunStepLog = self.points.around("begin", lambda: super(CrashingRuns, self).begin(run, about))
        return held

    def resume(self, run: str) -> RunStepLog:
        held: RunStepLog = self.points.around("take up", lambda: super(CrashingRuns, self).resume(run))
        return held


def write_tools(folder: Path, points: KillPoints) -> list[Any]:
    def one(name: str) -> Any:
        def write() -> str:
            points.pass_point(f"before effect {name}")
            with (folder / "effects").open("a", encoding="utf-8") as file:
                file.write(f"{name}\n")
                file.flush()
                os.fsync(file.fileno())
            points.pass_point(f"after effect {name}")
            return f"wrote {name}"

        write.__name__ = f"write_{name}"
        return tool(write)

    return [one(name) for batch in BATCHES for name in batch]


def agent(folder: Path, points: KillPoints) -> Agent:
    return Agent(
        Model(),
        tools=write_tools(folder, points),
        policy=Policy(allow=["write_a", "write_c", "run_code"]),
        code=IN_CODE,
        approver=AutoApprover(),
        journal=CrashingRuns(folder / "runs.db", points),
    )


def run(folder: Path, deadly: int | str | None) -> list[str]:
    points = KillPoints(deadly)
    with agent(folder, points) as one:
        one.run("write a, b and c", facts={})
    return points.names


def resume(folder: Path, deadly: int | None = None) -> dict[str, Any]:
    points = KillPoints(deadly)
    runs = RunStore(folder / "runs.db")
    (kept,) = runs.latest()
    with agent(folder, points) as one:
        stream = one.resume(kept.id)
        for _ in stream:
            pass
    given = {
        part.name: (part.status, "".join(text.text for text in part.content or () if isinstance(text, Text)))
        for message in stream.run.messages
        for part in message.parts
        if isinstance(part, ToolResult)
    }
    return {"text": stream.run.text, "stopped": stream.run.stopped, "given": given, "points": points.names}


def run_forked(work: Callable[[], Any]) -> tuple[bool, Any]:
    """Run a function in a forked child. Return whether it was killed, and its result."""
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(there)
        os.write(here, json.dumps(work()).encode())
        os._exit(0)
    os.close(here)
    with os.fdopen(there, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status), json.loads(data) if data else None


def inspect_run(folder: Path) -> dict[str, Any]:
    """Return the state of the journal and of the disk."""
    runs = RunStore(folder / "runs.db")
    stored_runs = runs.latest()
    steps = {step.name: step.outcome is not None for one in stored_runs for step in runs.steps(one.id)}
    runs.close()
    effects = folder / "effects"
    wrote = effects.read_text(encoding="utf-8").split() if effects.exists() else []
    return {
        "runs": len(stored_runs),
        "ended": [one.end_event is not None for one in stored_runs],
        "steps": steps,
        "effects": wrote,
    }


# At these points nothing else is running, so the number of remaining points is constant.
ALONE = ("after finish turn/1", "before finish call/2/c")


def main(folder: Path, *, twice: bool) -> None:
    """Run all points. With `twice`, the resuming process is killed at each of its points too, and a third one
    resumes.
    """
    gc.freeze()  # a collection would copy the memory that the children share
    (folder / "whole").mkdir()
    _, points = run_forked(lambda: run(folder / "whole", None))
    deaths: list[tuple[int | str, int | None]] = [(one, None) for one in range(len(points))]
    if IN_CODE:  # what is around it is the same
        deaths = [(one, None) for one, name in enumerate(points) if "/" in name and "turn/" not in name]
    if twice:
        deaths = []
        for at in ALONE:
            run_folder = folder / at.replace("/", "-")
            run_folder.mkdir()
            run_forked(partial(run, run_folder, at))
            _, resumed = run_forked(partial(resume, run_folder))
            deaths += [(at, one) for one in range(len(resumed["points"]))]
    for first, second in deaths:
        run_folder = folder / f"{first}-{second}".replace("/", "-")
        run_folder.mkdir()
        killed, _ = run_forked(partial(run, run_folder, first))
        states = [inspect_run(run_folder)]
        if second is not None:
            killed, _ = run_forked(partial(resume, run_folder, second))
            states.append(inspect_run(run_folder))
        _, came = run_forked(partial(resume, run_folder)) if states[-1]["runs"] else (False, None)
        at = first if isinstance(first, str) else points[first]
        report = {"at": at, "second": second, "killed": killed, "left": states, "came": came}
        sys.stdout.write(json.dumps(report | {"effects": inspect_run(run_folder)["effects"]}) + "\n")


# ---- concurrent resumption


class PausingDatabase:
    """A database that signals after it has read the holder of a run, and then waits."""

    def __init__(self, database: RunDatabase, told: int, go: int) -> None:
        self._database, self._told, self._go = database, told, go

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def select(self, statement: str, values: Any = None) -> Any:
        rows = self._database.select(statement, values)
        if statement.startswith("SELECT holder"):
            os.write(self._told, b".")
            os.read(self._go, 1)
        return rows


def resume_run(path: Path, told: int, go: int) -> str:
    runs = RunStore(path)
    runs._database = PausingDatabase(runs._database, told, go)
    try:
        runs.resume("run")
    except JournalError as error:
        return str(error)
    return "taken"


def race_for_run(folder: Path) -> None:
    """Let two processes resume a run after both have seen that its lease is free."""
    path = folder / "runs.db"
    runs = RunStore(path)
    runs.begin("run", b"{}").end(b"{}")
    runs.close()
    (told, tells), (go, goes) = os.pipe(), os.pipe()
    children, answers = [], []
    for _ in range(2):
        there, here = os.pipe()
        if (child := os.fork()) == 0:
            os.write(here, resume_run(path, tells, go).encode())
            os._exit(0)
        os.close(here)
        children.append(child)
        answers.append(there)
    seen = b""
    while len(seen) < 2:
        seen += os.read(told, 2)
    os.write(goes, b"..")
    results = []
    for child, there in zip(children, answers, strict=True):
        with os.fdopen(there, "rb") as pipe:
            results.append(pipe.read().decode())
        os.waitpid(child, 0)
    sys.stdout.write(json.dumps(sorted(results)) + "\n")


if __name__ == "__main__":
    if "race" in sys.argv:
        race_for_run(Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]), twice="twice" in sys.argv)
