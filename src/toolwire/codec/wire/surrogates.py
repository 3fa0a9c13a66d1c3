"""Lone surrogates in JSON text: `\\ud83d` alone is half of a character that a program cut in two.

JSON parsers of providers reject them, so a client whose history holds one could never go on.
"""

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

from toolwire.canonical.errors import DecodeError, Direction, Loss
from toolwire.codec.wire.reader import escape_pointer

LIMIT_REPORTED = 100
"""Strings with lone surrogates that are reported."""

_ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_LONE = re.compile("[\ud800-\udfff]")
_REASON = "half of a character (a lone surrogate) sent as U+FFFD"

T = TypeVar("T")


def decode_repaired(decode: Callable[[bytes], T], body: bytes, direction: Direction) -> tuple[T, bytes, list[Loss]]:
    """Decode a body, with U+FFFD in place of lone surrogates if it has any.

    Return the decoded value, the body that was decoded, and the replacements as losses.
    """
    try:
        return decode(body), body, []
    except DecodeError:
        if not (pointers := _find_lone_surrogates(body)):
            raise
    repaired = _ESCAPES.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], body)
    losses = [
        Loss(severity="warning", kind="approximated", path=pointer, reason=_REASON, direction=direction)
        for pointer in pointers
    ]
    return decode(repaired), repaired, losses


def _find_lone_surrogates(body: bytes) -> list[str]:
    """Return the pointers of strings and names with lone surrogates; none if the body is not JSON."""
    try:
        tree = json.loads(body, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return []
    pointers: list[str] = []
    pending: list[tuple[str, Any]] = [("", tree)]
    while pending and len(pointers) < LIMIT_REPORTED:
        pointer, value = pending.pop()
        if isinstance(value, str):
            pointers += [pointer] if _LONE.search(value) else []
        elif isinstance(value, list):
            pending += [(f"{pointer}/{index}", value[index]) for index in range(len(value) - 1, -1, -1)]
        elif isinstance(value, dict):
            pointers += [pointer] if any(map(_LONE.search, value)) else []
            named = [(f"{pointer}/{escape_pointer(name)}", child) for name, child in value.items()]
            pending += reversed([(name, child) for name, child in named if not _LONE.search(name)])
    return pointers
