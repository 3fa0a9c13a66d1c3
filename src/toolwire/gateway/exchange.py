"""One request, from the client's bytes to the provider and back: a straight line.

    decode -> route -> restore carries -> encode -> check losses -> send -> decode -> encode

An upstream is given up, for another try or the next one, only before the client has seen a byte. What the request
itself is at fault for is told at once, and nobody is tried again.
"""

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind
from toolwire.canonical.fold import unfold
from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.answers import failure_of
from toolwire.codec.carries import Carrier
from toolwire.codec.interface import Codec, Context, Route, Target
from toolwire.codec.kin import set_apart
from toolwire.codec.restoring import holds_carries, restore_carries
from toolwire.codec.settings import settled
from toolwire.codec.withholding import Withholding
from toolwire.protocols import PROTOCOLS
from toolwire.translation import answer_for, refuse, to_bytes
from toolwire.upstream.provider import Origin, Provider
from toolwire.upstream.transport import Answer, Transport, TransportError, head_of

from .config import LimitsSection
from .emulation import Workshop, emulation, losses_of
from .faults import STATUS_KINDS, cleaned, fault_of, in_place_of_an_answer, seconds, transport_fault, unreadable
from .home import as_written
from .inner import Crossing, InnerCalls, Offer
from .offering import Offers
from .offload import Offload, check_counts, check_losses, check_request
from .passing import Asked, GoOn, Sent, Streaming, StreamRoom, Whole, repaired, translating
from .pauses import is_paused, joined, resumed
from .refusal import Refused
from .routing import Routed, Router, Way
from .state.holders import HOLDERS
from .state.memory import Keeping, Memory
from .state.telling import Following
from .state.turns import KEPT_FOR, Speaker

_RETRIED: frozenset[ErrorKind] = frozenset({"rate_limit", "overloaded", "server", "timeout"})
PROVIDERS_FAULT = _RETRIED | {"authentication", "billing", "permission", "not_found"}
_LONGEST_WAIT = 10.0


GoesTo = Callable[[str, str | None], None]
Sends = Callable[[Sent], None]


