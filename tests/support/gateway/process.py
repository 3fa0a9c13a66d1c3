"""The gateway as separate processes with several workers, and slow upstreams for them."""

import contextlib
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from tests.support.configuration import named_config
from tests.support.deadlines import DEADLINE
from tests.support.runtime.fork_server import MAIN_PROGRAM, ForkedProcess, start_forked

MESSAGES_REQUEST = {"model": "any-name", "max_tokens": 99, "messages": [{"role": "user", "content": "Say heliotrope."}]}


def keyless_environment(home: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_HOST"))}
    return {**environment, "HOME": str(home), "XDG_STATE_HOME": str(home), **named_config(home)}


def start_serve(home: Path, *options: str, program: str = MAIN_PROGRAM) -> ForkedProcess:
    """Start `toolwire serve`, or the program, in this folder."""
    environment = keyless_environment(home)
    return start_forked("serve", *options, folder=home, environment=environment, program=program)


@contextmanager
def serve_process(home: Path, *options: str, program: str = MAIN_PROGRAM) -> Iterator[tuple[ForkedProcess, str]]:
    process = start_serve(home, "--port", "0", *options, program=program)
    try:
        assert process.stderr is not None
        found = re.fullmatch(r"toolwire listens on (http://127\.0\.0\.1:\d+)\n", process.stderr.readline())
        assert found is not None
        yield process, found[1]
    finally:
        process.kill()
        process.wait(DEADLINE)
        process.close_streams()


PROCESS_DEADLINE = 120.0


class GatewayProcess:
    """A gateway in processes of its own."""

    def __init__(self, process: ForkedProcess, home: Path, root: str, log: list[str]) -> None:
        self.process = process
        self.home = home
        self.root = root
        self.log = log
        self._known_workers: set[int] = set()

    @property
    def workers(self) -> list[int]:
        """Return the ids of its child processes, without zombies."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[1]) == self.process.pid and fields[0] != "Z":
                    found.append(int(entry.name))
        self._known_workers.update(found)
        return sorted(found)

    def kill(self) -> None:
        """Kill all its processes, including orphans."""
        for worker in {*self.workers, *self._known_workers}:
            with contextlib.suppress(OSError):
                if (Path(f"/proc/{worker}/cwd")).samefile(self.home):
                    os.kill(worker, signal.SIGKILL)
        self.process.kill()
        self.process.wait(PROCESS_DEADLINE)

    @contextmanager
    def only_worker(self, worker: int) -> Iterator[None]:
        """Suspend all other workers, so that this one serves the requests."""
        other_workers = [pid for pid in self.workers if pid != worker]
        for pid in other_workers:
            os.kill(pid, signal.SIGSTOP)
            stat = Path(f"/proc/{pid}/stat")
            wait_for_process(lambda stat=stat: stat.read_text().rpartition(")")[2].split()[0] == "T")  # type: ignore[misc]
        try:
            yield
        finally:
            for pid in other_workers:
                os.kill(pid, signal.SIGCONT)

    def post(self, body: object) -> httpx.Response:
        return httpx.post(f"{self.root}/v1/messages", json=body, timeout=PROCESS_DEADLINE)

    def send(self, method: str, path: str, body: object, headers: dict[str, str]) -> httpx.Response:
        return httpx.request(method, self.root + path, json=body, headers=headers, timeout=PROCESS_DEADLINE)

    def stream(
        self, body: object, headers: dict[str, str] | None = None
    ) -> contextlib.AbstractContextManager[httpx.Response]:
        """Open a stream and wait for its head."""
        return httpx.stream("POST", f"{self.root}/v1/messages", json=body, headers=headers, timeout=PROCESS_DEADLINE)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.root + path, timeout=PROCESS_DEADLINE)

    def is_closed(self) -> bool:
        """Return whether the port is closed."""
        port = int(self.root.rpartition(":")[2])
        try:
            socket.create_connection(("127.0.0.1", port), PROCESS_DEADLINE).close()
        except ConnectionError:
            return True
        return False


def wait_for_process(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PROCESS_DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def serve_with_workers(
    home: Path, *options: str, file_limits: tuple[int, int] | None = None
) -> Iterator[GatewayProcess]:
    """Start a gateway with several workers; `file_limits` are the soft and hard limit of open files."""
    program = MAIN_PROGRAM
    if file_limits is not None:
        program = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, {file_limits}); {program}"
    process = start_serve(home, "--port", "0", *options, program=program)
    assert process.stderr is not None
    found = re.fullmatch(r"toolwire listens on (http://127\.0\.0\.1:\d+)\n", process.stderr.readline())
    assert found is not None
    log: list[str] = []
    reading = threading.Thread(target=log.extend, args=(process.stderr,))
    reading.start()
    served = GatewayProcess(process, home, found[1], log)
    try:
        yield served
    finally:
        served.kill()
        reading.join(PROCESS_DEADLINE)
        process.close_streams()


@contextmanager
def serve_slow_upstream(home: Path, extra_config: str = "") -> Iterator[threading.Event]:
    """Serve a Chat upstream that sends one event of each stream, and the rest when the event is set."""
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self._send({"delta": {"role": "assistant", "content": "be"}, "finish_reason": None})
            released.wait()
            with contextlib.suppress(ConnectionError):
                self._send({"delta": {"content": "gun"}, "finish_reason": None})
                self._send({"delta": {}, "finish_reason": "stop"})
                self.wfile.write(b"data: [DONE]\n\n")

        def _send(self, choice: dict[str, object]) -> None:
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            self.wfile.write(b"data: %b\n\n" % json.dumps(chunk | {"choices": [{"index": 0, **choice}]}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        config = f'{extra_config}[providers.up]\nprotocol = "openai-chat"\nbase_url = "{url}"'
        (home / "toolwire.toml").write_text(config)
        try:
            yield released
        finally:
            released.set()
            server.shutdown()
            thread.join()


def open_stream(gateway: GatewayProcess) -> contextlib.AbstractContextManager[httpx.Response]:
    """Open a stream and wait for its first event."""
    return gateway.stream({**MESSAGES_REQUEST, "stream": True})
