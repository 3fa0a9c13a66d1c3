"""`toolwire serve --workers`: real processes, killed, replaced and ended, and memory that they share."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.gateway.test_serving import ASKED, COMMAND, environment
from tests.loops import some
from toolwire.gateway.config import parse_config
from toolwire.gateway.server import build, make_crew
from toolwire.gateway.workers import ending_signals

PATIENCE = 120.0
LOSSY = {**ASKED, "container": "c_1"}


@pytest.fixture(autouse=True)
def _terminal() -> Iterator[None]:
    """Let SIGHUP be as in a terminal, even if the tests run under nohup: processes inherit that it is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


class Served:
    """A gateway in processes of its own."""

    def __init__(self, process: subprocess.Popen[str], home: Path, root: str, log: list[str]) -> None:
        self.process = process
        self.home = home
        self.root = root
        self.log = log
        self._seen: set[int] = set()

    @property
    def workers(self) -> list[int]:
        """The processes whose parent it is, zombies aside."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[1]) == self.process.pid and fields[0] != "Z":
                    found.append(int(entry.name))
        self._seen.update(found)
        return sorted(found)

    def kill(self) -> None:
        """End all its processes, orphans included."""
        for worker in {*self.workers, *self._seen}:
            with contextlib.suppress(OSError):
                if (Path(f"/proc/{worker}/cwd")).samefile(self.home):
                    os.kill(worker, signal.SIGKILL)
        self.process.kill()
        self.process.wait(PATIENCE)

    @contextmanager
    def only(self, worker: int) -> Iterator[None]:
        """Stop all other workers for a while, so that this one answers."""
        others = [one for one in self.workers if one != worker]
        for one in others:
            os.kill(one, signal.SIGSTOP)
            stat = Path(f"/proc/{one}/stat")
            wait_for(lambda stat=stat: stat.read_text().rpartition(")")[2].split()[0] == "T")  # type: ignore[misc]
        try:
            yield
        finally:
            for one in others:
                os.kill(one, signal.SIGCONT)

    def post(self, body: object) -> httpx.Response:
        return httpx.post(f"{self.root}/v1/messages", json=body, timeout=PATIENCE)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.root + path, timeout=PATIENCE)

    def refuses(self) -> bool:
        """Whether nobody listens any more."""
        port = int(self.root.rpartition(":")[2])
        try:
            socket.create_connection(("127.0.0.1", port), PATIENCE).close()
        except ConnectionError:
            return True
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def serving(home: Path, *options: str, files: tuple[int, int] | None = None) -> Iterator[Served]:
    """`files`: the soft and the hard limit of open files."""
    command = [*COMMAND, "--port", "0", *options]
    if files is not None:
        command = ["sh", "-c", f'ulimit -Sn {files[0]}; ulimit -Hn {files[1]}; exec "$@"', "sh", *command]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment(home), cwd=home)
    assert process.stderr is not None
    found = re.fullmatch(r"toolwire listens on (http://127\.0\.0\.1:\d+)\n", process.stderr.readline())
    assert found is not None
    log: list[str] = []
    reading = threading.Thread(target=log.extend, args=(process.stderr,))
    reading.start()
    served = Served(process, home, found[1], log)
    try:
        yield served
    finally:
        served.kill()
        reading.join(PATIENCE)
        process.stderr.close()


@contextmanager
def slow_upstream(home: Path) -> Iterator[threading.Event]:
    """An OpenAI that sends one event of each stream, and the rest when the event is set."""
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
        (home / "toolwire.toml").write_text(f'[providers.up]\nprotocol = "openai-chat"\nbase_url = "{url}"')
        try:
            yield released
        finally:
            released.set()
            server.shutdown()
            thread.join()


def test_s_10_a_dead_worker_is_replaced_and_the_log_says_so(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as gateway:
        wait_for(lambda: len(gateway.workers) == 2)
        first, second = gateway.workers
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: len(set(gateway.workers) - {first}) == 2)
        (replacement,) = set(gateway.workers) - {second}
        with gateway.only(replacement):
            assert gateway.post(ASKED).status_code == 200
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(PATIENCE) == 0
    assert re.search(
        rf"worker \d \(process {first}\) was ended by SIGKILL: another one starts in 0\.1 s", _text(gateway)
    )


def _text(gateway: Served) -> str:
    return "".join(gateway.log)


def test_s_10_q_6_losses_are_found_whichever_worker_is_asked(tmp_path: Path) -> None:
    """Also U-6: an exchange that lost nothing has an empty report."""
    with slow_upstream(tmp_path) as released, serving(tmp_path, "--workers", "2", "--model", "up/m") as gateway:
        released.set()
        wait_for(lambda: len(gateway.workers) == 2)
        for worker in some(gateway.workers):
            with gateway.only(worker):
                lossy = gateway.post({**LOSSY, "stream": True}).headers["toolwire-exchange"]
                refused = gateway.post({**ASKED, "messages": 7})
            assert refused.status_code == 400
            for reader in gateway.workers:
                with gateway.only(reader):
                    found = gateway.get(f"/toolwire/exchanges/{lossy}/losses")
                    assert found.status_code == 200
                    assert "/container" in [loss["path"] for loss in found.json()["losses"]]
                    none = gateway.get(f"/toolwire/exchanges/{refused.headers['toolwire-exchange']}/losses")
                    assert none.json() == {"losses": []}
                    for unknown in ("ex_0123456789abcdef", "ex_0000000000000000", "ex_", "%00"):
                        assert gateway.get(f"/toolwire/exchanges/{unknown}/losses").status_code == 404


def test_s_10_q_6_metrics_are_those_of_all_workers_and_outlive_them(tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text("[journal]\nenabled = true")

    def metrics() -> dict[str, float]:
        samples = [line.rpartition(" ") for line in gateway.get("/metrics").text.splitlines() if line[0] != "#"]
        return {name: float(value) for name, _, value in samples}

    with serving(tmp_path, "--workers", "2") as gateway:
        wait_for(lambda: len(gateway.workers) == 2)
        first, second = gateway.workers
        for worker, count in ((first, 2), (second, 3)):
            with gateway.only(worker):
                for _ in range(count):
                    assert gateway.post(ASKED).status_code == 200
        for worker in (first, second):
            with gateway.only(worker):
                found = metrics()
                assert found["toolwire_request_seconds_count"] == 5
                assert found['toolwire_requests_total{client="anthropic",provider="anthropic",status="200"}'] == 5
        wait_for(lambda: metrics()["toolwire_journal_written_total"] == 5)
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: len(set(gateway.workers) - {first}) == 2)
        for worker in gateway.workers:
            with gateway.only(worker):
                assert gateway.post(ASKED).status_code == 200
        found = metrics()
        assert found["toolwire_request_seconds_count"] == 7
        assert found['toolwire_request_seconds_bucket{le="+Inf"}'] == 7
        wait_for(lambda: metrics()["toolwire_journal_written_total"] == 7)


def test_q_14_streams_of_all_workers_are_counted_and_a_dead_worker_has_none(tmp_path: Path) -> None:
    with (
        slow_upstream(tmp_path),
        serving(tmp_path, "--workers", "2", "--model", "up/m") as gateway,
        contextlib.ExitStack() as stack,
    ):
        wait_for(lambda: len(gateway.workers) == 2)
        first, second = gateway.workers
        for worker in (first, second):
            with gateway.only(worker):
                stack.enter_context(streaming(gateway))
        for worker in (first, second):
            with gateway.only(worker):
                assert streams(gateway) == 2
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: len(set(gateway.workers) - {first}) == 2)
        wait_for(lambda: streams(gateway) == 1)


def streaming(gateway: Served) -> contextlib.AbstractContextManager[httpx.Response]:
    """A stream that has begun."""
    return httpx.stream("POST", f"{gateway.root}/v1/messages", json={**ASKED, "stream": True}, timeout=PATIENCE)


def streams(gateway: Served) -> int:
    return int(re.findall(r"^toolwire_streams (\d+)$", gateway.get("/metrics").text, re.MULTILINE)[0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize("workers", [1, 2])
def test_s_10_a_signal_lets_every_worker_finish_its_streams(
    tmp_path: Path, workers: int, number: signal.Signals
) -> None:
    """S-10, and Q-23 for SIGHUP: it ended the gateway at once and cut its streams."""
    with (
        slow_upstream(tmp_path) as released,
        serving(tmp_path, "--workers", str(workers), "--model", "up/m") as gateway,
        contextlib.ExitStack() as stack,
    ):
        wait_for(lambda: workers == 1 or len(gateway.workers) == workers)
        answers = []
        for worker in gateway.workers or [gateway.process.pid]:
            with gateway.only(worker):
                answers.append(stack.enter_context(streaming(gateway)))
        gateway.process.send_signal(number)
        wait_for(gateway.refuses)
        released.set()
        for answer in answers:
            assert "event: message_stop" in list(answer.iter_lines())
        assert gateway.process.wait(PATIENCE) == 0


def test_s_10_workers_end_when_their_parent_is_gone(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as gateway:
        wait_for(lambda: len(gateway.workers) == 2)
        for worker in some(gateway.workers):
            with gateway.only(worker):
                assert gateway.post(ASKED).status_code == 200
        gateway.process.kill()
        wait_for(gateway.refuses)


DYING = """
import os, signal, sys
from toolwire.gateway.workers import Pace, Supervisor

