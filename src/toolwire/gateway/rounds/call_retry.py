"""The retry of invalid calls: the model gets its call back with the fault described, before the client sees it.

Events are passed on up to the first call of a response. From there on they are held back until all of its calls are
known. If one is invalid, none of them is sent. The next round continues the conversation with the calls and an error
as the result of each, and its events follow those that the client already has.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from toolwire.canonical.content import Message, Text, ToolCall, ToolResult
from toolwire.canonical.events import CandidateEnd, Event, MessageEnd, PartStart, UsageReport
from toolwire.canonical.fold import fold, unfold
from toolwire.canonical.response import Response
from toolwire.codec.interface import Codec, ResponseMapping
from toolwire.gateway.exchange.call_checks import CallOutcome, DeclaredTools, is_cut_off
from toolwire.gateway.rounds.continuation import RoundMerger, continuation_request
from toolwire.translation.stages.restore_calls import restore_part

_NOT_RUN = "not run, since another call of this turn was invalid; call it again"


class UpstreamBody(Protocol):
    """A request as sent upstream: its protocol and its body."""

    codec: Codec
    body: bytes


class CallRetryRounds(RoundMerger):
    """Merges the rounds of a response in which invalid calls are requested again, at most `retries` times."""

    def __init__(
        self,
        tools: DeclaredTools,
        mapping: ResponseMapping,
        retries: int,
        on_call: Callable[[CallOutcome], None],
    ) -> None:
        super().__init__()
        self._tools = tools
        self._mapping = mapping
        self._retries = retries
        self._on_call = on_call
        self._is_holding = False
        self._call_events: list[Event] = []
        self._message_ends: list[Event] = []
        self._results: tuple[ToolResult, ...] = ()

    def process(self, events: Iterable[Event]) -> list[Event]:
        """Return the events to pass on; calls are held back until all of the response are known."""
        if self._is_stopped:
            return self._merge(events)
        client_events: list[Event] = []
        if not self.paused:
            client_events, self._message_ends = self._message_ends, []
        for event in events:
            self._accumulator.add(event)
            is_call = type(event) is PartStart and type(event.part) is ToolCall and event.part.executor == "client"
            self._is_holding = self._is_holding or is_call
            if not self._is_holding:
                client_events += self._merge([event])
                continue
            self._call_events.append(event)
            if type(event) is CandidateEnd:
                client_events += self._judge_calls(event)
        return client_events

    def _judge_calls(self, end: CandidateEnd) -> list[Event]:
        """Return the held events if all calls are valid; else pause for another round.

        Messages that the client has the beginning of end when the next round begins.
        """
        held, self._call_events, self._is_holding = self._call_events, [], False
        self._results = () if self._retries == 0 or is_cut_off(end.stop) else self._describe_faults()
        if not self._results:
            return self._merge(held)
        self._retries -= 1
        self.paused, self._held_events = True, held
        self._message_ends = self._merge([event for event in held if isinstance(event, MessageEnd | UsageReport)])
        return []

    def _describe_faults(self) -> tuple[ToolResult, ...]:
        """Return a result for each call of the round that describes its fault; empty if all calls are valid."""
        messages = self._accumulator.response().candidates[0].messages
        calls = [part for message in messages for part in message.parts if isinstance(part, ToolCall)]
        calls = [call for call in calls if call.executor == "client"]
        restored = [restore_part(call, self._mapping) for call in calls]
        faults = [self._tools.find_fault(call) if isinstance(call, ToolCall) else None for call in restored]
        if not any(faults):
            return ()
        for fault in faults:
            self._on_call("valid" if fault is None else fault.outcome)
        return tuple(
            [
                ToolResult(
                    call_id=call.id,
                    name=call.name,
                    content=(Text(text=_NOT_RUN if fault is None else fault.message),),
                    status="error",
                )
                for call, fault in zip(calls, faults, strict=True)
            ]
        )

    def _merge(self, events: Iterable[Event]) -> list[Event]:
        """Return events renumbered to follow those of earlier rounds."""
        return [merged for event in events if (merged := self._merge_event(event)) is not None]

    def next_request(self, upstream: Codec, body: bytes) -> bytes:
        """Return the request body of the next round, with the calls and their faults."""
        messages, results = self.start_round(), self._results
        self._results = ()
        if results:
            messages = (*messages, Message(role="user", parts=results))
        return continuation_request(upstream, body, messages)

    async def complete_response(
        self, response: Response, send_round: Callable[[bytes], Awaitable[Response]], request: UpstreamBody, rounds: int
    ) -> Response:
        """Send the rounds that follow a buffered response, at most `rounds`, and return the merged response."""
        events, body = self.process(unfold(response)), request.body
        while self.paused and rounds > 0:
            rounds -= 1
            body = self.next_request(request.codec, body)
            events += self.process(unfold(await send_round(body)))
        return fold([*events, *self.process(self.stop())] if self.paused else events)
