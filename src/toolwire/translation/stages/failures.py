"""TODO."""

from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Text
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import CandidateEnd, Event, PartStart, ResponseEnd, ResponseFailed
from toolwire.canonical.response import FAILED_STOPS, Candidate, Response, Stop
from toolwire.codec.interface import Codec


class FailureStage:
    """Takes the events of a stream in order: one that stopped with an error, and no more is said of it, has failed; so
    has one that nobody can use (`find_defect`)."""

    def __init__(self, reader: Codec) -> None:
        self._reader = reader
        self._candidate_ends: dict[int, CandidateEnd] = {}
        self._has_parts = False

    def replacements(self, events: Iterable[Event]) -> dict[int, Event]:
        """As `CallNames.name`."""
        for event in events:
            if type(event) is PartStart:
                self._has_parts = True
            elif type(event) is CandidateEnd:
                self._candidate_ends[event.candidate] = event
            elif type(event) is ResponseEnd and (error := self._error_at_end(event)) is not None:
                return {id(event): ResponseFailed(error=error, status=event.status, extras=event.extras)}
        return {}

    def _error_at_end(self, event: ResponseEnd) -> ApiError | None:
        stops = [stopped.stop for stopped in self._candidate_ends.values()]
        if event.status is None and not any(stops) and not self._has_parts:
            return _EMPTY_RESPONSE
        return _stop_error(stops) or _malformed_call_error(stops, self._candidate_ends.values(), self._reader)


def response_error(response: Response) -> ApiError | None:
    """Why an answer failed, if it did, however little is said of it."""
    return response.error or _stop_error([candidate.stop for candidate in response.candidates])


def _stop_error(stops: Collection[Stop | None]) -> ApiError | None:
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
        return _EMPTY_RESPONSE
    return _malformed_call_error(stops, response.candidates, reader)


_EMPTY_RESPONSE = ApiError(kind="server", message="the answer is empty: it has no content and no reason to stop")


def _has_content(response: Response) -> bool:
    parts = (part for one in response.candidates for message in one.messages for part in message.parts)
    return any(type(part) is not Text or part.text for part in parts)


def _malformed_call_error(
    stops: Collection[Stop | None], candidates: Iterable[Candidate | CandidateEnd], reader: Codec
) -> ApiError | None:
    """Find a call that the provider did not accept, as Gemini's MALFORMED_FUNCTION_CALL says. Another candidate that
    ended well is an answer."""
    words = [stop.raw or stop.reason for stop in stops if stop is not None and stop.reason == "malformed_call"]
    if not stops or len(words) < len(stops):
        return None
    message = f"the model wrote a call that its provider did not accept ({', '.join(words)})"
    kept = [(one.extras or {}).get(reader.families[0], {}).get(reader.stop_message_key or "") for one in candidates]
    said = [str(msgspec.json.decode(raw)) for raw in kept if raw is not None and bytes(raw)[:1] == b'"']
    return ApiError(kind="server", message=": ".join([message, *said]))


def without_error(response: Response) -> Response:
    """What a stream that failed had told until then."""
    stopped = [one.stop is not None and one.stop.reason in FAILED_STOPS for one in response.candidates]
    told = [replace(one, stop=None) if by else one for one, by in zip(response.candidates, stopped, strict=True)]
    return replace(response, candidates=tuple(told), error=None, status=None)
