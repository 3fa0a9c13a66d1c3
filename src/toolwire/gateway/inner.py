"""Calls that the gateway carries out itself, in the midst of an answer: the client sees one answer, of as many legs as
it took.

1. A call of ours never reaches the client as one that it should run. The upstream is asked again with its result; how
   often is bounded.
2. An answer that also calls the client's tools ends there, since only the client can go on: ours are not run then, and
   the model may make them again.
3. `Offer` are tools that a route offers to every client's model, under names that none of the client's own tools has.
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, ToolCall, ToolResult
from toolwire.canonical.events import Event, MessageEnd, MessageStart, PartDelta, PartEnd, PartStart, Stopped
from toolwire.canonical.fold import fold, unfold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Stop
from toolwire.canonical.tools import FunctionTool, NativeTool, Tool
from toolwire.codec.interface import Codec, Target, Undo
from toolwire.runtime.toolset import Output

from .pauses import Legs

_FINISHED = ("tool_use", "end_turn", "other", "continuation", "paused")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]")
UNFINISHED = Stop(reason="max_tokens")
"""How an answer ends whose model never stopped calling our tools, where the client's protocol has no word for it."""

Carry = Callable[[str, str], Awaitable[Output]]


class Crossing(Struct, frozen=True):
    """Who asks, in which protocol it is asked, and what is known of who answers."""

    client: Codec
    upstream: Codec
    target: Target


class Offered(Struct, frozen=True):
    """A tool as the model is told of it, and whose it is: `origin` is the server, and the name that it has there. The
    search for tools is nobody's."""

    declared: FunctionTool
    origin: tuple[str, str] | None = None


class Offer(Struct, frozen=True):
    """What a route offers for one request, by the name that the model knows. `declared` is what it is told of at once,
    `found` what it has found since. `shown`: the client sees what was called, if its protocol has words for that."""

    tools: dict[str, Offered]
    declared: tuple[Tool, ...]
    carry: Carry
    found: list[Tool]
    shown: bool = False

    def added_to(self, request: Request) -> Request:
        return replace(request, tools=(*(request.tools or ()), *self.declared))


