"""A gateway whose disk is slow: `test_killed.py` runs it, as a process. It says `writing` in a file of that name before
it stores anything, and goes on once there is a file `go`."""

import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from toolwire.cli import main
from toolwire.gateway.state.store import Row, SqliteStateStore

insert = SqliteStateStore._insert_rows


def insert_slowly(self: SqliteStateStore, connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    Path("writing").touch()
    while not Path("go").exists():
        time.sleep(0.005)
    insert(self, connection, rows)


if __name__ == "__main__":
    SqliteStateStore._insert_rows = insert_slowly  # type: ignore[method-assign]
    sys.argv[0] = "toolwire"
    main()
