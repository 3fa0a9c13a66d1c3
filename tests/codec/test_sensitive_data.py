"""Schemas with sensitive data in them get a warning, whichever protocol declares them."""

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


def schema(of_city: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"city": of_city}}


def warnings(body: dict[str, Any], protocol: str) -> list[tuple[str, str]]:
    findings = [found for found in toolwire.check(body, protocol) if found.rule == f"{protocol}.schema-sensitive"]
    assert {found.level for found in findings} <= {"warning"}
    return [(found.path, found.message) for found in findings]


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
@pytest.mark.parametrize(("of_city", "path", "kind"), SENSITIVE)
def test_sensitive_literals_in_a_tool_get_a_warning(
    protocol: str, of_city: dict[str, Any], path: str, kind: str
) -> None:
    ((found, message),) = warnings(request_with_tools(protocol, {"get_weather": schema(of_city)}), protocol)
    assert found.endswith("/properties/city" + path)
    assert kind in message


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
@pytest.mark.parametrize("of_city", HARMLESS)
def test_harmless_literals_get_none(protocol: str, of_city: dict[str, Any]) -> None:
    assert warnings(request_with_tools(protocol, {"get_weather": schema(of_city)}), protocol) == []


def test_names_and_response_formats_are_checked_and_messages_are_not() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema({"enum": ["jo@corp.io"]})}}
    named = {"type": "object", "properties": {"sk-abcdefghijklmnop": {"type": "string"}}}
    message = {
        "role": "user",
        "content": '{"parameters": {"const": "jo@corp.io"}}',
        "parameters": {"const": "jo@corp.io"},
    }
    body = chat_request(message, response_format=wanted) | {"tools": request_with_tools(CHAT, {"f": named})["tools"]}
    assert sorted(path for path, _ in warnings(body, CHAT)) == [
        "/response_format/json_schema/schema/properties/city/enum/0",
        "/tools/0/function/parameters/properties/sk-abcdefghijklmnop",
    ]
