"""The words for types in Google's older schemas, which JSON Schema writes in lower case."""

from typing import Any

import msgspec
from msgspec import Raw

_WORDS = ("string", "number", "integer", "boolean", "array", "object", "null")
# Capitals in the documents, the numbers of its enumeration from clients that write those.
_SPELLINGS: dict[str, dict[Any, str]] = {
    "upper": {word.upper(): word for word in _WORDS},
    "number": dict(enumerate(_WORDS, 1)),
}
_MAPS = ("properties", "defs")
_ONES = ("items", "additionalProperties")
_LIMIT = 20_000


def json_types(schema: Raw) -> tuple[Raw, str | None]:
    """The schema with types in JSON Schema's words, and which others it had; as it is where they are not all alike."""
    if b'"type"' not in bytes(schema):
        return schema, None
    tree = msgspec.json.decode(schema)
    nodes = [node for node in _walk(tree) if "type" in node]
    for name, words in _SPELLINGS.items():
        if nodes and all(_is_word(node["type"], words) for node in nodes):
            for node in nodes:
                node["type"] = words[node["type"]]
            return Raw(msgspec.json.encode(tree)), name
    return schema, None


def _is_word(value: Any, words: dict[Any, str]) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and value in words


def own_types(schema: Raw, name: str) -> Raw:
    """The same schema in Google's words again."""
    words = {word: own for own, word in _SPELLINGS[name].items()}
    tree = msgspec.json.decode(schema)
    for node in _walk(tree):
        if isinstance(kind := node.get("type"), str):
            node["type"] = words.get(kind, kind)
    return Raw(msgspec.json.encode(tree))


def _walk(tree: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    waiting = [tree]
    while waiting and len(found) < _LIMIT:
        node = waiting.pop()
        if isinstance(node, dict):
            found.append(node)
            waiting += [node[name] for name in _ONES if name in node]
            for name in _MAPS:
                waiting += node[name].values() if isinstance(node.get(name), dict) else ()
            waiting += node["anyOf"] if isinstance(node.get("anyOf"), list) else ()
    return found
