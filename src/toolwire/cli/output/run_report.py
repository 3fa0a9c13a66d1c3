"""A kept run as it is told: in a line, on a page, as JSON; never with its secrets."""

import difflib
import os
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from toolwire.agent import RunMetadata
from toolwire.canonical.content import Media, Message, Part, Text
from toolwire.cli.output.run_output import escape_controls, format_usage, strip_controls, truncate_line
from toolwire.codec.encoding.media import image_size
from toolwire.gateway.config import Config, configured_secrets
from toolwire.gateway.providers.discovery import configured_providers
from toolwire.journal.redaction import Redactor
from toolwire.journal.runs import RunStore, StoredRun, decode_stored
from toolwire.runtime.calls.approval import ApprovalRequest
from toolwire.runtime.run.events import RunEnded
from toolwire.runtime.run.recorded_run import RecordedCall, RecordedTurn, read_turns
from toolwire.runtime.run.replay import CallDifference

_MAX_RESULT_CHARS = 2000
_MAX_DIFF_LINES = 40


class RunReport:
    """One run. `state`: running, waiting, interrupted (its process is gone), or how it ended."""

    def __init__(self, runs: RunStore, stored_run: StoredRun, redactor: Redactor) -> None:
        self.id = stored_run.id
        self.started_at = stored_run.at
        self.redactor = redactor
        self.metadata = decode_stored(stored_run.metadata, RunMetadata, f"the run {stored_run.id}")
        self.end_event = (
            None
            if stored_run.end_event is None
            else decode_stored(stored_run.end_event, RunEnded, f"the end of the run {stored_run.id}")
        )
        self._runs = runs

    @cached_property
    def state(self) -> str:
        if self.end_event is not None:
            return self.end_event.stopped
        return "running" if self._runs.is_held(self.id) else "interrupted"

    @cached_property
    def turns(self) -> list[RecordedTurn]:
        return read_turns(self._runs.steps(self.id))

    @property
    def pending_approvals(self) -> list[ApprovalRequest]:
        """What nobody decided yet."""
        calls = [call for turn in self.turns for call in turn.calls.values() if call.is_waiting]
        return [call.approval_request for call in calls if call.approval_request is not None]

    @property
    def calls_in_doubt(self) -> list[str]:
        """Calls that were under way when the run ended."""
        return [
            id for turn in self.turns for id, call in turn.calls.items() if call.outcome is None and call.is_in_doubt
        ]

    @property
    def prompt(self) -> str:
        return message_text(self.metadata.messages[-1]) if self.metadata.messages else ""


def message_text(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def _build_redactor(config: Config) -> Redactor:
    return Redactor(tuple(configured_secrets(config, configured_providers(config).values())))


def load_report(runs: RunStore, config: Config, run: str) -> RunReport:
    return RunReport(runs, runs.find(run), _build_redactor(config))


def load_reports(runs: RunStore, config: Config, count: int, workspace: Path | None) -> Iterator[RunReport]:
    """The latest ones, the newest first."""
    redactor, folder = _build_redactor(config), None if workspace is None else os.path.realpath(workspace)
    for kept in runs.latest(count if folder is None else 1000):
        story = RunReport(runs, kept, redactor)
        if folder in (None, story.metadata.facts.get("workspace")) and count > 0:
            count -= 1
            yield story


# ---- in a line


def summary_as_json(report: RunReport) -> dict[str, Any]:
    return {
        "id": report.id,
        "at": report.started_at,
        "state": report.state,
        "model": report.metadata.model,
        "workspace": report.metadata.facts.get("workspace", ""),
        "prompt": truncate_line(report.redactor.redact_text(report.prompt), 200),
    }


def summary_line(report: RunReport) -> str:
    prompt = truncate_line(report.redactor.redact_text(report.prompt), 60)
    model = truncate_line(report.metadata.model, 40)
    return f"{report.id}  {format_time(report.started_at)}  {report.state:<11}  {model}  {prompt}"


def format_time(timestamp: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp))


# ---- as JSON


def parse_arguments(text: str) -> dict[str, Any]:
    """What a call was given, if that can be read."""
    try:
        read = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return read if isinstance(read, dict) else {}


def report_as_json(report: RunReport) -> dict[str, Any]:
    """All of it, as JSON data without secrets."""
    whole = summary_as_json(report) | {
        "prompt": report.prompt,
        "turns": [_turn_as_json(turn) for turn in report.turns],
        "waiting": [msgspec.to_builtins(ask) for ask in report.pending_approvals],
        "in_doubt": report.calls_in_doubt,
        "ended": None if report.end_event is None else msgspec.to_builtins(report.end_event),
    }
    return {name: _redact_value(value, report.redactor) for name, value in whole.items()}


def _redact_value(value: Any, redactor: Redactor) -> Any:
    match value:
        case dict():
            return {name: _redact_value(one, redactor) for name, one in value.items()}
        case list() | tuple():
            return [_redact_value(one, redactor) for one in value]
        case str():
            return redactor.redact_text(value)
        case _:
            return value


def _turn_as_json(turn: RecordedTurn) -> dict[str, Any]:
    usage = None if turn.response is None else turn.response.usage
    return {
        "turn": turn.number,
        "begun": turn.started_at,
        "finished": turn.finished_at,
        "text": "".join(map(message_text, turn.messages)),
        "usage": None if usage is None else msgspec.to_builtins(usage),
        "calls": [_call_as_json(id, name, arguments, turn.calls.get(id)) for id, name, arguments in turn_calls(turn)],
    }


