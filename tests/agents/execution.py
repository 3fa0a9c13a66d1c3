"""One agent, sent on the errand by one upstream through the gateway, and what went wrong."""

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
from tests.agents.task import AWKWARD, FAILURE, Task, TaskScript, prepare_task
from tests.support.gateway.setup import GatewaySetup, ObservedApp, ObservedExchange, signatures_in
from tests.support.sdk.clients import SDK_CLIENTS
from tests.support.servers.asgi import serve_app
from toolwire.canonical.content import Reasoning, ReasoningText, Text, ToolResult
from toolwire.cli.launch import AGENTS
from toolwire.gateway.config import parse_config
from toolwire.gateway.server.launch import build_gateway
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.prompt import read_prompt
from toolwire.upstream.simulator.provider_traits import PROVIDER_TRAITS

SECONDS = 90
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TOOLWIRE = [sys.executable, "-c", "from toolwire.cli import main; main()"]


class Cell(Struct, frozen=True):
    """What came of it. `faults` is empty if all is as it should be. `thoughts`, or their proofs, the upstream gave and
    wants back."""

    run: AgentRun
    upstream: str
    faults: list[str]
    seconds: float
    thoughts: int


PAUSE = 2
LACKING = ", but the target does not have it"


@contextmanager
def _place(upstream: str, sending: TaskScript, errand: Task, run: AgentRun) -> Iterator[GatewaySetup]:
    folder = errand.halfway.parent
    simulator = ObservedApp(Simulator((upstream,), script=sending, require_key=True))
    with serve_app(simulator) as url:
        text = f"""
[limits]
sockets = {0 if run.sockets == "refused" else 100}
{"retries = 0" if run.fails else ""}

[providers.up]
protocol = "{upstream}"
base_url = "{url}"
api_key = "key-of-the-upstream"

[[routes]]
provider = "up"
model = "{SDK_CLIENTS[upstream][1]}"
"""

        def built() -> Any:
            return build_gateway(parse_config(text, {}), None, {"HOME": str(folder)}).app

        gateway = ObservedApp(built())
        with ExitStack() as stack:
            root = stack.enter_context(serve_app(gateway))
            over = threading.Event()

            def start_anew() -> None:
                while not over.wait(0.05):
                    if errand.halfway.exists():
                        stack.close()
                        gateway._app.close()
                        gateway._app = built()
                        stack.enter_context(serve_app(gateway, int(root.rpartition(":")[2])))
                        errand.halfway.rename(errand.anew)

            restarting = threading.Thread(target=start_anew)
            restarting.start()
            try:
                yield GatewaySetup(root, gateway, simulator)
            finally:
                over.set()
                restarting.join()


def run_agent(run: AgentRun, upstream: str, path: str, record: Path | None = None) -> Cell:
    """Run it, and look at everything that can be seen of it."""
    with TemporaryDirectory(prefix="toolwire-errand-") as name:
        folder = Path(name).resolve()
        for part in ("work", "home", "gateway"):
            (folder / part).mkdir()
        errand = prepare_task(folder / "work")
        sending = TaskScript(run.steps(errand), PAUSE if run.resumed else None, run.fails)
        log = io.StringIO()
        with redirect_stderr(log), _place(upstream, sending, errand, run) as place:
            config = folder / "toolwire.toml"
            config.write_text(f"[server]\nport = {place.base_url.rpartition(':')[2]}\n")
            began = time.monotonic()
            code, said, complaint = _launched(run, folder, config, _halting(run, errand, path))
            seconds = time.monotonic() - began
            if record is not None:
                _keep(record, place, said, complaint)
                (record / "log").write_text(log.getvalue())
            working = _working(place, upstream)
            issued = {proof for seen in working[:-1] if seen.complete for proof in signatures_in(seen.response_body)}
            says = LACKING if upstream in run.lacking else run.says
            faults = [*_outcome(code, said, complaint, errand), *_refusals(place, says), *_transport(place, run)]
            faults += ["the gateway was not started anew"] if run.restarts and not errand.anew.exists() else []
            faults += [f"{len(sending.failures)} failures did not come to pass"] if sending.failures else []
            faults += _history(working, upstream, errand, sending, says)
            faults += _offered(working, upstream, run)
            faults += _proved(issued, working) if working else ["the upstream was not asked"]
            thoughts = len(issued) if PROVIDER_TRAITS[upstream].signed_part else len(sending.thought)
            return Cell(run, upstream, faults, seconds, thoughts)


def _halting(run: AgentRun, errand: Task, path: str) -> str:
    """A PATH on which the agent, once it is done, waits for the gateway to be started anew, and then goes on."""
    if not run.resumed:
        return path
    name = AGENTS[run.agent].executable
    program = shlex.quote(shutil.which(name, path=path) or name)
    script = f"""#!/bin/sh
{program} "$@" || exit
{errand.restart}
exec {program} {shlex.join(run.resumed)}
"""
    wrapper = errand.folder.parent / "bin" / name
    wrapper.parent.mkdir()
    wrapper.write_text(script)
    wrapper.chmod(0o755)
    return f"{wrapper.parent}:{path}"


