"""A text that matches a regular expression: the shortest that its syntax offers, or None where that is no match."""

import re

_ESCAPES = {"d": "0", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a", "n": "\n", "t": "\t", "r": "\r"}
_NOTHING = "bBAZzG"
_CANDIDATES = "aA0-_ .~"
_MOST = 10_000
_COUNT = re.compile(r"\{(\d+)(,\d*)?\}")
_GROUP = re.compile(r"\?(?::|P?<\w+>)")


def matching(pattern: str, shortest: int = 0) -> str | None:
    """`shortest`: where the pattern has no length of its own, at least so long."""
    for often in (0, shortest):
        try:
            text = _Sample(pattern, min(often, _MOST)).alternatives()
            if len(text) >= shortest and re.search(pattern, text):
                return text
        except (re.error, ValueError, IndexError, RecursionError):
            return None
    return None


class _Sample:
    """Reads a pattern from left to right. `often` is how many times to take what may be repeated without end."""

    def __init__(self, pattern: str, often: int) -> None:
        self._rest = pattern
        self._often = often

    def alternatives(self) -> str:
        """The first of several."""
        first = self._sequence()
        while self._rest[:1] == "|":
            self._take(1)
            self._sequence()
        return first

    def _take(self, size: int) -> str:
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def _sequence(self) -> str:
        made: list[str] = []
        while self._rest and self._rest[0] not in "|)":
            atom = self._atom()
            made.append(atom * self._times())
        return "".join(made)

    def _times(self) -> int:
        least = 1
        if self._rest[:1] in ("*", "+", "?"):
            sign = self._take(1)
            least = 0 if sign == "?" else max(self._often, sign == "+")
        elif (count := _COUNT.match(self._rest)) is not None:
            self._take(count.end())
            least = int(count[1])
            if count[2] == ",":
                least = max(least, self._often)
        else:
            return least
        if self._rest[:1] in ("?", "+"):
            self._take(1)
        return min(least, _MOST)

    def _atom(self) -> str:
        match self._take(1):
            case "(":
                return self._group()
            case "[":
                return self._class()
            case "\\":
                letter = self._take(1)
                return "" if letter in _NOTHING else _ESCAPES.get(letter, letter)
            case "^" | "$":
                return ""
            case ".":
                return "a"
            case literal:
                return literal

    def _group(self) -> str:
        if self._rest[:1] == "?":
            plain = _GROUP.match(self._rest)
            if plain is None:
                raise ValueError("a look at what is around it")
            self._take(plain.end())
        inside = self.alternatives()
        self._take(1)
        return inside

    def _class(self) -> str:
        edge = self._rest.index("]", 2 if self._rest[:1] == "^" else 1)
        while self._rest[edge - 1] == "\\":
            edge = self._rest.index("]", edge + 1)
        inside = self._take(edge + 1)[:-1]
        if inside[:1] == "^":
            return next(letter for letter in _CANDIDATES if re.match(f"[{inside}]", letter))
        return _ESCAPES.get(inside[1], inside[1]) if inside[0] == "\\" else inside[0]
