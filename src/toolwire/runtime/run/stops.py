"""The stop of a model's response, and whether a run can use it."""

from toolwire.canonical.response import Response, StopReason
from toolwire.journal.runs import decode_stored
from toolwire.runtime.run.events import StopCause

INCOMPLETE_STOPS: dict[StopReason, tuple[StopCause, str]] = {
    "max_tokens": ("length", "the response reached the output token limit"),
    "context_window": ("length", "the conversation exceeds the model's context window"),
    "filtered": ("filtered", "the provider filtered the response"),
    "refusal": ("refused", "the model refused to answer"),
    "malformed_call": ("failed", "the model made a malformed tool call"),
    "cancelled": ("failed", "the provider cancelled the response"),
    "error": ("failed", "the response ended with an error"),
}
"""Stop reasons of incomplete responses, whose calls are never executed."""

CONTINUING_STOPS = frozenset({"paused", "continuation"})
"""Stop reasons after which the model continues its turn, such as Anthropic's `pause_turn`."""


def recorded_response(outcome: bytes | None, name: str) -> Response | None:
    """Decode the recorded response of the turn's step `name`.

    Returns None if there is none or if it failed, so that the response is requested again.
    """
    response = None if outcome is None else decode_stored(outcome, Response, f"step {name}")
    if (
        response is None
        or response.error is not None
        or INCOMPLETE_STOPS.get(stop_reason_of(response), ("",))[0] == "failed"
    ):
        return None
    return response


def stop_reason_of(response: Response) -> StopReason:
    """Return why the model stopped, according to the first candidate."""
    stop = response.candidates[0].stop if response.candidates else None
    return "other" if stop is None else stop.reason
