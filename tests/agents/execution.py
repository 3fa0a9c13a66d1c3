"""One agent run on one upstream through the gateway, and its faults."""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct

from tests.agents.agent_runs import AgentRun
from tests.agents.task import DIFFICULT_TEXT, FAILURE, Task, TaskScript, find_compaction, prepare_task
from tests.support.gateway.setup import GatewaySetup, ObservedApp, ObservedExchange, signatures_in
from tests.support.sdk.clients import SDK_CLIENTS
from tests.support.servers.asgi import serve_app
from toolwire.canonical.content import Reasoning, ReasoningText, Text, ToolCall, ToolResult
from toolwire.canonical.events import PartStart
from toolwire.cli.agent_programs import AGENTS
from toolwire.codec.interface import ResponseContext
from toolwire.gateway.config import Config, LimitsSection, ProviderSection, RouteSection
from toolwire.gateway.server.gateway import build_gateway
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.prompt import read_prompt
from toolwire.upstream.simulator.provider_traits import PROVIDER_TRAITS

TIMEOUT_SECONDS = 90
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TOOLWIRE = [sys.executable, "-c", "from toolwire.cli import main; main()"]


class Cell(Struct, frozen=True):
    """The result of one run; without `faults` it passed.

    `thoughts` counts reasoning, or signatures, that the upstream sent and expects back.
    """

    run: AgentRun
    upstream: str
    faults: list[str]
    seconds: float
    thoughts: int


PAUSE = 2
UNSUPPORTED_TOOL = ", but the target does not have it"


@contextmanager
def _serve_gateway(upstream: str, script: TaskScript, task: Task, run: AgentRun) -> Iterator[GatewaySetup]:
    folder = task.restart_marker.parent
    simulator = ObservedApp(Simulator((upstream,), script=script, require_key=True))
    with serve_app(simulator) as url:
        config = Config(
            limits=LimitsSection(
                sockets=0 if run.websocket == "refused" else 100,
                retries=0 if run.failures else LimitsSection().retries,
            ),
            providers={"up": ProviderSection(protocol=upstream, base_url=url, api_key="key-of-the-upstream")},
            routes=(RouteSection(provider="up", model=SDK_CLIENTS[upstream][1]),),
        )

        def build_app() -> Any:
            return build_gateway(config, None, {"HOME": str(folder)}).app

        gateway = ObservedApp(build_app())
        with ExitStack() as stack:
            root = stack.enter_context(serve_app(gateway))
            stopped = threading.Event()

            def restart_gateway() -> None:
                while not stopped.wait(0.05):
                    if task.restart_marker.exists():
                        stack.close()
                        gateway._app.close()
                        gateway._app = build_app()
                        stack.enter_context(serve_app(gateway, int(root.rpartition(":")[2])))
                        task.restart_marker.rename(task.restarted_marker)

            restart_thread = threading.Thread(target=restart_gateway)
            restart_thread.start()
            try:
                yield GatewaySetup(root, gateway, simulator)
            finally:
                stopped.set()
                restart_thread.join()


def run_agent(
    run: AgentRun, upstream: str, path: str, record: Path | None = None, timeout: float = TIMEOUT_SECONDS
) -> Cell:
    """Run an agent and check everything that can be observed."""
    with TemporaryDirectory(prefix="toolwire-task-") as name:
        folder = Path(name).resolve()
        for part in ("work", "home", "gateway"):
            (folder / part).mkdir()
        task = prepare_task(folder / "work")
        script = TaskScript(
            run.steps(task), PAUSE if run.resume_arguments or run.sequel else None, run.failures, run.dialect
        )
        log = io.StringIO()
        with redirect_stderr(log), _serve_gateway(upstream, script, task, run) as setup:
            config = folder / "toolwire.toml"
            config.write_text(f"[server]\nport = {setup.base_url.rpartition(':')[2]}\n")
            began = time.monotonic()
            code, stdout, stderr = _launch_agent(run, folder, config, _path_with_sequel(run, task, path), timeout)
            seconds = time.monotonic() - began
            if record is not None:
                _write_record(record, setup, stdout, stderr)
                (record / "log").write_text(log.getvalue())
            exchanges = _task_exchanges(setup, upstream)
            if script.compacted:  # what is before a compaction can't come back
                exchanges = [
                    exchange
                    for exchange in exchanges
                    if find_compaction(exchange.request(upstream)) in script.compacted
                ]
            issued = {
                signature
                for exchange in exchanges[:-1]
                if exchange.complete
                for signature in signatures_in(exchange.response_body)
            }
            expected_result = UNSUPPORTED_TOOL if upstream in run.unsupported_upstreams else run.expected_result
            faults = [
                *([f"timed out after {timeout:g} seconds"] if code is None else []),
                *_outcome_faults(code, stdout, stderr, task),
                *_rejections(setup, expected_result),
                *_transport_faults(setup, run),
            ]
            faults += (
                ["the gateway was not restarted"] if run.restarts_gateway and not task.restarted_marker.exists() else []
            )
            faults += [f"{len(script.failures)} scripted failures did not occur"] if script.failures else []
            faults += ["the conversation was not compacted"] if run.compacts and not script.compacted else []
            faults += _history_faults(exchanges, upstream, script)
            faults += _result_faults(setup, upstream, task, expected_result)
            faults += _tool_faults(exchanges, upstream, run)
            faults += _text_call_faults(setup, exchanges, upstream, script) if run.dialect is not None else []
            known = {
                signature
                for exchange in setup.upstream.exchanges
                for signature in signatures_in(exchange.response_body)
            }
            faults += _signature_faults(issued, known, exchanges) if exchanges else ["the upstream got no request"]
            thoughts = len(issued) if PROVIDER_TRAITS[upstream].signed_part else len(script.reasoning)
            return Cell(run, upstream, faults, seconds, thoughts)


