"""`--json` of every command that lists or reports: one shape each, as the commands page documents it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcp.scripted_server import tool_definition
from tests.support.mcp.toolsets import SCRIPTED_SERVER
from tests.support.paths import ROOT
from tests.support.runtime.cli_process import run_toolwire
from tests.support.runtime.journal_records import make_batch, make_record
from toolwire.journal.store import open_record_store

PAGE = (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8")
REQUEST = json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]})
CONFIG = """
[journal]
path = "journal.db"
[mcp.servers.down]
command = "nonexistent-prog"
[mcp.servers.off]
command = "nonexistent-prog"
enabled = false
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run and a journal."""
    folder = tmp_path_factory.mktemp("json")
    (folder / "toolwire.toml").write_text(CONFIG, encoding="utf-8")
    run_toolwire(folder, "ask", "hello", "--no-tools")
    store = open_record_store(folder / "journal.db", max_age_days=1e6, max_bytes=1_000_000)
    store.add(make_batch([make_record(1), make_record(2)]))
    store.close()
    return folder


# The arguments, the exit code, and the members of the object, or of each object of the list or the lines.
SHAPES: list[tuple[list[str], int, set[str]]] = [
    (["check", "--protocol", "anthropic"], 0, {"ok", "findings"}),
    (["doctor"], 0, {"ok", "findings"}),
    (["mcp", "list"], 1, {"name", "state", "version", "error", "tools"}),
    (["mcp", "list", "--no-tools"], 1, {"name", "state", "version", "error"}),
    (["runs", "list"], 0, {"id", "at", "state", "model", "workspace", "prompt"}),
    (
        ["runs", "show", "last"],
        0,
        {"id", "at", "state", "model", "workspace", "prompt", "turns", "waiting", "in_doubt", "ended"},
    ),
    (["runs", "replay", "last"], 0, {"run", "differences"}),
    (["config", "show"], 0, {"files", "settings", "error"}),
    (["config", "path"], 0, {"kind", "path", "state"}),
    (["models"], 0, {"models"}),
    (["keys", "create", "alice"], 0, {"name", "secret", "hash", "admin"}),
    (["usage"], 0, {"usage", "in_progress", "unsettled"}),
    (["protocols", "--from", "gemini", "--to", "ollama"], 0, {"protocols", "features", "pairs"}),
    (["hosts", "groq"], 0, {"name", "protocol"}),
    (["journal", "tail"], 0, {"id", "at", "client", "path", "toolwire"}),
    (["journal", "show", "last"], 0, {"id", "at", "client", "path", "toolwire"}),
]


@pytest.mark.parametrize(("arguments", "code", "members"), SHAPES, ids=[" ".join(shape[0]) for shape in SHAPES])
def test_json_has_the_documented_shape(arguments: list[str], code: int, members: set[str], folder: Path) -> None:
    done = run_toolwire(folder, *arguments, "--json", stdin=REQUEST)
    assert done.code == code, done.err
    is_exact = arguments[0] not in ("journal", "hosts")  # optional members are left out there
    for item in read_json(done.out):
        assert set(item) == members if is_exact else set(item) >= members
    assert all(f"`{member}`" in PAGE for member in members)


def read_json(text: str) -> list[dict[str, Any]]:
    """Return the objects of a JSON text: one, a list of them, or one for each line."""
    try:
        value = json.loads(text)
    except ValueError:
        value = [json.loads(line) for line in text.splitlines()]
    items = value if isinstance(value, list) else [value]
    assert items
    return items


def test_findings_of_check_and_doctor_are_complete(folder: Path) -> None:
    done = run_toolwire(folder, "check", "--protocol", "anthropic", "--json", stdin='{"model": "m"}')
    report = json.loads(done.out)
    assert (done.code, report["ok"]) == (1, False)
    assert set(report["findings"][0]) == {"level", "rule", "path", "message"}
    findings = json.loads(run_toolwire(folder, "doctor", "--json").out)["findings"]
    assert {"ok": True, "subject": "configuration", "detail": str(folder / "toolwire.toml"), "advice": ""} in findings


def test_mcp_list_names_states_errors_and_tools(folder: Path) -> None:
    arguments = json.dumps(["-S", str(SCRIPTED_SERVER), json.dumps({"tools": [tool_definition("echo")]})])
    config = f"{CONFIG}[mcp.servers.math]\ncommand = {json.dumps(sys.executable)}\nargs = {arguments}\n"
    (folder / "mcp.toml").write_text(config, encoding="utf-8")
    done = run_toolwire(folder, "mcp", "list", "--json", "--config", "mcp.toml")
    servers = {server["name"]: server for server in json.loads(done.out)}
    assert {name: server["state"] for name, server in servers.items()} == {
        "off": "disabled",
        "down": "down",
        "math": "up",
    }
    assert servers["down"]["error"] == "command not found: nonexistent-prog"
    assert set(servers["math"]["tools"][0]) == {"name", "description"}
