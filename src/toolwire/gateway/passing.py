"""What a client asks, what goes upstream for it, and what comes back: whole, or as a stream."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import Event, Notice, ResponseStart
from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Usage
from toolwire.codec.hosts import HostProfile
from toolwire.codec.interface import Codec, Context, Route, Target
from toolwire.codec.losses import Names, Report
from toolwire.codec.settings import unstored
from toolwire.journal.secrets import Redactor
from toolwire.streaming import Translation
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Answer, TransportError

from .faults import fault_of, redact_failure, transport_fault
from .lanes import Lane
from .pauses import Legs
from .refusal import Refused
from .routing import Way
from .state.background import Work
from .state.holders import HOLDERS
from .state.memory import Keeping

Repair = Callable[[Request, Target, Names, Report], Request]
GoOn = Callable[[], Awaitable[Answer | None]]


class Whole(Struct):
    """`told` is what it says of itself, perhaps without its words. `work`: it is only being made."""

    body: bytes
    losses: list[Loss]
    told: Response | None = None
    work: Work | None = None


class Asked(Struct, frozen=True, kw_only=True):
    """What a client asks. `lane`: what the connection that it came by remembers."""

    client: Codec
    body: bytes
    route: Route
    tenant: str
    strict: bool = False
    created: int = 0
    lane: Lane | None = None

    def streams(self, request: Request) -> bool:
        return self.client.surface.streams if request.stream is None else request.stream


class Sent(Struct):
    """What went upstream, and what its answer needs. `legs`, if the client can't ask it to go on after a pause;
    `keeping` and `finish`, if the answer is to be remembered."""

    way: Way
    upstream: Codec
    context: Context
    losses: list[Loss]
    route: Route
    body: bytes
    legs: Legs | None = None
    keeping: Keeping | None = None
    finish: Callable[[Response], None] | None = None


class StreamRoom(Struct):
    """The bytes that may still be read of one streamed answer."""

    provider: Provider
    left: int

    def take(self, data: bytes) -> None:
        self.left -= len(data)
        if self.left < 0:
            why = "sent a longer stream than limits.stream of this gateway allows"
            raise Refused(fault_of(self.provider, "server", why), attempt="unknown")


class Streaming:
    """An answer that streams: bytes as they become ready, whole frames each time, always with a proper end."""

    def __init__(
        self,
        sent: Sent,
        answer: Answer | None,
        translation: Translation,
        first: bytes,
        *,
        go_on: GoOn | None = None,
        room: StreamRoom | None = None,
    ) -> None:
        self.work: Work | None = None
        self.sent = sent
        self.translation = translation
        self._answer = answer
        self._first = first
        self._go_on = go_on
        self._unstored: list[Loss] = []
        self._room = room or StreamRoom(sent.way.provider, 0)

    @property
    def before(self) -> list[Loss]:
        """The losses that are known before it begins."""
        return self.sent.losses

    @property
    def losses(self) -> list[Loss]:
        return self.sent.losses + self.translation.losses + self._unstored

    @property
    def usage(self) -> Usage | None:
        return self.translation.usage

    @property
    def told(self) -> Response:
        return self.translation.glance

    @property
    def error(self) -> ApiError | None:
        """What ended it early, if something did."""
        return self.translation.error

    def chunks(self) -> AsyncGenerator[bytes, None]:
        return self._pieces() if self.sent.keeping is None else self._stored_pieces(self.sent.keeping)

    async def _stored_pieces(self, keeping: Keeping) -> AsyncGenerator[bytes, None]:
        """The pieces, of which the one that completes the answer goes out once the answer is stored."""
        async with aclosing(self._pieces()) as pieces:
            async for data in pieces:
                if (loss := await keeping.settle()) is not None:
                    self._unstored.append(loss)
                yield data

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        if self._first:
            yield self._first
        if self._answer is None:
            return
        try:
            while True:
                while self.error is None and (data := await self._answer.next()):
                    self._room.take(data)
                    if out := self.translation.feed(data):
                        yield out
                yield self.translation.drain()
                self._answer.close()
                following = None if self._go_on is None or self.error is not None else await self._go_on()
                if self.sent.legs is not None and self.sent.legs.ready:
                    yield self.translation.tell(*self.sent.legs.ready)
                    self.sent.legs.ready = []
                if following is None:
                    break
                self._answer = following
                self.translation.go_on()
            if self.sent.legs is not None and self.sent.legs.paused:
                yield self.translation.tell(*self.sent.legs.give_up())
            yield self.translation.end()
        except TransportError as error:
            yield self.translation.fail(transport_fault(self.sent.way.provider, error))
        except Refused as refused:
            yield self.translation.fail(refused.error)
        finally:
            self._answer.close()

    def close(self) -> None:
        """Nobody will read it."""
        if self._answer is not None:
            self._answer.close()

    def ping(self) -> bytes:
        """What may be written while the upstream is silent."""
        return self.translation.tell(Notice(kind="ping"))


def translating(asked: Asked, sent: Sent, redactor: Redactor) -> Translation:
    """The translation of a streamed answer, with no secret in its errors."""
    return Translation(
        sent.upstream,
        asked.client,
        sent.context,
        change=changing(asked, sent),
        finish=sent.finish,
        redact=lambda failed: redact_failure(failed, redactor),
    )


def changing(asked: Asked, sent: Sent) -> Callable[[list[Event]], list[Event]] | None:
    """What is done to all events of an upstream: its legs as one, and the name of an answer that is kept."""
    name = None if sent.keeping is None or asked.client is sent.upstream else sent.keeping.id
    if name is None and sent.legs is None:
        return None

    def change(events: list[Event]) -> list[Event]:
        if name is not None and events and type(start := events[0]) is ResponseStart:
            events[0] = replace(start, id=name)
        return events if sent.legs is None else sent.legs.take(events)

    return change


def repaired(
    repair: Repair, request: Request, target: Target, client: Codec, losses: list[Loss]
) -> tuple[Request, list[Loss]]:
    """The request without what the provider is known to refuse, and what became of it."""
    report = Report()
    repaired = repair(request, target, client.names, report)
    return repaired, losses + report.resolve(request, client.names) if report else losses


def prepare_crossing(client: Codec, request: Request, restored: Request, host: HostProfile) -> Request:
    """Return the request as a provider of another protocol can be asked it; Refused if it can't be."""
    if (demanded := client.demand(request)) is not None:
        raise Refused(demanded)
    if not restored.messages and restored.continuation is None:
        # Each provider does something else with it: refuses it, answers nothing, or loads the model.
        raise Refused(ApiError(kind="invalid_request", message="the request has no messages", status=400))
    return unstored(restored) if host.stores and client.name not in HOLDERS else restored
