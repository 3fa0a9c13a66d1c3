"""Coverage of the wire formats by the fixtures: each field, block or event, and the fixture that contains it.

Each folder of fixtures lists its rows in `covers.txt`.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.support.samples.fixture_files import PROTOCOLS, fixture_folder, fixture_path, read_fixture


class Row(NamedTuple):
    """A fixture and the evidence in it for one element of the wire format."""

    file: str
    evidence: str


def _read_coverage(protocol: str) -> dict[str, Row]:
    """Read `covers.txt` of a protocol: lines of the form `ELEMENT = FILE: EVIDENCE`."""
    rows = {}
    for line in (fixture_folder(protocol) / "covers.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, _, proof = line.partition(" = ")
            file, _, evidence = proof.partition(": ")
            rows[name] = Row(file, evidence)
    return rows


COVERAGE = {protocol: _read_coverage(protocol) for protocol in PROTOCOLS}


def is_shown(protocol: str, row: Row) -> bool:
    """Whether the fixture contains the evidence: raw text after `~`, or an object that meets every condition."""
    path = fixture_path(protocol, *row.file.split("/"))
    if row.evidence.startswith("~"):
        return row.evidence[1:].encode().decode("unicode_escape").encode() in path.read_bytes()
    conditions = row.evidence.split(" ")
    body = read_fixture(path)
    documents = list(_events(body)) if isinstance(body, bytes) else [body]
    return any(all(_holds(node, condition) for condition in conditions) for node in _objects(documents))


def _events(wire: bytes) -> Iterator[Any]:
    """Yield the payloads of an SSE stream, or of NDJSON if there is no `data:` line."""
    text = wire.decode()
    named = re.search(r"^data:", text, re.MULTILINE) is not None
    for frame in re.split(r"\r\n\r\n|\n\n|\r\r", text) if named else text.splitlines():
        lines = frame.replace("\r\n", "\n").replace("\r", "\n")
        data = "\n".join(re.findall(r"^data: ?(.*)$", lines, re.MULTILINE)) if named else lines
        if data.startswith("{"):
            try:
                yield json.loads(data)
            except ValueError:
                continue  # a frame that the fixture truncates on purpose


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every JSON object at any depth."""
    if isinstance(value, dict):
        yield value
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        yield from _objects(child)


def _holds(node: Any, condition: str) -> bool:
    """Whether an object meets `PATH` (present) or `PATH=VALUE`."""
    path, equals, expected = condition.partition("=")
    for step in path.split("."):
        if not isinstance(node, dict) or step not in node:
            return False
        node = node[step]
    if not equals:
        return node is not None
    return expected.encode().decode("unicode_escape") == (node if isinstance(node, str) else json.dumps(node))
