"""Who holds a run: one taker at a time, whatever process, thread or container it is in."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from toolwire.journal.runs import (
    LeaseHolder,
    LeaseLost,
    LeaseTerms,
    RunInUse,
    RunStepLog,
    RunStore,
    current_holder,
    decode_holder,
)
from toolwire.journal.store import JournalError

PATIENCE = 60
ELSEWHERE = "pid:[1]"
APART = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", sys.executable)

HOLDS = """
import sys
from pathlib import Path
from toolwire.journal.runs import RunStore
runs = RunStore(Path(sys.argv[1]))
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


def opened(path: Path, clock: Clock | None = None) -> RunStore:
    return RunStore(path / "runs.db", lease_terms=LeaseTerms(clock=clock or Clock()))


def held_by(path: Path, holder: LeaseHolder) -> None:
    with contextlib.closing(sqlite3.connect(path / "runs.db", timeout=PATIENCE)) as connection, connection:
        connection.execute("UPDATE runs SET holder = ?", (holder.encode(),))


@contextlib.contextmanager
def holding(
    path: Path, deed: str = "begin", command: tuple[str, ...] = (sys.executable,)
) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the run."""
    process = subprocess.Popen(
        [*command, "-c", HOLDS, str(path / "runs.db"), deed],
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


def test_q_3_a_run_is_refused_to_the_process_that_holds_it(tmp_path: Path) -> None:
    """Q-3: the same `Runs`, and another one of the same process."""
    runs, clock = opened(tmp_path), Clock()
    steps = runs.begin("run", b"{}")
    for other in (runs, opened(tmp_path, clock)):
        with pytest.raises(RunInUse, match=f"the run run is still going on, in process {os.getpid()}") as refused:
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


def test_q_3_a_number_means_nothing_in_another_namespace(tmp_path: Path) -> None:
    """Q-3: two containers with one file: the holder has our own number, or one that nobody has here."""
    clock = Clock()
    runs = opened(tmp_path, clock)
    runs.begin("run", b"{}")
    here = current_holder()
    strangers = [
        replace(here, pid_namespace=ELSEWHERE),
        replace(here, pid_namespace=ELSEWHERE, pid=2**22 + 1, start_ticks="1"),
        replace(here, boot_id="another start of the system"),
        LeaseHolder(here.pid, host="of a system that tells nothing"),
    ]
    for stranger in strangers:
        held_by(tmp_path, stranger)
        with pytest.raises(RunInUse, match=r"can't be seen from here: if it is gone, .* in 30 seconds"):
            runs.resume("run")
    clock.now += 30
    assert not runs.is_held("run")
    runs.resume("run")


def test_q_3_who_died_for_certain_is_not_waited_for(tmp_path: Path) -> None:
    """Q-3: a process of this system that is gone, or whose number another one has by now."""
    runs = opened(tmp_path)
    runs.begin("run", b"{}")
    here = current_holder()
    for gone in (replace(here, pid=2**22 + 1), replace(here, start_ticks="1")):
        held_by(tmp_path, gone)
        assert not runs.is_held("run")
        runs.resume("run")
        with pytest.raises(RunInUse):
            runs.resume("run")


def test_q_3_a_killed_process_is_not_waited_for(tmp_path: Path) -> None:
    """Q-3: as above, with a real one."""
    runs = opened(tmp_path)
    with holding(tmp_path) as process:
        assert says(process) == "held\n"
        with pytest.raises(RunInUse, match=f"in process {process.pid}"):
            runs.resume("run")
        process.kill()  # and nobody has asked what became of it: it is a zombie
        until(lambda: not runs.is_held("run"))
        runs.resume("run")


def test_q_3_two_containers(tmp_path: Path) -> None:
    """Q-3: processes of three PID namespaces that share the file, both others with the same number."""
    if subprocess.run([*APART, "-c", ""], check=False, capture_output=True).returncode:
        pytest.skip("no PID namespace can be made here")
    clock = Clock()
    runs = opened(tmp_path, clock)
    with holding(tmp_path, "begin", APART) as first:
        assert says(first) == "held\n"
        with pytest.raises(RunInUse, match="can't be seen from here"):
            runs.resume("run")
        with holding(tmp_path, "take", APART) as second:
            assert second.wait(PATIENCE) != 0
            assert second.stderr is not None
            assert "can't be seen from here" in second.stderr.read()
    clock.now = time.time() + 31
    runs.resume("run")


def test_q_3_a_lease_is_renewed_for_as_long_as_its_holder_lives(tmp_path: Path) -> None:
    """Q-3: by a thread, so that a tool that takes long does not lose its run."""
    clock = Clock()
    runs = RunStore(tmp_path / "runs.db", lease_terms=LeaseTerms(seconds=30, renewal_interval=0.01, clock=clock))
    watcher = opened(tmp_path, clock)
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
    ((text, token, lease),) = runs._connection.select("SELECT holder, token, until FROM runs")
    return runs._lease_seconds_left(text, token, lease)


def test_q_3_who_lost_the_lease_writes_nothing_more(tmp_path: Path) -> None:
    """Q-3: fencing: every write of a step is that of the present holder."""
    early, late = Clock(), Clock()
    runs, other = opened(tmp_path, early), opened(tmp_path, late)
    lost = runs.begin("run", b"{}")
    lost.begin("one", b"intent")
    late.now += 31
    taken = other.resume("run")
    for write in (lost.begin, lost.finish):
        with pytest.raises(LeaseLost, match="was taken up elsewhere"):
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


def test_q_3_a_lease_that_is_renewed_at_the_last_moment_is_not_taken(tmp_path: Path) -> None:
    """Q-3: between a look at the lease and taking it, its holder may have been heard of."""
    clock = Clock()
    runs = opened(tmp_path, clock)
    held = runs.begin("run", b"{}")
    clock.now += 31
    other = opened(tmp_path, clock)
    refuse = other._refuse_if_held

    def renewed_meanwhile(run: str, encoded_holder: str | None, token: str | None, until: float | None) -> None:
        refuse(run, encoded_holder, token, until)
        runs._connection.update("UPDATE runs SET until = until + 30")

    other._refuse_if_held = renewed_meanwhile  # type: ignore[method-assign]
    with pytest.raises(RunInUse, match="has just taken it up"):
        other.resume("run")
    held.begin("one", b"")


def test_q_3_the_runs_of_its_agents_come_with_a_run(tmp_path: Path) -> None:
    """Q-3: their leases may end a little later than that of the run, and belong to the same holder."""
    clock = Clock()
    runs = opened(tmp_path, clock)
    runs.begin("run", b"{}")
    clock.now += 4
    below = runs.begin("run/helper", b"{}")
    beside = runs.begin("run2", b"{}")
    held_by(tmp_path, replace(current_holder(), pid_namespace=ELSEWHERE))
    clock.now += 27
    runs.resume("run")
    runs.resume("run/helper")
    with pytest.raises(RunInUse):
        runs.resume("run2")
    with pytest.raises(LeaseLost):
        below.begin("one", b"")
    beside.begin("one", b"")


def test_a_holder_from_before_leases_is_nobody() -> None:
    assert decode_holder("4711:815") is None
    assert decode_holder(None) is None


# ---- the file


def test_q_16_steps_are_on_the_disk_when_they_return(tmp_path: Path) -> None:
    """Q-16: with `synchronous = FULL` SQLite waits for the disk at every commit, in WAL mode, too."""
    runs = opened(tmp_path)
    assert runs._connection.select("PRAGMA synchronous") == [(2,)]
    assert runs._connection.select("PRAGMA journal_mode") == [("wal",)]


def test_a_file_from_before_leases_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE runs (id TEXT PRIMARY KEY, at REAL, about BLOB, ended BLOB, holder TEXT)")
        connection.execute(
            """CREATE TABLE steps (run TEXT, name TEXT, number INTEGER, intent BLOB, outcome BLOB, begun REAL,
            finished REAL, PRIMARY KEY (run, name)) WITHOUT ROWID"""
        )
        connection.execute("INSERT INTO runs VALUES ('run', ?, x'7b7d', NULL, '4711:815')", (time.time(),))
        connection.execute("INSERT INTO steps VALUES ('run', 'one', 0, x'', x'7b7d', 1, 2)")
    runs = opened(tmp_path)
    steps: RunStepLog = runs.resume("run")
    assert steps.outcome("one") == b"{}"
    steps.finish("two", b"{}")
    assert [step.name for step in runs.steps("run")] == ["one", "two"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "PRAGMA user_version = 99",
            "a newer toolwire wrote it (schema version 99; this one knows 2); upgrade toolwire",
        ),
        ("ALTER TABLE runs DROP COLUMN about", "table runs has no column about"),
        ("DROP TABLE steps", "table steps is missing"),
    ],
)
def test_runs_that_can_not_be_used_are_refused_clearly(change: str, said: str, tmp_path: Path) -> None:
    """Item 3: no traceback of SQLite's."""
    path = tmp_path / "runs.db"
    opened(tmp_path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    with pytest.raises(JournalError) as refused:
        opened(tmp_path)
    assert str(refused.value).startswith(f"{path}: ")
    assert said in str(refused.value)


def test_damage_that_shows_later_is_told_with_the_file(tmp_path: Path) -> None:
    runs = opened(tmp_path)
    runs.begin("run", b"{}")
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as connection, connection:
        connection.execute("DROP TABLE steps")
    with pytest.raises(
        JournalError, match=r"runs\.db: the file is damaged, or not of toolwire \(no such table: steps\)"
    ):
        runs.steps("run")


def until(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.01)
