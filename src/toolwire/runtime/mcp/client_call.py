"""Call a tool of an MCP server: send the call, answer its questions, wait for its task, and validate the result."""

import asyncio
import itertools
from functools import cached_property
from typing import Annotated, Any, NoReturn, TypeAlias

import jsonschema_rs
import mcp_types as types
from mcp import MCPError
from pydantic import Discriminator, Tag, TypeAdapter

from toolwire.runtime.calls.validation import is_too_costly, validation_cost
from toolwire.runtime.mcp import content, limits
from toolwire.runtime.mcp.server_requests import ActiveCall, ServerRequests
from toolwire.runtime.mcp.session import Session
from toolwire.runtime.mcp.tasks import TaskState, finish_task, start_legacy_task
from toolwire.runtime.tool import Arguments, ToolContext, ToolError, ToolOutput


def _refuse_lookup(url: str) -> NoReturn:
    """Refuse to fetch a remote `$ref` of a server's schema."""
    raise ValueError(f"remote reference not allowed: {url}")


class OutputSchema:
    """The output schema of a server's tool, compiled on first use."""

    def __init__(self, schema: dict[str, Any] | None) -> None:
        self._schema = schema

    @cached_property
    def _cost(self) -> tuple[float, int]:
        """The `validation_cost` of the schema."""
        return validation_cost(self._schema)

    @cached_property
    def _validator(self) -> Any:
        """The compiled schema."""
        return jsonschema_rs.validator_for(self._schema or {}, retriever=_refuse_lookup)

    def checked_output(self, result: types.CallToolResult, server: str) -> ToolOutput:
        """Decode a server's result; raise `ToolError` if its structured content does not match the schema."""
        output = content.decode_result(result)
        if self._schema is None or output.is_error:
            return output
        if result.structured_content is None and "structured_content" not in result.model_fields_set:
            raise ToolError(
                f"MCP server {server!r} returned no structured content, which the output schema requires", "output"
            )
        if is_too_costly(self._cost, output.structured):
            raise ToolError(f"the result of MCP server {server!r} would take too long to validate", "output")
        try:
            mismatch = next(self._validator.iter_errors(output.structured), None)
        except ValueError as error:
            raise ToolError(f"MCP server {server!r} has an invalid output schema: {error}", "output") from None
        if mismatch is not None:
            path = "/".join(str(segment) for segment in mismatch.instance_path) or "the result"
            raise ToolError(
                f"the result of MCP server {server!r} does not match its output schema at {path[:200]}: "
                f"{limits.sanitize_text(mismatch.message, 300)}",
                "output",
            )
        return output


_CallResult: TypeAlias = types.CallToolResult | types.InputRequiredResult | TaskState
_LEGACY_RESULT: TypeAdapter[_CallResult] = TypeAdapter(types.CallToolResult)


def _result_type(value: Any) -> str:
    """Return the `resultType` of a raw result, which selects its class: `complete`, `input_required` or `task`."""
    return str(value.get("resultType", "complete")) if isinstance(value, dict) else "complete"


_MODERN_RESULT: TypeAdapter[_CallResult] = TypeAdapter(
    Annotated[
        Annotated[types.CallToolResult, Tag("complete")]
        | Annotated[types.InputRequiredResult, Tag("input_required")]
        | Annotated[TaskState, Tag("task")],
        Discriminator(_result_type),
    ]
)


class ServerTool:
    """A tool of a server, and how to call it."""

    def __init__(self, listed: types.Tool, requests: ServerRequests, timeout: float) -> None:
        """`timeout` is the time for a task of the tool, in seconds."""
        self._name = listed.name
        self._requests = requests
        self._timeout = timeout
        self._needs_task = listed.execution is not None and listed.execution.task_support == "required"

    async def call(self, session: Session, arguments: Arguments, call: ActiveCall) -> types.CallToolResult:
        """Call the tool, in as many rounds as the server has questions (`input_required`)."""
        answers: types.InputResponses | None = None
        state: str | None = None
        for number in range(limits.MAX_INPUT_ROUNDS):
            params = types.CallToolRequestParams(
                name=self._name, arguments=arguments, input_responses=answers, request_state=state
            )
            result = await self._send_call(session, params, call.context)
            if isinstance(result, TaskState):
                return await finish_task(session, result, call, self._requests, self._timeout)
            if isinstance(result, types.CallToolResult):
                return result
            if result.input_requests:
                answers = await self._requests.answer(result.input_requests, call)
            else:
                answers = None  # without questions, `input_required` means that the server is busy: send again
                await asyncio.sleep(min(1.0, 0.05 * 2**number))
            state = result.request_state
        raise ToolError(
            f"MCP server {self._requests.server!r} requested input more than {limits.MAX_INPUT_ROUNDS} times",
            "protocol",
        )

    async def _send_call(
        self, session: Session, params: types.CallToolRequestParams, context: ToolContext
    ) -> _CallResult:
        """Send one round of a call, and forward its progress notifications."""
        if self._needs_task and not session.is_modern:
            return await start_legacy_task(session, params, self._timeout)
        progress_count = itertools.count()

        async def report_progress(progress: float, total: float | None, message: str | None) -> None:
            """Forward one progress notification to the caller, up to a maximum number."""
            if next(progress_count) >= limits.MAX_PROGRESS_NOTICES:
                return
            number = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
            context.report_progress(f"{number} {limits.sanitize_text(message, 500)}" if message else number)

        for is_retry in (False, True):
            try:
                # Not the SDK's `call_tool`: it validates results with regular expressions that may never end.
                return await session.send_request(
                    types.CallToolRequest(params=params),
                    _MODERN_RESULT if session.is_modern else _LEGACY_RESULT,
                    progress_callback=report_progress,
                )
            except MCPError as error:
                if error.code != types.HEADER_MISMATCH or not session.is_modern or is_retry:
                    raise
                await _refresh_schemas(session)
        raise AssertionError


async def _refresh_schemas(session: Session) -> None:
    """List the tools again, because the SDK derives the headers of a call from the tool's schema."""
    cursor: str | None = None
    for _ in range(limits.MAX_PAGES):
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        if (cursor := page.next_cursor) is None:
            return
