"""What an answer gets before a client of another protocol sees it: ids for calls without, and an error if it failed.

Clients echo ids, so that the same call in a later answer must get another: which answer it is, and how many calls there
were before it, tell them apart. A stream and the whole answer give the same.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, ToolCall
from toolwire.canonical.events import Event, PartEnd, PartStart, ResponseStart
from toolwire.canonical.response import Candidate, Response
from toolwire.codec.encoding.ids import derive_call_id
from toolwire.codec.interface import ResponseContext


class CallIdStage:
    """Takes the events of a stream in order; for a whole answer see `identified`."""

    def __init__(self, context: ResponseContext) -> None:
        said = () if context.request is None else context.request.messages
        self._previous_calls = sum(isinstance(part, ToolCall) for message in said for part in message.parts)
        self._response_key = ""
        self._counts: dict[int, int] = {}
        self._assigned_ids: dict[tuple[int, int], str] = {}

    def set_response(self, id: str | None, created: float | None) -> None:
        self._response_key = f"{id or ''}\0{created or ''}"

    def assign_id(self, part: Part, candidate: int) -> Part:
        if not isinstance(part, ToolCall) or part.executor != "client":
            return part
        number = self._counts.get(candidate, 0)
        self._counts[candidate] = number + 1
        if part.id:
            return part
        return replace(part, id=derive_call_id(part.name, self._response_key, self._previous_calls, candidate, number))

    def replacements(self, events: Iterable[Event]) -> dict[int, Event]:
        """Those of the events that are told otherwise, by the `id` of the one that they stand for."""
        found = {id(event): self._replace_event(event) for event in events if type(event) in _RELEVANT_EVENTS}
        return {place: event for place, event in found.items() if id(event) != place}

    def _replace_event(self, event: Any) -> Any:
        if isinstance(event, ResponseStart):
            self.set_response(event.id, event.created)
        elif isinstance(event, PartStart):
            named = self.assign_id(event.part, event.candidate)
            if named is not event.part and isinstance(named, ToolCall):
                self._assigned_ids[event.candidate, event.index] = named.id or ""
                return replace(event, part=named)
        elif (id := self._assigned_ids.get((event.candidate, event.index))) and isinstance(event.final, ToolCall):
            return replace(event, final=replace(event.final, id=id))
        return event


_RELEVANT_EVENTS = (ResponseStart, PartStart, PartEnd)


def assign_call_ids(response: Response, context: ResponseContext) -> Response:
    """The answer with an id for each call that the client is to run."""
    if not _has_calls_without_id(response):
        return response
    names = CallIdStage(context)
    names.set_response(response.id, response.created)
    return replace(response, candidates=tuple([_assign_candidate_ids(one, names) for one in response.candidates]))


def _has_calls_without_id(response: Response) -> bool:
    for candidate in response.candidates:
        for message in candidate.messages:
            for part in message.parts:
                if type(part) is ToolCall and not part.id and part.executor == "client":
                    return True
    return False


def _assign_candidate_ids(candidate: Candidate, stage: CallIdStage) -> Candidate:
    def message(said: Message) -> Message:
        return replace(said, parts=tuple([stage.assign_id(part, candidate.index) for part in said.parts]))

    return replace(candidate, messages=tuple([message(said) for said in candidate.messages]))
