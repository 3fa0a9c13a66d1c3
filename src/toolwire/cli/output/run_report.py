"""Reports of recorded runs, as a line, as text and as JSON. Secrets are redacted."""

import difflib
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from toolwire.canonical.content import Media, Message, Part, Text
from toolwire.cli.output.run_output import format_seconds, format_stop, format_usage, strip_controls, truncate_line
from toolwire.cli.output.terminal import Column, Style, Table, diff_style, print_command, print_line, terminal_width
from toolwire.codec.encoding.media import image_size
from toolwire.gateway.config import Config, build_redactor
from toolwire.gateway.providers.discovery import configured_providers
from toolwire.journal.redaction import Redactor
from toolwire.journal.runs import RunStore, StoredRun, approval_command, decode_stored
from toolwire.runtime.calls.approval import ApprovalRequest
from toolwire.runtime.run.events import RunEnded
from toolwire.runtime.run.recorded_run import RecordedCall, RecordedTurn, read_turns
from toolwire.runtime.run.replay import CallDifference
from toolwire.runtime.run.settings import RunMetadata

_MAX_RESULT_CHARS = 2000
_MAX_DIFF_LINES = 40
_MAX_PROMPT_CHARS = 100


class RunReport:
    """A recorded run, decoded for display."""

    def __init__(self, runs: RunStore, stored_run: StoredRun, redactor: Redactor) -> None:
        self.id = stored_run.id
        self.started_at = stored_run.at
        self.queue = stored_run.queue
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
        """Return "queued", "running", "waiting", "interrupted" (its process is gone), or the stop cause."""
        if self.end_event is not None:
            return self.end_event.stopped
        if self._runs.is_held(self.id):
            return "running"
        return "interrupted" if self.queue is None else "queued"

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
    return build_redactor(config, configured_providers(config).values())


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


_STATE_STYLES: dict[str, Style] = {
    "finished": "good",
    "running": "accent",
    "waiting": "warning",
    "interrupted": "warning",
    "failed": "problem",
}


def _styled_state(report: RunReport) -> tuple[str, Style]:
    """Return the state of a run in words, with its style."""
    return format_stop(report.state), _STATE_STYLES.get(report.state, "warning")


def _summary_fields(report: RunReport) -> tuple[str, str]:
    """Return model and prompt of a run; those of an MCP server have neither."""
    if not report.metadata.model and not report.metadata.messages:
        return "-", f"calls from MCP clients ({report.metadata.agent})"
    prompt = truncate_line(report.redactor.redact_text(report.prompt), _MAX_PROMPT_CHARS)
    return truncate_line(report.metadata.model, 40) or "-", prompt


def print_summaries(reports: Iterable[RunReport]) -> None:
    """Print id, time, state, model and prompt of each run as a row."""
    reports = list(reports)
    is_terminal = terminal_width() is not None
    short_ids = _shorten_ids([report.id for report in reports]) if is_terminal else {}
    table = Table(
        Column("run"),
        Column("age" if is_terminal else "time"),
        Column("state"),
        Column("model", is_flexible=True),
        Column("prompt", is_flexible=True),
    )
    table.print_rows(
        (
            (short_ids.get(report.id, report.id), "accent"),
            format_age(report.started_at) if is_terminal else format_time(report.started_at),
            _styled_state(report),
            *_summary_fields(report),
        )
        for report in reports
    )


def _shorten_ids(ids: Sequence[str]) -> dict[str, str]:
    """Shorten each id to its kind and time; keep one whole if another run has the same kind and time."""
    short = {id: id.rpartition("_")[0] for id in ids}
    counts = Counter(short.values())
    return {id: beginning for id, beginning in short.items() if counts[beginning] == 1}


def format_age(timestamp: float) -> str:
    """Format the time since a moment in its largest unit, such as `5m`."""
    seconds = max(time.time() - timestamp, 0)
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f}{unit}"
    return f"{seconds:.0f}s"


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


