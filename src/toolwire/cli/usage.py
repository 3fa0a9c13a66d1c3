"""`toolwire usage`: print what keys have used, in tokens and dollars."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolwire.cli.inputs import BadInput, NumberOption, config_option, report_bad_input
from toolwire.cli.output.terminal import Column, Table, format_dollars, json_option, print_json, print_line

if TYPE_CHECKING:
    from toolwire.gateway.keys.ledger import Reservation, UsageRow

_GROUPS: "dict[str, Callable[[UsageRow], str]]" = {
    "key": lambda row: row.owner or "(no key)",
    "model": lambda row: f"{row.provider}/{row.model}".rstrip("/"),
    "day": lambda row: row.day,
}
_COUNTS = ("requests", "input_tokens", "output_tokens", "cache_read", "cache_write", "unpriced")
_DAY_SECONDS = 86_400
_UNSETTLED_SECONDS = 3600
"""The age at which a reservation probably belongs to a gateway that was killed."""
_MAX_LISTED = 20


@click.command("usage", short_help="Print what keys have used, in tokens and dollars.")
@config_option
@click.option("--by", type=click.Choice(list(_GROUPS)), default="key", help="Default: key.")
@click.option(
    "--days",
    cls=NumberOption,
    type=click.IntRange(min=1),
    default=30,
    metavar="N",
    help="Include the last N days (UTC). Default: 30.",
)
@json_option("Print one JSON object.")
def command(config_path: Path | None, by: str, days: int, *, as_json: bool) -> None:
    """Print what the clients of the gateway have used, by key, by model or by day.

    Prices are those of the configuration, or of `toolwire[prices]`. Requests to models without a price are counted
    apart: their cost is unknown. A gateway writes its counts once a second.

    \b
    Examples:
      toolwire usage
      toolwire usage --by model --days 7
      toolwire usage --by day --json
    """
    with report_bad_input():
        rows, reservations = _read_ledger(config_path, days)
    sums = _sum_rows(rows, _GROUPS[by])
    oldest = time.time() - _UNSETTLED_SECONDS
    unsettled = [one for one in reservations if one.at < oldest]
    in_progress = [one for one in reservations if one.at >= oldest]
    dollars = sum(one.nanodollars for one in in_progress) / 1e9
    if as_json:
        entries = [{by: name, **counts} for name, counts in sums]
        reserved = {"requests": len(in_progress), "dollars": dollars}
        described = [_describe_reservation(one) for one in unsettled]
        print_json({"usage": entries, "in_progress": reserved, "unsettled": described})
        return
    if not rows:
        print_line(f"no usage in the last {days} days", err=True)
    else:
        _print_table(by, sums)
    if in_progress:
        requests = "1 request" if len(in_progress) == 1 else f"{len(in_progress)} requests"
        print_line((f"in progress: {requests}, at most {format_dollars(dollars)}", "muted"), err=True)
    for one in unsettled[:_MAX_LISTED]:
        text = f"unsettled: {one.id} of {one.owner}, at most {format_dollars(one.nanodollars / 1e9)} for {one.model}"
        print_line((text, "warning"), err=True)
    if len(unsettled) > _MAX_LISTED:
        print_line((f"and {len(unsettled) - _MAX_LISTED} more, which --json lists", "warning"), err=True)


def _read_ledger(config_path: Path | None, days: int) -> "tuple[list[UsageRow], list[Reservation]]":
    """Return the usage of the last days, and the reservations of requests that have not ended."""
    from msgspec.structs import replace

    from toolwire.gateway.config import load_config
    from toolwire.gateway.keys.ledger import IN_MEMORY, day_of
    from toolwire.gateway.keys.ledger_file import open_ledger
    from toolwire.gateway.server.auth import secret_tenant
    from toolwire.journal.sqlite_files import DatabaseUnusable

    config = load_config(config_path).config
    section, keys = config.state, config.server.keys
    names = {secret_tenant(key.encode()): f"server.keys[{number}]" for number, key in enumerate(keys)}
    if section.url is None and section.path == IN_MEMORY:
        raise BadInput('the gateway keeps its usage in memory (state.path = ":memory:"): set a file')
    ledger = open_ledger(section, os.environ)
    try:
        rows = ledger.usage_since(day_of(time.time() - (days - 1) * _DAY_SECONDS))
        return [replace(row, owner=names.get(row.owner, row.owner)) for row in rows], ledger.reservations()
    except DatabaseUnusable as error:
        raise BadInput(f"usage: {error}") from None
    finally:
        ledger.close()


def _sum_rows(rows: "Sequence[UsageRow]", group: "Callable[[UsageRow], str]") -> list[tuple[str, dict[str, Any]]]:
    """Return the counts and the dollars of each group: the most expensive first, but days in order."""
    sums: dict[str, dict[str, Any]] = {}
    for row in rows:
        counts = sums.setdefault(group(row), {**dict.fromkeys(_COUNTS, 0), "dollars": 0.0})
        for name in _COUNTS:
            counts[name] += getattr(row, name)
        counts["dollars"] += row.nanodollars / 1e9
    if group is _GROUPS["day"]:
        return sorted(sums.items())
    return sorted(sums.items(), key=lambda item: (-item[1]["dollars"], -item[1]["input_tokens"], item[0]))


def _describe_reservation(reservation: "Reservation") -> dict[str, Any]:
    """Return a reservation as JSON."""
    return {
        "id": reservation.id,
        "key": reservation.owner,
        "model": reservation.model,
        "at": reservation.at,
        "dollars": reservation.nanodollars / 1e9,
    }


def _print_table(by: str, sums: list[tuple[str, dict[str, Any]]]) -> None:
    """Print one line for each group, and the sum."""
    titles = ("requests", "input", "cached", "output", "cost")
    rows = [(name, *_format_counts(counts)) for name, counts in sums]
    if len(sums) > 1:
        total = {name: sum(counts[name] for _, counts in sums) for name in (*_COUNTS, "dollars")}
        rows.append(("total", *_format_counts(total)))
    Table(Column(by, is_flexible=True), *[Column(title, align_right=True) for title in titles]).print_rows(rows)
    if unpriced := sum(counts["unpriced"] for _, counts in sums):
        requests = "1 request" if unpriced == 1 else f"{unpriced} requests"
        print_line((f"* without {requests} to models whose price is unknown", "muted"), err=True)


def _format_counts(counts: dict[str, Any]) -> tuple[str, ...]:
    """Return the columns of one line."""
    star = "*" if counts["unpriced"] else ""
    numbers = [f"{counts[name]:,}" for name in ("requests", "input_tokens", "cache_read", "output_tokens")]
    return (*numbers, f"{format_dollars(counts['dollars'])}{star}")