class InnerCalls(Legs):
    """The events of several answers as those of one, with calls carried out between them."""

    def __init__(
        self, request: Request, crossing: Crossing, undo: Undo, offer: Offer | None, stop: Stop = UNFINISHED
    ) -> None:
        super().__init__()
        self._request = request
        self._upstream = crossing.upstream
        self._target = crossing.target
        self._undo = undo
        self._offer = offer
        self._stop = stop
        self._open: dict[int, ToolCall] = {}
        self._numbers: dict[int, int] = {}
        self._results: list[ToolResult] = []
        self._waiting_calls: list[ToolCall] = []
        self._others = False

    @property
    def runs_tools(self) -> bool:
        return self._offer is not None

    # ---- what is told

    def take(self, events: Iterable[Event]) -> list[Event]:
        told: list[Event] = []
        for event in events:
            if self._given_up or any(event is one for one in self.ready):
                told.append(event)
                continue
            self._folder.add(event)
            told += self._told_all(event)
        return told

    def _told_all(self, event: Event) -> list[Event]:
        match event:
            case PartStart(part=ToolCall(executor="client") as call) if self._is_ours(call):
                self._open[event.index] = call
                return []
            case PartStart():
                self._others = self._others or (isinstance(event.part, ToolCall) and event.part.executor == "client")
                number = self._numbers[event.index] = self._numbered()
                return [replace(event, index=number, message=event.message + self._messages)]
            case PartDelta() if event.index in self._open:
                call = self._open[event.index]
                self._open[event.index] = replace(call, arguments=call.arguments + event.text)
                return []
            case PartDelta():
                return [replace(event, index=self._numbers[event.index])]
            case PartEnd() if event.index in self._open:
                call = self._open.pop(event.index)
                return self._called(event.final if isinstance(event.final, ToolCall) else call)
            case PartEnd():
                return [replace(event, index=self._numbers[event.index])]
            case Stopped(stop=Stop(reason=reason)) if reason in _FINISHED and self._goes_on():
                self.paused = True
                self._held = [replace(event, stop=self._stop)]
                return []
            case _:
                told = self._told(event)
                return [] if told is None else [told]

    def _numbered(self) -> int:
        self._next_part += 1
        return self._next_part - 1

    def _shown(self, parts: Iterable[Part], message: int) -> list[Event]:
        told: list[Event] = []
        for part in parts:
            number = self._numbered()
            told += [PartStart(index=number, part=part, message=message), PartEnd(index=number, final=part)]
        return told

    def _in_message(self, parts: Iterable[Part]) -> list[Event]:
        number = self._next_message
        self._next_message += 1
        return [MessageStart(message=number), *self._shown(parts, number), MessageEnd(message=number)]

    # ---- what is done

    def _is_ours(self, call: ToolCall) -> bool:
        return self._offer is not None and call.name in self._offer.tools

    def _called(self, call: ToolCall) -> list[Event]:
        self._waiting_calls.append(call)
        return []

    def _goes_on(self) -> bool:
        """Whether the leg that ends here is not the last one."""
        return bool(self._results or self._waiting_calls) and not self._others

    async def settle(self) -> list[Event]:
        calls, self._waiting_calls = self._waiting_calls, []
        if self._offer is None or not calls:
            return []
        outputs = await asyncio.gather(*[self._offer.carry(call.name, call.arguments) for call in calls])
        told: list[Part] = []
        for call, output in zip(calls, outputs, strict=True):
            self._results.append(_result(call, output))
            origin = self._offer.tools[call.name].origin
            if self._offer.shown and origin is not None:
                told += _seen(call, output, origin)
        return self._in_message(told) if told else []

    def further(self, upstream: Codec, body: bytes) -> bytes:
        """The request that goes on with what came of the calls."""
        said = self.go_on()
        results, self._results = tuple(self._results), []
        self._numbers, self._others = {}, False
        answered = (Message(role="user", parts=results),) if results else ()
        request = self._request
        self._request = replace(
            request,
            messages=request.messages + said + answered,
            tools=(request.tools or ()) + self._more_tools(),
        )
        return self.encoded()

    def _more_tools(self) -> tuple[Tool, ...]:
        """What is declared from now on."""
        if self._offer is None:
            return ()
        found = tuple(self._offer.found)
        self._offer.found.clear()
        return found

    def encoded(self) -> bytes:
        encoding = self._upstream.encode_request(self._request, self._target)
        self._undo.names.update(encoding.undo.names)
        self._undo.taken.update(encoding.undo.taken)
        return encoding.to_bytes()

    async def whole(self, response: Response, ask: Callable[[bytes], Awaitable[Response]], left: int) -> Response:
        """The answer that comes of an answer, and of as many more as it takes."""
        events = self.take(unfold(response))
        while self.paused and left > 0:
            left -= 1
            events += await self.settle()
            if self.paused:
                events += self.take(unfold(await ask(self.further(self._upstream, b""))))
        if self.paused:
            events += self.give_up()
        self._given_up = True
        return fold(events)


def _result(call: ToolCall, output: Output) -> ToolResult:
    status: Literal["ok", "error", "denied"] = "ok"
    if output.is_error:
        status = "denied" if output.kind == "denied" else "error"
    return ToolResult(call_id=call.id, name=call.name, content=output.content, status=status)


def _seen(call: ToolCall, output: Output, origin: tuple[str, str]) -> list[Part]:
    """What the client is shown: a call that a server's tool answered, as its own provider would tell it."""
    server, name = origin
    id = f"mcptoolu_{_ILLEGAL.sub('', call.id or '')[:40]}{secrets.token_hex(4)}"
    arguments = call.arguments or "{}"
    return [
        ToolCall(id=id, name=name, arguments=arguments, executor="server", native="mcp_tool_use", namespace=server),
        ToolResult(
            call_id=id,
            name=name,
            content=output.content,
            status="error" if output.is_error else "ok",
            executor="server",
            native="mcp_tool_result",
            namespace=server,
        ),
    ]


def own_names(tools: Iterable[Tool]) -> set[str]:
    """The names of a client's tools, as any upstream may be told of them."""
    found: set[str] = set()
    for tool in tools:
        if isinstance(tool, NativeTool):
            found |= {tool.kind, tool.name or tool.kind}
        elif hasattr(tool, "tools"):
            found |= {f"{tool.name}__{one.name}" for one in tool.tools}
        else:
            found |= {tool.name, tool.name if tool.namespace is None else f"{tool.namespace}__{tool.name}"}
    return found
