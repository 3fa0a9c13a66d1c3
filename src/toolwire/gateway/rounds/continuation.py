"""Pauses: a provider stops in the middle of its own work and wants to be asked to go on. A client whose protocol has no
word for that gets one answer, of as many legs as it took.

Calls that the gateway carries out itself, in the midst of an answer: the client sees one answer, of as many legs as
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
from toolwire.canonical.events import (
    CandidateEnd,
    Event,
    MessageEnd,
    MessageStart,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseStart,
    UsageReport,
)
from toolwire.canonical.fold import ResponseAccumulator, fold, unfold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Stop, Usage, add_usage
from toolwire.canonical.tools import FunctionTool, NativeTool, Tool
from toolwire.codec.interface import Codec, ResponseMapping, Route, Target
from toolwire.runtime.tool import ToolOutput


def is_paused(response: Response) -> bool:
    return any(one.stop is not None and one.stop.reason == "paused" for one in response.candidates)


def continuation_request(upstream: Codec, body: bytes, messages: tuple[Message, ...]) -> bytes:
    """The request that goes on after these messages: all that was sent, and what was answered so far, untouched."""
    request = upstream.decode_request(body, Route())
    longer = replace(request, messages=request.messages + messages, plain=False)
    return upstream.encode_request(longer, Target()).to_bytes()


def merge_responses(earlier: Response, later: Response) -> Response:
    """One answer of two legs."""
    (before,), (after,) = earlier.candidates[:1], later.candidates[:1]
    both = replace(after, messages=before.messages + after.messages)
    usage = add_usage(earlier.usage, later.usage)
    return replace(later, id=earlier.id, candidates=(both,), usage=usage, plain=earlier.plain and later.plain)


class RoundMerger:
    """The events of several streams, as those of one. `acted`: tools were run, or part of the answer was produced, so
    that the exchange can't be repeated from its start."""

    def __init__(self) -> None:
        self.paused = False
        self.has_effects = False
        self.ready_events: list[Event] = []
        self._held_events: list[Event] = []
        self._is_stopped = False
        self._folder = ResponseAccumulator()
        self._is_started = False
        self._earlier_usage: Usage | None = None
        self._round_usage: Usage | None = None
        self._message_offset = self._part_offset = 0
        self._next_message = self._next_part = 0

    def process(self, events: Iterable[Event]) -> list[Event]:
        found: list[Event] = []
        for event in events:
            self._folder.add(event)
            if (told := self._merge_event(event)) is not None:
                found.append(told)
        return found

    def _merge_event(self, event: Event) -> Event | None:
        match event:
            case ResponseStart():
                known, self._is_started = self._is_started, True
                return None if known else event
            case PartDelta():
                return replace(event, index=event.index + self._part_offset) if self._part_offset else event
            case PartStart():
                self._next_part = max(self._next_part, self._part_offset + event.index + 1)
                return replace(
                    event, index=event.index + self._part_offset, message=event.message + self._message_offset
                )
            case PartEnd():
                return replace(event, index=event.index + self._part_offset)
            case MessageStart() | MessageEnd():
                self._next_message = max(self._next_message, self._message_offset + event.message + 1)
                return replace(event, message=event.message + self._message_offset)
            case UsageReport():
                self._round_usage = event.usage
                return replace(event, usage=add_usage(self._earlier_usage, event.usage) or event.usage)
            case CandidateEnd(stop=Stop(reason="paused")) if not self._is_stopped:
                self.paused = True
                self._held_events = [event]
                return None
            case ResponseEnd() if self.paused:
                self._held_events.append(event)
                return None
            case _:
                return event

    def start_round(self) -> tuple[Message, ...]:
        """What was said in the leg that ended; the next one follows it."""
        said = self._folder.response().candidates[0].messages
        self._folder = ResponseAccumulator()
        self.has_effects = True
        self._earlier_usage, self._round_usage = add_usage(self._earlier_usage, self._round_usage), None
        self._message_offset, self._part_offset = self._next_message, self._next_part
        self.paused = False
        return said

    async def prepare_first_round(self) -> Response | bytes | None:
        """What comes before the first leg: an answer in its place, or another request than was made."""
        return None

    async def finish_round(self) -> list[Event]:
        """What is to be done, and told, before the next leg; it may turn out that there is none."""
        return []

    def next_request(self, upstream: Codec, body: bytes) -> bytes:
        """The request for the next leg, after the one that was asked last."""
        return continuation_request(upstream, body, self.start_round())

    def stop(self) -> list[Event]:
        """It paused once too often: the end that was held back."""
        self.paused, self._is_stopped = False, True
        return self._held_events


