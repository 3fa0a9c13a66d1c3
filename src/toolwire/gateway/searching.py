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

from toolwire.canonical.content import Foreign, Message, Part, Text, ToolCall, ToolResult
from toolwire.canonical.events import Event
from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Stop
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, Tool, ToolGroup, ToolRef
from toolwire.codec.interface import Codec, ToolName, Undo
from toolwire.codec.tools import finds_tools
from toolwire.runtime.search.index import Entry, Index, SearchFault
from toolwire.runtime.search.natives import native_search

from .inner import Crossing, InnerCalls, Offer

_FUNCTION = "tool_search"
_USUAL, _MOST, _ABOUT = 5, 50, 400
_LIMIT_REMEMBERED = 2 * 1024 * 1024
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_]")
_WHY = "the target has no search for tools: the gateway searches in its place"

Deferred = FunctionTool | FreeformTool


class Found(Struct, frozen=True):
    """A search: what was asked, and which tools it found, or why it could not be. `groups` are described here."""

    id: str
    arguments: Mapping[str, Any]
    tools: tuple[Deferred, ...] = ()
    fault: SearchFault | None = None
    groups: Mapping[str, str] = {}


class Emulated(Struct, frozen=True):
    """The request without the search of its provider. `deferred` are all tools that are loaded later, by flat name, and
    `later` those of them that can still be found."""

    request: Request
    losses: list[Loss]
    function: str
    word: str
    deferred: dict[str, Deferred]
    later: dict[str, Deferred]
    groups: tuple[ToolGroup, ...] = ()

    def everything(self, request: Request) -> Request:
        """The request with all tools: what becomes of those that are found later can be said now."""
        return replace(request, tools=(*(request.tools or ()), *self.later.values()))


def emulated(request: Request, client: Codec, upstream: Codec, model: str | None) -> Emulated | None:
    """The request for an upstream that can't search itself; None if there is nothing to emulate."""
    if client is upstream or client.name not in _DIALECTS or not request.tools:
        return None
    searches = {
        index: tool for index, tool in enumerate(request.tools) if isinstance(tool, NativeTool) and finds_tools(tool)
    }
    if not searches or native_search(upstream.name, model or "") is not None:
        return None
    names = {flat_name(tool) for tool in each_function(request.tools)}
    function = next(name for name in _candidates() if name not in names)
    known = set(_DIALECTS[client.name].found_in(request.messages))
    deferred = {flat_name(tool): replace(tool, defer=None) for tool in each_function(request.tools) if tool.defer}
    later = {flat: tool for flat, tool in deferred.items() if flat not in known}
    if not later:
        return None
    first = next(iter(searches.values()))
    tools = tuple(_kept(request.tools, later, list(searches), _declared(function, first)))
    losses = [Loss(kind="approximated", path=place_of(index, tool), why=_WHY) for index, tool in searches.items()]
    choice = request.tool_choice
    if choice is not None and any(named.name in (first.name, first.kind) for named in choice.names):
        choice = replace(choice, names=(ToolRef(name=function, at=choice.names[0].at),))
    made = replace(request, tools=tools, tool_choice=choice, plain=False)
    groups = tuple(tool for tool in request.tools if isinstance(tool, ToolGroup))
    return Emulated(made, losses, function, first.name or first.kind, deferred, later, groups)


def _candidates() -> Iterator[str]:
    yield _FUNCTION
    yield from (f"{_FUNCTION}_{number}" for number in range(2, 1_000_000))


def each_function(tools: Iterable[Tool]) -> Iterator[Deferred]:
    """Every function, members of groups as such, with its place in the body."""
    for index, tool in enumerate(tools):
        at = place_of(index, tool)
        if isinstance(tool, ToolGroup):
            for number, member in enumerate(tool.tools):
                yield replace(member, namespace=tool.name, at=at + place_of(number, member))
        elif not isinstance(tool, NativeTool):
            yield replace(tool, at=at)


def place_of(index: int, tool: Tool) -> str:
    return f"/tools/{index}" if tool.at is None else tool.at


def flat_name(tool: Deferred) -> str:
    return tool.name if tool.namespace is None else f"{tool.namespace}__{tool.name}"


