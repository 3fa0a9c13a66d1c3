"""`toolwire simulate` as a subprocess."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from tests.support.deadlines import DEADLINE
from toolwire.cli import main
from toolwire.protocols import PROTOCOLS

TOOLWIRE = [sys.executable, "-c", "from toolwire.cli import main; main()"]


@contextmanager
def run_simulator(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Start the command, and yield it with the lines it printed until it listens."""
    with subprocess.Popen(
        [*TOOLWIRE, "simulate", *arguments, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        count = 1 + (len(PROTOCOLS) if arguments[0] == "all" else 1)
        try:
            yield process, [process.stdout.readline().rstrip("\n") for _ in range(count)]
        finally:
            process.kill()


def test_printed_curl_commands_work_and_ctrl_c_stops() -> None:
    with run_simulator("all") as (process, (where, *lines)):
        assert re.fullmatch(r"all at http://127\.0\.0\.1:\d+", where)
        assert len(lines) == len(PROTOCOLS)
        for line in lines:
            tried = subprocess.run(
                [*shlex.split(line), "-s", "--retry", "5", "--retry-connrefused", "-w", "\n%{http_code}"],
                capture_output=True,
                text=True,
                timeout=DEADLINE,
                check=True,
            )
            body, _, status = tried.stdout.rpartition("\n")
            assert status == "200", body
            assert "Hi" in json.dumps(json.loads(body))
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 0
        assert process.stderr is not None
        assert process.stderr.read() == "stopped\n"


def test_port_in_use_is_a_one_line_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, ["simulate", "anthropic", "--port", str(port)])
    assert result.exit_code == 2
    reason = f"port {port} is in use by another program; stop it, or choose another with --port"
    assert result.output == f"Error: can't listen on 127.0.0.1:{port}: {reason}\n"


def test_invalid_script_is_a_one_line_error(tmp_path: Path) -> None:
    path = tmp_path / "turns.toml"
    path.write_text("[[turns]]\ntxet = 'Hello.'\n")
    result = CliRunner().invoke(main, ["simulate", "anthropic", "--port", "0", "--script", str(path)])
    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    assert "txet" in result.output
    assert "turns[0]" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing", "--port", "0"], "unknown protocol 'nothing'"),
        (["anthropic", "--port", "0", "--script", "/nowhere.toml"], "can't read /nowhere.toml"),
    ],
)
def test_bad_input_is_rejected(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, ["simulate", *arguments])
    assert result.exit_code == 2
    assert words in result.output


def test_profile_refuses_what_the_host_refuses() -> None:
    body = {"model": "m", "messages": [{"role": "developer", "content": "Be brief."}]}
    with run_simulator("openai-chat", "--profile", "deepseek") as (_, (where, _)):
        answer = httpx.post(f"{where.split()[-1]}/v1/chat/completions", json=body, timeout=DEADLINE)
    assert answer.status_code == 400
    assert "unknown variant `developer`" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("openai-chat", "--profile", "deepsek"), "unknown host 'deepsek' (did you mean \"deepseek\"?)"),
        (("openai-chat", "--profile", "zzz"), "unknown host 'zzz'; expected one of openai, azure, deepseek"),
        (("gemini", "--profile", "mistral"), "no profile of mistral for gemini; it has one for openai-chat"),
    ],
)
def test_unknown_profiles_are_refused(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(main, ["simulate", *arguments, "--port", "0"])
    assert result.exit_code == 2
    assert message in result.output
