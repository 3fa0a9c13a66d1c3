"""Records to keep."""

import time
from collections.abc import Sequence

from toolwire.journal.records import Batch, Bodies, Record, packed


def made(number: int, *, age: float = 0, body: int | None = None) -> Record:
    """The record of this number, so many seconds old, with a body of so many bytes."""
    bodies = None if body is None else Bodies(request=b"x" * body)
    return Record(id=f"ex_{number}", at=time.time() - age, toolwire="0", client="anthropic", path="/", bodies=bodies)


def batch(records: Sequence[Record]) -> Batch:
    return Batch([packed(records, Record.record)])