def print_report(report: RunReport) -> None:
    """Print a run: its prompt, turns and calls."""
    redact = report.redactor.redact_text
    state = _styled_state(report)
    model, _ = _summary_fields(report)
    print_line((report.id, "accent"), f"  {format_time(report.started_at)}  ", state, f"  {model}", indent=2)
    print_line(f"workspace {report.metadata.facts.get('workspace', '')}")
    print_text(f"prompt {redact(report.prompt)}")
    for turn in report.turns:
        usage = "" if turn.response is None else f", {format_usage(turn.response.usage)}"
        duration = "not answered" if turn.finished_at is None else format_seconds(turn.finished_at - turn.started_at)
        print_line()
        print_line((f"--- turn {turn.number}, {duration}{usage}", "strong"))
        if text := redact("".join(map(message_text, turn.messages))).strip():
            print_text(text)
        for id, name, arguments in turn_calls(turn):
            _print_call(id, name, redact(arguments), turn.calls.get(id), report.redactor)
    if report.end_event is not None:
        reason = f": {truncate_line(redact(report.end_event.reason), 300)}" if report.end_event.reason else ""
        print_line()
        print_line(state, reason, indent=2)
    for request in report.pending_approvals:
        print_command(("waiting:", "warning"), approval_command(report.id, request.call_id, report.queue))
    for id in report.calls_in_doubt:
        print_line(("in doubt:", "problem"), f" {id} was running when the run ended")


def print_text(text: str, prefix: str = "", style: Style = "") -> None:
    """Print text of a model, a tool or a user, without control characters; a prefix sets each line apart."""
    for line in strip_controls(text).rstrip("\n").split("\n"):
        print_line(prefix, (line, style), indent=len(prefix))


_CALL_STYLES: dict[str, Style] = {"ok": "good", "error": "problem", "in doubt": "problem"}


def _print_call(id: str, name: str, arguments: str, call: RecordedCall | None, redactor: Redactor) -> None:
    """Print a call, its approval and its result."""
    state = call_state(call)
    print_line((f"* {name}", "strong"), f" {id}: ", (state, _CALL_STYLES.get(state, "warning")), indent=2)
    print_line(f"  arguments {arguments}", indent=4)
    if call is None:
        return
    if call.approval_request is not None and call.is_waiting:
        print_line(f"  waits: {call.approval_request.reason}", indent=4)
        if call.approval_request.preview is not None:
            for line in redactor.redact_text(call.approval_request.preview).rstrip("\n").split("\n"):
                print_line("  | ", line, indent=4)
    if call.outcome is None:
        return
    record = call.outcome.record
    notes = [format_seconds(record.end - record.start), record.approval]
    notes += [
        f"{count} {label}" for count, label in ((record.retries, "retries"), (record.redacted, "redacted")) if count
    ]
    notes += ["truncated"] if record.truncated else []
    notes += [f"error {record.error}"] if record.error else []
    print_line(("  " + ", ".join(notes), "muted"), indent=4)
    text = redactor.redact_text(content_text(call.outcome.result.content))
    print_text(text[:_MAX_RESULT_CHARS], "  | ")
    if len(text) > _MAX_RESULT_CHARS:
        print_line((f"  ... {len(text)} characters in total: use --json to see all", "muted"))


# ---- differences found by a replay


def print_differences(differences: Sequence[CallDifference], redactor: Redactor) -> None:
    """Print how replayed calls differ; long texts as a unified diff."""
    for difference in differences:
        location = f"turn {difference.turn} {difference.tool} {difference.id}"
        for change in difference.differences:
            is_text = isinstance(change.before, str) and isinstance(change.after, str)
            if is_text and "\n" in change.before + change.after:
                print_line(f"{location}: {change.kind} {change.path}", indent=2)
                before, after = (redactor.redact_text(text).splitlines() for text in (change.before, change.after))
                lines = list(difflib.unified_diff(before, after, "then", "now", lineterm="", n=1))
                for line in lines[:_MAX_DIFF_LINES]:
                    print_text(line, "  | ", diff_style(line))
                if len(lines) > _MAX_DIFF_LINES:
                    print_line((f"  ... {len(lines) - _MAX_DIFF_LINES} more lines", "muted"))
            else:
                print_line(strip_controls(redactor.redact_text(f"{location}: {change}")), indent=2)
    if not differences:
        print_line(("no difference", "good"))


def differences_as_json(differences: Sequence[CallDifference], redactor: Redactor) -> list[dict[str, Any]]:
    """Return the differences of a replay as JSON data, with secrets redacted."""
    listed = [
        {"turn": difference.turn, "call": difference.id, "tool": difference.tool, **msgspec.to_builtins(change)}
        for difference in differences
        for change in difference.differences
    ]
    return [_redact_value(item, redactor) for item in listed]
