"""Glob patterns for paths: `*` and `?` within a name, `**` for any folders, `[a-z]`, `{a,b}`.

They become regular expressions, which are matched in time linear in the path.
"""

from functools import lru_cache
from typing import Any

from toolwire.runtime.toolset import ToolFault

from .patterns import compiled, escape

LONGEST = 1000
_MAGIC = frozenset("*?[{")


def is_glob(path: str) -> bool:
    return not _MAGIC.isdisjoint(path)


def matches(path: str, pattern: str) -> bool:
    return bool(_compiled(pattern.removeprefix("./")).fullmatch(path))


def matches_anywhere(path: str, pattern: str) -> bool:
    """As `include` is meant: a pattern with no slash is for names in any folder."""
    given = pattern.removeprefix("./")
    return matches(path, given if "/" in given else f"**/{given}")


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    if len(pattern) > LONGEST:
        raise ToolFault(f"the pattern is longer than {LONGEST} characters", "pattern")
    return compiled(_translated(pattern))


def _translated(pattern: str) -> str:
    made, at, depth = list[str](), 0, 0
    while at < len(pattern):
        rest, one = pattern[at:], pattern[at]
        step = 1
        if rest.startswith("**/") and (at == 0 or pattern[at - 1] in "/{,"):
            made.append("(?:[^/]+/)*")
            step = 3
        elif rest.startswith("**"):
            made.append(".*")
            step = len(rest) - len(rest.lstrip("*"))
        elif one == "*":
            made.append("[^/]*")
        elif one == "?":
            made.append("[^/]")
        elif one == "[" and (end := pattern.find("]", at + 2)) > 0:
            made.append(_among(pattern[at + 1 : end]))
            step = end + 1 - at
        elif one == "{" and "}" in rest:
            depth += 1
            made.append("(?:")
        elif one == "}" and depth:
            depth -= 1
            made.append(")")
        elif one == "," and depth:
            made.append("|")
        elif one == "\\" and len(rest) > 1:
            made.append(escape(rest[1]))
            step = 2
        else:
            made.append(escape(one))
        at += step
    return "(?s)" + "".join(made) + ")" * depth


def _among(inside: str) -> str:
    sign, named = ("^/", inside[1:]) if inside[:1] in ("!", "^") else ("", inside)
    return "[" + sign + named.replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^") + "]"
