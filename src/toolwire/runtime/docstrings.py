"""What a docstring says of a function and of its parameters, in any of the three common styles."""

import re

from msgspec import Struct

_SPHINX = re.compile(r"^:param\s+(?:[\w\[\], |.]+\s+)?\*{0,2}(?P<name>\w+):\s*(?P<text>.*)$")
_GOOGLE = re.compile(r"^\s+\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)$")
_NUMPY = re.compile(r"^(?P<name>\w+)\s*(?::.*)?$")
_HEADS = re.compile(r"^(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?):?\s*$")
_TAKES = ("Args", "Arguments", "Parameters")


class Described(Struct, frozen=True):
    summary: str
    parameters: dict[str, str]


def described(text: str) -> Described:
    """The text before the first section, and one line or paragraph for each parameter."""
    lines = text.splitlines()
    summary: list[str] = []
    found: dict[str, list[str]] = {}
    section, numpy, current = "", False, None
    for place, line in enumerate(lines):
        head = _HEADS.match(line)
        if head is not None:
            section, current = head[1], None
            numpy = place + 1 < len(lines) and set(lines[place + 1].strip()) == {"-"}
        elif (sphinx := _SPHINX.match(line)) is not None:
            section, current = "sphinx", sphinx["name"]
            found[current] = [sphinx["text"]]
        elif line.startswith(":"):
            section, current = "sphinx", None
        elif not section:
            summary.append(line)
        elif (
            section in _TAKES and (named := (_NUMPY if numpy else _GOOGLE).match(line)) and not _goes_on(line, current)
        ):
            current = named["name"]
            found[current] = [] if numpy else [named["text"]]
        elif current is not None and line.strip():
            found[current].append(line.strip())
    texts = {name: " ".join(part for part in parts if part).strip() for name, parts in found.items()}
    return Described("\n".join(summary).strip(), {name: said for name, said in texts.items() if said})


def _goes_on(line: str, current: str | None) -> bool:
    """A line that is indented further than a name would be."""
    return current is not None and line.startswith(" " * 8)
