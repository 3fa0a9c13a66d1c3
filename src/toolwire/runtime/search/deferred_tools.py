"""Where the provider itself looks for tools: its own search is used, and it is told of all tools, deferred.

Tools behind a search: above a limit the model is told of a few, and of `find_tools`.

1. The search itself and tools that are always needed are never deferred.
2. What was found is declared from the next turn on, after all that was declared before, in the order in which it was
   found: nothing that the model was told moves. It stands in the conversation, so that nobody else must remember it.
3. What a rule denies in any case is neither declared nor found. That a tool was found allows nothing: a call of it is
   validated and decided on as any other. So is one of a tool that was never found.
4. Where the provider searches itself, it is told of all tools, deferred, and of its own search instead.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Data, Message, Part, Text, ToolCall, ToolResult
from toolwire.canonical.tools import NativeTool
from toolwire.canonical.tools import Tool as Declared
from toolwire.runtime.policy import Policy
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
# An unknown name is never held against a model.
_MODELS_WITHOUT_SEARCH = {
    "anthropic": re.compile(r"claude-([23]|instant|(opus|sonnet)-4(-[01](-|$)|-20|$))"),
    "openai-responses": re.compile(r"gpt-4|gpt-3|o1|o3|o4|gpt-5(-(?!codex)|$)|gpt-5\.[123](-|$)"),
}


def native_search(protocol: str, model: str) -> NativeTool | None:
    """The search of the model's own provider; None if it has none."""
    found = _NATIVE_SEARCHES.get(protocol)
    return None if found is None or _MODELS_WITHOUT_SEARCH[protocol].match(model) else found


SEARCH_TOOL_NAME = "find_tools"
MAX_RESULTS = 20
_DEFAULT_RESULTS = 5
_DESCRIPTION_LENGTH = 400


class TurnTools(Struct, frozen=True):
    """The tools of a turn: what the model is told, and by name all that it can call."""

    declarations: tuple[Declared, ...]
    tools: Mapping[str, Tool]


class DeferredTools:
    """`always` are names, or globs of names."""

    def __init__(self, limit: int = 40, *, always: Iterable[str] = ()) -> None:
        self._limit = limit
        self._always = tuple(always)
        self._indexed_tools: tuple[Tool, ...] = ()
        self._index = ToolIndex(())

    def select(
        self,
        catalog: ToolCatalog,
        policy: Policy,
        messages: Sequence[Message] = (),
        native: NativeTool | None = None,
    ) -> TurnTools:
        """`native` is the search of the model's provider, if it has one."""
        usable = {name: tool for name, tool in catalog.tools.items() if not is_denied(policy, tool)}
        # Only a program may call them, and it has a search of its own.
        told = {name: tool for name, tool in usable.items() if takes_direct_calls(tool)}
        later = self._tools_to_defer(told)
        at_once = [tool.declaration() for name, tool in told.items() if name not in later]
        if not later:
            return TurnTools((*catalog.native_tools, *at_once), catalog.tools)
        if native is not None:
            behind = [replace(tool.declaration(), defer=True) for tool in later.values()]
            return TurnTools((*catalog.native_tools, native, *at_once, *behind), catalog.tools)
        search = self._search_tool(later)
        found = [later[name].declaration() for name in discovered_tools(messages) if name in later]
        declared = (*catalog.native_tools, search.declaration(), *at_once, *found)
        return TurnTools(declared, {**catalog.tools, SEARCH_TOOL_NAME: search})

    def _tools_to_defer(self, callable_tools: Mapping[str, Tool]) -> dict[str, Tool]:
        if SEARCH_TOOL_NAME in callable_tools:  # somebody else's search of that name: it stays what it is
            return {}
        many = len(callable_tools) > self._limit
        return {
            name: tool
            for name, tool in callable_tools.items()
            if (many or tool.defer) and not self._is_always_declared(tool)
        }

    def _is_always_declared(self, tool: Tool) -> bool:
        return tool.native is not None or any(fnmatchcase(tool.name, pattern) for pattern in self._always)

    def _search_tool(self, deferred: Mapping[str, Tool]) -> Tool:
        tools = tuple(deferred.values())
        if len(tools) != len(self._indexed_tools) or any(
            a is not b for a, b in zip(tools, self._indexed_tools, strict=True)
        ):
            self._index = ToolIndex(indexed_tool(tool) for tool in tools)
            self._indexed_tools = tools
        return build_search_tool(self._index, deferred)


def build_search_tool(index: ToolIndex, tools: Mapping[str, Tool]) -> Tool:
    """The tool that looks for tools. What it gives is data: descriptions are others' words."""

    async def run(arguments: Arguments, calling: ToolContext) -> ToolOutput:
        limit = min(arguments.get("limit") or _DEFAULT_RESULTS, MAX_RESULTS)
        search = index.search_pattern if arguments.get("mode") == "regex" else index.search_words
        try:
            # Not here: it takes a while until the index is made, and some patterns take one too.
            names = await asyncio.to_thread(search, arguments["query"], limit, tools.__contains__)
        except SearchError as fault:
            raise ToolError(str(fault), fault.kind) from None
        listed = [{"name": name, "description": tools[name].description[:_DESCRIPTION_LENGTH]} for name in names]
        note = "They can be called from the next turn on." if listed else "No tool fits. Try other words."
        return ToolOutput(content=(Text(text=msgspec.json.encode({"tools": listed, "note": note}).decode()),))

    return Tool(
        name=SEARCH_TOOL_NAME,
        description=(
            f"Finds tools by what they do. {len(tools):,} more tools exist than you were told of: whenever none of "
            "yours fits the task, search before you say that it can't be done. Those that are found can be called "
            "from your next turn on."
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
            "description": "What the tool should do, in a few words; in the mode regex a pattern of RE2 of at most "
            f"{PATTERN_LIMIT} characters, for names, descriptions and arguments.",
        },
        "mode": {"type": "string", "enum": ["words", "regex"], "description": "words, if not said"},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_RESULTS,
            "description": f"{_DEFAULT_RESULTS}, if not said",
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}


def indexed_tool(tool: Tool) -> IndexedTool:
    return IndexedTool(tool.name, tool.description, tool.parameters)


def is_denied(policy: Policy, tool: Tool) -> bool:
    """Whether a rule denies every call of it."""
    return any(rule.verdict == "deny" and not rule.arguments and rule.matches(tool, {}) for rule in policy.rules)


def discovered_tools(messages: Sequence[Message]) -> list[str]:
    """The tools that the conversation has found, or called unasked, in order."""
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
    """The names in what a search gave."""
    for part in content:
        text = part.text if isinstance(part, Text) else bytes(part.json) if isinstance(part, Data) else b""
        try:
            said = msgspec.json.decode(text)
        except msgspec.DecodeError:
            continue
        if isinstance(said, dict) and isinstance(tools := said.get("tools"), list):
            yield from (one["name"] for one in tools if isinstance(one, dict) and isinstance(one.get("name"), str))
