"""`toolwire serve --workers`: real processes, killed, restarted and stopped, and their shared memory."""

import contextlib
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.assertions import non_empty
from tests.support.gateway.process import (
    MESSAGES_REQUEST,
    PROCESS_DEADLINE,
    GatewayProcess,
    keyless_environment,
    open_stream,
    serve_slow_upstream,
    serve_with_workers,
    wait_for_process,
)
from tests.support.postgres import POSTGRES
from tests.support.runtime.fork_server import run_forked, start_forked
from toolwire.cli import main
from toolwire.gateway.config import parse_config
from toolwire.gateway.keys.client_key import create_secret, hash_secret
from toolwire.gateway.server.gateway import build_gateway, make_shared_resources
from toolwire.gateway.server.workers import reloads_on_hangup

LOSSY = {**MESSAGES_REQUEST, "container": "c_1"}


@pytest.fixture(autouse=True)
def _terminal() -> Iterator[None]:
    """Reset SIGHUP as in a terminal: under nohup, processes inherit that it is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_dead_worker_is_restarted_and_logged(tmp_path: Path) -> None:
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
    assert re.search(rf"worker \d \(process {first}\) was killed by SIGKILL: restarting in 0\.1 s", _text(gateway))


def _text(gateway: GatewayProcess) -> str:
    return "".join(gateway.log)


def test_any_worker_finds_all_losses(tmp_path: Path) -> None:
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
                    totals = gateway.get(f"/toolwire/exchanges/{lossy}/losses")
                    assert totals.status_code == 200
                    assert "/container" in [loss["path"] for loss in totals.json()["losses"]]
                    none = gateway.get(f"/toolwire/exchanges/{refused.headers['toolwire-exchange']}/losses")
                    assert none.json() == {"losses": []}
                    for unknown in ("ex_0123456789abcdef", "ex_0000000000000000", "ex_", "%00"):
                        assert gateway.get(f"/toolwire/exchanges/{unknown}/losses").status_code == 404


def test_metrics_sum_all_workers_and_outlive_them(tmp_path: Path) -> None:
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
                totals = metrics()
                assert totals["toolwire_request_seconds_count"] == 5
                assert totals['toolwire_requests_total{client="anthropic",provider="anthropic",status="200"}'] == 5
        wait_for_process(lambda: metrics()["toolwire_journal_written_total"] == 5)
        os.kill(first, signal.SIGKILL)
        wait_for_process(lambda: len(set(gateway.workers) - {first}) == 2)
        for worker in gateway.workers:
            with gateway.only_worker(worker):
                assert gateway.post(MESSAGES_REQUEST).status_code == 200
        totals = metrics()
        assert totals["toolwire_request_seconds_count"] == 7
        assert totals['toolwire_request_seconds_bucket{le="+Inf"}'] == 7
        wait_for_process(lambda: metrics()["toolwire_journal_written_total"] == 7)


def test_stream_gauge_sums_live_workers(tmp_path: Path) -> None:
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


def test_workers_share_the_limit_of_streams(tmp_path: Path) -> None:
    with (
        serve_slow_upstream(tmp_path, "[limits]\nstreams = 2\n"),
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
                refused = gateway.post(MESSAGES_REQUEST | {"stream": True})
                assert (refused.status_code, "too many streams at once" in refused.text) == (503, True)
        os.kill(first, signal.SIGKILL)
        wait_for_process(lambda: len(set(gateway.workers) - {first}) == 2)
        wait_for_process(lambda: streams(gateway) == 1)
        stack.enter_context(open_stream(gateway))


@pytest.fixture(params=["file", POSTGRES])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The section of the state, in the folder of the user or in a database."""
    if request.param == "file":
        return f'path = "{tmp_path}/state.db"'
    return f'url = "{request.getfixturevalue("postgres_url")}"'


def keyed_config(state: str, **limits: float) -> tuple[str, dict[str, str]]:
    """Return a configuration with a limited key, and the headers of its client."""
    secret = create_secret()
    rules = "".join(f"{name} = {value}\n" for name, value in limits.items())
    config = f"""
[server]
seal_keys = ["a key of all replicas"]
[state]
{state}
[keys.alice]
hash = "{hash_secret(secret)}"
{rules}
[models."*"]
prices = {{input = 1.0, output = 1.0}}
"""
    return config, {"authorization": f"Bearer {secret}"}


def test_workers_share_responses_and_the_money_of_keys(state: str, tmp_path: Path) -> None:
    config, headers = keyed_config(state, dollars_per_month=0.000_001)
    (tmp_path / "toolwire.toml").write_text(config)
    body = {"model": "any-name", "input": "Say heliotrope.", "store": True}
    with serve_with_workers(tmp_path, "--workers", "2") as gateway:
        wait_for_process(lambda: len(gateway.workers) == 2)
        first, _ = gateway.workers
        with gateway.only_worker(first):
            stored = gateway.send("POST", "/v1/responses", body, headers)
            assert stored.status_code == 200
        os.kill(first, signal.SIGKILL)
        wait_for_process(lambda: first not in gateway.workers)
        found = gateway.send("GET", f"/v1/responses/{stored.json()['id']}", None, headers)
        assert (found.status_code, found.json()["id"]) == (200, stored.json()["id"])
        refused = gateway.send("POST", "/v1/responses", body, headers)
        assert (refused.status_code, "has reached its limit" in refused.text) == (429, True)


