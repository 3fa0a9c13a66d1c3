"""Replay recorded runs against the current tools, or against recorded results, and compare the calls.

1. The model repeats its recorded responses, whatever its calls return now.
2. With recorded results, no tool runs. Differences can still come from removed tools, changed schemas, rules and output
   limits.
3. Calls are compared field by field, without times.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, ToolResult
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import Event
from toolwire.canonical.fold import unfold
from toolwire.canonical.request import Request
from toolwire.canonical.tools import NativeTool
from toolwire.journal.differences import Difference, find_differences
from toolwire.runtime.calls.approval import NO_APPROVER, ApprovalAnswer, ApprovalRequest
from toolwire.runtime.model import ModelFailed
from toolwire.runtime.run.events import CallRecord
from toolwire.runtime.run.recorded_run import RecordedTurn
from toolwire.runtime.tool import (
    Arguments,
    SupportsStaticTools,
    Tool,
    ToolContext,
    ToolError,
    ToolOutput,
    Toolset,
    ToolSource,
)
from toolwire.runtime.toolbox import source_tool

RECORDING_END = "the recording ends here"


class ReplayModel:
    """A model that repeats recorded responses, turn by turn."""

    def __init__(self, name: str, turns: Sequence[RecordedTurn]) -> None:
        self.name = name
        self._responses = [turn.response for turn in turns if turn.response is not None]
        self._next = 0

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        """Yield the events of the next recorded response; raise `ModelFailed` after the last one."""
        if self._next == len(self._responses):
            raise ModelFailed(ApiError(kind="server", message=RECORDING_END))
        response = self._responses[self._next]
        self._next += 1
        for event in unfold(response):
            yield event

    async def close(self) -> None:
        """Do nothing: a recording holds no connections."""


class ReplayApprover:
    """An approver that repeats recorded decisions.

    It answers no questions: recorded answers are results of the tool that asked.
    """

    def __init__(self, turns: Sequence[RecordedTurn]) -> None:
        self.name = ""
        self._calls = [call for turn in turns for call in turn.calls.values() if call.approval_request is not None]

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Return the recorded decision on the same call.

        A call that waited for a decision is denied. A call that needed no approval in the recorded run is approved.
        """
        for call in self._calls:
            if call.approval_request is not None and _is_same_call(call.approval_request, request):
                self.name = NO_APPROVER if call.decision is None else call.decision.approval.decided_by
                return "no" if call.decision is None else call.decision.approval.answer
        self.name = "replay (no approval recorded)"  # the recorded run needed none: a rule allowed the call
        return "yes"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return None: answers to questions are recorded as tool results."""
        return None


def _is_same_call(recorded: ApprovalRequest, request: ApprovalRequest) -> bool:
    """Return True if two approval requests are for the same call with the same arguments."""
    return (recorded.call_id, recorded.tool, recorded.arguments) == (request.call_id, request.tool, request.arguments)


class _RecordedResults:
    """Recorded results by call id; each is used once, in order."""

    def __init__(self, turns: Sequence[RecordedTurn]) -> None:
        self._remaining = [call for turn in turns for call in turn.calls.values() if call.started_at is not None]

    async def run(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        """Return the recorded result of the call, as a tool function."""
        recorded = next((call for call in self._remaining if call.id == context.id), None)
        if recorded is None or recorded.outcome is None:
            raise ToolError("no result was recorded: the call did not run or did not finish", "unrecorded")
        self._remaining.remove(recorded)
        result, error = recorded.outcome.result, recorded.outcome.record.error
        return ToolOutput(
            content=result.content or (), is_error=result.status != "ok", error_kind=error, screen=result.screen
        )


class _ReplayToolset:
    """A toolset whose tools return recorded results."""

    def __init__(self, toolset: Toolset, results: _RecordedResults) -> None:
        self.name = toolset.name
        self._toolset = toolset
        self._results = results

    async def open(self) -> None:
        """Open the original toolset, which knows the tools."""
        await self._toolset.open()

    async def tools(self) -> Sequence[Tool]:
        """Return the original tools with recorded results."""
        return [_replay_tool(tool, self._results) for tool in await self._toolset.tools()]

    async def close(self) -> None:
        """Close the original toolset."""
        await self._toolset.close()


def replay_tools(tools: Sequence[ToolSource], turns: Sequence[RecordedTurn]) -> list[ToolSource]:
    """Return the same tools with recorded results instead of effects."""
    results = _RecordedResults(turns)
    replayed: list[ToolSource] = []
    for source in tools:
        match source:
            case Tool():
                replayed.append(_replay_tool(source, results))
            case NativeTool():
                replayed.append(source)
            case SupportsStaticTools():
                replayed += [_replay_tool(tool, results) for tool in source.static_tools()]
            case Toolset():
                replayed.append(_ReplayToolset(source, results))
            case _:
                replayed.append(_replay_tool(source_tool(source), results))
    return replayed


def _replay_tool(tool: Tool, results: _RecordedResults) -> Tool:
    """Return the tool with recorded results."""
    # The output schema was checked when the run was recorded, and structured output is not stored.
    return replace(tool, run=results.run, output_schema=None, retries=0, rate=None)


# Comparison of recorded and replayed calls


class CallDifference(Struct, frozen=True):
    """A call whose replayed result differs from the recorded one."""

    turn: int
    id: str
    tool: str
    differences: list[Difference]


def compare_calls(
    turns: Sequence[RecordedTurn], messages: Sequence[Message], records: Sequence[CallRecord] | None
) -> Iterator[CallDifference]:
    """Yield the calls that differ between a recorded run and its replay.

    `messages` are those of the replay after the prompt. With `records`, approvals are compared as well.
    """
    approvals = None if records is None else {record.call_id: record.approval for record in records}
    replayed_results = iter([results for message in messages if (results := _tool_results(message))])
    for turn in turns:
        results = next(replayed_results, []) if turn.proposed_calls else []
        for (id, call), result in zip_longest(turn.proposed_calls, results[: len(turn.proposed_calls)]):
            recorded = turn.calls.get(id)
            if recorded is None or recorded.outcome is None:
                continue
            before = _comparable_fields(recorded.outcome.result)
            after = {} if result is None else _comparable_fields(result)
            if approvals is not None:
                before["approval"], after["approval"] = recorded.outcome.record.approval, approvals.get(id, "")
            if differences := list(find_differences(before, after, include_volatile=True)):
                yield CallDifference(turn.number, id, call.name, differences)


def _tool_results(message: Message) -> list[ToolResult]:
    """Return the tool results in a user message; empty for other messages."""
    return [part for part in message.parts if isinstance(part, ToolResult)] if message.role == "user" else []


def _comparable_fields(result: ToolResult) -> dict[str, Any]:
    """Return status and content of a result as JSON data, to be compared field by field."""
    return {"status": result.status, "content": msgspec.json.decode(msgspec.json.encode(result.content or ()))}
