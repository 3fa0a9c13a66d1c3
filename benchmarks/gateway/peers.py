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
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from benchmarks.gateway.load import CLIENT_KEY

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")

_TOOLWIRE = """
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


class Peer(Struct):
    name: str
    port: int
    process: subprocess.Popen[bytes]

    @property
    def translates(self) -> bool:
        return self.name != "nginx"

    def seconds(self) -> float:
        """Return CPU seconds of the process tree."""
        return sum(map(_processor_seconds, tree(self.process.pid)))

    def megabytes(self) -> float:
        """Return resident memory of the process tree."""
        pages = [int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) for pid in tree(self.process.pid)]
        return sum(pages) * PAGE / 1e6

    def descriptors(self) -> int:
        return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in tree(self.process.pid))


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    return [pid, *(descendant for child in children for descendant in tree(int(child)))]


def _processor_seconds(pid: int) -> float:
    """Return CPU seconds from the kernel's nanosecond counter; the other counter has steps of 10 ms."""
    with contextlib.suppress(OSError):
        threads = [path.read_text("ascii") for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        if threads:
            return sum(int(thread.split()[0]) for thread in threads) / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def toolwire(folder: Path, upstream: int, name: str = "toolwire", more: str = "") -> Peer:
    port, config = free_port(), folder / f"{name}.toml"
    config.write_text(_TOOLWIRE.format(port=port, upstream=upstream) + more, encoding="ascii")
    command = [str(Path(sys.executable).with_name("toolwire")), "serve", "--config", str(config)]
    return _started(name, command, port, folder)


def journal(folder: Path, upstream: int) -> Peer:
    """Return the gateway with its journal enabled."""
    return toolwire(folder, upstream, "journal", f'[journal]\nenabled = true\npath = "{folder}/journal.db"\n')


def nginx(folder: Path, upstream: int) -> Peer | None:
    executable_path = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if executable_path is None:
        return None
    port, config = free_port(), folder / "nginx.conf"
    config.write_text(_NGINX.format(port=port, upstream=upstream, folder=folder), encoding="ascii")
    command = [executable_path, "-p", str(folder), "-e", str(folder / "nginx-error.log"), "-c", str(config)]
    return _started("nginx", command, port, folder)


def litellm(folder: Path, upstream: int, executable: str | None) -> Peer | None:
    executable_path = shutil.which(executable or "litellm")
    if executable_path is None:
        return None
    port, config = free_port(), folder / "litellm.yaml"
    config.write_text(_LITELLM.format(upstream=upstream, key=CLIENT_KEY), encoding="ascii")
    command = [executable_path, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    return _started("litellm", command, port, folder, patience=120)


def _started(name: str, command: list[str], port: int, folder: Path, patience: float = 20) -> Peer:
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder)
    answers = False
    try:
        for _ in range(int(patience * 10)):
            if process.poll() is not None or (answers := _answers(port)):
                break
            time.sleep(0.1)
    finally:  # a signal may end the benchmark meanwhile
        if not answers:
            process.kill()
            process.wait()
    if not answers:
        raise SystemExit(f"{name} did not start:\n{log.read_text(errors='replace')[-2000:]}")
    return Peer(name, port, process)


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


@contextlib.contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Run processes started inside on this core; None leaves it to the system."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
