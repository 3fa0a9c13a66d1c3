"""`toolwire runs`: recorded runs are listed, shown, resumed after any crash, and replayed."""

import contextlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.deadlines import DEADLINE, wait_until
from tests.support.runtime.cli_process import (
    calls_turn,
    cli_environment,
    events_named,
    open_terminal,
    read_file_call,
    run_toolwire,
    shell_call,
    start_toolwire,
    text_reply,
    write_file_call,
    write_script,
)
from toolwire.cli import main
from toolwire.journal.runs import RunStore

ROOT = Path(__file__).parents[2]


def run_report(folder: Path, run: str = "last") -> dict[str, Any]:
    journal = folder / ".state" / "toolwire" / "runs.db"
    done = CliRunner().invoke(main, ["runs", "show", run, "--json", "--journal", str(journal)])
    assert done.exit_code == 0, done.output
    report_data: dict[str, Any] = json.loads(done.stdout)
    return report_data


# ---- killed at every point of the journal


def run_crash_program(folder: Path, *more: str) -> Iterator[Any]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "cli" / "crash_program.py"), str(folder), *more],
        env=cli_environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return map(json.loads, done.stdout.splitlines())


def check_outcome(death: dict[str, Any]) -> None:
    """Assert that nothing is lost or done twice, and that calls in doubt are reported."""
    assert death["killed"]
    left, came, effects = death["left"], death["came"], death["effects"]
    if not left[-1]["runs"]:
        assert (came, effects) == (None, [])
        return
    assert (came["text"], came["stopped"]) == ("all is done", "finished")
    for step, tool in (("call/1/a", "write_a"), ("call/1/b", "write_b"), ("call/2/c", "write_c")):
        letter, (status, text) = step[-1], came["given"][tool]
        if any(one["steps"].get(step) is False for one in left):
            assert (status, text.partition(":")[0]) == ("error", "in doubt")
            assert effects.count(letter) == left[-1]["effects"].count(letter) <= 1
        else:
            assert (status, text, effects.count(letter)) == ("ok", f"wrote {letter}", 1)


def test_run_killed_at_any_point_loses_and_repeats_nothing(tmp_path: Path) -> None:
    found = list(run_crash_program(tmp_path))
    for death in found:
        check_outcome(death)
    steps = ("turn/1", "turn/2", "turn/3", "approval/1/b", "call/1/a", "call/1/b", "call/2/c")
    points = {f"{when} {what} {step}" for when in ("before", "after") for what in ("begin", "finish") for step in steps}
    points |= {f"{when} {what}" for when in ("before", "after") for what in ("begin", "end")}
    assert {death["at"] for death in found} >= points
    doubts = [one for one in found if one["came"] and any(s == "error" for s, _ in one["came"]["given"].values())]
    assert doubts


def test_run_killed_again_while_resuming_loses_and_repeats_nothing(tmp_path: Path) -> None:
    found = list(run_crash_program(tmp_path, "twice"))
    assert len(found) > 40
    for death in found:
        check_outcome(death)


def test_program_killed_at_any_point_resumes_without_repeating_calls(tmp_path: Path) -> None:
    found = list(run_crash_program(tmp_path, "code"))
    for death in found:
        assert death["killed"]
        left, came, effects = death["left"][-1], death["came"], death["effects"]
        assert (came["text"], came["stopped"]) == ("all is done", "finished")
        status, text = came["given"]["run_code"]
        lines = text.split("\n")
        assert (status, len(lines)) == ("ok", 2)
        for number, letter in enumerate("ab"):
            if left["steps"].get(f"call/1/p/{number}") is False:
                assert lines[number].startswith("in doubt: ")
                assert effects.count(letter) == left["effects"].count(letter) <= 1
            else:
                assert (lines[number], effects.count(letter)) == (f"wrote {letter}", 1)
    points = {one["at"] for one in found}
    assert {f"{when} finish call/1/p/{number}" for when in ("before", "after") for number in range(2)} <= points
    snapshots = {one for one in points if one.startswith("after begin") and "/code/" in one}
    assert len(snapshots) == 2


# ---- the real commands


def wait_for(path: Path) -> None:
    wait_until(path.exists)


