"""The files in `deploy/`: the configuration loads, nginx balances real gateways, and the image's steps work.

Checks of programs that are not installed are skipped; `make test-deployment` installs those that pip has.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.deadlines import DEADLINE
from tests.support.gateway.process import serve_process
from tests.support.paths import ROOT
from tests.support.servers.nginx import find_nginx, serve_nginx
from toolwire.canonical.response import Usage
from toolwire.gateway.config import parse_config
from toolwire.gateway.observability.access_log import RequestRecord
from toolwire.gateway.observability.metrics import Metrics, Scoreboard

DEPLOY = ROOT / "deploy"
TOOLS = Path(os.environ.get("TOOLWIRE_DEPLOYMENT", "")) / "bin"
ENVIRONMENT = {
    "TOOLWIRE_KEY": "a-long-secret",
    "TOOLWIRE_SEAL_KEY": "another-secret",
    "TOOLWIRE_DATABASE": "postgresql://toolwire:x@database/toolwire",
    "OPENAI_API_KEY": "sk-1",
    "ANTHROPIC_API_KEY": "sk-2",
}


def find_tool(name: str) -> str:
    """Return the path of a program; skip the test if it is not installed."""
    found = shutil.which(name, path=f"{TOOLS}:{os.environ['PATH']}:/usr/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def test_configuration_loads_with_the_variables_that_compose_passes() -> None:
    config = parse_config((DEPLOY / "toolwire.toml").read_text(), ENVIRONMENT)
    assert (config.server.keys, config.state.url) == (("a-long-secret",), ENVIRONMENT["TOOLWIRE_DATABASE"])
    compose = (DEPLOY / "compose.yaml").read_text()
    assert set(re.findall(r"^ {4}([A-Z_]+):", compose.partition("services:")[0], re.MULTILINE)) == set(ENVIRONMENT)


def test_image_installs_what_exists() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (?!--)(.*) \S+$", dockerfile, re.MULTILINE) for name in line.split()]
    assert "src" in " ".join(copied)
    assert all((ROOT / name).exists() for name in copied)
    assert "\nUSER 10001\n" in dockerfile


def test_dashboard_shows_metrics_that_the_gateway_has() -> None:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    metrics = Metrics(Scoreboard())
    record = RequestRecord(id="ex_1", method="POST", path="/", started_at=0.0, client="anthropic", provider="p")
    record.usage = Usage(input_tokens=1, output_tokens=1)
    metrics.count_request(record)
    metrics.count_call("p", "m", "valid")
    metrics.count_failover("p", "timeout")
    metrics.count_cost("p", 0.1)
    metrics.set_breaker("p", "m", is_open=True)
    rendered = metrics.render().decode()
    names = {name for query in queries for name in re.findall(r"toolwire_\w+", query)}
    assert len(names) > 8
    assert {name for name in names if not re.search(rf"^{name}[ {{]", rendered, re.MULTILINE)} == set()


def test_dockerfile_has_no_lint() -> None:
    hadolint = find_tool("hadolint")
    result = subprocess.run([hadolint, DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_compose_file_names_files_that_exist() -> None:
    python = find_tool("python")
    program = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))"
    result = subprocess.run(
        [python, "-c", program, DEPLOY / "compose.yaml"], capture_output=True, text=True, check=False
    )
    if "No module named 'yaml'" in result.stderr:
        pytest.skip("PyYAML is not installed")
    compose: dict[str, Any] = json.loads(result.stdout)
    gateways = [service for service in compose["services"].values() if "build" in service]
    assert len(gateways) == 2
    for service in gateways:
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (DEPLOY / source).is_file()


@pytest.fixture
def balanced(tmp_path: Path) -> Iterator[tuple[str, list[Any]]]:
    """Two gateways behind nginx with the file that is deployed, at other addresses."""
    nginx = find_nginx()
    if nginx is None:
        pytest.skip("nginx is not installed")
    with ExitStack() as stack:
        processes, addresses = [], []
        for number in (1, 2):
            home = tmp_path / f"gateway-{number}"
            home.mkdir()
            process, root = stack.enter_context(serve_process(home))
            processes.append(process)
            addresses.append(root.removeprefix("http://"))
        yield stack.enter_context(serve_nginx(nginx, tmp_path, addresses)), processes


def test_nginx_balances_streams_and_goes_on_without_a_killed_gateway(balanced: tuple[str, list[Any]]) -> None:
    root, processes = balanced
    body = {"model": "simulated", "max_tokens": 99, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}

    def ask() -> str:
        response = httpx.post(f"{root}/v1/messages", json=body, timeout=DEADLINE)
        assert response.status_code == 200
        return response.text

    assert all("message_stop" in ask() for _ in range(4))
    processes[0].kill()
    processes[0].wait(DEADLINE)
    assert all("message_stop" in ask() for _ in range(4))


def test_steps_of_the_image_install_a_gateway_that_starts(tmp_path: Path) -> None:
    """Run the installation of the Dockerfile in an empty folder, as no container engine is needed for it."""
    if not os.environ.get("TOOLWIRE_DEPLOYMENT"):
        pytest.skip("takes a minute: make test-deployment")
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    requirement = re.search(r"pip install --no-cache-dir '(.*?)'", dockerfile)
    assert requirement is not None
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src")
    environment = tmp_path / "toolwire"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    install = [environment / "bin" / "pip", "install", "--quiet", requirement[1]]
    subprocess.run(install, check=True, cwd=tmp_path)
    version = subprocess.run(
        [environment / "bin" / "toolwire", "serve", "--help"], capture_output=True, text=True, check=True
    )
    assert "--workers" in version.stdout
    import_check = "import psycopg, genai_prices, opentelemetry.sdk"
    subprocess.run([environment / "bin" / "python", "-c", import_check], check=True)
