"""One call of a server's tool: sent, its questions answered, and sent again until it is done."""

import asyncio
import itertools
from typing import Annotated, Any, TypeAlias

import mcp_types as types
from mcp import Client, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Discriminator, Tag, TypeAdapter

from toolwire.runtime.toolset import Arguments, Calling, ToolFault

from . import bounds
from .asking import elicit

_Result: TypeAlias = types.CallToolResult | types.InputRequiredResult
_Complete: TypeAdapter[_Result] = TypeAdapter(types.CallToolResult)


def _kind(value: Any) -> str:
    return str(value.get("resultType", "complete")) if isinstance(value, dict) else "complete"


_Modern: TypeAdapter[_Result] = TypeAdapter(
    Annotated[
        Annotated[types.CallToolResult, Tag("complete")] | Annotated[types.InputRequiredResult, Tag("input_required")],
        Discriminator(_kind),
    ]
)


async def called(
    client: Client, server: str, tool: str, arguments: Arguments, calling: Calling
) -> types.CallToolResult:
    answers: types.InputResponses | None = None
    state: str | None = None
    for number in range(bounds.ROUNDS):
        params = types.CallToolRequestParams(
            name=tool, arguments=arguments, input_responses=answers, request_state=state
        )
        result = await _sent(client, params, calling)
        if isinstance(result, types.CallToolResult):
            return result
        if result.input_requests:
            answers = await _answered(server, result.input_requests, calling)
        else:
            answers = None  # it is busy, and wants to be asked again
            await asyncio.sleep(min(1.0, 0.05 * 2**number))
        state = result.request_state
    raise ToolFault(f"the MCP server {server} asked more than {bounds.ROUNDS} times for input", "protocol")


async def _sent(client: Client, params: types.CallToolRequestParams, calling: Calling) -> _Result:
    told = itertools.count()

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        if next(told) >= bounds.PROGRESS:
            return
        number = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
        calling.progress(f"{number} {bounds.readable(message, 500)}" if message else number)

    modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
    for last in (False, True):
        try:
            # Not the client's own `call_tool`, which checks results with patterns that may not end.
            return await client.session.send_request(
                types.CallToolRequest(params=params), _Modern if modern else _Complete, progress_callback=progressed
            )
        except MCPError as error:
            if error.code != types.HEADER_MISMATCH or not modern or last:
                raise
            await _listed_again(client)
    raise AssertionError


async def _listed_again(client: Client) -> None:
    """The headers of a call come from the tool's schema, which is another one by now."""
    cursor: str | None = None
    for _ in range(bounds.PAGES):
        page = await client.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        if (cursor := page.next_cursor) is None:
            return


async def _answered(server: str, requests: dict[str, types.InputRequest], calling: Calling) -> types.InputResponses:
    if len(requests) > bounds.QUESTIONS:
        raise ToolFault(f"the MCP server {server} asks more than {bounds.QUESTIONS} things at once", "protocol")
    answers: types.InputResponses = {}
    for key, request in requests.items():  # one after the other: it is one person
        if not isinstance(request, types.ElicitRequest):
            raise ToolFault(f"the MCP server {server} wants {request.method}, which it was not offered", "protocol")
        answers[key] = await elicit(calling.person, server, request.params)
    return answers
