"""Withhold signatures from clients whose protocol has no field for them.

The client gets the response without signatures. The gateway stores the original messages and puts them back into the
next request (`reinsert_turn`), in place of what the client resends.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from toolwire.canonical.content import Media, Message, Part, Reasoning, Text, ToolCall
from toolwire.canonical.events import Event, PartDelta, PartEnd, PartStart
from toolwire.canonical.fold import fold, unfold
from toolwire.canonical.response import Response

_SIGNED_TYPES = (Text, Media, Reasoning, ToolCall)


class WithheldSignatures:
    """The signatures of one response, withheld from the client."""

    def __init__(self) -> None:
        self.has_signatures = False
        self._events: list[Event] = []

    def process(self, events: Iterable[Event]) -> list[Event]:
        """Return the events without signatures; the same list if there are none."""
        original = stripped = events if isinstance(events, list) else list(events)
        self._events += original
        for index, event in enumerate(original):
            if type(event) is PartDelta and (event.plain or event.signature is None):
                continue
            if (unsigned := self._strip_event(event)) is not event:
                stripped = list(original) if stripped is original else stripped
                stripped[index] = unsigned
        return stripped

    def _strip_event(self, event: Event) -> Event:
        """Return the event without its signature, and note that there was one."""
        match event:
            case PartDelta():
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

    def process_response(self, response: Response) -> Response:
        """Return a complete response without signatures."""
        signatures = (
            part.signature
            for candidate in response.candidates
            for message in candidate.messages
            for part in message.parts
            if isinstance(part, _SIGNED_TYPES)
        )
        if all(signature is None for signature in signatures):
            return response
        self._events += unfold(response)
        self.has_signatures = True
        candidates = [
            replace(
                candidate,
                messages=tuple(
                    [
                        replace(message, parts=tuple(map(self._strip_part, message.parts)))
                        for message in candidate.messages
                    ]
                ),
            )
            for candidate in response.candidates
        ]
        return replace(response, candidates=tuple(candidates))

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
