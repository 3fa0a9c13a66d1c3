"""The interface of translators of an upstream's stream: to frames of the client's protocol, or to events."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from toolwire.canonical.errors import ApiError, Loss
from toolwire.canonical.events import Event
from toolwire.canonical.response import Response, Usage

Frames = TypeVar("Frames", bytes, list[Event])
Frames_co = TypeVar("Frames_co", bytes, list[Event], covariant=True)
"""A piece of a stream: frames of the client's protocol, or canonical events for the runtime."""


class ResponseTranslator(Protocol[Frames_co]):
    """Turns the bytes of an upstream's stream into frames or events, and tracks the state of the response."""

    error: ApiError | None
    started: bool
    has_content: bool
    usage: Usage | None

    @property
    def has_outcome(self) -> bool:
        """Return whether the stream has failed, or has begun a response with content."""

    @property
    def losses(self) -> list[Loss]:
        """Return the losses of the complete response; empty until the stream has ended."""

    @property
    def response(self) -> Response | None:
        """Return the response as the client has it, once it is complete, if it is collected."""

    @property
    def summary(self) -> Response:
        """Return the response without its content: ids, stop reasons and usage."""

    def feed(self, data: bytes) -> Frames_co:
        """Translate the next bytes."""

    def flush_decoder(self) -> Frames_co:
        """Translate buffered data at the end of a stream that another stream may continue."""

    def continue_with_new_stream(self) -> None:
        """Expect the next bytes from another upstream stream."""

    def inject(self, *events: Event) -> Frames_co:
        """Translate events that the gateway adds."""

    def translate_events(self, events: Iterable[Event]) -> Frames_co:
        """Translate a response that did not arrive as a stream."""

    def fail(self, error: ApiError) -> Frames_co:
        """End the stream with an error."""

    def close(self) -> Frames_co:
        """Translate buffered data, and end the stream."""

    def end(self) -> Frames_co:
        """End the stream."""
