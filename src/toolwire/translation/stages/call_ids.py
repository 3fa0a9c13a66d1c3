"""Assign ids to tool calls that came without one.

Clients echo ids, so the same call in a later response must get a different one. The response's id and creation time and
the number of earlier calls distinguish them. A stream and a complete response give the same ids.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, ToolCall
from toolwire.canonical.events import Event, PartEnd, PartStart, ResponseStart
from toolwire.canonical.response import Candidate, Response
from toolwire.codec.encoding.turns import derive_call_id
from toolwire.codec.interface import ResponseContext


class CallIdStage:
    """Assigns call ids in the events of a stream; see `assign_call_ids` for complete responses."""

    def __init__(self, context: ResponseContext) -> None:
        messages = () if context.request is None else context.request.messages
        self._previous_calls = sum(isinstance(part, ToolCall) for message in messages for part in message.parts)
        self._response_key = ""
        self._counts: dict[int, int] = {}
        self._assigned_ids: dict[tuple[int, int], str] = {}

    def set_response(self, id: str | None, created: float | None) -> None:
        """Set the id and creation time of the response, from which call ids are derived."""
        self._response_key = f"{id or ''}\0{created or ''}"

    def assign_id(self, part: Part, candidate: int) -> Part:
        """Give a call that the client runs an id if it has none; `candidate` is the index of the alternative."""
        if not isinstance(part, ToolCall) or part.executor != "client":
            return part
        number = self._counts.get(candidate, 0)
        self._counts[candidate] = number + 1
        if part.id:
            return part
        return replace(part, id=derive_call_id(part.name, self._response_key, self._previous_calls, candidate, number))

    def replacements(self, events: Iterable[Event]) -> dict[int, Event]:
        """Return the events that changed, keyed by the Python `id()` of the event that each replaces."""
        replaced = {id(event): self._replace_event(event) for event in events if type(event) in _RELEVANT_EVENTS}
        return {key: event for key, event in replaced.items() if id(event) != key}

    def _replace_event(self, event: Any) -> Any:
        """Return the event with an id assigned to the call that it starts or ends; others are unchanged."""
        if isinstance(event, ResponseStart):
            self.set_response(event.id, event.created)
        elif isinstance(event, PartStart):
            identified = self.assign_id(event.part, event.candidate)
            if identified is not event.part and isinstance(identified, ToolCall):
                self._assigned_ids[event.candidate, event.index] = identified.id or ""
                return replace(event, part=identified)
        elif (id := self._assigned_ids.get((event.candidate, event.index))) and isinstance(event.final, ToolCall):
            return replace(event, final=replace(event.final, id=id))
        return event


_RELEVANT_EVENTS = (ResponseStart, PartStart, PartEnd)


def assign_call_ids(response: Response, context: ResponseContext) -> Response:
    """Return the response with an id for each call that the client must run."""
    if not _has_calls_without_id(response):
        return response
    stage = CallIdStage(context)
    stage.set_response(response.id, response.created)
    return replace(
        response, candidates=tuple([_assign_candidate_ids(candidate, stage) for candidate in response.candidates])
    )


def _has_calls_without_id(response: Response) -> bool:
    """Return whether a call that the client must run has no id."""
    for candidate in response.candidates:
        for message in candidate.messages:
            for part in message.parts:
                if type(part) is ToolCall and not part.id and part.executor == "client":
                    return True
    return False


def _assign_candidate_ids(candidate: Candidate, stage: CallIdStage) -> Candidate:
    """Return the candidate with ids for its calls."""

    def assign(message: Message) -> Message:
        """Return the message with ids for its calls."""
        return replace(message, parts=tuple([stage.assign_id(part, candidate.index) for part in message.parts]))

    return replace(candidate, messages=tuple(map(assign, candidate.messages)))
