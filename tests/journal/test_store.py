"""The record store: permissions, lookup and pruning."""

import contextlib
import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.postgres import POSTGRES
from tests.support.runtime.journal_records import make_batch, make_record
from toolwire.canonical.errors import Loss
from toolwire.codec.interface import Route
from toolwire.journal.postgres_records import PostgresRecordStore
from toolwire.journal.records import Bodies, Record, encode_records
from toolwire.journal.sqlite_files import DatabaseUnusable
from toolwire.journal.store import (
    JournalError,
    RecordStore,
    open_existing_store,
    open_record_store,
    write_private_file,
)

DAY = 86_400
LARGE = 1 << 30


@pytest.fixture(params=["file", POSTGRES])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    return str(request.getfixturevalue("postgres_url")) if request.param == "postgres" else tmp_path


def opened(location: Path | str, *, days: float = 1, size: int = LARGE) -> RecordStore:
    if isinstance(location, str):
        return PostgresRecordStore(location, max_age_days=days, max_bytes=size, prune_interval=-1)
    return open_record_store(location / "kept" / "journal.db", max_age_days=days, max_bytes=size)


def ids(store: RecordStore, count: int = 1_000_000) -> list[str]:
    return [record.id for _, record in store.latest(count)]


def test_equal_losses_are_stored_once(tmp_path: Path) -> None:
    """Each record keeps its own losses, whatever its neighbors have."""
    one = [Loss(severity="warning", direction="request", kind="dropped", path="/one", reason="it has no counterpart")]
    other = [
        Loss(severity="warning", direction="request", kind="dropped", path="/other", reason="it has no counterpart"),
        *one,
    ]
    lost = [one, one, other, [], one, other, other, [], []]
    records = [replace(make_record(number), losses=list(losses)) for number, losses in enumerate(lost)]
    with contextlib.closing(opened(tmp_path)) as store:
        store.add(make_batch(records))
        assert [record.losses for _, record in store.latest(len(lost))] == lost
    assert [record.losses for record in records] == lost
    alike, apart = [replace(make_record(n), losses=one) for n in range(9)], [replace(make_record(n)) for n in range(9)]
    assert len(encode_records(alike)) < len(encode_records(apart)) + 2 * len(msgspec.json.encode(one)) + 9 * 15


OTHERS: dict[str, Any] = {
    "id": "ex_other",
    "at": 5.5,
    "toolwire": "9",
    "client": "ollama",
    "path": "/api/chat",
    "route": Route(model="m", headers=(("a", "b"),)),
    "tenant": "you",
    "strict": True,
    "provider": "p",
    "protocol": "gemini",
    "model": "n",
    "status": 500,
    "streamed": True,
    "error": "it was broken",
    "sent": 0.5,
    "answered": 0.75,
    "ended": 1.5,
    "usage": {"input_tokens": 3, "total": 4},
    "cost": 0.000000123,
    "response_id": "msg_1",
    "response_model": "big",
    "stop_reasons": ["end_turn"],
    "calls": {"valid": 2},
    "losses": [
        Loss(severity="warning", direction="request", kind="dropped", path="/one", reason="it has no counterpart")
    ],
    "traceparent": "00-1",
    "bodies": Bodies(request=b"{}"),
}


@pytest.mark.parametrize("name", Record.__struct_fields__)
def test_record_with_a_changed_field_is_stored_completely(tmp_path: Path, name: str) -> None:
    one = make_record(1)
    other = replace(one, **{name: OTHERS[name]})
    assert other != one
    records = [one, other, one, one, other, other, replace(one, id="ex_3", at=7.5)]
    with contextlib.closing(opened(tmp_path)) as store:
        store.add(make_batch(records))
        assert [record for _, record in store.latest(9)] == records


def test_similar_records_store_only_unique_fields() -> None:
    alike = [replace(make_record(number), losses=OTHERS["losses"]) for number in range(50)]
    assert len(encode_records(alike)) < len(encode_records(alike[:1])) + 49 * 45


def test_record_round_trip(location: Path | str) -> None:
    record = Record(
        id="ex_1",
        at=1e9,
        toolwire="1.2",
        client="gemini",
        path="/v1beta/models/m:generateContent",
        route=Route(model="m", stream=True, version="v"),
        tenant="t",
        strict=True,
        provider="up",
        protocol="anthropic",
        model="claude",
        status=200,
        streamed=True,
        error="why",
        sent=0.1,
        answered=0.2,
        ended=0.3,
        usage={"input_tokens": 3},
        losses=[
            Loss(
                severity="warning",
                direction="request",
                kind="added",
                path="/a",
                reason="b",
                target="/c",
                constraint=True,
            )
        ],
        traceparent="00-0-0-00",
        bodies=Bodies(request=b'{"a":\xc3\xa4}', translated=b"\x00\xff", response=b"data: x\n\n"),
    )
    store = opened(location, days=100_000)
    store.add(make_batch([record]))
    assert store.find("ex_1") == record
    assert store.find("ex_2") is None
    store.close()


def test_records_are_found_by_the_beginning_of_their_id(location: Path | str) -> None:
    store = opened(location)
    store.add(make_batch([replace(make_record(number), id=f"ex_{number:04}") for number in range(3)]))
    store.add(make_batch([replace(make_record(1000), id="ex_1000"), replace(make_record(7), id="ex_10")]))
    found = [store.find(id) for id in ("ex_0001", "ex_100", "ex_10")]
    assert [record.id for record in found if record is not None] == ["ex_0001", "ex_1000", "ex_10"]
    assert (store.find("ex_0"), store.find("ex_9999"), store.find("")) == (None, None, None)
    with pytest.raises(JournalError, match="more than one exchange begins with 'ex_00': ex_0000, ex_0001, ex_0002"):
        store.find("ex_00")
    store.close()