def _path_with_sequel(run: AgentRun, task: Task, path: str) -> str:
    """Return a PATH whose agent runs on once it is done: it resumes after a gateway restart, or does a sequel."""
    if not run.resume_arguments and not run.sequel:
        return path
    name = AGENTS[run.agent].executable
    program = shlex.quote(shutil.which(name, path=path) or name)
    lines = [f'{program} "$@" || exit']
    if run.resume_arguments:
        lines.append(task.restart_command)
    model = [] if run.model is None else ["--model", run.model]
    sequel = (run.resume_arguments,) if run.resume_arguments else tuple([(*part, *model) for part in run.sequel])
    lines += [f"{program} {shlex.join(arguments)} || exit" for arguments in sequel]
    wrapper = task.folder.parent / "bin" / name
    wrapper.parent.mkdir()
    wrapper.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    wrapper.chmod(0o755)
    return f"{wrapper.parent}:{path}"


def _launch_agent(run: AgentRun, folder: Path, config: Path, path: str, timeout: float) -> tuple[int | None, str, str]:
    """Return exit code, stdout and stderr; the code is None after a timeout."""
    # No network beyond this machine: a proxy address that refuses connections.
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    environment = {
        "PATH": path,
        "HOME": str(folder / "home"),
        "LANG": "C.UTF-8",
        "IS_SANDBOX": "1",  # Claude Code lets root skip permissions in a sandbox only
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "PYTHONPATH": os.pathsep.join(sys.path),
        **proxies,
    }
    model = [] if run.model is None else ["--model", run.model]
    options = ["--config", str(config), "--protocol", run.protocol, *model]
    with subprocess.Popen(
        [*_TOOLWIRE, "launch", run.agent, *options, "--", *run.arguments],
        cwd=folder / "work",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.terminate()
            return None, *process.communicate()
        return process.returncode, stdout, stderr


# ---- checks


def _outcome_faults(code: int | None, stdout: str, stderr: str, task: Task) -> Iterator[str]:
    if code:
        yield f"exit code {code}: {_last_line(stderr) or _last_line(stdout)}"
    written = task.note.read_bytes().decode() if task.note.exists() else None
    if written != DIFFICULT_TEXT:
        yield "no file was written" if written is None else f"wrong file content: {written!r}"
    if missing := [word for word in task.words if word not in stdout]:
        yield f"{len(missing)} of {len(task.words)} results are missing in the response"


def _rejections(setup: GatewaySetup, expected_result: str) -> Iterator[str]:
    for exchange in setup.upstream.exchanges:
        if exchange.status != 200 and FAILURE not in _message(exchange):
            yield f"the upstream rejected a request ({exchange.status}): {_message(exchange)}"
    for exchange in setup.gateway.exchanges:
        expected = FAILURE in _message(exchange) or (
            expected_result == UNSUPPORTED_TOOL and UNSUPPORTED_TOOL in _message(exchange)
        )
        if exchange.status >= 400 and exchange.request_body and not expected:
            yield f"the gateway rejected {exchange.path} ({exchange.status}): {_message(exchange)}"


def _transport_faults(setup: GatewaySetup, run: AgentRun) -> Iterator[str]:
    posted = any(exchange.path == "/v1/responses" and exchange.request_body for exchange in setup.gateway.exchanges)
    if run.websocket == "accepted" and posted:
        yield "the agent did not use its WebSocket"
    if run.websocket == "refused" and not posted:
        yield "the agent sent no POST"


def _task_exchanges(setup: GatewaySetup, upstream: str) -> list[ObservedExchange]:
    """Return the requests of the task; side requests, such as for a title, declare no tools."""
    return [
        exchange
        for exchange in setup.upstream.exchanges
        if exchange.status == 200 and exchange.request_body and read_prompt(exchange.request(upstream)).tools
    ]


def _history_faults(exchanges: list[ObservedExchange], upstream: str, script: TaskScript) -> Iterator[str]:
    """Check calls and unsigned reasoning in the last request to the upstream."""
    if not exchanges:
        return
    if PROVIDER_TRAITS[upstream].signed_part is None:
        thoughts = {_text_of(part) for part in exchanges[-1].parts(upstream) if isinstance(part, Reasoning)}
        if missing := script.reasoning - thoughts:
            yield f"{len(missing)} of {len(script.reasoning)} reasoning parts were not returned"
    calls_by_step = [(call.name, _arguments(call.arguments)) for call in exchanges[-1].calls(upstream)]
    if calls_by_step != script.calls:
        yield f"calls were changed: {_difference(calls_by_step, script.calls)}"


def _result_faults(setup: GatewaySetup, upstream: str, task: Task, expected_result: str) -> Iterator[str]:
    """Check the results that the upstream received."""
    exchanges = [
        exchange
        for exchange in setup.upstream.exchanges
        if exchange.status == 200 and PROTOCOLS[upstream].surface.match(exchange.path) is not None
    ]
    results = [_text(result) for exchange in exchanges for result in exchange.results(upstream)]
    for what, words in (
        ("digest", task.digest),
        ("file", DIFFICULT_TEXT.splitlines()[0]),
        (repr(expected_result), expected_result),
    ):
        if exchanges and not any(words in result for result in results):
            yield f"the {what} is missing in the results"


def _tool_faults(exchanges: list[ObservedExchange], upstream: str, run: AgentRun) -> Iterator[str]:
    """Check that only providers of the agent's protocol receive its private tool."""
    declared = {tool.name for exchange in exchanges for tool in exchange.request(upstream).tools or ()}
    if run.private_tool and (run.private_tool in declared) != (upstream == run.protocol):
        yield f"{run.private_tool} was {'' if run.private_tool in declared else 'not '}declared"


def _signature_faults(issued: set[str], known: set[str], exchanges: list[ObservedExchange]) -> Iterator[str]:
    returned = [signatures_in(exchange.request_body) for exchange in exchanges]
    if invented := set().union(*returned) - known:
        yield f"{len(invented)} signatures are not from the upstream"
    if lost := issued - returned[-1]:
        yield f"{len(lost)} of {len(issued)} signatures were not returned"


def _text_call_faults(
    setup: GatewaySetup, exchanges: list[ObservedExchange], upstream: str, script: TaskScript
) -> Iterator[str]:
    """Check that the upstream sent its calls as text only, and that the gateway reported what it recovered."""
    decoder = PROTOCOLS[upstream].stream_decoder
    for exchange in exchanges:
        events = decoder(ResponseContext()).feed(exchange.response_body)
        if any(isinstance(event, PartStart) and isinstance(event.part, ToolCall) for event in events):
            yield "the upstream sent a structured call"
    reports = sum(
        "recovered from text" in loss["reason"]
        for exchange in setup.gateway.exchanges
        if exchange.request_body
        for loss in setup.losses(exchange)
    )
    if reports < len(script.calls_by_step):
        yield f"{reports} of {len(script.calls_by_step)} recoveries were reported"


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text(result: ToolResult) -> str:
    """Return the text of a result, also from JSON or JSON in a text."""
    texts = [
        part.text if isinstance(part, Text) else bytes(getattr(part, "json", b"")).decode()
        for part in result.content or ()
    ]
    return "\n".join([*texts, *(inner for text in texts for inner in _strings(_arguments(text)))])


def _text_of(reasoning_by_step: Reasoning) -> str:
    return "".join(block.text for block in reasoning_by_step.content if isinstance(block, ReasoningText))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(inner)


def _difference(found: list[Any], wanted: list[Any]) -> str:
    if len(found) != len(wanted):
        return f"{len(found)} of {len(wanted)}"
    one, other = next((one, other) for one, other in zip(found, wanted, strict=True) if one != other)
    return f"{one!r} for {other!r}"


def _message(exchange: ObservedExchange) -> str:
    try:
        body = json.loads(exchange.response_body)
        error = body.get("error", body) if isinstance(body, dict) else body
        return str(error.get("message", error) if isinstance(error, dict) else error)[:300]
    except ValueError:
        return exchange.response_body[:300].decode(errors="replace")


def _last_line(text: str) -> str:
    return (_COLOURS.sub("", text).strip().splitlines() or [""])[-1][:300]


def _write_record(record: Path, setup: GatewaySetup, stdout: str, stderr: str) -> None:
    """Write every exchange on both sides of the gateway, with the losses between them."""
    record.mkdir(parents=True, exist_ok=True)
    (record / "stdout").write_text(stdout)
    (record / "stderr").write_text(stderr)
    for side, app in (("client", setup.gateway), ("upstream", setup.upstream)):
        for number, exchange in enumerate(list(app.exchanges)):
            (record / f"{side}-{number:02}-request.json").write_bytes(exchange.request_body)
            (record / f"{side}-{number:02}-response-{exchange.status}").write_bytes(exchange.response_body)
            (record / f"{side}-{number:02}-address").write_text(f"{exchange.path}\n{exchange.headers}\n")
            if app is setup.gateway and (losses := setup.losses(exchange)):
                (record / f"{side}-{number:02}-losses.json").write_text(json.dumps(losses, indent=1))