def serve(number, parent):
    {end}

pace = Pace(first=0.001, longest=0.01, tries=3)
sys.exit(Supervisor(serve, 2, close=lambda: None, say=print, pace=pace).run())
"""


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was ended by SIGKILL"),
        ("sys.exit(3)", "ended with code 1"),
        ("raise ValueError('no')", "ended with code 1"),
        ("return", "ended with code 0"),
    ],
)
def test_s_10_a_gateway_whose_workers_die_again_and_again_ends_with_a_failure(end: str, how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DYING.format(end=end)], check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 1
    *others, last = done.stdout.splitlines()
    assert f"{how}: workers can't be kept alive, giving up" in last
    assert len(others) >= 3  # of the one that is given up; the other may be between two tries then
    assert all(f"{how}: another one starts in 0.0" in line for line in others)
    assert ("ValueError: no" in done.stderr) == ("ValueError" in end)


def test_s_10_under_nohup_a_lost_terminal_ends_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signal.SIGHUP not in ending_signals()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.SIGHUP in ending_signals()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ('[state]\npath = ":memory:"', 'state.path: ":memory:" is not shared: --workers needs a file, or one worker'),
        (
            '[state]\npath = "file/deeper/state.db"',
            "state.path: file/deeper/state.db: Not a directory: --workers needs a state file",
        ),
        ("", "toolwire/state.db: Not a directory: --workers needs a state file that can be written, or one worker"),
    ],
)
def test_q_6_workers_without_a_state_file_to_share_are_refused(tmp_path: Path, config: str, why: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "toolwire.toml").write_text(config)
    done = subprocess.run(
        [*COMMAND, "--port", "0", "--workers", "2"],
        check=False,
        capture_output=True,
        text=True,
        env={**environment(tmp_path), "XDG_STATE_HOME": str(tmp_path / "file")},
        cwd=tmp_path,
        timeout=PATIENCE,
    )
    assert done.returncode == 2
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_q_6_workers_seal_with_one_key_even_where_none_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    provider = '[providers.up]\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9"'
    config = parse_config(f'{provider}\n[state]\npath = "{tmp_path}/state.db"', {})
    nowhere = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "file")}
    crew = make_crew(config, nowhere, workers=2)
    workers = [build(config, environment=nowhere, crew=crew, worker=number) for number in range(2)]
    one, other = (worker.app._exchanger._seal_keys for worker in workers)
    assert one == other
    assert make_crew(config, nowhere).seal_keys != one
