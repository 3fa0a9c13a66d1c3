"""`toolwire serve --workers`: real processes, killed, replaced and ended, and memory that they share."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.assertions import non_empty
from tests.support.gateway.process import (
    MESSAGES_REQUEST,
    PROCESS_DEADLINE,
    SERVE_COMMAND,
    GatewayProcess,
    keyless_environment,
    open_stream,
    serve_slow_upstream,
    serve_with_workers,
    wait_for_process,
)
from toolwire.gateway.config import parse_config
from toolwire.gateway.server.launch import build_gateway, make_shared_resources
from toolwire.gateway.server.workers import stop_signals

LOSSY = {**MESSAGES_REQUEST, "container": "c_1"}


@pytest.fixture(autouse=True)
def _terminal() -> Iterator[None]:
    """Let SIGHUP be as in a terminal, even if the tests run under nohup: processes inherit that it is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_dead_worker_is_replaced_and_logged(tmp_path: Path) -> None:
    with serve_with_workers(tmp_path, "--workers", "2") as gateway:
        wait_for_process(lambda: len(gateway.workers) == 2)
        first, second = gateway.workers
        os.kill(first, signal.SIGKILL)
        wait_for_process(lambda: len(set(gateway.workers) - {first}) == 2)
        (replacement,) = set(gateway.workers) - {second}
        with gateway.only_worker(replacement):
            assert gateway.post(MESSAGES_REQUEST).status_code == 200
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(PROCESS_DEADLINE) == 0
    assert re.search(
        rf"worker \d \(process {first}\) was ended by SIGKILL: another one starts in 0\.1 s", _text(gateway)
    )


def _text(gateway: GatewayProcess) -> str:
    return "".join(gateway.log)


def test_loss_report_is_available_from_every_worker(tmp_path: Path) -> None:
    """An exchange without losses has an empty report."""
    with (
        serve_slow_upstream(tmp_path) as released,
        serve_with_workers(tmp_path, "--workers", "2", "--model", "up/m") as gateway,
    ):
        released.set()
        wait_for_process(lambda: len(gateway.workers) == 2)
        for worker in non_empty(gateway.workers):
            with gateway.only_worker(worker):
                lossy = gateway.post({**LOSSY, "stream": True}).headers["toolwire-exchange"]
                refused = gateway.post({**MESSAGES_REQUEST, "messages": 7})
            assert refused.status_code == 400
            for reader in gateway.workers:
                with gateway.only_worker(reader):
                    found = gateway.get(f"/toolwire/exchanges/{lossy}/losses")
                    assert found.status_code == 200
                    assert "/container" in [loss["path"] for loss in found.json()["losses"]]
                    none = gateway.get(f"/toolwire/exchanges/{refused.headers['toolwire-exchange']}/losses")
                    assert none.json() == {"losses": []}
                    for unknown in ("ex_0123456789abcdef", "ex_0000000000000000", "ex_", "%00"):
                        assert gateway.get(f"/toolwire/exchanges/{unknown}/losses").status_code == 404


