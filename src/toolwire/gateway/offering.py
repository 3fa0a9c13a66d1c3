"""What routes offer to every client's model: the tools of MCP servers, run by the gateway under its rules.

1. Nobody is there to ask: what no rule of `[policy]` allows is denied, and the model is told so.
2. Of many tools the model is told a search, its provider's own where that has one. It finds what a rule allows; what
   ours finds is declared from the next leg of the answer on.
3. A server that fails leaves the others working, and the log says so.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool
from toolwire.codec.tools import finds_tools
from toolwire.journal.secrets import Redactor
from toolwire.runtime.approval import Nobody
from toolwire.runtime.mcp.names import Names
from toolwire.runtime.mcp.settings import Server
from toolwire.runtime.policy import Policy
from toolwire.runtime.search.deferred import SEARCH, denies, listed_in, search_tool
from toolwire.runtime.search.index import Entry, Index
from toolwire.runtime.search.natives import native_search
from toolwire.runtime.toolbox import Toolbox
from toolwire.runtime.toolset import Output, Tool

from .config import RouteSection
from .inner import Offer, Offered, own_names
from .routing import Way

if TYPE_CHECKING:
    from toolwire.runtime.mcp.carrying import Carrying
    from toolwire.runtime.mcp.toolset import McpToolset

_SAID = 1_000


class Offers:
    """Servers are connected to when a route first needs them."""

    def __init__(
        self,
        servers: Mapping[str, Server] | None = None,
        policy: Policy | None = None,
        *,
        redactor: Redactor | None = None,
        folder: Path | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._servers = dict(servers or {})
        self._policy = policy or Policy()
        self._redactor = redactor
        self._folder = folder
        self._say = say
        self._said: set[str] = set()
        self._toolsets: dict[str, McpToolset] = {}
        self._boxes: dict[tuple[str, ...], tuple[Toolbox, Carrying]] = {}
        self._indexes: dict[tuple[str, ...], tuple[dict[str, Tool], Index]] = {}

    async def offer(self, options: RouteSection, request: Request, way: Way) -> Offer | None:
        """What a request gets; None if no server has anything now."""
        box, carrying = self._box(options.tools)
        catalog = await box.catalog()
        self._report(box.warned())
        own = own_names(request.tools or ())
        # What is denied in any case is not offered.
        usable = [tool for tool in catalog.tools.values() if not denies(self._policy, tool)]
        known = {self._free(tool.name, own, catalog.tools): tool for tool in usable}
        if not known:
            return None

        async def carry(name: str, arguments: str) -> Output:
            return await carrying(known[name].name, arguments, person=Nobody(), progress=lambda _: None)

        offered = {name: Offered(_declared(name, tool), self._origin(tool.name)) for name, tool in known.items()}
        told = known if len(known) <= options.search_above else self._allowed(known)
        declared = tuple(offered[name].declared for name in told)
        offer = Offer(offered, declared, carry, [], shown=options.tool_calls == "shown")
        if len(told) <= options.search_above:
            return offer
        native = native_search(way.provider.protocol, way.model or "")
        if native is None:
            search = search_tool(self._index(options.tools, told), told)
            return _behind(search, self._free(SEARCH, own, known), offer)
        later = tuple(replace(one, defer=True) for one in declared)
        searches = any(finds_tools(tool) for tool in request.tools or ())
        return replace(offer, declared=later if searches else (replace(native, at=""), *later))

    def _allowed(self, tools: dict[str, Tool]) -> dict[str, Tool]:
        """Those of which some call is. With nobody to ask, whoever searches has no use for the others."""
        rules = self._policy.rules
        asked = [rule.tool for rule in rules if rule.verdict == "ask" and not rule.arguments]
        allowed = [rule.tool for rule in rules if rule.verdict == "allow"]
        return {
            name: tool
            for name, tool in tools.items()
            if any(fnmatchcase(tool.name, one) for one in allowed)
            and not any(fnmatchcase(tool.name, one) for one in asked)
        }

    def _index(self, servers: tuple[str, ...], tools: dict[str, Tool]) -> Index:
        """Servers have the same tools again and again, and clients seldom have one of that name."""
        kept = self._indexes.get(servers)
        if kept is None or kept[0] != tools:
            index = Index(Entry(name, tool.description, tool.parameters) for name, tool in tools.items())
            kept = self._indexes[servers] = (tools, index)
        return kept[1]

    def _free(self, name: str, own: set[str], others: Mapping[str, Tool]) -> str:
        """The name, or another one with a hash: a client's own tool keeps its."""
        return name if name not in own else Names(own | others.keys()).name(*(self._origin(name) or ("toolwire", name)))

    def _origin(self, name: str) -> tuple[str, str] | None:
        origins = (toolset.names.origin(name) for toolset in self._toolsets.values())
        return next((one for one in origins if one is not None), None)

    def _report(self, warnings: Sequence[str]) -> None:
        for text in warnings:
            if text not in self._said and len(self._said) < _SAID:
                self._said.add(text)
                self._say(text)

    def _box(self, names: Sequence[str]) -> "tuple[Toolbox, Carrying]":
        key = tuple(names)
        if (known := self._boxes.get(key)) is None:
            from toolwire.runtime.mcp.carrying import Carrying  # noqa: PLC0415 - an extra, and slow to load
            from toolwire.runtime.mcp.toolset import toolsets  # noqa: PLC0415

            if not self._toolsets:
                self._toolsets = {one.name: one for one in toolsets(self._servers, folder=self._folder)}
            box = Toolbox([self._toolsets[name] for name in names if name in self._toolsets])
            known = self._boxes[key] = (box, Carrying(box, self._policy, redactor=self._redactor))
        return known

    async def close(self) -> None:
        for toolset in self._toolsets.values():
            await toolset.close()


def _declared(name: str, tool: Tool) -> FunctionTool:
    parameters = Raw(msgspec.json.encode(tool.parameters))
    return FunctionTool(name=name, description=tool.description or None, parameters=parameters, at="")


def _behind(search: Tool, name: str, offer: Offer) -> Offer:
    """The same tools, of which the model is told nothing but the search. A call of one that was never found is a call
    like any other."""
    from toolwire.runtime.mcp.carrying import Carrying  # noqa: PLC0415

    looking = Carrying(Toolbox([search]), Policy(allow=[SEARCH]))
    left = dict(offer.tools)

    async def carry(called: str, arguments: str) -> Output:
        if called != name:
            return await offer.carry(called, arguments)
        output = await looking(SEARCH, arguments, person=Nobody(), progress=lambda _: None)
        found = [left.pop(one, None) for one in listed_in(output.content)]
        offer.found.extend(one.declared for one in found if one is not None)
        return output

    declared = _declared(name, search)
    return replace(offer, tools={**offer.tools, name: Offered(declared)}, declared=(declared,), carry=carry)
