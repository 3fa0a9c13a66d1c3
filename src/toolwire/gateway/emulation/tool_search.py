"""Tool search for upstreams that have none: the gateway searches in place of the client's provider.

1. The search is declared as a function, and deferred tools are left out until they are found.
2. A call of that function never reaches the client, which sees a search in its provider's form. The upstream gets a
   further request with the found tools declared. The rounds are bounded like pauses.
3. The client resends the search results with the conversation, so later requests declare the found tools, too.
4. A response that also calls the client's tools ends there, since only the client can continue.
5. The index of a new tool list is built in a thread, so that other requests need not wait.
"""

import asyncio
import functools
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, OpaquePart, Part, Text, ToolCall, ToolResult
from toolwire.canonical.errors import Loss
from toolwire.canonical.events import Event
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Stop
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, Tool, ToolChoice, ToolGroup, ToolRef
from toolwire.codec.encoding.tools import is_tool_search
from toolwire.codec.interface import Codec, OriginalTool, ResponseMapping
from toolwire.gateway.rounds.continuation import GatewayToolLoop, ProtocolPair, RouteTools
from toolwire.runtime.search.deferred_tools import native_search
from toolwire.runtime.search.index import IndexedTool, SearchError, ToolIndex

_FUNCTION_NAME = "tool_search"
_DEFAULT_LIMIT, _MAX_LIMIT, _MAX_DESCRIPTION = 5, 50, 400
_LIMIT_CACHED = 2 * 1024 * 1024
_NON_ID_CHARACTER = re.compile(r"[^a-zA-Z0-9_]")
_LOSS_REASON = "the target has no tool search: the gateway searches instead"

DeferrableTool = FunctionTool | FreeformTool


class ToolSearchResult(Struct, frozen=True):
    """The result of one search: the tools found, or an error."""

    id: str
    arguments: Mapping[str, Any]
    tools: tuple[DeferrableTool, ...] = ()
    error: SearchError | None = None
    groups: Mapping[str, str] = {}
    """Descriptions of tool groups, by name."""


class ToolSearchRequest(Struct, frozen=True):
    """A request with the provider's tool search replaced by a function."""

    request: Request
    losses: list[Loss]
    function_name: str
    search_name: str
    deferred_tools: dict[str, DeferrableTool]
    """All deferred tools, by flat name."""
    undiscovered_tools: dict[str, DeferrableTool]
    """Deferred tools that no search has found yet."""
    groups: tuple[ToolGroup, ...] = ()

    def with_all_tools(self, request: Request) -> Request:
        """Return the request with the tools that no search has found yet, to report their losses from the start."""
        return replace(request, tools=(*(request.tools or ()), *self.undiscovered_tools.values()))


def plan_tool_search(request: Request, client: Codec, upstream: Codec, model: str | None) -> ToolSearchRequest | None:
    """Adapt a request for an upstream without tool search; None if there is nothing to emulate."""
    if client is upstream or client.name not in _SEARCH_DIALECTS or not request.tools:
        return None
    searches = _native_searches(request.tools)
    if not searches or native_search(upstream.name, model or "") is not None:
        return None
    functions = list(iter_functions(request.tools))
    found_names = set(_SEARCH_DIALECTS[client.name].found_names(request.messages))
    deferred = {flat_name(tool): replace(tool, defer=None) for tool in functions if tool.defer}
    undiscovered = {name: tool for name, tool in deferred.items() if name not in found_names}
    if not undiscovered:
        return None
    function_name = _free_function_name(set(map(flat_name, functions)))
    search = next(iter(searches.values()))
    function = _search_function(function_name, search)
    tools = replace_tools(request.tools, list(searches), function, undiscovered, "defer")
    adapted = replace(
        request,
        tools=tuple(tools),
        tool_choice=_redirect_tool_choice(request.tool_choice, search, function_name),
    )
    return ToolSearchRequest(
        request=adapted,
        losses=[
            Loss(
                severity="info",
                kind="approximated",
                path=tool_path(index, tool),
                reason=_LOSS_REASON,
                direction="request",
            )
            for index, tool in searches.items()
        ],
        function_name=function_name,
        search_name=search.name or search.kind,
        deferred_tools=deferred,
        undiscovered_tools=undiscovered,
        groups=tuple(tool for tool in request.tools if isinstance(tool, ToolGroup)),
    )


def _native_searches(tools: tuple[Tool, ...]) -> dict[int, NativeTool]:
    """Return the provider's own search tools, by position."""
    return {index: tool for index, tool in enumerate(tools) if isinstance(tool, NativeTool) and is_tool_search(tool)}


