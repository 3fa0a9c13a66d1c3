"""The tools that the conformance suite calls, as a user would write them: `toolwire mcp serve --module`."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

import toolwire as tw
from toolwire.canonical.content import PlainText
from toolwire.runtime.mcp.elicitation import FormFiller

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAVE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
IMAGE = tw.Media(kind="image", source=tw.Inline(data=PNG), media_type="image/png")
_OPTIONS = ["option1", "option2", "option3"]
_TITLED = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]


async def fill_form(context: tw.ToolContext, message: str, fields: Mapping[str, Any], key: str) -> str:
    """Present a form to the user, and return the values as JSON text."""
    if not isinstance(context.approver, FormFiller):
        raise tw.ToolError("the client can't be asked")
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return json.dumps(await context.approver.fill(message, schema, key))


@tw.tool
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@tw.tool
def test_image_content() -> tw.Media:
    """Return an image."""
    return IMAGE


@tw.tool
def test_audio_content() -> tw.Media:
    """Return audio."""
    return tw.Media(kind="audio", source=tw.Inline(data=WAVE), media_type="audio/wav")


def document(name: str, media_type: str, text: str) -> tw.Media:
    """Return a named document."""
    return tw.Media(kind="document", source=PlainText(text=text), media_type=media_type, name=name)


@tw.tool
def test_embedded_resource() -> tw.Media:
    """Return a document."""
    return document("test://embedded-resource", "text/plain", "This is an embedded resource content.")


@tw.tool
def test_multiple_content_types() -> list[Any]:
    """Return a text, an image and a document."""
    resource = document("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return [tw.Text(text="Multiple content types test:"), IMAGE, resource]


@tw.tool
def test_error_handling() -> str:
    """Fail."""
    raise tw.ToolError("This tool intentionally returns an error for testing")


@tw.tool
async def test_tool_with_progress(context: tw.ToolContext) -> str:
    """Report progress in three steps."""
    for done in (0, 50, 100):
        context.report_progress(f"{done}/100 Completed step {done} of 100")
        await asyncio.sleep(0.05)
    return "done"


@tw.tool
async def test_tool_with_logging(context: tw.ToolContext) -> str:
    """Log three messages."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        context.report_log("info", text)
        await asyncio.sleep(0.05)
    return "logged"


@tw.tool
async def test_logging_tool(context: tw.ToolContext) -> str:
    """Log messages, for a client of the newer version."""
    return await test_tool_with_logging(context)


@tw.tool
async def test_elicitation(message: str, context: tw.ToolContext) -> str:
    """Ask for a name and an address."""
    fields = {"username": {"type": "string"}, "email": {"type": "string", "format": "email"}}
    return await fill_form(context, message, fields, "form")


@tw.tool
async def test_elicitation_sep1034_defaults(context: tw.ToolContext) -> str:
    """Ask with a default for every type."""
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await fill_form(context, "Who are you?", fields, "form")


@tw.tool
async def test_elicitation_sep1330_enums(context: tw.ToolContext) -> str:
    """Ask with every kind of enumeration."""
    fields = {
        "untitledSingle": {"type": "string", "enum": _OPTIONS},
        "titledSingle": {"type": "string", "oneOf": _TITLED},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
    }
    return await fill_form(context, "Choose", fields, "form")


@tw.tool
async def test_input_required_result_elicitation(context: tw.ToolContext) -> str:
    """Ask for a name."""
    answer = await fill_form(context, "What is your name?", {"name": {"type": "string"}}, "user_name")
    return f"Hello, {json.loads(answer)['name']}!"


@tw.tool
async def test_streaming_elicitation(context: tw.ToolContext) -> str:
    """Ask for a name."""
    return await test_input_required_result_elicitation(context)


@tw.tool
async def test_input_required_result_request_state(context: tw.ToolContext) -> str:
    """Ask for a confirmation."""
    await fill_form(context, "Please confirm", {"ok": {"type": "boolean"}}, "confirm")
    return "state-ok"


@tw.tool
async def test_input_required_result_tampered_state(context: tw.ToolContext) -> str:
    """Ask for a confirmation."""
    return await test_input_required_result_request_state(context)


@tw.tool
async def test_input_required_result_multi_round(context: tw.ToolContext) -> str:
    """Ask twice."""
    name = await fill_form(context, "Step 1: What is your name?", {"name": {"type": "string"}}, "step1")
    color = await fill_form(context, "Step 2: What is your favorite color?", {"color": {"type": "string"}}, "step2")
    return f"{name} {color}"


@tw.tool
def test_headers(region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})] = "") -> str:  # noqa: PT028 - a tool
    """Take an argument that HTTP clients also send as a header."""
    return region


async def _return_ok(arguments: Any, context: tw.ToolContext) -> str:
    """Return a text."""
    return "ok"


json_schema_2020_12_tool = tw.Tool(
    name="json_schema_2020_12_tool",
    run=_return_ok,
    description="A tool with keywords of the newer dialect",
    parameters={
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
    },
)


class ChangingTools:
    """A toolset that reports a change when one of its tools is called."""

    name = "changing"

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    async def tools(self) -> Sequence[tw.Tool]:
        """Return the tool."""

        async def run(arguments: Any, context: tw.ToolContext) -> str:
            """Report a change."""
            self.on_change()
            return "changed"

        return [tw.Tool(name="test_trigger_tool_change", run=run, description="Report a change of the tools")]


changing = ChangingTools()
