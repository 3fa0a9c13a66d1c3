"""A result, held against what the tool said its results are.

One call of a server's tool: sent, its questions answered, and sent again until it is done.
"""

import asyncio
import itertools
from functools import cached_property
from typing import Annotated, Any, NoReturn, TypeAlias

import jsonschema_rs
import mcp_types as types
from mcp import Client, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Discriminator, Tag, TypeAdapter

from toolwire.runtime.calls.validation import is_too_costly, validation_cost
from toolwire.runtime.mcp import content, limits
from toolwire.runtime.mcp.elicitation import elicit
from toolwire.runtime.tool import Arguments, ToolContext, ToolError, ToolOutput


def _refuse_lookup(url: str) -> NoReturn:
    """A schema that a server wrote sends us nowhere."""
    raise ValueError(f"{url} is not looked up")


class OutputSchema:
    def __init__(self, schema: dict[str, Any] | None) -> None:
        self._schema = schema

    @cached_property
    def _cost(self) -> tuple[float, int]:
        return validation_cost(self._schema)

    @cached_property
    def _validator(self) -> Any:
        return jsonschema_rs.validator_for(self._schema or {}, retriever=_refuse_lookup)

    def checked_output(self, result: types.CallToolResult, server: str) -> ToolOutput:
        made = content.decode_result(result)
        if self._schema is None or made.is_error:
            return made
        if result.structured_content is None and "structured_content" not in result.model_fields_set:
            raise ToolError(f"the MCP server {server} gave no structured content, which its tool promises", "output")
        if is_too_costly(self._cost, made.structured):
            raise ToolError(f"the result of the MCP server {server} would take too long to be checked", "output")
        try:
            wrong = next(self._validator.iter_errors(made.structured), None)
        except ValueError as error:
            raise ToolError(f"the MCP server {server} promises what can't be checked: {error}", "output") from None
        if wrong is not None:
            at = "/".join(str(step) for step in wrong.instance_path) or "the result"
            raise ToolError(
                f"the MCP server {server} gave something else than its tool promises, at {at[:200]}: "
                f"{limits.sanitize_text(wrong.message, 300)}",
                "output",
            )
        return made


_CallResult: TypeAlias = types.CallToolResult | types.InputRequiredResult
_LEGACY_RESULT: TypeAdapter[_CallResult] = TypeAdapter(types.CallToolResult)


def _result_type(value: Any) -> str:
    return str(value.get("resultType", "complete")) if isinstance(value, dict) else "complete"


_MODERN_RESULT: TypeAdapter[_CallResult] = TypeAdapter(
    Annotated[
        Annotated[types.CallToolResult, Tag("complete")] | Annotated[types.InputRequiredResult, Tag("input_required")],
        Discriminator(_result_type),
    ]
)


async def call_tool(
    client: Client, server: str, tool: str, arguments: Arguments, context: ToolContext
) -> types.CallToolResult:
    answers: types.InputResponses | None = None
    state: str | None = None
    for number in range(limits.MAX_INPUT_ROUNDS):
        params = types.CallToolRequestParams(
            name=tool, arguments=arguments, input_responses=answers, request_state=state
        )
        result = await _send_call(client, params, context)
        if isinstance(result, types.CallToolResult):
            return result
        if result.input_requests:
            answers = await _answer_requests(server, result.input_requests, context)
        else:
            answers = None  # it is busy, and wants to be asked again
            await asyncio.sleep(min(1.0, 0.05 * 2**number))
        state = result.request_state
    raise ToolError(f"the MCP server {server} asked more than {limits.MAX_INPUT_ROUNDS} times for input", "protocol")


async def _send_call(client: Client, params: types.CallToolRequestParams, context: ToolContext) -> _CallResult:
    told = itertools.count()

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        if next(told) >= limits.MAX_PROGRESS_NOTICES:
            return
        number = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
        context.report_progress(f"{number} {limits.sanitize_text(message, 500)}" if message else number)

    modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
    for last in (False, True):
        try:
            # Not the client's own `call_tool`, which checks results with patterns that may not end.
            return await client.session.send_request(
                types.CallToolRequest(params=params),
                _MODERN_RESULT if modern else _LEGACY_RESULT,
                progress_callback=progressed,
            )
        except MCPError as error:
            if error.code != types.HEADER_MISMATCH or not modern or last:
                raise
            await _refresh_schemas(client)
    raise AssertionError


async def _refresh_schemas(client: Client) -> None:
    """The headers of a call come from the tool's schema, which is another one by now."""
    cursor: str | None = None
    for _ in range(limits.MAX_PAGES):
        page = await client.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        if (cursor := page.next_cursor) is None:
            return


async def _answer_requests(
    server: str, requests: dict[str, types.InputRequest], context: ToolContext
) -> types.InputResponses:
    if len(requests) > limits.MAX_QUESTIONS:
        raise ToolError(f"the MCP server {server} asks more than {limits.MAX_QUESTIONS} things at once", "protocol")
    answers: types.InputResponses = {}
    for key, request in requests.items():  # one after the other: it is one person
        if not isinstance(request, types.ElicitRequest):
            raise ToolError(f"the MCP server {server} wants {request.method}, which it was not offered", "protocol")
        answers[key] = await elicit(context.approver, server, request.params)
    return answers
