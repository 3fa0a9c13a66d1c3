"""Resources of a server: list and read them, as content for a prompt or by tools."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import mcp_types as types
import msgspec
from mcp import MCPError
from msgspec import Struct
from pydantic import TypeAdapter

from toolwire.canonical.content import Media, Text
from toolwire.runtime.mcp import content, limits
from toolwire.runtime.mcp.server_requests import ActiveCall, ServerRequests
from toolwire.runtime.mcp.session import Session
from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError, ToolOutput

LIST_RESOURCES, READ_RESOURCE = "list_resources", "read_resource"
_ReadResult: TypeAlias = types.ReadResourceResult | types.InputRequiredResult
_READ_RESULT: TypeAdapter[_ReadResult] = TypeAdapter(_ReadResult)


class Resource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource of a server, or a template for the URIs of several."""

    uri: str
    """The URI, or a URI template of RFC 6570 such as `file:///{path}`."""
    name: str
    description: str = ""
    media_type: str = ""
    size: int | None = None
    is_template: bool = False


async def list_resources(session: Session) -> list[Resource]:
    """List the resources of a server, then its templates, up to a maximum number of each."""
    capabilities = session.server_capabilities
    if capabilities is None or capabilities.resources is None:
        return []
    listed: list[Resource] = []
    params: types.PaginatedRequestParams | None = None
    for _ in range(limits.MAX_PAGES):
        page = await session.list_resources(params=params)
        listed += [_describe(resource, resource.uri, resource.size) for resource in page.resources]
        if page.next_cursor is None or len(listed) > limits.MAX_RESOURCES:
            break
        params = types.PaginatedRequestParams(cursor=page.next_cursor)
    return listed[: limits.MAX_RESOURCES] + await _list_templates(session)


async def _list_templates(session: Session) -> list[Resource]:
    """List the resource templates of a server; none if it does not know the request."""
    templates: list[Resource] = []
    params: types.PaginatedRequestParams | None = None
    try:
        for _ in range(limits.MAX_PAGES):
            page = await session.list_resource_templates(params=params)
            templates += [_describe(template, template.uri_template, None) for template in page.resource_templates]
            if page.next_cursor is None or len(templates) > limits.MAX_RESOURCES:
                break
            params = types.PaginatedRequestParams(cursor=page.next_cursor)
    except MCPError as error:
        if error.code != types.METHOD_NOT_FOUND:
            raise
    return templates[: limits.MAX_RESOURCES]


def _describe(listed: types.Resource | types.ResourceTemplate, uri: str, size: int | None) -> Resource:
    """Describe a resource or template, without invisible characters."""
    return Resource(
        uri=uri,
        name=limits.sanitize_text(listed.title or listed.name, 200),
        description=limits.sanitize_text(listed.description or "", 1000),
        media_type=listed.mime_type or "",
        size=size,
        is_template=isinstance(listed, types.ResourceTemplate),
    )


async def read_resource(
    session: Session, uri: str, requests: ServerRequests, call: ActiveCall | None = None
) -> tuple[Media, ...]:
    """Read a resource, whose URI may have several contents. Questions of the server need a call."""
    answers: types.InputResponses | None = None
    state: str | None = None
    for _ in range(limits.MAX_INPUT_ROUNDS):
        params = types.ReadResourceRequestParams(uri=uri, input_responses=answers, request_state=state)
        result = await session.send_request(types.ReadResourceRequest(params=params), _READ_RESULT)
        if isinstance(result, types.ReadResourceResult):
            return tuple(content.decode_resource(resource) for resource in result.contents[: limits.MAX_PARTS])
        if result.input_requests and call is None:
            break
        answers = await requests.answer(result.input_requests, call) if result.input_requests and call else None
        state = result.request_state
    raise ToolError(f"the server asks for input before {uri[:200]} can be read", "protocol")


Runner: TypeAlias = Callable[[ToolContext, Callable[[Session, ActiveCall], Awaitable[Any]]], Awaitable[Any]]
"""Runs a function on a session during a call, and converts its failures to `ToolError`."""


def resource_tools(server: str, run: Runner, requests: ServerRequests, names: Callable[[str], str]) -> Sequence[Tool]:
    """Build the tools that list and read the resources of a server. `names` returns the name of a tool for models."""

    async def run_list(arguments: Arguments, context: ToolContext) -> ToolOutput:
        """List the resources and templates as JSON."""
        listed: list[Resource] = await run(context, lambda session, _: list_resources(session))
        return ToolOutput(content=(Text(text=msgspec.json.encode(listed).decode()),))

    async def run_read(arguments: Arguments, context: ToolContext) -> ToolOutput:
        """Read one resource."""
        uri = str(arguments["uri"])
        parts: tuple[Media, ...] = await run(context, lambda session, call: read_resource(session, uri, requests, call))
        return ToolOutput(content=parts)

    uri_schema = {"type": "string", "description": "the URI of a listed resource, or a URI that fits a template"}
    schemas: dict[str, Any] = {
        LIST_RESOURCES: {"type": "object", "properties": {}, "additionalProperties": False},
        READ_RESOURCE: {
            "type": "object",
            "properties": {"uri": uri_schema},
            "required": ["uri"],
            "additionalProperties": False,
        },
    }
    descriptions = {
        LIST_RESOURCES: f"List the resources and URI templates of the server {server}.",
        READ_RESOURCE: f"Read a resource of the server {server}.",
    }
    functions = {LIST_RESOURCES: run_list, READ_RESOURCE: run_read}
    return [
        Tool(
            name=names(name),
            run=functions[name],
            description=descriptions[name],
            parameters=schemas[name],
            stoppable=False,
            annotations=Annotations(read_only=True, open_world=True),
            locus="mcp",
            source=server,
        )
        for name in functions
    ]
