"""The JSON Schema of `toolwire.toml`: `python -m tests.documentation.config_schema` writes it into the package.

It is written without references and for draft 7, which editors understand. The description of a key is its row in the
configuration page, or the comment beside it in the source.
"""

import ast
import inspect as source_inspect
import json
import re
from typing import Any

from msgspec import NODEFAULT, inspect

from tests.documentation.config_sections import SECTIONS, documented_keys, plain_text
from tests.support.paths import ROOT
from toolwire.codec.hosts.profile import HostProfile
from toolwire.gateway.config.schema import SCHEMA_FILE
from toolwire.gateway.config.sections import Config
from toolwire.protocols import PROTOCOLS

PAGE = ROOT / "src" / "toolwire" / "gateway" / "config" / SCHEMA_FILE
_HEADINGS = {kind: f"`{heading}`" for heading, kind in SECTIONS.items()} | {Config: "Top level"}
_TYPES = (
    (inspect.BoolType, "boolean"),
    (inspect.IntType, "integer"),
    (inspect.FloatType, "number"),
    (inspect.StrType, "string"),
    (inspect.DateType, "string"),
)


def render_schema() -> str:
    """Render the schema."""
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "toolwire.toml"}
    return json.dumps(schema | _schema(inspect.type_info(Config)), indent=1, ensure_ascii=False) + "\n"


def _schema(kind: inspect.Type) -> dict[str, Any]:
    """Return the schema of a type."""
    match kind:
        case inspect.StructType():
            return _object(kind)
        case inspect.DictType(value_type=inspect.DictType()):  # of hosts, whose profiles are given in part
            profile = inspect.type_info(HostProfile)
            assert isinstance(profile, inspect.StructType)
            extends = {"type": "string", "description": "the profile that this one changes"}
            host = _object(profile)
            host["properties"] = {"extends": extends} | host["properties"]
            del host["properties"]["name"], host["required"]
            return {"type": "object", "additionalProperties": host}
        case inspect.DictType(value_type=value):
            return {"type": "object", "additionalProperties": _schema(value)}
        case inspect.VarTupleType(item_type=item):
            return {"type": "array", "items": _schema(item)}
        case inspect.TupleType(item_types=items):
            count = len(items)
            return {"type": "array", "items": _schema(items[0]), "minItems": count, "maxItems": count}
        case inspect.LiteralType(values=values):
            return {"enum": list(values)}
        case inspect.UnionType(types=kinds):
            choices = [_schema(one) for one in kinds if not isinstance(one, inspect.NoneType)]
            return choices[0] if len(choices) == 1 else {"anyOf": choices}
        case _:
            schema = {"type": next(name for cls, name in _TYPES if isinstance(kind, cls))} | _range(kind)
            return schema | ({"format": "date"} if isinstance(kind, inspect.DateType) else {})


def _range(kind: inspect.Type) -> dict[str, Any]:
    """Return the range of a number."""
    names = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}
    return {name: value for key, name in names.items() if (value := getattr(kind, key, None)) is not None}


def _object(kind: inspect.StructType) -> dict[str, Any]:
    """Return the schema of a table."""
    comments = {name: text for cls in reversed(kind.cls.__mro__[:-1]) for name, text in _comments(cls).items()}
    documented = documented_keys(_HEADINGS[kind.cls]) if kind.cls in _HEADINGS else {}
    properties = {}
    for field in kind.fields:
        schema = _schema(field.type)
        if field.name == "protocol":
            schema["enum"] = list(PROTOCOLS)
        description = plain_text(documented[field.name][1]) if field.name in documented else comments.get(field.name)
        description = description or _summary(field.type)
        schema["description"] = description.strip()
        if field.default is not NODEFAULT and isinstance(field.default, bool | int | float | str):
            schema["default"] = field.default
        properties[field.name] = schema
    required = [field.name for field in kind.fields if field.required]
    table = {"type": "object", "properties": properties, "additionalProperties": False}
    return table | ({"required": required} if required else {})


def _summary(kind: inspect.Type) -> str:
    """Return the first line of the docstring of a table's type."""
    if isinstance(kind, inspect.UnionType):
        kind = next(one for one in kind.types if not isinstance(one, inspect.NoneType))
    match kind:
        case inspect.VarTupleType(item_type=inspect.StructType(cls=cls)) | inspect.StructType(cls=cls):
            return plain_text((source_inspect.getdoc(cls) or "").partition("\n")[0])
        case inspect.DictType(value_type=inspect.StructType(cls=cls)):
            return plain_text((source_inspect.getdoc(cls) or "").partition("\n")[0])
        case _:
            return ""


def _comments(cls: type) -> dict[str, str]:
    """Return the comment beside, above or below each field of a class."""
    try:
        lines, _ = source_inspect.getsourcelines(cls)
    except (OSError, TypeError):
        return {}
    (definition,) = ast.parse("".join(lines)).body
    assert isinstance(definition, ast.ClassDef)
    comments = {}
    for node, below in zip(definition.body, [*definition.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.end_lineno is not None:
            beside = re.search(r"#\s*(.*)", lines[node.end_lineno - 1][node.end_col_offset or 0 :])
            above = re.fullmatch(r"\s*#\s*(.*)\n", lines[node.lineno - 2])
            text = (beside or above or [None, ""])[1]
            if not text and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                text = str(below.value.value)
            if text:
                comments[node.target.id] = plain_text(text)
    return comments


if __name__ == "__main__":
    PAGE.write_text(render_schema(), encoding="utf-8")
