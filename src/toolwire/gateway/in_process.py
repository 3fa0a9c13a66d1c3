"""The gateway without a server: a model for the runtime, asked in the words of whichever provider its name leads to.

Routing, retries, fall-back and the errors are those of every other client; only the bytes of a client are missing.
"""

import contextlib
import os
import time
from collections.abc import AsyncIterator, Mapping
from typing import cast

from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, LossyTranslationError
from toolwire.canonical.events import Event, ResponseFailed
from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request
from toolwire.codec.encoding.computer import CANONICAL_ADAPTER, decode_computer_use
from toolwire.codec.encoding.fallbacks import disable_storage
from toolwire.codec.interface import Codec, ResponseContext, Target
from toolwire.gateway.config import Config, configured_secrets
from toolwire.gateway.errors import RequestRejected, RouteNotFound
from toolwire.gateway.exchange.dispatcher import Dispatcher
from toolwire.gateway.exchange.routing import Backend, Router
from toolwire.gateway.exchange.types import ClientRequest, StreamingResponse, UpstreamRequest
from toolwire.gateway.providers.discovery import embedded_simulator, resolve_providers
from toolwire.gateway.state.conversations import ConversationState
from toolwire.gateway.state.store import open_store
from toolwire.journal.redaction import Redactor
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.model import ModelFailed
from toolwire.runtime.search.deferred_tools import native_search
from toolwire.translation.body import raise_for_losses
from toolwire.translation.stages.call_ids import CallIdStage
from toolwire.translation.stages.restore_calls import CallRestoreStage
from toolwire.upstream.transport import Transport


class GatewayModel:
    """`name` is what a client would ask for; without one, what that leads to. `losses` are those of the last answer's
    request; `search` is how its provider looks for tools itself, if it does."""

    def __init__(
        self, dispatcher: Dispatcher, router: Router, name: str, exit_stack: contextlib.AsyncExitStack
    ) -> None:
        self.losses: list[Loss] = []
        self._dispatcher = dispatcher
        self._route_match = router.route(name)
        way = self._route_match.backends[0]
        self.search = native_search(way.provider.protocol, way.model or "")
        self.name = name or _backend_name(way)
        self._exit_stack = exit_stack

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        for number, way in enumerate(self._route_match.backends):
            try:
                answer, codec, context = await self._start_response(request, way)
            except RequestRejected as refused:
                last = number == len(self._route_match.backends) - 1
                if last or not refused.failover:
                    raise ModelFailed(refused.error) from None
                continue
            async for event in _decode_events(answer, codec, context):
                yield event
            return

    async def _start_response(
        self, request: Request, backend: Backend
    ) -> tuple[StreamingResponse, Codec, ResponseContext]:
        """The answer, once its first event is there."""
        request = decode_computer_use(request, CANONICAL_ADAPTER)
        codec = PROTOCOLS[backend.provider.protocol]
        host = await self._dispatcher.capabilities.profile_for(backend.provider, backend.model, request)
        target = Target(model=backend.model, stream=True, realm=backend.provider.name, host=host)
        try:
            asking = (
                disable_storage(request) if target.host.stores_by_default else request
            )  # the runtime keeps its own history
            encoding = codec.encode_request(replace(asking, model=backend.model), target)
            self.losses = encoding.report.resolve(request, codec.wire_names) if encoding.report else []
            raise_for_losses(self.losses, codec.name, strict=False)
        except LossyTranslationError as refused:
            raise RequestRejected(ApiError(kind="invalid_request", message=str(refused))) from None
        context = ResponseContext(request=request, mapping=encoding.mapping, created=int(time.time()))
        body = encoding.to_bytes()
        asked = ClientRequest(codec=codec, body=body, route=encoding.route, tenant="", created=context.created)
        # What passes is read and written in one form: only here it becomes common actions.
        passing = replace(context, mapping=replace(encoding.mapping, computer_use=None))
        sent = UpstreamRequest(backend, codec, passing, [], encoding.route, body)
        answer = await self._dispatcher.send_to_backend(asked, replace(request, stream=True), sent)
        return cast("StreamingResponse", answer), codec, context

    async def close(self) -> None:
        self._dispatcher.close()
        await self._exit_stack.aclose()


def _backend_name(backend: Backend) -> str:
    return f"{backend.provider.name}/{backend.model}" if backend.model else backend.provider.name


async def _decode_events(response: StreamingResponse, codec: Codec, context: ResponseContext) -> AsyncIterator[Event]:
    """What it says, under the names that the request has for its tools, each call with an id."""
    decoder, raiser, names = (
        codec.stream_decoder(context),
        CallRestoreStage(context.mapping, CANONICAL_ADAPTER, codec.wire_names),
        CallIdStage(context),
    )
    async with contextlib.aclosing(response.chunks()) as chunks:
        async for data in chunks:
            for event in raiser.process(_with_call_ids(names, decoder.feed(data))):
                yield _raise_on_failure(event)
    for event in raiser.process(_with_call_ids(names, decoder.close())):
        yield _raise_on_failure(event)


def _with_call_ids(call_ids: CallIdStage, events: list[Event]) -> list[Event]:
    changed = call_ids.replacements(events)
    return [changed.get(id(event), event) for event in events] if changed else events


def _raise_on_failure(event: Event) -> Event:
    if type(event) is ResponseFailed:
        raise ModelFailed(event.error)
    return event


async def open_model(
    name: str | None, config: Config | None = None, environment: Mapping[str, str] = os.environ
) -> GatewayModel:
    """The model of that name; with no name, the default of the only provider there is. With no provider at all the
    embedded simulator answers."""
    config = config or Config()
    resources = contextlib.AsyncExitStack()
    providers, embedded = resolve_providers(config, environment)
    if embedded is not None:
        resources.enter_context(embedded)
    try:
        router = Router(providers, config.routes)
        spoken = {way.provider.protocol for way in router.route(name or "").backends}
        await resources.enter_async_context(embedded_simulator(embedded, config.simulator, spoken))
        memory = ConversationState(open_store(config.state, environment), config.limits.streams, config.limits.answer)
        redactor = Redactor(configured_secrets(config, providers.values()))
        exchanger = Dispatcher(router, Transport(), config.limits, [], memory, redactor=redactor)
        return GatewayModel(exchanger, router, name or "", resources)
    except RouteNotFound:
        await resources.aclose()
        raise
