"""The measured programs: how to start each one, and its resource usage."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks.gateway.programs import stop
from benchmarks.gateway.traffic import ANTHROPIC, CHAT

CLIENT_KEY = "sk-" + "0123456789abcdef" * 4
# LiteLLM takes most of a minute on a busy machine.
START_SECONDS = 180
PAGE = os.sysconf("SC_PAGE_SIZE")

TOOLWIRE = """
[server]
port = {port}
[providers.up]
protocol = "openai-chat"
base_url = "http://127.0.0.1:{upstream}/v1"
api_key = "key-of-the-upstream"
[[routes]]
provider = "up"
"""

# A baseline: persistent connections, buffered bodies, unbuffered responses, no log.
_NGINX = """
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 16m;
  client_body_buffer_size 1m;
  keepalive_requests 1000000;
  upstream up {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://up;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""

# `hosted_vllm` is LiteLLM's provider for Chat Completions servers; its `openai` would use Responses here.
_LITELLM = """
model_list:
  - model_name: "*"
    litellm_params:
      model: "hosted_vllm/*"
      api_base: http://127.0.0.1:{upstream}/v1
      api_key: key-of-the-upstream
litellm_settings:
  telemetry: false
general_settings:
  master_key: {key}
"""


class Usage(Struct):
    """Nanoseconds that a process tree ran, and that it was ready to run but waited for its core."""

    ran: int
    waited: int

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(self.ran - other.ran, self.waited - other.waited)


class Peer(Struct):
    name: str
    port: int
    process: subprocess.Popen[bytes]
    # Paths of the client protocols it serves with a Chat Completions upstream.
    paths: tuple[str, ...] = (ANTHROPIC, CHAT)
    headers: tuple[str, ...] = (f"authorization: Bearer {CLIENT_KEY}",)

    def usage(self) -> Usage:
        return usage_of(self.process.pid)

    def megabytes(self) -> float:
        """Return resident memory of the process tree."""
        pages = [int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) for pid in tree(self.process.pid)]
        return sum(pages) * PAGE / 1e6

    def descriptors(self) -> int:
        return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in tree(self.process.pid))


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    children: list[str] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        children += path.read_text("ascii").split()
    return [pid, *(descendant for child in children for descendant in tree(int(child)))]


