"""Output of a run that another process executes: its recorded steps as events, as they finish."""

import asyncio
from collections.abc import Iterator

from toolwire.canonical.response import usage_counts
from toolwire.cli.output.run_output import JsonOutput, TextOutput
from toolwire.cli.output.run_report import RunReport
from toolwire.cli.run_session import exit_code
from toolwire.journal.runs import RunStore, approval_command, decode_stored
from toolwire.runtime.run.events import (
    CallEnded,
    CallProposed,
    RunEnded,
    RunEvent,
    RunStarted,
    TurnEnded,
    TurnStarted,
    text_events,
)
from toolwire.runtime.run.recorded_run import RecordedTurn, read_turns


def follow_recorded_run(runs: RunStore, report: RunReport, output: TextOutput | JsonOutput) -> int:
    """Write the events of a run until it ends or waits for an approval; return the exit code."""
    return asyncio.run(_follow(runs, report, output))


async def _follow(runs: RunStore, report: RunReport, output: TextOutput | JsonOutput) -> int:
    """Write new events whenever the run changes."""
    follower = _Follower()
    output.write_event(RunStarted(run=report.id, model=report.metadata.model))
    has_note = False
    with runs.watch_run(report.id) as changed:
        while True:
            stored = runs.find(report.id)  # before the steps, so that the end is written after all of them
            for event in follower.new_events(read_turns(runs.steps(report.id))):
                output.write_event(event)
            if stored.end_event is not None:
                break
            if not has_note and not runs.is_held(report.id):
                if report.queue is None:
                    output.write_note(f"no process executes this run: continue with `toolwire runs resume {report.id}`")
                    return 1
                output.write_note("waiting for a worker (`toolwire work`)")
                has_note = True
            await changed()
    end = decode_stored(stored.end_event, RunEnded, f"the end of the run {report.id}")
    ended = RunReport(runs, stored, report.redactor)
    if isinstance(output, TextOutput):
        output.duration = _last_step_time(ended) - report.started_at
    output.write_event(end)
    if end.stopped == "waiting":
        for request in ended.pending_approvals:
            text = f"waiting: {approval_command(report.id, request.call_id, report.queue)}"
            if isinstance(output, TextOutput):
                output.write_line(text, "warning")  # on one line, so that the command can be copied
            else:
                output.write_note(text)
    output.close()
    return exit_code(end)


def _last_step_time(report: RunReport) -> float:
    """Return when the last recorded step of a run ended."""
    times = [report.started_at]
    for turn in report.turns:
        times += [turn.finished_at or turn.started_at]
        times += [call.outcome.record.end for call in turn.calls.values() if call.outcome is not None]
    return max(times)


class _Follower:
    """Turns the recorded steps of a run into events, each once."""

    def __init__(self) -> None:
        self._seen_turns = set[int]()
        self._seen_calls = set[tuple[int, str]]()

    def new_events(self, turns: list[RecordedTurn]) -> Iterator[RunEvent]:
        """Yield the events of turns and calls that finished since the last call."""
        for turn in turns:
            if turn.response is not None and turn.number not in self._seen_turns:
                self._seen_turns.add(turn.number)
                yield from _turn_events(turn)
            for id, call in turn.calls.items():
                if call.outcome is not None and (turn.number, id) not in self._seen_calls:
                    self._seen_calls.add((turn.number, id))
                    yield CallEnded(call_id=id, status=call.outcome.result.status, record=call.outcome.record)


def _turn_events(turn: RecordedTurn) -> Iterator[RunEvent]:
    """Yield the events of a turn of the model."""
    response = turn.response
    if response is None:
        return
    yield TurnStarted(turn=turn.number, recorded=True)
    yield from text_events(response)
    stop = response.candidates[0].stop if response.candidates else None
    yield TurnEnded(
        turn=turn.number,
        stop="other" if stop is None else stop.reason,
        usage=usage_counts(response.usage),
        response=response.id or "",
        model=response.model or "",
    )
    for id, call in turn.proposed_calls:
        yield CallProposed(call_id=id, tool=call.name, arguments=call.arguments)
