"""Arguments of calls against schemas of clients: read, repaired or refused, and an invalid schema is no crash."""

import json
from contextlib import suppress
from typing import Any

import msgspec

from tests.fuzz.engine import Target
from tests.fuzz.mutations import TOKENS
from toolwire.canonical.content import ToolCall
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool
from toolwire.gateway.exchange.call_checks import DeclaredTools
from toolwire.runtime.calls.validation import (
    CallValidationError,
    InvalidSchema,
    check_schema,
    is_truncated,
    read_arguments,
)
from toolwire.runtime.tool import Tool

_SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "object", "properties": {"city": {"type": "string", "pattern": "^[A-Z]"}, "days": {"type": "integer"}}},
    {
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        "anyOf": [{"$ref": "#/$defs/node"}, {"type": "array", "items": {"$ref": "#"}, "uniqueItems": True}],
    },
    {"type": ["object", "null"], "properties": {"on": {"type": "boolean"}, "at": {"enum": [1, 2.5, "now"]}}},
)
_ARGUMENTS = (
    '{"city": "Oslo", "days": "2"}',
    "{'city': 'Oslo', 'on': True,}",
    '{"next": {"next": {}}}',
    '[[], [[1]], {"at": 1}]',
)
_REPAIR_TOKENS = (
    b"'",
    b"\\'",
    b"True",
    b"None",
    b",}",
    b",]",
    b"$ref",
    b"#/",
    b"\xc2\xb2",
    b"pattern",
    b"(a+)+$",
    b"\n",
)


async def _run(_: Any, __: Any) -> None:
    return None


def _seeds() -> list[bytes]:
    """Return schemas on one line, each with arguments on the next."""
    return [f"{json.dumps(schema)}\n{text}".encode() for schema in _SCHEMAS for text in _ARGUMENTS]


def _check(data: bytes) -> None:
    head, _, rest = data.partition(b"\n")
    text = rest.decode(errors="replace")
    try:
        schema = msgspec.json.decode(head, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    is_truncated(text)
    tools = (FunctionTool(name="f", parameters=msgspec.Raw(msgspec.json.encode(schema))),)
    fault = DeclaredTools(Request(origin="openai-chat", tools=tools)).find_fault(
        ToolCall(id="c", name="f", arguments=text)
    )
    assert fault is None or fault.message
    tool = Tool(name="f", run=_run, parameters=schema)
    with suppress(InvalidSchema, CallValidationError):
        check_schema(tool)
        json.dumps(read_arguments(tool, text, repair=True)[0])
        assert read_arguments(tool, text)[1] == ()


TARGETS = [Target("call-arguments", _seeds, _check, (*TOKENS, *_REPAIR_TOKENS))]
