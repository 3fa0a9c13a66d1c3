"""Errors of the configuration, with the key and its position in the file."""

import json

from toolwire.canonical.errors import ToolwireError
from toolwire.codec.toml_text import toml_key
from toolwire.gateway.config.positions import KeyPath


class ConfigError(ToolwireError):
    """An invalid configuration; the message names the file and the key."""


class KeyProblem(Exception):
    """A key that is unknown, missing, or has an invalid value. `Document.error` adds the file and the position."""

    def __init__(self, path: KeyPath, message: str, *, at_key: bool = False, names_key: bool = False) -> None:
        """`at_key` locates the key instead of its value; `names_key` says that the message names the key itself."""
        super().__init__(message if names_key or not path else f"{format_key(path)}: {message}")
        self.path = path
        self.at_key = at_key


class UnknownKey(KeyProblem):
    """A key that its table doesn't have."""


def format_key(path: KeyPath) -> str:
    """Return a path as a dotted key with indexes, such as `routes[0].match`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{_quote(part)}" for part in path]
    return "".join(parts).removeprefix(".")


def format_place(path: KeyPath) -> str:
    """Return the place of a key, for messages: `in [limits]`."""
    return f"in {format_table(path)}" if path else "at the top level"


def format_table(path: KeyPath) -> str:
    """Return the header of a table, such as `[limits]` or `[[routes.backends]]`."""
    header = ".".join(_quote(part) for part in path if isinstance(part, str))
    return f"[[{header}]]" if isinstance(path[-1], int) else f"[{header}]"


def _quote(name: str) -> str:
    """Return a name as a TOML key, quoted and escaped where necessary: it may control the terminal."""
    return toml_key(name) if name.isprintable() else json.dumps(name)
