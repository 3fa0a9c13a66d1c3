"""The server under test of the conformance suite: `ToolServer`, as in `toolwire mcp serve`, with the suite's tools."""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import uvicorn

from tests.mcp_conformance import extra_capabilities
from toolwire.canonical.content import Inline, Media, PlainText, Text
from toolwire.gateway.server.auth import Authenticator
from toolwire.runtime.calls.approval import Approver
from toolwire.runtime.mcp.elicitation import FormFiller
from toolwire.runtime.mcp.server import ToolServer, http_app
from toolwire.runtime.tool import Arguments, Tool, ToolContext, ToolError, ToolFunction, ToolOutput

WAVE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
IMAGE = Media(kind="image", source=Inline(data=extra_capabilities.PNG), media_type="image/png")
TOOLS: dict[str, ToolFunction] = {}
_OPTIONS = ["option1", "option2", "option3"]
_TITLED = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]


def tool(run: ToolFunction) -> ToolFunction:
    TOOLS[run.__name__] = run
    return run


async def filled(calling: ToolContext, message: str, fields: Mapping[str, Any], key: str) -> str:
    assert isinstance(calling.approver, FormFiller), "the client can't be asked"
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return json.dumps(await calling.approver.fill(message, schema, key))


@tool
async def test_simple_text(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    return ToolOutput(content=(Text(text="This is a simple text response for testing."),))


@tool
async def test_image_content(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    return ToolOutput(content=(IMAGE,))


@tool
async def test_audio_content(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    return ToolOutput(content=(Media(kind="audio", source=Inline(data=WAVE), media_type="audio/wav"),))


def document(name: str, media_type: str, text: str) -> Media:
    return Media(kind="document", source=PlainText(text=text), media_type=media_type, name=name)


@tool
async def test_embedded_resource(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    text = "This is an embedded resource content."
    return ToolOutput(content=(document("test://embedded-resource", "text/plain", text),))


@tool
async def test_multiple_content_types(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    resource = document("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return ToolOutput(content=(Text(text="Multiple content types test:"), IMAGE, resource))


@tool
async def test_error_handling(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    raise ToolError("This tool intentionally returns an error for testing")


@tool
async def test_tool_with_progress(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    for done in (0, 50, 100):
        calling.report_progress(f"{done}/100 Completed step {done} of 100")
        await asyncio.sleep(0.05)
    return ToolOutput(content=(Text(text="done"),))


@tool
async def test_elicitation(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    fields = {"username": {"type": "string"}, "email": {"type": "string", "format": "email"}}
    return ToolOutput(content=(Text(text=await filled(calling, str(arguments["message"]), fields, "form")),))


@tool
async def test_elicitation_sep1034_defaults(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return ToolOutput(content=(Text(text=await filled(calling, "Who are you?", fields, "form")),))


@tool
async def test_elicitation_sep1330_enums(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    fields = {
        "untitledSingle": {"type": "string", "enum": _OPTIONS},
        "titledSingle": {"type": "string", "oneOf": _TITLED},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
    }
    return ToolOutput(content=(Text(text=await filled(calling, "Choose", fields, "form")),))


@tool
async def test_input_required_result_elicitation(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    answer = await filled(calling, "What is your name?", {"name": {"type": "string"}}, "user_name")
    return ToolOutput(content=(Text(text=f"Hello, {json.loads(answer)['name']}!"),))


@tool
async def test_streaming_elicitation(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    return await test_input_required_result_elicitation(arguments, calling)  # type: ignore[no-any-return]


@tool
async def test_input_required_result_request_state(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    await filled(calling, "Please confirm", {"ok": {"type": "boolean"}}, "confirm")
    return ToolOutput(content=(Text(text="state-ok"),))


@tool
async def test_input_required_result_tampered_state(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    return await test_input_required_result_request_state(arguments, calling)  # type: ignore[no-any-return]


@tool
async def test_input_required_result_multi_round(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    name = await filled(calling, "Step 1: What is your name?", {"name": {"type": "string"}}, "step1")
    color = await filled(calling, "Step 2: What is your favorite color?", {"color": {"type": "string"}}, "step2")
    return ToolOutput(content=(Text(text=f"{name} {color}"),))


SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


async def nothing(arguments: Arguments, calling: ToolContext) -> ToolOutput:
    return ToolOutput(content=(Text(text="ok"),))


def offered() -> list[Tool]:
    elsewhere = [*extra_capabilities.TOOLS, "test_trigger_tool_change", "test_trigger_prompt_change"]
    tools_by_name = TOOLS | dict.fromkeys(elsewhere, nothing)
    tools = [Tool(name=name, run=run, description=f"The suite's {name}") for name, run in tools_by_name.items()]
    headed = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    return [
        *tools,
        Tool(name="json_schema_2020_12_tool", run=nothing, description="A newer schema", parameters=SCHEMA_2020_12),
        Tool(name="test_headers", run=nothing, description="Its argument is in a header too", parameters=headed),
    ]


async def main(port: int) -> None:
    tools = {tool.name: tool for tool in offered()}

    async def catalog() -> Sequence[Tool]:
        return list(tools.values())

    async def carry(
        name: str, arguments: Arguments, /, *, approver: Approver, on_progress: Callable[[str], None]
    ) -> ToolOutput:
        if name == "test_trigger_tool_change":
            await served.notify_changed()
        calling = ToolContext(
            run="suite", id="1", tool=name, idempotency_key="1", approver=approver, report_progress=on_progress
        )
        try:
            return await tools[name].run(arguments, calling)  # type: ignore[no-any-return]
        except ToolError as fault:
            return ToolOutput(content=(Text(text=str(fault)),), is_error=True, error_kind=fault.kind)

    served = ToolServer(catalog, carry)
    extra_capabilities.add_capabilities(served.server, served.bus)
    gate = Authenticator(())
    app = http_app(served, lambda headers, query: None if gate.rejection_reason(headers) is None else 403)
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning")
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
