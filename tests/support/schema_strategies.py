"""Hypothesis strategies for JSON schemas together with valid values."""

from typing import Any

from hypothesis import strategies as st

from toolwire.codec.validation import word_set

Sample = tuple[Any, Any]
"""A schema and a valid value."""

NAMES = st.sampled_from(["a", "b", "type", "enum", "$ref", "properties", "items", "x-1"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.sampled_from(["", "red", "2024-01-01"]))
KEYS = {"description": "What it is.", "default": 1, "title": "T", "x-own": 1, "$comment": "c", "examples": [1]}
ANNOTATIONS = st.sampled_from([*KEYS, "", "", ""]).map(lambda key: {key: KEYS[key]} if key else {})


def _plain() -> st.SearchStrategy[Sample]:
    text = st.sampled_from(["red", "green"])
    return st.one_of(
        text.map(lambda value: ({"type": "string", "minLength": 1, "pattern": "e"}, value)),
        text.map(lambda value: ({"type": ["string", "null"], "enum": ["red", "green", None]}, value)),
        st.just(({"type": ["string", "null"], "enum": ["red", None]}, None)),
        st.integers(1, 9).map(lambda value: ({"type": "integer", "exclusiveMinimum": 0, "maximum": 9}, value)),
        st.integers(-9, 9).map(lambda value: ({"type": "number", "multipleOf": 1}, value)),
        st.booleans().map(lambda value: ({"type": "boolean"}, value)),
        st.booleans().map(lambda value: ({"type": ["boolean", "string", "array"], "minLength": 1}, value)),
        SCALARS.map(lambda value: ({"const": value}, value)),
        SCALARS.map(lambda value: ({"enum": ["other", value, 3.5]}, value)),
        SCALARS.map(lambda value: ({}, value)),
        SCALARS.map(lambda value: (True, value)),
        st.just(({"type": "string", "format": "uri"}, "https://example.com/")),
        st.just(({"not": {"type": "string"}}, 1)),
        st.just(({"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"minimum": 0}}, "red")),
    )


def _object(inner: st.SearchStrategy[Sample]) -> st.SearchStrategy[Sample]:
    def build(members: dict[str, Sample], required: set[str], additional: Any, optional: set[str]) -> Sample:
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {name: sample for name, (sample, _) in members.items()},
        }
        if names := [name for name in members if name in required]:
            schema["required"] = names
        if additional is not None:
            schema["additionalProperties"] = additional
        return schema, {name: value for name, (_, value) in members.items() if name in required | optional}

    names = st.sets(NAMES)
    return st.builds(build, st.dictionaries(NAMES, inner, max_size=3), names, st.sampled_from([None, False]), names)


def _map(inner: st.SearchStrategy[Sample]) -> st.SearchStrategy[Sample]:
    def open_map(sample: Sample) -> Sample:
        return {"type": "object", "additionalProperties": sample[0]}, {"k": sample[1]}

    def pattern_map(sample: Sample) -> Sample:
        schema = {"type": "object", "patternProperties": {"^x": sample[0]}, "additionalProperties": False}
        return schema, {"x1": sample[1]}

    return st.one_of(inner.map(open_map), inner.map(pattern_map))


def _array(inner: st.SearchStrategy[Sample]) -> st.SearchStrategy[Sample]:
    return st.one_of(
        inner.map(
            lambda sample: ({"type": "array", "items": sample[0], "minItems": 1, "uniqueItems": True}, [sample[1]])
        ),
        st.tuples(inner, inner).map(
            lambda pair: (
                {"type": "array", "prefixItems": [pair[0][0], pair[1][0]], "items": False},
                [pair[0][1], pair[1][1]],
            )
        ),
        st.tuples(inner, inner).map(
            lambda pair: ({"type": "array", "prefixItems": [pair[0][0]], "items": pair[1][0]}, [pair[0][1], pair[1][1]])
        ),
    )


def _composed(inner: st.SearchStrategy[Sample]) -> st.SearchStrategy[Sample]:
    return st.one_of(
        st.tuples(inner, inner).map(lambda pair: ({"anyOf": [pair[0][0], pair[1][0]]}, pair[1][1])),
        inner.map(lambda sample: ({"anyOf": [sample[0], {"type": "null"}]}, sample[1])),
        inner.map(lambda sample: ({"anyOf": [sample[0], {"type": "null"}]}, None)),
        inner.map(lambda sample: ({"allOf": [sample[0], {}, sample[0]], "description": "All."}, sample[1])),
        inner.map(lambda sample: ({"allOf": [{"allOf": [sample[0]]}], "anyOf": [{}, False]}, sample[1])),
        inner.map(lambda sample: ({"$ref": "#/$defs/any", "allOf": [sample[0]]}, sample[1])),
        inner.map(lambda sample: ({"$ref": "#/$defs/any", "description": "Referred."}, sample[1])),
    )


def _annotated(sample: Sample, annotations: dict[str, Any]) -> Sample:
    return ({**sample[0], **annotations}, sample[1]) if isinstance(sample[0], dict) else sample


SAMPLES: st.SearchStrategy[Sample] = st.recursive(
    st.builds(_annotated, _plain(), ANNOTATIONS),
    lambda inner: st.builds(
        _annotated, st.one_of(_object(inner), _map(inner), _array(inner), _composed(inner)), ANNOTATIONS
    ),
    max_leaves=8,
)

_NODE = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
    "required": ["children"],
}
TREE = {"value": 1, "children": [{"children": [{"value": 2, "children": []}]}]}


@st.composite
def tool_schemas(draw: st.DrawFn) -> Sample:
    """Draw the schema of a tool, with definitions, and valid arguments."""
    sample, pair = draw(SAMPLES), draw(SAMPLES)
    keyword = draw(st.sampled_from(["$defs", "definitions"]))
    properties: dict[str, Any] = {
        "first": sample[0],
        "named": {"$ref": f"#/{keyword}/named"},
        "again": {"$ref": "#/properties/first"},
        "tree": {"$ref": "#/$defs/node", "description": "A tree."},
    }
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": ["named", "tree"]}
    schema["$defs"] = {"any": {}, "node": _NODE}
    schema.setdefault(keyword, {})["named"] = pair[0]
    return schema, {"first": sample[1], "named": pair[1], "again": sample[1], "tree": TREE}


_KEYWORDS = (
    word_set("type enum const $ref $defs definitions $anchor properties required items prefixItems additionalItems")
    | word_set(
        "additionalProperties patternProperties anyOf oneOf allOf not if nullable minimum minItems exclusiveMinimum"
    )
    | word_set("description format title a")
)

JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(allow_nan=False, allow_infinity=False), NAMES),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(sorted(_KEYWORDS)),
            st.one_of(inner, st.sampled_from(["#", "#/properties/a", "#/$defs/a", "#x", "string", "NULL", ["object"]])),
            max_size=5,
        ),
    ),
    max_leaves=25,
)
"""Arbitrary JSON, often similar to a schema."""
