"""What the Anthropic codec makes of other protocols' requests."""

from tests.bodies import chat_request, chat_tool
from tests.wire import ANTHROPIC, CHAT, lost, translated


def test_a_strict_tool_keeps_to_what_is_compiled_or_is_not_strict() -> None:
    count = {"type": "integer", "minimum": 1}
    for inner, strict in ((count, True), ({"type": "object"}, False)):
        schema = {"type": "object", "properties": {"n": inner}, "required": ["n"], "additionalProperties": False}
        body = chat_request(tools=[chat_tool("f", schema, strict=True)])
        (tool,) = translated(body, CHAT, ANTHROPIC)["tools"]
        assert tool["strict"] is strict
        told = {"type": "integer", "description": "minimum: 1"} if strict else inner
        assert tool["input_schema"] == {**schema, "properties": {"n": told}}
        below = "parameters/properties/n/minimum" if strict else "strict"
        assert [path for path in lost(body, CHAT, ANTHROPIC) if path] == [f"/tools/0/function/{below}"]
