"""The fixture that shows each row of the wire facts, and the check that it does."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from tests.support.paths import SHARED
from tests.support.samples.fixture_files import PROTOCOLS, fixture_folder, fixture_path, read_fixture

WIRE_FACTS = SHARED / "protocols"
WIRE_FACT_FILES = {
    "anthropic": "anthropic_messages.md",
    "openai-chat": "openai_chat.md",
    "openai-responses": "openai_responses.md",
    "gemini": "gemini_generate.md",
    "gemini-interactions": "gemini_interactions.md",
    "ollama": "ollama.md",
    "openrouter": "openrouter.md",
}
# The tables that list parts of bodies and streams: start of the section heading, and the kind of row.
TABLES = {
    "anthropic": {"2. ": "field", "3.2 ": "block", "13. ": "error"},
    "openai-chat": {"2. ": "field", "3. ": "role"},
    "openai-responses": {"2. ": "field", "3.2 ": "item", "4. ": "tool", "Events ": "event"},
    "gemini": {"2. ": "field", "3. ": "part", "Functions": "tool", "5. ": "mode", "7. ": "result", "11. ": "error"},
    "gemini-interactions": {"2. ": "field", "3. ": "step", "9. ": "status", "10. ": "event"},
    "ollama": {"2. ": "field"},
    "openrouter": {"2. ": "field", "3. ": "entry"},
}
# Words in the first cells of the tables that are values or headers, not rows.
NOT_ROWS = frozenset(
    {
        "type",
        "auto",
        "default",
        "flex",
        "scale",
        "priority",
        "ultrafast",
        "standard_only",
        "standard",
        "fast",
        "text",
        "audio",
        "user_profile_id",
        "workspace_id",
        "betas",
        "id",
    }
)


class Row(NamedTuple):
    file: str
    evidence: str


def _read_coverage(protocol: str) -> dict[str, Row]:
    rows = {}
    for line in (fixture_folder(protocol) / "covers.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, _, evidence = line.partition(" = ")
            file, _, evidence = evidence.partition(": ")
            rows[name] = Row(file, evidence)
    return rows


COVERAGE = {protocol: _read_coverage(protocol) for protocol in PROTOCOLS}


def is_shown(protocol: str, row: Row) -> bool:
    path = fixture_path(protocol, *row.file.split("/"))
    if row.evidence.startswith("~"):
        return row.evidence[1:].encode().decode("unicode_escape").encode() in path.read_bytes()
    conditions = row.evidence.split(" ")
    body = read_fixture(path)
    documents = list(_events(body)) if isinstance(body, bytes) else [body]
    return any(all(_holds(node, condition) for condition in conditions) for node in _objects(documents))


def _events(wire: bytes) -> Iterator[Any]:
    """Return the payloads of an event stream; without any `data:`, each line is one."""
    text = wire.decode()
    has_data_lines = re.search(r"^data:", text, re.MULTILINE) is not None
    for frame in re.split(r"\r\n\r\n|\n\n|\r\r", text) if has_data_lines else text.splitlines():
        lines = frame.replace("\r\n", "\n").replace("\r", "\n")
        data = "\n".join(re.findall(r"^data: ?(.*)$", lines, re.MULTILINE)) if has_data_lines else lines
        if data.startswith("{"):
            try:
                yield json.loads(data)
            except ValueError:
                continue  # a frame that the fixture cuts on purpose


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        yield from _objects(child)


def _holds(node: Any, condition: str) -> bool:
    path, equals, expected = condition.partition("=")
    for step in path.split("."):
        if not isinstance(node, dict) or step not in node:
            return False
        node = node[step]
    if not equals:
        return node is not None
    return expected.encode().decode("unicode_escape") == (node if isinstance(node, str) else json.dumps(node))


def wire_fact_rows(protocol: str) -> Iterator[str]:
    """Return the names in the first cells of the tables, if the wire facts are beside the project."""
    path = WIRE_FACTS / WIRE_FACT_FILES[protocol]
    lines = path.read_text().splitlines()
    kind = None
    for line, following in pairwise([*lines, ""]):
        if line.startswith("#"):
            heading = line.lstrip("# ")
            kind = next((kind for start, kind in TABLES[protocol].items() if heading.startswith(start)), None)
        elif kind is not None and line.startswith("|") and not following.startswith("|---"):
            cell = line.split("|")[1]
            for name in _event_names(cell) if "`response." in cell else _names(cell):
                short = name.partition(".")[0] if kind == "field" else name
                if short not in NOT_ROWS:
                    yield f"{kind} {short}"


def _names(cell: str) -> Iterator[str]:
    """Return the quoted words, each without its arguments; in a table without quotes, all words."""
    if "`" not in cell:
        yield from re.findall(r"\w+", cell) if re.fullmatch(r" \w+( ?/ ?\w+)* ", cell) else ()
    for quoted in re.findall(r"`([^`]+)`", cell):
        for word in re.split(r"[({\[:*]", quoted)[0].split():
            if match := re.match(r"[\w.]+", word):
                yield match.group()


def _event_names(cell: str) -> Iterator[str]:
    """Expand the shorthand `response.x.delta` / `.done` and `response.x.added/delta/done`."""
    stem = ""
    for quoted in re.findall(r"`([^`]+)`", cell):
        for word in quoted.split("/"):
            name = word if word.startswith(("response.", "error")) else f"{stem}.{word.lstrip('.')}"
            stem = name.rpartition(".")[0]
            yield name
