"""Responses of several upstream rounds, merged into one for the client.

1. A provider may pause in the middle of its own work (`pause_turn`) and wait to be continued. If the client's protocol
   has no such stop reason, the gateway continues the turn itself.
2. Calls of the gateway's own tools never reach the client. The upstream gets the results in a further request; the
   number of rounds is bounded.
3. A response that also calls the client's tools ends there, since only the client can continue. The gateway's tools are
   not run then, and the model may call them again.
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
    """Return whether a response stopped with a pause (`pause_turn`), to be continued by another request."""
    return any(candidate.stop is not None and candidate.stop.reason == "paused" for candidate in response.candidates)


def continuation_request(upstream: Codec, body: bytes, messages: tuple[Message, ...]) -> bytes:
    """Return the body of the request that continues a response: the last body with these messages appended."""
    request = upstream.decode_request(body, Route())
    continued = replace(request, messages=request.messages + messages)
    return upstream.encode_request(continued, Target()).to_bytes()


def merge_responses(earlier: Response, later: Response) -> Response:
    """Merge two consecutive parts of a response, each from an upstream request of its own, into one."""
    (earlier_candidate,), (later_candidate,) = earlier.candidates[:1], later.candidates[:1]
    candidate = replace(later_candidate, messages=earlier_candidate.messages + later_candidate.messages)
    usage = add_usage(earlier.usage, later.usage)
    return replace(later, id=earlier.id, candidates=(candidate,), usage=usage)


class RoundMerger:
    """Merges the event streams of several rounds into one.

    A round is one upstream request among several that make up one response.
    """

    def __init__(self) -> None:
        self.paused = False
        self.has_effects = False
        """Tools were run or part of the response was produced, so the exchange can't be repeated from its start."""

        self.ready_events: list[Event] = []
        """Events to send to the client before the next round."""

        self._held_events: list[Event] = []
        self._is_stopped = False
        self._accumulator = ResponseAccumulator()
        self._is_started = False
        self._earlier_usage: Usage | None = None
        self._round_usage: Usage | None = None
        self._message_offset = self._part_offset = 0
        self._next_message = self._next_part = 0

    def process(self, events: Iterable[Event]) -> list[Event]:
        """Return the events to pass on, renumbered to follow those of earlier rounds."""
        merged_events: list[Event] = []
        for event in events:
            self._accumulator.add(event)
            if (merged := self._merge_event(event)) is not None:
                merged_events.append(merged)
        return merged_events

    def _merge_event(self, event: Event) -> Event | None:
        """Return the event renumbered for the merged response; None if it is dropped, or waits for the last round."""
        match event:
            case ResponseStart():
                was_started, self._is_started = self._is_started, True
                return None if was_started else event
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
        """Start the next round, and return the messages of the one that ended."""
        messages = self._accumulator.response().candidates[0].messages
        self._accumulator = ResponseAccumulator()
        self.has_effects = True
        self._earlier_usage, self._round_usage = add_usage(self._earlier_usage, self._round_usage), None
        self._message_offset, self._part_offset = self._next_message, self._next_part
        self.paused = False
        return messages

    async def prepare_first_round(self) -> Response | bytes | None:
        """Do the work before the first round, which is one upstream request of several.

        Returns a response that replaces the round, a request body that replaces the planned one, or None.
        """
        return None

    async def finish_round(self) -> list[Event]:
        """Do the work between two rounds, and return the events that it adds to the response.

        It may end the response instead of leaving it paused.
        """
        return []

    def next_request(self, upstream: Codec, body: bytes) -> bytes:
        """Return the request body of the next round; `body` is that of the last one."""
        return continuation_request(upstream, body, self.start_round())

    def stop(self) -> list[Event]:
        """End a response that paused too often: return the final events that were held back."""
        self.paused, self._is_stopped = False, True
        return self._held_events


_CONTINUABLE_REASONS = ("tool_use", "end_turn", "other", "continuation", "paused")
_NON_ID_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
UNFINISHED_STOP = Stop(reason="max_tokens")
"""The stop reason of a response whose model never stopped calling the gateway's tools."""

ToolRunCallback = Callable[[str, str], Awaitable[ToolOutput]]


class ProtocolPair(Struct, frozen=True):
    """The protocols of client and upstream, and the target of the request."""

    client: Codec
    upstream: Codec
    target: Target


class RouteTool(Struct, frozen=True):
    """A tool as declared to the model."""

    definition: FunctionTool
    origin: tuple[str, str] | None = None
    """The MCP server and the tool's name there; None for the tool search."""


class RouteTools(Struct, frozen=True):
    """The tools that a route adds to one request, by the name declared to the model."""

    tools: dict[str, RouteTool]
    declared_tools: tuple[Tool, ...]
    """Tools declared from the start."""
    run_tool: ToolRunCallback
    found_tools: list[Tool]
    """Tools found by search, to be declared in the next round."""
    show_calls: bool = False
    """Show the calls to the client, if its protocol can express them."""

    def add_to(self, request: Request) -> Request:
        """Return the request with the declared tools of the route added."""
        return replace(request, tools=(*(request.tools or ()), *self.declared_tools))


