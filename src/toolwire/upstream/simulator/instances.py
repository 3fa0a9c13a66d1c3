"""Values made from a JSON Schema: small, always the same, and valid against it."""

import math
from typing import Any

from .patterns import matching

Schema = dict[str, Any]

_FORMATS = {
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "date-time": "2026-01-31T12:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_EXAMPLE = "example"
_DEPTH = 12
_WHOLES = ("anyOf", "oneOf")


def instance(schema: Any, root: Any = None, depth: int = 0) -> Any:
    """The least value that fits: required properties only, the first of several choices."""
    root = schema if root is None else root
    schema = resolved(schema, root)
    if not schema:
        return _EXAMPLE
    if "const" in schema:
        return schema["const"]
    if "default" in schema and fits(schema["default"], schema):
        return schema["default"]
    for keyword in ("enum", "examples"):
        if isinstance(schema.get(keyword), list) and schema[keyword] and fits(schema[keyword][0], schema):
            return schema[keyword][0]
    if depth > _DEPTH:
        return None
    for keyword in _WHOLES:
        if isinstance(schema.get(keyword), list) and schema[keyword]:
            return instance(_joined(schema, _first(schema[keyword], root), keyword), root, depth + 1)
    match type_of(schema):
        case "object":
            return _object(schema, root, depth)
        case "array":
            return _array(schema, root, depth)
        case "integer" | "number" as kind:
            return _number(schema, whole=kind == "integer")
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return _string(schema)


def resolved(schema: Any, root: Any) -> Schema:
    """The schema itself, with what it refers to and what `allOf` adds in its place."""
    for _ in range(_DEPTH):
        if not isinstance(schema, dict):
            return {}
        if isinstance(schema.get("$ref"), str):
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            found = _pointed(schema["$ref"], root)
            schema = {**found, **beside} if isinstance(found, dict) else beside
        elif isinstance(schema.get("allOf"), list):
            whole = {key: value for key, value in schema.items() if key != "allOf"}
            for part in schema["allOf"]:
                whole = _joined(whole, resolved(part, root))
            schema = whole
        else:
            return schema
    return {}


def _pointed(pointer: str, root: Any) -> Any:
    found = root
    for step in pointer.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _first(choices: list[Any], root: Any) -> Any:
    """The first choice that is not merely null."""
    return next((one for one in choices if type_of(resolved(one, root)) != "null"), choices[0])


def _joined(schema: Schema, more: Any, without: str = "") -> Schema:
    more = more if isinstance(more, dict) else {}
    joined = {**{key: value for key, value in schema.items() if key != without}, **more}
    if "properties" in schema and "properties" in more:
        joined["properties"] = {**schema["properties"], **more["properties"]}
    if "required" in schema and "required" in more:
        joined["required"] = list(dict.fromkeys([*schema["required"], *more["required"]]))
    return joined


def type_of(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if isinstance(kind, str):
        return kind.lower()
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else ""


def properties_of(schema: Schema) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def required_of(schema: Schema) -> list[str]:
    listed = schema.get("required")
    asked = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    known = properties_of(schema)
    return [name for name in known if name in asked] + [name for name in asked if name not in known]


def _object(schema: Schema, root: Any, depth: int) -> dict[str, Any]:
    known = properties_of(schema)
    made = {name: instance(known.get(name, {}), root, depth + 1) for name in required_of(schema)}
    for name in known:
        if len(made) >= _bound(schema, "minProperties", 0):
            break
        made.setdefault(name, instance(known[name], root, depth + 1))
    return made


def _array(schema: Schema, root: Any, depth: int) -> list[Any]:
    first = schema["prefixItems"] if isinstance(schema.get("prefixItems"), list) else []
    size = max(_bound(schema, "minItems", 1), len(first))
    size = min(size, _bound(schema, "maxItems", size))
    items = [*first, *[schema.get("items", {})] * (size - len(first))][:size]
    made = [instance(item, root, depth + 1) for item in items]
    if schema.get("uniqueItems") is True:
        made = [_distinct(value, place) for place, value in enumerate(made)]
    return made


def _distinct(value: Any, place: int) -> Any:
    if place == 0 or isinstance(value, bool):
        return value
    return value + place if isinstance(value, int | float) else f"{value}{place}" if isinstance(value, str) else value


def _bound(schema: Schema, name: str, otherwise: int) -> int:
    bound = schema.get(name)
    return int(bound) if isinstance(bound, int | float) and bound >= 0 else otherwise


def _number(schema: Schema, *, whole: bool) -> int | float:
    step = schema.get("multipleOf") or (1 if whole else 0)
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if isinstance(above := schema.get("exclusiveMinimum"), int | float):
        low = max(low, above + (step or 0.5))
    if isinstance(below := schema.get("exclusiveMaximum"), int | float):
        high = min(high, below - (step or 0.5))
    value: float = min(max(1, low), high)
    if step:
        value = (math.ceil(value / step) if value < high else math.floor(value / step)) * step
    return int(value) if whole or float(value).is_integer() else value


def _string(schema: Schema) -> str:
    short = _bound(schema, "minLength", 0)
    if isinstance(pattern := schema.get("pattern"), str) and (found := matching(pattern, short)) is not None:
        return found
    text = _FORMATS.get(str(schema.get("format")), _EXAMPLE)
    text = text if len(text) >= short else text + "x" * (min(short, 10_000) - len(text))
    return text[: _bound(schema, "maxLength", len(text))]


_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def fits(value: Any, schema: Schema) -> bool:
    """Whether a value keeps to what the schema says of itself: type, choice, bounds and length."""
    kinds = _KINDS.get(type_of(schema), (object,))
    listed = schema.get("type")
    nullable = value is None and isinstance(listed, list) and "null" in listed
    if not nullable and (not isinstance(value, kinds) or (isinstance(value, bool) and int in kinds)):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if isinstance(value, str):
        return _bound(schema, "minLength", 0) <= len(value) <= _bound(schema, "maxLength", len(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        step = schema.get("multipleOf")
        return (
            schema.get("minimum", value) <= value <= schema.get("maximum", value)
            and value > schema.get("exclusiveMinimum", -math.inf)
            and value < schema.get("exclusiveMaximum", math.inf)
            and not (step and value % step)
        )
    return True
