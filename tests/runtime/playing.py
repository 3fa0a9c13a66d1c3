"""A model that plays given turns, as canonical events: what it was asked is kept."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from toolwire.canonical.content import Message, Part, Text, ToolCall
from toolwire.canonical.events import Event
from toolwire.canonical.fold import unfold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage


class Played:
    name = "played"

    def __init__(self, *turns: Response) -> None:
        self.turns = list(turns)
        self.asked: list[Request] = []

    async def ask(self, request: Request) -> AsyncIterator[Event]:
        self.asked.append(request)
        for event in unfold(self.turns[len(self.asked) - 1]):
            yield event

    async def close(self) -> None:
        pass


def turn(*parts: Part, stop: StopReason | None = None, usage: Usage | None = None) -> Response:
    reason = stop or ("tool_use" if any(isinstance(part, ToolCall) for part in parts) else "end_turn")
    said = Message(role="assistant", parts=parts)
    return Response(origin="", id="r", candidates=(Candidate(messages=(said,), stop=Stop(reason=reason)),), usage=usage)


def call(name: str, arguments: Any = None, id: str = "c1", **more: Any) -> ToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps({} if arguments is None else arguments)
    return ToolCall(id=id, name=name, arguments=text, **more)


def says(text: str) -> Response:
    return turn(Text(text=text))


def results(request: Request) -> Sequence[Any]:
    """The results that a request brings, in order."""
    return request.messages[-1].parts


def words(result: Any) -> str:
    return "".join(part.text for part in result.content)
