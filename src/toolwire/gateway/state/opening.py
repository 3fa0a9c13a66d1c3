"""Opening the store that the configuration names."""

from collections.abc import Mapping
from pathlib import Path

from toolwire.gateway.config import ConfigError, StateSection
from toolwire.gateway.seals import state_folder
from toolwire.journal.files import DatabaseUnusable, make_private, open_database

from .sqlite import MEMORY, SCHEMA, Bounds, SqliteStore


def require_file(section: StateSection, environment: Mapping[str, str]) -> None:
    """Raise a `ConfigError` unless the state is a file that several workers can share."""
    if section.path == MEMORY:
        raise ConfigError('state.path: ":memory:" is not shared: --workers needs a file, or one worker')
    path = state_path(section, environment)
    try:
        make_private(path)
    except OSError as error:
        why = f"state.path: {path}: {error.strerror}: --workers needs a state file that can be written, or one worker"
        raise ConfigError(why) from None


def opened(section: StateSection, environment: Mapping[str, str]) -> SqliteStore:
    """Open the store. Where there is no place for a file, and none was named, it is in memory.

    A file that is damaged or in use is reported, and the gateway serves what needs no state.
    """
    bounds = Bounds(section.ttl, section.rows, section.bytes, section.queue)
    if section.path == MEMORY:
        return SqliteStore(MEMORY, bounds)
    path = state_path(section, environment)
    try:
        make_private(path)
    except OSError as error:
        if section.path is not None:
            raise ConfigError(f"state.path: {section.path}: {error.strerror}") from None
        return SqliteStore(MEMORY, bounds)
    try:
        open_database(path, SCHEMA).close()  # a connection can't be taken along by a process that forks
    except DatabaseUnusable as trouble:
        return SqliteStore(str(path), bounds, trouble=trouble)
    return SqliteStore(str(path), bounds)


def state_path(section: StateSection, environment: Mapping[str, str]) -> Path:
    return state_folder(environment) / "state.db" if section.path is None else Path(section.path)
