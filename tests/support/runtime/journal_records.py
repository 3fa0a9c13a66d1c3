"""Journal records for tests."""

import time
from collections.abc import Sequence

from toolwire.journal.records import Bodies, Record, RecordBatch, pack_records


def make_record(number: int, *, age: float = 0, body: int | None = None) -> Record:
    """Return record N with this age in seconds and a body of this many bytes."""
    bodies = None if body is None else Bodies(request=b"x" * body)
    return Record(id=f"ex_{number}", at=time.time() - age, toolwire="0", client="anthropic", path="/", bodies=bodies)


def make_batch(records: Sequence[Record]) -> RecordBatch:
    return RecordBatch([pack_records(records, Record.to_record)])
