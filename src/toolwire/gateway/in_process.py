"""The gateway without a server: a model for the runtime.

Routing, retries, failover and errors are the same as for HTTP clients.
"""

import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, Loss, LossyTranslationError
from toolwire.canonical.events import Event, ResponseFailed
from toolwire.canonical.fold import fold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Usage
from toolwire.canonical.tools import NativeTool, OutputFormat
from toolwire.codec.encoding.computer import CANONICAL_ADAPTER, decode_computer_use
from toolwire.codec.encoding.fallbacks import disable_storage
from toolwire.codec.interface import Codec, ResponseContext, Target
from toolwire.gateway.backend_prices import BackendPrices
from toolwire.gateway.config import Config, build_redactor
from toolwire.gateway.emulation.prompted_tools import prompting_dialect, refuses_tools, text_recovery
from toolwire.gateway.errors import RequestRejected, RouteNotFound
from toolwire.gateway.exchange.backend_facts import known_backend, look_up_backend
from toolwire.gateway.exchange.context_management import summary_error
from toolwire.gateway.exchange.dispatcher import Dispatcher
from toolwire.gateway.exchange.exchange import ClientRequest, Exchange, ExchangeObserver, ExchangeServices
from toolwire.gateway.exchange.failover import BackendAttempt, find_context, order_backends, try_backends
from toolwire.gateway.exchange.response import StreamingResponse, request_events
from toolwire.gateway.exchange.routing import Backend, RouteMatch, Router
from toolwire.gateway.exchange.sender import UpstreamRequest
from toolwire.gateway.providers.discovery import embedded_simulator, resolve_providers
from toolwire.gateway.state.conversations import ConversationState
from toolwire.gateway.state.signatures import SignatureObserver
from toolwire.gateway.state.store_file import open_store
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.model import ModelFailed, ProviderAccess
from toolwire.runtime.search.deferred_tools import native_search
from toolwire.translation.body import raise_for_losses
from toolwire.translation.caching import with_caching
from toolwire.translation.compaction import SUMMARY_PROMPT, SummaryFailed, read_summary, summary_request
from toolwire.translation.history import restore_envelopes, signatures_in
from toolwire.translation.hosted_support import HostedSupport, find_hosted_support, knows_client_tool
from toolwire.translation.output_format import enforces_output_format
from toolwire.translation.prompted_tools import prompting_codec
from toolwire.upstream.transport import Transport

T = TypeVar("T")
_OWNER = "runtime"
"""The owner of stored signatures that the runtime received."""


