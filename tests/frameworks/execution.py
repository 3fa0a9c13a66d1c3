"""Each framework through the gateway, on upstreams of every protocol except its own."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.support.deadlines import DEADLINE
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
    with serve_gateway(task_simulator()) as setup:
        for framework in FRAMEWORKS:
            for protocol in framework.protocols:
                for stream in (False, True):
                    for upstream in SDK_CLIENTS:
                        if upstream != protocol:
                            wrong = _run(environment, assign_task(setup), framework, protocol, upstream, stream=stream)
                            yield Outcome(framework.name, protocol, stream, upstream, wrong)


def _run(
    environment: Path, setup: GatewaySetup, framework: Framework, protocol: str, upstream: str, *, stream: bool
) -> str:
    task = {
        "base_url": setup.base_url,
        "model": routed_model(upstream),
        "protocol": protocol,
        "stream": stream,
        "task": TASK,
        "weather": WEATHER_BY_CITY,
        "note_result": NOTE_RESULT,
    }
    run = subprocess.run(
        _command(environment, framework.program),
        input=json.dumps(task),
        capture_output=True,
        check=False,
        text=True,
        timeout=DEADLINE,
    )
    if run.returncode != 0:
        return f"exit {run.returncode}: {run.stderr[-2000:]}"
    try:
        # Only the last line: frameworks print output of their own.
        _check(json.loads(run.stdout.rstrip("\n").rpartition("\n")[2]), setup, upstream)
    except AssertionError as error:
        return str(error) or "the history at the upstream is wrong"
    return ""


def _command(environment: Path, program: str) -> list[str]:
    """Return the command of a program. Node resolves packages beside the program, so it is copied there."""
    if not program.endswith(".mjs"):
        return [str(environment / "bin" / "python"), str(PROGRAMS / program)]
    shutil.copy(PROGRAMS / program, environment)
    return ["node", str(environment / program)]


def _check(result: Any, setup: GatewaySetup, upstream: str) -> None:
    # Parallel calls may run in any order.
    parallel, rest = result["calls"][:2], result["calls"][2:]
    calls = [*sorted(parallel, reverse=True), *rest]
    assert calls == [list(call) for call in EXPECTED_CALLS], f"called {result['calls']}"
    assert NOTE_RESULT in result["text"], f"responded {result['text']!r}"
    check_upstream_history(setup, upstream)
