"""Reports of recorded exchanges: as a row of a table, as a line, and in full."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from toolwire.cli.output.terminal import (
    SEVERITY_STYLES,
    Column,
    Part,
    Style,
    Table,
    format_dollars,
    print_line,
    shorten,
    terminal_width,
)
from toolwire.codec.escapes import escape_controls

if TYPE_CHECKING:
    from toolwire.canonical.errors import Severity
    from toolwire.journal.differences import Difference
    from toolwire.journal.records import Record

_MAX_BODY_LINES = 40  # on a terminal; the request of an agent has thousands
_SHORT_ID = 11  # `ex_` and eight hexadecimal digits: `toolwire journal show` finds it
_SEVERITY_MARKS: "tuple[tuple[Severity, str], ...]" = (("error", "E"), ("warning", "W"))


class ExchangeList:
    """Prints exchanges as they arrive: in aligned columns on a terminal, as complete lines in a pipe."""

    def __init__(self) -> None:
        self._table = Table(
            Column("time"),
            Column("id"),
            Column("status"),
            Column("took", align_right=True),
            Column("tokens", align_right=True),
            Column("losses", align_right=True),
            Column("route", is_flexible=True),
        )

    def print_records(self, records: "Iterable[Record]") -> None:
        """Print one line for each record."""
        if terminal_width() is not None:
            self._table.print_rows([_record_row(record) for record in records])
            return
        for record in records:
            print_line(format_record(record))


def _record_row(record: "Record") -> list[Part]:
    """Return a record as a row: its status colored, its losses counted by severity."""
    started = time.localtime(record.at)
    is_today = started[:3] == time.localtime()[:3]
    losses = Counter(loss.severity for loss in record.losses)
    counted = [f"{losses[severity]}{mark}" for severity, mark in _SEVERITY_MARKS if losses[severity]]
    loss_style: Style = "problem" if losses["error"] else "warning"
    usage = record.usage
    tokens = f"{usage.get('input_tokens', 0)} > {usage.get('output_tokens', 0)}" if usage else "-"
    invalid = _count_invalid(record.calls)
    notes = [f"{invalid} invalid calls"] if invalid else []
    notes += [" ".join(record.error.split())] if record.error else []
    # The destination comes first, since a narrow terminal cuts the end; without one, the reason does.
    source = f"<- {record.client}{' stream' if record.streamed else ''}"
    is_reason_first = bool(record.error and not record.protocol)
    parts = [f"{': '.join(notes)} {source}"] if is_reason_first else [f"{_format_destination(record)} {source}", *notes]
    return [
        time.strftime("%H:%M:%S" if is_today else "%b %d %H:%M", started),
        (record.id[:_SHORT_ID], "accent"),
        (str(record.status), _status_style(record)),
        _format_duration(record.ended),
        tokens,
        (" ".join(counted) or "-", loss_style if counted else ""),
        (": ".join(parts), "problem" if record.error else ""),
    ]


def _status_style(record: "Record") -> Style:
    """Return the style of a status: success, client error or failure."""
    if record.status >= 500 or (record.error and record.status < 400):
        return "problem"
    return "good" if record.status < 400 else "warning"


def _format_duration(seconds: float) -> str:
    """Format a duration in milliseconds, or in seconds from ten on."""
    return f"{seconds:.1f}s" if seconds >= 10 else f"{seconds * 1000:.0f}ms"


def _format_destination(record: "Record") -> str:
    """Return provider and model of an exchange."""
    return f"{record.provider}/{record.model}" if record.protocol else "(not sent)"


def _count_invalid(calls: Mapping[str, int]) -> int:
    """Return the number of invalid calls."""
    return sum(count for outcome, count in calls.items() if outcome != "valid")


def format_exchange(record: "Record") -> str:
    """Format status, protocols, provider, model and duration of an exchange."""
    protocol = f" ({record.protocol})" if record.protocol else ""
    return f"{record.status} {record.client} -> {_format_destination(record)}{protocol} {record.ended * 1000:.0f}ms"


def format_record(record: "Record") -> str:
    """Format a record as one line."""
    timestamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.at))
    fields = [timestamp, format_exchange(record)]
    if record.streamed:
        fields.append("stream")
    if record.usage:
        fields.append(f"in={record.usage.get('input_tokens', 0)} out={record.usage.get('output_tokens', 0)}")
    if record.cost is not None:
        fields.append(format_dollars(record.cost))
    if count := sum(loss.severity != "info" for loss in record.losses):
        fields.append(f"losses={count}")
    if count := _count_invalid(record.calls):
        fields.append(f"invalid_calls={count}")
    fields.append(record.id)
    if record.error:
        fields.append(f"| {' '.join(record.error.split())[:300]}")
    return " ".join(fields)


def print_record(record: "Record", *, with_info: bool = False, in_full: bool = False) -> None:
    """Print a record, its losses with their directions, and its bodies in the order in which they were sent.

    Losses of severity `info` are only counted, unless `with_info` is set. On a terminal, only the beginning of a body
    is printed, unless `in_full` is set.
    """
    timestamp, _, rest = format_record(record).partition(f" {record.status} ")
    print_line((timestamp, "muted"), " ", (str(record.status), _status_style(record)), f" {rest}", indent=2)
    print_line(f"path {record.path}, toolwire {record.toolwire}")
    times = (("translated", record.sent), ("answered", record.answered), ("ended", record.ended))
    stages = ", ".join(f"{stage} after {seconds * 1000:.1f}ms" for stage, seconds in times if seconds is not None)
    print_line(stages)
    if record.usage:
        counts = [f"{name} {count}" for name, count in record.usage.items()]
        cost = "unknown (the model has no known price)" if record.cost is None else format_dollars(record.cost, 6)
        print_line(f"usage {', '.join(counts)}, cost {cost}", indent=2)
    if record.calls:
        print_line("calls " + ", ".join(f"{outcome} {count}" for outcome, count in record.calls.items()), indent=2)
    for loss in record.losses:
        if loss.severity == "info" and not with_info:
            continue
        text = str(loss).removeprefix(loss.severity)
        print_line(f"{loss.direction} ", (loss.severity, SEVERITY_STYLES[loss.severity]), text, indent=2)
    count = sum(loss.severity == "info" for loss in record.losses)
    if count and not with_info:
        print_line((f"{count} {'loss' if count == 1 else 'losses'} of severity info: --info lists them", "muted"))
    if record.bodies is None:
        print_line(("no bodies recorded: set journal.bodies, or start `toolwire serve --record-bodies`", "muted"))
        return
    from toolwire.journal.records import body_content

    for name, data in record.bodies.by_name.items():
        if not data:
            continue
        value = body_content(data)
        print_line()
        print_line((f"--- {name}, {_describe_body(name, record)}, {len(data)} bytes", "strong"))
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        _print_body(escape_controls(text), None if in_full else terminal_width())


def _print_body(text: str, width: int | None) -> None:
    """Print a body: in full, or its first lines cut to `width`, and the number of lines that are left out."""
    lines = text.splitlines()
    if width is None or (len(lines) <= _MAX_BODY_LINES and all(len(line) <= width for line in lines)):
        click.echo(text)
        return
    for line in lines[:_MAX_BODY_LINES]:
        click.echo(shorten(line, width))
    left = len(lines) - _MAX_BODY_LINES
    note = f"... {left} more {'line' if left == 1 else 'lines'}, and the ends" if left > 0 else "... the ends"
    print_line((f"{note} of long lines: --full prints them", "muted"))


def _describe_body(name: str, record: "Record") -> str:
    """Return the sender or the recipient of a body."""
    provider = f"{record.provider} ({record.protocol})" if record.protocol else "no provider"
    match name:
        case "request":
            return f"from the client ({record.client})"
        case "translated":
            return f"to {provider}"
        case "response":
            return f"to the client ({record.client})"
        case _:
            return f"from {provider}"


def print_replay(before: "Record", after: "Record", differences: "Mapping[str, list[Difference]]") -> None:
    """Print an exchange and its replay, and how they differ."""
    for label, record in (("then", before), ("now ", after)):
        status, _, rest = format_exchange(record).partition(" ")
        print_line((label, "muted"), " ", (status, _status_style(record)), f" {rest}", indent=5)
        if record.error:
            print_line(" " * 5, (record.error, "problem"), indent=5)
    for part, part_differences in differences.items():
        for difference in part_differences:
            print_line((part, "accent"), f" {difference}", indent=2)
    if not differences:
        print_line(("no difference", "good"))


def replay_as_json(before: "Record", after: "Record", differences: "Mapping[str, list[Difference]]") -> dict[str, Any]:
    """Return a replay as JSON data: the two exchanges without bodies, and the differences."""
    import msgspec

    from toolwire.journal.records import record_as_json

    then, now = (record_as_json(msgspec.structs.replace(record, bodies=None)) for record in (before, after))
    listed = [
        {"part": part, **msgspec.to_builtins(difference)} for part, items in differences.items() for difference in items
    ]
    return {"then": then, "now": now, "differences": listed}
