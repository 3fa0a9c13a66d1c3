"""Proofs that are kept for a client whose protocol has no field for them.

The answer passes without its proofs; as it was, they are in `whole`. Who holds on to that puts it back into the next
request (`put_back`), in place of what the client repeats of it.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from toolwire.canonical.content import Media, Message, Part, Reasoning, Text, ToolCall
from toolwire.canonical.events import Event, PartDelta, PartEnd, PartStart
from toolwire.canonical.fold import fold, unfold
from toolwire.canonical.response import Response

_SIGNED_TYPES = (Text, Media, Reasoning, ToolCall)


class WithheldSignatures:
    """Of one answer. `found`: it had proofs."""

    def __init__(self) -> None:
        self.has_signatures = False
        self._events: list[Event] = []

    def process(self, events: Iterable[Event]) -> list[Event]:
        """The same list, if there is nothing to hold back."""
        given = passed = events if isinstance(events, list) else list(events)
        self._events += given
        for place, event in enumerate(given):
            if type(event) is PartDelta and (event.plain or event.signature is None):
                continue
            if (bare := self._strip_event(event)) is not event:
                passed = list(given) if passed is given else passed
                passed[place] = bare
        return passed

    def _strip_event(self, event: Event) -> Event:
        match event:
            case PartDelta():
                self.has_signatures = True
                return replace(event, signature=None)
            case PartStart() if (bare := self._strip_part(event.part)) is not event.part:
                return replace(event, part=bare)
            case PartEnd() if event.final is not None and (bare := self._strip_part(event.final)) is not event.final:
                return replace(event, final=bare)
            case _:
                return event

    def process_response(self, response: Response) -> Response:
        """The same for a whole answer."""
        sealed = (
            part.signature
            for one in response.candidates
            for said in one.messages
            for part in said.parts
            if isinstance(part, _SIGNED_TYPES)
        )
        if all(seal is None for seal in sealed):
            return response
        self._events += unfold(response)
        self.has_signatures = True
        candidates = [
            replace(
                one,
                messages=tuple(
                    [replace(said, parts=tuple(map(self._strip_part, said.parts))) for said in one.messages]
                ),
            )
            for one in response.candidates
        ]
        return replace(response, candidates=tuple(candidates))

    def original_messages(self) -> tuple[Message, ...]:
        """What was said first, with all that proves it."""
        candidates = fold(self._events).candidates
        return candidates[0].messages if candidates else ()

    def _strip_part(self, part: Part) -> Part:
        if not isinstance(part, _SIGNED_TYPES) or part.signature is None:
            return part
        self.has_signatures = True
        return replace(part, signature=None)
