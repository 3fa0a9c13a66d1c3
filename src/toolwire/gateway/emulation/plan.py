"""Emulation of hosted features that the upstream lacks."""

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.errors import Loss
from toolwire.canonical.request import Request
from toolwire.canonical.tools import NativeTool, Tool
from toolwire.codec.interface import Codec, EncodedBody, ResponseMapping
from toolwire.gateway.emulation.programs import ProgramRequest, plan_programs
from toolwire.gateway.emulation.tool_search import ToolSearchRequest, ToolSearchRounds, plan_tool_search
from toolwire.gateway.rounds.continuation import GatewayToolLoop, ProtocolPair, RoundMerger, RouteTools
from toolwire.gateway.state.store import StateStore

if TYPE_CHECKING:
    from toolwire.gateway.emulation.program_rounds import ProgramHost


class EmulationPlan(Struct, frozen=True):
    """A request adapted to the upstream, and the plans of the features that the gateway emulates."""

    request: Request
    losses: list[Loss]
    program_plan: ProgramRequest | None
    search_plan: ToolSearchRequest | None
    route_tools: RouteTools | None = None

    @property
    def all_tools(self) -> tuple[Tool, ...]:
        """Return the tools that the upstream gets, with those that a search may declare later."""
        request = self.request if self.search_plan is None else self.search_plan.with_all_tools(self.request)
        return request.tools or ()


def plan_emulation(
    request: Request, client: Codec, upstream: Codec, model: str | None, route_tools: RouteTools | None = None
) -> EmulationPlan | None:
    """Plan the features that the gateway must emulate for a request; None, as for nearly all requests, if none.

    `route_tools` are the tools that the route adds.
    """
    if route_tools is None and (client is upstream or not request.tools or NativeTool not in map(type, request.tools)):
        return None
    if (program_plan := plan_programs(request, client, upstream)) is not None:
        request = program_plan.request
    if (search_plan := plan_tool_search(request, client, upstream, model)) is not None:
        request = search_plan.request
    if route_tools is not None:
        request = route_tools.add_to(request)
    if program_plan is None and search_plan is None and route_tools is None:
        return None
    losses = [loss for plan in (program_plan, search_plan) if plan is not None for loss in plan.losses]
    return EmulationPlan(request, losses, program_plan, search_plan, route_tools)


def request_losses(
    plan: EmulationPlan | None, encoding: EncodedBody, request: Request, pair: ProtocolPair
) -> list[Loss]:
    """Return the losses of an encoded request, including those of tools that a search may declare later."""
    if plan is not None and plan.search_plan is not None:
        request = plan.search_plan.with_all_tools(request)
        encoding = pair.upstream.encode_request(request, pair.target)
    return encoding.report.resolve(request, pair.client.wire_names) if encoding.report else []


class Emulator:
    """Creates the rounds of emulated requests; the program sandbox is opened when first needed."""

    def __init__(self, store: StateStore, keys: list[bytes]) -> None:
        self._store = store
        self._keys = keys
        self.program_host: ProgramHost | None = None

    def close(self) -> None:
        """Close the program sandbox."""
        if self.program_host is not None:
            self.program_host.close()

    def rounds_for(
        self,
        emulation_plan: EmulationPlan | None,
        request: Request,
        pair: ProtocolPair,
        mapping: ResponseMapping,
        owner: str,
    ) -> RoundMerger | None:
        """Return what drives the upstream requests (rounds) that make up one response; None if one is enough."""
        if emulation_plan is None:
            pauses = pair.upstream.surface.can_pause and pair.client is not pair.upstream
            return RoundMerger() if pauses else None
        if emulation_plan.program_plan is None and emulation_plan.search_plan is None:
            return GatewayToolLoop(request, pair, mapping, emulation_plan.route_tools)
        if emulation_plan.program_plan is None:
            search = emulation_plan.search_plan or ToolSearchRequest(request, [], "", "", {}, {})
            return ToolSearchRounds(replace(search, request=request), pair, mapping, emulation_plan.route_tools)
        from toolwire.gateway.emulation.program_rounds import ProgramHost, ProgramRounds  # noqa: PLC0415 - the sandbox is an optional dependency

        self.program_host = self.program_host or ProgramHost(self._store, self._keys)
        plan = replace(emulation_plan.program_plan, request=request)
        return ProgramRounds(
            plan,
            emulation_plan.search_plan,
            pair,
            mapping,
            host=self.program_host,
            owner=owner,
            route_tools=emulation_plan.route_tools,
        )
