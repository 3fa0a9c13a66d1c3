"""`toolwire serve` as a process: output, responses and shutdown."""

import json
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from tests.support.deadlines import DEADLINE
from tests.support.gateway.process import MESSAGES_REQUEST, serve_process, start_serve
from tests.support.paths import ROOT
from toolwire.cli import main
from toolwire.gateway.config import ConfigError
from toolwire.gateway.providers.discovery import open_listener


@pytest.mark.parametrize("workers", ["1", "2"])
def test_serve_works_without_keys_and_stops_on_a_signal(tmp_path: Path, workers: str) -> None:
    with serve_process(tmp_path, "--workers", workers) as (process, root):
        response = httpx.post(f"{root}/v1/messages", json=MESSAGES_REQUEST, timeout=DEADLINE)
        assert response.status_code == 200
        assert "heliotrope" in response.json()["content"][0]["text"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
        assert process.stderr is not None
        output = process.stderr.read()
        assert "using the built-in simulator" in output
        assert re.search(r"200 POST /v1/messages any-name -> anthropic/simulated \d+ms", output)


@contextmanager
def ollama_with(*names: str) -> Iterator[str]:
    """Run an Ollama with these models that names the requested model in its response."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({"models": [{"name": name, "model": name} for name in names]})

        def do_POST(self) -> None:
            request_body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            message = {"role": "assistant", "content": f"I am {request_body['model']}."}
            self._answer({"model": request_body["model"], "message": message, "done": True, "done_reason": "stop"})

        def _answer(self, value: object) -> None:
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_ollama_models_are_listed_and_the_first_is_the_default(tmp_path: Path) -> None:
    with ollama_with("qwen3:latest", "gemma3:4b") as url:
        (tmp_path / "toolwire.toml").write_text(f'[providers.local]\nprotocol = "ollama"\nbase_url = "{url}"')
        with serve_process(tmp_path) as (process, root):
            assert [model["id"] for model in httpx.get(f"{root}/v1/models").json()["data"]] == [
                "local/qwen3:latest",
                "qwen3:latest",
                "local/gemma3:4b",
                "gemma3:4b",
            ]
            for request_body, expected_model in (("claude-x", "qwen3:latest"), ("gemma3:4b", "gemma3:4b")):
                response = httpx.post(
                    f"{root}/v1/messages", json={**MESSAGES_REQUEST, "model": request_body}, timeout=DEADLINE
                )
                assert response.json()["content"][0]["text"] == f"I am {expected_model}."
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            assert "local/MODEL" in process.stderr.read()


def test_dead_ollama_is_noted_once(tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text('[providers.local]\nprotocol = "ollama"\nbase_url = "http://127.0.0.1:9"')
    with serve_process(tmp_path) as (process, _):
        assert process.stderr is not None
        note = "local: no Ollama answers at http://127.0.0.1:9"
        assert any(note in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        assert note not in process.stderr.read()


def test_misspelled_rules_and_expired_keys_are_noted(tmp_path: Path) -> None:
    key = f'[keys.alice]\nhash = "sha256:{"0" * 64}"\nexpires = 2020-01-31\n'
    (tmp_path / "toolwire.toml").write_text(f'{key}[policy]\ndeny = ["write_fil"]\n')
    with serve_process(tmp_path) as (process, _):
        assert process.stderr is not None
        note = "policy.deny[0]: unknown tool 'write_fil' (did you mean \"write_file\""
        assert any(note in line for line in process.stderr)
        assert any("keys.alice.expires: the key expired on 2020-01-31" in line for line in process.stderr)


def test_alias_of_no_provider_is_noted(tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text('[aliases]\nfast = "opnai/m"\n')
    with serve_process(tmp_path) as (process, _):
        assert process.stderr is not None
        note = "the alias 'fast' leads to no provider: unknown provider 'opnai' in model 'opnai/m' (did you mean"
        assert any(note in line for line in process.stderr)


def test_bodies_of_one_start_can_be_recorded_with_the_providers_answer(tmp_path: Path) -> None:
    with serve_process(tmp_path, "--record-bodies") as (process, root):
        assert httpx.post(f"{root}/v1/messages", json=MESSAGES_REQUEST, timeout=DEADLINE).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
        assert process.stderr is not None
        assert "recording exchanges with their bodies; see them with: toolwire journal tail -f" in process.stderr.read()
    shown = CliRunner().invoke(main, ["journal", "show", "last", "--json"], env={"XDG_STATE_HOME": str(tmp_path)})
    bodies = json.loads(shown.stdout)["bodies"]
    assert set(bodies) == {"request", "translated", "answer", "response"}
    assert "heliotrope" in json.dumps(bodies["answer"])


def test_variables_printed_at_start_are_those_of_the_guides(tmp_path: Path) -> None:
    with serve_process(tmp_path) as (process, root):
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        output = process.stderr.read()
    guide = (ROOT / "docs/guides/claude.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^(ANTHROPIC_BASE_URL=.* claude)", guide, re.MULTILINE)
    assert command.replace("http://127.0.0.1:4000", root) in output


def test_streams_under_way_finish_before_shutdown(tmp_path: Path) -> None:
    with (
        serve_process(tmp_path) as (process, root),
        httpx.stream(
            "POST", f"{root}/v1/messages", json={**MESSAGES_REQUEST, "stream": True}, timeout=DEADLINE
        ) as response,
    ):
        lines = response.iter_lines()
        assert next(lines) == "event: message_start"
        process.send_signal(signal.SIGTERM)
        assert "event: message_stop" in list(lines)
        assert process.wait(DEADLINE) == 0


def test_port_in_use_is_a_one_line_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy_socket:
        port = str(busy_socket.getsockname()[1])
        with start_serve(tmp_path, "--port", port) as process:
            _, errors = process.communicate()
    assert process.returncode == 2
    reason = f"port {port} is in use by another program; stop it, or choose another with --port"
    assert errors == f"Error: can't listen on 127.0.0.1:{port}: {reason}\n"


def test_another_toolwire_on_the_port_is_named(tmp_path: Path) -> None:
    with serve_process(tmp_path) as (_, root):
        port = int(root.rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"port {port} is in use by another toolwire; stop it, or choose "):
            open_listener("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("192.0.2.1", "192.0.2.1 is not an address of this machine"),
        ("no-such-host.invalid", "unknown host 'no-such-host.invalid'"),
    ],
)
def test_address_that_is_not_available_is_explained(host: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_listener(host, 4000)


@pytest.mark.parametrize(
    ("options", "config", "reason"),
    [
        (["--host", "0.0.0.0"], "", "set server.keys"),
        ([], "[server]\nprot = 1", 'toolwire.toml:2:1: unknown key "prot" in [server] (did you mean "port"?)'),
        (["--model", "nobody"], "", "unknown model 'nobody'"),
        (
            [],
            "[server]\nport = 99999",
            "toolwire.toml:2:8: server.port: expected an integer from 0 to 65535, got 99999",
        ),
    ],
)
def test_invalid_configuration_is_a_one_line_error(
    tmp_path: Path, options: list[str], config: str, reason: str
) -> None:
    if config:
        (tmp_path / "toolwire.toml").write_text(config)
    with start_serve(tmp_path, "--port", "0", *options) as process:
        _, errors = process.communicate()
    assert process.returncode == 2
    assert reason in errors
    assert errors.count("\n") == 1


def test_signing_key_file_is_private(tmp_path: Path) -> None:
    with serve_process(tmp_path) as (_, root):
        httpx.post(f"{root}/v1/messages", json=MESSAGES_REQUEST, timeout=DEADLINE)
    path = tmp_path / "toolwire" / "seal.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(json.loads(f'"{path.read_text().strip()}"'))) == 32


def test_workers_share_state_that_outlives_them(tmp_path: Path) -> None:
    def went_on(root: str, previous: str | None) -> str:
        # A new connection each time, so that any worker may take it.
        body = {"model": "any-name", "input": "Say heliotrope.", "previous_response_id": previous}
        response = httpx.post(f"{root}/v1/responses", json=body, timeout=DEADLINE)
        assert response.status_code == 200, response.text
        id: str = response.json()["id"]
        return id

    last: str | None = None
    for _ in range(2):
        with serve_process(tmp_path, "--workers", "2") as (process, root):
            for _ in range(8):
                last = went_on(root, last)
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE) == 0
    path = tmp_path / "toolwire" / "state.db"
    assert path.stat().st_mode & 0o777 == 0o600
