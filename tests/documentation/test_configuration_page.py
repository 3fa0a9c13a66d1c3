"""The configuration page lists every key with its default."""

import json
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from tests.documentation.config_schema import PAGE as SCHEMA
from tests.documentation.config_schema import render_schema
from tests.documentation.config_sections import PAGE, SECTIONS, documented_keys
from tests.support.assertions import non_empty
from toolwire.gateway import config


def documented_default(field: msgspec.inspect.Field) -> str:
    if field.required:
        return "required"
    if field.default is msgspec.NODEFAULT or field.default in (None, ()):
        return "-"
    value: Any = field.default
    return f"`{json.dumps(float(value) if isinstance(field.type, msgspec.inspect.FloatType) else value)}`"


@pytest.mark.parametrize("name", SECTIONS)
def test_every_key_is_on_the_page(name: str) -> None:
    rows = [(key, default) for key, (default, _) in documented_keys(f"`{name}`").items()]
    kind = msgspec.inspect.type_info(SECTIONS[name])
    assert isinstance(kind, msgspec.inspect.StructType)
    assert rows == [(field.name, documented_default(field)) for field in kind.fields]


def test_every_section_is_on_the_page() -> None:
    assert {field.name for field in msgspec.structs.fields(config.Config)} == {
        name.strip("[]").partition(".")[0] for name in (*SECTIONS, "[hosts.NAME]")
    } | documented_keys("Top level").keys()
    assert "## `[hosts.NAME]`\n" in PAGE.read_text(encoding="utf-8")


def test_schema_is_what_types_and_page_say() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == render_schema(), "run `python -m tests.documentation.config_schema`"


def tables(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schema of every table within a schema."""
    inner = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    inner += schema.get("anyOf", [])
    found = [table for one in inner if isinstance(one, dict) for table in tables(one)]
    return [schema, *found] if "properties" in schema else found


def test_schema_is_strict_and_describes_every_key() -> None:
    for table in non_empty(tables(json.loads(render_schema()))):
        assert table["additionalProperties"] is False
        assert [name for name, key in table["properties"].items() if not key["description"]] == []


@pytest.mark.parametrize(
    ("value", "is_valid"),
    [
        ({"server": {"port": 4000, "keys": ["env:KEY"]}, "aliases": {"fast": "up/m"}}, True),
        ({"hosts": {"mine": {"extends": "vllm", "tools": {"max_count": 5}}}}, True),
        ({"hosts": {"mine": {"tools": {"max_cuont": 5}}}}, False),
        ({"server": {"port": 99999}}, False),
        ({"sever": {}}, False),
        ({"routes": [{"provider": "up", "num_ctx": "auto", "strict": "error"}]}, True),
        ({"routes": [{"provider": "up", "num_ctx": "none"}]}, False),
        ({"providers": {"up": {"base_url": "http://x"}}}, False),
    ],
)
def test_schema_accepts_what_the_gateway_accepts(value: Any, is_valid: bool) -> None:
    assert jsonschema_rs.Draft7Validator(json.loads(render_schema())).is_valid(value) is is_valid
