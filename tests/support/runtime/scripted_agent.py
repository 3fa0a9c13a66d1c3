"""A model that plays scripted turns as canonical events and records the requests."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from toolwire import Policy, tool
from toolwire.canonical.content import Message, Part, Text, ToolCall
from toolwire.canonical.events import Event
from toolwire.canonical.fold import unfold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.runtime.calls.approval import ApprovalAnswer, ApprovalRequest


class ScriptedModel:
    name = "played"

    def __init__(self, *turns: Response) -> None:
        self.turns = list(turns)
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        self.requests.append(request)
        for event in unfold(self.turns[len(self.requests) - 1]):
            yield event

    async def close(self) -> None:
        pass


def model_turn(*parts: Part, stop: StopReason | None = None, usage: Usage | None = None) -> Response:
    reason = stop or ("tool_use" if any(isinstance(part, ToolCall) for part in parts) else "end_turn")
    message = Message(role="assistant", parts=parts)
    return Response(
        origin="", id="r", candidates=(Candidate(messages=(message,), stop=Stop(reason=reason)),), usage=usage
    )


def model_call(name: str, arguments: Any = None, id: str = "c1", **fields: Any) -> ToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps({} if arguments is None else arguments)
    return ToolCall(id=id, name=name, arguments=text, **fields)


def text_turn(text: str) -> Response:
    return model_turn(Text(text=text))


def last_results(request: Request) -> Sequence[Any]:
    """Return the tool results of the last message of a request, in order."""
    return request.messages[-1].parts


def result_text(result: Any) -> str:
    return "".join(part.text for part in result.content)


ALLOW_ALL = Policy(allow=["*"])


class ScriptedApprover:
    """An approver that gives scripted answers and records the questions."""

    name = "person"

    def __init__(self, *answers: ApprovalAnswer, reply: str | None = None) -> None:
        self.answers = list(answers)
        self.requests: list[ApprovalRequest] = []
        self.reply = reply

    async def approve(self, ask: ApprovalRequest) -> ApprovalAnswer:
        self.requests.append(ask)
        return self.answers.pop(0)

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return self.reply


@tool
def add(a: int, b: int) -> int:
    return a + b
