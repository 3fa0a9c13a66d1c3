"""What routes offer to every client's model: the tools of MCP servers, run by the gateway under its rules.

Nobody is there to ask: what no rule of `[policy]` allows is denied, and the model is told so.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool
from toolwire.journal.secrets import Redactor
from toolwire.runtime.approval import Nobody
from toolwire.runtime.mcp.settings import Server
from toolwire.runtime.policy import Policy
from toolwire.runtime.toolbox import Toolbox
from toolwire.runtime.toolset import Output, Tool

from .config import RouteSection
from .inner import Offer, Offered, own_names

if TYPE_CHECKING:
    from toolwire.runtime.mcp.carrying import Carrying
    from toolwire.runtime.mcp.toolset import McpToolset


class Offers:
    """Servers are connected to when a route first needs them."""

    def __init__(
        self,
        servers: Mapping[str, Server] | None = None,
        policy: Policy | None = None,
        *,
        redactor: Redactor | None = None,
        folder: Path | None = None,
    ) -> None:
        self._servers = dict(servers or {})
        self._policy = policy or Policy()
        self._redactor = redactor
        self._folder = folder
        self._toolsets: dict[str, McpToolset] = {}
        self._boxes: dict[tuple[str, ...], tuple[Toolbox, Carrying]] = {}

    async def offer(self, options: RouteSection, request: Request) -> Offer | None:
        """What a request gets; None if no server has anything now."""
        box, carrying = self._box(options.tools)
        catalog = await box.catalog()
        tools = [tool for tool in catalog.tools.values() if not self._is_denied(tool)]
        if not tools:
            return None
        taken = own_names(request.tools or ())
        found = {_free(tool.name, taken): tool for tool in tools}

        async def carry(name: str, arguments: str) -> Output:
            return await carrying(found[name].name, arguments, person=Nobody(), progress=lambda _: None)

        offered = {name: self._offered(name, tool) for name, tool in found.items()}
        return Offer(offered, carry, shown=options.tool_calls == "shown")

    def _offered(self, name: str, tool: Tool) -> Offered:
        parameters = Raw(msgspec.json.encode(tool.parameters))
        declared = FunctionTool(name=name, description=tool.description or None, parameters=parameters, at="")
        origins = (toolset.names.origin(tool.name) for toolset in self._toolsets.values())
        origin = next((one for one in origins if one is not None), ("", tool.name))
        return Offered(declared, tool.name, origin)

    def _is_denied(self, tool: Tool) -> bool:
        """Whatever it is called with: there is no use in offering it."""
        rules = [rule for rule in self._policy.rules if rule.verdict == "deny" and not rule.arguments]
        return any(rule.matches(tool.name, {}) for rule in rules)

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


def _free(name: str, taken: set[str]) -> str:
    """The name, or another one: a client's own tool keeps its."""
    found, number = name, 2
    while found in taken:
        found = f"{name[:60]}_{number}"
        number += 1
    taken.add(found)
    return found
