"""One request, from the client's bytes to the provider and back: a straight line.

    decode -> route -> restore carries -> encode -> check losses -> send -> decode -> encode

A request is sent again only while the client has seen no byte, and only if that can do no harm: see `retries`. What the
request itself is at fault for is told at once.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.fold import unfold
from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.answers import failure_of, find_defect
from toolwire.codec.carries import Carrier
from toolwire.codec.hosts import HostProfile
from toolwire.codec.interface import Context, Route, Target
from toolwire.codec.kin import set_apart
from toolwire.codec.repeated import Repeated
from toolwire.codec.restoring import holds_carries, restore_carries
from toolwire.codec.settings import settled
from toolwire.codec.withholding import Withholding
from toolwire.journal.secrets import Redactor
from toolwire.protocols import PROTOCOLS
from toolwire.translation import answer_for, refuse, to_bytes
from toolwire.upstream.transport import Answer, Transport, TransportError

from .capabilities import Capabilities
from .config import LimitsSection
from .emulation import Workshop, emulation, losses_of
from .faults import in_place_of_an_answer, redact_error, redact_extras, transport_refusal, unreadable
from .home import as_written
from .inner import Crossing, InnerCalls, Offer
from .offering import Offers
from .offload import Offload, check_counts, check_losses, check_request
from .passing import Asked, GoOn, Sent, Streaming, StreamRoom, Whole, prepare_crossing, repaired, translating
from .pauses import is_paused, joined, resumed
from .refusal import Refused
from .retries import can_fail_over, classify_error, find_effect
from .routing import Routed, Router, Way, size_of
from .sender import Sender
from .state.holders import HOLDERS
from .state.memory import Keeping, Memory
from .state.telling import Following
from .state.turns import KEPT_FOR, Speaker

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
        redactor: Redactor,
        offers: Offers | None = None,
    ) -> None:
        self._router = router
        self._transport = transport
        self.capabilities = Capabilities(transport)
        self._sender = Sender(transport, limits)
        self._limits = limits
        self._seal_keys = seal_keys
        self._memory = memory
        self._redactor = redactor
        self._offers = offers or Offers()
        self._workshop = Workshop(memory.store, seal_keys)
        self._offload = Offload()
        self._carriers: Repeated[tuple[str, str, str | None], Carrier] = Repeated()

    def close(self) -> None:
        self._offload.close()
        self._transport.close()
        self._workshop.close()
        self._memory.close()

    async def translate(self, asked: Asked) -> Sent:
        """What would be sent to the first upstream, and its losses."""
        request, routed = await self._decode(asked)
        return await self._offload.run(asked.body, self._encode, asked, request, routed, routed.ways[0])

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
        failure: Refused | None = None
        for way in routed.ways:
            goes_to(way.provider.name, way.model)
            proven = request
            if asked.client.name in KEPT_FOR and asked.client.name != way.provider.protocol:
                proven = await self._memory.turns.recall(request, asked.client, _speaker(asked, way))
            offer = await self._offers.offer(routed.options, request, way) if routed.options.tools else None
            host = await self.capabilities.profile(way.provider, way.model or request.model, request)
            encode = partial(self._encode, proven=proven, keeping=keeping, offer=offer, host=host)
            sent = await self._offload.run(asked.body, encode, asked, request, routed, way)
            if sends is not None:
                sends(sent)
            try:
                return await self.persist(asked, request, sent)
            except Refused as refused:
                # A fallback that has no such model does not explain why the request failed.
                if failure is None or refused.error.kind != "not_found":
                    failure = Refused(set_apart(refused.error, sent.upstream, asked.client))
                if not refused.failover:
                    break
        raise failure or AssertionError("a route has at least one way")

    async def _decode(self, asked: Asked) -> tuple[Request, Routed]:
        request = await self._offload.run(asked.body, self._decode_request, asked)
        return request, self._router.route(request.model)

    def _decode_request(self, asked: Asked) -> Request:
        check_counts(asked.body, self._limits)
        request = asked.client.decode_request(to_bytes(asked.body, asked.client.name), asked.route)
        check_request(request, self._limits)
        return request

    def _encode(
        self,
        asked: Asked,
        request: Request,
        routed: Routed,
        way: Way,
        *,
        proven: Request | None = None,
        keeping: Keeping | None = None,
        offer: Offer | None = None,
        host: HostProfile | None = None,
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
            host=host or self.capabilities.known(provider, way.model or request.model),
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
        if client is not upstream:
            restored = prepare_crossing(client, request, restored, target.host)
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
        self._carriers.keep(key, made, size_of(*key))
        return made

    async def persist(self, asked: Asked, request: Request, sent: Sent) -> Whole | Streaming:
        """Ask one upstream. `Refused.failover` says whether another one may be asked instead."""
        opened = None if sent.legs is None else await sent.legs.open()
        if isinstance(opened, Response):
            return await self._given(asked, request, sent, opened)
        sent.body = sent.body if opened is None else opened
        try:
            answer = await self._sender.send(sent, sent.body)
            if asked.streams(request):
                return await self._stream(asked, sent, answer)
            return await self._whole(asked, sent, answer)
        except Refused as refused:
            raise await self._conclude(sent, refused) from None

    async def _conclude(self, sent: Sent, refused: Refused) -> Refused:
        """Decide about failover, and name the effects that a failed request may have had."""
        error, effect = redact_error(refused.error, self._redactor), None
        if sent.legs is not None and sent.legs.acted:
            effect = "tools were run or part of the answer was produced"
        elif refused.attempt == "unknown":
            effect = await asyncio.to_thread(find_effect, sent.upstream, sent.body)
        if effect is None:
            return Refused(error, failover=can_fail_over(refused))
        message = f"{error.message}; the request may have taken effect: {effect}"
        return Refused(replace(error, message=message, form=()))

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
            sent.legs.acted = True
            further = resumed(sent.upstream, sent.body, decoded.candidates[0].messages)
            decoded = joined(decoded, await self._ask(sent, further))
        return await self._told(asked, sent, decoded, body)

    async def _given(self, asked: Asked, request: Request, sent: Sent, response: Response) -> Whole | Streaming:
        """An answer that no upstream was asked for."""
        if not asked.streams(request):
            return await self._told(asked, sent, response, b"")
        translation = translating(asked, sent, self._redactor)
        return Streaming(sent, None, translation, translation.whole(unfold(response)))

    async def _told(self, asked: Asked, sent: Sent, decoded: Response, body: bytes) -> Whole:
        """A whole answer, for the client."""
        keeping, home = sent.keeping, asked.client is sent.upstream
        if decoded.error is not None:
            error, extras = redact_error(decoded.error, self._redactor), redact_extras(decoded.extras, self._redactor)
            decoded = replace(decoded, error=error, extras=extras)
        if not home and (defect := find_defect(decoded, sent.upstream)) is not None:
            raise Refused(in_place_of_an_answer(defect), attempt="unknown")
        whole = home or asked.client.failing
        failed = decoded.error if whole else failure_of(decoded)
        if failed is not None and not (whole and decoded.candidates):
            raise Refused(failed, attempt=classify_error(failed, begun=bool(decoded.candidates)))
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
        answered = await self._body(sent, await self._sender.send(sent, body))
        return await self._offload.run(answered, self._read, sent, answered)

    async def _body(self, sent: Sent, answer: Answer) -> bytes:
        """A whole answer, as it came."""
        try:
            return to_bytes(await answer.read(self._limits.answer), sent.upstream.name)
        except TransportError as error:
            raise transport_refusal(sent.way.provider, error) from None
        except DecodeError as error:
            raise Refused(unreadable(sent.way.provider, error), attempt="unknown") from None

    def _read(self, sent: Sent, body: bytes) -> Response:
        """What it means."""
        try:
            return sent.upstream.decode_response(body, sent.context)
        except DecodeError as error:
            raise Refused(unreadable(sent.way.provider, error), attempt="unknown") from None

    async def _stream(self, asked: Asked, sent: Sent, answer: Answer) -> Streaming:
        """The stream from its first event on: until then it may still be given up."""
        translation = translating(asked, sent, self._redactor)
        kind = answer.headers.get("content-type", "")
        if kind.startswith("application/json") and sent.upstream.name != "gemini":
            body = await self._body(sent, answer)
            response = await self._offload.run(body, self._read, sent, body)
            if response.error is not None and not response.candidates:
                raise Refused(response.error, attempt=classify_error(response.error))
            if isinstance(sent.legs, InnerCalls):
                response = await sent.legs.whole(response, lambda body: self._ask(sent, body), self._rounds(sent))
            whole = unfold(set_apart(response, sent.upstream, asked.client))
            return Streaming(sent, None, translation, translation.whole(whole))
        first, data, room = b"", b"", StreamRoom(sent.way.provider, self._limits.stream)
        try:
            # Of an answer in several rounds the gateway's own calls are no content, and its end is not the stream's.
            while not (translation.is_settled or (translation.begun and sent.legs is not None)):
                data = await answer.next()
                room.take(data)
                first += translation.feed(data) if data else translation.close()
                if not data:
                    answer.close()
                    break
        except TransportError as error:
            raise transport_refusal(sent.way.provider, error) from None
        except BaseException:
            answer.close()
            raise
        if translation.error is not None and not translation.has_content:
            answer.close()
            attempt = "unknown" if translation.begun else classify_error(translation.error)
            raise Refused(in_place_of_an_answer(translation.error), attempt=attempt)
        rest = answer if data else None
        return Streaming(sent, rest, translation, first, go_on=self._going_on(sent), room=room)

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
            try:
                return await self._sender.send(sent, asked_before)
            except Refused as refused:
                raise await self._conclude(sent, refused) from None

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
