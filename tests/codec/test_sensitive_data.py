"""Sensitive data in schemas is reported as a warning, in every protocol."""

from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import chat_request, request_with_tools
from tests.support.protocols import ALL_PROTOCOLS, CHAT

SENSITIVE: list[tuple[dict[str, Any], str, str]] = [
    ({"enum": ["a", "sk-abcdefghijklmnop"]}, "/enum/1", "credential"),
    ({"const": "AKIAABCDEFGHIJKLMNOP"}, "/const", "credential"),
    ({"default": "Bearer abcdefghijklmnop"}, "/default", "credential"),
    ({"examples": ["jo@corp.io"]}, "/examples/0", "e-mail"),
    ({"pattern": "^(jo|ann)@corp\\.io$|^jo@corp.io$"}, "/pattern", "e-mail"),
    ({"enum": ["4111 1111 1111 1111"]}, "/enum/0", "payment card"),
    ({"type": "array", "items": {"enum": ["ghp_abcdefghijklmnopqrstuvwx"]}}, "/items/enum/0", "credential"),
]
HARMLESS: list[dict[str, Any]] = [
    {"enum": ["metric", "imperial"]},
    {"examples": ["jo@example.com", "ann@mail.example.org", "a@b.test"]},
    {"enum": ["1234567890123456", "0000 0000 0000 0000"]},
    {"const": "sk-1"},
    {"description": "Write to jo@corp.io"},
]


def schema(city_schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"city": city_schema}}


def warnings(body: dict[str, Any], protocol: str) -> list[tuple[str, str]]:
    findings = [finding for finding in toolwire.check(body, protocol) if finding.rule == f"{protocol}.schema-sensitive"]
    assert {finding.level for finding in findings} <= {"warning"}
    return [(finding.path, finding.message) for finding in findings]


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
@pytest.mark.parametrize(("city_schema", "path", "kind"), SENSITIVE)
def test_sensitive_literals_in_tool_schemas_are_warned_about(
    protocol: str, city_schema: dict[str, Any], path: str, kind: str
) -> None:
    ((pointer, message),) = warnings(request_with_tools(protocol, {"get_weather": schema(city_schema)}), protocol)
    assert pointer.endswith("/properties/city" + path)
    assert kind in message


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
@pytest.mark.parametrize("city_schema", HARMLESS)
def test_harmless_literals_cause_no_warning(protocol: str, city_schema: dict[str, Any]) -> None:
    assert warnings(request_with_tools(protocol, {"get_weather": schema(city_schema)}), protocol) == []


def test_property_names_and_response_formats_are_checked_but_not_messages() -> None:
    response_format = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema({"enum": ["jo@corp.io"]})}}
    tool_schema = {"type": "object", "properties": {"sk-abcdefghijklmnop": {"type": "string"}}}
    message = {
        "role": "user",
        "content": '{"parameters": {"const": "jo@corp.io"}}',
        "parameters": {"const": "jo@corp.io"},
    }
    body = chat_request(message, response_format=response_format) | {
        "tools": request_with_tools(CHAT, {"f": tool_schema})["tools"]
    }
    assert sorted(path for path, _ in warnings(body, CHAT)) == [
        "/response_format/json_schema/schema/properties/city/enum/0",
        "/tools/0/function/parameters/properties/sk-abcdefghijklmnop",
    ]
