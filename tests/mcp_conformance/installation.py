"""Installation of the conformance suite and third-party servers from npm into a cache folder."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import msgspec

NODE = 22
SUITE = "@modelcontextprotocol/conformance"
SERVERS = ("@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-filesystem")
_SUITE_VERSION = "0.2.0-alpha.12"
_SYSTEM = f"{platform.system().lower()}-{'arm64' if platform.machine() in ('arm64', 'aarch64') else 'x64'}"


def install_suite(cache: Path) -> str:
    """Install the suite and a Node version that runs it; return the PATH."""
    path = os.environ["PATH"]
    if _node_version() < NODE:
        # Not the package `node`, which depends on its install script; npm runs none here.
        path = f"{_package(cache / 'node', f'node-{_SYSTEM}@{NODE}') / f'node-{_SYSTEM}' / 'bin'}:{path}"
    _package(cache / "suite", f"{SUITE}@{_SUITE_VERSION}", *SERVERS)
    return path


def program(cache: Path, package: str) -> Path:
    return cache / "suite" / "node_modules" / package / "dist" / "index.js"


def version(cache: Path, package: str) -> str:
    package_json = msgspec.json.decode((cache / "suite" / "node_modules" / package / "package.json").read_bytes())
    return str(package_json["version"])


def _package(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    modules = folder / "node_modules"
    if not modules.exists():
        (folder / "package.json").write_text('{"private": true}')
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        if subprocess.run(["npm", "install", *options, *names], cwd=folder, check=False).returncode:
            shutil.rmtree(modules, ignore_errors=True)
            raise SystemExit(f"npm could not install {', '.join(names)}")
    return modules


def _node_version() -> int:
    if (node := shutil.which("node")) is None:
        return 0
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    return int(version.lstrip("v").partition(".")[0] or 0)