class Exchanger:
    def __init__(
        self,
        router: Router,
        transport: Transport,
        limits: LimitsSection,
        seal_keys: list[bytes],
        memory: Memory,
        *,
        offers: Offers | None = None,
    ) -> None:
        self._router = router
        self._transport = transport
        self._limits = limits
        self._seal_keys = seal_keys
        self._memory = memory
        self._offers = offers or Offers()
        self._workshop = Workshop(memory.store, seal_keys)
        self._offload = Offload()
        self._heads: dict[tuple[str, str, tuple[tuple[str, str], ...]], tuple[Origin, bytes]] = {}
        self._carriers: dict[tuple[str, str, str | None], Carrier] = {}

    def close(self) -> None:
        self._offload.close()
        self._transport.close()
        self._workshop.close()
        self._memory.close()

    async def translate(self, asked: Asked) -> Sent:
        """What would be sent to the first upstream, and its losses."""
        request, routed = await self._decode(asked)
        return await self._encode(asked, request, routed, routed.ways[0])

    async def exchange(
        self, asked: Asked, goes_to: GoesTo, expect: Callable[[], None], sends: Sends | None = None
    ) -> Whole | Streaming | Following:
        """Ask. Told are which upstream it goes to and what is sent there, and before that whether it is to stream."""
        request, routed = await self._decode(asked)
        keeping = None
        if asked.client.name in HOLDERS:
            keeping = await self._memory.recall(asked.client, asked.tenant, asked.body, request, asked.lane)
        if asked.streams(request):
            expect()
        if keeping is None or not keeping.background:
            meant = request if keeping is None else keeping.request
            answer = await self._answer(asked, meant, routed, goes_to, sends, keeping=keeping)
            if keeping is not None and isinstance(answer, Whole) and (loss := await keeping.settle()) is not None:
                answer.losses = [*answer.losses, loss]
            return answer
        watched = replace(keeping.request, stream=True)

        async def answer_stream() -> Streaming:
            return _streaming(await self._answer(asked, watched, routed, goes_to, sends, keeping=keeping))

        context = Context(request=keeping.request, created=asked.created)
        work = await self._memory.background.start(keeping, asked.client, context, answer_stream)
        return Following(work.telling.read(-1), work) if asked.streams(request) else Whole(work.queued, [], None, work)

    async def warm(self, asked: Asked) -> bytes:
        """The stream of an answer that says nothing, to a request from which the next one goes on."""
        request, _ = await self._decode(asked)
        keeping = await self._memory.recall(asked.client, asked.tenant, asked.body, request, asked.lane)
        return b"" if keeping is None else await keeping.warm(asked.client, asked.created)

    async def _answer(
        self,
        asked: Asked,
        request: Request,
        routed: Routed,
        goes_to: GoesTo,
        sends: Sends | None,
        *,
        keeping: Keeping | None,
    ) -> Whole | Streaming:
        for number, way in enumerate(routed.ways):
            goes_to(way.provider.name, way.model)
            proven = request
            if asked.client.name in KEPT_FOR and asked.client.name != way.provider.protocol:
                proven = await self._memory.turns.recall(request, asked.client, _speaker(asked, way))
            offer = await self._offers.offer(routed.options, request, way) if routed.options.tools else None
            sent = await self._encode(asked, request, routed, way, proven=proven, keeping=keeping, offer=offer)
            if sends is not None:
                sends(sent)
            try:
                return await self.persist(asked, request, sent)
            except Refused as refused:
                last = number == len(routed.ways) - 1
                if last or refused.error.kind not in PROVIDERS_FAULT:
                    raise Refused(set_apart(refused.error, sent.upstream, asked.client)) from None
        raise AssertionError("a route has at least one way")

    async def _decode(self, asked: Asked) -> tuple[Request, Routed]:
        request = await self._offload.run(asked.body, self._decode_request, asked)
        return request, self._router.route(request.model)

    def _decode_request(self, asked: Asked) -> Request:
        check_counts(asked.body, self._limits)
        request = asked.client.decode_request(to_bytes(asked.body, asked.client.name), asked.route)
        check_request(request, self._limits)
        return request

    async def _encode(
        self,
        asked: Asked,
        request: Request,
        routed: Routed,
        way: Way,
        *,
        proven: Request | None = None,
        keeping: Keeping | None = None,
        offer: Offer | None = None,
    ) -> Sent:
        def encode() -> Sent:
            return self._encode_request(asked, request, routed, way, proven=proven, keeping=keeping, offer=offer)

        return await self._offload.run(asked.body, encode)

    def _encode_request(
        self,
        asked: Asked,
        request: Request,
        routed: Routed,
        way: Way,
        *,
        proven: Request | None = None,
        keeping: Keeping | None = None,
        offer: Offer | None = None,
    ) -> Sent:
        client, upstream, provider = asked.client, PROTOCOLS[way.provider.protocol], way.provider
        carrier = self._carrier(asked.tenant, way)
        restored, losses = proven or request, list[Loss]()
        if holds_carries(request):
            home = request.origin == upstream.name
            restored, missing = restore_carries(request, client, carrier, home=home)
            losses = missing.resolve(request, client.names)
        if keeping is not None:
            restored = keeping.outward(restored, home=client is upstream)
        target = Target(
            model=way.model,
            stream=asked.streams(request),
            realm=provider.name,
            hosted_tools=routed.options.hosted_tools,
            binary_results=routed.options.binary_results,
        )
        restored = settled(set_apart(restored, client, upstream), client, upstream)
        if (emulating := emulation(restored, client, upstream, way.model, offer)) is not None:
            restored, losses = emulating.request, losses + emulating.losses
        if routed.options.repair and upstream.repair_request is not None:
            restored, losses = repaired(upstream.repair_request, restored, target, client, losses)
        renamed = way.model not in (None, request.model)
        if client is upstream and restored is request and not (renamed and request.thinking is not None):
            body = as_written(asked.body, request, client, way.model, stream=asked.streams(request))
            if body is not None:
                context = Context(request=request, created=asked.created, carrier=carrier)
                route = Route(path=client.surface.endpoints[0].path, headers=asked.route.headers)
                return Sent(way, upstream, context, losses, route, body)
        if client is not upstream and (demanded := client.demand(request)) is not None:
            raise Refused(demanded)
        if client is not upstream and not restored.messages and restored.continuation is None:
            # Each provider does something else with it: refuses it, answers nothing, or loads the model.
            raise Refused(ApiError(kind="invalid_request", message="the request has no messages", status=400))
        encoding = upstream.encode_request(restored, target)
        if client is not upstream:
            encoding.undo.integers = request
        crossing = Crossing(client, upstream, target)
        losses += losses_of(emulating, encoding, restored, crossing)
        check_losses(losses, self._limits, upstream.name)
        refuse(losses, upstream.name, strict=asked.strict or routed.options.strict)
        context = Context(
            request=request,
            undo=encoding.undo,
            created=asked.created,
            carrier=carrier,
            withholding=Withholding() if client.name in KEPT_FOR and upstream.carriage is not None else None,
        )
        legs = self._workshop.legs(emulating, restored, crossing, encoding.undo, asked.tenant)
        finish = None
        if keeping is not None or context.withholding is not None:
            finish = self._memory.finish(client, context, keeping, _speaker(asked, way))
        route = replace(encoding.route, headers=asked.route.headers) if client is upstream else encoding.route
        return Sent(way, upstream, context, losses, route, encoding.to_bytes(), legs, keeping, finish)

    def _carrier(self, tenant: str, way: Way) -> Carrier | None:
        key = (tenant, way.provider.name, way.model)
        if not self._seal_keys:
            return None
        if (known := self._carriers.get(key)) is not None:
            return known
        made = Carrier(self._seal_keys, tenant, realm=way.provider.name, model=way.model or "")
        if len(self._carriers) < 4096:  # names are the clients' to choose
            self._carriers[key] = made
        return made

    async def persist(self, asked: Asked, request: Request, sent: Sent) -> Whole | Streaming:
        """Ask one upstream, again if it is only busy."""
        tries = self._limits.retries
        opened = None if sent.legs is None else await sent.legs.open()
        if isinstance(opened, Response):
            return await self._given(asked, request, sent, opened)
        sent.body = sent.body if opened is None else opened
        while True:
            try:
                answer = await self._send(sent, sent.body)
                if asked.streams(request):
                    return await self._stream(asked, sent, answer)
                return await self._whole(asked, sent, answer)
            except Refused as refused:
                wait = refused.error.retry_after if refused.error.retry_after is not None else 0.5
                if tries == 0 or refused.error.kind not in _RETRIED or wait > _LONGEST_WAIT:
                    raise
                tries -= 1
                await asyncio.sleep(wait)

    async def _send(self, sent: Sent, body: bytes) -> Answer:
        provider = sent.way.provider
        origin, head = self._head(provider, sent.upstream, sent.route)
        try:
            answer = await self._transport.send(
                origin, head, body, silence=provider.timeout, patience=provider.connect_timeout
            )
            if answer.status >= 300:
                raise Refused(await self._fault(sent, answer))
        except TransportError as error:
            raise Refused(transport_fault(provider, error)) from None
        return answer

    def _head(self, provider: Provider, upstream: Codec, route: Route) -> tuple[Origin, bytes]:
        key = (provider.name, path := route.path or "/", route.headers)
        if (known := self._heads.get(key)) is not None:
            return known
        headers = {"content-type": "application/json"} | provider.own_headers(upstream.surface)
        for name, words in route.headers:
            joined_words = name == upstream.surface.passed and name in headers
            headers[name] = f"{headers[name]},{words}" if joined_words else words
        found = provider.origin, head_of(provider.origin, provider.address(path), headers.items())
        if len(self._heads) < 1024:  # Gemini's paths hold names that are the clients' to choose
            self._heads[key] = found
        return found

    async def _fault(self, sent: Sent, answer: Answer) -> ApiError:
        """What an upstream answered in place of success, as an error that names it."""
        provider = sent.way.provider
        body = await answer.read(self._limits.answer)
        if answer.status < 400:
            return fault_of(provider, "server", f"answered with a redirect ({answer.status}), which is not followed")
        try:
            error = sent.upstream.decode_error(to_bytes(body, sent.upstream.name), answer.status)
        except DecodeError:
            kind = STATUS_KINDS.get(answer.status) or ("server" if answer.status >= 500 else "invalid_request")
            kind = "rate_limit" if answer.status == 429 else kind
            return fault_of(provider, kind, f"answered {answer.status} with no error of its protocol", answer.status)
        after = seconds(answer.headers.get("retry-after"))
        error = cleaned(error, provider)
        message = error.message
        if error.kind == "authentication":
            message = f"{provider.name} did not accept the key configured for it: {message}"
        return replace(error, message=message, status=answer.status, retry_after=after or error.retry_after)

    async def _whole(self, asked: Asked, sent: Sent, answer: Answer) -> Whole:
        body = await self._body(sent, answer)
        home = asked.client is sent.upstream and sent.legs is None
        if home and (seen := await self._offload.run(body, sent.upstream.glance, body)) is not None:
            return Whole(body, sent.losses, seen)
        decoded = await self._offload.run(body, self._read, sent, body)
        if isinstance(sent.legs, InnerCalls):
            decoded = await sent.legs.whole(decoded, lambda body: self._ask(sent, body), self._rounds(sent))
        for _ in range(self._limits.pauses):
            if sent.legs is None or isinstance(sent.legs, InnerCalls) or not is_paused(decoded):
                break
            further = resumed(sent.upstream, sent.body, decoded.candidates[0].messages)
            decoded = joined(decoded, await self._ask(sent, further))
        return await self._told(asked, sent, decoded, body)

    async def _given(self, asked: Asked, request: Request, sent: Sent, response: Response) -> Whole | Streaming:
        """An answer that no upstream was asked for."""
        if not asked.streams(request):
            return await self._told(asked, sent, response, b"")
        translation = translating(asked, sent)
        return Streaming(sent, None, translation, translation.whole(unfold(response)))

    async def _told(self, asked: Asked, sent: Sent, decoded: Response, body: bytes) -> Whole:
        """A whole answer, for the client."""
        keeping, home = sent.keeping, asked.client is sent.upstream
        whole = home or asked.client.failing
        failed = decoded.error if whole else failure_of(decoded)
        if failed is not None and not (whole and decoded.candidates):
            raise Refused(cleaned(failed, sent.way.provider))
        named = decoded if keeping is None or home else replace(decoded, id=keeping.id)
        response, data, losses = await self._offload.run(body, _render, asked, sent, named)
        if data is None:
            if keeping is not None:
                keeping.finished(body)
            return Whole(body, sent.losses, decoded)
        if sent.finish is not None:
            sent.finish(response)
        return Whole(data, sent.losses + losses, decoded)

    async def _ask(self, sent: Sent, body: bytes) -> Response:
        """One more leg of an answer."""
        answered = await self._body(sent, await self._send(sent, body))
        return await self._offload.run(answered, self._read, sent, answered)

    async def _body(self, sent: Sent, answer: Answer) -> bytes:
        """A whole answer, as it came."""
        try:
            return to_bytes(await answer.read(self._limits.answer), sent.upstream.name)
        except TransportError as error:
            raise Refused(transport_fault(sent.way.provider, error)) from None
        except DecodeError as error:
            raise Refused(unreadable(sent.way.provider, error)) from None

    def _read(self, sent: Sent, body: bytes) -> Response:
        """What it means."""
        try:
            return sent.upstream.decode_response(body, sent.context)
        except DecodeError as error:
            raise Refused(unreadable(sent.way.provider, error)) from None

    async def _stream(self, asked: Asked, sent: Sent, answer: Answer) -> Streaming:
        """The stream from its first event on: until then it may still be given up."""
        translation = translating(asked, sent)
        kind = answer.headers.get("content-type", "")
        if kind.startswith("application/json") and sent.upstream.name != "gemini":
            body = await self._body(sent, answer)
            response = await self._offload.run(body, self._read, sent, body)
            if isinstance(sent.legs, InnerCalls):
                response = await sent.legs.whole(response, lambda body: self._ask(sent, body), self._rounds(sent))
            whole = unfold(set_apart(response, sent.upstream, asked.client))
            return Streaming(sent, None, translation, translation.whole(whole))
        first, room = b"", StreamRoom(sent.way.provider, self._limits.stream)
        try:
            while not translation.begun and translation.error is None:
                data = await answer.next()
                room.take(data)
                first += translation.feed(data) if data else translation.close()
        except TransportError as error:
            raise Refused(transport_fault(sent.way.provider, error)) from None
        except BaseException:
            answer.close()
            raise
        if not translation.begun and translation.error is not None:
            answer.close()
            raise Refused(in_place_of_an_answer(translation.error))
        return Streaming(sent, answer, translation, first, go_on=self._going_on(sent), room=room)

    def _rounds(self, sent: Sent) -> int:
        """How many more legs an answer may have."""
        runs_tools = isinstance(sent.legs, InnerCalls) and sent.legs.runs_tools
        return self._limits.rounds if runs_tools else self._limits.pauses

    def _going_on(self, sent: Sent) -> GoOn | None:
        """How a stream that paused goes on, if it is for us to ask."""
        legs, asked_before, left = sent.legs, sent.body, self._rounds(sent)
        if legs is None:
            return None

        async def go_on() -> Answer | None:
            nonlocal asked_before, left
            if legs.paused and left > 0:
                legs.ready = await legs.settle()
            if not legs.paused or left == 0:
                return None
            left -= 1
            asked_before = legs.further(sent.upstream, asked_before)
            return await self._send(sent, asked_before)

        return go_on


def _render(asked: Asked, sent: Sent, named: Response) -> tuple[Response, bytes | None, list[Loss]]:
    """The answer as the client gets it, its bytes and its losses; no bytes if it is passed on as it came."""
    response = answer_for(named, sent.upstream, asked.client, sent.context)
    if asked.client is sent.upstream and sent.legs is None and response is named and named.error is None:
        return response, None, []
    encoding = asked.client.encode_response(response, sent.context)
    losses = encoding.report.resolve(response, sent.upstream.names) if encoding.report else []
    refuse(losses, asked.client.name, strict=False)
    return response, encoding.to_bytes(), losses


def _speaker(asked: Asked, way: Way) -> Speaker:
    return Speaker(asked.tenant, asked.client.name, way.provider.name, way.model or "")


def _streaming(answer: Whole | Streaming) -> Streaming:
    if isinstance(answer, Streaming):
        return answer
    raise AssertionError("what is asked to stream does")
