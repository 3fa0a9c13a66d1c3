"""The two framings of a stream: events, or one JSON array that grows; and arguments that arrive by their paths."""

import re
from typing import Any

import msgspec
from msgspec import UNSET

from toolwire.codec.sse import LIMIT_FRAME, SseSplitter, only_text
from toolwire.protocols.gemini.wire import PartialShape

_MARKS = re.compile(rb'["\\{}]')
_STEPS = re.compile(r"""\.?([^.\[\]'"]+)|\[(\d+)\]|\[(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\]""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_LIMIT_ELEMENTS = 100_000
_LIMIT_DEPTH = 200


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
    """Arguments that arrive value by value, each with its path, and texts in pieces; written as they arrive.

    Paths come in the order of the text that the model writes, so that what one of them left is closed. One that goes
    back there could only be told by taking back what was told: that is an error of the stream.
    """

    def __init__(self) -> None:
        self._open: list[_Container] = []
        self._path: list[str | int] = []
        self._told: set[str] = set()
        self._quoting = False

    def add(self, piece: PartialShape) -> str:
        """What is new in the text."""
        path = "" if piece.json_path is UNSET else piece.json_path
        steps = _steps(path)
        if not steps:
            return ""
        if piece.string_value is not UNSET:
            text = _json(piece.string_value)[1:-1]
            if self._quoting and steps == self._path:
                return text
            if not text and path in self._told:
                return ""  # it only says that the text there is complete
            opened = self._go(steps) + '"' + text
            self._quoting = True
        elif piece.number_value is not UNSET:
            opened = self._go(steps) + str(piece.number_value, "utf-8")
        elif piece.bool_value is not UNSET:
            opened = self._go(steps) + _json(piece.bool_value)
        elif piece.null_value is not UNSET:
            opened = self._go(steps) + "null"
        else:
            return ""
        self._told.add(path)
        return opened

    def close(self) -> str:
        """The end of the text."""
        return self._leave(0) if self._open else "{}"

    def _go(self, steps: list[str | int]) -> str:
        """Leave what the path is not in, and open what it leads through."""
        shared = 0
        while shared < min(len(steps), len(self._path)) - 1 and steps[shared] == self._path[shared]:
            shared += 1
        out = [self._leave(shared + 1)]
        for place in range(max(len(self._open) - 1, 0), len(steps)):
            if place == len(self._open):
                self._open.append(_Container(array=isinstance(steps[place], int) and place > 0))
                out.append("[" if self._open[-1].array else "{")
            out.append(self._open[place].step(steps[place]))
        self._path = steps
        return "".join(out)

    def _leave(self, depth: int) -> str:
        closing = '"' if self._quoting else ""
        self._quoting = False
        while len(self._open) > depth:
            closing += "]" if self._open.pop().array else "}"
        return closing


class _Container:
    """An object or array that is being written, and what it has so far."""

    def __init__(self, *, array: bool) -> None:
        self.array = array
        self._keys: set[str] = set()
        self._count = 0

    def step(self, step: str | int) -> str:
        comma = "," if self._count else ""
        if not self.array:
            key = str(step)
            if key in self._keys:
                raise ValueError(f"arguments that go back to {key!r}, which was complete")
            self._keys.add(key)
            self._count += 1
            return f"{comma}{_json(key)}:"
        if not isinstance(step, int) or step < self._count:
            raise ValueError(f"arguments that go back to {step!r} in an array of {self._count}")
        skipped, self._count = step - self._count, step + 1
        if skipped > _LIMIT_ELEMENTS:
            raise ValueError(f"an array of more than {_LIMIT_ELEMENTS} elements")
        return comma + "null," * skipped


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = [
        int(index) if index else _ESCAPED.sub(r"\1", one or two) or name
        for name, index, one, two in _STEPS.findall(path.removeprefix("$"))
    ]
    if len(steps) > _LIMIT_DEPTH:
        raise ValueError(f"arguments of more than {_LIMIT_DEPTH} levels")
    return steps


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
