"""References within one schema, resolved without fetching anything, and the recursion that they cause."""

import re
from typing import Any

from toolwire.codec.schema.dialect import SchemaChanges, SchemaLocation

_PERCENT = re.compile("%([0-9A-Fa-f]{2})")
_UNSAFE = re.compile("[^A-Za-z0-9_.-]+")
DEFINITIONS = ("$defs", "definitions")


class References:
    """Resolves references, and assigns names to definitions at the root."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        self._anchors: dict[str, SchemaLocation] | None = None
        self.definition_names: dict[str, str] = {}  # by the pointer of their source
        self._used_names: set[str] = set()
        self.resolved_paths: set[str] = set()

    def resolve(self, reference: Any) -> SchemaLocation | None:
        """Return the location that a local reference or anchor points to; None if there is none."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        pointer = _PERCENT.sub(lambda match: chr(int(match[1], 16)), reference[1:])
        if pointer and not pointer.startswith("/"):
            return self._resolve_anchor(pointer)
        location = SchemaLocation(self._tree, "")
        for step in pointer.split("/")[1:]:
            key: Any = _unescape_step(step)
            if isinstance(location.value, list):
                key = int(key) if key.isdecimal() and len(key) < 9 and int(key) < len(location.value) else None
            elif not isinstance(location.value, dict) or key not in location.value:
                key = None
            if key is None:
                return None
            location = location.child(key)
        self.resolved_paths.add(location.path)
        return location

    def definition_name(self, location: SchemaLocation) -> str:
        """Return the name of the root definition for a location, assigned on first use."""
        if (name := self.definition_names.get(location.path)) is None:
            *parents, last = location.path.split("/")[1:]
            direct = len(parents) == 1 and parents[0] in DEFINITIONS
            name = _unescape_step(last) if direct else _UNSAFE.sub("_", "_".join([*parents, last]))
            base, count = name, 1
            while name in self._used_names:
                count += 1
                name = f"{base}_{count}"
            self._used_names.add(name)
            self.definition_names[location.path] = name
        return name

    def _resolve_anchor(self, name: str) -> SchemaLocation | None:
        """Return the location of the schema with this `$anchor`; None if there is none."""
        if self._anchors is None:
            self._anchors = {}
            stack = [SchemaLocation(self._tree, "")]
            while stack:
                candidate = stack.pop()
                if isinstance(candidate.value, dict):
                    if isinstance(anchor := candidate.value.get("$anchor"), str):
                        self._anchors.setdefault(anchor, candidate)
                    stack += [candidate.child(key) for key in candidate.value]
                elif isinstance(candidate.value, list):
                    stack += [candidate.child(index) for index in range(len(candidate.value))]
        if (location := self._anchors.get(name)) is not None:
            self.resolved_paths.add(location.path)
        return location


def _unescape_step(step: str) -> str:
    """Decode one step of a JSON pointer."""
    return step.replace("~1", "/").replace("~0", "~")


RequiredProperty = tuple[dict[str, Any], str] | None
LIMIT_REFERENCES = 200

ReferenceEdge = tuple[str, RequiredProperty, dict[str, Any]]


def relax_required_cycles(
    root: dict[str, Any], required_sources: dict[int, Any], reference_sources: dict[int, Any], changes: SchemaChanges
) -> None:
    """Make required properties optional, or drop references, where they lead back to themselves.

    Providers that unroll references could not end otherwise. `required_sources` and `reference_sources` locate names
    and references of the written schema in the source.
    """
    schemas = {"#": root, **{f"#/$defs/{name}": schema for name, schema in root.get("$defs", {}).items()}}
    edges = {name: _required_edges(schema) for name, schema in schemas.items()}
    component = _connected_components({name: [target for target, _, _ in found] for name, found in edges.items()})
    for name, found in edges.items():
        for target, required, reference in found:
            if component.get(target) != component[name]:
                continue
            if required is None:
                location = SchemaLocation(None, reference_sources[id(reference)][1])
                changes.approximated(location, "recursive reference: left unrestricted")
                reference.pop("$ref")
                continue
            owner, property_name = required
            if property_name in owner["required"]:
                names = required_sources[id(owner)][1]
                changes.approximated(SchemaLocation(None, names[property_name]), "recursive: made optional")
                owner["required"].remove(property_name)
                if not owner["required"]:
                    del owner["required"]


def is_recursive(root: dict[str, Any], references: References) -> bool:
    """Return whether a reference leads back to itself; assumed for schemas with very many references."""
    edges: dict[str, list[str]] = {}
    stack = _collect_references(root)
    while stack and len(edges) < LIMIT_REFERENCES:
        target = stack.pop()
        if target not in edges and (location := references.resolve(target)) is not None:
            edges[target] = _collect_references(location.value)
            stack += edges[target]
    component = _connected_components(edges)
    return bool(stack) or any(
        component.get(target) == component[name] for name, targets in edges.items() for target in targets
    )


def _collect_references(tree: Any) -> list[str]:
    """Return all `$ref` values in a schema; a property named `$ref` holds a schema, not a reference."""
    references: list[str] = []
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            references += [value for key, value in node.items() if key == "$ref" and isinstance(value, str)]
            stack += node.values()
        elif isinstance(node, list):
            stack += node
    return references


def _required_edges(schema: dict[str, Any]) -> list[ReferenceEdge]:
    """Return the references reached through required properties, items and branches only.

    Each comes with the last required property on the way, and the schema that holds it.
    """
    edges: list[ReferenceEdge] = []
    stack: list[tuple[Any, RequiredProperty]] = [(schema, None)]
    while stack:
        node, required = stack.pop()
        if not isinstance(node, dict):
            continue
        if isinstance(target := node.get("$ref"), str):
            edges.append((target, required, node))
        stack += [(node.get(key), required) for key in ("items", "additionalProperties")]
        for key in ("anyOf", "oneOf", "prefixItems"):
            stack += [(branch, required) for branch in node.get(key, ())]
        for name in node.get("required", ()):
            stack.append((node.get("properties", {}).get(name), (node, name)))
    return edges


def _connected_components(edges: dict[str, list[str]]) -> dict[str, int]:
    """Return the number of the strongly connected component of each definition (Kosaraju's algorithm)."""
    reverse: dict[str, list[str]] = {name: [] for name in edges}
    for name, targets in edges.items():
        for target in targets:
            if target in reverse:
                reverse[target].append(name)
    component: dict[str, int] = {}
    for number, start in enumerate(reversed(_postorder(edges))):
        stack = [start]
        while stack:
            name = stack.pop()
            if name not in component:
                component[name] = number
                stack += [source for source in reverse[name] if source not in component]
    return component


def _postorder(edges: dict[str, list[str]]) -> list[str]:
    """Return the definitions in the order in which a depth-first search leaves them."""
    order: list[str] = []
    seen: set[str] = set()
    for start, targets in edges.items():
        stack = [] if start in seen else [(start, iter(targets))]
        seen.add(start)
        while stack:
            name, successors = stack[-1]
            successor = next((target for target in successors if target in edges and target not in seen), None)
            if successor is None:
                order.append(name)
                stack.pop()
            else:
                seen.add(successor)
                stack.append((successor, iter(edges[successor])))
    return order
