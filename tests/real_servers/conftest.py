"""Real servers for the tests of this folder, started once each."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_CALL_GRAMMAR = r"""
root ::= "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"" [A-Za-z]{1,12} "\"}}\n</tool_call>"
"""
_OPTIONS = {
    "default": [],
    "agents": ["--context", "65536"],
    "strict-system": ["--template", str(_HERE / "strict_system.jinja")],
    "text-calls": ["--text-calls", "--grammar", _CALL_GRAMMAR],
}


@pytest.fixture(scope="session")
def vendor_python() -> Path:
    """Return the Python of the environment that has the servers and the vendors' packages."""
    folder = os.environ.get("TOOLWIRE_SERVERS")
    if folder is None:
        pytest.fail("run `make test-servers`, which installs the servers")
    return Path(folder) / "bin" / "python"


@pytest.fixture(scope="session")
def llama(vendor_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Return a function that starts a llama.cpp server of a kind, unless it runs, and returns its address."""
    addresses: dict[str, str] = {}
    with ExitStack() as stack:

        def address(kind: str) -> str:
            if kind not in addresses:
                log = stack.enter_context((tmp_path_factory.mktemp("llama") / "stderr").open("w"))
                command = [str(vendor_python), str(_HERE / "llama_server.py"), *_OPTIONS[kind]]
                server = stack.enter_context(
                    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
                )
                stack.callback(server.terminate)
                assert server.stdout is not None
                addresses[kind] = server.stdout.readline().strip()
                assert addresses[kind], Path(log.name).read_text()
            return addresses[kind]

        yield address