def _kept(
    tools: tuple[Tool, ...], later: Mapping[str, Deferred], searches: list[int], function: FunctionTool
) -> Iterator[Tool]:
    """What is declared at once. Each knows where it stood, for the report."""
    for index, tool in enumerate(tools):
        at = place_of(index, tool)
        if index in searches:
            if index == searches[0]:
                yield replace(function, at=at)
        elif isinstance(tool, ToolGroup):
            members = [
                replace(member, defer=None, at=place_of(place, member))
                for place, member in enumerate(tool.tools)
                if f"{tool.name}__{member.name}" not in later
            ]
            if members:
                yield replace(tool, tools=tuple(members), at=at)
        elif isinstance(tool, NativeTool):
            yield replace(tool, at=at)
        elif flat_name(tool) not in later:
            yield replace(tool, defer=None, at=at)


def _declared(function: str, search: NativeTool) -> FunctionTool:
    regex = _is_regex(search.name or search.kind)
    field, about = ("pattern", "A regular expression (RE2)") if regex else ("query", "What the tool should do")
    properties = {
        field: {"type": "string", "description": about},
        "limit": {"type": "integer", "description": f"How many at most; {_USUAL} if not said"},
    }
    schema = {"type": "object", "properties": properties, "required": [field]}
    said = "More tools exist than are declared. This finds those whose name, description or arguments fit; what is "
    said += "found can be called right after. Search before you say that something can't be done."
    return FunctionTool(name=function, description=said, parameters=Raw(msgspec.json.encode(schema)))


def _is_regex(word: str) -> bool:
    return "regex" in word


def _index(entries: tuple[tuple[str, str, bytes], ...]) -> Index:
    """Clients send the same tools again and again: the latest indexes are remembered, unless they are huge."""
    size = sum(len(name) + len(about) + len(schema) for name, about, schema in entries)
    return _remembered(entries) if size <= _LIMIT_REMEMBERED else _new_index(entries)


def _new_index(entries: tuple[tuple[str, str, bytes], ...]) -> Index:
    return Index(Entry(name, about, object_of(schema)) for name, about, schema in entries)


_remembered = functools.lru_cache(maxsize=16)(_new_index)


def object_of(schema: bytes) -> dict[str, Any] | None:
    try:
        said = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


class Searching(InnerCalls):
    """The events of several answers as those of one, with searches told as the client's own provider tells them."""

    def __init__(self, found: Emulated, crossing: Crossing, undo: Undo, offer: Offer | None = None) -> None:
        dialect = _DIALECTS[crossing.client.name]
        super().__init__(found.request, crossing, undo, offer, dialect.stop)
        self._emulated = found
        self._dialect = dialect
        self._later = dict(found.later)
        for flat, tool in found.later.items():
            # The model may know it from before, or guess it: the client is told of the call as of any other.
            undo.taken.add(flat)
            if tool.namespace is not None:
                undo.names.setdefault(flat, ToolName(tool.name, tool.namespace))
        self._new: list[Deferred] = []
        self._searched = 0
        self._index = _index(
            tuple((flat, tool.description or "", _schema(tool)) for flat, tool in found.deferred.items())
        )

    async def open(self) -> Response | bytes | None:
        if self._later and not self._index.is_made:
            await asyncio.to_thread(self._index.make)
        return None

    def _is_ours(self, call: ToolCall) -> bool:
        return call.name == self._emulated.function or super()._is_ours(call)

    def _called(self, call: ToolCall) -> list[Event]:
        """Look, and tell it."""
        if call.name != self._emulated.function:
            return super()._called(call)
        self._searched += 1
        made = self._look(f"{_ILLEGAL.sub('', call.id or '') or 'tw'}_{self._searched}", call.arguments)
        self._results.append(_result(call, made))
        self._new += made.tools
        return self._shown(self._dialect.shown(made, self._emulated.word), self._messages)

    def _look(self, id: str, text: str) -> Found:
        arguments = object_of(text.encode()) or {}
        query = arguments.get("pattern", arguments.get("query"))
        limit = arguments.get("limit")
        most = limit if isinstance(limit, int) and 0 < limit <= _MOST else _USUAL
        if not isinstance(query, str):
            return Found(id, arguments, fault=SearchFault("there is no query", "invalid_tool_input"))
        try:
            search = self._index.matching if _is_regex(self._emulated.word) else self._index.ranked
            names = search(query, most, self._emulated.later.__contains__)
        except SearchFault as fault:
            return Found(id, arguments, fault=fault)
        groups = {tool.name: tool.description or "" for tool in self._emulated.groups}
        return Found(id, arguments, tuple(self._emulated.later[name] for name in names), groups=groups)

    def _more_tools(self) -> tuple[Tool, ...]:
        new, self._new = [tool for tool in self._new if self._later.pop(flat_name(tool), None) is not None], []
        return (*new, *super()._more_tools())


