"""Recursion: whether there is any, and through what is required, which a provider that unrolls it can't end."""

from typing import Any

from .changes import Changes, Site
from .references import References

Step = tuple[dict[str, Any], str] | None
LIMIT_REFERRED = 200

Edge = tuple[str, Step, dict[str, Any]]


def loosen(root: dict[str, Any], required: dict[int, Any], pointed: dict[int, Any], changes: Changes) -> None:
    """`required` and `pointed` say where names and references of the written schema stand in the source."""
    definitions = root.get("$defs", {})
    schemas = {"#": root, **{f"#/$defs/{name}": made for name, made in definitions.items()}}
    edges = {name: _edges(made) for name, made in schemas.items()}
    component = _components({name: [target for target, _, _ in found] for name, found in edges.items()})
    for name, found in edges.items():
        for target, step, reference in found:
            if component.get(target) != component[name]:
                continue
            if step is None:
                changes.changed(Site(None, pointed[id(reference)][1]), "leads back to itself: left open")
                reference.pop("$ref")
            elif step[1] in step[0]["required"]:
                names = required[id(step[0])][1]
                changes.changed(Site(None, names[step[1]]), "leads back to itself: made optional")
                step[0]["required"].remove(step[1])
                if not step[0]["required"]:
                    del step[0]["required"]


def is_recursive(root: dict[str, Any], references: References) -> bool:
    """Whether a reference leads back to itself; also said of a schema with so many that it is not worth knowing."""
    edges: dict[str, list[str]] = {}
    waiting = _references(root)
    while waiting and len(edges) < LIMIT_REFERRED:
        target = waiting.pop()
        if target not in edges and (site := references.resolve(target)) is not None:
            edges[target] = _references(site.value)
            waiting += edges[target]
    component = _components(edges)
    return bool(waiting) or any(
        component.get(target) == component[name] for name, found in edges.items() for target in found
    )


def _references(tree: Any) -> list[str]:
    """All references in a schema. A property of that name holds a schema, so is no text."""
    found: list[str] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            found += [value for key, value in node.items() if key == "$ref" and isinstance(value, str)]
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return found


def _edges(made: dict[str, Any]) -> list[Edge]:
    """The references that are reached without passing anything optional, each with the last required property."""
    found: list[Edge] = []
    waiting: list[tuple[Any, Step]] = [(made, None)]
    while waiting:
        node, step = waiting.pop()
        if not isinstance(node, dict):
            continue
        if isinstance(target := node.get("$ref"), str):
            found.append((target, step, node))
        waiting += [(node.get(key), step) for key in ("items", "additionalProperties")]
        for key in ("anyOf", "oneOf", "prefixItems"):
            waiting += [(branch, step) for branch in node.get(key, ())]
        for name in node.get("required", ()):
            waiting.append((node.get("properties", {}).get(name), (node, name)))
    return found


def _components(edges: dict[str, list[str]]) -> dict[str, int]:
    """A number for each: the same for those that lead to one another."""
    order: list[str] = []
    seen: set[str] = set()
    for start, first in edges.items():
        stack = [] if start in seen else [(start, iter(first))]
        seen.add(start)
        while stack:
            name, rest = stack[-1]
            following = next((one for one in rest if one in edges and one not in seen), None)
            if following is None:
                order.append(name)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(edges[following])))
    reverse: dict[str, list[str]] = {name: [] for name in edges}
    for name, targets in edges.items():
        for target in targets:
            if target in reverse:
                reverse[target].append(name)
    found: dict[str, int] = {}
    for number, start in enumerate(reversed(order)):
        waiting = [start]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = number
                waiting += [one for one in reverse[name] if one not in found]
    return found