def turn_calls(turn: RecordedTurn) -> list[tuple[str, str, str]]:
    """Those that the model asked for, and those that tools made of them."""
    asked = [(id, call.name, call.arguments) for id, call in turn.proposed_calls]
    known = {id for id, _, _ in asked}
    return asked + [(id, *_nested_call(one)) for id, one in turn.calls.items() if id not in known]


def _nested_call(call: RecordedCall) -> tuple[str, str]:
    found = call.intent or call.approval_request
    return ("", "") if found is None else (found.tool, found.arguments)


def _call_as_json(id: str, name: str, arguments: str, call: RecordedCall | None) -> dict[str, Any]:
    told: dict[str, Any] = {"id": id, "tool": name, "arguments": arguments, "state": call_state(call)}
    if call is not None and call.decision is not None:
        told["decided"] = msgspec.to_builtins(call.decision)
    if call is not None and call.outcome is not None:
        outcome = call.outcome
        told |= {"record": msgspec.to_builtins(outcome.record), "status": outcome.result.status}
        told["result"] = content_text(outcome.result.content)
    return told


def call_state(call: RecordedCall | None) -> str:
    if call is None:
        return "not run"
    if call.is_in_doubt:
        return "in doubt"
    if call.outcome is not None:
        return call.outcome.result.status
    if call.is_resumable:
        return "not finished"
    if call.decision is not None:
        return f"{call.decision.approval.answer} by {call.decision.approval.decided_by}, not run yet"
    return "waiting" if call.is_waiting else "not run"


def content_text(parts: tuple[Part, ...] | None) -> str:
    return "\n".join(map(_part_text, parts or ()))


def _part_text(part: Part) -> str:
    if isinstance(part, Text):
        return part.text
    if not isinstance(part, Media):
        return f"[{type(part).__name__.lower()}]"
    size = image_size(part)
    return f"[{part.kind}]" if size is None else f"[{part.kind}, {size[0]} x {size[1]}]"


# ---- on a page


def report_lines(report: RunReport) -> Iterator[str]:
    clean = report.redactor.redact_text
    yield summary_line(report)
    yield f"workspace {escape_controls(report.metadata.facts.get('workspace', ''))}"
    yield f"prompt {strip_controls(clean(report.prompt))}"
    for turn in report.turns:
        usage = "" if turn.response is None else f", {format_usage(turn.response.usage)}"
        took = "not answered" if turn.finished_at is None else f"{turn.finished_at - turn.started_at:.1f}s"
        yield f"\n--- turn {turn.number}, {took}{usage}"
        if text := clean("".join(map(message_text, turn.messages))).strip():
            yield strip_controls(text)
        for id, name, arguments in turn_calls(turn):
            yield from _call_lines(id, name, clean(arguments), turn.calls.get(id), report.redactor)
    if report.end_event is not None:
        why = f": {truncate_line(clean(report.end_event.why), 300)}" if report.end_event.why else ""
        yield f"\n{report.end_event.stopped}{why}"
    for ask in report.pending_approvals:
        yield f"waiting: toolwire runs resume {report.id} --approve {escape_controls(ask.call_id)}"
    for id in report.calls_in_doubt:
        yield f"in doubt: {escape_controls(id)} was under way when the run ended"


def _call_lines(id: str, name: str, arguments: str, call: RecordedCall | None, redactor: Redactor) -> Iterator[str]:
    yield f"* {escape_controls(name)} {escape_controls(id)}: {call_state(call)}"
    yield f"  arguments {escape_controls(arguments)}"
    if call is None:
        return
    if call.approval_request is not None and call.is_waiting:
        yield f"  waits: {escape_controls(call.approval_request.reason)}"
        if call.approval_request.preview is not None:
            yield _indent(escape_controls(redactor.redact_text(call.approval_request.preview)))
    if call.outcome is None:
        return
    record = call.outcome.record
    noted = [f"{record.end - record.start:.3f}s", escape_controls(record.approval)]
    noted += [
        f"{count} {what}" for count, what in ((record.retries, "retries"), (record.redacted, "redacted")) if count
    ]
    noted += ["truncated"] if record.truncated else []
    noted += [f"error {record.error}"] if record.error else []
    yield f"  {', '.join(noted)}"
    text = redactor.redact_text(content_text(call.outcome.result.content))
    yield _indent(strip_controls(text[:_MAX_RESULT_CHARS]))
    if len(text) > _MAX_RESULT_CHARS:
        yield f"  ... {len(text)} characters in all: --json has them"


def _indent(text: str) -> str:
    return "\n".join(f"  | {line}" for line in text.rstrip("\n").split("\n"))


# ---- what a replay found


def difference_lines(difference: CallDifference, redactor: Redactor) -> Iterator[str]:
    """A call's differences: texts of several lines as those lines that differ."""
    for found in difference.differences:
        place = f"turn {difference.turn} {escape_controls(difference.tool)} {escape_controls(difference.id)}"
        if isinstance(found.before, str) and isinstance(found.after, str) and "\n" in found.before + found.after:
            yield f"{place}: {found.kind} {found.path}"
            before, after = (redactor.redact_text(text).splitlines() for text in (found.before, found.after))
            lines = list(difflib.unified_diff(before, after, "then", "now", lineterm="", n=1))
            yield _indent(strip_controls("\n".join(lines[:_MAX_DIFF_LINES])))
            if len(lines) > _MAX_DIFF_LINES:
                yield f"  ... {len(lines) - _MAX_DIFF_LINES} more lines"
        else:
            yield strip_controls(redactor.redact_text(f"{place}: {found}"))
