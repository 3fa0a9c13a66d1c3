"""Arguments with null for what is absent, as a complete dialect asks for them: as their own schema has them again."""

from typing import Any

import msgspec
from msgspec import Raw

from .references import References

LIMIT_READ = 10_000


def without_nulls(arguments: str, schema: Raw) -> str:
    """The arguments without each null that stands for an optional property; as they are if there is none."""
    try:
        value, tree = msgspec.json.decode(arguments), msgspec.json.decode(schema)
        removed = _Reading(References(tree)).strip(value, tree)
        return msgspec.json.encode(value).decode() if removed else arguments
    except (msgspec.DecodeError, RecursionError):
        return arguments


class _Reading:
    """A value beside its schema, whose references are followed so often only."""

    def __init__(self, references: References) -> None:
        self._references = references
        self._left = LIMIT_READ

    def _within(self, schema: Any) -> bool:
        self._left -= 1
        return self._left >= 0 and isinstance(schema, dict)

    def strip(self, value: Any, schema: Any) -> int:
        """How many nulls were taken out."""
        if not isinstance(value, dict | list) or not self._within(schema):
            return 0
        removed = 0
        if (target := self._references.resolve(schema.get("$ref"))) is not None:
            removed += self.strip(value, target.value)
        for keyword in ("allOf", "anyOf", "oneOf"):
            removed += sum(self.strip(value, branch) for branch in _list(schema.get(keyword)))
        if isinstance(value, list):
            return removed + sum(self.strip(one, schema.get("items")) for one in value)
        declared = schema.get("properties")
        for name, inner in declared.items() if isinstance(declared, dict) else ():
            if name not in value:
                continue
            if value[name] is not None:
                removed += self.strip(value[name], inner)
            elif name not in _list(schema.get("required")) and not self._is_nullable(inner):
                del value[name]
                removed += 1
        return removed

    def _is_nullable(self, schema: Any) -> bool:
        """Whether null is a value of its own."""
        if not self._within(schema):
            return True
        if (target := self._references.resolve(schema.get("$ref"))) is not None:
            return self._is_nullable(target.value)
        if schema.get("nullable") is True or None in _list(schema.get("enum")) or schema.get("const", 0) is None:
            return True
        branches = [branch for keyword in ("anyOf", "oneOf") for branch in _list(schema.get(keyword))]
        if branches:
            return any(self._is_nullable(branch) for branch in branches)
        if isinstance(schema.get("enum"), list) or "const" in schema:
            return False
        words = schema.get("type")
        return words is None or words == "null" or "null" in _list(words)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
