"""Open the configured state store: a PostgreSQL database, a file, or memory."""

from collections.abc import Mapping
from pathlib import Path

from toolwire.gateway.config import ConfigError, StateSection, state_directory
from toolwire.gateway.state.postgres_store import PostgresStateStore
from toolwire.gateway.state.sqlite_store import IN_MEMORY, STATE_SCHEMA, SqliteStateStore
from toolwire.gateway.state.store import StateStore, StoreLimits
from toolwire.journal.sqlite_files import LOCATION_ADVICE, DatabaseUnusable, create_private_file, open_database


def require_shared_file(section: StateSection, environment: Mapping[str, str]) -> None:
    """Raise `ConfigError` unless the state is in a database or file that several workers can share."""
    if section.url is not None:
        return
    if section.path == IN_MEMORY:
        raise ConfigError('state.path: ":memory:" can\'t be shared by workers: use a file, or --workers 1')
    path = state_path(section, environment)
    try:
        create_private_file(path)
    except OSError as error:
        message = (
            f"state.path: {path}: {error.strerror}: several workers need a writable state file (or use --workers 1)"
        )
        raise ConfigError(message) from None


def open_store(section: StateSection, environment: Mapping[str, str]) -> StateStore:
    """Open the configured store; if no path is configured and no file can be created, use memory.

    A database that can't be reached, or a damaged or locked file, is reported, and the gateway serves requests that
    need no state.
    """
    limits = StoreLimits(section.ttl, section.rows, section.bytes, section.queue)
    if section.url is not None:
        return PostgresStateStore(section.url, limits)
    if section.path == IN_MEMORY:
        return SqliteStateStore(IN_MEMORY, limits)
    path = state_path(section, environment)
    try:
        create_private_file(path)
    except OSError as error:
        if section.path is not None:
            raise ConfigError(f"state.path: {section.path}: {error.strerror}; {LOCATION_ADVICE}") from None
        return SqliteStateStore(IN_MEMORY, limits)
    try:
        open_database(path, STATE_SCHEMA).close()  # a connection must not be shared with forked workers
    except DatabaseUnusable as failure:
        return SqliteStateStore(str(path), limits, failure=failure)
    return SqliteStateStore(str(path), limits)


def state_path(section: StateSection, environment: Mapping[str, str]) -> Path:
    """Return the path of the state database."""
    return state_directory(environment) / "state.db" if section.path is None else Path(section.path).expanduser()
