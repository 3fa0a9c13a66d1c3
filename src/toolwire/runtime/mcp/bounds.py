"""How much of a server is put up with: nothing that it says may cost more than this."""

import re
from typing import Any

MESSAGE = 16 * 1024 * 1024
"""Bytes of one message, or of one HTTP answer that is not a stream."""

PAGES = 100
TOOLS = 2_000
SCHEMA = 64 * 1024
"""Bytes of one tool's schemas, as JSON."""

DEPTH = 64
WEIGHT = 20_000
"""Places of a schema, with every reference followed."""

COST = 2_000_000
"""Places that one check of a value may have to look at."""

DESCRIPTION = 8 * 1024
PARTS = 500
ROUNDS = 10
QUESTIONS = 20
"""Fields of a form, and questions of one round."""

QUESTION = 2_000

# What can't be seen, or turns the reading direction, hides text from who approves it and not from the model:
# C0 and C1 controls but for tab and newline, zero-width signs, bidirectional controls, and Unicode's tag characters.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)


def readable(text: str, limit: int) -> str:
    """The text as a person sees it, and no longer than that."""
    seen = _UNSEEN.sub("", text[: 4 * limit].replace("\r\n", "\n"))
    return seen if len(seen) <= limit else f"{seen[: limit - 1]}…"


def depth(tree: Any) -> int:
    deepest, waiting = 0, [(tree, 1)]
    while waiting:
        node, level = waiting.pop()
        deepest = max(deepest, level)
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        waiting += [(one, level + 1) for one in inner]
    return deepest


def weigh(schema: Any) -> tuple[float, int]:
    """How many places there are with every local reference followed, and how many references lead back."""
    known: dict[str, tuple[float, int]] = {}

    def of(node: Any, followed: tuple[str, ...]) -> tuple[float, int]:
        inner = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []
        found = [of(one, followed) for one in inner if isinstance(one, dict | list)]
        if isinstance(node, dict):
            references = (node.get(key) for key in ("$ref", "$dynamicRef", "$recursiveRef"))
            found += [referred(one, followed) for one in references if isinstance(one, str)]
        return 1 + sum(places for places, _ in found), sum(back for _, back in found)

    def referred(target: str, followed: tuple[str, ...]) -> tuple[float, int]:
        if target in followed:
            return 1, 1
        if len(followed) > DEPTH:
            return float("inf"), 0
        if target not in known:
            known[target] = of(_resolved(schema, target), (*followed, target))
        return known[target]

    return of(schema, ("#",))


def cost(schema: Any, value: Any) -> float:
    """What checking the value may take, at worst: each level of it meets every reference that leads back."""
    places, back = weigh(schema)
    return places * float(max(back, 1)) ** min(depth(value), 100)


def _resolved(root: Any, target: str) -> Any:
    node = root
    if not target.startswith("#"):
        return None
    for step in target[1:].split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node.get(key)
        elif isinstance(node, list) and key.isdigit() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node