_CONTINUABLE_REASONS = ("tool_use", "end_turn", "other", "continuation", "paused")
_NON_ID_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
UNFINISHED_STOP = Stop(reason="max_tokens")
"""How an answer ends whose model never stopped calling our tools, where the client's protocol has no word for it."""

ToolRunCallback = Callable[[str, str], Awaitable[ToolOutput]]


class ProtocolPair(Struct, frozen=True):
    """Who asks, in which protocol it is asked, and what is known of who answers."""

    client: Codec
    upstream: Codec
    target: Target


class RouteTool(Struct, frozen=True):
    """A tool as the model is told of it, and whose it is: `origin` is the server, and the name that it has there. The
    search for tools is nobody's."""

    definition: FunctionTool
    origin: tuple[str, str] | None = None


class RouteTools(Struct, frozen=True):
    """What a route offers for one request, by the name that the model knows. `declared` is what it is told of at once,
    `found` what it has found since. `shown`: the client sees what was called, if its protocol has words for that."""

    tools: dict[str, RouteTool]
    declared_tools: tuple[Tool, ...]
    run_tool: ToolRunCallback
    found_tools: list[Tool]
    show_calls: bool = False

    def add_to(self, request: Request) -> Request:
        return replace(request, tools=(*(request.tools or ()), *self.declared_tools))