def _redirect_tool_choice(choice: ToolChoice | None, search: NativeTool, function_name: str) -> ToolChoice | None:
    """Return the tool choice; one that forces the provider's search forces the replacing function instead."""
    if choice is None or not any(tool.name in (search.name, search.kind) for tool in choice.names):
        return choice
    return replace(choice, names=(ToolRef(name=function_name, at=choice.names[0].at),))


def _free_function_name(taken_names: set[str]) -> str:
    """Return `tool_search`, with a number if the client has a tool of that name."""
    names = (f"{_FUNCTION_NAME}_{number}" if number > 1 else _FUNCTION_NAME for number in range(1, 1_000_000))
    return next(name for name in names if name not in taken_names)


def iter_functions(tools: Iterable[Tool]) -> Iterator[DeferrableTool]:
    """Yield every function with its path in the body; members of groups get the group as namespace."""
    for index, tool in enumerate(tools):
        at = tool_path(index, tool)
        if isinstance(tool, ToolGroup):
            for position, member in enumerate(tool.tools):
                yield replace(member, namespace=tool.name, at=at + tool_path(position, member))
        elif not isinstance(tool, NativeTool):
            yield replace(tool, at=at)


def tool_path(index: int, tool: Tool) -> str:
    """Return the JSON pointer of a tool in the request body."""
    return f"/tools/{index}" if tool.at is None else tool.at


def flat_name(tool: DeferrableTool) -> str:
    """Return the name of a tool, prefixed by its namespace."""
    return tool.name if tool.namespace is None else f"{tool.namespace}__{tool.name}"


def replace_tools(
    tools: tuple[Tool, ...], replaced: Sequence[int], function: FunctionTool, hidden: Container[str], cleared: str
) -> Iterator[Tool]:
    """Yield the tools to declare, each with its path for the loss report.

    `function` stands in place of the tools at the indexes `replaced`, those named in `hidden` are left out, and the
    field `cleared` of all others, which the target lacks, is removed.
    """
    removal = {cleared: None}
    for index, tool in enumerate(tools):
        at = tool_path(index, tool)
        if index in replaced:
            if index == replaced[0]:
                yield replace(function, at=at)
        elif isinstance(tool, ToolGroup):
            members = [
                replace(member, at=tool_path(position, member), **removal)
                for position, member in enumerate(tool.tools)
                if f"{tool.name}__{member.name}" not in hidden
            ]
            if members:
                yield replace(tool, tools=tuple(members), at=at)
        elif isinstance(tool, NativeTool):
            yield replace(tool, at=at)
        elif flat_name(tool) not in hidden:
            yield replace(tool, at=at, **removal)


def _search_function(function_name: str, search: NativeTool) -> FunctionTool:
    """Declare the function that replaces the provider's search."""
    regex = _is_regex(search.name or search.kind)
    field, field_description = (
        ("pattern", "A regular expression (RE2)") if regex else ("query", "What the tool should do")
    )
    properties = {
        field: {"type": "string", "description": field_description},
        "limit": {"type": "integer", "description": f"How many at most; {_DEFAULT_LIMIT} if not said"},
    }
    schema = {"type": "object", "properties": properties, "required": [field]}
    description = (
        "More tools exist than are declared. This finds those whose name, description or arguments fit; what is "
    )
    description += "found can be called right after. Search before you say that something can't be done."
    return FunctionTool(name=function_name, description=description, parameters=Raw(msgspec.json.encode(schema)))


def _is_regex(search_name: str) -> bool:
    """Return whether the search takes a regular expression."""
    return "regex" in search_name


def _index_for(entries: tuple[tuple[str, str, bytes], ...]) -> ToolIndex:
    """Return the search index of these tools, cached unless they are huge: clients resend the same tools."""
    size = sum(len(name) + len(description) + len(schema) for name, description, schema in entries)
    return _cached_index(entries) if size <= _LIMIT_CACHED else _build_index(entries)


def _build_index(entries: tuple[tuple[str, str, bytes], ...]) -> ToolIndex:
    """Build a search index from names, descriptions and schemas."""
    return ToolIndex(IndexedTool(name, description, decode_object(schema)) for name, description, schema in entries)


_cached_index = functools.lru_cache(maxsize=16)(_build_index)


