"""Leases: one holder per run at a time, across processes, threads and containers."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from tests.support.postgres import POSTGRES
from toolwire.journal.leases import LeaseHolder, LeaseTerms, current_holder, decode_holder
from toolwire.journal.runs import LeaseLost, RunInUse, RunStepLog, RunStore
from toolwire.journal.store import JournalError

PATIENCE = 60
ELSEWHERE = "pid:[1]"
APART = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", sys.executable)

HOLDS = """
import sys
from toolwire.journal.runs import RunStore
runs = RunStore(sys.argv[1])
held = runs.begin("run", b"{}") if sys.argv[2] == "begin" else runs.resume("run")
held.begin("one", b"")
print("held", flush=True)
sys.stdin.read()
"""


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=["file", POSTGRES])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.getfixturevalue("postgres_url")) if request.param == "postgres" else str(tmp_path / "runs.db")


@pytest.fixture(autouse=True)
def close_stores() -> Iterator[None]:
    yield
    while _OPEN_STORES:
        _OPEN_STORES.pop().close()


_OPEN_STORES: list[RunStore] = []


def opened(location: str, clock: Clock | None = None) -> RunStore:
    _OPEN_STORES.append(RunStore(location, lease_terms=LeaseTerms(clock=clock or Clock())))
    return _OPEN_STORES[-1]


def held_by(runs: RunStore, holder: LeaseHolder) -> None:
    runs._database.update("UPDATE runs SET holder = :holder", {"holder": holder.encode()})


@contextlib.contextmanager
def holding(
    location: str, deed: str = "begin", command: tuple[str, ...] = (sys.executable,)
) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the run."""
    process = subprocess.Popen(
        [*command, "-c", HOLDS, location, deed],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def says(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_run_in_use_is_refused_within_the_same_process(location: str) -> None:
    """The run is refused by the same `RunStore` and by another one in the process."""
    runs, clock = opened(location), Clock()
    steps = runs.begin("run", b"{}")
    for other in (runs, opened(location, clock)):
        with pytest.raises(RunInUse, match=f"run run is still running, in process {os.getpid()}") as refused:
            other.resume("run")
        assert 0 < refused.value.lease_seconds <= 30
    assert runs.is_held("run")
    steps.release()
    assert not runs.is_held("run")
    again = runs.resume("run")
    with pytest.raises(RunInUse):
        runs.resume("run")
    again.end(b"{}")
    runs.resume("run")


def test_pid_of_another_namespace_is_not_checked(location: str) -> None:
    """Two containers share a file: the holder's pid is our own, or does not exist here."""
    clock = Clock()
    runs = opened(location, clock)
    runs.begin("run", b"{}")
    here = current_holder()
    strangers = [
        replace(here, pid_namespace=ELSEWHERE),
        replace(here, pid_namespace=ELSEWHERE, pid=2**22 + 1, start_ticks="1"),
        replace(here, boot_id="another start of the system"),
        LeaseHolder(here.pid, host="of a system that tells nothing"),
    ]
    for stranger in strangers:
        held_by(runs, stranger)
        with pytest.raises(RunInUse, match=r"can't be checked from here: if it has ended, .* in 30 seconds"):
            runs.resume("run")
    clock.now += 30
    assert not runs.is_held("run")
    runs.resume("run")


def test_lease_of_a_dead_process_is_taken_at_once(location: str) -> None:
    """A local process has ended, or its pid was reused."""
    runs = opened(location)
    runs.begin("run", b"{}")
    here = current_holder()
    for gone in (replace(here, pid=2**22 + 1), replace(here, start_ticks="1")):
        held_by(runs, gone)
        assert not runs.is_held("run")
        runs.resume("run")
        with pytest.raises(RunInUse):
            runs.resume("run")


def test_lease_of_a_killed_process_is_taken_at_once(location: str) -> None:
    """The same holds for a real process."""
    runs = opened(location)
    with holding(location) as process:
        assert says(process) == "held\n"
        with pytest.raises(RunInUse, match=f"in process {process.pid}"):
            runs.resume("run")
        process.kill()  # and nobody has asked what became of it: it is a zombie
        until(lambda: not runs.is_held("run"))
        runs.resume("run")


def test_lease_holds_between_two_containers(location: str) -> None:
    """Three PID namespaces share the file; two of the processes have the same pid."""
    if subprocess.run([*APART, "-c", ""], check=False, capture_output=True).returncode:
        pytest.skip("no PID namespace can be made here")
    clock = Clock()
    runs = opened(location, clock)
    with holding(location, "begin", APART) as first:
        assert says(first) == "held\n"
        with pytest.raises(RunInUse, match="can't be checked from here"):
            runs.resume("run")
        with holding(location, "take", APART) as second:
            assert second.wait(PATIENCE) != 0
            assert second.stderr is not None
            assert "can't be checked from here" in second.stderr.read()
    clock.now = time.time() + 31
    runs.resume("run")


def test_lease_is_renewed_while_its_holder_lives(location: str) -> None:
    """A thread renews it, so that a slow tool does not lose its run."""
    clock = Clock()
    runs = RunStore(location, lease_terms=LeaseTerms(seconds=30, renewal_interval=0.01, clock=clock))
    watcher = opened(location, clock)
    runs.begin("run", b"{}")
    for _ in range(3):
        clock.now += 29
        until(lambda: left(watcher) > 29)
        with pytest.raises(RunInUse):
            watcher.resume("run")
    runs.close()
    clock.now += 31
    watcher.resume("run")


def left(runs: RunStore) -> float:
    ((text, token, lease),) = runs._database.select("SELECT holder, token, until FROM runs")
    return runs._lease_seconds_left(text, token, lease)


def test_process_that_lost_its_lease_cannot_write(location: str) -> None:
    """Only the current holder can write steps (fencing)."""
    early, late = Clock(), Clock()
    runs, other = opened(location, early), opened(location, late)
    lost = runs.begin("run", b"{}")
    lost.begin("one", b"intent")
    late.now += 31
    taken = other.resume("run")
    for write in (lost.begin, lost.finish):
        with pytest.raises(LeaseLost, match="another process resumed run"):
            write("one", b"late")
        with pytest.raises(LeaseLost):
            write("two", b"late")
    lost.end(b"late")
    lost.release()
    assert other.is_held("run")
    taken.finish("one", b"done")
    taken.end(b"ended")
    assert other.find("run").end_event == b"ended"
    assert [(step.name, step.intent, step.outcome) for step in other.steps("run")] == [("one", b"intent", b"done")]


def test_lease_renewed_at_the_last_moment_is_not_taken(location: str) -> None:
    """The holder may renew the lease between the check and the takeover."""
    clock = Clock()
    runs = opened(location, clock)
    held = runs.begin("run", b"{}")
    clock.now += 31
    other = opened(location, clock)
    refuse = other._refuse_if_held

    def renewed_meanwhile(run: str, encoded_holder: str | None, token: str | None, until: float | None) -> None:
        refuse(run, encoded_holder, token, until)
        runs._database.update("UPDATE runs SET until = until + 30")

    other._refuse_if_held = renewed_meanwhile  # type: ignore[method-assign]
    with pytest.raises(RunInUse, match="has just resumed it"):
        other.resume("run")
    held.begin("one", b"")


def test_resuming_a_run_releases_its_sub_agent_runs(location: str) -> None:
    """Leases of sub-agent runs have the same holder and may expire later."""
    clock = Clock()
    runs = opened(location, clock)
    runs.begin("run", b"{}")
    clock.now += 4
    below = runs.begin("run/helper", b"{}")
    beside = runs.begin("run2", b"{}")
    held_by(runs, replace(current_holder(), pid_namespace=ELSEWHERE))
    clock.now += 27
    runs.resume("run")
    runs.resume("run/helper")
    with pytest.raises(RunInUse):
        runs.resume("run2")
    with pytest.raises(LeaseLost):
        below.begin("one", b"")
    beside.begin("one", b"")


def test_unreadable_holder_is_ignored() -> None:
    assert decode_holder("4711:815") is None
    assert decode_holder(None) is None


# ---- the file


def test_steps_are_durable_when_they_return(tmp_path: Path) -> None:
    """With `synchronous = FULL` SQLite waits for the disk at every commit, in WAL mode, too."""
    runs = opened(str(tmp_path / "runs.db"))
    assert runs._database.select("PRAGMA synchronous") == [(2,)]
    assert runs._database.select("PRAGMA journal_mode") == [("wal",)]


def test_file_without_lease_columns_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE runs (id TEXT PRIMARY KEY, at REAL, about BLOB, ended BLOB, holder TEXT)")
        connection.execute(
            """CREATE TABLE steps (run TEXT, name TEXT, number INTEGER, intent BLOB, outcome BLOB, begun REAL,
            finished REAL, PRIMARY KEY (run, name)) WITHOUT ROWID"""
        )
        connection.execute("INSERT INTO runs VALUES ('run', ?, x'7b7d', NULL, '4711:815')", (time.time(),))
        connection.execute("INSERT INTO steps VALUES ('run', 'one', 0, x'', x'7b7d', 1, 2)")
    runs = opened(str(tmp_path / "runs.db"))
    steps: RunStepLog = runs.resume("run")
    assert steps.outcome("one") == b"{}"
    steps.finish("two", b"{}")
    assert [step.name for step in runs.steps("run")] == ["one", "two"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "PRAGMA user_version = 99",
            "the file was written by a newer toolwire (schema version 99, supported: 4); upgrade toolwire",
        ),
        ("ALTER TABLE runs DROP COLUMN about", "table runs has no column about"),
        ("DROP TABLE steps", "table steps is missing"),
    ],
)
def test_unusable_run_store_is_refused(change: str, message: str, tmp_path: Path) -> None:
    """No SQLite traceback reaches the user."""
    path = tmp_path / "runs.db"
    opened(str(tmp_path / "runs.db")).close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    with pytest.raises(JournalError) as refused:
        opened(str(tmp_path / "runs.db"))
    assert str(refused.value).startswith(f"{path}: ")
    assert message in str(refused.value)


