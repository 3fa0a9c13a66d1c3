"""nginx in front of gateways, with the configuration of `deploy/nginx.conf` at other addresses."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.deadlines import DEADLINE, wait_until
from tests.support.paths import ROOT
from toolwire.gateway.providers.discovery import open_listener

GATEWAY_HEADER = "x-gateway"
"""The header of responses that names the gateway, only in tests."""
_SERVER = re.compile(r"^ +server gateway-\d+:4000 (.*);\n", re.MULTILINE)
_TEMPORARY_FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def find_nginx() -> str | None:
    """Return the path of nginx; None if it is not installed."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


@contextmanager
def serve_nginx(program: str, folder: Path, gateways: Sequence[str]) -> Iterator[str]:
    """Balance the gateways at these addresses (`HOST:PORT`); yield the root of the balancer."""
    with open_listener("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    path = folder / "nginx.conf"
    path.write_text(_adapt_config((ROOT / "deploy" / "nginx.conf").read_text(), folder, port, gateways))
    process = subprocess.Popen([program, "-c", path, "-p", folder, "-e", folder / "error.log"])
    root = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: process.poll() is not None or _is_ready(root))
        assert process.poll() is None, (folder / "error.log").read_text()
        yield root
    finally:
        process.terminate()
        process.wait()


def _adapt_config(config: str, folder: Path, port: int, gateways: Sequence[str]) -> str:
    """Return the deployed configuration with these addresses, and with all files in the folder."""
    found = _SERVER.search(config)
    assert found is not None
    servers = "".join(f"    server {address} {found[1]};\n" for address in gateways)
    config = config[: found.start()] + servers + _SERVER.sub("", config[found.start() :])
    config = config.replace("listen 4000", f"listen 127.0.0.1:{port}")
    config = config.replace("proxy_pass", f"add_header {GATEWAY_HEADER} $upstream_addr always;\n      proxy_pass", 1)
    folders = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in _TEMPORARY_FOLDERS)
    config = config.replace("http {", f"http {{\naccess_log off;\n{folders}", 1)
    return f"daemon off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n{config}"


def _is_ready(root: str) -> bool:
    """Return whether a gateway behind the balancer is alive."""
    try:
        return httpx.get(f"{root}/livez", timeout=DEADLINE).status_code == 200
    except httpx.TransportError:
        return False