def test_journal_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        store = opened(tmp_path)
        store.add(make_batch([make_record(1)]))
    finally:
        os.umask(mask)
    files = list((tmp_path / "kept").iterdir())
    assert {file.name for file in files} == {"journal.db", "journal.db-wal", "journal.db-shm"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700
    store.close()


def test_permissions_of_an_existing_file_are_restricted(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    path = tmp_path / "kept" / "journal.db"
    path.touch(0o644)
    opened(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_latest_records_and_later_ones_are_in_order(location: Path | str) -> None:
    store = opened(location)
    store.add(make_batch([make_record(number) for number in range(5)]))
    assert ids(store, 2) == ["ex_3", "ex_4"]
    assert ids(store, 0) == []
    number = store.latest(1)[0][0]
    store.add(make_batch([make_record(5)]))
    assert [record.id for _, record in store.records_after(number)] == ["ex_5"]
    assert ids(store, 3) == ["ex_3", "ex_4", "ex_5"]
    store.close()


def test_only_expired_records_are_pruned(location: Path | str) -> None:
    store = opened(location, days=2)
    for number in range(13):
        store.add(make_batch([make_record(number, age=(1.9 if number >= 10 else 2.1) * DAY)]))
    assert ids(store) == ["ex_10", "ex_11", "ex_12"]
    store.close()


def test_oldest_records_are_pruned_to_the_size_limit(location: Path | str) -> None:
    limit = 1_000_000
    store = opened(location, size=limit)
    for number in range(100):
        store.add(make_batch([make_record(number, body=50_000)]))
    kept = ids(store)
    assert kept[-1] == "ex_99"
    assert kept == [f"ex_{number}" for number in range(100 - len(kept), 100)]
    assert 10 <= len(kept) <= 20
    store.close()
    if isinstance(location, str):
        return
    assert (location / "kept" / "journal.db").stat().st_size <= limit + 100_000


def test_record_over_the_size_limit_is_pruned(location: Path | str) -> None:
    store = opened(location, size=100_000)
    store.add(make_batch([make_record(1, body=500_000)]))
    assert ids(store) == []
    store.close()


def test_several_processes_can_write(location: Path | str) -> None:
    first, second = opened(location), opened(location)
    for number in range(20):
        (first, second)[number % 2].add(make_batch([make_record(number)]))
    assert ids(second) == ids(first) == [f"ex_{number}" for number in range(20)]
    first.close()
    second.close()


def test_missing_or_invalid_journal_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no journal at"):
        open_existing_store(tmp_path / "none.db")
    (tmp_path / "text.db").write_text("no database, but long enough to look like one" * 100)
    store = open_existing_store(tmp_path / "text.db")
    with pytest.raises(JournalError, match="not a database"):
        store.latest(1)
    store.close()
    with pytest.raises(JournalError, match=r"text\.db"):
        open_record_store(tmp_path / "text.db" / "below.db", max_age_days=1, max_bytes=1)
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(JournalError, match=r"link\.db"):
        open_record_store(tmp_path / "link.db", max_age_days=1, max_bytes=1)
    assert not (tmp_path / "elsewhere.db").exists()


def test_bundle_does_not_overwrite_files(tmp_path: Path) -> None:
    write_private_file(tmp_path / "a.zip", b"a")
    assert stat.S_IMODE((tmp_path / "a.zip").stat().st_mode) == 0o600
    with pytest.raises(JournalError, match=r"a\.zip exists: remove it"):
        write_private_file(tmp_path / "a.zip", b"b")
    assert (tmp_path / "a.zip").read_bytes() == b"a"


def test_locked_journal_is_opened_by_the_first_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that could not open the journal exited, again and again, while another one was stopped with a lock."""
    monkeypatch.setattr("toolwire.journal.sqlite_files.LOCK_TIMEOUT", 0.01)
    opened(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / "kept" / "journal.db", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        store = opened(tmp_path)
        with pytest.raises(DatabaseUnusable, match="another process holds a lock"):
            store.add(make_batch([make_record(1)]))
    with contextlib.closing(store):
        store.add(make_batch([make_record(2)]))
        assert ids(store) == [make_record(2).id]


def test_failed_journal_is_reopened(tmp_path: Path) -> None:
    """After a full disk or repaired damage, records are written again without a restart."""
    store = open_record_store(tmp_path / "journal.db", max_age_days=1, max_bytes=1_000_000)
    large = Record(id="large", at=1e12, toolwire="0", client="anthropic", path="/", error="x" * 100_000)
    store._connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(DatabaseUnusable, match="database or disk is full"):
        store.add(make_batch([large]))
    store.add(make_batch([large]))
    assert [record.id for _, record in store.latest(10)] == ["large"]
    store.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("PRAGMA user_version = 99", "written by a newer toolwire"),
        ("ALTER TABLE batches DROP COLUMN records", "table batches has no column records"),
    ],
)
def test_journal_with_another_schema_is_refused(change: str, message: str, tmp_path: Path) -> None:
    """For writing and for reading."""
    path = tmp_path / "journal.db"
    open_record_store(path, max_age_days=1, max_bytes=1_000_000).close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    with pytest.raises(JournalError, match=message):
        open_record_store(path, max_age_days=1, max_bytes=1_000_000)
    with pytest.raises(JournalError, match=message):
        open_existing_store(path).latest(1)
