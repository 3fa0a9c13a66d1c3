"""What a server's tool is called to a model: `server__tool`, in signs and length that every provider takes.

1. Two tools never have one name, and a name leads back by table, never by splitting it: servers and tools may have `__`
   in their own names.
2. Where the name had to be changed or cut, or is taken, a hash of both names ends it.
3. A tool keeps its name for as long as the table lives, whoever comes and goes.
"""

import hashlib
import re
from collections.abc import Iterable

import msgspec

MAX_NAME_LENGTH = 63
"""Providers refuse more than 64."""

_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]")
_HASH_LENGTH = 8


class McpToolNames:
    """`taken` are a client's own tools: they keep their names."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._reserved = set(reserved)
        self._names: dict[tuple[str, str], str] = {}
        self._origins: dict[str, tuple[str, str]] = {}

    def name_for(self, server: str, tool: str) -> str:
        origin = (server, tool)
        if (known := self._names.get(origin)) is not None:
            return known
        made = next(one for one in _candidate_names(origin) if one not in self._reserved and one not in self._origins)
        self._names[origin] = made
        self._origins[made] = origin
        return made

    def origin(self, name: str) -> tuple[str, str] | None:
        """The server, and the name that it knows its tool by."""
        return self._origins.get(name)


def _candidate_names(origin: tuple[str, str]) -> Iterable[str]:
    wanted = "__".join(origin)
    plain = _INVALID_CHARACTERS.sub("_", wanted)
    if not (plain[0].isalpha() or plain[0] == "_"):  # Gemini wants a letter first
        plain = f"_{plain}"
    if plain == wanted and len(plain) <= MAX_NAME_LENGTH:
        yield plain
    # Both names as a list: no two pairs give the same text.
    digest = hashlib.sha256(msgspec.json.encode(origin)).hexdigest()
    for start in range(len(digest)):
        suffix = (digest[start:] + digest)[:_HASH_LENGTH]
        yield f"{plain[: MAX_NAME_LENGTH - _HASH_LENGTH - 1]}_{suffix}"
    yield from (
        f"{plain[: MAX_NAME_LENGTH - _HASH_LENGTH - 9]}_{digest[:_HASH_LENGTH]}{count:08x}" for count in range(2**32)
    )
