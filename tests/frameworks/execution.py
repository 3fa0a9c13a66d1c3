"""Each framework through the gateway and in process, on upstreams of every protocol except its own."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from tests.support.gateway.setup import UPSTREAM_KEY, GatewaySetup, ObservedApp, routed_model, serve_gateway
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
from tests.support.servers.asgi import serve_app

_RESULT_PREFIX = "result: "
PROGRAMS = Path(__file__).parent / "programs"
Place = Literal["gateway", "process"]
Variant = Literal["buffered", "streamed", "sync"]


class Framework(Struct, frozen=True):
    """A framework, and the variants of each task; in process, it reaches the upstream by `tw.http_client`."""

    name: str
    program: str
    protocols: tuple[str, ...]
    place: Place = "gateway"
    variants: tuple[Variant, ...] = ("buffered", "streamed")
    environment: str = "."
    """The folder of its packages, if they do not get along with the others'."""


_EVERY_VARIANT: tuple[Variant, ...] = ("buffered", "streamed", "sync")
FRAMEWORKS = [
    Framework("OpenAI Agents SDK", "openai_agents.py", ("openai-responses", "openai-chat")),
    Framework("Pydantic AI", "pydantic_agent.py", ("anthropic", "openai-chat", "openai-responses", "gemini")),
    Framework("Vercel AI SDK", "vercel.mjs", ("anthropic", "openai-chat", "openai-responses", "gemini")),
    Framework(
        "Pydantic AI",
        "pydantic_agent.py",
        ("anthropic", "openai-chat", "openai-responses", "gemini"),
        "process",
        _EVERY_VARIANT,
    ),
    Framework("LangChain", "langchain_agent.py", ("openai-chat", "openai-responses"), "process", _EVERY_VARIANT),
    Framework("OpenAI Agents SDK", "openai_agents.py", ("openai-responses", "openai-chat"), "process"),
    Framework("instructor", "instructor_loop.py", ("openai-chat",), "process", ("buffered", "sync"), "instructor"),
]


class Outcome(Struct):
    """The result of one run; `wrong` is empty if it passed."""

    framework: Framework
    protocol: str
    variant: Variant
    upstream: str
    wrong: str = ""


def run_frameworks(environment: Path) -> Iterator[Outcome]:
    with ExitStack() as stack:
        setups = {"gateway": stack.enter_context(serve_gateway(task_simulator()))}
        upstream = ObservedApp(task_simulator())
        upstream_url = stack.enter_context(serve_app(upstream))
        setups["process"] = GatewaySetup(upstream_url, ObservedApp(None), upstream)
        for framework in FRAMEWORKS:
            setup = setups[framework.place]
            with _start_program(environment / framework.environment, framework.program) as program:
                for protocol in framework.protocols:
                    for upstream_protocol in SDK_CLIENTS:
                        for variant in framework.variants if upstream_protocol != protocol else ():
                            outcome = Outcome(framework, protocol, variant, upstream_protocol)
                            outcome.wrong = _run(program, assign_task(setup), outcome)
                            yield outcome


def _run(program: "subprocess.Popen[str]", setup: GatewaySetup, run: Outcome) -> str:
    """Perform one task; return the failure, or an empty text."""
    task = {
        "place": run.framework.place,
        "base_url": setup.base_url,
        "upstream": run.upstream,
        "api_key": UPSTREAM_KEY,
        "model": routed_model(run.upstream),
        "protocol": run.protocol,
        "variant": run.variant,
        "task": TASK,
        "weather": WEATHER_BY_CITY,
        "note_result": NOTE_RESULT,
    }
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(json.dumps(task) + "\n")
    program.stdin.flush()
    # Frameworks print output of their own.
    while not (line := program.stdout.readline()).startswith(_RESULT_PREFIX):
        if not line:
            raise SystemExit(f"{run.framework.program} ended with exit code {program.wait()}")
    result = json.loads(line.removeprefix(_RESULT_PREFIX))
    if "error" in result:
        return str(result["error"])
    try:
        _check(result, setup, run.upstream)
    except AssertionError as error:
        return str(error) or "the history at the upstream is wrong"
    return ""


@contextmanager
def _start_program(environment: Path, program: str) -> Iterator["subprocess.Popen[str]"]:
    """Start a program that performs tasks. Node resolves packages beside the program, so it is copied there."""
    if program.endswith(".mjs"):
        shutil.copy(PROGRAMS / program, environment)
        command = ["node", str(environment / program)]
    else:
        command = [str(environment / "bin" / "python"), str(PROGRAMS / program)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
    try:
        yield process
    finally:
        process.communicate()


def _check(result: Any, setup: GatewaySetup, upstream: str) -> None:
    # Parallel calls may run in any order.
    parallel, rest = result["calls"][:2], result["calls"][2:]
    calls = [*sorted(parallel, reverse=True), *rest]
    assert calls == [list(call) for call in EXPECTED_CALLS], f"called {result['calls']}"
    assert NOTE_RESULT in result["text"], f"responded {result['text']!r}"
    check_upstream_history(setup, upstream)
