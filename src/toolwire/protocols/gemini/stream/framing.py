"""The two framings of a stream: events, or one JSON array that grows; and arguments that arrive by their paths."""

import re
from typing import Any

import msgspec
from msgspec import UNSET

from toolwire.codec.sse import LIMIT_FRAME, SseSplitter, only_text
from toolwire.protocols.gemini.wire import PartialShape

_MARKS = re.compile(rb'["\\{}]')
_STEPS = re.compile(r"""\.?([^.\[\]'"]+)|\[(\d+)\]|\[['"]((?:[^'"\\]|\\.)*)['"]\]""")
_LIMIT_ELEMENTS = 100_000


class Splitter:
    """Takes bytes, gives each whole chunk of either framing; the first byte that is no space tells which it is."""

    def __init__(self) -> None:
        self._inner: SseSplitter | ObjectSplitter | None = None

    def feed(self, data: bytes) -> list[bytes]:
        if self._inner is None:
            data = data.lstrip()
            if not data:
                return []
            self._inner = ObjectSplitter() if data[:1] in b"[{" else SseSplitter()
        return self._inner.feed(data)

    def close(self) -> list[bytes]:
        return [] if self._inner is None else self._inner.close()


class ObjectSplitter:
    """The objects in a stream of JSON, whatever is between them. A body that is one error comes like that, too."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def feed(self, data: bytes) -> list[bytes]:
        found: list[bytes] = []
        start = 0
        place = 0
        if self._escaped and data:
            self._escaped, place = False, 1
        while (mark := _MARKS.search(data, place)) is not None:
            place = mark.end()
            sign = mark[0]
            if self._quoted:
                if sign == b"\\":
                    self._escaped = place == len(data)
                    place += 1
                elif sign == b'"':
                    self._quoted = False
            elif sign == b'"':
                self._quoted = True
            elif sign == b"{":
                if self._depth == 0:
                    start = mark.start()
                self._depth += 1
            elif sign == b"}" and self._depth:
                self._depth -= 1
                if self._depth == 0:
                    found.append(only_text(b"".join((*self._pieces, data[start:place]))))
                    self._pieces, self._size = [], 0
                    start = place
        if self._depth:
            self._keep(data[start:])
        return found

    def _keep(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > LIMIT_FRAME:
            raise ValueError(f"a frame of more than {LIMIT_FRAME} bytes")

    def close(self) -> list[bytes]:
        """What was left is no whole object, and whoever reads it will say so."""
        rest = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return [rest] if rest else []


class Arguments:
    """Arguments that arrive value by value, each with its path, and texts in pieces.

    They are told when they are complete: a later path may belong anywhere before.
    """

    def __init__(self) -> None:
        self._root: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}

    def add(self, piece: PartialShape) -> None:
        path = "$" if piece.json_path is UNSET else piece.json_path
        if piece.string_value is not UNSET:
            self._texts.setdefault(path, []).append(piece.string_value)
            if len(self._texts[path]) > 1:
                return
            self._put(path, self._texts[path])
        elif piece.number_value is not UNSET:
            self._put(path, piece.number_value)
        elif piece.bool_value is not UNSET:
            self._put(path, piece.bool_value)
        elif piece.null_value is not UNSET:
            self._put(path, None)

    def _put(self, path: str, value: Any) -> None:
        steps = [
            int(index) if index else quoted or name for name, index, quoted in _STEPS.findall(path.removeprefix("$"))
        ]
        node: Any = self._root
        for place, step in enumerate(steps):
            last = place == len(steps) - 1
            following: Any = value if last else [] if isinstance(steps[place + 1], int) else {}
            if isinstance(node, dict):
                key = str(step)
                node = node.setdefault(key, _Leaf(value) if last else following)
            elif isinstance(node, list) and isinstance(step, int):
                if step > _LIMIT_ELEMENTS:
                    raise ValueError(f"an array of more than {_LIMIT_ELEMENTS} elements")
                node.extend([None] * (step + 1 - len(node)))
                if node[step] is None:
                    node[step] = _Leaf(value) if last else following
                node = node[step]
            else:
                return

    def text(self) -> str:
        return msgspec.json.encode(_plain(self._root)).decode()


class _Leaf:
    """A value, or the pieces of a text; never to be looked into for further steps."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _plain(tree: Any) -> Any:
    if isinstance(tree, _Leaf):
        return "".join(tree.value) if isinstance(tree.value, list) else tree.value
    if isinstance(tree, dict):
        return {key: _plain(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_plain(value) for value in tree]
    return tree
