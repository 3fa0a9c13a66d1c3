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
from toolwire.journal.replay import Difference, differences

from .approval import Answer, Ask
from .events import CallRecord
from .functions import as_tool
from .model import ModelFailed
from .recorded import RecordedTurn
from .toolset import Arguments, Calling, KnowsTools, Offered, Output, Tool, ToolFault, Toolset

ENDS = "the recording ends here"


class PlayedModel:
    """Says what was recorded, turn by turn."""

    def __init__(self, name: str, turns: Sequence[RecordedTurn]) -> None:
        self.name = name
        self._turns = [turn.response for turn in turns if turn.response is not None]
        self._next = 0

    async def ask(self, request: Request) -> AsyncIterator[Event]:
        if self._next == len(self._turns):
            raise ModelFailed(ApiError(kind="server", message=ENDS))
        response = self._turns[self._next]
        self._next += 1
        for event in unfold(response):
            yield event

    async def close(self) -> None:
        pass


class PlayedPerson:
    """Decides as was decided then, and answers nothing: answers are results of a tool."""

    def __init__(self, turns: Sequence[RecordedTurn]) -> None:
        self.name = ""
        self._calls = [call for turn in turns for call in turn.calls.values() if call.ask is not None]

    async def approve(self, ask: Ask) -> Answer:
        for call in self._calls:
            then = call.ask
            if then is not None and (then.call_id, then.tool, then.arguments) == (ask.call_id, ask.tool, ask.arguments):
                self.name = "nobody" if call.decided is None else call.decided.approval.by
                return "no" if call.decided is None else call.decided.approval.answer
        self.name = "nobody yet"  # then it was not asked for: a rule said what to do
        return "yes"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return None


class _Results:
    """What calls gave, in the order of those that have the same id."""

    def __init__(self, turns: Sequence[RecordedTurn]) -> None:
        self._left = [call for turn in turns for call in turn.calls.values() if call.begun is not None]

    async def run(self, arguments: Arguments, calling: Calling) -> Output:
        found = next((call for call in self._left if call.id == calling.id), None)
        if found is None or found.outcome is None:
            raise ToolFault("no result was recorded: it was not run, or not to its end", "unrecorded")
        self._left.remove(found)
        result, error = found.outcome.result, found.outcome.record.error
        return Output(content=result.content or (), is_error=result.status != "ok", kind=error, screen=result.screen)


class _PlayedSet:
    """The tools of a set, with recorded results."""

    def __init__(self, whole: Toolset, results: _Results) -> None:
        self.name = whole.name
        self._whole = whole
        self._results = results

    async def open(self) -> None:
        await self._whole.open()

    async def tools(self) -> Sequence[Tool]:
        return [_played(tool, self._results) for tool in await self._whole.tools()]

    async def close(self) -> None:
        await self._whole.close()


def played_tools(tools: Sequence[Offered], turns: Sequence[RecordedTurn]) -> list[Offered]:
    """The same tools, none of which does anything."""
    results = _Results(turns)
    made: list[Offered] = []
    for one in tools:
        match one:
            case Tool():
                made.append(_played(one, results))
            case NativeTool():
                made.append(one)
            case KnowsTools():
                made += [_played(tool, results) for tool in one.known()]
            case Toolset():
                made.append(_PlayedSet(one, results))
            case _:
                made.append(_played(one.as_tool() if hasattr(one, "as_tool") else as_tool(one), results))
    return made


def _played(tool: Tool, results: _Results) -> Tool:
    # What was promised of the result was held against it then, and structured results are not kept.
    return replace(tool, run=results.run, output_schema=None, retries=0, rate=None)


# ---- then and now


class Compared(Struct, frozen=True):
    """One call, and how it differs."""

    turn: int
    id: str
    tool: str
    differences: list[Difference]


def compared(
    turns: Sequence[RecordedTurn], now: Sequence[Message], records: Sequence[CallRecord] | None
) -> Iterator[Compared]:
    """The calls of a run that differ. `now` is what was said in the replay, after what was asked; with `records`, who
    allowed the calls is compared, too."""
    allowed = None if records is None else {record.call_id: record.approval for record in records}
    fresh = iter([results for message in now if (results := _results(message))])
    for turn in turns:
        results = next(fresh, []) if turn.proposed else []
        for (id, call), result in zip_longest(turn.proposed, results[: len(turn.proposed)]):
            recorded = turn.calls.get(id)
            if recorded is None or recorded.outcome is None:
                continue  # nothing is known of it
            then, after = _fields(recorded.outcome.result), {} if result is None else _fields(result)
            if allowed is not None:
                then["approval"], after["approval"] = recorded.outcome.record.approval, allowed.get(id, "")
            if found := list(differences(then, after, anew=True)):
                yield Compared(turn.number, id, call.name, found)


def _results(message: Message) -> list[ToolResult]:
    return [part for part in message.parts if isinstance(part, ToolResult)] if message.role == "user" else []


def _fields(result: ToolResult) -> dict[str, Any]:
    return {"status": result.status, "content": msgspec.json.decode(msgspec.json.encode(result.content or ()))}