def decode_object(schema: str | bytes) -> dict[str, Any] | None:
    """Decode a JSON object; None if it is invalid or not an object."""
    try:
        value = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class ToolSearchRounds(GatewayToolLoop):
    """Merges several upstream requests (rounds) into one response, running tool searches between them.

    The client sees each search in the form of its own provider.
    """

    def __init__(
        self,
        search_plan: ToolSearchRequest,
        pair: ProtocolPair,
        mapping: ResponseMapping,
        route_tools: RouteTools | None = None,
    ) -> None:
        dialect = _SEARCH_DIALECTS[pair.client.name]
        super().__init__(search_plan.request, pair, mapping, route_tools, dialect.stop)
        self._search_plan = search_plan
        self._search_dialect = dialect
        self._undiscovered_tools = dict(search_plan.undiscovered_tools)
        for name, tool in search_plan.undiscovered_tools.items():
            # The model may know the name from before, or guess it: such a call is passed on like any other.
            mapping.used_names.add(name)
            if tool.namespace is not None:
                mapping.tools.setdefault(name, OriginalTool(tool.name, tool.namespace))
        self._found_tools: list[DeferrableTool] = []
        self._search_count = 0
        self._index = _index_for(
            tuple(
                (name, tool.description or "", _tool_schema(tool)) for name, tool in search_plan.deferred_tools.items()
            )
        )

    async def prepare_first_round(self) -> Response | bytes | None:
        """Build the search index in a thread, if it is new; return None, as the first request is sent unchanged."""
        if self._undiscovered_tools and not self._index.is_built:
            await asyncio.to_thread(self._index.build)
        return None

    def _is_gateway_call(self, call: ToolCall) -> bool:
        """Return whether the call is a search or of a route tool."""
        return call.name == self._search_plan.function_name or super()._is_gateway_call(call)

    def _handle_call(self, call: ToolCall) -> list[Event]:
        """Run a search at once, and return the events that show it to the client; queue a call of a route tool."""
        if call.name != self._search_plan.function_name:
            return super()._handle_call(call)
        self._search_count += 1
        result = self._search(
            f"{_NON_ID_CHARACTER.sub('', call.id or '') or 'tw'}_{self._search_count}", call.arguments
        )
        self._results.append(_search_tool_result(call, result))
        self._found_tools += result.tools
        return self._part_events(
            self._search_dialect.encode_search(result, self._search_plan.search_name), self._message_offset
        )

    def _search(self, id: str, arguments_json: str) -> ToolSearchResult:
        """Run one search with the arguments that the model gave."""
        arguments = decode_object(arguments_json.encode()) or {}
        query = arguments.get("pattern", arguments.get("query"))
        limit = arguments.get("limit")
        max_results = limit if isinstance(limit, int) and 0 < limit <= _MAX_LIMIT else _DEFAULT_LIMIT
        if not isinstance(query, str):
            return ToolSearchResult(id, arguments, error=SearchError("no query given", "invalid_tool_input"))
        try:
            search = (
                self._index.search_pattern if _is_regex(self._search_plan.search_name) else self._index.search_words
            )
            names = search(query, max_results, self._search_plan.undiscovered_tools.__contains__)
        except SearchError as error:
            return ToolSearchResult(id, arguments, error=error)
        groups = {tool.name: tool.description or "" for tool in self._search_plan.groups}
        return ToolSearchResult(
            id, arguments, tuple(self._search_plan.undiscovered_tools[name] for name in names), groups=groups
        )

    def _take_new_tools(self) -> tuple[Tool, ...]:
        """Return the tools found by searches, and those of the route, to declare from the next round on."""
        new_tools, self._found_tools = (
            [tool for tool in self._found_tools if self._undiscovered_tools.pop(flat_name(tool), None) is not None],
            [],
        )
        return (*new_tools, *super()._take_new_tools())


def _tool_schema(tool: DeferrableTool) -> bytes:
    """Return the parameter schema of a tool as JSON."""
    return bytes(tool.parameters) if isinstance(tool, FunctionTool) and tool.parameters is not None else b"{}"


def _search_tool_result(call: ToolCall, result: ToolSearchResult) -> ToolResult:
    """Build the result of a search as the upstream's model gets it."""
    if result.error is not None:
        return ToolResult(call_id=call.id, name=call.name, content=(Text(text=str(result.error)),), status="error")
    entries = [
        {"name": flat_name(tool), "description": (tool.description or "")[:_MAX_DESCRIPTION]} for tool in result.tools
    ]
    text = msgspec.json.encode({"tools": entries}).decode() if entries else "No tool fits."
    return ToolResult(call_id=call.id, name=call.name, content=(Text(text=text),))


# ---- the providers' own forms of a search


class _SearchDialect(Protocol):
    """A protocol's wire form of a tool search."""

    stop: Stop
    """The stop reason of a response with too many rounds."""

    def encode_search(self, search_result: ToolSearchResult, search_name: str) -> list[Part]:
        """Encode a search and its result."""

    def found_names(self, messages: Iterable[Message]) -> Iterator[str]:
        """Yield the names of tools that earlier searches of the conversation found."""


