"""Checks of the calls in a response against the tools that the client declared.

A call is invalid if its arguments are not valid JSON, if no tool has its name, or if the schema does not allow the
arguments. Such a call reaches the client as it is, which can describe the fault to the model; here it is counted, and
broken arguments are reported. Only requests with tools are checked, and only calls cost anything.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import ToolCall
from toolwire.canonical.errors import Loss
from toolwire.canonical.events import CandidateEnd, Event, MessageStart, PartDelta, PartDeltas, PartEnd, PartStart
from toolwire.canonical.fold import ResponseAccumulator
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Stop, StopReason
from toolwire.canonical.tools import FunctionTool, Tool
from toolwire.codec.encoding.tools import conversation_tools
from toolwire.codec.interface import Codec
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.gateway.rounds.continuation import client_tool_names
from toolwire.runtime.calls.validation import CallValidationError, describe_schema_errors, unknown_tool_message

CallOutcome = Literal["valid", "invalid_json", "unknown_tool", "schema_mismatch"]

_NOTHING_RUN = "nothing was run"
_CUT_OFF_REASONS: tuple[StopReason, ...] = ("max_tokens", "context_window", "cancelled", "error")


def is_cut_off(stop: Stop | None) -> bool:
    """Return whether a candidate ended early (limit, cancellation, error), so that its last call may be incomplete."""
    return stop is not None and stop.reason in _CUT_OFF_REASONS


class CallFault(Struct, frozen=True):
    """A fault of a call, described for the model."""

    outcome: CallOutcome
    message: str


class DeclaredTools:
    """The tools of a request, as calls name them."""

    def __init__(self, request: Request) -> None:
        self._request = request

    @cached_property
    def _tools(self) -> list[Tool]:
        """All tools of the conversation, without groups."""
        return [located.tool for located in conversation_tools(self._request)]

    @cached_property
    def _names(self) -> set[str]:
        """Return the names of all tools, with and without their namespace."""
        return client_tool_names(self._tools)

    @cached_property
    def _schemas(self) -> dict[tuple[str | None, str], bytes | None]:
        """Return the schemas of functions, by namespace and name."""
        functions = [tool for tool in self._tools if isinstance(tool, FunctionTool)]
        return {
            (tool.namespace, tool.name): None if tool.parameters is None else bytes(tool.parameters)
            for tool in functions
        }

    def find_fault(self, call: ToolCall) -> CallFault | None:
        """Return the fault of a complete call; None if it is valid, or has no form to check."""
        if call.native is not None:
            return None
        if call.namespace is None and call.shape != "freeform" and (tool := self._find_function(call.name)) is not None:
            return _find_argument_fault(call, None if tool.parameters is None else bytes(tool.parameters))
        name = call.name if call.namespace is None else f"{call.namespace}__{call.name}"
        if call.name not in self._names and name not in self._names:
            return CallFault("unknown_tool", unknown_tool_message(name, sorted(self._names)))
        if call.shape == "freeform" or (key := (call.namespace, call.name)) not in self._schemas:
            return None
        return _find_argument_fault(call, self._schemas[key])

    def _find_function(self, name: str) -> FunctionTool | None:
        """Return the declared function with this name: most calls name one, so that no other tools are collected."""
        for tool in self._request.tools or ():
            if type(tool) is FunctionTool and tool.name == name and tool.namespace is None:
                return tool
        return None


def _find_argument_fault(call: ToolCall, schema: bytes | None) -> CallFault | None:
    """Return the fault in the arguments of a call; empty arguments mean none."""
    try:
        value = msgspec.json.decode(call.arguments.encode(errors="surrogatepass") if call.arguments.strip() else b"{}")
    except (msgspec.DecodeError, RecursionError) as error:
        message = f"the arguments of {call.name} are not valid JSON: {error}; {_NOTHING_RUN}"
        return CallFault("invalid_json", message)
    if schema is None:
        lines = [] if isinstance(value, dict) else ["- /: expected an object"]
    else:
        try:
            lines = describe_schema_errors(schema, value)
        except (CallValidationError, ValueError):
            return None  # the schema itself is invalid, or too costly
    text = "\n".join([f"the arguments of {call.name} are invalid; {_NOTHING_RUN}:", *lines])
    return CallFault("schema_mismatch", text) if lines else None


def has_calls(response: Response) -> bool:
    """Return whether a complete response has a call."""
    for candidate in response.candidates:
        for message in candidate.messages:
            for part in message.parts:
                if type(part) is ToolCall:
                    return True
    return False


class CallChecker:
    """Checks the calls of one response; `on_call` learns the outcome of each."""

    def __init__(self, request: Request, upstream: Codec, on_call: Callable[[CallOutcome], None]) -> None:
        self._tools = DeclaredTools(request)
        self._upstream = upstream
        self._on_call = on_call
        self._starts: list[MessageStart | PartStart] = []
        self._outcomes: list[CallOutcome] = []
        self._open: dict[tuple[int, int], tuple[ToolCall, list[str]]] = {}
        self._undecided: list[tuple[PartEnd, str]] = []
        self._broken: list[tuple[PartEnd, str]] = []

    def check_response(self, response: Response) -> LossReport | None:
        """Check the calls of a complete response, possibly in a thread, and report broken arguments if there are any.

        The outcomes are to be passed on with `report_outcomes`.
        """
        report = None
        for number, candidate in enumerate(response.candidates):
            for position, message in enumerate(candidate.messages):
                for index, part in enumerate(message.parts):
                    reason = self._check_call(part) if isinstance(part, ToolCall) else ""
                    if reason and not is_cut_off(candidate.stop):
                        self._outcomes.append("invalid_json")
                        path = ("candidates", number, "messages", position, "parts", index)
                        report = report or LossReport()
                        report.approximated(path, "arguments", reason, severity="warning")
        return report

    def observe(self, events: list[Event]) -> None:
        """Check the calls that end in these events of a stream."""
        for event in events:
            if type(event) is MessageStart:
                self._starts.append(event)
            elif type(event) is PartStart:
                self._starts.append(event)
                if type(part := event.part) is ToolCall and part.executor == "client":
                    self._open[event.candidate, event.index] = part, [part.arguments]
            elif isinstance(event, PartDelta | PartDeltas) and (event.candidate, event.index) in self._open:
                self._open[event.candidate, event.index][1].append(event.text)
            elif type(event) is PartEnd and (event.candidate, event.index) in self._open:
                call, texts = self._open.pop((event.candidate, event.index))
                complete = event.final if isinstance(event.final, ToolCall) else None
                if reason := self._check_call(complete or replace(call, arguments="".join(texts))):
                    self._undecided.append((event, reason))
            elif type(event) is CandidateEnd and self._undecided:
                self._decide(event)
        if self._outcomes:
            self.report_outcomes()

    def _decide(self, end: CandidateEnd) -> None:
        """Count the broken arguments in a candidate, now that its stop reason is known."""
        for part_end, reason in self._undecided:
            if not is_cut_off(end.stop):
                self._outcomes.append("invalid_json")
                self._broken.append((part_end, reason))
        self._undecided.clear()

    def report_outcomes(self) -> None:
        """Pass on the outcomes of all calls since the last time."""
        for outcome in self._outcomes:
            self._on_call(outcome)
        self._outcomes.clear()

    @property
    def losses(self) -> list[Loss]:
        """Return the broken arguments in a stream as losses, each with its place in the complete response."""
        if not self._broken:
            return []
        accumulator, counts = ResponseAccumulator(), defaultdict[tuple[int, int], int](int)
        paths: dict[tuple[int, int], SourcePath] = {}
        for start in self._starts:
            accumulator.add(start)
            if isinstance(start, PartStart):
                message = (start.candidate, start.message)
                path = ("candidates", start.candidate, "messages", start.message, "parts", counts[message])
                paths[start.candidate, start.index] = path
                counts[message] += 1
        report = LossReport()
        for end, reason in self._broken:
            report.approximated(paths[end.candidate, end.index], "arguments", reason, severity="warning")
        return report.resolve(accumulator.response(), self._upstream.wire_names)

    def _check_call(self, call: ToolCall) -> str:
        """Count a call, unless its arguments are broken; then return why."""
        if call.executor != "client":
            return ""
        fault = self._tools.find_fault(call)
        if fault is not None and fault.outcome == "invalid_json":
            return fault.message
        self._outcomes.append("valid" if fault is None else fault.outcome)
        return ""