def test_metrics_cover_all_workers_and_survive_them(tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text("[journal]\nenabled = true")

    def metrics() -> dict[str, float]:
        samples = [line.rpartition(" ") for line in gateway.get("/metrics").text.splitlines() if line[0] != "#"]
        return {name: float(value) for name, _, value in samples}

    with serve_with_workers(tmp_path, "--workers", "2") as gateway:
        wait_for_process(lambda: len(gateway.workers) == 2)
        first, second = gateway.workers
        for worker, count in ((first, 2), (second, 3)):
            with gateway.only_worker(worker):
                for _ in range(count):
                    assert gateway.post(MESSAGES_REQUEST).status_code == 200
        for worker in (first, second):
            with gateway.only_worker(worker):
                found = metrics()
                assert found["toolwire_request_seconds_count"] == 5
                assert found['toolwire_requests_total{client="anthropic",provider="anthropic",status="200"}'] == 5
        wait_for_process(lambda: metrics()["toolwire_journal_written_total"] == 5)
        os.kill(first, signal.SIGKILL)
        wait_for_process(lambda: len(set(gateway.workers) - {first}) == 2)
        for worker in gateway.workers:
            with gateway.only_worker(worker):
                assert gateway.post(MESSAGES_REQUEST).status_code == 200
        found = metrics()
        assert found["toolwire_request_seconds_count"] == 7
        assert found['toolwire_request_seconds_bucket{le="+Inf"}'] == 7
        wait_for_process(lambda: metrics()["toolwire_journal_written_total"] == 7)


def test_stream_count_covers_all_living_workers(tmp_path: Path) -> None:
    with (
        serve_slow_upstream(tmp_path),
        serve_with_workers(tmp_path, "--workers", "2", "--model", "up/m") as gateway,
        contextlib.ExitStack() as stack,
    ):
        wait_for_process(lambda: len(gateway.workers) == 2)
        first, second = gateway.workers
        for worker in (first, second):
            with gateway.only_worker(worker):
                stack.enter_context(open_stream(gateway))
        for worker in (first, second):
            with gateway.only_worker(worker):
                assert streams(gateway) == 2
        os.kill(first, signal.SIGKILL)
        wait_for_process(lambda: len(set(gateway.workers) - {first}) == 2)
        wait_for_process(lambda: streams(gateway) == 1)


def streams(gateway: GatewayProcess) -> int:
    return int(re.findall(r"^toolwire_streams (\d+)$", gateway.get("/metrics").text, re.MULTILINE)[0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize("workers", [1, 2])
def test_signal_lets_workers_finish_their_streams(tmp_path: Path, workers: int, number: signal.Signals) -> None:
    """SIGHUP ended the gateway at once and cut its streams."""
    with (
        serve_slow_upstream(tmp_path) as released,
        serve_with_workers(tmp_path, "--workers", str(workers), "--model", "up/m") as gateway,
        contextlib.ExitStack() as stack,
    ):
        wait_for_process(lambda: workers == 1 or len(gateway.workers) == workers)
        answers = []
        for worker in gateway.workers or [gateway.process.pid]:
            with gateway.only_worker(worker):
                answers.append(stack.enter_context(open_stream(gateway)))
        gateway.process.send_signal(number)
        wait_for_process(gateway.is_closed)
        released.set()
        for answer in answers:
            assert "event: message_stop" in list(answer.iter_lines())
        assert gateway.process.wait(PROCESS_DEADLINE) == 0


def test_workers_exit_when_their_parent_dies(tmp_path: Path) -> None:
    with serve_with_workers(tmp_path, "--workers", "2") as gateway:
        wait_for_process(lambda: len(gateway.workers) == 2)
        for worker in non_empty(gateway.workers):
            with gateway.only_worker(worker):
                assert gateway.post(MESSAGES_REQUEST).status_code == 200
        gateway.process.kill()
        wait_for_process(gateway.is_closed)


DYING = """
import os, signal, sys
from toolwire.gateway.server.workers import RestartBackoff, Supervisor

def serve(number, parent):
    {end}

backoff = RestartBackoff(first_delay=0.001, max_delay=0.01, max_early_deaths=3)
sys.exit(Supervisor(serve, 2, close_listener=lambda: None, log=print, backoff=backoff).run())
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
def test_crash_looping_workers_end_the_gateway_with_a_failure(end: str, how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DYING.format(end=end)],
        check=False,
        capture_output=True,
        text=True,
        timeout=PROCESS_DEADLINE,
    )
    assert done.returncode == 1
    *others, last = done.stdout.splitlines()
    assert f"{how}: workers can't be kept alive, giving up" in last
    assert len(others) >= 3  # of the one that is given up; the other may be between two tries then
    assert all(f"{how}: another one starts in 0.0" in line for line in others)
    assert ("ValueError: no" in done.stderr) == ("ValueError" in end)


def test_sighup_is_ignored_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signal.SIGHUP not in stop_signals()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.SIGHUP in stop_signals()


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
def test_several_workers_require_a_shared_state_file(tmp_path: Path, config: str, why: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "toolwire.toml").write_text(config)
    done = subprocess.run(
        [*SERVE_COMMAND, "--port", "0", "--workers", "2"],
        check=False,
        capture_output=True,
        text=True,
        env={**keyless_environment(tmp_path), "XDG_STATE_HOME": str(tmp_path / "file")},
        cwd=tmp_path,
        timeout=PROCESS_DEADLINE,
    )
    assert done.returncode == 2
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_workers_share_one_envelope_key_without_a_key_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    provider = '[providers.up]\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9"'
    config = parse_config(f'{provider}\n[state]\npath = "{tmp_path}/state.db"', {})
    nowhere = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "file")}
    crew = make_shared_resources(config, nowhere, workers=2)
    workers = [build_gateway(config, environment=nowhere, shared_resources=crew, worker=number) for number in range(2)]
    one, other = (worker.app._dispatcher._signing_keys for worker in workers)
    assert one == other
    assert make_shared_resources(config, nowhere).signing_keys != one
