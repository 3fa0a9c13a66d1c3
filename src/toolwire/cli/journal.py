"""`toolwire journal`: what the gateway recorded: shown, sent again, packed for a bug report."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolwire.cli.inputs import DEFAULT_CONFIG, BadInput, report_bad_input, require_extra

if TYPE_CHECKING:
    from toolwire.gateway.config import Config
    from toolwire.journal.records import Record
    from toolwire.journal.redaction import Redactor
    from toolwire.journal.store import RecordStore

LAST = "last"
_POLL_SECONDS = 0.5
_Command = TypeVar("_Command", bound=Callable[..., None])


@click.group("journal", short_help="Look at, replay and export what the gateway recorded.")
def command() -> None:
    """Look at what the gateway recorded, send it again, or pack it for a bug report.

    \b
    The gateway records exchanges if its configuration says so:
      [journal]
      enabled = true
      bodies = true     # needed to replay
    """


def _journal_options(function: _Command) -> _Command:
    """The options that say which journal is meant."""
    file = click.Path(path_type=Path)
    function = click.option(
        "--config",
        "config_path",
        type=file,
        metavar="FILE",
        help=f"The gateway's. Default: {DEFAULT_CONFIG}, if there.",
    )(function)
    named = "Default: the one that the configuration names, or the user's."
    return click.option("--journal", "path", type=file, metavar="FILE", help=named)(function)


_ID_ARGUMENT = click.argument("id", metavar="ID")


@command.command("tail")
@click.option("-n", "--lines", type=click.IntRange(0), default=20, metavar="N", help="How many. Default: 20.")
@click.option("-f", "--follow", is_flag=True, help="Go on, as exchanges come, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, without bodies.")
@_journal_options
def tail(*, lines: int, follow: bool, as_json: bool, path: Path | None, config_path: Path | None) -> None:
    """Show the latest exchanges, one per line, the newest last.

    \b
    Example:
      toolwire journal tail -n 5
    """
    with _open_journal(path, config_path) as (store, _, redactor):
        found = store.latest(lines)
        last = max((number for number, _ in (found or store.latest(1))), default=0)
        while True:
            for number, record in found:
                shown = redactor.redact_record(record)
                click.echo(_compact_json(shown) if as_json else _format_record(shown))
                last = number
            if not follow:
                return
            time.sleep(_POLL_SECONDS)
            found = store.records_after(last)


@command.command("show")
@_ID_ARGUMENT
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object.")
@_journal_options
def show(*, id: str, as_json: bool, path: Path | None, config_path: Path | None) -> None:
    """Show all that was recorded of the exchange ID, or of the `last` one.

    ID is what the gateway's log and the header `toolwire-exchange` say.

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
@click.option("--to", metavar="PROVIDER[/MODEL]", help="Send it there. Default: where it went.")
@click.option("--all", "anew", is_flag=True, help="Also what every answer has anew: ids, times, signatures.")
@_journal_options
def replay(*, id: str, to: str | None, anew: bool, path: Path | None, config_path: Path | None) -> None:
    """Send the exchange ID, or the `last` one, again, and show what differs, field by field.

    The recorded request is translated anew, as this version does it, and goes to the provider that answered it, or to
    the one that --to names. Requests are compared as the provider gets them, answers as the client does. Nothing is
    recorded. Exit code 0: no difference. 1: there are some. 2: it can't be replayed.

    \b
    Example:
      toolwire journal replay last --to gemini/gemini-3-pro
    """
    with _open_journal(path, config_path) as (store, config, redactor):
        import asyncio

        from toolwire.gateway.observability.replay import replay_exchange as send_again
        from toolwire.journal.differences import compare_records

        before = redactor.redact_record(_find_record(store, id))
        after = asyncio.run(send_again(config, os.environ, before, to))
        click.echo(f"then {_format_exchange(before)}")
        click.echo(f"now  {_format_exchange(after)}")
        found = compare_records(before, after, include_volatile=anew)
    for part, told in found.items():
        for difference in told:
            click.echo(_escape_unprintable(f"{part} {difference}"))
    if found:
        sys.exit(1)
    click.echo("no difference")