class GatewayToolLoop(RoundMerger):
    """Merges several rounds into one response, running the gateway's tools between them."""

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
        """Return whether the route has tools."""
        return self._route_tools is not None

    # ---- events

    def process(self, events: Iterable[Event]) -> list[Event]:
        """Return the events to pass on, without calls of the gateway's tools."""
        client_events: list[Event] = []
        for event in events:
            if self._is_stopped or any(event is ready for ready in self.ready_events):
                client_events.append(event)
                continue
            self._accumulator.add(event)
            client_events += self._process_event(event)
        return client_events

    def _process_event(self, event: Event) -> list[Event]:
        """Return the client events for one upstream event; calls of the gateway's tools are collected instead."""
        match event:
            case PartStart(part=ToolCall(executor="client") as call) if self._is_gateway_call(call):
                self._open_calls[event.index] = call
                return []
            case PartStart():
                self._has_client_calls = self._has_client_calls or (
                    isinstance(event.part, ToolCall) and event.part.executor == "client"
                )
                index = self._part_indexes[event.index] = self._take_part_index()
                return [replace(event, index=index, message=event.message + self._message_offset)]
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
                merged = self._merge_event(event)
                return [] if merged is None else [merged]

    def _take_part_index(self) -> int:
        """Return the next part index of the merged response."""
        self._next_part += 1
        return self._next_part - 1

    def _part_events(self, parts: Iterable[Part], message: int) -> list[Event]:
        """Return the events of complete parts."""
        events: list[Event] = []
        for part in parts:
            index = self._take_part_index()
            events += [PartStart(index=index, part=part, message=message), PartEnd(index=index, final=part)]
        return events

    def _message_events(self, parts: Iterable[Part]) -> list[Event]:
        """Return the events of a complete message."""
        index = self._next_message
        self._next_message += 1
        return [MessageStart(message=index), *self._part_events(parts, index), MessageEnd(message=index)]

    # ---- calls

    def _is_gateway_call(self, call: ToolCall) -> bool:
        """Return whether the gateway, not the client, runs this call."""
        return self._route_tools is not None and call.name in self._route_tools.tools

    def _handle_call(self, call: ToolCall) -> list[Event]:
        """Queue a call of a gateway tool, and return the events that the client sees of it."""
        self._pending_calls.append(call)
        return []

    def _needs_next_round(self) -> bool:
        """Return whether another upstream request must follow this round."""
        return bool(self._results or self._pending_calls) and not self._has_client_calls

    async def finish_round(self) -> list[Event]:
        """Run the queued calls of gateway tools, and return the events that show them, if the client sees calls."""
        calls, self._pending_calls = self._pending_calls, []
        if self._route_tools is None or not calls:
            return []
        outputs = await asyncio.gather(*[self._route_tools.run_tool(call.name, call.arguments) for call in calls])
        visible_parts: list[Part] = []
        for call, output in zip(calls, outputs, strict=True):
            self._results.append(_tool_result(call, output))
            origin = self._route_tools.tools[call.name].origin
            if self._route_tools.show_calls and origin is not None:
                visible_parts += _visible_parts(call, output, origin)
        return self._message_events(visible_parts) if visible_parts else []

    def next_request(self, upstream: Codec, body: bytes) -> bytes:
        """Return the request body of the next round, with the results of the gateway's calls."""
        messages = self.start_round()
        results, self._results = tuple(self._results), []
        self._part_indexes, self._has_client_calls = {}, False
        result_messages = (Message(role="user", parts=results),) if results else ()
        request = self._request
        self._request = replace(
            request,
            messages=request.messages + messages + result_messages,
            tools=(request.tools or ()) + self._take_new_tools(),
        )
        return self.encode_request()

    def _take_new_tools(self) -> tuple[Tool, ...]:
        """Return the tools to declare from the next round on."""
        if self._route_tools is None:
            return ()
        new_tools = tuple(self._route_tools.found_tools)
        self._route_tools.found_tools.clear()
        return new_tools

    def encode_request(self) -> bytes:
        """Return the body of the current request, and add its tools to the response mapping."""
        encoding = self._upstream.encode_request(self._request, self._target)
        self._mapping.tools.update(encoding.mapping.tools)
        self._mapping.used_names.update(encoding.mapping.used_names)
        return encoding.to_bytes()

    async def complete_response(
        self, response: Response, send_round: Callable[[bytes], Awaitable[Response]], max_rounds: int
    ) -> Response:
        """Run all rounds that follow a buffered response, and return the merged response.

        `send_round` sends a request body and returns its response; at most `max_rounds` are sent.
        """
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
    """Convert a tool's output to a tool result for the model."""
    status: Literal["ok", "error", "denied"] = "ok"
    if output.is_error:
        status = "denied" if output.error_kind == "denied" else "error"
    return ToolResult(call_id=call.id, name=call.name, content=output.content, status=status)


def _visible_parts(call: ToolCall, output: ToolOutput, origin: tuple[str, str]) -> list[Part]:
    """Return a call and its result as the client's provider would show an MCP call."""
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
    """Return the names of a client's tools, in every form that an upstream may see."""
    names: set[str] = set()
    for tool in tools:
        if isinstance(tool, NativeTool):
            names |= {tool.kind, tool.name or tool.kind}
        elif hasattr(tool, "tools"):
            names |= {f"{tool.name}__{member.name}" for member in tool.tools}
        else:
            names |= {tool.name, tool.name if tool.namespace is None else f"{tool.namespace}__{tool.name}"}
    return names