def usage_of(pid: int) -> Usage:
    """Return the usage of a process tree in nanoseconds of the scheduler, whose other counters have steps of 10 ms.

    The CPU clock of a process includes threads that have ended, which `/proc/*/task/*/schedstat` does not.
    """
    ran = waited = 0
    for member in tree(pid):
        with contextlib.suppress(OSError):  # the process has ended
            ran += time.clock_gettime_ns(_cpu_clock(member))
        for path in Path(f"/proc/{member}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):  # the thread has ended
                waited += int(path.read_text("ascii").split()[1])
    return Usage(ran, waited)


def _cpu_clock(pid: int) -> int:
    """Return the id of a process's CPU clock, as clock_getcpuclockid(3) does on Linux."""
    return (~pid << 3) | 2


def toolwire(folder: Path, upstream: int, name: str = "toolwire", more: str = "", command: Sequence[str] = ()) -> Peer:
    """Start the gateway; `command` replaces its program."""
    port, config = free_port(), folder / f"{name}.toml"
    config.write_text(TOOLWIRE.format(port=port, upstream=upstream) + more, encoding="ascii")
    program = command or [str(Path(sys.executable).with_name("toolwire"))]
    return Peer(name, port, start(name, [*program, "serve", "--config", str(config)], port, folder))


def journal(folder: Path, upstream: int) -> Peer:
    """Return the gateway with its journal enabled."""
    return toolwire(folder, upstream, "journal", f'[journal]\nenabled = true\npath = "{folder}/journal.db"\n')


def nginx(folder: Path, upstream: int, path: str) -> Peer | None:
    executable = shutil.which("nginx", path=f"{path}:/usr/sbin:/usr/local/sbin")
    if executable is None:
        return None
    port, config = free_port(), folder / "nginx.conf"
    config.write_text(_NGINX.format(port=port, upstream=upstream, folder=folder), encoding="ascii")
    command = [executable, "-p", str(folder), "-e", str(folder / "nginx-error.log"), "-c", str(config)]
    return Peer("nginx", port, start("nginx", command, port, folder))


def litellm(folder: Path, upstream: int, path: str) -> Peer | None:
    executable = shutil.which("litellm", path=path)
    if executable is None:
        return None
    port, config = free_port(), folder / "litellm.yaml"
    config.write_text(_LITELLM.format(upstream=upstream, key=CLIENT_KEY), encoding="ascii")
    command = [executable, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    return Peer("litellm", port, start("litellm", command, port, folder))


def rosetta(folder: Path, upstream: int, path: str) -> Peer | None:
    executable = shutil.which("llm-rosetta-gateway", path=path)
    if executable is None:
        return None
    provider = {"api_key": "key-of-the-upstream", "base_url": f"http://127.0.0.1:{upstream}/v1"}
    port, config = free_port(), folder / "rosetta.jsonc"
    _write_json(
        config,
        {
            "providers": {"openai_chat": provider},
            "models": {"bench": "openai_chat"},
            "server": {"open_on_no_keys": True},
        },
    )
    command = [executable, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--data-dir", str(folder / "rosetta"), "--log-level", "warning"]
    return Peer("rosetta", port, start("rosetta", command, port, folder))


def claude_code_router(folder: Path, upstream: int, path: str) -> Peer | None:
    executable = shutil.which("ccr", path=path)
    if executable is None:
        return None
    port, home = free_port(), folder / "ccr"
    provider = {"name": "up", "api_base_url": f"http://127.0.0.1:{upstream}/v1/chat/completions"}
    provider |= {"api_key": "key-of-the-upstream", "models": ["bench"]}  # type: ignore[dict-item]
    settings = {"PORT": port, "LOG": False, "Providers": [provider], "Router": {"default": "up,bench"}}
    (home / ".claude-code-router").mkdir(parents=True)
    _write_json(home / ".claude-code-router/config.json", settings)
    process = start("ccr", [executable, "start"], port, folder, env={"HOME": str(home)})
    return Peer("ccr", port, process, paths=(ANTHROPIC,))


def portkey(folder: Path, upstream: int, path: str) -> Peer | None:
    executable = shutil.which("gateway", path=path)
    if executable is None or "portkey" not in str(Path(executable).resolve()):
        return None
    port = free_port()
    process = start("portkey", [executable, f"--port={port}", "--headless"], port, folder, {"NODE_ENV": "production"})
    headers = (f"authorization: Bearer {CLIENT_KEY}", "x-portkey-provider: openai")
    host = f"x-portkey-custom-host: http://127.0.0.1:{upstream}/v1"
    return Peer("portkey", port, process, paths=(CHAT,), headers=(*headers, host))


def smg(folder: Path, upstream: int, path: str) -> Peer | None:
    executable = shutil.which("smg", path=path)
    if executable is None:
        return None
    port = free_port()
    command = [executable, "launch", "--backend", "openai", "--worker-urls", f"http://127.0.0.1:{upstream}"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
    return Peer("smg", port, start("smg", command, port, folder), paths=(CHAT,))


OTHERS: dict[str, Callable[[Path, int, str], Peer | None]] = {
    "nginx": nginx,
    "litellm": litellm,
    "rosetta": rosetta,
    "ccr": claude_code_router,
    "portkey": portkey,
    "smg": smg,
}


class StartError(Exception):
    """A program did not start."""


def _write_json(path: Path, value: Any) -> None:
    path.write_bytes(msgspec.json.encode(value))


def start(
    name: str,
    command: Sequence[str],
    port: int,
    folder: Path,
    env: dict[str, str] | None = None,
    *,
    seconds: float = START_SECONDS,
) -> "subprocess.Popen[bytes]":
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=os.environ | (env or {}),
        )
    answers = False
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            if process.poll() is not None or (answers := _answers(port)):
                break
            time.sleep(0.1)
    finally:  # a signal may end the benchmark meanwhile
        if not answers:
            stop(process)
    if not answers:
        raise StartError(f"{name} did not start:\n{log.read_text(errors='replace')[-2000:]}")
    return process


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
