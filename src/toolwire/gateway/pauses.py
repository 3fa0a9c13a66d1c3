"""Pauses: a provider stops in the middle of its own work and wants to be asked to go on. A client whose protocol has no
word for that gets one answer, of as many legs as it took."""

from collections.abc import Iterable

from msgspec.structs import replace

from toolwire.canonical.content import Message
from toolwire.canonical.events import (
    Event,
    MessageEnd,
    MessageStart,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseStart,
    Stopped,
    UsageReport,
)
from toolwire.canonical.fold import Folder
from toolwire.canonical.response import Response, Stop, Usage
from toolwire.canonical.usage import added
from toolwire.codec.interface import Codec, Route, Target


def is_paused(response: Response) -> bool:
    return any(one.stop is not None and one.stop.reason == "paused" for one in response.candidates)


def resumed(upstream: Codec, body: bytes, messages: tuple[Message, ...]) -> bytes:
    """The request that goes on after these messages: all that was sent, and what was answered so far, untouched."""
    request = upstream.decode_request(body, Route())
    longer = replace(request, messages=request.messages + messages, plain=False)
    return upstream.encode_request(longer, Target()).to_bytes()


def joined(first: Response, second: Response) -> Response:
    """One answer of two legs."""
    (before,), (after,) = first.candidates[:1], second.candidates[:1]
    both = replace(after, messages=before.messages + after.messages)
    usage = added(first.usage, second.usage)
    return replace(second, id=first.id, candidates=(both,), usage=usage, plain=first.plain and second.plain)


class Legs:
    """The events of several streams, as those of one. `acted`: tools were run, or part of the answer was produced, so
    that the exchange can't be repeated from its start."""

    def __init__(self) -> None:
        self.paused = False
        self.acted = False
        self.ready: list[Event] = []
        self._held: list[Event] = []
        self._given_up = False
        self._folder = Folder()
        self._begun = False
        self._spent: Usage | None = None
        self._usage: Usage | None = None
        self._messages = self._parts = 0
        self._next_message = self._next_part = 0

    def take(self, events: Iterable[Event]) -> list[Event]:
        found: list[Event] = []
        for event in events:
            self._folder.add(event)
            if (told := self._told(event)) is not None:
                found.append(told)
        return found

    def _told(self, event: Event) -> Event | None:
        match event:
            case ResponseStart():
                known, self._begun = self._begun, True
                return None if known else event
            case PartDelta():
                return replace(event, index=event.index + self._parts) if self._parts else event
            case PartStart():
                self._next_part = max(self._next_part, self._parts + event.index + 1)
                return replace(event, index=event.index + self._parts, message=event.message + self._messages)
            case PartEnd():
                return replace(event, index=event.index + self._parts)
            case MessageStart() | MessageEnd():
                self._next_message = max(self._next_message, self._messages + event.message + 1)
                return replace(event, message=event.message + self._messages)
            case UsageReport():
                self._usage = event.usage
                return replace(event, usage=added(self._spent, event.usage) or event.usage)
            case Stopped(stop=Stop(reason="paused")) if not self._given_up:
                self.paused = True
                self._held = [event]
                return None
            case ResponseEnd() if self.paused:
                self._held.append(event)
                return None
            case _:
                return event

    def go_on(self) -> tuple[Message, ...]:
        """What was said in the leg that ended; the next one follows it."""
        said = self._folder.response().candidates[0].messages
        self._folder = Folder()
        self.acted = True
        self._spent, self._usage = added(self._spent, self._usage), None
        self._messages, self._parts = self._next_message, self._next_part
        self.paused = False
        return said

    async def open(self) -> Response | bytes | None:
        """What comes before the first leg: an answer in its place, or another request than was made."""
        return None

    async def settle(self) -> list[Event]:
        """What is to be done, and told, before the next leg; it may turn out that there is none."""
        return []

    def further(self, upstream: Codec, body: bytes) -> bytes:
        """The request for the next leg, after the one that was asked last."""
        return resumed(upstream, body, self.go_on())

    def give_up(self) -> list[Event]:
        """It paused once too often: the end that was held back."""
        self.paused, self._given_up = False, True
        return self._held
