"""Repairs of arguments, for those who ask for them: what a model surely meant, and nothing that has to be guessed.

JSON within a string where the schema wants an object or a list, `10.0` where it wants an integer, commas before a
closing bracket, and what Python writes in place of JSON: single quotes, True, False and None. A repair holds only if
the whole is valid after it, and each one is reported. Truncated arguments never come here.
"""

import json
import re
from collections.abc import Callable
from typing import Any

_DEEPEST = 64


def repaired(value: Any, schema: dict[str, Any], is_valid: Callable[[Any], bool]) -> tuple[Any, tuple[str, ...]]:
    """The value as it was meant, and what was done to it: nothing, if that does not make it valid."""
    mending = _Mending(schema)
    mended = mending.value(value, schema)
    if not mending.notes or not is_valid(mended):
        return value, ()
    return mended, tuple(mending.notes)


_TOKEN = re.compile(
    # A string without an end is taken to the end of the text: looking for its quote once more would be quadratic.
    r"""(?P<string>"(?:\\.|[^"\\])*"?)"""
    r"""|(?P<quoted>'(?:\\.|[^'\\])*'?)"""
    r"""|(?P<comma>,(?=\s*[}\]]))"""
    r"""|(?P<word>\b(?:True|False|None)\b)""",
    re.DOTALL,
)
_WORDS = {"True": "true", "False": "false", "None": "null"}
_ESCAPE = re.compile(r"""\\(.)|(")""", re.DOTALL)


def mend_json(text: str) -> tuple[str, tuple[str, ...]]:
    """Rewrite text that is almost JSON, and list what was done to it."""
    notes = dict[str, None]()

    def mend(found: re.Match[str]) -> str:
        match found.lastgroup:
            case "quoted" if len(found[0]) > 1 and found[0].endswith("'"):
                notes["a string in single quotes was read as a string"] = None
                return f'"{_ESCAPE.sub(_requote, found[0][1:-1])}"'
            case "comma":
                notes["a comma before a closing bracket was left out"] = None
                return ""
            case "word":
                notes[f"{found[0]} was read as {_WORDS[found[0]]}"] = None
                return _WORDS[found[0]]
            case _:
                return found[0]

    return _TOKEN.sub(mend, text), tuple(f"/: {note}" for note in notes)


def _requote(found: re.Match[str]) -> str:
    """An escape as JSON has it: `\\'` needs none there, and a double quote does."""
    if found[2]:
        return '\\"'
    return "'" if found[1] == "'" else found[0]


class _Mending:
    def __init__(self, root: dict[str, Any]) -> None:
        self.notes: list[str] = []
        self._root = root

    def value(self, value: Any, schema: Any, path: tuple[str, ...] = ()) -> Any:
        schema = _followed(schema, self._root)
        if not isinstance(schema, dict) or len(path) > _DEEPEST:
            return value
        kinds = _kinds(schema)
        if isinstance(value, str) and kinds & {"object", "array"} and "string" not in kinds:
            value = self._decoded(value, kinds, path)
        if isinstance(value, float) and "integer" in kinds and "number" not in kinds and value.is_integer():
            self._note(path, f"{value!r} was read as the integer that it is")
            return int(value)
        if isinstance(value, dict):
            inner = schema.get("properties")
            known = inner if isinstance(inner, dict) else {}
            others = schema.get("additionalProperties")
            return {name: self.value(one, known.get(name, others), (*path, name)) for name, one in value.items()}
        if isinstance(value, list):
            items = schema.get("items")
            return [self.value(one, items, (*path, str(place))) for place, one in enumerate(value)]
        return value

    def _decoded(self, value: str, kinds: set[str], path: tuple[str, ...]) -> Any:
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return value
        kind = "object" if isinstance(found, dict) else "array" if isinstance(found, list) else ""
        if kind not in kinds:
            return value
        self._note(path, f"JSON within a string was read as the {kind} that it is")
        return found

    def _note(self, path: tuple[str, ...], what: str) -> None:
        self.notes.append(f"/{'/'.join(path)}: {what}")


def _kinds(schema: dict[str, Any]) -> set[str]:
    kind = schema.get("type")
    return {kind} if isinstance(kind, str) else {one for one in kind or () if isinstance(one, str)}


def _followed(schema: Any, root: Any) -> Any:
    """What a local reference stands for."""
    for _ in range(_DEEPEST):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        found = root
        for step in reference[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        schema = found
    return None
