"""The gateway without a server: a model for the runtime, asked in the words of whichever provider its name leads to.

Routing, retries, fall-back and the errors are those of every other client; only the bytes of a client are missing.
"""

import contextlib
import os
import time
from collections.abc import AsyncIterator, Mapping
from typing import cast

from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, LossRefused
from toolwire.canonical.events import Event, ResponseFailed
from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request
from toolwire.codec.answers import CallNames
from toolwire.codec.computer import with_screens
from toolwire.codec.interface import Codec, Context, Target
from toolwire.codec.raising import StreamRaiser
from toolwire.codec.screen_function import COMMON
from toolwire.codec.settings import unstored
from toolwire.journal.secrets import Redactor
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.model import ModelFailed
from toolwire.runtime.search.natives import native_search
from toolwire.translation import refuse
from toolwire.upstream.transport import Transport

from .config import Config
from .exchange import Exchanger
from .passing import Asked, Sent, Streaming
from .providing import providers_of, simulating
from .recording import secrets_of
from .refusal import Refused
from .routing import NoRoute, Router, Way
from .state.memory import Memory
from .state.opening import opened


class RoutedModel:
    """`name` is what a client would ask for; without one, what that leads to. `losses` are those of the last answer's
    request; `search` is how its provider looks for tools itself, if it does."""

    def __init__(self, exchanger: Exchanger, router: Router, name: str, resources: contextlib.AsyncExitStack) -> None:
        self.losses: list[Loss] = []
        self._exchanger = exchanger
        self._routed = router.route(name)
        way = self._routed.ways[0]
        self.search = native_search(way.provider.protocol, way.model or "")
        self.name = name or _named(way)
        self._resources = resources

    async def ask(self, request: Request) -> AsyncIterator[Event]:
        for number, way in enumerate(self._routed.ways):
            try:
                answer, codec, context = await self._begin(request, way)
            except Refused as refused:
                last = number == len(self._routed.ways) - 1
                if last or not refused.failover:
                    raise ModelFailed(refused.error) from None
                continue
            async for event in _events(answer, codec, context):
                yield event
            return

    async def _begin(self, request: Request, way: Way) -> tuple[Streaming, Codec, Context]:
        """The answer, once its first event is there."""
        request = with_screens(request, COMMON)
        codec = PROTOCOLS[way.provider.protocol]
        host = await self._exchanger.capabilities.profile(way.provider, way.model, request)
        target = Target(model=way.model, stream=True, realm=way.provider.name, host=host)
        try:
            asking = unstored(request) if target.host.stores else request  # the runtime keeps its own history
            encoding = codec.encode_request(replace(asking, model=way.model), target)
            self.losses = encoding.report.resolve(request, codec.names) if encoding.report else []
            refuse(self.losses, codec.name, strict=False)
        except LossRefused as refused:
            raise Refused(ApiError(kind="invalid_request", message=str(refused))) from None
        context = Context(request=request, undo=encoding.undo, created=int(time.time()))
        body = encoding.to_bytes()
        asked = Asked(client=codec, body=body, route=encoding.route, tenant="", created=context.created)
        # What passes is read and written in one form: only here it becomes common actions.
        passing = replace(context, undo=replace(encoding.undo, screen=None))
        sent = Sent(way, codec, passing, [], encoding.route, body)
        answer = await self._exchanger.persist(asked, replace(request, stream=True), sent)
        return cast("Streaming", answer), codec, context

    async def close(self) -> None:
        self._exchanger.close()
        await self._resources.aclose()


def _named(way: Way) -> str:
    return f"{way.provider.name}/{way.model}" if way.model else way.provider.name


async def _events(answer: Streaming, codec: Codec, context: Context) -> AsyncIterator[Event]:
    """What it says, under the names that the request has for its tools, each call with an id."""
    decoder, raiser, names = (
        codec.stream_decoder(context),
        StreamRaiser(context.undo, COMMON, codec.names),
        CallNames(context),
    )
    async with contextlib.aclosing(answer.chunks()) as chunks:
        async for data in chunks:
            for event in raiser.raise_events(_under_names(names, decoder.feed(data))):
                yield _checked(event)
    for event in raiser.raise_events(_under_names(names, decoder.close())):
        yield _checked(event)


def _under_names(names: CallNames, events: list[Event]) -> list[Event]:
    changed = names.name(events)
    return [changed.get(id(event), event) for event in events] if changed else events


def _checked(event: Event) -> Event:
    if type(event) is ResponseFailed:
        raise ModelFailed(event.error)
    return event


async def open_model(
    name: str | None, config: Config | None = None, environment: Mapping[str, str] = os.environ
) -> RoutedModel:
    """The model of that name; with no name, the default of the only provider there is. With no provider at all the
    embedded simulator answers."""
    config = config or Config()
    resources = contextlib.AsyncExitStack()
    providers, embedded = providers_of(config, environment)
    if embedded is not None:
        resources.enter_context(embedded)
    try:
        router = Router(providers, config.routes)
        spoken = {way.provider.protocol for way in router.route(name or "").ways}
        await resources.enter_async_context(simulating(embedded, config.simulator, spoken))
        memory = Memory(opened(config.state, environment), config.limits.streams, config.limits.answer)
        redactor = Redactor(secrets_of(config, providers.values()))
        exchanger = Exchanger(router, Transport(), config.limits, [], memory, redactor=redactor)
        return RoutedModel(exchanger, router, name or "", resources)
    except NoRoute:
        await resources.aclose()
        raise
