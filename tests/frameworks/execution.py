"""Each framework through the gateway, on upstreams of every protocol except its own."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.support.gateway.setup import GatewaySetup, routed_model, serve_gateway
from tests.support.gateway.tool_loop_task import (
    EXPECTED_CALLS,
    NOTE_RESULT,
    TASK,
    WEATHER_BY_CITY,
    assign_task,
    check_upstream_history,
    task_simulator,
)
from tests.support.sdk.clients import SDK_CLIENTS

PROGRAMS = Path(__file__).parent / "programs"


class Framework(Struct, frozen=True):
    name: str
    program: str
    protocols: tuple[str, ...]


FRAMEWORKS = [
    Framework("OpenAI Agents SDK", "openai_agents.py", ("openai-responses", "openai-chat")),
    Framework("Pydantic AI", "pydantic_agent.py", ("anthropic", "openai-chat", "openai-responses", "gemini")),
    Framework("Vercel AI SDK", "vercel.mjs", ("anthropic", "openai-chat", "openai-responses", "gemini")),
]


class Outcome(Struct, frozen=True):
    """The result of one run; `wrong` is empty if it passed."""

    framework: str
    protocol: str
    stream: bool
    upstream: str
    wrong: str


def run_frameworks(environment: Path) -> Iterator[Outcome]:
    with serve_gateway(task_simulator()) as place:
        for framework in FRAMEWORKS:
            for protocol in framework.protocols:
                for stream in (False, True):
                    for upstream in SDK_CLIENTS:
                        if upstream != protocol:
                            wrong = _run(environment, assign_task(place), framework, protocol, upstream, stream=stream)
                            yield Outcome(framework.name, protocol, stream, upstream, wrong)


def _run(
    environment: Path, place: GatewaySetup, framework: Framework, protocol: str, upstream: str, *, stream: bool
) -> str:
    asked = {
        "base_url": place.base_url,
        "model": routed_model(upstream),
        "protocol": protocol,
        "stream": stream,
        "task": TASK,
        "towns": WEATHER_BY_CITY,
        "kept": NOTE_RESULT,
    }
    run = subprocess.run(
        _command(environment, framework.program),
        input=json.dumps(asked),
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    if run.returncode != 0:
        return f"exit {run.returncode}: {run.stderr[-2000:]}"
    try:
        # Only the last line: frameworks print output of their own.
        _check(json.loads(run.stdout.rstrip("\n").rpartition("\n")[2]), place, upstream)
    except AssertionError as error:
        return str(error) or "the upstream did not see what it should"
    return ""


def _command(environment: Path, program: str) -> list[str]:
    """Return the command of a program. Node resolves packages beside the program, so it is copied there."""
    if not program.endswith(".mjs"):
        return [str(environment / "bin" / "python"), str(PROGRAMS / program)]
    shutil.copy(PROGRAMS / program, environment)
    return ["node", str(environment / program)]


def _check(told: Any, place: GatewaySetup, upstream: str) -> None:
    # Parallel calls may run in any order.
    together, after = told["calls"][:2], told["calls"][2:]
    made = [*sorted(together, reverse=True), *after]
    assert made == [list(call) for call in EXPECTED_CALLS], f"called {told['calls']}"
    assert NOTE_RESULT in told["text"], f"said {told['text']!r}"
    check_upstream_history(place, upstream)
