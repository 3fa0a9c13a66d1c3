"""Models for tests of agents: `ScriptedModel` plays turns that a test writes, `RecordedModel` those of a recorded run.

    model = ScriptedModel(call("weather", city="Oslo"), "It rains.")
    run = Agent(model, tools=[weather]).run("Is it raining in Oslo?")

Neither needs a network. `model.requests` holds the requests that the agent made.
"""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Text, ToolCall
from toolwire.canonical.errors import ApiError, ErrorKind, ToolwireError
from toolwire.canonical.events import Event, MessageEnd
from toolwire.canonical.fold import unfold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response, Stop, StopReason, Usage
from toolwire.canonical.tools import FunctionTool
from toolwire.codec.interface import ResponseContext, Route, Target
from toolwire.codec.options import require, require_choice, require_text
from toolwire.journal.runs import RunStore
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.calls.outputs import JsonValue
from toolwire.runtime.model import ModelFailed
from toolwire.runtime.run.output import OUTPUT_TOOL, wrap_output
from toolwire.runtime.run.recorded_run import read_turns


class Fault(Struct, frozen=True):
    """A turn that fails, after a part of its response."""

    error: ApiError
    after: Response | None = None
    """The response that the failure interrupts; None if it fails at once."""


Turn: TypeAlias = "str | ToolCall | Response | Fault | Callable[[Request], Turn]"
"""A turn of a script: a text, a call, a response, a failure, or a function that returns one for a request."""

__all__ = ["Fault", "RecordedModel", "ScriptedModel", "Turn", "answer", "call", "fail", "respond"]


def call(name: str, /, **arguments: Any) -> ToolCall:
    """Return a call of a tool, for a turn."""
    require("name", name, "the name of the tool", valid=isinstance(name, str))
    return ToolCall(id=None, name=name, arguments=json.dumps(arguments, ensure_ascii=False))


def respond(*parts: str | Part, stop: StopReason | None = None, usage: Usage | None = None) -> Response:
    """Return a response of texts and calls, for a turn; `stop` replaces the usual stop reason."""
    if stop is not None:
        require_choice("stop", stop, get_args(StopReason))
    valid = usage is None or isinstance(usage, Usage)
    require("usage", usage, "tw.Usage(input_tokens=..., output_tokens=...)", valid=valid)
    for part in parts:
        require("part", part, "a text or call(...)", valid=isinstance(part, str | Part))
    content = tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    content = tuple(
        replace(part, id=f"call_{number}") if isinstance(part, ToolCall) and part.id is None else part
        for number, part in enumerate(content, start=1)
    )
    calls = any(isinstance(part, ToolCall) for part in content)
    reason: StopReason = stop or ("tool_use" if calls else "end_turn")
    message = Message(role="assistant", parts=content)
    return Response(
        origin="", id="scripted", candidates=(Candidate(messages=(message,), stop=Stop(reason=reason)),), usage=usage
    )


def fail(
    kind: ErrorKind = "overloaded", message: str = "scripted failure", *, after: str | ToolCall | None = None
) -> Fault:
    """Return a failure of the provider, for a turn; with `after`, the response breaks off behind this text or call."""
    require_choice("kind", kind, get_args(ErrorKind))
    require_text("message", message)
    return Fault(ApiError(kind=kind, message=message), None if after is None else respond(after))


def _check_turn(number: int, turn: object) -> None:
    """Raise `TypeError` for a turn of an unsupported type."""
    if not isinstance(turn, str | ToolCall | Response | Fault) and not callable(turn):
        raise TypeError(
            f"turn {number} of the script is {turn!r:.100}: use a text, call(...), respond(...), answer(...), "
            "fail(...) or a function; a turn of several parts is respond(...)"
        )


def answer(value: Any) -> Callable[[Request], Turn]:
    """Return a turn with the answer of an agent that has an output type: a value of that type, or its JSON data."""

    def encode(request: Request) -> Turn:
        """Encode the value as the request requires: as text, or as a call of `final_answer`."""
        data = JsonValue(value).data
        tools = [tool for tool in request.tools or () if isinstance(tool, FunctionTool) and tool.name == OUTPUT_TOOL]
        if not tools and request.output is None:
            return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        schema = tools[0].parameters if tools else request.output and request.output.schema
        data = wrap_output(data, json.loads(bytes(schema or b"{}")))
        return call(OUTPUT_TOOL, **data) if tools else json.dumps(data, ensure_ascii=False)

    return encode


class ScriptedModel:
    """A model that plays the turns of a script, one per request.

    With a `protocol`, each request and response passes through its JSON. A run with more requests than the script has
    turns fails.
    """

    def __init__(self, *turns: Turn, name: str = "scripted", protocol: str | None = None) -> None:
        if protocol is not None and protocol not in PROTOCOLS:
            raise ToolwireError(f"unknown protocol {protocol!r}: use one of {', '.join(PROTOCOLS)}")
        for number, turn in enumerate(turns, start=1):
            _check_turn(number, turn)
        self.name = name
        self.requests: list[Request] = []
        self._turns = turns
        self._protocol = protocol

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        """Yield the events of the next turn."""
        self.requests.append(request)
        if len(self.requests) > len(self._turns):
            message = f"the script has no turn for request {len(self.requests)}: add one"
            raise ModelFailed(ApiError(kind="other", message=message))
        turn = self._resolve(self._turns[len(self.requests) - 1], request)
        response = turn.after if isinstance(turn, Fault) else turn
        if response is not None and self._protocol is not None:
            response = self._transmit(request, response, self._protocol)
        for event in () if response is None else unfold(response):
            if isinstance(turn, Fault) and isinstance(event, MessageEnd):
                break
            yield event
        if isinstance(turn, Fault):
            raise ModelFailed(turn.error)

    @property
    def unplayed(self) -> int:
        """Number of turns that no request has played."""
        return max(0, len(self._turns) - len(self.requests))

    def _resolve(self, turn: Turn, request: Request) -> Response | Fault:
        """Return the response or the failure of a turn."""
        if isinstance(turn, Response | Fault):
            return turn
        if isinstance(turn, str | ToolCall):
            return respond(turn)
        result = turn(request)
        _check_turn(len(self.requests), result)
        return self._resolve(result, request)

    def _transmit(self, request: Request, response: Response, protocol: str) -> Response:
        """Return the response as it arrives over a protocol."""
        codec = PROTOCOLS[protocol]
        body = codec.encode_request(replace(request, model=self.name), Target(model=self.name)).to_bytes()
        context = ResponseContext(request=codec.decode_request(body, Route()))
        encoded = codec.encode_response(replace(response, model=self.name), context).to_bytes()
        return codec.decode_response(encoded, ResponseContext())

    async def load_prices(self) -> None:
        """Do nothing: a turn costs what its usage says (`respond(usage=Usage(cost=0.02))`)."""

    def price(self, usage: Usage) -> float:
        """Return the cost of a turn: nothing, unless its usage says otherwise."""
        return usage.cost or 0.0

    async def close(self) -> None:
        """Do nothing: a script holds no connections."""


class RecordedModel(ScriptedModel):
    """A model that repeats the responses of a run in a journal; tools run as usual."""

    def __init__(self, journal: Path | str, run: str = "last") -> None:
        """Load the responses of a run: its id, the beginning of it, or `last`."""
        store = RunStore(journal)
        try:
            stored = store.find(run)
            turns: Sequence[Response | None] = [turn.response for turn in read_turns(store.steps(stored.id))]
        finally:
            store.close()
        super().__init__(*[response for response in turns if response is not None], name=stored.id)
