"""Tool search for upstreams that have none: where a client declares its provider's, the gateway searches instead.

1. The search is declared as a function, and tools that are loaded later are left out until they are found.
2. A call of that function never reaches the client: it is shown the search and what was found, as its own provider
   tells it, and the upstream is asked again, with the tools that were found. This is bounded as pauses are.
3. What was found stands in the conversation that the client repeats: from there the next request knows it.
4. An answer that also calls the client's tools ends there, since only the client can go on.
5. The index of a catalog that is new is made in a thread: others are not held up.
"""

import asyncio
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, OpaquePart, Part, Text, ToolCall, ToolResult
from toolwire.canonical.events import Event
from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Stop
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, Tool, ToolGroup, ToolRef
from toolwire.codec.encoding.tools import is_tool_search
from toolwire.codec.interface import Codec, OriginalTool, ResponseMapping
from toolwire.gateway.rounds.continuation import GatewayToolLoop, ProtocolPair, RouteTools
from toolwire.runtime.search.deferred_tools import native_search
from toolwire.runtime.search.index import IndexedTool, SearchError, ToolIndex

_FUNCTION_NAME = "tool_search"
_DEFAULT_LIMIT, _MAX_LIMIT, _MAX_DESCRIPTION = 5, 50, 400
_LIMIT_CACHED = 2 * 1024 * 1024
_NON_ID_CHARACTER = re.compile(r"[^a-zA-Z0-9_]")
_LOSS_REASON = "the target has no search for tools: the gateway searches in its place"

DeferrableTool = FunctionTool | FreeformTool


class ToolSearchResult(Struct, frozen=True):
    """A search: what was asked, and which tools it found, or why it could not be. `groups` are described here."""

    id: str
    arguments: Mapping[str, Any]
    tools: tuple[DeferrableTool, ...] = ()
    error: SearchError | None = None
    groups: Mapping[str, str] = {}


class ToolSearchRequest(Struct, frozen=True):
    """The request without the search of its provider. `deferred` are all tools that are loaded later, by flat name, and
    `later` those of them that can still be found."""

    request: Request
    losses: list[Loss]
    function_name: str
    search_name: str
    deferred_tools: dict[str, DeferrableTool]
    undiscovered_tools: dict[str, DeferrableTool]
    groups: tuple[ToolGroup, ...] = ()

    def with_all_tools(self, request: Request) -> Request:
        """The request with all tools: what becomes of those that are found later can be said now."""
        return replace(request, tools=(*(request.tools or ()), *self.undiscovered_tools.values()))


def plan_tool_search(request: Request, client: Codec, upstream: Codec, model: str | None) -> ToolSearchRequest | None:
    """The request for an upstream that can't search itself; None if there is nothing to emulate."""
    if client is upstream or client.name not in _SEARCH_DIALECTS or not request.tools:
        return None
    searches = {
        index: tool for index, tool in enumerate(request.tools) if isinstance(tool, NativeTool) and is_tool_search(tool)
    }
    if not searches or native_search(upstream.name, model or "") is not None:
        return None
    names = {flat_name(tool) for tool in iter_functions(request.tools)}
    function = next(name for name in _candidate_names() if name not in names)
    known = set(_SEARCH_DIALECTS[client.name].found_names(request.messages))
    deferred = {flat_name(tool): replace(tool, defer=None) for tool in iter_functions(request.tools) if tool.defer}
    later = {flat: tool for flat, tool in deferred.items() if flat not in known}
    if not later:
        return None
    first = next(iter(searches.values()))
    tools = tuple(_declared_tools(request.tools, later, list(searches), _search_function(function, first)))
    losses = [
        Loss(kind="approximated", path=tool_path(index, tool), reason=_LOSS_REASON) for index, tool in searches.items()
    ]
    choice = request.tool_choice
    if choice is not None and any(named.name in (first.name, first.kind) for named in choice.names):
        choice = replace(choice, names=(ToolRef(name=function, at=choice.names[0].at),))
    made = replace(request, tools=tools, tool_choice=choice, plain=False)
    groups = tuple(tool for tool in request.tools if isinstance(tool, ToolGroup))
    return ToolSearchRequest(made, losses, function, first.name or first.kind, deferred, later, groups)


def _candidate_names() -> Iterator[str]:
    yield _FUNCTION_NAME
    yield from (f"{_FUNCTION_NAME}_{number}" for number in range(2, 1_000_000))


def iter_functions(tools: Iterable[Tool]) -> Iterator[DeferrableTool]:
    """Every function, members of groups as such, with its place in the body."""
    for index, tool in enumerate(tools):
        at = tool_path(index, tool)
        if isinstance(tool, ToolGroup):
            for number, member in enumerate(tool.tools):
                yield replace(member, namespace=tool.name, at=at + tool_path(number, member))
        elif not isinstance(tool, NativeTool):
            yield replace(tool, at=at)


def tool_path(index: int, tool: Tool) -> str:
    return f"/tools/{index}" if tool.at is None else tool.at


def flat_name(tool: DeferrableTool) -> str:
    return tool.name if tool.namespace is None else f"{tool.namespace}__{tool.name}"


