"""What a provider does itself, and another upstream does not: the gateway does it in its place."""

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request
from toolwire.canonical.tools import NativeTool
from toolwire.codec.interface import Codec, EncodedBody, ResponseMapping
from toolwire.gateway.emulation.programs import ProgramRequest, plan_programs
from toolwire.gateway.emulation.tool_search import ToolSearchRequest, ToolSearchRounds, plan_tool_search
from toolwire.gateway.rounds.continuation import GatewayToolLoop, ProtocolPair, RoundMerger, RouteTools
from toolwire.gateway.state.store import StateStore

if TYPE_CHECKING:
    from toolwire.gateway.emulation.program_rounds import ProgramHost


class EmulationPlan(Struct, frozen=True):
    """The request as the upstream can be asked it, and what is done for it."""

    request: Request
    losses: list[Loss]
    program_plan: ProgramRequest | None
    search_plan: ToolSearchRequest | None
    route_tools: RouteTools | None = None


def plan_emulation(
    request: Request, client: Codec, upstream: Codec, model: str | None, route_tools: RouteTools | None = None
) -> EmulationPlan | None:
    """What has to be done in an upstream's place; None, as for nearly all requests, if there is nothing."""
    if route_tools is None and (client is upstream or not request.tools or NativeTool not in map(type, request.tools)):
        return None
    if (programs := plan_programs(request, client, upstream)) is not None:
        request = programs.request
    if (search := plan_tool_search(request, client, upstream, model)) is not None:
        request = search.request
    if route_tools is not None:
        request = route_tools.add_to(request)
    if programs is None and search is None and route_tools is None:
        return None
    losses = [loss for one in (programs, search) if one is not None for loss in one.losses]
    return EmulationPlan(request, losses, programs, search, route_tools)


def request_losses(
    plan: EmulationPlan | None, encoding: EncodedBody, request: Request, pair: ProtocolPair
) -> list[Loss]:
    """What is lost of a request, tools that are only found later included: their guards hold, too."""
    if plan is not None and plan.search_plan is not None:
        request = plan.search_plan.with_all_tools(request)
        encoding = pair.upstream.encode_request(request, pair.target)
    return encoding.report.resolve(request, pair.client.wire_names) if encoding.report else []


class Emulator:
    """Where it is done. The sandbox is opened by the first who needs it."""

    def __init__(self, store: StateStore, keys: list[bytes]) -> None:
        self._store = store
        self._keys = keys
        self.program_host: ProgramHost | None = None

    def close(self) -> None:
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
        """The answers to this request, as it was sent, as one answer; None if there will be one only."""
        if emulation_plan is None:
            pauses = pair.upstream.surface.can_pause and pair.client is not pair.upstream
            return RoundMerger() if pauses else None
        if emulation_plan.program_plan is None and emulation_plan.search_plan is None:
            return GatewayToolLoop(request, pair, mapping, emulation_plan.route_tools)
        if emulation_plan.program_plan is None:
            search = emulation_plan.search_plan or ToolSearchRequest(request, [], "", "", {}, {})
            return ToolSearchRounds(replace(search, request=request), pair, mapping, emulation_plan.route_tools)
        from toolwire.gateway.emulation.program_rounds import ProgramHost, ProgramRounds  # noqa: PLC0415 - the sandbox is there only where it was installed

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