def _launched(run: AgentRun, folder: Path, config: Path, path: str) -> tuple[int | None, str, str]:
    """Exit code, what it said, and what it complained of; no code if it took too long."""
    # Nothing here is outside of this machine: whatever would call there is told that nobody answers.
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    environment = {
        "PATH": path,
        "HOME": str(folder / "home"),
        "LANG": "C.UTF-8",
        "IS_SANDBOX": "1",  # Claude Code lets root skip permissions in a sandbox only
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "PYTHONPATH": os.pathsep.join(sys.path),
        **nowhere,
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
            said, complaint = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()
            return None, *process.communicate()
        return process.returncode, said, complaint


# ---- what is looked at


def _outcome(code: int | None, said: str, complaint: str, errand: Task) -> Iterator[str]:
    if code is None:
        yield f"not done in {SECONDS} seconds"
    elif code:
        yield f"exit code {code}: {_last_line(complaint) or _last_line(said)}"
    written = errand.note.read_bytes().decode() if errand.note.exists() else None
    if written != AWKWARD:
        yield "no file was written" if written is None else f"the file has {written!r}"
    if missing := [word for word in errand.words if word not in said]:
        yield f"{len(missing)} of {len(errand.words)} results are not in the answer"


def _refusals(place: GatewaySetup, says: str) -> Iterator[str]:
    for seen in place.upstream.exchanges:
        if seen.status != 200 and FAILURE not in _message(seen):
            yield f"the upstream refused ({seen.status}): {_message(seen)}"
    for seen in place.gateway.exchanges:
        expected = FAILURE in _message(seen) or (says == LACKING and LACKING in _message(seen))
        if seen.status >= 400 and seen.request_body and not expected:
            yield f"the gateway refused {seen.path} ({seen.status}): {_message(seen)}"


def _transport(place: GatewaySetup, run: AgentRun) -> Iterator[str]:
    posted = any(seen.path == "/v1/responses" and seen.request_body for seen in place.gateway.exchanges)
    if run.sockets == "taken" and posted:
        yield "it did not keep to its websocket"
    if run.sockets == "refused" and not posted:
        yield "it was not asked by POST"


def _working(place: GatewaySetup, upstream: str) -> list[ObservedExchange]:
    """The requests for the errand: those on the side, such as for a title, offer no tools."""
    return [
        seen for seen in place.upstream.exchanges if seen.status == 200 and read_prompt(seen.request(upstream)).tools
    ]


def _history(
    working: list[ObservedExchange], upstream: str, errand: Task, sending: TaskScript, says: str
) -> Iterator[str]:
    """What the upstream was told of its own calls, and of what led to them, in the end."""
    if not working:
        return
    if PROVIDER_TRAITS[upstream].signed_part is None:
        thoughts = {_text_of(part) for part in working[-1].parts(upstream) if isinstance(part, Reasoning)}
        if missing := set(sending.thought.values()) - thoughts:
            yield f"{len(missing)} of {len(sending.thought)} thoughts did not come back"
    made = [(call.name, _arguments(call.arguments)) for call in working[-1].calls(upstream)]
    if made != sending.calls:
        yield f"calls came back changed: {_difference(made, sending.calls)}"
    results = [_text(result) for result in working[-1].results(upstream)]
    for what, words in (("digest", errand.digest), ("file", AWKWARD.splitlines()[0]), (repr(says), says)):
        if not any(words in result for result in results):
            yield f"the {what} is in no result"


def _offered(working: list[ObservedExchange], upstream: str, run: AgentRun) -> Iterator[str]:
    """What only the agent's own provider is to be told of."""
    told = {tool.name for seen in working for tool in seen.request(upstream).tools or ()}
    if run.private and (run.private in told) != (upstream == run.protocol):
        yield f"{run.private} was {'' if run.private in told else 'not '}offered"


def _proved(issued: set[str], working: list[ObservedExchange]) -> Iterator[str]:
    returned = [signatures_in(seen.request_body) for seen in working]
    if invented := set().union(*returned) - issued:
        yield f"{len(invented)} proofs are not the upstream's own"
    if lost := issued - returned[-1]:
        yield f"{len(lost)} of {len(issued)} proofs of thinking did not come back"


def _arguments(said: str) -> Any:
    try:
        return json.loads(said)
    except ValueError:
        return said


def _text(result: ToolResult) -> str:
    """What a result says, also where it is JSON or JSON in a text."""
    said = [
        part.text if isinstance(part, Text) else bytes(getattr(part, "json", b"")).decode()
        for part in result.content or ()
    ]
    return "\n".join([*said, *(text for one in said for text in _strings(_arguments(one)))])


def _text_of(thought: Reasoning) -> str:
    return "".join(block.text for block in thought.content if isinstance(block, ReasoningText))


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


def _message(seen: ObservedExchange) -> str:
    try:
        body = json.loads(seen.response_body)
        error = body.get("error", body) if isinstance(body, dict) else body
        return str(error.get("message", error) if isinstance(error, dict) else error)[:300]
    except ValueError:
        return seen.response_body[:300].decode(errors="replace")


def _last_line(text: str) -> str:
    return (_COLOURS.sub("", text).strip().splitlines() or [""])[-1][:300]


def _keep(record: Path, place: GatewaySetup, said: str, complaint: str) -> None:
    """Write down every exchange, on both sides of the gateway, with what was lost between them."""
    record.mkdir(parents=True, exist_ok=True)
    (record / "stdout").write_text(said)
    (record / "stderr").write_text(complaint)
    for side, watched in (("client", place.gateway), ("upstream", place.upstream)):
        for number, seen in enumerate(list(watched.exchanges)):
            (record / f"{side}-{number:02}-asked.json").write_bytes(seen.request_body)
            (record / f"{side}-{number:02}-answered-{seen.status}").write_bytes(seen.response_body)
            (record / f"{side}-{number:02}-address").write_text(f"{seen.path}\n{seen.headers}\n")
            if watched is place.gateway and (losses := place.losses(seen)):
                (record / f"{side}-{number:02}-losses.json").write_text(json.dumps(losses, indent=1))