def _declared_tools(
    tools: tuple[Tool, ...],
    undiscovered_tools: Mapping[str, DeferrableTool],
    search_indexes: list[int],
    search_function: FunctionTool,
) -> Iterator[Tool]:
    """What is declared at once. Each knows where it stood, for the report."""
    for index, tool in enumerate(tools):
        at = tool_path(index, tool)
        if index in search_indexes:
            if index == search_indexes[0]:
                yield replace(search_function, at=at)
        elif isinstance(tool, ToolGroup):
            members = [
                replace(member, defer=None, at=tool_path(place, member))
                for place, member in enumerate(tool.tools)
                if f"{tool.name}__{member.name}" not in undiscovered_tools
            ]
            if members:
                yield replace(tool, tools=tuple(members), at=at)
        elif isinstance(tool, NativeTool):
            yield replace(tool, at=at)
        elif flat_name(tool) not in undiscovered_tools:
            yield replace(tool, defer=None, at=at)


def _search_function(function_name: str, search: NativeTool) -> FunctionTool:
    regex = _is_regex(search.name or search.kind)
    field, about = ("pattern", "A regular expression (RE2)") if regex else ("query", "What the tool should do")
    properties = {
        field: {"type": "string", "description": about},
        "limit": {"type": "integer", "description": f"How many at most; {_DEFAULT_LIMIT} if not said"},
    }
    schema = {"type": "object", "properties": properties, "required": [field]}
    said = "More tools exist than are declared. This finds those whose name, description or arguments fit; what is "
    said += "found can be called right after. Search before you say that something can't be done."
    return FunctionTool(name=function_name, description=said, parameters=Raw(msgspec.json.encode(schema)))


def _is_regex(search_name: str) -> bool:
    return "regex" in search_name


def _index_for(entries: tuple[tuple[str, str, bytes], ...]) -> ToolIndex:
    """Clients send the same tools again and again: the latest indexes are remembered, unless they are huge."""
    size = sum(len(name) + len(about) + len(schema) for name, about, schema in entries)
    return _cached_index(entries) if size <= _LIMIT_CACHED else _build_index(entries)


def _build_index(entries: tuple[tuple[str, str, bytes], ...]) -> ToolIndex:
    return ToolIndex(IndexedTool(name, about, decode_object(schema)) for name, about, schema in entries)


_cached_index = functools.lru_cache(maxsize=16)(_build_index)


def decode_object(schema: bytes) -> dict[str, Any] | None:
    try:
        said = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


class ToolSearchRounds(GatewayToolLoop):
    """The events of several answers as those of one, with searches told as the client's own provider tells them."""

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
        for flat, tool in search_plan.undiscovered_tools.items():
            # The model may know it from before, or guess it: the client is told of the call as of any other.
            mapping.used_names.add(flat)
            if tool.namespace is not None:
                mapping.tools.setdefault(flat, OriginalTool(tool.name, tool.namespace))
        self._found_tools: list[DeferrableTool] = []
        self._search_count = 0
        self._index = _index_for(
            tuple(
                (flat, tool.description or "", _tool_schema(tool)) for flat, tool in search_plan.deferred_tools.items()
            )
        )

    async def prepare_first_round(self) -> Response | bytes | None:
        if self._undiscovered_tools and not self._index.is_built:
            await asyncio.to_thread(self._index.build)
        return None

    def _is_gateway_call(self, call: ToolCall) -> bool:
        return call.name == self._search_plan.function_name or super()._is_gateway_call(call)

    def _handle_call(self, call: ToolCall) -> list[Event]:
        """Look, and tell it."""
        if call.name != self._search_plan.function_name:
            return super()._handle_call(call)
        self._search_count += 1
        made = self._search(f"{_NON_ID_CHARACTER.sub('', call.id or '') or 'tw'}_{self._search_count}", call.arguments)
        self._results.append(_search_tool_result(call, made))
        self._found_tools += made.tools
        return self._part_events(
            self._search_dialect.encode_search(made, self._search_plan.search_name), self._message_offset
        )

    def _search(self, id: str, arguments_json: str) -> ToolSearchResult:
        arguments = decode_object(arguments_json.encode()) or {}
        query = arguments.get("pattern", arguments.get("query"))
        limit = arguments.get("limit")
        most = limit if isinstance(limit, int) and 0 < limit <= _MAX_LIMIT else _DEFAULT_LIMIT
        if not isinstance(query, str):
            return ToolSearchResult(id, arguments, error=SearchError("there is no query", "invalid_tool_input"))
        try:
            search = (
                self._index.search_pattern if _is_regex(self._search_plan.search_name) else self._index.search_words
            )
            names = search(query, most, self._search_plan.undiscovered_tools.__contains__)
        except SearchError as fault:
            return ToolSearchResult(id, arguments, error=fault)
        groups = {tool.name: tool.description or "" for tool in self._search_plan.groups}
        return ToolSearchResult(
            id, arguments, tuple(self._search_plan.undiscovered_tools[name] for name in names), groups=groups
        )

    def _take_new_tools(self) -> tuple[Tool, ...]:
        new, self._found_tools = (
            [tool for tool in self._found_tools if self._undiscovered_tools.pop(flat_name(tool), None) is not None],
            [],
        )
        return (*new, *super()._take_new_tools())


