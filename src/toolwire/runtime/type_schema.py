"""JSON Schemas of Python types, and conversion of JSON values to them.

Types may be any that msgspec or pydantic support.
"""

from typing import Any, get_args

import msgspec

from toolwire.canonical.errors import ToolwireError

_REF_TEMPLATE = "#/$defs/{name}"
_SCALAR_TYPES = (str, int, float, bool)


class UnsupportedType(ToolwireError):
    """A type has no JSON Schema."""


def schema_of(annotation: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Build the JSON Schema of a type, and add the types that it refers to to `definitions`."""
    if annotation is Any:
        return {}
    try:
        if _uses_pydantic(annotation):
            pydantic_schema: dict[str, Any] = _type_adapter(annotation).json_schema(ref_template="#/$defs/{model}")
            definitions.update(pydantic_schema.pop("$defs", {}))
            return pydantic_schema
        (schema,), components = msgspec.json.schema_components([annotation], ref_template=_REF_TEMPLATE)
        definitions.update(components)
    except TypeError as error:
        cause = str(error).splitlines()[-1]
        supported = "use builtin types, pydantic models, dataclasses, TypedDict or msgspec structs"
        raise UnsupportedType(f"no JSON Schema for type {annotation!r} ({cause}): {supported}") from None
    return schema


def convert_value(value: Any, annotation: Any) -> Any:
    """Convert a JSON value to a type; raise `ValueError` with a message for the model if it does not fit."""
    if annotation is Any:
        return value
    if _uses_pydantic(annotation):
        return _type_adapter(annotation).validate_python(value)
    return msgspec.convert(value, annotation)


def _uses_pydantic(annotation: Any) -> bool:
    """Return True if the type, or a type inside it, is pydantic's."""
    if annotation in _SCALAR_TYPES:
        return False
    if hasattr(annotation, "model_json_schema") or hasattr(annotation, "__pydantic_fields__"):
        return True
    return any(_uses_pydantic(arg) or type(arg).__module__.startswith("pydantic") for arg in get_args(annotation))


def _type_adapter(annotation: Any) -> Any:
    """Return pydantic's `TypeAdapter` for a type."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - installed if pydantic types are used

    return TypeAdapter(annotation)
