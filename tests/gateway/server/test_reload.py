"""SIGHUP: the configuration is replaced while streams go on, and a broken one is refused."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

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
from tests.support.runtime.fork_server import MAIN_PROGRAM
from toolwire.gateway.keys.client_key import create_secret, hash_secret


@pytest.fixture(autouse=True)
def _terminal() -> Iterator[None]:
    """Reset SIGHUP as in a terminal: under nohup, processes inherit that it is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("workers", [1, 2])
def test_sighup_reloads_the_configuration_and_keeps_streams(workers: int, tmp_path: Path) -> None:
    with (
        serve_slow_upstream(tmp_path) as released,
        serve_with_workers(tmp_path, "--workers", str(workers), "--model", "up/m") as gateway,
    ):
        wait_for_process(lambda: workers == 1 or len(gateway.workers) == workers)
        assert gateway.get("/v1/models").status_code == 200
        file = tmp_path / "toolwire.toml"
        working = file.read_text()
        with open_stream(gateway) as streamed:
            file.write_text(f"{working}\n[server]\nkies = []\n")
            gateway.process.send_signal(signal.SIGHUP)
            wait_for_process(lambda: any("not reloaded" in line for line in gateway.log))
            assert [line.partition("in use: ")[2] for line in gateway.log if "not reloaded" in line] == [
                line.partition("in use: ")[2] for line in gateway.log if "kies" in line
            ]
            assert gateway.get("/v1/models").status_code == 200

            file.write_text(f'{working}\n[server]\nkeys = ["a new key"]\n')
            gateway.process.send_signal(signal.SIGHUP)
            wait_for_process(lambda: sum("configuration reloaded" in line for line in gateway.log) == workers)
            assert gateway.get("/v1/models").status_code == 401
            assert gateway.get("/readyz").status_code == 200
            released.set()
            assert "event: message_stop" in list(streamed.iter_lines())
        if workers == 2:  # a later worker has the new configuration as well
            first, second = gateway.workers
            os.kill(first, signal.SIGKILL)
            wait_for_process(lambda: len(set(gateway.workers) - {first}) == 2)
            (replacement,) = set(gateway.workers) - {second}
            with gateway.only_worker(replacement):
                assert gateway.post(MESSAGES_REQUEST).status_code == 401
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(PROCESS_DEADLINE) == 0


def test_key_is_revoked_by_deleting_it_and_reloading(tmp_path: Path) -> None:
    secrets = {"alice": create_secret(), "bob": create_secret()}
    tables = {name: f'[keys.{name}]\nhash = "{hash_secret(secret)}"\n' for name, secret in secrets.items()}

    def status(gateway: GatewayProcess, name: str) -> int:
        return httpx.get(f"{gateway.root}/v1/models", headers={"x-api-key": secrets[name]}).status_code

    file = tmp_path / "toolwire.toml"
    with (
        serve_slow_upstream(tmp_path) as released,
        serve_with_workers(tmp_path, "--workers", "1", "--model", "up/m") as gateway,
    ):
        providers = file.read_text()
        assert status(gateway, "alice") == 200
        file.write_text(f"{providers}\n{tables['alice']}{tables['bob']}")
        gateway.process.send_signal(signal.SIGHUP)
        wait_for_process(lambda: gateway.get("/v1/models").status_code == 401)
        assert (status(gateway, "alice"), status(gateway, "bob")) == (200, 200)
        file.write_text(f"{providers}\n{tables['bob']}")
        gateway.process.send_signal(signal.SIGHUP)
        wait_for_process(lambda: status(gateway, "alice") == 401)
        assert status(gateway, "bob") == 200
        released.set()


def test_closed_terminal_stops_the_gateway(tmp_path: Path) -> None:
    """The system sends SIGHUP as well when a terminal is closed."""
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN_PROGRAM, "serve", "--port", "0"],
        stdin=end,
        stderr=subprocess.PIPE,
        text=True,
        env=keyless_environment(tmp_path),
        cwd=tmp_path,
    )
    try:
        os.close(end)
        assert process.stderr is not None
        root = process.stderr.readline().split()[-1]
        assert httpx.get(f"{root}/livez", timeout=PROCESS_DEADLINE).json() == {"status": "alive"}
        os.close(terminal)
        process.send_signal(signal.SIGHUP)
        assert process.wait(PROCESS_DEADLINE) == 0
    finally:
        process.kill()
        process.communicate()


def test_log_lines_are_json_if_configured(tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text('[server]\nlog = "json"\n')
    with serve_with_workers(tmp_path) as gateway:
        response = gateway.post(MESSAGES_REQUEST)
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(PROCESS_DEADLINE) == 0
    (entry,) = [json.loads(line) for line in gateway.log if line.startswith("{")]
    assert (entry["status"], entry["method"], entry["path"]) == (200, "POST", "/v1/messages")
    assert entry["exchange"] == response.headers["toolwire-exchange"]
    assert {"time", "client", "provider", "model", "ms", "input_tokens"} <= set(entry)
