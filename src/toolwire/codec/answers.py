"""What an answer gets before a client of another protocol sees it: ids for calls without, and an error if it failed.

Clients echo ids, so that the same call in a later answer must get another: which answer it is, and how many calls there
were before it, tell them apart. A stream and the whole answer give the same.
"""

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Text, ToolCall
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
from .interface import Codec, Context

CUT_OFF: frozenset[StopReason] = frozenset(
    {"max_tokens", "context_window", "filtered", "refusal", "malformed_call", "cancelled", "error"}
)
"""Stop reasons after which no call of the response may be run: its arguments may be incomplete."""
FAILED: frozenset[StopReason] = frozenset({"malformed_call", "error"})
"""Stop reasons of an answer that failed."""


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
    """Takes the events of a stream in order: one that stopped with an error, and no more is said of it, has failed; so
    has one that nobody can use (`find_defect`)."""

    def __init__(self, reader: Codec) -> None:
        self._reader = reader
        self._stops: dict[int, Stopped] = {}
        self._has_parts = False

    def fail(self, events: Iterable[Event]) -> dict[int, Event]:
        """As `CallNames.name`."""
        for event in events:
            if type(event) is PartStart:
                self._has_parts = True
            elif type(event) is Stopped:
                self._stops[event.candidate] = event
            elif type(event) is ResponseEnd and (error := self._failure(event)) is not None:
                return {id(event): ResponseFailed(error=error, status=event.status, extras=event.extras)}
        return {}

    def _failure(self, event: ResponseEnd) -> ApiError | None:
        stops = [stopped.stop for stopped in self._stops.values()]
        if event.status is None and not any(stops) and not self._has_parts:
            return _NOTHING
        return _failure(stops) or _malformed(stops, self._stops.values(), self._reader)


def failure_of(response: Response) -> ApiError | None:
    """Why an answer failed, if it did, however little is said of it."""
    return response.error or _failure([candidate.stop for candidate in response.candidates])


def _failure(stops: Collection[Stop | None]) -> ApiError | None:
    if not stops or any(stop is None or stop.reason != "error" for stop in stops):
        return None
    return ApiError(kind="server", message="the answer ended with an error, of which nothing is said")


def find_defect(response: Response, reader: Codec) -> ApiError | None:
    """Find why nobody can use an answer that its provider sent as a success: it is empty and has not even stopped, or
    it ended with a call that the provider did not accept. To clients it would look finished, and they would not ask
    again."""
    if response.error is not None:
        return None
    stops = [candidate.stop for candidate in response.candidates]
    if response.status is None and not any(stops) and not _has_content(response):
        return _NOTHING
    return _malformed(stops, response.candidates, reader)


_NOTHING = ApiError(kind="server", message="the answer is empty: it has no content and no reason to stop")


def _has_content(response: Response) -> bool:
    parts = (part for one in response.candidates for message in one.messages for part in message.parts)
    return any(type(part) is not Text or part.text for part in parts)


def _malformed(stops: Collection[Stop | None], told: Iterable[Candidate | Stopped], reader: Codec) -> ApiError | None:
    """Find a call that the provider did not accept, as Gemini's MALFORMED_FUNCTION_CALL says. Another candidate that
    ended well is an answer."""
    words = [stop.raw or stop.reason for stop in stops if stop is not None and stop.reason == "malformed_call"]
    if not stops or len(words) < len(stops):
        return None
    message = f"the model wrote a call that its provider did not accept ({', '.join(words)})"
    kept = [(one.extras or {}).get(reader.families[0], {}).get(reader.stop_message or "") for one in told]
    said = [str(msgspec.json.decode(raw)) for raw in kept if raw is not None and bytes(raw)[:1] == b'"']
    return ApiError(kind="server", message=": ".join([message, *said]))


def before_failure(response: Response) -> Response:
    """What a stream that failed had told until then."""
    stopped = [one.stop is not None and one.stop.reason in FAILED for one in response.candidates]
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
