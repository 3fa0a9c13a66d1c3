"""`toolwire config`: show, trust and describe the configuration files."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolwire.cli.groups import CommandGroup
from toolwire.cli.inputs import BadInput, config_option, report_bad_input
from toolwire.cli.output.terminal import Style, json_option, print_error, print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolwire.gateway.config.overview import FileState


@click.group("config", cls=CommandGroup, short_help="Show, trust and describe the configuration files.")
def command() -> None:
    """Show, trust and describe the configuration files.

    Commands read toolwire.toml in the current folder over the user's file, ~/.config/toolwire/config.toml. With
    --config or TOOLWIRE_CONFIG they read only the file that it names. `toolwire init` writes a first file.

    \b
    Examples:
      toolwire config show
      toolwire config trust
    """


@command.command("show")
@config_option
@json_option("Print one JSON object.")
def show(*, config_path: Path | None, as_json: bool) -> None:
    """Show every value with the file and line that sets it.

    Secrets are hidden; an env:NAME is shown as such. Exit code 1: the configuration is invalid or needs trust.

    \b
    Examples:
      toolwire config show
    """
    from toolwire.gateway.config import ConfigError, load_config
    from toolwire.gateway.config.overview import inspect_config

    with report_bad_input():
        overview = inspect_config(config_path)
    error = None
    try:
        load_config(config_path)
    except ConfigError as problem:
        error = str(problem)
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(overview) | {"error": error})
    else:
        _print_files(overview.files)
        _print_environment()
        if overview.settings:
            click.echo()
        labels = [f"{setting.kind}:{setting.line}" for setting in overview.settings]
        width = max(map(len, labels), default=0)
        for label, setting in zip(labels, overview.settings, strict=True):
            print_line((f"{label:{width}}", "muted"), f"  {setting}", indent=width + 2)
        if error is not None:
            print_error(error)
    sys.exit(0 if error is None else 1)


def _print_files(files: "list[FileState]") -> None:
    """Print each file with its state."""
    for file in files:
        style: Style = "warning" if file.state.startswith(("not trusted", "changed")) else "muted"
        print_line((f"{file.kind:7}", "strong"), f"  {file.path} ", (f"({file.state})", style), indent=9)


def _print_environment() -> None:
    """Print the variables that stand for options, and those with keys, without their values."""
    from toolwire.gateway.providers.known_providers import KEY_VARIABLES

    if model := os.environ.get("TOOLWIRE_MODEL"):
        print_line(("model", "strong"), f"    {model} (TOOLWIRE_MODEL)", indent=9)
    names = [name for name in dict.fromkeys(KEY_VARIABLES.values()) if os.environ.get(name)]
    print_line(("keys", "strong"), f"     {', '.join(names) or 'none'} (used if no file sets providers)", indent=9)


@command.command("path", short_help="Show which files are read.")
@config_option
@json_option("Print a JSON list.")
def path(*, config_path: Path | None, as_json: bool) -> None:
    """Show which files are read, and whether they exist and are trusted.

    \b
    Examples:
      toolwire config path
    """
    from toolwire.gateway.config.overview import inspect_config

    with report_bad_input():
        files = inspect_config(config_path).files
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(files))
    else:
        _print_files(files)


@command.command("trust")
@click.argument("file", type=click.Path(path_type=Path), default=Path("toolwire.toml"), metavar="[PATH]")
@click.option("--revoke", is_flag=True, help="Trust the file no longer.")
def trust(file: Path, *, revoke: bool) -> None:
    """Trust a toolwire.toml, after you have read it.

    PATH is the file or its folder. A folder's file that sets providers, routes, programs or MCP servers could send your
    keys elsewhere or run programs, so commands use it only once you trust it. After a change it has to be trusted
    again. A file named with --config needs no trust.

    \b
    Examples:
      toolwire config trust
      toolwire config trust ~/projects/site/toolwire.toml
    """
    from toolwire.gateway.config import PROJECT_FILE, state_directory
    from toolwire.gateway.config.document import SourceText
    from toolwire.gateway.config.reading import read_text
    from toolwire.gateway.config.trust import TrustRecords, describe_keys, sensitive_keys

    file = file / PROJECT_FILE if file.is_dir() else file
    if file.name != PROJECT_FILE.name:
        raise BadInput(f"{file}: only a {PROJECT_FILE} needs trust; name any other file with --config")
    records = TrustRecords(state_directory(os.environ))
    with report_bad_input():
        if revoke:
            print_line(f"{file}: {'no longer trusted' if records.remove(file) else 'was not trusted'}")
            return
        if not os.path.lexists(file):
            raise BadInput(f"there is no {file} (`toolwire init` writes one)")
        text = read_text(file, regular=True)
        tree = SourceText(str(file), text).parse()
        # Also what another user's file could make sensitive.
        keys = sensitive_keys(tree, user_tree=tree)
        if keys:
            records.add(file, text)
    print_line(f"{file}: trusted; it sets {describe_keys(keys)}" if keys else f"{file}: needs no trust")
    for problem in _find_problems(file):
        print_line(("warning:", "warning"), f" {problem}", err=True)


def _find_problems(file: Path) -> "Iterator[str]":
    """Yield each problem that keeps commands in the file's folder, which also read the user's file, from using it."""
    from msgspec.structs import replace

    from toolwire.gateway.config import ConfigError, load_config
    from toolwire.gateway.config.loading import CONFIG_VARIABLE
    from toolwire.gateway.doctor import check_server
    from toolwire.gateway.providers.discovery import configured_providers
    from toolwire.gateway.signing_keys import describe_missing_keys
    from toolwire.gateway.start_checks import find_start_errors

    environment = {name: value for name, value in os.environ.items() if name != CONFIG_VARIABLE}
    try:
        loaded = load_config(None, environment, file)
    except ConfigError as error:
        yield str(error)
        return
    config = loaded.config
    providers = {
        # No server is asked here: an Ollama may have any model.
        name: replace(provider, models=("*",)) if provider.protocol == "ollama" else provider
        for name, provider in configured_providers(config, environment).items()
    }
    yield from map(str, find_start_errors(loaded, providers, None))
    if (missing := describe_missing_keys(config)) is not None:
        yield missing
    access = check_server(config.server, len(config.keys))
    if access.advice:
        yield f"{access.detail}: {access.advice}"


@command.command("schema", short_help="Print the JSON Schema of the files.")
def schema() -> None:
    """Print the JSON Schema of the files, for completion and checks in an editor.

    Editors with Taplo use it if the first line of toolwire.toml names it:

    \b
      #:schema ./toolwire.schema.json

    \b
    Examples:
      toolwire config schema > toolwire.schema.json
    """
    from toolwire.gateway.config.schema import read_schema

    click.echo(read_schema(), nl=False)