def test_a_gateway_that_forks_workers_has_no_threads() -> None:
    """A thread that imports a module while another forks leaves the child with a lock that nobody releases."""
    provider = '[providers.up]\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9"\n'
    state = '[server]\nkeys = ["a-long-key"]\n[state]\nurl = "postgresql://127.0.0.1:9/none"\n'
    config = parse_config(provider + state, {})
    before = set(threading.enumerate())
    build_gateway(config, environment={}, shared_resources=make_shared_resources(config, {}, workers=2))
    assert set(threading.enumerate()) == before


def test_request_of_a_killed_gateway_keeps_its_reservation(state: str, tmp_path: Path) -> None:
    config, headers = keyed_config(state, dollars_per_month=1)
    with serve_slow_upstream(tmp_path, config), contextlib.ExitStack() as stack:
        gateway = stack.enter_context(serve_with_workers(tmp_path, "--model", "up/m"))
        body = {**MESSAGES_REQUEST, "max_tokens": 600_000, "stream": True}
        stream = stack.enter_context(gateway.stream(body, headers))
        assert stream.status_code == 200
        gateway.process.kill()
        gateway.process.wait(PROCESS_DEADLINE)
        usage = CliRunner().invoke(main, ["usage", "--config", str(tmp_path / "toolwire.toml"), "--json"])
        reserved = json.loads(usage.stdout)["in_progress"]
        assert reserved["requests"] == 1
        assert 0.6 < reserved["dollars"] < 0.7
        replacement = stack.enter_context(serve_with_workers(tmp_path, "--model", "up/m"))
        refused = replacement.send("POST", "/v1/messages", body, headers)
        assert (refused.status_code, "$0.0000 are spent and $0.6" in refused.text) == (429, True)


def streams(gateway: GatewayProcess) -> int:
    return int(re.findall(r"^toolwire_streams (\d+)$", gateway.get("/metrics").text, re.MULTILINE)[0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("workers", [1, 2])
def test_stop_signal_lets_workers_finish_their_streams(tmp_path: Path, workers: int, number: signal.Signals) -> None:
    with (
        serve_slow_upstream(tmp_path) as released,
        serve_with_workers(tmp_path, "--workers", str(workers), "--model", "up/m") as gateway,
        contextlib.ExitStack() as stack,
    ):
        wait_for_process(lambda: workers == 1 or len(gateway.workers) == workers)
        streamed = []
        for worker in gateway.workers or [gateway.process.pid]:
            with gateway.only_worker(worker):
                streamed.append(stack.enter_context(open_stream(gateway)))
        gateway.process.send_signal(number)
        wait_for_process(gateway.is_closed)
        released.set()
        for response in streamed:
            assert "event: message_stop" in list(response.iter_lines())
        assert gateway.process.wait(PROCESS_DEADLINE) == 0


def test_workers_stop_when_the_supervisor_is_gone(tmp_path: Path) -> None:
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
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL"),
        ("sys.exit(3)", "exited with code 1"),
        ("raise ValueError('no')", "exited with code 1"),
        ("return", "exited with code 0"),
    ],
)
def test_supervisor_gives_up_on_workers_that_keep_dying(tmp_path: Path, end: str, how: str) -> None:
    done = run_forked(DYING.format(end=end), folder=tmp_path, environment=os.environ)
    assert done.returncode == 1
    *earlier_lines, last = done.stdout.splitlines()
    assert f"{how}: workers keep dying, giving up" in last
    assert len(earlier_lines) >= 3  # of the worker that is given up; the other may be between two restarts
    assert all(f"{how}: restarting in 0.0" in line for line in earlier_lines)
    assert ("ValueError: no" in done.stderr) == ("ValueError" in end)


def test_sighup_is_ignored_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert not reloads_on_hangup()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert reloads_on_hangup()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            '[state]\npath = ":memory:"',
            'state.path: ":memory:" can\'t be shared by workers: use a file, or --workers 1',
        ),
        (
            '[state]\npath = "file/deeper/state.db"',
            "state.path: file/deeper/state.db: Not a directory: several workers need a writable state file",
        ),
        ("", "toolwire/state.db: Not a directory: several workers need a writable state file (or use --workers 1)"),
    ],
)
def test_workers_need_a_shared_state_file(tmp_path: Path, config: str, reason: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "toolwire.toml").write_text(config)
    with start_forked(
        *("serve", "--port", "0", "--workers", "2"),
        folder=tmp_path,
        environment={**keyless_environment(tmp_path), "XDG_STATE_HOME": str(tmp_path / "file")},
    ) as process:
        _, errors = process.communicate()
    assert process.returncode == 2
    assert reason in errors
    assert errors.count("\n") == 1


def test_workers_share_a_signing_key_that_can_not_be_saved(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    provider = '[providers.up]\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9"'
    config = parse_config(f'{provider}\n[state]\npath = "{tmp_path}/state.db"', {})
    nowhere = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "file")}
    crew = make_shared_resources(config, nowhere, workers=2)
    workers = [build_gateway(config, environment=nowhere, shared_resources=crew, worker=number) for number in range(2)]
    one, other = (worker.app._dispatcher.services.signing_keys for worker in workers)
    assert one == other
    assert make_shared_resources(config, nowhere).signing_keys != one
