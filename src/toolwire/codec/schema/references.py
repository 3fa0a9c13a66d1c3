"""References inside one schema, resolved within it: nothing is ever fetched.

Recursion: whether there is any, and through what is required, which a provider that unrolls it can't end.
"""

import re
from typing import Any

from toolwire.codec.schema.changes import SchemaChanges, SchemaLocation

_PERCENT = re.compile("%([0-9A-Fa-f]{2})")
_UNSAFE = re.compile("[^A-Za-z0-9_.-]+")
DEFINITIONS = ("$defs", "definitions")


class References:
    """`names`: what definitions at the root are called, by where they stand in the source."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        self._anchors: dict[str, SchemaLocation] | None = None
        self.definition_names: dict[str, str] = {}
        self._used_names: set[str] = set()
        self.resolved_paths: set[str] = set()

    def resolve(self, reference: Any) -> SchemaLocation | None:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        pointer = _PERCENT.sub(lambda match: chr(int(match[1], 16)), reference[1:])
        if pointer and not pointer.startswith("/"):
            return self._resolve_anchor(pointer)
        site = SchemaLocation(self._tree, "")
        for step in pointer.split("/")[1:]:
            key: Any = _unescape_step(step)
            if isinstance(site.value, list):
                key = int(key) if key.isdecimal() and len(key) < 9 and int(key) < len(site.value) else None
            elif not isinstance(site.value, dict) or key not in site.value:
                key = None
            if key is None:
                return None
            site = site.child(key)
        self.resolved_paths.add(site.path)
        return site

    def definition_name(self, location: SchemaLocation) -> str:
        """The name of a definition at the root for what stands elsewhere."""
        if (known := self.definition_names.get(location.path)) is None:
            *parents, last = location.path.split("/")[1:]
            direct = len(parents) == 1 and parents[0] in DEFINITIONS
            known = _unescape_step(last) if direct else _UNSAFE.sub("_", "_".join([*parents, last]))
            plain, count = known, 1
            while known in self._used_names:
                count += 1
                known = f"{plain}_{count}"
            self._used_names.add(known)
            self.definition_names[location.path] = known
        return known

    def _resolve_anchor(self, name: str) -> SchemaLocation | None:
        if self._anchors is None:
            self._anchors = {}
            waiting = [SchemaLocation(self._tree, "")]
            while waiting:
                site = waiting.pop()
                if isinstance(site.value, dict):
                    if isinstance(anchor := site.value.get("$anchor"), str):
                        self._anchors.setdefault(anchor, site)
                    waiting += [site.child(key) for key in site.value]
                elif isinstance(site.value, list):
                    waiting += [site.child(index) for index in range(len(site.value))]
        if (found := self._anchors.get(name)) is not None:
            self.resolved_paths.add(found.path)
        return found


def _unescape_step(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")


RequiredProperty = tuple[dict[str, Any], str] | None
LIMIT_REFERENCES = 200

ReferenceEdge = tuple[str, RequiredProperty, dict[str, Any]]


def relax_required_cycles(
    root: dict[str, Any], required_sources: dict[int, Any], reference_sources: dict[int, Any], changes: SchemaChanges
) -> None:
    """`required` and `pointed` say where names and references of the written schema stand in the source."""
    definitions = root.get("$defs", {})
    schemas = {"#": root, **{f"#/$defs/{name}": made for name, made in definitions.items()}}
    edges = {name: _required_edges(made) for name, made in schemas.items()}
    component = _connected_components({name: [target for target, _, _ in found] for name, found in edges.items()})
    for name, found in edges.items():
        for target, step, reference in found:
            if component.get(target) != component[name]:
                continue
            if step is None:
                changes.approximated(
                    SchemaLocation(None, reference_sources[id(reference)][1]), "leads back to itself: left open"
                )
                reference.pop("$ref")
            elif step[1] in step[0]["required"]:
                names = required_sources[id(step[0])][1]
                changes.approximated(SchemaLocation(None, names[step[1]]), "leads back to itself: made optional")
                step[0]["required"].remove(step[1])
                if not step[0]["required"]:
                    del step[0]["required"]


def is_recursive(root: dict[str, Any], references: References) -> bool:
    """Whether a reference leads back to itself; also said of a schema with so many that it is not worth knowing."""
    edges: dict[str, list[str]] = {}
    waiting = _collect_references(root)
    while waiting and len(edges) < LIMIT_REFERENCES:
        target = waiting.pop()
        if target not in edges and (site := references.resolve(target)) is not None:
            edges[target] = _collect_references(site.value)
            waiting += edges[target]
    component = _connected_components(edges)
    return bool(waiting) or any(
        component.get(target) == component[name] for name, found in edges.items() for target in found
    )


def _collect_references(tree: Any) -> list[str]:
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


def _required_edges(schema: dict[str, Any]) -> list[ReferenceEdge]:
    """The references that are reached without passing anything optional, each with the last required property."""
    found: list[ReferenceEdge] = []
    waiting: list[tuple[Any, RequiredProperty]] = [(schema, None)]
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


def _connected_components(edges: dict[str, list[str]]) -> dict[str, int]:
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