class _AnthropicSearch:
    """Tool search as Anthropic's `tool_search_tool` expresses it."""

    stop = Stop(reason="paused", raw="pause_turn")

    def encode_search(self, search_result: ToolSearchResult, search_name: str) -> list[Part]:
        """Encode a `server_tool_use` and its `tool_search_tool_result`."""
        id = f"srvtoolu_{search_result.id}"
        if search_result.error is not None:
            details = {"error_code": search_result.error.kind, "error_message": str(search_result.error)}
            content: dict[str, Any] = {"type": "tool_search_tool_result_error", **details}
        else:
            references = [{"type": "tool_reference", "tool_name": tool.name} for tool in search_result.tools]
            content = {"type": "tool_search_tool_search_result", "tool_references": references}
        call = {"type": "server_tool_use", "id": id, "name": search_name, "input": search_result.arguments}
        result = {"type": "tool_search_tool_result", "tool_use_id": id, "content": content}
        return [opaque_part("anthropic", call), opaque_part("anthropic", result)]

    def found_names(self, messages: Iterable[Message]) -> Iterator[str]:
        """Yield the names in all `tool_reference` blocks."""
        for part in _all_parts(messages):
            if isinstance(part, ToolResult) and part.native == "tool_search_tool_result":
                for content in part.content or ():
                    for reference in opaque_members(content).get("tool_references") or ():
                        yield str(reference.get("tool_name")) if isinstance(reference, dict) else ""


class _ResponsesSearch:
    """Tool search as OpenAI's `tool_search_call` expresses it."""

    stop = Stop(reason="end_turn")

    def encode_search(self, search_result: ToolSearchResult, search_name: str) -> list[Part]:
        """Encode a `tool_search_call` and its `tool_search_output`."""
        status = {"call_id": None, "execution": "server", "status": "completed"}
        call = {
            "type": "tool_search_call",
            "id": f"tsc_{search_result.id}",
            "arguments": search_result.arguments,
            **status,
        }
        tools = [self._encode_tool(tool, search_result.groups) for tool in search_result.tools]
        result = {"type": "tool_search_output", "id": f"tso_{search_result.id}", "tools": tools, **status}
        return [opaque_part("openai-responses", call), opaque_part("openai-responses", result)]

    def _encode_tool(self, tool: DeferrableTool, groups: Mapping[str, str]) -> dict[str, Any]:
        """Encode a found tool, inside its namespace if it has one."""
        description = {} if tool.description is None else {"description": tool.description}
        if isinstance(tool, FreeformTool):
            encoded: dict[str, Any] = {"type": "custom", "name": tool.name, **description, "defer_loading": True}
        else:
            encoded = {"type": "function", "name": tool.name, **description, "parameters": tool.parameters}
            encoded |= {"strict": bool(tool.strict), "defer_loading": True}
        if tool.namespace is None:
            return encoded
        group = {"name": tool.namespace, "description": groups.get(tool.namespace, "")}
        return {"type": "namespace", **group, "tools": [encoded]}

    def found_names(self, messages: Iterable[Message]) -> Iterator[str]:
        """Yield the flat names in all `tool_search_output` items."""
        for part in _all_parts(messages):
            if isinstance(part, OpaquePart) and part.kind == "tool_search_output":
                for tool in (decode_object(bytes(part.body)) or {}).get("tools") or ():
                    if isinstance(tool, dict):
                        yield from self._flat_names(tool)

    def _flat_names(self, tool: dict[str, Any]) -> Iterator[str]:
        """Yield the flat name of a function, or those of all members of a namespace."""
        if tool.get("type") == "namespace":
            members = [member for member in tool.get("tools") or () if isinstance(member, dict)]
            yield from (f"{tool.get('name')}__{member.get('name')}" for member in members)
        else:
            yield str(tool.get("name"))


def opaque_part(protocol: str, body: dict[str, Any]) -> OpaquePart:
    """Wrap a wire object of this protocol as a part that is passed through unchanged."""
    return OpaquePart(protocol=protocol, kind=body["type"], body=Raw(msgspec.json.encode(body)), at="")


def opaque_members(part: Part | None, kind: str | None = None) -> dict[str, Any]:
    """Return the members of a part that is passed through unchanged; empty for others, and for those not of a kind."""
    if not isinstance(part, OpaquePart) or kind not in (None, part.kind):
        return {}
    return decode_object(bytes(part.body)) or {}


def _all_parts(messages: Iterable[Message]) -> Iterator[Part]:
    """Yield the parts of all messages."""
    for message in messages:
        yield from message.parts


_SEARCH_DIALECTS: dict[str, _SearchDialect] = {"anthropic": _AnthropicSearch(), "openai-responses": _ResponsesSearch()}
