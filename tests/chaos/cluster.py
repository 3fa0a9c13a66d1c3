"""The cluster of the chaos run: PostgreSQL, simulated providers, gateways behind nginx, and workers.

Each program is a process of its own, as in a deployment. Half of the workers run in PID namespaces of their own, if the
system allows it. To the others they look like workers on another machine, whose death only the lease can show.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg

from tests.chaos.environment import CONFIG_VARIABLE, EFFECTS_VARIABLE, STORE_VARIABLE
from tests.support.deadlines import wait_until
from tests.support.paths import ROOT
from tests.support.postgres import PostgresServer, run_postgres
from tests.support.servers.nginx import serve_nginx
from toolwire.gateway.keys.client_key import create_secret, hash_secret

GATEWAYS = 3
WORKERS = 4
PROVIDERS = {"claude": "anthropic", "chat": "openai-chat", "gemini": "gemini", "responses": "openai-responses"}
"""The protocols of the providers, each of which serves the model `NAME-sim`."""
INPUT_PRICE, OUTPUT_PRICE = 1_000, 2_000
"""Dollars per million tokens, so high that a budget is used up within the run."""
TIGHT_BUDGET = 4.0
AMPLE_KEYS = ("acme", "globex")
"""Keys whose budgets suffice."""
TIGHT_KEY = "tight"
OPEN_KEY = "open"
"""A key without limits, whose providers may fail."""
AGENT_KEY = "agents"
_PROGRAM = "import tests.chaos.faults as faults; faults.inject({fault!r}); from toolwire.cli import main; main()"
_READY_MARK = b"executes the runs of"
_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@dataclass
class Node:
    """A program that the monkey may kill, pause and start again."""

    name: str
    start_process: Callable[[], "subprocess.Popen[bytes]"]
    has_namespace: bool = False
    process: "subprocess.Popen[bytes] | None" = None
    is_paused: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    log: Path | None = None
    """The log of a worker, which says when it is ready."""
    _log_start: int = 0
    _was_ready: bool = False

    def start(self) -> None:
        """Start the program, if it does not run."""
        with self.lock:
            if self.process is None:
                self._was_ready = False
                self._log_start = self.log.stat().st_size if self.log is not None and self.log.exists() else 0
                self.process = self.start_process()

    @property
    def is_ready(self) -> bool:
        """Whether a worker has been started up, and is neither paused nor dead."""
        if self.pid is None or self.is_paused or self.log is None:
            return False
        if not self._was_ready:
            self._was_ready = _READY_MARK in self.log.read_bytes()[self._log_start :]
        return self._was_ready

    @property
    def pid(self) -> int | None:
        """The process of toolwire, as this machine numbers it; None while there is none."""
        if self.process is None or self.process.poll() is not None:
            return None
        if not self.has_namespace:
            return self.process.pid
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        with suppress(OSError):
            return next(map(int, children.read_text().split()), None)
        return None

    def identity(self) -> tuple[int, str] | None:
        """Return how the holder of a lease names the process: its pid there, and the PID namespace."""
        with suppress(OSError):
            status = Path(f"/proc/{self.pid}/status").read_text()
            inner = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1]
            return int(inner), str(Path(f"/proc/{self.pid}/ns/pid").readlink())
        return None

    @property
    def has_exited(self) -> bool:
        """Whether the program was started, and ended although nobody killed it."""
        return self.process is not None and self.process.poll() is not None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to toolwire."""
        if (pid := self.pid) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill the program as a crash of its machine would."""
        with self.lock:
            self.send(signal.SIGKILL)
            if self.process is not None:
                self.process.kill()
                self.process.wait()
            self.process, self.is_paused = None, False

    def pause(self) -> None:
        """Suspend the program."""
        self.is_paused = True
        self.send(signal.SIGSTOP)

    def wake(self) -> None:
        """Let a suspended program continue."""
        self.send(signal.SIGCONT)
        self.is_paused = False

    def stop(self, timeout: float = 60.0) -> None:
        """Let the program finish its work and exit."""
        with self.lock:
            if self.process is None:
                return
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


@dataclass
class Cluster:
    """The running cluster."""

    folder: Path
    database: PostgresServer
    root: str
    """The root of the balancer."""
    gateways: Sequence[Node]
    gateway_roots: Sequence[str]
    workers: Sequence[Node]
    secrets: dict[str, str]

    @property
    def effects_file(self) -> Path:
        """The log of the effects of tools."""
        return self.folder / "effects"

    @property
    def upstream_file(self) -> Path:
        """What the simulated providers counted."""
        return self.folder / "upstream.jsonl"

    @property
    def agent_config(self) -> Path:
        """The configuration of the agents."""
        return self.folder / "agents.toml"

    def logs(self) -> dict[str, str]:
        """Return the logs of all gateways and workers."""
        files = sorted(self.folder.glob("*.log"))
        return {file.stem: file.read_text(encoding="utf-8", errors="replace") for file in files}

    def wait_until_ready(self, timeout: float = 90.0) -> None:
        """Wait until all gateways serve requests that need state."""
        deadline = time.monotonic() + timeout
        for root in self.gateway_roots:
            wait_until(lambda root=root: _is_ready(root) or time.monotonic() > deadline)  # type: ignore[misc]
            if not _is_ready(root):
                raise RuntimeError(f"the gateway {root} is not ready {timeout:g} seconds after it was started")


def _is_ready(root: str) -> bool:
    """Return whether a gateway and its state are available; the journal recovers with the next request."""
    try:
        response = httpx.get(f"{root}/healthz", timeout=10)
    except httpx.HTTPError:
        return False
    return response.status_code == 200 and b'"state"' not in response.content


@contextmanager
def run_cluster(folder: Path, nginx: str, fault: str = "") -> Iterator[Cluster]:
    """Run the cluster; `fault` breaks its programs on purpose."""
    with ExitStack() as stack:
        database = stack.enter_context(run_postgres())
        upstream_port, *gateway_ports = _free_ports(GATEWAYS + 1)
        addresses = [f"127.0.0.1:{port}" for port in gateway_ports]
        secrets = {name: create_secret() for name in (*AMPLE_KEYS, TIGHT_KEY, OPEN_KEY, AGENT_KEY)}
        config = folder / "gateway.toml"
        config.write_text(_gateway_config(database.url, upstream_port, secrets), encoding="utf-8")
        upstream = _program_starter(
            folder, "upstream", "-m", "tests.chaos.upstream", str(upstream_port), str(folder / "upstream.jsonl")
        )
        simulator = Node("upstream", upstream)
        stack.callback(simulator.kill)
        simulator.start()
        program = ("-c", _PROGRAM.format(fault=fault))
        gateways = [
            Node(name, _program_starter(folder, name, *program, "serve", "--config", str(config), "--port", str(port)))
            for name, port in zip((f"gateway-{n}" for n in range(1, GATEWAYS + 1)), gateway_ports, strict=True)
        ]
        for gateway in gateways:
            stack.callback(gateway.kill)
            gateway.start()
        root = stack.enter_context(serve_nginx(nginx, folder, addresses))
        agent_config = folder / "agents.toml"
        agent_config.write_text(_agent_config(root, secrets[AGENT_KEY]), encoding="utf-8")
        roots = [f"http://{address}" for address in addresses]
        variables = {
            STORE_VARIABLE: database.url,
            EFFECTS_VARIABLE: str(folder / "effects"),
            CONFIG_VARIABLE: str(agent_config),
        }
        os.environ.update(variables)
        workers = [_worker_node(folder, number, program, config) for number in range(1, WORKERS + 1)]
        cluster = Cluster(folder, database, root, gateways, roots, workers, secrets)
        cluster.effects_file.touch()
        cluster.wait_until_ready()
        for worker in workers:
            stack.callback(worker.kill)
            worker.start()
        wait_until(lambda: all(worker.is_ready for worker in workers))
        yield cluster


def _worker_node(folder: Path, number: int, program: tuple[str, ...], config: Path) -> Node:
    """Return a worker, every second one as if it were on another machine."""
    is_remote = number % 2 == 0 and _has_namespaces()
    name = f"worker-{number}{'-remote' if is_remote else ''}"
    arguments = (*program, "work", "--agent", "tests.chaos.clerk:clerk", "--config", str(config))
    prefix = _NAMESPACE if is_remote else ()
    start = _program_starter(folder, name, *arguments, prefix=prefix)
    return Node(name, start, has_namespace=is_remote, log=folder / f"{name}.log")


def _has_namespaces() -> bool:
    """Return whether this user may create PID namespaces."""
    try:
        return subprocess.run([*_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _program_starter(
    folder: Path, name: str, *arguments: str, prefix: Sequence[str] = ()
) -> Callable[[], "subprocess.Popen[bytes]"]:
    """Return a function that starts Python with these arguments, with a log in the folder."""

    def start() -> "subprocess.Popen[bytes]":
        environment = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
        environment |= {
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "PYTHONUNBUFFERED": "1",
        }
        with (folder / f"{name}.log").open("ab") as log:
            command = [*prefix, sys.executable, *arguments]
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    return start


def _free_ports(count: int) -> list[int]:
    """Return ports that no server listens on."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(listener.getsockname()[1]) for listener in listeners]