@command.command("export")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Default: toolwire-ID.zip.")
@_journal_options
def export(*, ids: tuple[str, ...], output: Path | None, path: Path | None, config_path: Path | None) -> None:
    """Pack exchanges into a zip file for a bug report.

    Known keys, and what looks like one, are taken out. Read it before you pass it on: what was said is in it, if bodies
    were recorded.

    \b
    Example:
      toolwire journal export last -o bug.zip
    """
    with _open_journal(path, config_path) as (store, _, redactor):
        from toolwire import __version__
        from toolwire.journal.bundle import build_bundle
        from toolwire.journal.store import write_private_file

        records = [_find_record(store, id) for id in ids]
        target = output or Path(f"toolwire-{records[0].id}.zip")
        write_private_file(target, build_bundle(records, redactor, __version__))
    click.echo(str(target))


@contextmanager
def _open_journal(path: Path | None, config_path: Path | None) -> Iterator[tuple["RecordStore", "Config", "Redactor"]]:
    """The journal, the configuration that it belongs to, and what takes secrets out of it."""
    with report_bad_input(), require_extra("gateway"):
        from toolwire.gateway.config import Config, build_provider, configured_secrets, journal_path, read_config
        from toolwire.gateway.providers.discovery import discover_providers
        from toolwire.journal.redaction import Redactor
        from toolwire.journal.store import open_existing_store

        found = config_path or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)
        config = Config() if found is None else read_config(found)
        store = open_existing_store(path or journal_path(config, os.environ))
        providers = [build_provider(name, section) for name, section in config.providers.items()]
        providers += discover_providers(os.environ).values()
        try:
            yield store, config, Redactor(configured_secrets(config, providers))
        finally:
            store.close()


def _find_record(store: "RecordStore", id: str) -> "Record":
    if id == LAST:
        latest = store.latest(1)
        if not latest:
            raise BadInput("the journal is empty")
        return latest[0][1]
    if (record := store.find(id)) is None:
        raise BadInput(f"there is no exchange {id!r} in the journal: see `toolwire journal tail`")
    return record


# ---- how it is shown


def _escape_unprintable(text: str) -> str:
    """Nothing that a terminal would obey."""
    return "".join(one if one.isprintable() or one == "\n" else f"\\x{ord(one):02x}" for one in text)


def _format_exchange(record: "Record") -> str:
    to = f"{record.provider}/{record.model} ({record.protocol})" if record.protocol else "nobody"
    return _escape_unprintable(f"{record.status} {record.client} -> {to} {record.ended * 1000:.0f}ms")


def _format_record(record: "Record") -> str:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.at))
    parts = [moment, _format_exchange(record)]
    if record.streamed:
        parts.append("stream")
    if record.usage:
        parts.append(f"in={record.usage.get('input_tokens', 0)} out={record.usage.get('output_tokens', 0)}")
    if record.losses:
        parts.append(f"losses={len(record.losses)}")
    parts.append(record.id)
    if record.error:
        parts.append(f"| {' '.join(record.error.split())[:300]}")
    return _escape_unprintable(" ".join(parts))


def _record_lines(record: "Record") -> Iterator[str]:
    yield _format_record(record)
    yield _escape_unprintable(f"path {record.path}, toolwire {record.toolwire}")
    moments = (("translated", record.sent), ("answered", record.answered), ("ended", record.ended))
    yield "after " + ", ".join(f"{told} {moment * 1000:.1f}ms" for told, moment in moments if moment is not None)
    if record.usage:
        yield "usage " + ", ".join(f"{name} {count}" for name, count in record.usage.items())
    for loss in record.losses:
        yield _escape_unprintable(f"{loss.kind} {loss.path}: {loss.reason}")
    if record.bodies is None:
        yield "no bodies were recorded: journal.bodies"
        return
    from toolwire.journal.records import body_content

    for name, data in record.bodies.by_name.items():
        value = body_content(data)
        yield f"\n--- {name}, {len(data)} bytes"
        yield _escape_unprintable(value) if isinstance(value, str) else _pretty_json(value)


def _pretty_json(value: Any) -> str:
    return _escape_unprintable(json.dumps(value, indent=2, ensure_ascii=False))


def _compact_json(record: "Record") -> str:
    from msgspec.structs import replace

    from toolwire.journal.records import record_as_json

    return json.dumps(record_as_json(replace(record, bodies=None)))