def _tool_schema(tool: DeferrableTool) -> bytes:
    return bytes(tool.parameters) if isinstance(tool, FunctionTool) and tool.parameters is not None else b"{}"


def _search_tool_result(call: ToolCall, result: ToolSearchResult) -> ToolResult:
    """What the upstream's model is told."""
    if result.error is not None:
        return ToolResult(call_id=call.id, name=call.name, content=(Text(text=str(result.error)),), status="error")
    listed = [
        {"name": flat_name(tool), "description": (tool.description or "")[:_MAX_DESCRIPTION]} for tool in result.tools
    ]
    text = msgspec.json.encode({"tools": listed}).decode() if listed else "No tool fits."
    return ToolResult(call_id=call.id, name=call.name, content=(Text(text=text),))


# ---- how each provider tells its own search


class _SearchDialect(Protocol):
    """What a client sees of a search, what it finds in a conversation that it repeats, and how an answer ends that was
    asked for too often."""

    stop: Stop

    def encode_search(self, search_result: ToolSearchResult, search_name: str) -> list[Part]: ...
    def found_names(self, messages: Iterable[Message]) -> Iterator[str]: ...


class _AnthropicSearch:
    stop = Stop(reason="paused", raw="pause_turn")

    def encode_search(self, search_result: ToolSearchResult, search_name: str) -> list[Part]:
        id = f"srvtoolu_{search_result.id}"
        if search_result.error is not None:
            said = {"error_code": search_result.error.kind, "error_message": str(search_result.error)}
            content: dict[str, Any] = {"type": "tool_search_tool_result_error", **said}
        else:
            references = [{"type": "tool_reference", "tool_name": tool.name} for tool in search_result.tools]
            content = {"type": "tool_search_tool_search_result", "tool_references": references}
        call = {"type": "server_tool_use", "id": id, "name": search_name, "input": search_result.arguments}
        result = {"type": "tool_search_tool_result", "tool_use_id": id, "content": content}
        return [_opaque_part("anthropic", call), _opaque_part("anthropic", result)]

    def found_names(self, messages: Iterable[Message]) -> Iterator[str]:
        for part in _all_parts(messages):
            if isinstance(part, ToolResult) and part.native == "tool_search_tool_result":
                for content in part.content or ():
                    said = decode_object(bytes(content.body)) if isinstance(content, OpaquePart) else None
                    for one in (said or {}).get("tool_references") or ():
                        yield str(one.get("tool_name")) if isinstance(one, dict) else ""


class _ResponsesSearch:
    stop = Stop(reason="end_turn")

    def encode_search(self, search_result: ToolSearchResult, search_name: str) -> list[Part]:
        status = {"call_id": None, "execution": "server", "status": "completed"}
        call = {
            "type": "tool_search_call",
            "id": f"tsc_{search_result.id}",
            "arguments": search_result.arguments,
            **status,
        }
        tools = [self._encode_tool(tool, search_result.groups) for tool in search_result.tools]
        result = {"type": "tool_search_output", "id": f"tso_{search_result.id}", "tools": tools, **status}
        return [_opaque_part("openai-responses", call), _opaque_part("openai-responses", result)]

    def _encode_tool(self, tool: DeferrableTool, groups: Mapping[str, str]) -> dict[str, Any]:
        about = {} if tool.description is None else {"description": tool.description}
        if isinstance(tool, FreeformTool):
            one: dict[str, Any] = {"type": "custom", "name": tool.name, **about, "defer_loading": True}
        else:
            one = {"type": "function", "name": tool.name, **about, "parameters": tool.parameters}
            one |= {"strict": bool(tool.strict), "defer_loading": True}
        if tool.namespace is None:
            return one
        named = {"name": tool.namespace, "description": groups.get(tool.namespace, "")}
        return {"type": "namespace", **named, "tools": [one]}

    def found_names(self, messages: Iterable[Message]) -> Iterator[str]:
        for part in _all_parts(messages):
            if isinstance(part, OpaquePart) and part.kind == "tool_search_output":
                for one in (decode_object(bytes(part.body)) or {}).get("tools") or ():
                    if isinstance(one, dict) and one.get("type") == "namespace":
                        members = [inner for inner in one.get("tools") or () if isinstance(inner, dict)]
                        yield from (f"{one.get('name')}__{inner.get('name')}" for inner in members)
                    elif isinstance(one, dict):
                        yield str(one.get("name"))


def _opaque_part(protocol: str, body: dict[str, Any]) -> OpaquePart:
    return OpaquePart(protocol=protocol, kind=body["type"], body=Raw(msgspec.json.encode(body)), at="")


def _all_parts(messages: Iterable[Message]) -> Iterator[Part]:
    for message in messages:
        yield from message.parts


_SEARCH_DIALECTS: dict[str, _SearchDialect] = {"anthropic": _AnthropicSearch(), "openai-responses": _ResponsesSearch()}