def _gateway_config(url: str, upstream_port: int, secrets: dict[str, str]) -> str:
    """Return the configuration that all gateways share."""
    limits = dict.fromkeys(AMPLE_KEYS, "dollars_per_month = 100000") | {
        TIGHT_KEY: f"dollars_per_month = {TIGHT_BUDGET}",
        OPEN_KEY: "admin = true",
        AGENT_KEY: "",
    }
    keys = "".join(
        f'[keys.{name}]\nhash = "{hash_secret(secret)}"\n{limits[name]}\n' for name, secret in secrets.items()
    )
    providers = "".join(
        f'[providers.{name}]\nprotocol = "{protocol}"\nbase_url = "http://127.0.0.1:{upstream_port}"\n'
        f'api_key = "upstream-key"\nmodels = ["{name}-*"]\n'
        for name, protocol in PROVIDERS.items()
    )
    prices = f'[models."*"]\nprices = {{input = {INPUT_PRICE}, output = {OUTPUT_PRICE}}}\n'
    return (
        f'[server]\nseal_keys = ["a key that all replicas share"]\n[state]\nurl = "{url}"\n'
        f"[journal]\nenabled = true\n{keys}{providers}{prices}"
    )


def _agent_config(root: str, secret: str) -> str:
    """Return the configuration of the agents, whose model requests go through the balancer."""
    return (
        f'[providers.gateway]\nprotocol = "anthropic"\nbase_url = "{root}"\napi_key = "{secret}"\n'
        'models = ["claude-*"]\n'
    )


def connect(url: str) -> "psycopg.Connection[tuple[object, ...]]":
    """Connect to the database, to look at it."""
    return psycopg.connect(url, autocommit=True, connect_timeout=5, application_name="chaos")