def test_later_damage_error_names_the_file(tmp_path: Path) -> None:
    runs = opened(str(tmp_path / "runs.db"))
    runs.begin("run", b"{}")
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as connection, connection:
        connection.execute("DROP TABLE steps")
    with pytest.raises(
        JournalError, match=r"runs\.db: the file is damaged or was not created by toolwire \(no such table: steps\)"
    ):
        runs.steps("run")


def until(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.postgres
def test_step_waits_for_a_process_that_takes_its_lease(postgres_url: str) -> None:
    """In PostgreSQL the token is checked under a lock: a write never ends after its lease was taken."""
    runs = opened(postgres_url)
    held = runs.begin("run", b"{}")
    outcome: list[Exception | None] = []

    def write() -> None:
        try:
            held.begin("one", b"")
        except LeaseLost as error:
            outcome.append(error)
        else:
            outcome.append(None)

    thread = threading.Thread(target=write)
    with psycopg.connect(postgres_url) as taker, psycopg.connect(postgres_url, autocommit=True) as observer:
        taker.execute("UPDATE toolwire.runs SET token = 'of another process'")
        thread.start()
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        until(lambda: bool(outcome) or observer.execute(waiting).fetchone() is not None)
        assert outcome == []
        taker.commit()
        thread.join(PATIENCE)
    assert isinstance(outcome[0], LeaseLost)
    assert runs.steps("run") == []