def kill_running_command(folder: Path) -> str:
    """Start a run and kill it while one of its commands runs."""
    turn = calls_turn(shell_call("echo x >> effects; touch begun; sleep 600"), write_file_call(folder, "a.txt", "a"))
    write_script(folder, turn, text_reply("I can't tell whether it took effect."))
    with start_toolwire(folder, "ask", "do it", "--allow", "*", "--yes") as process:
        wait_for(folder / "begun")
        assert "  running  " in run_toolwire(folder, "runs", "list").out
        process.kill()
    return str(json.loads(run_toolwire(folder, "runs", "list", "--json").out)["id"])


def test_resume_after_kill_reports_calls_in_doubt(tmp_path: Path) -> None:
    run = kill_running_command(tmp_path)
    before = run_report(tmp_path)
    assert before["state"] == "interrupted"
    (doubt,) = before["in_doubt"]
    done = run_toolwire(tmp_path, "runs", "resume", run)
    assert (done.code, done.out) == (0, "I can't tell whether it took effect.\n")
    assert f"in doubt: {doubt} was running when the run ended; it is not run again" in done.err
    assert "in doubt: it may have taken effect; not run again" in done.err
    assert (tmp_path / "effects").read_text() == "x\n"
    assert (tmp_path / "a.txt").read_text() == "a"
    after = run_report(tmp_path, run)
    assert [one["state"] for one in after["turns"][0]["calls"]] == ["in doubt", "ok"]
    assert after["state"] == "finished"
    again = run_toolwire(tmp_path, "runs", "resume", run)
    assert (again.code, again.err) == (
        2,
        f"Error: the run {run} has ended (finished): continue with `toolwire ask --continue`\n",
    )


def test_finished_run_is_continued_as_a_conversation(tmp_path: Path) -> None:
    """An answer is cut off only after several continuations."""
    cut = [text_reply("more ", stop="max_tokens")] * 4
    write_script(tmp_path, *cut, text_reply("an answer."))
    done = run_toolwire(tmp_path, "ask", "answer")
    assert (done.code, done.out) == (1, "more more more more \n")
    assert "continue with: toolwire ask --continue '...'\n" in done.err
    refused = run_toolwire(tmp_path, "runs", "resume", done.run)
    assert refused.err == f"Error: the run {done.run} has ended (length): continue with `toolwire ask --continue`\n"
    # The history has the four answers, with the requests to continue between them.
    assert run_toolwire(tmp_path, "ask", "--continue", "go on").out == "an answer.\n"


WAITS = shell_call("echo x >> effects; until [ -e go ]; do sleep 0.1; done")


def test_running_run_can_not_be_resumed(tmp_path: Path) -> None:
    write_script(tmp_path, calls_turn(WAITS), text_reply("Done."))
    with start_toolwire(tmp_path, "ask", "do it", "--yes") as process:
        wait_for(tmp_path / "effects")
        refused = run_toolwire(tmp_path, "runs", "resume", "last")
        assert refused.code == 2
        assert f"is still running, in process {process.pid}" in refused.err
        (tmp_path / "go").touch()
        assert process.communicate(timeout=DEADLINE)[0] == "Done.\n"
    assert (tmp_path / "effects").read_text() == "x\n"


def test_stale_lease_is_taken_by_one_of_two_processes(tmp_path: Path) -> None:
    (answers,) = run_crash_program(tmp_path, "race")
    assert answers == ["run run is still running, in a process that has just resumed it", "taken"]


def test_concurrent_resume_succeeds_once(tmp_path: Path) -> None:
    write_script(tmp_path, calls_turn(WAITS), text_reply("Done."))
    assert run_toolwire(tmp_path, "ask", "do it", "--later").code == 3
    call = run_report(tmp_path)["waiting"][0]["call_id"]
    both = [start_toolwire(tmp_path, "runs", "resume", "last", "--approve", call) for _ in range(2)]
    wait_until(lambda: any(process.poll() is not None for process in both))
    (tmp_path / "go").touch()
    results = [(*process.communicate(timeout=DEADLINE), process.returncode) for process in both]
    assert sorted(code for *_, code in results) == [0, 2]
    (refused,) = [err for _, err, code in results if code == 2]
    # Depending on timing, the run is still held, or none of its calls is waiting any more.
    assert "is still running, in" in refused or "is not waiting for approval; waiting calls: none" in refused
    assert (tmp_path / "effects").read_text() == "x\n"