def _schema(tool: Deferred) -> bytes:
    return bytes(tool.parameters) if isinstance(tool, FunctionTool) and tool.parameters is not None else b"{}"


def _result(call: ToolCall, found: Found) -> ToolResult:
    """What the upstream's model is told."""
    if found.fault is not None:
        return ToolResult(call_id=call.id, name=call.name, content=(Text(text=str(found.fault)),), status="error")
    listed = [{"name": flat_name(tool), "description": (tool.description or "")[:_ABOUT]} for tool in found.tools]
    text = msgspec.json.encode({"tools": listed}).decode() if listed else "No tool fits."
    return ToolResult(call_id=call.id, name=call.name, content=(Text(text=text),))


# ---- how each provider tells its own search


class _Dialect(Protocol):
    """What a client sees of a search, what it finds in a conversation that it repeats, and how an answer ends that was
    asked for too often."""

    stop: Stop

    def shown(self, found: Found, word: str) -> list[Part]: ...
    def found_in(self, messages: Iterable[Message]) -> Iterator[str]: ...


class _Anthropic:
    stop = Stop(reason="paused", raw="pause_turn")

    def shown(self, found: Found, word: str) -> list[Part]:
        id = f"srvtoolu_{found.id}"
        if found.fault is not None:
            said = {"error_code": found.fault.kind, "error_message": str(found.fault)}
            content: dict[str, Any] = {"type": "tool_search_tool_result_error", **said}
        else:
            references = [{"type": "tool_reference", "tool_name": tool.name} for tool in found.tools]
            content = {"type": "tool_search_tool_search_result", "tool_references": references}
        call = {"type": "server_tool_use", "id": id, "name": word, "input": found.arguments}
        result = {"type": "tool_search_tool_result", "tool_use_id": id, "content": content}
        return [_foreign("anthropic", call), _foreign("anthropic", result)]

    def found_in(self, messages: Iterable[Message]) -> Iterator[str]:
        for part in _parts(messages):
            if isinstance(part, ToolResult) and part.native == "tool_search_tool_result":
                for content in part.content or ():
                    said = object_of(bytes(content.body)) if isinstance(content, Foreign) else None
                    for one in (said or {}).get("tool_references") or ():
                        yield str(one.get("tool_name")) if isinstance(one, dict) else ""


class _Responses:
    stop = Stop(reason="end_turn")

    def shown(self, found: Found, word: str) -> list[Part]:
        status = {"call_id": None, "execution": "server", "status": "completed"}
        call = {"type": "tool_search_call", "id": f"tsc_{found.id}", "arguments": found.arguments, **status}
        tools = [self._declared(tool, found.groups) for tool in found.tools]
        result = {"type": "tool_search_output", "id": f"tso_{found.id}", "tools": tools, **status}
        return [_foreign("openai-responses", call), _foreign("openai-responses", result)]

    def _declared(self, tool: Deferred, groups: Mapping[str, str]) -> dict[str, Any]:
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

    def found_in(self, messages: Iterable[Message]) -> Iterator[str]:
        for part in _parts(messages):
            if isinstance(part, Foreign) and part.kind == "tool_search_output":
                for one in (object_of(bytes(part.body)) or {}).get("tools") or ():
                    if isinstance(one, dict) and one.get("type") == "namespace":
                        members = [inner for inner in one.get("tools") or () if isinstance(inner, dict)]
                        yield from (f"{one.get('name')}__{inner.get('name')}" for inner in members)
                    elif isinstance(one, dict):
                        yield str(one.get("name"))


def _foreign(protocol: str, body: dict[str, Any]) -> Foreign:
    return Foreign(protocol=protocol, kind=body["type"], body=Raw(msgspec.json.encode(body)), at="")


def _parts(messages: Iterable[Message]) -> Iterator[Part]:
    for message in messages:
        yield from message.parts


_DIALECTS: dict[str, _Dialect] = {"anthropic": _Anthropic(), "openai-responses": _Responses()}
