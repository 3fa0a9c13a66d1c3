"""Build the wheel and the source distribution, and try them in clean environments (`make test-install`).

Every Python from 3.11 on that is found is tried: wheel and source distribution without extras, with all commands, and
with each extra. `uvx --from .` is tried once. With `--compare`, other programs of the kind are installed by the same
means, and their sizes and times printed.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.clean_install.actions import find_problems, find_unnamed_extras, run, serving
from toolwire.installation import EXTRAS

ROOT = Path(__file__).parents[2]
LIMIT_SIZE = 70_000_000
"""Bytes that the default install may take."""

COMPARED = {"litellm[proxy]": "litellm", "llm": "llm"}
"""Packages to compare with, and the command of each."""


def write(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def find_pythons() -> dict[str, str]:
    """Return an interpreter for each version from 3.11 on: of pyenv, and on the path."""
    candidates = [str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))]
    candidates += [found for minor in range(11, 30) if (found := shutil.which(f"python3.{minor}"))]
    pythons: dict[str, str] = {}
    for candidate in [sys.executable, *candidates]:
        question = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
        asked = subprocess.run([candidate, "-c", question], capture_output=True, text=True, check=False)
        version = asked.stdout.strip()
        if asked.returncode == 0 and tuple(map(int, version.split("."))) >= (3, 11):
            pythons.setdefault(version, candidate)
    return dict(sorted(pythons.items(), key=lambda item: int(item[0].partition(".")[2])))


def create_environment(python: str, folder: Path, *requirements: str) -> tuple[Path, float]:
    """Create an environment with these requirements; return its folder of programs, and the seconds of the install."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    started = time.monotonic()
    subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "install", "-qq", *requirements], check=True)
    return folder / "bin", time.monotonic() - started


def folder_size(folder: Path) -> int:
    """Return the bytes of all files below a folder, without pip and compiled modules."""
    return sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts and "pip" not in path.parts
    )


def build(folder: Path) -> tuple[Path, Path]:
    """Build both distributions; return the wheel and the source distribution."""
    programs, _ = create_environment(sys.executable, folder / "build", "build", "uv")
    subprocess.run(
        [str(programs / "python"), "-m", "build", "--outdir", str(folder / "dist"), str(ROOT)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (wheel,), (source,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return wheel, source


def try_default(version: str, python: str, package: Path, folder: Path) -> Iterator[str]:
    """Try an install without extras."""
    programs, seconds = create_environment(python, folder, str(package))
    size = folder_size(folder / "lib")
    write(f"{version} {package.name}: {size / 1e6:.0f} MB in {seconds:.0f} s")
    if size > LIMIT_SIZE:
        yield f"{size} bytes are more than {LIMIT_SIZE}"
    home = folder / "home"
    home.mkdir()
    yield from find_problems(str(programs / "toolwire"), home)
    yield from find_unnamed_extras(str(programs / "toolwire"), home)


def try_extra(version: str, python: str, package: Path, extra: str, folder: Path) -> Iterator[str]:
    """Try an install with one extra."""
    programs, seconds = create_environment(python, folder, f"{package}[{extra}]")
    write(f"{version} {package.name}[{extra}]: {folder_size(folder / 'lib') / 1e6:.0f} MB in {seconds:.0f} s")
    question = f"from toolwire.installation import has_extra; assert has_extra({extra!r})"
    code, output = run([str(programs / "python"), "-c", question], folder)
    if code != 0:
        yield f"the extra is not complete: {output}"
    code, output = run([str(programs / "toolwire"), "ask", "hi"], folder)
    if code != 0:
        yield f"ask: {output}"


def processor_time() -> float:
    """Return the processor seconds of all processes that ended, which hardly depend on what else the machine does."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure_start(command: list[str], folder: Path) -> float:
    """Return the processor seconds in which a command starts, the best of three, after its modules were compiled."""
    times = []
    for _ in range(4):
        started = processor_time()
        code, output = run(command, folder)
        times.append(processor_time() - started)
        assert code == 0, output
    return min(times[1:])


def compare(python: str, wheel: Path, folder: Path) -> None:
    """Print size, install time and start time of the default install and of other programs, with a warm cache."""
    for package, command in {str(wheel): "toolwire", **COMPARED}.items():
        for attempt in ("download", "warm"):
            environment = folder / f"compare-{command}-{attempt}"
            used = processor_time()
            programs, seconds = create_environment(python, environment, package)
            used = processor_time() - used
            if attempt == "warm":
                start = measure_start([str(programs / command), "--help"], environment)
                size = folder_size(environment / "lib") / 1e6
                name = Path(package).name
                install = f"installed in {seconds:.0f} s ({used:.0f} s of processor time)"
                write(f"{name}: {size:.0f} MB, {install}, {command} --help in {start:.2f} s of processor time")
            shutil.rmtree(environment)


def try_uvx(folder: Path) -> Iterator[str]:
    """Try `uvx --from . toolwire serve`, with pip's settings of where packages are."""
    programs = folder / "build" / "bin"
    settings = subprocess.run(
        [str(programs / "python"), "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    found = {
        line.partition("=")[0].rpartition(".")[2]: line.partition("=")[2].strip("'")
        for line in settings.stdout.splitlines()
    }
    names = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS"}
    environment = os.environ | {name: found[key] for key, name in names.items() if key in found}
    environment |= {"HOME": str(folder), "UV_CACHE_DIR": str(folder / "uv")}
    environment |= {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    started = time.monotonic()
    command = [
        str(programs / "uvx"),
        "--python",
        sys.executable,
        "--from",
        str(ROOT),
        "toolwire",
        "serve",
        "--port",
        "0",
    ]
    try:
        with serving(command, folder, environment):
            write(f"uvx --from . toolwire serve: starts after {time.monotonic() - started:.0f} s, without a cache")
    except AssertionError as error:
        yield f"uvx: {error}"


def main() -> int:
    """Try everything, print each problem, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", help="only this version, such as 3.13")
    parser.add_argument("--extra", action="append", choices=[*EXTRAS, "none"], help="only this extra")
    parser.add_argument("--compare", action="store_true", help="only compare with other programs")
    options = parser.parse_args()
    pythons = {name: path for name, path in find_pythons().items() if name in (options.python or [name])}
    problems: list[str] = []

    def report(subject: str, found: Iterable[str]) -> None:
        """Print each problem at once, and keep it for the summary."""
        for text in found:
            problems.append(f"{subject}: {text}")
            write(f"problem: {problems[-1]}")

    with tempfile.TemporaryDirectory(prefix="toolwire-install-") as name:
        folder = Path(name)
        wheel, source = build(folder)
        write(f"built {wheel.name} ({wheel.stat().st_size / 1e6:.1f} MB) and {source.name}")
        if options.compare:
            compare(next(iter(pythons.values())), wheel, folder)
            return 0
        for version, python in pythons.items():
            for package in (wheel, source):
                subject, environment = f"{version} {package.name}", folder / "environment"
                report(subject, try_default(version, python, package, environment))
                shutil.rmtree(environment)
                for extra in options.extra or EXTRAS:
                    if extra != "none":
                        report(f"{subject}[{extra}]", try_extra(version, python, package, extra, environment))
                        shutil.rmtree(environment)
        report("uvx", try_uvx(folder))
    write(f"{len(problems)} problems with Python {', '.join(pythons)}")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
