"""Assign ids to tool calls that came without one.

Clients echo ids, so the same call in a later response must get a different one. The response's id and creation time and
the number of earlier calls distinguish them. A stream and a complete response give the same ids.
"""

from operator import is_
from typing import Any

from msgspec.structs import replace

from toolwire.canonical.content import Part, ToolCall
from toolwire.canonical.events import Event, PartEnd, PartStart, ResponseStart
from toolwire.canonical.response import Response
from toolwire.codec.encoding.turns import derive_call_id
from toolwire.codec.interface import ResponseContext


class CallIdStage:
    """Assigns ids to calls that the client must run."""

    def __init__(self, context: ResponseContext) -> None:
        self._context = context
        self._earlier_calls: int | None = None  # in the client's request, once it is needed
        self._response_key = ""
        self._counts: dict[int, int] = {}
        self._assigned_ids: dict[tuple[int, int], str] = {}

    def applies(self, response: Response) -> bool:
        """Return whether a call that the client must run has no id."""
        for candidate in response.candidates:
            for message in candidate.messages:
                for part in message.parts:
                    if type(part) is ToolCall and not part.id and part.executor == "client":
                        return True
        return False

    def process(self, events: list[Event]) -> list[Event]:
        """Return the events with an id in the start and end of each call."""
        processed = [self._process_event(event) for event in events]
        return events if all(map(is_, processed, events)) else processed

    def _process_event(self, event: Any) -> Any:
        """Return the event with an id assigned to the call that it starts or ends; others are unchanged."""
        if type(event) is PartStart:
            if (identified := self._assign_id(event.part, event.candidate)) is not event.part:
                self._assigned_ids[event.candidate, event.index] = identified.id or ""
                return replace(event, part=identified)
        elif type(event) is PartEnd:
            if (id := self._assigned_ids.get((event.candidate, event.index))) and isinstance(event.final, ToolCall):
                return replace(event, final=replace(event.final, id=id))
        elif type(event) is ResponseStart:
            self._response_key = f"{event.id or ''}\0{event.created or ''}"
        return event

    def _assign_id(self, part: Part, candidate: int) -> Any:
        """Return the part with an id, if it is a call that the client must run."""
        if type(part) is not ToolCall or part.executor != "client":
            return part
        number = self._counts.get(candidate, 0)
        self._counts[candidate] = number + 1
        if part.id:
            return part
        if self._earlier_calls is None:
            messages = () if self._context.request is None else self._context.request.messages
            self._earlier_calls = sum(isinstance(part, ToolCall) for message in messages for part in message.parts)
        return replace(part, id=derive_call_id(part.name, self._response_key, self._earlier_calls, candidate, number))
