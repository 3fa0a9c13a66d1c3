"""Turn responses that failed, or that no client can use, into errors."""

from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Text
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import CandidateEnd, Event, PartStart, ResponseEnd, ResponseFailed
from toolwire.canonical.response import FAILED_STOPS, Candidate, Response, Stop
from toolwire.codec.interface import Codec


class FailureStage:
    """Ends a stream with an error if its response failed, or if no client can use it.

    It does not apply to a complete response, whose failure the target's body can often express.
    """

    def __init__(self, reader: Codec) -> None:
        self._reader = reader
        self._candidate_ends: dict[int, CandidateEnd] = {}
        self._has_parts = False

    def applies(self, response: Response) -> bool:
        """Return False: see the class."""
        return False

    def process(self, events: list[Event]) -> list[Event]:
        """Replace the end event with a failure event if the response failed; return other events unchanged."""
        for event in events:
            if type(event) is PartStart:
                self._has_parts = True
            elif type(event) is CandidateEnd:
                self._candidate_ends[event.candidate] = event
            elif type(event) is ResponseEnd and (error := self._error_at_end(event)) is not None:
                failure = ResponseFailed(error=error, status=event.status, extras=event.extras)
                return [failure if item is event else item for item in events]
        return events

    def _error_at_end(self, event: ResponseEnd) -> ApiError | None:
        """Return the error of a stream that ended empty, or with a failed stop reason; None if it succeeded."""
        stops = [end.stop for end in self._candidate_ends.values()]
        if event.status is None and not any(stops) and not self._has_parts:
            return _EMPTY_RESPONSE
        return _stop_error(stops) or _malformed_call_error(stops, self._candidate_ends.values(), self._reader)


def response_error(response: Response) -> ApiError | None:
    """Return the error of a failed response, even if only its stop reason says so."""
    if response.error is not None:
        return response.error
    for candidate in response.candidates:
        if candidate.stop is None or candidate.stop.reason != "error":
            return None
    return _stop_error([candidate.stop for candidate in response.candidates])


def _stop_error(stops: Collection[Stop | None]) -> ApiError | None:
    """Return an error if every candidate stopped with the reason `error`, else None."""
    if not stops or any(stop is None or stop.reason != "error" for stop in stops):
        return None
    return ApiError(kind="server", message="the response ended with an error; the provider gave no details")


def find_defect(response: Response, reader: Codec) -> ApiError | None:
    """Return an error for a response that its provider reports as successful, but that no client can use.

    It is empty without a stop reason, or ended with a call that the provider rejected. Clients would consider it
    finished and not retry.
    """
    if response.error is not None:
        return None
    for candidate in response.candidates:
        if candidate.stop is not None and candidate.stop.reason != "malformed_call":
            return None
    stops = [candidate.stop for candidate in response.candidates]
    if response.status is None and not any(stops) and not _has_content(response):
        return _EMPTY_RESPONSE
    return _malformed_call_error(stops, response.candidates, reader)


_EMPTY_RESPONSE = ApiError(kind="server", message="empty response: no content and no stop reason")


def _has_content(response: Response) -> bool:
    """Return whether a response has any part but empty texts."""
    parts = (part for candidate in response.candidates for message in candidate.messages for part in message.parts)
    return any(type(part) is not Text or part.text for part in parts)


def _malformed_call_error(
    stops: Collection[Stop | None], candidates: Iterable[Candidate | CandidateEnd], reader: Codec
) -> ApiError | None:
    """Return an error if all candidates ended with a call that the provider rejected.

    Gemini reports this as MALFORMED_FUNCTION_CALL.
    """
    reasons = [stop.raw or stop.reason for stop in stops if stop is not None and stop.reason == "malformed_call"]
    if not stops or len(reasons) < len(stops):
        return None
    message = f"the provider rejected a malformed tool call of the model ({', '.join(reasons)})"
    details = [
        (candidate.extras or {}).get(reader.families[0], {}).get(reader.stop_message_key or "")
        for candidate in candidates
    ]
    explanations = [str(msgspec.json.decode(raw)) for raw in details if raw is not None and bytes(raw)[:1] == b'"']
    return ApiError(kind="server", message=": ".join([message, *explanations]))


def without_error(response: Response) -> Response:
    """Return a failed response without its error and failed stop reasons."""
    failed = [candidate.stop is not None and candidate.stop.reason in FAILED_STOPS for candidate in response.candidates]
    candidates = [
        replace(candidate, stop=None) if is_failed else candidate
        for candidate, is_failed in zip(response.candidates, failed, strict=True)
    ]
    return replace(response, candidates=tuple(candidates), error=None, status=None)
