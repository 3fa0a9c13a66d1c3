"""Values as TOML text."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_key(name: str) -> str:
    """Return the key, quoted if TOML requires it."""
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)


def toml_value(value: Any) -> str:
    """Format a value as TOML: strings, numbers and arrays as in JSON, objects as inline tables."""
    if isinstance(value, Mapping):
        pairs = [f"{toml_key(key)} = {toml_value(inner)}" for key, inner in value.items() if inner is not None]
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(inner) for inner in value)}]"
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007F")
