"""Withhold signatures from clients whose protocol has no field for them.

The client gets the response without signatures. The gateway stores the original messages and puts them back into the
next request (`reinsert_turn`), in place of what the client resends.
"""

from msgspec.structs import replace

from toolwire.canonical.content import Media, Message, Part, Reasoning, Signature, Text, ToolCall
from toolwire.canonical.events import Event, PartDelta, PartEnd, PartStart
from toolwire.canonical.fold import fold
from toolwire.canonical.response import Response

_SIGNED_TYPES = (Text, Media, Reasoning, ToolCall)


class WithheldSignatures:
    """The signatures of one response, withheld from the client."""

    def __init__(self) -> None:
        self.has_signatures = False
        self._events: list[Event] = []

    def applies(self, response: Response) -> bool:
        """Return whether the response has signatures."""
        return any(
            isinstance(part, _SIGNED_TYPES) and part.signature is not None
            for candidate in response.candidates
            for message in candidate.messages
            for part in message.parts
        )

    def process(self, events: list[Event]) -> list[Event]:
        """Return the events without signatures; the same list if there are none."""
        stripped = events
        self._events += events
        for index, event in enumerate(events):
            if (unsigned := self._strip_event(event)) is not event:
                stripped = list(events) if stripped is events else stripped
                stripped[index] = unsigned
        return stripped

    def _strip_event(self, event: Event) -> Event:
        """Return the event without its signature, and note that there was one."""
        match event:
            case PartDelta(signature=Signature()):
                self.has_signatures = True
                return replace(event, signature=None)
            case PartStart() if (unsigned := self._strip_part(event.part)) is not event.part:
                return replace(event, part=unsigned)
            case PartEnd() if (
                event.final is not None and (unsigned := self._strip_part(event.final)) is not event.final
            ):
                return replace(event, final=unsigned)
            case _:
                return event

    def original_messages(self) -> tuple[Message, ...]:
        """Return the messages of the first candidate, with their signatures."""
        candidates = fold(self._events).candidates
        return candidates[0].messages if candidates else ()

    def _strip_part(self, part: Part) -> Part:
        """Return the part without its signature, and note that there was one."""
        if not isinstance(part, _SIGNED_TYPES) or part.signature is None:
            return part
        self.has_signatures = True
        return replace(part, signature=None)