class GatewayToolLoop(RoundMerger):
    """The events of several answers as those of one, with calls carried out between them."""

    def __init__(
        self,
        request: Request,
        pair: ProtocolPair,
        mapping: ResponseMapping,
        route_tools: RouteTools | None,
        final_stop: Stop = UNFINISHED_STOP,
    ) -> None:
        super().__init__()
        self._request = request
        self._upstream = pair.upstream
        self._target = pair.target
        self._mapping = mapping
        self._route_tools = route_tools
        self._final_stop = final_stop
        self._open_calls: dict[int, ToolCall] = {}
        self._part_indexes: dict[int, int] = {}
        self._results: list[ToolResult] = []
        self._pending_calls: list[ToolCall] = []
        self._has_client_calls = False

    @property
    def runs_tools(self) -> bool:
        return self._route_tools is not None

    # ---- what is told

    def process(self, events: Iterable[Event]) -> list[Event]:
        told: list[Event] = []
        for event in events:
            if self._is_stopped or any(event is one for one in self.ready_events):
                told.append(event)
                continue
            self._folder.add(event)
            told += self._process_event(event)
        return told

    def _process_event(self, event: Event) -> list[Event]:
        match event:
            case PartStart(part=ToolCall(executor="client") as call) if self._is_gateway_call(call):
                self._open_calls[event.index] = call
                return []
            case PartStart():
                self._has_client_calls = self._has_client_calls or (
                    isinstance(event.part, ToolCall) and event.part.executor == "client"
                )
                number = self._part_indexes[event.index] = self._take_part_index()
                return [replace(event, index=number, message=event.message + self._message_offset)]
            case PartDelta() if event.index in self._open_calls:
                call = self._open_calls[event.index]
                self._open_calls[event.index] = replace(call, arguments=call.arguments + event.text)
                return []
            case PartDelta():
                return [replace(event, index=self._part_indexes[event.index])]
            case PartEnd() if event.index in self._open_calls:
                call = self._open_calls.pop(event.index)
                return self._handle_call(event.final if isinstance(event.final, ToolCall) else call)
            case PartEnd():
                return [replace(event, index=self._part_indexes[event.index])]
            case CandidateEnd(stop=Stop(reason=reason)) if reason in _CONTINUABLE_REASONS and self._needs_next_round():
                self.paused = True
                self._held_events = [replace(event, stop=self._final_stop)]
                return []
            case _:
                told = self._merge_event(event)
                return [] if told is None else [told]

    def _take_part_index(self) -> int:
        self._next_part += 1
        return self._next_part - 1

    def _part_events(self, parts: Iterable[Part], message: int) -> list[Event]:
        told: list[Event] = []
        for part in parts:
            number = self._take_part_index()
            told += [PartStart(index=number, part=part, message=message), PartEnd(index=number, final=part)]
        return told

    def _message_events(self, parts: Iterable[Part]) -> list[Event]:
        number = self._next_message
        self._next_message += 1
        return [MessageStart(message=number), *self._part_events(parts, number), MessageEnd(message=number)]

    # ---- what is done

    def _is_gateway_call(self, call: ToolCall) -> bool:
        return self._route_tools is not None and call.name in self._route_tools.tools

    def _handle_call(self, call: ToolCall) -> list[Event]:
        self._pending_calls.append(call)
        return []

    def _needs_next_round(self) -> bool:
        """Whether the leg that ends here is not the last one."""
        return bool(self._results or self._pending_calls) and not self._has_client_calls

    async def finish_round(self) -> list[Event]:
        calls, self._pending_calls = self._pending_calls, []
        if self._route_tools is None or not calls:
            return []
        outputs = await asyncio.gather(*[self._route_tools.run_tool(call.name, call.arguments) for call in calls])
        told: list[Part] = []
        for call, output in zip(calls, outputs, strict=True):
            self._results.append(_tool_result(call, output))
            origin = self._route_tools.tools[call.name].origin
            if self._route_tools.show_calls and origin is not None:
                told += _visible_parts(call, output, origin)
        return self._message_events(told) if told else []

    def next_request(self, upstream: Codec, body: bytes) -> bytes:
        """The request that goes on with what came of the calls."""
        said = self.start_round()
        results, self._results = tuple(self._results), []
        self._part_indexes, self._has_client_calls = {}, False
        answered = (Message(role="user", parts=results),) if results else ()
        request = self._request
        self._request = replace(
            request,
            messages=request.messages + said + answered,
            tools=(request.tools or ()) + self._take_new_tools(),
        )
        return self.encode_request()

    def _take_new_tools(self) -> tuple[Tool, ...]:
        """What is declared from now on."""
        if self._route_tools is None:
            return ()
        found = tuple(self._route_tools.found_tools)
        self._route_tools.found_tools.clear()
        return found

    def encode_request(self) -> bytes:
        encoding = self._upstream.encode_request(self._request, self._target)
        self._mapping.tools.update(encoding.mapping.tools)
        self._mapping.used_names.update(encoding.mapping.used_names)
        return encoding.to_bytes()

    async def complete_response(
        self, response: Response, send_round: Callable[[bytes], Awaitable[Response]], max_rounds: int
    ) -> Response:
        """The answer that comes of an answer, and of as many more as it takes."""
        events = self.process(unfold(response))
        while self.paused and max_rounds > 0:
            max_rounds -= 1
            events += await self.finish_round()
            if self.paused:
                events += self.process(unfold(await send_round(self.next_request(self._upstream, b""))))
        if self.paused:
            events += self.stop()
        self._is_stopped = True
        return fold(events)


def _tool_result(call: ToolCall, output: ToolOutput) -> ToolResult:
    status: Literal["ok", "error", "denied"] = "ok"
    if output.is_error:
        status = "denied" if output.error_kind == "denied" else "error"
    return ToolResult(call_id=call.id, name=call.name, content=output.content, status=status)


def _visible_parts(call: ToolCall, output: ToolOutput, origin: tuple[str, str]) -> list[Part]:
    """What the client is shown: a call that a server's tool answered, as its own provider would tell it."""
    server, name = origin
    id = f"mcptoolu_{_NON_ID_CHARACTER.sub('', call.id or '')[:40]}{secrets.token_hex(4)}"
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


def client_tool_names(tools: Iterable[Tool]) -> set[str]:
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
