"""What an answer gets before a client of another protocol sees it: ids for calls without, and an error if it failed.

Clients echo ids, so that the same call in a later answer must get another: which answer it is, and how many calls there
were before it, tell them apart. A stream and the whole answer give the same.
"""

from collections.abc import Collection, Iterable
from typing import Any

from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, ToolCall
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import (
    Event,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    Stopped,
)
from toolwire.canonical.response import Candidate, Response, Stop, StopReason

from .ids import made_id
from .interface import Context

CUT_OFF: frozenset[StopReason] = frozenset(
    {"max_tokens", "context_window", "filtered", "refusal", "malformed_call", "cancelled", "error"}
)
"""Stop reasons after which no call of the response may be run: its arguments may be incomplete."""


class CallNames:
    """Takes the events of a stream in order; for a whole answer see `identified`."""

    def __init__(self, context: Context) -> None:
        said = () if context.request is None else context.request.messages
        self._before = sum(isinstance(part, ToolCall) for message in said for part in message.parts)
        self._answer = ""
        self._counts: dict[int, int] = {}
        self._parts: dict[tuple[int, int], str] = {}

    def answer(self, id: str | None, created: float | None) -> None:
        self._answer = f"{id or ''}\0{created or ''}"

    def named(self, part: Part, candidate: int) -> Part:
        if not isinstance(part, ToolCall) or part.executor != "client":
            return part
        number = self._counts.get(candidate, 0)
        self._counts[candidate] = number + 1
        if part.id:
            return part
        return replace(part, id=made_id(part.name, self._answer, self._before, candidate, number))

    def name(self, events: Iterable[Event]) -> dict[int, Event]:
        """Those of the events that are told otherwise, by the `id` of the one that they stand for."""
        found = {id(event): self._name(event) for event in events if type(event) in _TELLING}
        return {place: event for place, event in found.items() if id(event) != place}

    def _name(self, event: Any) -> Any:
        if isinstance(event, ResponseStart):
            self.answer(event.id, event.created)
        elif isinstance(event, PartStart):
            named = self.named(event.part, event.candidate)
            if named is not event.part and isinstance(named, ToolCall):
                self._parts[event.candidate, event.index] = named.id or ""
                return replace(event, part=named)
        elif (id := self._parts.get((event.candidate, event.index))) and isinstance(event.final, ToolCall):
            return replace(event, final=replace(event.final, id=id))
        return event


_TELLING = (ResponseStart, PartStart, PartEnd)


class Failing:
    """Takes the events of a stream in order: one that stopped with an error, and no more is said of it, has failed."""

    def __init__(self) -> None:
        self._stops: dict[int, Stop | None] = {}

    def fail(self, events: Iterable[Event]) -> dict[int, Event]:
        """As `CallNames.name`."""
        for event in events:
            if type(event) is Stopped:
                self._stops[event.candidate] = event.stop
            elif type(event) is ResponseEnd and (error := _failure(self._stops.values())) is not None:
                return {id(event): ResponseFailed(error=error, status=event.status, extras=event.extras)}
        return {}


def failure_of(response: Response) -> ApiError | None:
    """Why an answer failed, if it did, however little is said of it."""
    return response.error or _failure([candidate.stop for candidate in response.candidates])


def _failure(stops: Collection[Stop | None]) -> ApiError | None:
    if not stops or any(stop is None or stop.reason != "error" for stop in stops):
        return None
    return ApiError(kind="server", message="the answer ended with an error, of which nothing is said")


def before_failure(response: Response) -> Response:
    """What a stream that failed had told until then."""
    stopped = [one.stop is not None and one.stop.reason == "error" for one in response.candidates]
    told = [replace(one, stop=None) if by else one for one, by in zip(response.candidates, stopped, strict=True)]
    return replace(response, candidates=tuple(told), error=None, status=None)


def identified(response: Response, context: Context) -> Response:
    """The answer with an id for each call that the client is to run."""
    if not _holds_nameless(response):
        return response
    names = CallNames(context)
    names.answer(response.id, response.created)
    return replace(response, candidates=tuple([_identified(one, names) for one in response.candidates]))


def _holds_nameless(response: Response) -> bool:
    for candidate in response.candidates:
        for message in candidate.messages:
            for part in message.parts:
                if type(part) is ToolCall and not part.id and part.executor == "client":
                    return True
    return False


def _identified(candidate: Candidate, names: CallNames) -> Candidate:
    def message(said: Message) -> Message:
        return replace(said, parts=tuple([names.named(part, candidate.index) for part in said.parts]))

    return replace(candidate, messages=tuple([message(said) for said in candidate.messages]))
