"""The output type of an agent: its schema for the model, and the conversion of the model's answer to a value.

A provider with structured output gets the schema as the format of its responses. Elsewhere the model calls the tool
`final_answer` with the answer as arguments. Either way the answer is validated here, and the model is told what is
wrong with an invalid one.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.tools import OutputFormat
from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError
from toolwire.runtime.type_schema import convert_value, schema_of
from toolwire.translation.stages.restore_calls import without_nulls

OUTPUT_TOOL = "final_answer"
_WRAPPER = "result"
_FENCE = re.compile(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*", re.DOTALL)
_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
_MAX_MESSAGE_LENGTH = 1000


class InvalidOutput(ToolwireError):
    """The model's answer does not match the output type; the message is for the model."""


class OutputType:
    """The type of an agent's answer, with its JSON Schema."""

    def __init__(self, annotation: Any) -> None:
        """Build the schema. Its root is always an object; any other type is wrapped in one."""
        self.annotation = annotation
        definitions: dict[str, Any] = {}
        schema = _inline_root(schema_of(annotation, definitions), definitions)
        self._is_wrapped = schema.get("type") != "object"  # see `wrap_output`
        if self._is_wrapped:
            schema = {
                "type": "object",
                "properties": {_WRAPPER: schema},
                "required": [_WRAPPER],
                "additionalProperties": False,
            }
        self._schema = schema | ({"$defs": definitions} if definitions else {})

    def response_format(self) -> OutputFormat:
        """Return the format for providers with structured output."""
        name = _NAME.sub("_", getattr(self.annotation, "__name__", "")).strip("_") or "output"
        return OutputFormat(
            kind="json_schema", schema=Raw(msgspec.json.encode(self._schema)), name=name[:64], strict=True
        )

    def tool(self) -> Tool:
        """Return the tool through which other models give their answer."""

        async def accept(arguments: Arguments, _: ToolContext) -> str:
            """Validate the answer. The loop reads it from the call."""
            try:
                self.convert(arguments)
            except InvalidOutput as error:
                raise ToolError(str(error), "schema") from None
            return "accepted"

        return Tool(
            name=OUTPUT_TOOL,
            description="Give the final answer. Call it once, when you have all that the answer needs.",
            parameters=self._schema,
            annotations=Annotations(read_only=True, idempotent=True),
            run=accept,
        )

    def parse(self, text: str) -> Any:
        """Convert the JSON text of an answer to a value of the type; raise `InvalidOutput` if that is impossible.

        A code fence around the text is ignored.
        """
        if (fenced := _FENCE.fullmatch(text)) is not None:
            text = fenced[1]
        try:
            value = msgspec.json.decode(without_nulls(text, Raw(msgspec.json.encode(self._schema))))
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidOutput(f"the answer is not valid JSON: {error}") from None
        return self.convert(value)

    def convert(self, value: Any) -> Any:
        """Convert the JSON value of an answer to a value of the type; raise `InvalidOutput` if it does not fit."""
        if self._is_wrapped:
            if not isinstance(value, dict) or _WRAPPER not in value:
                raise InvalidOutput(f'expected an object with the member "{_WRAPPER}"')
            value = value[_WRAPPER]
        try:
            return convert_value(value, self.annotation)
        except ValueError as error:
            raise InvalidOutput(str(error)[:_MAX_MESSAGE_LENGTH]) from None


def wrap_output(data: Any, schema: Mapping[str, Any]) -> Any:
    """Wrap the JSON data of an answer in an object if the schema of the output type does so."""
    is_wrapped = list(schema.get("properties", ())) == [_WRAPPER]
    return {_WRAPPER: data} if is_wrapped and not (isinstance(data, dict) and list(data) == [_WRAPPER]) else data


def _inline_root(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that a `$ref` at the root refers to: providers reject a reference there."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    name = reference.rpartition("/")[2]
    target: dict[str, Any] = definitions[name]
    if reference.encode() not in msgspec.json.encode(definitions):  # no type refers to the root itself
        del definitions[name]
    return target