# ---- later approvals


def test_waiting_calls_are_approved_and_denied_by_id(tmp_path: Path) -> None:
    three = calls_turn(*(write_file_call(tmp_path, f"{name}.txt", name) for name in "abc"))
    write_script(tmp_path, three, text_reply("Done."))
    result = run_toolwire(tmp_path, "ask", "write them", "--later", "--json")
    assert (result.code, result.events[-1]["stopped"]) == (3, "waiting")
    report = run_report(tmp_path)
    a, b, c = (ask["call_id"] for ask in report["waiting"])
    assert (report["state"], "+a" in report["waiting"][0]["preview"]) == ("waiting", True)
    page = run_toolwire(tmp_path, "runs", "show", "last").out
    assert f"waiting: toolwire runs resume {report['id']} --approve {a}" in page
    assert "  | +a" in page
    some = run_toolwire(tmp_path, "runs", "resume", "last", "--approve", b, "--deny", c)
    assert some.code == 3  # the first call is not decided
    assert not list(tmp_path.glob("[abc].txt"))
    assert [ask["call_id"] for ask in run_report(tmp_path)["waiting"]] == [a]
    assert run_toolwire(tmp_path, "runs", "resume", "last", "--approve", a).code == 0
    assert sorted(path.name for path in tmp_path.glob("[abc].txt")) == ["a.txt", "b.txt"]
    records = [call["record"]["approval"] for call in run_report(tmp_path)["turns"][0]["calls"]]
    assert records == ["approved by person", "approved by person", "denied by person"]


