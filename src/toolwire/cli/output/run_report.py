"""Reports of recorded runs, as a line, as text and as JSON. Secrets are redacted."""

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
from toolwire.cli.output.run_output import format_usage, strip_controls, truncate_line
from toolwire.cli.output.terminal import escape_controls
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
    """A recorded run, decoded for display."""

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
        """Return "running", "waiting", "interrupted" (its process is gone), or the stop cause."""
        if self.end_event is not None:
            return self.end_event.stopped
        return "running" if self._runs.is_held(self.id) else "interrupted"

    @cached_property
    def turns(self) -> list[RecordedTurn]:
        """Decode the recorded turns."""
        return read_turns(self._runs.steps(self.id))

    @property
    def pending_approvals(self) -> list[ApprovalRequest]:
        """Return the approval requests that are still open."""
        calls = [call for turn in self.turns for call in turn.calls.values() if call.is_waiting]
        return [call.approval_request for call in calls if call.approval_request is not None]

    @property
    def calls_in_doubt(self) -> list[str]:
        """Return the ids of calls in doubt: they were running when the run ended, and may have taken effect."""
        return [
            id for turn in self.turns for id, call in turn.calls.items() if call.outcome is None and call.is_in_doubt
        ]

    @property
    def prompt(self) -> str:
        """Return the text of the message that started the run."""
        return message_text(self.metadata.messages[-1]) if self.metadata.messages else ""


def message_text(message: Message) -> str:
    """Join the text parts of a message."""
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def _build_redactor(config: Config) -> Redactor:
    """Return a redactor of the configured secrets."""
    return Redactor(tuple(configured_secrets(config, configured_providers(config).values())))


def load_report(runs: RunStore, config: Config, run: str) -> RunReport:
    """Load one run. `run` is an id, the beginning of one, or `last`."""
    return RunReport(runs, runs.find(run), _build_redactor(config))


def load_reports(runs: RunStore, config: Config, count: int, workspace: Path | None) -> Iterator[RunReport]:
    """Load the latest runs, newest first, optionally only those of one workspace."""
    redactor, folder = _build_redactor(config), None if workspace is None else os.path.realpath(workspace)
    for stored_run in runs.latest(count if folder is None else 1000):
        report = RunReport(runs, stored_run, redactor)
        if folder in (None, report.metadata.facts.get("workspace")) and count > 0:
            count -= 1
            yield report


# ---- as a line


def summary_as_json(report: RunReport) -> dict[str, Any]:
    """Return id, time, state, model, workspace and prompt of a run as JSON data."""
    return {
        "id": report.id,
        "at": report.started_at,
        "state": report.state,
        "model": report.metadata.model,
        "workspace": report.metadata.facts.get("workspace", ""),
        "prompt": truncate_line(report.redactor.redact_text(report.prompt), 200),
    }


def summary_line(report: RunReport) -> str:
    """Return id, time, state, model and prompt of a run as one line."""
    prompt = truncate_line(report.redactor.redact_text(report.prompt), 60)
    model = truncate_line(report.metadata.model, 40)
    return f"{report.id}  {format_time(report.started_at)}  {report.state:<11}  {model}  {prompt}"


def format_time(timestamp: float) -> str:
    """Format seconds since the epoch as local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp))


# ---- as JSON


def parse_arguments(text: str) -> dict[str, Any]:
    """Decode the arguments of a call; empty unless they are a JSON object."""
    try:
        arguments = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def report_as_json(report: RunReport) -> dict[str, Any]:
    """Return the report as JSON data, with secrets redacted."""
    fields = summary_as_json(report) | {
        "prompt": report.prompt,
        "turns": [_turn_as_json(turn) for turn in report.turns],
        "waiting": [msgspec.to_builtins(request) for request in report.pending_approvals],
        "in_doubt": report.calls_in_doubt,
        "ended": None if report.end_event is None else msgspec.to_builtins(report.end_event),
    }
    return {name: _redact_value(value, report.redactor) for name, value in fields.items()}


def _redact_value(value: Any, redactor: Redactor) -> Any:
    """Redact every string in a JSON value."""
    match value:
        case dict():
            return {name: _redact_value(item, redactor) for name, item in value.items()}
        case list() | tuple():
            return [_redact_value(item, redactor) for item in value]
        case str():
            return redactor.redact_text(value)
        case _:
            return value


def _turn_as_json(turn: RecordedTurn) -> dict[str, Any]:
    """Return a turn of the model and its calls as JSON data."""
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
    """Return id, tool name and arguments text of each call: those of the model, then those that tools made."""
    model_calls = [(id, call.name, call.arguments) for id, call in turn.proposed_calls]
    model_call_ids = {id for id, _, _ in model_calls}
    return model_calls + [(id, *_nested_call(call)) for id, call in turn.calls.items() if id not in model_call_ids]


def _nested_call(call: RecordedCall) -> tuple[str, str]:
    """Return the tool's name and the arguments, as JSON text, of a call that a tool made."""
    source = call.intent or call.approval_request
    return ("", "") if source is None else (source.tool, source.arguments)


