"""Reading of configuration files: bytes to a validated `Config`."""

import os
import stat
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from toolwire.codec.env_references import variable_name
from toolwire.gateway.config.aliases import with_resolved_aliases
from toolwire.gateway.config.checks import check_config
from toolwire.gateway.config.document import Document, SourceText, resolve_environment
from toolwire.gateway.config.errors import ConfigError, KeyProblem, UnknownKey
from toolwire.gateway.config.sections import Config
from toolwire.gateway.config.type_checks import find_problems

MAX_FILE_BYTES = 256 * 1024
ConfigSource: TypeAlias = Config | Path | str
"""A configuration, or the path of its file."""


def read_config(path: Path, environment: Mapping[str, str] = os.environ) -> Config:
    """Read one configuration file; errors name the file, the position and the key."""
    return parse_config(read_text(path), environment, str(path))


def resolve_config(source: ConfigSource | None) -> Config:
    """Return the configuration that an argument `config` stands for: itself, that of a file, or the default."""
    match source:
        case None:
            return Config()
        case Config():
            return source
        case str() | Path():
            return read_config(Path(source).expanduser())
        case _:
            kind = type(source).__name__  # without its contents, which may hold keys
            raise TypeError(f"config must be a Config or the path of a configuration file, not of type {kind}")


def parse_config(text: str, environment: Mapping[str, str], name: str = "toolwire.toml") -> Config:
    """Parse and validate the text of a configuration file."""
    source = SourceText(name, text)
    return build_config(Document([(source, source.parse())]), environment)


def build_config(document: Document, environment: Mapping[str, str]) -> Config:
    """Validate the merged contents of the files."""
    try:
        tree = resolve_environment(document.tree, environment)
        try:
            config = msgspec.convert(tree, Config)
        except msgspec.ValidationError as error:
            raise min(find_problems(tree, config_type()), key=document.sort_key, default=None) or KeyProblem(
                (), str(error)
            ) from None
        check_config(config)
        return with_resolved_aliases(config)
    except KeyProblem as problem:
        raise document.error(problem) from None


def check_key_names(document: Document) -> None:
    """Raise `ConfigError` for the first unknown key; ignore invalid values."""
    problems = find_problems(document.tree, config_type())
    unknown = [problem for problem in problems if isinstance(problem, UnknownKey)]
    if unknown:
        raise document.error(min(unknown, key=document.sort_key))


@cache
def config_type() -> inspect.Type:
    """Return the description of the configuration's type."""
    return inspect.type_info(Config)


def read_text(path: Path, *, regular: bool = False) -> str:
    """Read the text of a file of limited size; with `regular`, refuse devices and pipes."""
    try:
        # A pipe without a writer must not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (os.O_NONBLOCK if regular else 0))
        with os.fdopen(descriptor, "rb") as file:
            if regular and not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{path}: not a regular file")
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_FILE_BYTES // 1024} KB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None


def key_variables(tree: Mapping[str, Any]) -> dict[str, str]:
    """Return, by provider, the environment variable of its `api_key`, for providers that use `env:`."""
    providers = tree.get("providers", {})
    names = {name: variable_name(table.get("api_key")) for name, table in providers.items()}
    return {name: variable for name, variable in names.items() if variable is not None}


def override_server(config: Config, host: str | None, port: int | None) -> Config:
    """Return the configuration with another host or port, each unless it is None."""
    server = config.server
    server = replace(server, host=server.host if host is None else host, port=server.port if port is None else port)
    return replace(config, server=server)


def override_journal(config: Config, *, record: bool, bodies: bool) -> Config:
    """Return the configuration with the journal on if `record` or `bodies` is set, and with bodies if `bodies` is."""
    journal = config.journal
    enabled, with_bodies = journal.enabled or record or bodies, journal.bodies or bodies
    return replace(config, journal=replace(journal, enabled=enabled, bodies=with_bodies))
