"""What connections to SQLite and PostgreSQL have in common: statements with named parameters (`:name`)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol


class Cursor(Protocol):
    """The rows of a query, or the number of rows that a statement changed."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class SqlConnection(Protocol):
    """What connections to SQLite and PostgreSQL have in common; each statement commits unless in a transaction."""

    def execute(self, statement: str, values: Mapping[str, Any] = ..., /) -> Cursor: ...

    def executemany(self, statement: str, values: Iterable[Mapping[str, Any]], /) -> Cursor: ...

    def close(self) -> None: ...