def _call_as_json(id: str, name: str, arguments: str, call: RecordedCall | None) -> dict[str, Any]:
    """Return a call as JSON data, with its decision and its result."""
    fields: dict[str, Any] = {"id": id, "tool": name, "arguments": arguments, "state": call_state(call)}
    if call is not None and call.decision is not None:
        fields["decided"] = msgspec.to_builtins(call.decision)
    if call is not None and call.outcome is not None:
        outcome = call.outcome
        fields |= {"record": msgspec.to_builtins(outcome.record), "status": outcome.result.status}
        fields["result"] = content_text(outcome.result.content)
    return fields


def call_state(call: RecordedCall | None) -> str:
    """Describe the state of a call: its result status, or why it has none."""
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
    """Join the parts of a result as text; other parts become placeholders such as `[image, 800 x 600]`."""
    return "\n".join(map(_part_text, parts or ()))


def _part_text(part: Part) -> str:
    """Return the text of a part, or a placeholder that names its kind."""
    if isinstance(part, Text):
        return part.text
    if not isinstance(part, Media):
        return f"[{type(part).__name__.lower()}]"
    size = image_size(part)
    return f"[{part.kind}]" if size is None else f"[{part.kind}, {size[0]} x {size[1]}]"


# ---- as text


def report_lines(report: RunReport) -> Iterator[str]:
    """Yield the lines that show a run: its prompt, turns and calls."""
    redact = report.redactor.redact_text
    yield summary_line(report)
    yield f"workspace {escape_controls(report.metadata.facts.get('workspace', ''))}"
    yield f"prompt {strip_controls(redact(report.prompt))}"
    for turn in report.turns:
        usage = "" if turn.response is None else f", {format_usage(turn.response.usage)}"
        duration = "not answered" if turn.finished_at is None else f"{turn.finished_at - turn.started_at:.1f}s"
        yield f"\n--- turn {turn.number}, {duration}{usage}"
        if text := redact("".join(map(message_text, turn.messages))).strip():
            yield strip_controls(text)
        for id, name, arguments in turn_calls(turn):
            yield from _call_lines(id, name, redact(arguments), turn.calls.get(id), report.redactor)
    if report.end_event is not None:
        reason = f": {truncate_line(redact(report.end_event.why), 300)}" if report.end_event.why else ""
        yield f"\n{report.end_event.stopped}{reason}"
    for request in report.pending_approvals:
        yield f"waiting: toolwire runs resume {report.id} --approve {escape_controls(request.call_id)}"
    for id in report.calls_in_doubt:
        yield f"in doubt: {escape_controls(id)} was running when the run ended"


def _call_lines(id: str, name: str, arguments: str, call: RecordedCall | None, redactor: Redactor) -> Iterator[str]:
    """Yield the lines that show a call, its approval and its result."""
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
    notes = [f"{record.end - record.start:.3f}s", escape_controls(record.approval)]
    notes += [
        f"{count} {label}" for count, label in ((record.retries, "retries"), (record.redacted, "redacted")) if count
    ]
    notes += ["truncated"] if record.truncated else []
    notes += [f"error {record.error}"] if record.error else []
    yield f"  {', '.join(notes)}"
    text = redactor.redact_text(content_text(call.outcome.result.content))
    yield _indent(strip_controls(text[:_MAX_RESULT_CHARS]))
    if len(text) > _MAX_RESULT_CHARS:
        yield f"  ... {len(text)} characters in total: use --json to see all"


def _indent(text: str) -> str:
    """Prefix each line of a text with a bar, to set a result apart."""
    return "\n".join(f"  | {line}" for line in text.rstrip("\n").split("\n"))


# ---- differences found by a replay


def difference_lines(difference: CallDifference, redactor: Redactor) -> Iterator[str]:
    """Yield the lines that show how a replayed call differs; long texts as a unified diff."""
    for change in difference.differences:
        location = f"turn {difference.turn} {escape_controls(difference.tool)} {escape_controls(difference.id)}"
        if isinstance(change.before, str) and isinstance(change.after, str) and "\n" in change.before + change.after:
            yield f"{location}: {change.kind} {change.path}"
            before, after = (redactor.redact_text(text).splitlines() for text in (change.before, change.after))
            lines = list(difflib.unified_diff(before, after, "then", "now", lineterm="", n=1))
            yield _indent(strip_controls("\n".join(lines[:_MAX_DIFF_LINES])))
            if len(lines) > _MAX_DIFF_LINES:
                yield f"  ... {len(lines) - _MAX_DIFF_LINES} more lines"
        else:
            yield strip_controls(redactor.redact_text(f"{location}: {change}"))
