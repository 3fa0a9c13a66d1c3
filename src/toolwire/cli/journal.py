"""`toolwire journal`: show, replay and export the exchanges that the gateway recorded."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolwire.cli.inputs import DEFAULT_CONFIG, BadInput, report_bad_input

if TYPE_CHECKING:
    from toolwire.gateway.config import Config
    from toolwire.journal.records import Record
    from toolwire.journal.redaction import Redactor
    from toolwire.journal.store import RecordStore

LAST = "last"
_POLL_SECONDS = 0.5
_Command = TypeVar("_Command", bound=Callable[..., None])


@click.group("journal", short_help="Show, replay and export recorded exchanges.")
def command() -> None:
    """Show exchanges that the gateway recorded, send them again, or export them for a bug report.

    \b
    The gateway records exchanges if the configuration enables it:
      [journal]
      enabled = true
      bodies = true     # needed to replay
    """


def _journal_options(function: _Command) -> _Command:
    """Add the options that select the journal."""
    file_type = click.Path(path_type=Path)
    function = click.option(
        "--config",
        "config_path",
        type=file_type,
        metavar="FILE",
        help=f"The gateway's configuration. Default: {DEFAULT_CONFIG}, if present.",
    )(function)
    default_help = "Default: the journal that the configuration names, or the user's."
    return click.option("--journal", "path", type=file_type, metavar="FILE", help=default_help)(function)


_ID_ARGUMENT = click.argument("id", metavar="ID")


@command.command("tail")
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=20, metavar="N", help="Number of exchanges. Default: 20."
)
@click.option("-f", "--follow", is_flag=True, help="Print new exchanges until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, without bodies.")
@_journal_options
def tail(*, lines: int, follow: bool, as_json: bool, path: Path | None, config_path: Path | None) -> None:
    """Show the latest exchanges, newest last.

    \b
    Example:
      toolwire journal tail -n 5
    """
    with _open_journal(path, config_path) as (store, _, redactor):
        records = store.latest(lines)
        last = max((number for number, _ in (records or store.latest(1))), default=0)
        while True:
            for number, record in records:
                redacted = redactor.redact_record(record)
                click.echo(_compact_json(redacted) if as_json else _format_record(redacted))
                last = number
            if not follow:
                return
            time.sleep(_POLL_SECONDS)
            records = store.records_after(last)


@command.command("show")
@_ID_ARGUMENT
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@_journal_options
def show(*, id: str, as_json: bool, path: Path | None, config_path: Path | None) -> None:
    """Show everything recorded for an exchange.

    ID is the exchange id from the gateway's log or the `toolwire-exchange` response header, or `last`.

    \b
    Example:
      toolwire journal show last
    """
    with _open_journal(path, config_path) as (store, _, redactor):
        record = redactor.redact_record(_find_record(store, id))
    if as_json:
        from toolwire.journal.records import record_as_json

        click.echo(json.dumps(record_as_json(record), indent=2))
        return
    for line in _record_lines(record):
        click.echo(line)


@command.command("replay")
@_ID_ARGUMENT
@click.option("--to", metavar="PROVIDER[/MODEL]", help="Send it to this provider. Default: the original one.")
@click.option(
    "--all", "include_volatile", is_flag=True, help="Include fields that always differ: ids, times, signatures."
)
@_journal_options
def replay(*, id: str, to: str | None, include_volatile: bool, path: Path | None, config_path: Path | None) -> None:
    """Send an exchange again and show the differences.

    ID is the exchange id, or `last`. The recorded request is translated again by this version of toolwire and sent to
    the original provider, or to the one that --to names. Requests are compared as sent to the provider, responses as
    sent to the client, field by field. Nothing is recorded. Exit code 0: no difference. 1: differences. 2: the
    exchange can't be replayed.

    \b
    Example:
      toolwire journal replay last --to gemini/gemini-3-pro
    """
    with _open_journal(path, config_path) as (store, config, redactor):
        import asyncio

        from toolwire.gateway.observability.replay import replay_exchange
        from toolwire.journal.differences import compare_records

        before = redactor.redact_record(_find_record(store, id))
        after = asyncio.run(replay_exchange(config, os.environ, before, to))
        click.echo(f"then {_format_exchange(before)}")
        click.echo(f"now  {_format_exchange(after)}")
        differences = compare_records(before, after, include_volatile=include_volatile)
    for part, part_differences in differences.items():
        for difference in part_differences:
            click.echo(_escape_unprintable(f"{part} {difference}"))
    if differences:
        sys.exit(1)
    click.echo("no difference")


@command.command("export")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Default: toolwire-ID.zip.")
@_journal_options
def export(*, ids: tuple[str, ...], output: Path | None, path: Path | None, config_path: Path | None) -> None:
    """Export exchanges as a zip file for a bug report.

    API keys, and anything that looks like one, are removed. Check the file before you share it: if bodies were
    recorded, it contains the conversation.

    \b
    Example:
      toolwire journal export last -o bug.zip
    """
    with _open_journal(path, config_path) as (store, _, redactor):
        from toolwire import __version__
        from toolwire.journal.store import build_bundle, write_private_file

        records = [_find_record(store, id) for id in ids]
        target = output or Path(f"toolwire-{records[0].id}.zip")
        write_private_file(target, build_bundle(records, redactor, __version__))
    click.echo(str(target))


@contextmanager
def _open_journal(path: Path | None, config_path: Path | None) -> Iterator[tuple["RecordStore", "Config", "Redactor"]]:
    """Open the journal. Yield it with its configuration and the redactor of its secrets."""
    with report_bad_input():
        from toolwire.gateway.config import Config, build_providers, configured_secrets, journal_path, read_config
        from toolwire.gateway.providers.discovery import discover_providers
        from toolwire.journal.redaction import Redactor
        from toolwire.journal.store import open_existing_store

        config_file = config_path or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)
        config = Config() if config_file is None else read_config(config_file)
        store = open_existing_store(path or journal_path(config, os.environ))
        providers = list(build_providers(config).values())
        providers += discover_providers(os.environ).values()
        try:
            yield store, config, Redactor(configured_secrets(config, providers))
        finally:
            store.close()


def _find_record(store: "RecordStore", id: str) -> "Record":
    """Return the record of an exchange by its id, or the latest for `last`."""
    if id == LAST:
        latest = store.latest(1)
        if not latest:
            raise BadInput("the journal is empty")
        return latest[0][1]
    if (record := store.find(id)) is None:
        raise BadInput(f"exchange not found: {id} (see `toolwire journal tail`)")
    return record


# ---- formatting


def _escape_unprintable(text: str) -> str:
    """Escape the characters that would control a terminal."""
    return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text)


def _format_exchange(record: "Record") -> str:
    """Format status, protocols, provider, model and duration of an exchange."""
    destination = f"{record.provider}/{record.model} ({record.protocol})" if record.protocol else "(not sent)"
    return _escape_unprintable(f"{record.status} {record.client} -> {destination} {record.ended * 1000:.0f}ms")


def _format_record(record: "Record") -> str:
    """Format a record as one line."""
    timestamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.at))
    fields = [timestamp, _format_exchange(record)]
    if record.streamed:
        fields.append("stream")
    if record.usage:
        fields.append(f"in={record.usage.get('input_tokens', 0)} out={record.usage.get('output_tokens', 0)}")
    if count := sum(loss.severity != "info" for loss in record.losses):
        fields.append(f"losses={count}")
    if count := sum(count for outcome, count in record.calls.items() if outcome != "valid"):
        fields.append(f"invalid_calls={count}")
    fields.append(record.id)
    if record.error:
        fields.append(f"| {' '.join(record.error.split())[:300]}")
    return _escape_unprintable(" ".join(fields))


def _record_lines(record: "Record") -> Iterator[str]:
    """Yield the lines that show a record, its losses and its bodies."""
    yield _format_record(record)
    yield _escape_unprintable(f"path {record.path}, toolwire {record.toolwire}")
    times = (("translated", record.sent), ("answered", record.answered), ("ended", record.ended))
    yield "after " + ", ".join(f"{stage} {seconds * 1000:.1f}ms" for stage, seconds in times if seconds is not None)
    if record.usage:
        yield "usage " + ", ".join(f"{name} {count}" for name, count in record.usage.items())
    if record.calls:
        yield "calls " + ", ".join(f"{outcome} {count}" for outcome, count in record.calls.items())
    for loss in record.losses:
        yield _escape_unprintable(f"{loss.direction} {loss}")
    if record.bodies is None:
        yield "no bodies recorded: set journal.bodies"
        return
    from toolwire.journal.records import body_content

    for name, data in record.bodies.by_name.items():
        value = body_content(data)
        yield f"\n--- {name}, {len(data)} bytes"
        yield _escape_unprintable(value) if isinstance(value, str) else _pretty_json(value)


def _pretty_json(value: Any) -> str:
    """Format a value as indented JSON that is safe to print on a terminal."""
    return _escape_unprintable(json.dumps(value, indent=2, ensure_ascii=False))


def _compact_json(record: "Record") -> str:
    """Format a record without its bodies as one line of JSON."""
    from msgspec.structs import replace

    from toolwire.journal.records import record_as_json

    return json.dumps(record_as_json(replace(record, bodies=None)))
