"""`toolwire journal`: show, replay and export the exchanges that the gateway recorded."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolwire.cli.groups import CommandGroup
from toolwire.cli.inputs import BadInput, NumberOption, config_option, report_bad_input
from toolwire.cli.output.exchange_report import ExchangeList, print_record, print_replay, replay_as_json
from toolwire.cli.output.terminal import json_option, print_json, print_line, show_progress
from toolwire.cli.values import complete_exchanges, complete_providers

if TYPE_CHECKING:
    from toolwire.gateway.config import Config
    from toolwire.journal.records import Record
    from toolwire.journal.redaction import Redactor
    from toolwire.journal.store import RecordStore

LAST = "last"
_POLL_SECONDS = 0.5
_Command = TypeVar("_Command", bound=Callable[..., None])


@click.group("journal", cls=CommandGroup, short_help="Show, replay and export recorded exchanges.")
def command() -> None:
    """Show exchanges that the gateway recorded, send them again, or export them for a bug report.

    The gateway records exchanges if it is started with --record-bodies, or if the configuration enables it:

    \b
      [journal]
      enabled = true
      bodies = true     # needed to replay

    \b
    Examples:
      toolwire journal tail -f
      toolwire journal show last
    """


def _journal_options(function: _Command) -> _Command:
    """Add the options that select the journal."""
    file_type = click.Path(path_type=Path)
    function = config_option(function)
    default_help = "Default: the journal that the configuration names, or the user's."
    return click.option("--journal", "path", type=file_type, metavar="FILE", help=default_help)(function)


_ID_ARGUMENT = click.argument("id", metavar="ID", shell_complete=complete_exchanges)


@command.command("tail")
@click.option(
    "-n",
    "--lines",
    cls=NumberOption,
    type=click.IntRange(0),
    default=20,
    metavar="N",
    help="Number of exchanges. Default: 20.",
)
@click.option("-f", "--follow", is_flag=True, help="Print new exchanges until Ctrl-C.")
@json_option("Print one JSON object per line, without bodies.")
@_journal_options
def tail(*, lines: int, follow: bool, as_json: bool, path: Path | None, config_path: Path | None) -> None:
    """Show the latest exchanges, newest last.

    On a terminal, a row has the beginning of the exchange's id, which `show` accepts; tokens in and out; and losses by
    severity: 1E is an error, 2W are two warnings. In a pipe, a line has the complete id.

    \b
    Examples:
      toolwire journal tail -n 5
      toolwire journal tail -f
    """
    with open_journal(path, config_path) as (store, _, redactor):
        listing = ExchangeList()
        records = store.latest(lines)
        last = max((number for number, _ in (records or store.latest(1))), default=0)
        if not last:
            print_line(("no exchanges are recorded yet", "muted"), err=True)
        while True:
            redacted = [redactor.redact_record(record) for _, record in records]
            if as_json:
                for record in redacted:
                    print_json(_record_as_json(record), indent=False)
            else:
                listing.print_records(redacted)
            last = max([last, *(number for number, _ in records)])
            if not follow:
                return
            sys.stdout.flush()
            time.sleep(_POLL_SECONDS)
            records = store.records_after(last)


@command.command("show")
@_ID_ARGUMENT
@click.option("--info", "with_info", is_flag=True, help="List losses of severity info, too, instead of their number.")
@click.option("--full", "in_full", is_flag=True, help="Print long bodies to their end on a terminal, too.")
@json_option("Print one JSON object, with all losses.")
@_journal_options
def show(
    *, id: str, with_info: bool, in_full: bool, as_json: bool, path: Path | None, config_path: Path | None
) -> None:
    """Show everything recorded for an exchange.

    ID is the exchange id from the gateway's log or the `toolwire-exchange` response header, a unique beginning of it,
    or `last`. If bodies were recorded: the client's request, the request to the provider, the provider's answer as it
    came, and the response to the client. On a terminal, the beginning of each; in a pipe, all of it.

    \b
    Examples:
      toolwire journal show last
    """
    with open_journal(path, config_path) as (store, _, redactor):
        record = redactor.redact_record(_find_record(store, id))
    if as_json:
        from toolwire.journal.records import record_as_json

        print_json(record_as_json(record))
    else:
        print_record(record, with_info=with_info, in_full=in_full)


@command.command("replay")
@_ID_ARGUMENT
@click.option(
    "--to",
    metavar="PROVIDER[/MODEL]",
    shell_complete=complete_providers,
    help="Send it to this provider. Default: the original one.",
)
@click.option(
    "--all", "include_volatile", is_flag=True, help="Include fields that always differ: ids, times, signatures."
)
@json_option("Print one JSON object.")
@_journal_options
def replay(
    *, id: str, to: str | None, include_volatile: bool, as_json: bool, path: Path | None, config_path: Path | None
) -> None:
    """Send an exchange again and show the differences.

    ID is the exchange id, or `last`. The recorded request is translated again by this version of toolwire and sent to
    the original provider, or to the one that --to names. Requests are compared as sent to the provider, responses as
    sent to the client, field by field. Nothing is recorded. Exit code 0: no difference. 1: differences. 2: the
    exchange can't be replayed.

    \b
    Examples:
      toolwire journal replay last --to gemini/gemini-3-pro
    """
    with open_journal(path, config_path) as (store, config, redactor):
        import asyncio

        from toolwire.gateway.observability.replay import replay_exchange
        from toolwire.journal.differences import compare_records

        before = redactor.redact_record(_find_record(store, id))
        with show_progress(f"sending {before.id} again"):
            after = asyncio.run(replay_exchange(config, os.environ, before, to))
        differences = compare_records(before, after, include_volatile=include_volatile)
    if as_json:
        print_json(replay_as_json(before, after, differences))
    else:
        print_replay(before, after, differences)
    if differences:
        sys.exit(1)


@command.command("export")
@click.argument("ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_exchanges)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Default: toolwire-ID.zip.")
@_journal_options
def export(*, ids: tuple[str, ...], output: Path | None, path: Path | None, config_path: Path | None) -> None:
    """Export exchanges as a zip file for a bug report.

    API keys, and anything that looks like one, are removed. Check the file before you share it: if bodies were
    recorded, it contains the conversation.

    \b
    Examples:
      toolwire journal export last -o bug.zip
    """
    with open_journal(path, config_path) as (store, _, redactor):
        from toolwire import __version__
        from toolwire.journal.store import build_bundle, write_private_file

        records = [_find_record(store, id) for id in ids]
        target = output or Path(f"toolwire-{records[0].id}.zip")
        write_private_file(target, build_bundle(records, redactor, __version__))
    click.echo(str(target))


@contextmanager
def open_journal(path: Path | None, config_path: Path | None) -> Iterator[tuple["RecordStore", "Config", "Redactor"]]:
    """Open the journal. Yield it with its configuration and the redactor of its secrets."""
    with report_bad_input():
        from toolwire.gateway.config import build_providers, build_redactor, journal_location, load_config
        from toolwire.gateway.providers.discovery import discover_providers
        from toolwire.journal.store import open_existing_store

        config = load_config(config_path).config
        store = open_existing_store(path or journal_location(config, os.environ))
        providers = list(build_providers(config).values())
        providers += discover_providers(os.environ).values()
        try:
            yield store, config, build_redactor(config, providers)
        finally:
            store.close()


def _find_record(store: "RecordStore", id: str) -> "Record":
    """Return the record of an exchange by its id or a unique beginning of it, or the latest for `last`."""
    if id == LAST:
        latest = store.latest(1)
        if not latest:
            raise BadInput("the journal is empty")
        return latest[0][1]
    if (record := store.find(id)) is None:
        raise BadInput(f"exchange not found: {id} (see `toolwire journal tail`)")
    return record


def _record_as_json(record: "Record") -> Any:
    """Return a record without its bodies as JSON data."""
    from msgspec.structs import replace

    from toolwire.journal.records import record_as_json

    return record_as_json(replace(record, bodies=None))
