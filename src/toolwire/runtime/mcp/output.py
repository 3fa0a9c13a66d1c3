"""A result, held against what the tool said its results are."""

from functools import cached_property
from typing import Any, NoReturn

import jsonschema_rs
import mcp_types as types

from toolwire.runtime.toolset import Output, ToolFault
from toolwire.runtime.weighing import too_costly, weigh

from . import bounds, content


def _refuse(url: str) -> NoReturn:
    """A schema that a server wrote sends us nowhere."""
    raise ValueError(f"{url} is not looked up")


class Checked:
    def __init__(self, schema: dict[str, Any] | None) -> None:
        self._schema = schema

    @cached_property
    def _weight(self) -> tuple[float, int]:
        return weigh(self._schema)

    @cached_property
    def _validator(self) -> Any:
        return jsonschema_rs.validator_for(self._schema or {}, retriever=_refuse)

    def output(self, result: types.CallToolResult, server: str) -> Output:
        made = content.decode(result)
        if self._schema is None or made.is_error:
            return made
        if result.structured_content is None and "structured_content" not in result.model_fields_set:
            raise ToolFault(f"the MCP server {server} gave no structured content, which its tool promises", "output")
        if too_costly(self._weight, made.structured):
            raise ToolFault(f"the result of the MCP server {server} would take too long to be checked", "output")
        try:
            wrong = next(self._validator.iter_errors(made.structured), None)
        except ValueError as error:
            raise ToolFault(f"the MCP server {server} promises what can't be checked: {error}", "output") from None
        if wrong is not None:
            at = "/".join(str(step) for step in wrong.instance_path) or "the result"
            raise ToolFault(
                f"the MCP server {server} gave something else than its tool promises, at {at[:200]}: "
                f"{bounds.readable(wrong.message, 300)}",
                "output",
            )
        return made
