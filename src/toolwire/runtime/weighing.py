"""What it takes to check a value against a schema, at worst: few lines of schema can mean more than any time."""

from typing import Any

DEPTH = 64
COST = 2_000_000
"""Places that one check may have to look at: well below a second."""


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

    try:
        return of(schema, ("#",))
    except RecursionError:
        return float("inf"), 0


def too_costly(weight: tuple[float, int], value: Any) -> bool:
    """At worst each level of the value meets every reference that leads back. With one, no level is met twice."""
    places, back = weight
    return back > 1 and places * float(back) ** min(depth(value), 100) > COST


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
