"""A recorded run again: what the model said then, against the tools as they are now, or against what they gave then.

1. The model says in every turn what it said then, whatever came of its calls.
2. With recorded results nothing is executed. What can still differ is everything around it: whether a tool is there,
   its schema, the rules, the bounds of its output.
3. Calls are told apart field by field; moments and durations are not compared.
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
from toolwire.runtime.calls.approval import ApprovalAnswer, ApprovalRequest
from toolwire.runtime.function_tool import as_tool
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

RECORDING_END = "the recording ends here"


class ReplayModel:
    """Says what was recorded, turn by turn."""

    def __init__(self, name: str, turns: Sequence[RecordedTurn]) -> None:
        self.name = name
        self._responses = [turn.response for turn in turns if turn.response is not None]
        self._next = 0

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        if self._next == len(self._responses):
            raise ModelFailed(ApiError(kind="server", message=RECORDING_END))
        response = self._responses[self._next]
        self._next += 1
        for event in unfold(response):
            yield event

    async def close(self) -> None:
        pass


class ReplayApprover:
    """Decides as was decided then, and answers nothing: answers are results of a tool."""

    def __init__(self, turns: Sequence[RecordedTurn]) -> None:
        self.name = ""
        self._calls = [call for turn in turns for call in turn.calls.values() if call.approval_request is not None]

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        for call in self._calls:
            then = call.approval_request
            if then is not None and (then.call_id, then.tool, then.arguments) == (
                request.call_id,
                request.tool,
                request.arguments,
            ):
                self.name = "nobody" if call.decision is None else call.decision.approval.decided_by
                return "no" if call.decision is None else call.decision.approval.answer
        self.name = "nobody yet"  # then it was not asked for: a rule said what to do
        return "yes"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return None


class _RecordedResults:
    """What calls gave, in the order of those that have the same id."""

    def __init__(self, turns: Sequence[RecordedTurn]) -> None:
        self._remaining = [call for turn in turns for call in turn.calls.values() if call.started_at is not None]

    async def run(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        found = next((call for call in self._remaining if call.id == context.id), None)
        if found is None or found.outcome is None:
            raise ToolError("no result was recorded: it was not run, or not to its end", "unrecorded")
        self._remaining.remove(found)
        result, error = found.outcome.result, found.outcome.record.error
        return ToolOutput(
            content=result.content or (), is_error=result.status != "ok", error_kind=error, screen=result.screen
        )


class _ReplayToolset:
    """The tools of a set, with recorded results."""

    def __init__(self, toolset: Toolset, results: _RecordedResults) -> None:
        self.name = toolset.name
        self._toolset = toolset
        self._results = results

    async def open(self) -> None:
        await self._toolset.open()

    async def tools(self) -> Sequence[Tool]:
        return [_replay_tool(tool, self._results) for tool in await self._toolset.tools()]

    async def close(self) -> None:
        await self._toolset.close()


def replay_tools(tools: Sequence[ToolSource], turns: Sequence[RecordedTurn]) -> list[ToolSource]:
    """The same tools, none of which does anything."""
    results = _RecordedResults(turns)
    made: list[ToolSource] = []
    for one in tools:
        match one:
            case Tool():
                made.append(_replay_tool(one, results))
            case NativeTool():
                made.append(one)
            case SupportsStaticTools():
                made += [_replay_tool(tool, results) for tool in one.static_tools()]
            case Toolset():
                made.append(_ReplayToolset(one, results))
            case _:
                made.append(_replay_tool(one.as_tool() if hasattr(one, "as_tool") else as_tool(one), results))
    return made


def _replay_tool(tool: Tool, results: _RecordedResults) -> Tool:
    # What was promised of the result was held against it then, and structured results are not kept.
    return replace(tool, run=results.run, output_schema=None, retries=0, rate=None)


# ---- then and now


class CallDifference(Struct, frozen=True):
    """One call, and how it differs."""

    turn: int
    id: str
    tool: str
    differences: list[Difference]


def compare_calls(
    turns: Sequence[RecordedTurn], messages: Sequence[Message], records: Sequence[CallRecord] | None
) -> Iterator[CallDifference]:
    """The calls of a run that differ. `now` is what was said in the replay, after what was asked; with `records`, who
    allowed the calls is compared, too."""
    allowed = None if records is None else {record.call_id: record.approval for record in records}
    fresh = iter([results for message in messages if (results := _tool_results(message))])
    for turn in turns:
        results = next(fresh, []) if turn.proposed_calls else []
        for (id, call), result in zip_longest(turn.proposed_calls, results[: len(turn.proposed_calls)]):
            recorded = turn.calls.get(id)
            if recorded is None or recorded.outcome is None:
                continue  # nothing is known of it
            then, after = (
                _comparable_fields(recorded.outcome.result),
                {} if result is None else _comparable_fields(result),
            )
            if allowed is not None:
                then["approval"], after["approval"] = recorded.outcome.record.approval, allowed.get(id, "")
            if found := list(find_differences(then, after, include_volatile=True)):
                yield CallDifference(turn.number, id, call.name, found)


def _tool_results(message: Message) -> list[ToolResult]:
    return [part for part in message.parts if isinstance(part, ToolResult)] if message.role == "user" else []


def _comparable_fields(result: ToolResult) -> dict[str, Any]:
    return {"status": result.status, "content": msgspec.json.decode(msgspec.json.encode(result.content or ()))}
