"""Open the configured ledger: a PostgreSQL database, a file beside the state, or memory."""

from collections.abc import Mapping

from toolwire.gateway.config import StateSection
from toolwire.gateway.keys.ledger import IN_MEMORY, PostgresLedgerDatabase, SqliteLedgerDatabase, UsageLedger
from toolwire.gateway.state.store_file import state_path
from toolwire.journal.sqlite_files import create_private_file


def open_ledger(section: StateSection, environment: Mapping[str, str]) -> UsageLedger:
    """Open the ledger where the state is; if no path is configured and no file can be created, use memory."""
    if section.url is not None:
        return UsageLedger(PostgresLedgerDatabase(section.url))
    if section.path == IN_MEMORY:
        return UsageLedger(SqliteLedgerDatabase(IN_MEMORY))
    path = state_path(section, environment).with_name("usage.db")
    try:
        create_private_file(path)
    except OSError:
        return UsageLedger(SqliteLedgerDatabase(IN_MEMORY))
    return UsageLedger(SqliteLedgerDatabase(path))
