"""Installation of the real agents from npm into a cache folder."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import msgspec

from toolwire.cli.agent_programs import AGENTS

NODE = 22
# npm runs no install scripts. Two of them only select the binary of this machine, which is completed here.
_SYSTEM = f"{platform.system().lower()}-{'arm64' if platform.machine() in ('arm64', 'aarch64') else 'x64'}"
_PROGRAMS = {
    "claude": f"@anthropic-ai/claude-code-{_SYSTEM}/claude",
    "opencode": f"opencode-{_SYSTEM}/bin/opencode",
}


def install_agents(cache: Path) -> str:
    """Install every agent, and a Node version that runs all of them; return the PATH."""
    path = os.environ["PATH"]
    if _node_version() < NODE:
        # Not the package `node`, which depends on its install script.
        path = f"{_package(cache / 'node', path, f'node-{_SYSTEM}@{NODE}') / f'node-{_SYSTEM}' / 'bin'}:{path}"
    modules = _package(cache / "agents", path, *(f"{agent.package}@latest" for agent in AGENTS.values()))
    programs = cache / "bin"
    programs.mkdir(exist_ok=True)
    for name, agent in AGENTS.items():
        link = programs / agent.executable
        link.unlink(missing_ok=True)
        link.symlink_to((modules / _PROGRAMS.get(name, f".bin/{agent.executable}")).resolve(strict=True))
    return f"{programs}:{path}"


def versions(cache: Path) -> dict[str, str]:
    """Return the version of each agent."""
    modules = cache / "agents" / "node_modules"
    return {
        name: msgspec.json.decode((modules / agent.package / "package.json").read_bytes())["version"]
        for name, agent in AGENTS.items()
    }


def _package(folder: Path, path: str, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    modules = folder / "node_modules"
    if not modules.exists():
        (folder / "package.json").write_text('{"private": true}')
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        environment = {**os.environ, "PATH": path}
        completed = subprocess.run(["npm", "install", *options, *names], cwd=folder, env=environment, check=False)
        if completed.returncode:
            shutil.rmtree(modules, ignore_errors=True)
            raise SystemExit(f"npm could not install {', '.join(names)}")
    return modules


def _node_version() -> int:
    if (node := shutil.which("node")) is None:
        return 0
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    return int(version.lstrip("v").partition(".")[0] or 0)