class GatewayModel:
    """A runtime model that sends its requests through the gateway's dispatcher."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        route_match: RouteMatch,
        name: str,
        exit_stack: contextlib.AsyncExitStack,
        *,
        is_simulated: bool = False,
    ) -> None:
        """Send requests to the backends of `route_match`. `name` defaults to that of the first backend."""
        self._is_simulated = is_simulated
        self.losses: list[Loss] = []
        """Losses of the last request that was encoded."""

        self._dispatcher = dispatcher
        self._route_match = route_match
        backend = self._route_match.backends[0]
        self.search = native_search(backend.provider.protocol, backend.model or "")
        """The provider's own tool search; None if it has none."""

        self.name = name or backend.name
        self._exit_stack = exit_stack
        self._prices = BackendPrices()
        self._probes: dict[bytes, tuple[Target, Any]] = {}

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        """Yield the events of one response, from the first backend of the route that responds."""
        if not self._is_simulated:
            ProviderAccess.check(self.name)
        services, route_match = self._dispatcher.services, self._route_match
        runtime_request = _RuntimeRequest(self, services, route_match, decode_computer_use(request, CANONICAL_ADAPTER))
        attempt = BackendAttempt(
            prepare=runtime_request.prepare, send=runtime_request.send, on_failover=lambda _backend, _error: None
        )
        backends = order_backends(route_match, request, "")
        try:
            response = await try_backends(services, backends, request, attempt)
        except RequestRejected as rejection:
            raise ModelFailed(rejection.error) from None
        signatures, backend = runtime_request.signature_observer(), runtime_request.backend
        async with contextlib.aclosing(response.events()) as events:
            async for event in events:
                if type(event) is ResponseFailed:
                    raise ModelFailed(event.error)
                signatures.observe([event])
                yield self._prices.add_cost(event, backend)

    async def load_prices(self) -> None:
        """Load the prices of the backends, so that later responses state their cost; raise if one is unknown."""
        await self._prices.load(self._dispatcher.services, self._route_match.backends)

    def price(self, usage: Usage) -> float:
        """Return the highest price that a usage may have, in US dollars, after `load_prices`."""
        return self._prices.highest_price(usage)

    def accepts_output_format(self, output: OutputFormat, *, has_tools: bool) -> bool:
        """Return whether the first backend enforces the format, together with tools if there are any."""
        return self._remember(
            ("format", output, has_tools),
            lambda codec, target: enforces_output_format(codec, target, output, has_tools=has_tools),
        )

    def hosted_support(self, tool: NativeTool, *, has_functions: bool) -> HostedSupport:
        """Return what the first backend makes of a hosted tool, beside functions if there are any."""
        return self._remember(
            ("hosted", tool, has_functions),
            lambda codec, target: find_hosted_support(codec, target, tool, has_functions=has_functions),
        )

    def knows_client_tool(self, tool: NativeTool) -> bool:
        """Return whether the first backend and its model take a vendor's own tool that the client runs."""
        return self._remember(("client", tool), lambda codec, target: knows_client_tool(codec, target, tool))

    def _remember(self, question: tuple[Any, ...], probe: Callable[[Codec, Target], T]) -> T:
        """Return what a request to the first backend shows, remembered until the facts about the backend change."""
        backend = self._route_match.backends[0]
        facts = known_backend(self._dispatcher.services, backend, Request(origin=""))
        target = Target(model=backend.model, realm=backend.provider.name, **facts)
        key = msgspec.json.encode(question)
        if key not in self._probes or self._probes[key][0] != target:
            self._probes[key] = (target, probe(PROTOCOLS[backend.provider.protocol], target))
        found: T = self._probes[key][1]
        return found

    async def context_tokens(self) -> int | None:
        """Return the context window of the first backend's model, as far as it is known without a request."""
        services, backend = self._dispatcher.services, self._route_match.backends[0]
        return await find_context(services, backend, Request(origin=""), asks=False)

    async def summarize(self, request: Request) -> tuple[str, Usage]:
        """Return this model's summary of a conversation, for `compacted_request`, and the tokens that it took."""
        services = self._dispatcher.services
        prompt = self._route_match.options.compaction_prompt or services.compaction.prompt or SUMMARY_PROMPT
        asked = summary_request(request, prompt, services.compaction.tokens)
        response = fold([event async for event in self.stream(asked)])
        try:
            return read_summary(response), response.usage or Usage()
        except SummaryFailed as error:
            raise ModelFailed(summary_error(error)) from None

    async def close(self) -> None:
        """Close the dispatcher and the embedded simulator."""
        self._dispatcher.close()
        await self._exit_stack.aclose()


