"""Mutations of an input as plain data, which a random engine draws and Hypothesis draws and shrinks.

A mutation is an operation, a position between 0 and 1, and a number that selects a value of the operation.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

TOKENS: tuple[bytes, ...] = (
    *(b"", b"\x00", b"\xff", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"\\ud83d", b"\\u0000"),
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b": ", b"data: ", b"event: ", b"data: [DONE]\n\n", b"id: 1\n"),
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"null", b"true", b"0", b"-", b"1e999", b"NaN", b"9" * 40),
    *(
        b"0\r\n\r\n",
        b"ffffffffffffffff\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"HTTP/1.1 200 ",
    ),
    *(b"[" * 200, b"{" * 50, b"A" * 300, b"%2e%2e%2f", b"../", b"?", b"#"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 2**63, 2**64, 10**30, "", " ", "x", "\u2028", "\U0001f600", "\x00", "a" * 200),
    *(
        [],
        {},
        [None],
        [[]],
        [{}],
        {"": None},
        {"type": "text"},
        {"type": "unknown"},
        {"type": None},
        [{"type": "text"}],
    ),
    *({"a/b~c": 1}, "{}", "[", '{"a": 1}', "data:image/png;base64,AAAA", "http://[", {"$ref": "#"}, ["x"] * 20),
)
MAX_MUTATIONS = 6


class Mutation(NamedTuple):
    operation: str
    position: float
    choice: int


def apply_mutations(seed: bytes, mutations: Sequence[Mutation], tokens: Sequence[bytes] = TOKENS) -> bytes:
    data = seed
    for mutation in mutations:
        if mutation.operation in ("insert", "overwrite"):
            data = _insert_token(data, mutation, tokens)
        else:
            data = _OPERATIONS[mutation.operation](data, mutation)
    return data


def draw_mutations(source: random.Random) -> list[Mutation]:
    count = source.randint(1, MAX_MUTATIONS)
    return [Mutation(source.choice(OPERATIONS), source.random(), source.randrange(1 << 16)) for _ in range(count)]


# ---- bytes


def _offset(data: bytes, mutation: Mutation) -> int:
    return int(mutation.position * (len(data) + 1))


def _span(data: bytes, mutation: Mutation) -> tuple[int, int]:
    start = _offset(data, mutation)
    return start, start + 1 + mutation.choice % 48


def _flip(data: bytes, mutation: Mutation) -> bytes:
    at = _offset(data, mutation)
    return data[:at] + bytes(byte ^ (1 << mutation.choice % 8) for byte in data[at : at + 1]) + data[at + 1 :]


def _insert_token(data: bytes, mutation: Mutation, tokens: Sequence[bytes]) -> bytes:
    """Insert one of the tokens, or overwrite bytes with it."""
    at, token = _offset(data, mutation), tokens[mutation.choice % len(tokens)]
    return data[:at] + token + data[at if mutation.operation == "insert" else at + len(token) :]


def _delete(data: bytes, mutation: Mutation) -> bytes:
    start, end = _span(data, mutation)
    return data[:start] + data[end:]


def _repeat(data: bytes, mutation: Mutation) -> bytes:
    start, end = _span(data, mutation)
    return data[:end] + data[start:end] * (1 + mutation.choice % 3) + data[end:]


def _truncate(data: bytes, mutation: Mutation) -> bytes:
    return data[: _offset(data, mutation)]


# ---- JSON: bodies, and the objects in the lines of a stream


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from _places(item, (*path, key))


def _change_json(change: Callable[[Any, Any, Mutation], None]) -> Callable[[bytes, Mutation], bytes]:
    """Apply an operation to one member of a JSON document, or of one line of a stream. Other input is unchanged."""

    def operate(data: bytes, mutation: Mutation) -> bytes:
        lines = data.split(b"\n") if b"\n" in data else [data]
        number = int(mutation.position * len(lines))
        head, _, body = lines[number].rpartition(b"data: ")
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return data
        places = [path for path in _places(document) if path]
        if not places:
            return data
        path = places[mutation.choice % len(places)]
        parent = document
        for key in path[:-1]:
            parent = parent[key]
        change(parent, path[-1], mutation)
        lines[number] = (b"data: " if head or lines[number] != body else b"") + json.dumps(document).encode()
        return b"\n".join(lines)

    return operate


def _value(mutation: Mutation) -> Any:
    return json.loads(json.dumps(VALUES[mutation.choice // 7 % len(VALUES)]))


def _replace_value(parent: Any, key: Any, mutation: Mutation) -> None:
    parent[key] = _value(mutation)


def _remove_value(parent: Any, key: Any, mutation: Mutation) -> None:
    del parent[key]


def _nest_value(parent: Any, key: Any, mutation: Mutation) -> None:
    for _ in range(1 + mutation.choice % 40):
        parent[key] = [parent[key]] if mutation.choice % 2 else {"a": parent[key]}


def _double_value(parent: Any, key: Any, mutation: Mutation) -> None:
    if isinstance(parent, list):
        parent.insert(key, parent[key])
    else:
        parent[f"{key}_more"] = parent[key]


def _add_value(parent: Any, key: Any, mutation: Mutation) -> None:
    if isinstance(parent, list):
        parent.append(_value(mutation))
    else:
        parent["unknown_member"] = _value(mutation)


_OPERATIONS: dict[str, Callable[[bytes, Mutation], bytes]] = {
    "flip": _flip,
    "delete": _delete,
    "repeat": _repeat,
    "truncate": _truncate,
    "replace_value": _change_json(_replace_value),
    "remove_value": _change_json(_remove_value),
    "nest_value": _change_json(_nest_value),
    "double_value": _change_json(_double_value),
    "add_value": _change_json(_add_value),
}
OPERATIONS = ("insert", "overwrite", *_OPERATIONS)
