"""Deferred tools: above a limit, the model sees only some tools and searches for the others with `find_tools`.

1. The search tool and tools marked as always needed are never deferred.
2. Tools that a search finds are declared from the next turn on, after all earlier declarations and in the order found.
   Earlier declarations never move, so prompt caches stay valid. The found names are read from the conversation.
3. Tools that a rule always denies are neither declared nor found. Finding a tool allows nothing: its calls are
   validated and authorized as usual, and so are calls of tools that were never searched for.
4. If the provider has its own tool search, all tools are declared to it as deferred, and `find_tools` is not used.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Data, Message, Part, Text, ToolCall, ToolResult
from toolwire.canonical.tools import NativeTool
from toolwire.canonical.tools import Tool as Declared
from toolwire.codec.models import claude, gpt
from toolwire.runtime.policy import Policy, is_denied
from toolwire.runtime.search.embedding import Embed, ToolEmbeddings
from toolwire.runtime.search.index import PATTERN_LIMIT, QUERY_LIMIT, IndexedTool, SearchError, ToolIndex
from toolwire.runtime.tool import (
    Annotations,
    Arguments,
    Tool,
    ToolCatalog,
    ToolContext,
    ToolError,
    ToolOutput,
    takes_direct_calls,
)

_NATIVE_SEARCHES = {
    "anthropic": NativeTool(
        protocol="anthropic",
        kind="tool_search_tool_bm25",
        name="tool_search_tool_bm25",
        body=Raw(b'{"type":"tool_search_tool_bm25_20251119","name":"tool_search_tool_bm25"}'),
    ),
    "openai-responses": NativeTool(
        protocol="openai-responses", kind="tool_search", body=Raw(b'{"type":"tool_search"}')
    ),
}
# Models with unknown names are assumed to support it.
_LACKS_SEARCH = {"anthropic": claude.lacks_tool_search, "openai-responses": gpt.lacks_tool_search}


def native_search(protocol: str, model: str) -> NativeTool | None:
    """Return the provider's own tool search for a model; None if there is none."""
    search = _NATIVE_SEARCHES.get(protocol)
    return None if search is None or _LACKS_SEARCH[protocol](model) else search


SEARCH_TOOL_NAME = "find_tools"
MAX_RESULTS = 20
_DEFAULT_RESULTS = 5
_DESCRIPTION_LENGTH = 400


class TurnTools(Struct, frozen=True):
    """The tools of one turn."""

    declarations: tuple[Declared, ...]
    """Declarations sent to the model."""
    tools: Mapping[str, Tool]
    """All tools that the model may call, by name."""


class DeferredTools:
    """Selects which tools to declare and which to defer behind a search."""

    def __init__(self, limit: int = 40, *, always: Iterable[str] = (), embed: Embed | None = None) -> None:
        """Defer tools if there are more than `limit`, except those whose names match a glob in `always`.

        With `embed`, which returns a vector for each text, searches rank by meaning as well as by words.
        """
        self._limit = limit
        self._always = tuple(always)
        self._indexed_tools: tuple[Tool, ...] = ()
        self._index = ToolIndex(())
        self._embeddings = None if embed is None else ToolEmbeddings(embed)

    def select(
        self,
        catalog: ToolCatalog,
        policy: Policy,
        messages: Sequence[Message] = (),
        native: NativeTool | None = None,
    ) -> TurnTools:
        """Select the tools of one turn. `native` is the provider's own tool search, if it has one."""
        permitted = {name: tool for name, tool in catalog.tools.items() if not is_denied(policy, tool)}
        # Tools for programs only are not declared: programs have their own search.
        direct = {name: tool for name, tool in permitted.items() if takes_direct_calls(tool)}
        deferred = self._tools_to_defer(direct)
        # Several of our tools may share one vendor's tool, whose declaration is sent once.
        unique = {id(tool.native or tool): tool for name, tool in direct.items() if name not in deferred}
        declarations = [tool.declaration() for tool in unique.values()]
        if not deferred:
            return TurnTools((*catalog.native_tools, *declarations), catalog.tools)
        if native is not None:
            marked = [replace(tool.declaration(), defer=True) for tool in deferred.values()]
            return TurnTools((*catalog.native_tools, native, *declarations, *marked), catalog.tools)
        search = self._search_tool(deferred)
        discovered = [deferred[name].declaration() for name in discovered_tools(messages) if name in deferred]
        all_declarations = (*catalog.native_tools, search.declaration(), *declarations, *discovered)
        return TurnTools(all_declarations, {**catalog.tools, SEARCH_TOOL_NAME: search})

    def _tools_to_defer(self, callable_tools: Mapping[str, Tool]) -> dict[str, Tool]:
        """Return the tools to defer: those marked `defer`, or all if there are more than the limit."""
        if SEARCH_TOOL_NAME in callable_tools:  # the agent has a tool of this name, so there can be no search
            return {}
        over_limit = len(callable_tools) > self._limit
        return {
            name: tool
            for name, tool in callable_tools.items()
            if (over_limit or tool.defer) and not self._is_always_declared(tool)
        }

    def _is_always_declared(self, tool: Tool) -> bool:
        """Return True if the tool is never deferred: it is native, or a configured glob matches its name."""
        return tool.native is not None or any(fnmatchcase(tool.name, pattern) for pattern in self._always)

    def _search_tool(self, deferred: Mapping[str, Tool]) -> Tool:
        """Return the search tool; its index is rebuilt only if the deferred tools changed."""
        tools = tuple(deferred.values())
        if len(tools) != len(self._indexed_tools) or any(
            a is not b for a, b in zip(tools, self._indexed_tools, strict=True)
        ):
            self._index = ToolIndex(indexed_tool(tool) for tool in tools)
            self._indexed_tools = tools
        return build_search_tool(self._index, deferred, self._embeddings)