class _RuntimeRequest:
    """A request of the runtime, on its way to a response."""

    def __init__(
        self, model: GatewayModel, services: ExchangeServices, route_match: RouteMatch, request: Request
    ) -> None:
        self._model = model
        self._services = services
        self._route_match = route_match
        self._request = request
        self._exchange: Exchange

    async def send(self, backend: Backend) -> StreamingResponse[list[Event]]:
        """Send the prepared request to a backend; once more with prompted tools if the server refuses tools."""
        refusals = self._services.refused_tools
        is_known = backend in refusals
        try:
            return await request_events(self._exchange)
        except RequestRejected as rejection:
            if is_known or not refuses_tools(rejection.error, backend, self._route_match.options):
                raise
        refusals.add(backend)
        await self.prepare(backend)
        return await request_events(self._exchange)

    def signature_observer(self) -> SignatureObserver:
        """Return an observer of the signatures in the response, which go back only to their issuer."""
        signatures = self._services.conversation_state.signatures
        return SignatureObserver(signatures, _OWNER, self.backend.issuer, client_drops=False)

    @property
    def backend(self) -> Backend:
        """The backend of the last attempt."""
        return self._exchange.upstream_request.backend

    async def prepare(self, backend: Backend) -> None:
        """Encode the request for a backend."""
        request, services, options = self._request, self._services, self._route_match.options
        codec = PROTOCOLS[backend.provider.protocol]
        signatures = services.conversation_state.signatures
        foreign = await signatures.find_foreign(_OWNER, signatures_in(request.messages), backend.issuer)
        request, missing = restore_envelopes(request, codec, None, foreign=foreign)
        facts = await look_up_backend(services, backend, options, request)
        target = Target(model=backend.model, stream=True, realm=backend.provider.name, **facts)
        if options.cache == "auto":
            target = with_caching(target, request, None, codec)
        try:
            # The runtime keeps its own history, so the provider need not store the response.
            upstream_request = disable_storage(request) if target.host.fields.stores_by_default else request
            dialect = prompting_dialect(request, backend, options, facts["model_info"], services.refused_tools)
            writer = codec if dialect is None else prompting_codec(codec, dialect)
            encoding = writer.encode_request(replace(upstream_request, model=backend.model), target)
            losses = missing.resolve(self._request, codec.wire_names)
            losses += encoding.report.resolve(request, codec.wire_names) if encoding.report else []
            self._model.losses = losses
            raise_for_losses(losses, codec.name, strict=False)
        except LossyTranslationError as error:
            raise RequestRejected(ApiError(kind="invalid_request", message=str(error))) from None
        body, route = encoding.to_bytes(), encoding.route
        context = ResponseContext(
            request=request,
            mapping=encoding.mapping,
            created=int(time.time()),
            text_recovery=text_recovery(request, backend, options, dialect),
        )
        client_request = ClientRequest(codec=codec, body=body, route=route, tenant="", created=context.created)
        self._exchange = Exchange(services, client_request, request, self._route_match, ExchangeObserver())
        self._exchange.upstream_request = UpstreamRequest(backend, codec, context, losses, route, body)


def _route(router: Router, name: str, *, is_simulated: bool) -> RouteMatch:
    """Return the backends of a model that a program names.

    Clients of a gateway may have names built in that it does not know. A name in a program is a choice, so only a
    `default_model` that somebody configured may replace it.
    """
    route_match = router.route(name)
    is_replaced = route_match.is_default and route_match.backends[0].model != name
    if name and is_replaced and router.catch_all is None and not is_simulated:
        raise RouteNotFound(router.unknown_model_message(name))
    return route_match


async def open_model(
    name: str | None,
    config: Config | None = None,
    environment: Mapping[str, str] = os.environ,
    *,
    fallbacks: Sequence[str] = (),
) -> GatewayModel:
    """Open the model with this name; `fallbacks` are tried in order if it is not available.

    Without a name, the default model of the only provider is used. Without any provider, the built-in simulator
    answers.
    """
    config = config or Config()
    resources = contextlib.AsyncExitStack()
    providers, simulator_socket = resolve_providers(config, environment)
    if simulator_socket is not None:
        resources.enter_context(simulator_socket)
    try:
        router = Router(providers, config.routes, config.default_model, config.aliases)
        route_match, *others = [
            _route(router, one, is_simulated=simulator_socket is not None) for one in (name or "", *fallbacks)
        ]
        fallback_backends = [backend for other in others for backend in other.backends]
        route_match = replace(route_match, backends=(*route_match.backends, *fallback_backends))
        protocols = {backend.provider.protocol for backend in route_match.backends}
        await resources.enter_async_context(embedded_simulator(simulator_socket, config.simulator, protocols))
        conversation_state = ConversationState(
            open_store(config.state, environment), config.limits.streams, config.limits.answer
        )
        redactor = build_redactor(config, providers.values())
        dispatcher = Dispatcher(
            router,
            Transport(),
            config.limits,
            [],
            conversation_state,
            redactor=redactor,
            models=config.models,
            compaction=config.compaction,
        )
        return GatewayModel(dispatcher, route_match, name or "", resources, is_simulated=simulator_socket is not None)
    except RouteNotFound:
        await resources.aclose()
        raise
