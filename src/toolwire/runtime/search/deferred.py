"""Tools behind a search: above a limit the model is told of a few, and of `find_tools`.

1. The search itself and tools that are always needed are never deferred.
2. What was found is declared from the next turn on, after all that was declared before, in the order in which it was
   found: nothing that the model was told moves. It stands in the conversation, so that nobody else must remember it.
3. What a rule denies in any case is neither declared nor found. That a tool was found allows nothing: a call of it is
   validated and decided on as any other. So is one of a tool that was never found.
4. Where the provider searches itself, it is told of all tools, deferred, and of its own search instead.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Data, Message, Part, Text, ToolCall, ToolResult
from toolwire.canonical.tools import NativeTool
from toolwire.canonical.tools import Tool as Declared
from toolwire.runtime.callers import takes_direct_calls
from toolwire.runtime.policy import Policy
from toolwire.runtime.toolset import Annotations, Arguments, Calling, Catalog, Output, Tool, ToolFault

from .index import PATTERN_LIMIT, QUERY_LIMIT, Entry, Index, SearchFault

SEARCH = "find_tools"
MOST = 20
_USUAL = 5
_ABOUT = 400


class Arranged(Struct, frozen=True):
    """The tools of a turn: what the model is told, and by name all that it can call."""

    declared: tuple[Declared, ...]
    tools: Mapping[str, Tool]


class Deferred:
    """`always` are names, or globs of names."""

    def __init__(self, limit: int = 40, *, always: Iterable[str] = ()) -> None:
        self._limit = limit
        self._always = tuple(always)
        self._indexed: tuple[Tool, ...] = ()
        self._index = Index(())

    def arrange(
        self,
        catalog: Catalog,
        policy: Policy,
        messages: Sequence[Message] = (),
        native: NativeTool | None = None,
    ) -> Arranged:
        """`native` is the search of the model's provider, if it has one."""
        usable = {name: tool for name, tool in catalog.tools.items() if not denies(policy, tool)}
        # Only a program may call them, and it has a search of its own.
        told = {name: tool for name, tool in usable.items() if takes_direct_calls(tool)}
        later = self._later(told)
        at_once = [tool.declared() for name, tool in told.items() if name not in later]
        if not later:
            return Arranged((*catalog.natives, *at_once), catalog.tools)
        if native is not None:
            behind = [replace(tool.declared(), defer=True) for tool in later.values()]
            return Arranged((*catalog.natives, native, *at_once, *behind), catalog.tools)
        search = self._search(later)
        found = [later[name].declared() for name in found_in(messages) if name in later]
        declared = (*catalog.natives, search.declared(), *at_once, *found)
        return Arranged(declared, {**catalog.tools, SEARCH: search})

    def _later(self, told: Mapping[str, Tool]) -> dict[str, Tool]:
        if SEARCH in told:  # somebody else's search of that name: it stays what it is
            return {}
        many = len(told) > self._limit
        return {name: tool for name, tool in told.items() if (many or tool.defer) and not self._is_needed(tool)}

    def _is_needed(self, tool: Tool) -> bool:
        return tool.native is not None or any(fnmatchcase(tool.name, pattern) for pattern in self._always)

    def _search(self, later: Mapping[str, Tool]) -> Tool:
        tools = tuple(later.values())
        if len(tools) != len(self._indexed) or any(a is not b for a, b in zip(tools, self._indexed, strict=True)):
            self._index = Index(entry_of(tool) for tool in tools)
            self._indexed = tools
        return search_tool(self._index, later)


def search_tool(index: Index, tools: Mapping[str, Tool]) -> Tool:
    """The tool that looks for tools. What it gives is data: descriptions are others' words."""

    async def run(arguments: Arguments, calling: Calling) -> Output:
        limit = min(arguments.get("limit") or _USUAL, MOST)
        search = index.matching if arguments.get("mode") == "regex" else index.ranked
        try:
            # Not here: it takes a while until the index is made, and some patterns take one too.
            names = await asyncio.to_thread(search, arguments["query"], limit, tools.__contains__)
        except SearchFault as fault:
            raise ToolFault(str(fault), fault.kind) from None
        listed = [{"name": name, "description": tools[name].description[:_ABOUT]} for name in names]
        note = "They can be called from the next turn on." if listed else "No tool fits. Try other words."
        return Output(content=(Text(text=msgspec.json.encode({"tools": listed, "note": note}).decode()),))

    return Tool(
        name=SEARCH,
        description=(
            f"Finds tools by what they do. {len(tools):,} more tools exist than you were told of: whenever none of "
            "yours fits the task, search before you say that it can't be done. Those that are found can be called "
            "from your next turn on."
        ),
        parameters=_PARAMETERS,
        run=run,
        annotations=Annotations(read_only=True, idempotent=True),
        source="toolwire",
    )


_PARAMETERS: dict[str, Any] = {
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
        "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "description": f"{_USUAL}, if not said"},
    },
    "required": ["query"],
    "additionalProperties": False,
}


def entry_of(tool: Tool) -> Entry:
    return Entry(tool.name, tool.description, tool.parameters)


def denies(policy: Policy, tool: Tool) -> bool:
    """Whether a rule denies every call of it."""
    return any(rule.verdict == "deny" and not rule.arguments and rule.matches(tool, {}) for rule in policy.rules)


def found_in(messages: Sequence[Message]) -> list[str]:
    """The tools that the conversation has found, or called unasked, in order."""
    searches: set[str | None] = set()
    names: dict[str, None] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                names[part.name] = None
                if part.name == SEARCH:
                    searches.add(part.id)
            elif isinstance(part, ToolResult) and part.status == "ok" and part.call_id in searches:
                names.update(dict.fromkeys(listed_in(part.content or ())))
    return list(names)


def listed_in(content: Iterable[Part]) -> Iterator[str]:
    """The names in what a search gave."""
    for part in content:
        text = part.text if isinstance(part, Text) else bytes(part.json) if isinstance(part, Data) else b""
        try:
            said = msgspec.json.decode(text)
        except msgspec.DecodeError:
            continue
        if isinstance(said, dict) and isinstance(tools := said.get("tools"), list):
            yield from (one["name"] for one in tools if isinstance(one, dict) and isinstance(one.get("name"), str))
