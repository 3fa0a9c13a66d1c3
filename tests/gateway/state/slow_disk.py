"""A gateway with a slow disk, run as a process by `test_crash_durability.py`.

It creates a file `writing` before it stores anything, and continues once a file `go` exists.
"""

import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from toolwire.cli import main
from toolwire.gateway.state.sqlite_store import SqliteStateStore
from toolwire.gateway.state.store import Row

insert = SqliteStateStore._insert_rows


def insert_slowly(self: SqliteStateStore, connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    Path("writing").touch()
    while not Path("go").exists():
        time.sleep(0.005)
    insert(self, connection, rows)


if __name__ == "__main__":
    SqliteStateStore._insert_rows = insert_slowly  # type: ignore[method-assign, assignment]
    sys.argv[0] = "toolwire"
    main()
