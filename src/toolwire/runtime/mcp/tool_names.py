"""Names of MCP tools for models: `server__tool`, in characters and length that every provider accepts.

1. Names are unique. A table maps them back to server and tool, because either may contain `__` itself.
2. A name that had to be changed or shortened, or is already in use, ends with a hash of both names.
3. A tool keeps its name for the lifetime of the table, even if other tools appear or disappear.
"""

import hashlib
import re
from collections.abc import Iterable

import msgspec

MAX_NAME_LENGTH = 63
"""Providers reject names longer than 64 characters."""

_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]")
_HASH_LENGTH = 8


class McpToolNames:
    """The names of all MCP tools of an agent. `reserved` names belong to its other tools."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._reserved = set(reserved)
        self._names: dict[tuple[str, str], str] = {}
        self._origins: dict[str, tuple[str, str]] = {}

    def name_for(self, server: str, tool: str) -> str:
        """Return the name that models see for a server's tool."""
        origin = (server, tool)
        if (known := self._names.get(origin)) is not None:
            return known
        name = next(
            candidate
            for candidate in _candidate_names(origin)
            if candidate not in self._reserved and candidate not in self._origins
        )
        self._names[origin] = name
        self._origins[name] = origin
        return name

    def origin(self, name: str) -> tuple[str, str] | None:
        """Return the server and its own name for the tool; None if the name is unknown."""
        return self._origins.get(name)


def _candidate_names(origin: tuple[str, str]) -> Iterable[str]:
    """Yield possible names in order of preference: the plain name if valid, then names with a hash."""
    joined = "__".join(origin)
    valid = _INVALID_CHARACTERS.sub("_", joined)
    if not (valid[0].isalpha() or valid[0] == "_"):  # Gemini requires a letter or underscore first
        valid = f"_{valid}"
    if valid == joined and len(valid) <= MAX_NAME_LENGTH:
        yield valid
    # As a JSON list, no two pairs of names can encode to the same text.
    digest = hashlib.sha256(msgspec.json.encode(origin)).hexdigest()
    for start in range(len(digest)):
        suffix = (digest[start:] + digest)[:_HASH_LENGTH]
        yield f"{valid[: MAX_NAME_LENGTH - _HASH_LENGTH - 1]}_{suffix}"
    yield from (
        f"{valid[: MAX_NAME_LENGTH - _HASH_LENGTH - 9]}_{digest[:_HASH_LENGTH]}{count:08x}" for count in range(2**32)
    )