def build_search_tool(index: ToolIndex, tools: Mapping[str, Tool], embeddings: ToolEmbeddings | None = None) -> Tool:
    """Build `find_tools`. It returns JSON, because tool descriptions are untrusted text."""

    async def run(arguments: Arguments, context: ToolContext) -> ToolOutput:
        """Search the tools, and return names and descriptions of the best as JSON."""
        limit = min(arguments.get("limit") or _DEFAULT_RESULTS, MAX_RESULTS)
        query: str = arguments["query"]
        search = index.search_pattern
        if arguments.get("mode") != "regex":
            similarities = None if embeddings is None else await embeddings.similarities(query, index.entries)
            search = partial(index.search_words, similarities=similarities)
        try:
            # In a thread: building the index takes time, and so do some patterns.
            names = await asyncio.to_thread(search, query, limit, tools.__contains__)
        except SearchError as error:
            raise ToolError(str(error), error.kind) from None
        listed = [{"name": name, "description": tools[name].description[:_DESCRIPTION_LENGTH]} for name in names]
        note = "You can call these tools from the next turn on." if listed else "No tools found. Try other words."
        return ToolOutput(content=(Text(text=msgspec.json.encode({"tools": listed, "note": note}).decode()),))

    return Tool(
        name=SEARCH_TOOL_NAME,
        description=(
            f"Searches for tools by what they do. {len(tools):,} more tools exist than those listed. Whenever none of "
            "your tools fits the task, search before you say that it can't be done. You can call the tools found from "
            "your next turn on."
        ),
        parameters=_SEARCH_PARAMETERS,
        run=run,
        annotations=Annotations(read_only=True, idempotent=True),
        source="toolwire",
    )


_SEARCH_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "minLength": 1,
            "maxLength": QUERY_LIMIT,
            "description": "What the tool should do, in a few words. In regex mode, an RE2 pattern of at most "
            f"{PATTERN_LIMIT} characters, matched against names, descriptions and arguments.",
        },
        "mode": {"type": "string", "enum": ["words", "regex"], "description": "Defaults to words."},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_RESULTS,
            "description": f"Maximum number of results. Defaults to {_DEFAULT_RESULTS}.",
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}


def indexed_tool(tool: Tool) -> IndexedTool:
    """Return the fields of a tool that the search index uses."""
    return IndexedTool(tool.name, tool.description, tool.parameters)


def discovered_tools(messages: Sequence[Message]) -> list[str]:
    """Return the names of the tools that searches found or that the model called, in order of appearance."""
    searches: set[str | None] = set()
    names: dict[str, None] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                names[part.name] = None
                if part.name == SEARCH_TOOL_NAME:
                    searches.add(part.id)
            elif isinstance(part, ToolResult) and part.status == "ok" and part.call_id in searches:
                names.update(dict.fromkeys(tool_names_in(part.content or ())))
    return list(names)


def tool_names_in(content: Iterable[Part]) -> Iterator[str]:
    """Yield the tool names in the result of a search."""
    for part in content:
        text = part.text if isinstance(part, Text) else bytes(part.json) if isinstance(part, Data) else b""
        try:
            result = msgspec.json.decode(text)
        except msgspec.DecodeError:
            continue
        if isinstance(result, dict) and isinstance(tools := result.get("tools"), list):
            yield from (tool["name"] for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str))
