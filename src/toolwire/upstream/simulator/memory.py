"""What the provider holds of conversations, for protocols that go on from an answer by its id."""

from msgspec.structs import replace

from toolwire.canonical.content import Message
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response

from .strict import Refused, no_answer

_HELD = {"openai-responses": "response", "gemini-interactions": "interaction"}


class Memory:
    """The conversations of the last answers, oldest forgotten first."""

    def __init__(self, limit: int = 1000) -> None:
        self._limit = limit
        self._held: dict[str, tuple[Message, ...]] = {}

    def expanded(self, request: Request, protocol: str) -> Request:
        """The request with what was said before the answer that it continues, and with that answer."""
        state = request.continuation
        if protocol not in _HELD or state is None or state.id is None:
            return request
        kind = state.kind or _HELD[protocol]
        if kind != _HELD[protocol] or state.id not in self._held:
            raise Refused(no_answer(protocol, kind, state.id))
        return replace(request, messages=(*self._held[state.id], *request.messages))

    def keep(self, request: Request, response: Response, protocol: str) -> None:
        state = request.continuation
        if protocol not in _HELD or response.id is None or (state is not None and state.store is False):
            return
        said = response.candidates[0].messages if response.candidates else ()
        self._held.pop(response.id, None)
        self._held[response.id] = (*request.messages, *said)
        while len(self._held) > self._limit:
            del self._held[next(iter(self._held))]