def test_calls_of_programs_can_be_approved_later(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    code = """
text = await read_file(absolute_path="a.txt")
await write_file(file_path="b.txt", content=text * 3)
"""
    write_script(tmp_path, calls_turn(("run_code", {"code": code})), text_reply("Done."))
    result = run_toolwire(tmp_path, "ask", "write", "--code", "--later", "--allow", "run_code", "--json")
    assert (result.code, result.events[-1]["stopped"]) == (3, "waiting")
    report = run_report(tmp_path)
    (waiting,) = report["waiting"]
    assert (waiting["tool"], "+aaa" in waiting["preview"], report["in_doubt"]) == ("write_file", True, [])
    states = [(call["tool"], call["state"]) for call in report["turns"][0]["calls"]]
    assert states == [("run_code", "not finished"), ("read_file", "ok"), ("write_file", "waiting")]
    (tmp_path / "a.txt").unlink()  # it was read before, and is not read again
    done = run_toolwire(tmp_path, "runs", "resume", "last", "--approve", waiting["call_id"])
    assert (done.code, done.out) == (0, "Done.\n")
    assert (tmp_path / "b.txt").read_text() == "aaa"
    replayed = run_toolwire(tmp_path, "runs", "replay", "last")
    assert (replayed.code, replayed.out) == (0, "no difference\n")


@pytest.mark.parametrize("option", ["--approve", "--deny"])
def test_only_waiting_calls_can_be_decided(option: str, tmp_path: Path) -> None:
    write_script(tmp_path, calls_turn(write_file_call(tmp_path, "a.txt", "a")), text_reply("Done."))
    run_toolwire(tmp_path, "ask", "write", "--later")
    waiting = run_report(tmp_path)["waiting"][0]["call_id"]
    done = run_toolwire(tmp_path, "runs", "resume", "last", option, "call_2_0")
    assert (done.code, done.err) == (
        2,
        f"Error: call 'call_2_0' is not waiting for approval; waiting calls: {waiting}\n",
    )
    assert not (tmp_path / "a.txt").exists()


def test_approval_applies_only_to_the_call_as_shown(tmp_path: Path) -> None:
    write_script(tmp_path, calls_turn(write_file_call(tmp_path, "a.txt", "harmless")), text_reply("Done."))
    run_toolwire(tmp_path, "ask", "write", "--later")
    waiting = run_report(tmp_path)["waiting"][0]["call_id"]
    # Tamper with the recorded call after it was shown.
    import sqlite3

    with sqlite3.connect(tmp_path / ".state" / "toolwire" / "runs.db") as journal:
        changed = journal.execute(
            "UPDATE steps SET outcome = CAST(replace(CAST(outcome AS TEXT), 'harmless', 'horrible') AS BLOB)"
            " WHERE name = 'turn/1'"
        )
        assert changed.rowcount == 1
    journal.close()
    done = run_toolwire(tmp_path, "runs", "resume", "last", "--approve", waiting)
    assert done.code == 3
    assert not (tmp_path / "a.txt").exists()
    assert "horrible" in run_report(tmp_path)["waiting"][0]["arguments"]


def test_later_at_the_prompt_then_yes(tmp_path: Path) -> None:
    write_script(
        tmp_path,
        calls_turn(write_file_call(tmp_path, "a.txt", "a"), write_file_call(tmp_path, "b.txt", "b")),
        text_reply("Done."),
    )
    with open_terminal(tmp_path, "ask", "write") as screen:
        screen.read_until("[l]ater: ")
        screen.type_text("l\n")
        code, output = screen.wait()
    assert code == 3
    assert "waiting (" in output
    with open_terminal(tmp_path, "runs", "resume", "last") as screen:
        screen.read_until("[l]ater: ")
        screen.type_text("y\n")
        screen.read_until("[l]ater: ")
        screen.type_text("y\n")
        assert screen.wait()[0] == 0
    assert (tmp_path / "a.txt").exists()
    assert (tmp_path / "b.txt").exists()


def test_resume_uses_the_original_options_from_any_folder(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "a.txt").write_text("inner", encoding="utf-8")
    deny = ["--deny", "write_file(file_path=*/b.txt)"]
    write_script(
        tmp_path,
        calls_turn(shell_call("true")),
        calls_turn(read_file_call(inner, "a.txt"), write_file_call(inner, "b.txt", "b")),
        text_reply("Done."),
    )
    first = run_toolwire(tmp_path, "ask", "go", "--workspace", "inner", "--model", "gemini/gemini-9", "--later", *deny)
    assert first.code == 3
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    journal = str(tmp_path / ".state" / "toolwire" / "runs.db")
    done = run_toolwire(elsewhere, "runs", "resume", first.run, "--yes", "--json", "--journal", journal)
    assert (done.code, done.events[0]["model"], done.events[-1]["text"]) == (0, "gemini/gemini-9", "Done.")
    ended = {call["record"]["tool"]: call for call in events_named(done.events, "call_ended")}
    assert ended["read_file"]["record"]["summary"] == "inner"
    assert ended["write_file"]["status"] == "denied"


def test_resume_can_raise_a_limit(tmp_path: Path) -> None:
    write_script(tmp_path, calls_turn(shell_call("echo x >> effects")), text_reply("Done."))
    assert run_toolwire(tmp_path, "ask", "go", "--yes", "--max-turns", "1").code == 1
    assert run_toolwire(tmp_path, "runs", "resume", "last").code == 1
    done = run_toolwire(tmp_path, "runs", "resume", "last", "--max-turns", "5")
    assert (done.code, done.out) == (0, "Done.\n")
    assert (tmp_path / "effects").read_text() == "x\n"


# ---- list and show


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    secret = "sk-" + "a1b2c3d4" * 4
    write_script(tmp_path, calls_turn(shell_call(f"echo {secret}")), text_reply(f"It is {secret}."))
    run_toolwire(tmp_path, "ask", f"say {secret}", "--yes")
    for arguments in (("list",), ("list", "--json"), ("show", "last"), ("show", "last", "--json"), ("replay", "last")):
        done = run_toolwire(tmp_path, "runs", *arguments)
        assert secret not in done.out
        assert ("[removed]" in done.out) == (arguments[0] != "replay")
    assert (tmp_path / ".state" / "toolwire" / "runs.db").stat().st_mode & 0o777 == 0o600


def test_list_is_newest_first_and_filters_by_workspace(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for number in range(2):
        run_toolwire(tmp_path, "ask", f"question {number}", "--no-tools")
    run_toolwire(tmp_path, "ask", "elsewhere", "--no-tools", "--workspace", "other")
    lines = run_toolwire(tmp_path, "runs", "list").out.splitlines()
    assert [line.rpartition("simulated  ")[2] for line in lines] == ["elsewhere", "question 1", "question 0"]
    assert all("  finished  anthropic/simulated  " in line for line in lines)
    assert len(run_toolwire(tmp_path, "runs", "list", "-n", "1").out.splitlines()) == 1
    (only,) = run_toolwire(tmp_path, "runs", "list", "--workspace", "other", "--json").out.splitlines()
    assert json.loads(only)["prompt"] == "elsewhere"
    missing = run_toolwire(tmp_path, "runs", "show", "nothing")
    assert (missing.code, "no run 'nothing'" in missing.err) == (2, True)


# ---- replay


def test_replay_against_recorded_results_executes_nothing(tmp_path: Path) -> None:
    write_script(
        tmp_path, calls_turn(shell_call("echo x >> effects"), read_file_call(tmp_path, "none.txt")), text_reply("Done.")
    )
    assert run_toolwire(tmp_path, "ask", "go", "--yes").code == 0
    before = run_toolwire(tmp_path, "runs", "list").out
    done = run_toolwire(tmp_path, "runs", "replay", "last")
    assert (done.code, done.out) == (0, "no difference\n")
    assert (tmp_path / "effects").read_text() == "x\n"
    assert run_toolwire(tmp_path, "runs", "list").out == before


def test_replay_shows_effects_of_current_rules(tmp_path: Path) -> None:
    write_script(tmp_path, calls_turn(shell_call("echo x >> effects")), text_reply("Done."))
    assert run_toolwire(tmp_path, "ask", "go", "--yes").code == 0
    config = (tmp_path / "toolwire.toml").read_text()
    (tmp_path / "toolwire.toml").write_text(f'{config}\n[policy]\ndeny = ["run_shell_command"]\n')
    done = run_toolwire(tmp_path, "runs", "replay", "last")
    call = run_report(tmp_path)["turns"][0]["calls"][0]["id"]
    assert done.code == 1
    assert f'turn 1 run_shell_command {call}: changed /status: "ok" -> "denied"' in done.out
    assert f"turn 1 run_shell_command {call}: changed /content/0/text\n" in done.out


def test_replay_with_live_tools_shows_result_differences(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    write_script(
        tmp_path, calls_turn(read_file_call(tmp_path, "a.txt"), shell_call("echo x >> effects")), text_reply("Done.")
    )
    assert run_toolwire(tmp_path, "ask", "go", "--yes").code == 0
    same = run_toolwire(tmp_path, "runs", "replay", "last", "--tools", "live", "--yes")
    assert (same.code, same.out) == (0, "no difference\n")
    assert (tmp_path / "effects").read_text() == "x\nx\n"
    (tmp_path / "a.txt").write_text("one\n2\n", encoding="utf-8")
    changed = run_toolwire(tmp_path, "runs", "replay", "last", "--tools", "live")
    assert changed.code == 1
    assert "  | -two\n  | +2\n" in changed.out
    # Approvals are requested again: without an approver, the command is denied.
    assert 'changed /status: "ok" -> "denied"' in changed.out
    assert (tmp_path / "effects").read_text() == "x\nx\n"


def test_run_not_started_by_ask_can_not_be_resumed(tmp_path: Path) -> None:
    assert run_toolwire(tmp_path, "runs", "resume", "last").code == 2
    program = "import toolwire as tw; tw.Agent(journal='runs.db').run('hello')"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=cli_environment(tmp_path), check=True)
    done = run_toolwire(tmp_path, "runs", "replay", "last", "--journal", "runs.db")
    assert (done.code, "only the program that started it can resume it" in done.err) == (2, True)


@pytest.mark.parametrize("command", ["list", "show", "resume"])
def test_unreadable_journal_is_an_error_without_traceback(command: str, tmp_path: Path) -> None:
    """A file that is no database, one of a newer version, and a damaged run."""
    path = tmp_path / "runs.db"
    arguments = ["runs", command, *([] if command == "list" else ["run"]), "--journal", str(path)]
    runs = RunStore(path)
    runs.begin("run", b'{"cut').end(b"{}")
    runs.close()
    damaged = CliRunner().invoke(main, arguments)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 99")
    newer = CliRunner().invoke(main, arguments)
    path.write_bytes(b"no database, but long enough to be looked at" * 100)
    none = CliRunner().invoke(main, arguments)
    assert [one.exit_code for one in (damaged, newer, none)] == [2, 2, 2]
    assert "Error: the journal is damaged: the run run" in damaged.output
    assert f"Error: {path}: the file was written by a newer toolwire" in newer.output
    assert f"Error: {path}: the file is damaged or not a SQLite database" in none.output
