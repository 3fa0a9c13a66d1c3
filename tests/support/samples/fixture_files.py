"""The fixtures of the project: bodies and streams written from the wire facts, one file per case.

`tests/fixtures/<protocol>/` holds, by kind: `requests`, `responses`, `streams` (a response and a stream of the same
name are the same response), `broken_streams` (they fail or end early), `errors` (named by status), `endpoints`
(responses of minor endpoints), `rejected` (a request and the provider's error), `conversation.json` (one complete tool
cycle) and `covers.txt` (the file that shows each row of the wire facts).
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[2] / "fixtures"
PROTOCOLS = ("anthropic", "openai-chat", "openai-responses", "gemini", "gemini-interactions", "ollama", "openrouter")
KINDS = ("requests", "responses", "streams", "broken_streams", "errors", "endpoints", "rejected")


def fixture_folder(protocol: str) -> Path:
    return FIXTURES / protocol.replace("-", "_")


def fixtures(protocol: str, kind: str) -> list[tuple[str, Any]]:
    """Return fresh copies of all fixtures of a kind by name: parsed bodies, or the bytes of streams."""
    return [(path.stem, read_fixture(path)) for path in _paths(protocol, kind)]


def fixture(protocol: str, kind: str, name: str) -> Any:
    return read_fixture(fixture_path(protocol, kind, name))


def fixture_path(protocol: str, kind: str, name: str) -> Path:
    """Return the file of a fixture, whatever the stream framing of its protocol."""
    return next(path for path in _paths(protocol, kind) if path.stem == name)


def body_and_stream_pairs(protocol: str) -> list[tuple[str, Any, bytes]]:
    """Return the responses that exist both as a body and as a stream."""
    streams = dict(fixtures(protocol, "streams"))
    return [(name, body, streams[name]) for name, body in fixtures(protocol, "responses") if name in streams]


def tool_cycle_fixture(protocol: str) -> dict[str, Any]:
    """Return one tool cycle: `request`, `response`, the client's `outputs`, and the resulting `next_request`."""
    cycle: dict[str, Any] = read_fixture(fixture_folder(protocol) / "conversation.json")
    return cycle


def error_status(name: str) -> int:
    """Return the HTTP status of an error fixture, from its name."""
    return int(name.partition("_")[0])


def read_fixture(path: Path) -> Any:
    return json.loads(path.read_bytes()) if path.suffix == ".json" else path.read_bytes()


@cache
def _paths(protocol: str, kind: str) -> tuple[Path, ...]:
    if kind not in KINDS:
        raise ValueError(f"no kind of fixture: {kind}")
    return tuple(sorted((fixture_folder(protocol) / kind).glob("*.*")))
