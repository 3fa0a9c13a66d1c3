"""Tools of one vendor, passed to an agent with their JSON."""

import json
from typing import Any

import pytest
from msgspec import Raw

import toolwire as tw
from toolwire.codec.interface import Target
from toolwire.protocols import PROTOCOLS
from toolwire.testing import ScriptedModel

DECLARATIONS = {
    "openai-responses": (Raw('{"type":"image_generation"}'), {"type": "image_generation"}),
    "anthropic": (Raw('{"type":"memory_20250818","name":"memory"}'), {"type": "memory_20250818", "name": "memory"}),
    "gemini": (Raw("{}"), {"googleMaps": {}}),
    "gemini-interactions": (Raw('{"type":"google_maps"}'), {"type": "google_maps"}),
}
KINDS = {
    "openai-responses": "image_generation",
    "anthropic": "memory",
    "gemini": "google_maps",
    "gemini-interactions": "google_maps",
}


def declared(tool: tw.NativeTool, protocol: str) -> list[Any]:
    """Return the tools of an agent's request in a protocol."""
    model = ScriptedModel("Hello.")
    tw.Agent(model, tools=[tool]).run("Hi")
    body = PROTOCOLS[protocol].encode_request(model.requests[0], Target(model="m")).to_bytes()
    return json.loads(body).get("tools") or []


@pytest.mark.parametrize("protocol", DECLARATIONS)
def test_vendors_tool_is_declared_to_its_vendor_only(protocol: str) -> None:
    body, expected = DECLARATIONS[protocol]
    tool = tw.NativeTool(protocol=protocol, kind=KINDS[protocol], body=body)
    assert declared(tool, protocol) == [expected]
    assert declared(tool, "openai-chat") == []


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"protocol": "openai"}, ValueError, r"NativeTool\(protocol=...\)='openai' is unknown; .*openai-"),
        ({"body": {"type": "image_generation"}}, TypeError, r"is invalid: use the tool's JSON object: msgspec\.Raw\("),
        ({"body": Raw("{'type'")}, TypeError, "use the tool's JSON object"),
        ({"body": Raw("[]")}, TypeError, "use the tool's JSON object"),
    ],
)
def test_tool_that_no_provider_would_get_is_an_error(
    values: dict[str, Any], error: type[Exception], message: str
) -> None:
    options: dict[str, Any] = {"protocol": "openai-responses", "kind": "image_generation", "body": Raw("{}")}
    with pytest.raises(error, match=message):
        tw.Agent(ScriptedModel("Hello."), tools=[tw.NativeTool(**options | values)])
