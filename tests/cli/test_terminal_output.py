"""Output of commands: fitted and styled on terminals, plain and complete in pipes."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import urllib.request
from pathlib import Path

import pytest

from tests.support.deadlines import DEADLINE
from tests.support.runtime.cli_process import TERMINAL_PROGRAM, cli_environment, open_terminal, run_toolwire
from tests.support.runtime.fork_server import start_forked
from tests.support.runtime.journal_records import make_batch, make_record
from toolwire.canonical.errors import Loss
from toolwire.cli.output.run_output import format_seconds
from toolwire.cli.output.run_report import _shorten_ids
from toolwire.cli.output.terminal import _COLORS, format_dollars, shorten, text_width, wrap_text
from toolwire.cli.output.word_wrap import WordWrapper
from toolwire.journal.records import Bodies
from toolwire.journal.store import open_record_store

NARROW = "import os; os.environ['COLUMNS'] = '60'; "
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def run_in_terminal(folder: Path, columns: int, *arguments: str, err: bool = False, **variables: str) -> list[str]:
    """Run a command whose stdout is a terminal of this width, and return its lines with their escape sequences.

    With `err`, stderr is the terminal, too.
    """
    handle, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in cli_environment(folder).items() if name != "COLUMNS"} | variables
    process = start_forked(
        *arguments, folder=folder, environment=environment, stdout=end, stderr=end if err else subprocess.DEVNULL
    )
    os.close(end)
    output = b""
    try:
        while data := os.read(handle, 65_536):
            output += data
    except OSError:  # the other side is closed
        pass
    process.wait(DEADLINE)
    os.close(handle)
    return output.decode().replace("\r\n", "\n").splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs and a journal."""
    folder = tmp_path_factory.mktemp("terminal")
    (folder / "toolwire.toml").write_text("[journal]\npath = 'journal.db'\n", encoding="utf-8")
    for prompt in ("hello", "a long question about \u6771\u4eac and everything else " * 5):
        run_toolwire(folder, "ask", prompt, "--no-tools")
    store = open_record_store(folder / "journal.db", max_age_days=1e6, max_bytes=1_000_000)
    records = [make_record(number) for number in range(3)]
    for number, record in enumerate(records):
        record.id = f"ex_{number:016x}"
        record.provider, record.model, record.protocol = "anthropic", "claude-sonnet-4-5", "anthropic"
        record.status, record.error = (502, "the provider failed " * 10) if number == 2 else (200, "")
    records[0].bodies = Bodies(request=json.dumps({"messages": ["x" * 200, *range(60)]}).encode(), response=b"{}")
    records[1].losses = [
        Loss(severity=severity, kind="dropped", path="/x", reason="no", direction="request")
        for severity in ("warning", "error")
    ]
    store.add(make_batch(records))
    store.close()
    return folder


LISTINGS = [["runs", "list"], ["journal", "tail"], ["protocols"], ["hosts"], ["doctor"], ["mcp", "list"]]


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("arguments", LISTINGS, ids=" ".join)
def test_no_line_is_wider_than_the_terminal(arguments: list[str], columns: int, folder: Path) -> None:
    lines = run_in_terminal(folder, columns, *arguments)
    assert lines
    texts = [_ANSI.sub("", line) for line in lines]
    assert [text for text in texts if text_width(text) > columns and len(text.split()) > 1] == []


@pytest.mark.parametrize("prompt", ["hello", "fail"])
def test_run_is_wrapped_at_words_and_its_commands_can_be_copied(prompt: str, tmp_path: Path) -> None:
    failing = prompt == "fail"
    message = "the provider is overloaded, and so answers nothing " * 3
    (tmp_path / "turns.json").write_text(
        json.dumps({"turns": [{"error": {"kind": "overloaded", "message": message}}] * 9})
    )
    config = "[simulator]\nscript = 'turns.json'\n" if failing else ""
    (tmp_path / "toolwire.toml").write_text(config, encoding="utf-8")
    styled = run_in_terminal(tmp_path, 80, "ask", prompt, "--no-tools", err=True)
    assert any(f"38;5;{_COLORS['problem'][0]}mfailed (" in line for line in styled) == failing
    lines = [_ANSI.sub("", line) for line in styled]
    drawn = [line.rpartition("\r")[2] for line in lines]
    assert [line for line in drawn if text_width(line) > 80 and len(line.split()) > 1] == []
    command = "toolwire runs resume run_" if failing else "toolwire ask --continue '...'"
    assert drawn[-1].startswith(f"continue with: {command}")


def test_rows_take_one_line_and_are_aligned(folder: Path) -> None:
    header, *rows = (_ANSI.sub("", line) for line in run_in_terminal(folder, 80, "runs", "list"))
    assert header.split() == ["run", "age", "state", "model", "prompt"]
    assert len(rows) == 2
    assert all(row[header.index("state") :].startswith("finished") for row in rows)
    assert "\u2026" in rows[0]
    shown = [row.split()[0] for row in rows]
    ids = [line.split()[0] for line in run_toolwire(folder, "runs", "list").out.splitlines()]
    assert shown == [_shorten_ids(ids).get(id, id) for id in ids]
    header, *rows = (_ANSI.sub("", line) for line in run_in_terminal(folder, 80, "journal", "tail"))
    assert [row[header.index("status") :][:3] for row in rows] == ["200", "200", "502"]
    assert "1E 1W" in rows[1]
    assert all("  anthropic/claude-so" in row for row in rows)


def test_ids_of_runs_are_shortened_where_the_beginning_is_unique() -> None:
    assert _shorten_ids(["run_1_a", "run_2_b", "run_2_c", "mcp_2_d"]) == {"run_1_a": "run_1", "mcp_2_d": "mcp_2"}


def test_shortened_id_finds_the_run(tmp_path: Path) -> None:
    run_toolwire(tmp_path, "ask", "hello", "--no-tools")
    shown = _ANSI.sub("", run_in_terminal(tmp_path, 80, "runs", "list")[1]).split()[0]
    assert re.fullmatch(r"run_\d{14}", shown)
    assert run_toolwire(tmp_path, "runs", "show", shown).out.startswith(f"{shown}_")


def test_long_bodies_are_shortened_on_a_terminal(folder: Path) -> None:
    show = ("journal", "show", "ex_0000000000000000")
    lines = run_in_terminal(folder, 80, *show)
    assert all(text_width(_ANSI.sub("", line)) <= 80 for line in lines)
    assert "... 25 more lines, and the ends of long lines: --full prints them" in _ANSI.sub("", "\n".join(lines))
    complete = run_toolwire(folder, *show).out.splitlines()
    assert {"    59", f'    "{"x" * 200}",'} < set(complete)
    assert [_ANSI.sub("", line) for line in run_in_terminal(folder, 80, *show, "--full")][-62:] == complete[-62:]


def test_status_and_losses_are_colored_by_severity(folder: Path) -> None:
    lines = run_in_terminal(folder, 120, "journal", "tail")
    red, green = (f"\x1b[38;5;{_COLORS[style][0]}m" for style in ("problem", "good"))
    assert f"{green}200" in lines[1]
    assert f"{red}502" in lines[3]
    assert f"{red}1E 1W" in lines[2]


def test_rejected_request_shows_its_reason_before_the_client(tmp_path: Path) -> None:
    store = open_record_store(tmp_path / "journal.db", max_age_days=1e6, max_bytes=1_000_000)
    rejected, failed = make_record(1), make_record(2)
    for record in (rejected, failed):
        record.client, record.error, record.status = "anthropic", "no such thing", 502
    rejected.protocol, rejected.provider, rejected.model = "", "", ""
    failed.protocol, failed.provider, failed.model = "gemini", "up", "m"
    store.add(make_batch([rejected, failed]))
    store.close()
    tail = ("journal", "tail", "--journal", "journal.db")
    first, second = (_ANSI.sub("", line) for line in run_in_terminal(tmp_path, 120, *tail)[1:])
    assert first.endswith("  no such thing <- anthropic")
    assert second.endswith("  up/m <- anthropic: no such thing")


def test_reasoning_is_set_apart_from_the_answer(tmp_path: Path) -> None:
    turn = {"thinking": "I had better look.", "text": "Here you are."}
    (tmp_path / "turns.json").write_text(json.dumps({"turns": [turn]}))
    config = "[simulator]\nscript = 'turns.json'\n"
    (tmp_path / "toolwire.toml").write_text(config, encoding="utf-8")
    ask = ("ask", "hello", "--no-tools", "--thinking", "low")
    output = "\n".join(run_in_terminal(tmp_path, 80, *ask, err=True))
    muted, _ = _COLORS["muted"]
    assert re.search(rf"\x1b\[3;38;5;{muted}m[^\x1b]*look", output)
    assert not re.search(rf"{muted}m[^\x1b]*Here", output)
    assert not any(_ANSI.search(line) for line in run_in_terminal(tmp_path, 80, *ask, err=True, NO_COLOR="1"))


WORDS = " ".join(f"word{number}" for number in range(40))
CODE = f"```\n{WORDS}\n```"
ROW = f"| {WORDS} |"


def test_answers_are_wrapped_at_words_but_not_in_code_and_tables(tmp_path: Path) -> None:
    turn = {"thinking": WORDS, "text": f"{WORDS}\n\n{CODE}\n{ROW}\n{WORDS}"}
    (tmp_path / "turns.json").write_text(json.dumps({"turns": [turn]}))
    (tmp_path / "toolwire.toml").write_text("[simulator]\nscript = 'turns.json'\n", encoding="utf-8")
    ask = ("ask", "hello", "--no-tools", "--thinking", "low")
    output = [_ANSI.sub("", line) for line in run_in_terminal(tmp_path, 80, *ask, err=True)]
    lines = [line.rpartition("\r")[2] for line in output if "word" in line]
    assert WORDS in lines
    assert ROW in lines
    prose = [line for line in lines if line not in (WORDS, ROW)]
    assert " ".join(prose) == " ".join([WORDS] * 3)
    assert all(60 < len(line) <= 80 for line in prose if not line.endswith("word39"))


@pytest.mark.parametrize(
    ("pieces", "written"),
    [
        (["one t", "wo three"], ["one", " two", " three"]),
        (["one two three four"], ["one two three", "\nfour"]),
        (["  indented\n", "next"], ["  indented\n", "", "next"]),
        (["\u6771\u4eac", "\u90fd\u5e02\u90fd\u5e02"], ["\u6771\u4eac", "\n\u90fd\u5e02\u90fd\u5e02", ""]),
        (["a-word-that-is-longer b c d e"], ["a-word-that-is-longer b c\nd", " e"]),
    ],
)
def test_words_are_written_as_soon_as_they_are_complete(pieces: list[str], written: list[str]) -> None:
    wrapper = WordWrapper(13 if pieces[0].isascii() else 10)
    assert [*map(wrapper.feed, pieces), wrapper.flush()] == written


def test_notes_of_a_run_are_wrapped_with_an_indent(tmp_path: Path) -> None:
    server = "a-server-with-a-long-name-that-does-not-fit"
    (tmp_path / "toolwire.toml").write_text(f"[mcp.servers.{server}]\ncommand = 'no-such-program'\n", encoding="utf-8")
    for command in (["ask", "hello"], ["runs", "replay", "last", "--tools", "live"]):
        lines = run_in_terminal(tmp_path, 60, *command, err=True)
        texts = [_ANSI.sub("", line) for line in lines]
        start = next(index for index, text in enumerate(texts) if text.startswith("toolwire: warning: MCP server"))
        assert texts[start + 1].startswith("  ")
        assert " ".join(" ".join(texts[start : start + 3]).split()).endswith("command not found: no-such-program")
        assert f"38;5;{_COLORS['warning'][0]}m" in lines[start]


@pytest.mark.parametrize("columns", [40, 80])
def test_commands_to_copy_are_not_broken(columns: int, tmp_path: Path) -> None:
    call = {"name": "run_shell_command", "arguments": {"command": "true"}}
    (tmp_path / "turns.json").write_text(json.dumps({"turns": [{"calls": [call]}]}))
    config = "[simulator]\nscript = 'turns.json'\n[tools]\nsandbox = false\n"
    (tmp_path / "toolwire.toml").write_text(config, encoding="utf-8")
    run_toolwire(tmp_path, "ask", "go", "--later")
    lines = [_ANSI.sub("", line) for line in run_in_terminal(tmp_path, columns, "runs", "show", "last")]
    assert re.fullmatch(r"waiting: toolwire runs resume run_\w+ --approve \S+", lines[-1])


def test_commands_of_the_gateway_are_not_broken(tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text("[server]\nkeys = ['a-key-of-the-gateway']\n", encoding="utf-8")
    with open_terminal(tmp_path, "serve", "--port", "0", program=f"{NARROW}{TERMINAL_PROGRAM}") as terminal:
        notes = terminal.read_until("or let toolwire configure it")
        assert re.search(r"\n  ANTHROPIC_BASE_URL=\S+ ANTHROPIC_AUTH_TOKEN=\S+ claude\n", notes)
        assert "simulator,\n    which answers to any model name" in notes
        with urllib.request.urlopen(f"{re.findall(r'http://[0-9.:]+', notes)[0]}/livez", timeout=DEADLINE):
            terminal.type_text("\x03")  # it handles signals as soon as it answers
        code, rest = terminal.wait()
        assert (code, rest.partition("^C")[2]) == (0, "\n")


def test_follower_shows_the_duration_of_the_run(folder: Path) -> None:
    run = json.loads(run_toolwire(folder, "runs", "show", "last", "--json").out)
    seconds = max(turn["finished"] for turn in run["turns"]) - run["at"]
    assert run_toolwire(folder, "runs", "follow", "last").err.endswith(f", {format_seconds(seconds)}\n")


def test_pipe_gets_complete_plain_lines(folder: Path) -> None:
    for arguments in LISTINGS:
        done = run_toolwire(folder, *arguments)
        assert "\x1b" not in done.out
        assert "\u2026" not in done.out or arguments == ["runs", "list"]
    lines = run_toolwire(folder, "journal", "tail").out.splitlines()
    assert len(lines) == 3
    assert [line.split()[2] for line in lines] == ["200", "200", "502"]
    assert "ex_0000000000000001" in lines[1]


def test_no_color_and_force_color_are_respected(folder: Path) -> None:
    assert not any("\x1b" in line for line in run_in_terminal(folder, 80, "runs", "list", NO_COLOR="1"))
    assert not any("\x1b" in line for line in run_in_terminal(folder, 80, "runs", "list", TERM="dumb"))
    assert "\x1b[38;5;" in run_toolwire(folder, "runs", "list", FORCE_COLOR="1").out
    assert "\x1b" not in run_toolwire(folder, "runs", "list", FORCE_COLOR="0").out
    assert "\x1b" not in run_toolwire(folder, "runs", "list", FORCE_COLOR="1", NO_COLOR="1").out
    assert any("\x1b[38;5;" in line for line in run_in_terminal(folder, 80, "runs", "list", TERM="xterm", COLORTERM=""))
    basic = run_in_terminal(folder, 80, "runs", "list", TERM="ansi", COLORTERM="")
    assert any("\x1b[32m" in line for line in basic)
    assert not any("38;5" in line for line in basic)


def test_beginning_of_an_id_finds_the_exchange(folder: Path) -> None:
    assert "ex_0000000000000002" in run_toolwire(folder, "journal", "show", "ex_0000000000000002").out
    assert run_toolwire(folder, "journal", "show", "ex_00000000").err.startswith("Error: more than one exchange begins")


BACKGROUNDS = {
    "dark": (0, 0, 0),
    "light": (255, 255, 255),
    "solarized-dark": (0x00, 0x2B, 0x36),
    "solarized-light": (0xFD, 0xF6, 0xE3),
}


@pytest.mark.parametrize("background", BACKGROUNDS.values(), ids=BACKGROUNDS)
def test_colors_are_readable_on_light_and_dark_terminals(background: tuple[int, int, int]) -> None:
    for style, (color, _) in _COLORS.items():
        assert contrast(xterm_color(color), background) >= 3.5, style


def xterm_color(number: int) -> tuple[int, int, int]:
    """Return the color of the 256 of xterm: a cube of 216, and 24 shades of gray."""
    if number >= 232:
        return (8 + 10 * (number - 232),) * 3
    levels = (0, 95, 135, 175, 215, 255)
    return levels[(number - 16) // 36], levels[(number - 16) // 6 % 6], levels[(number - 16) % 6]


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """Return the contrast ratio of WCAG 2."""
    darker, lighter = sorted(map(luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(color: tuple[int, int, int]) -> float:
    levels = (level / 255 for level in color)
    red, green, blue = (level / 12.92 if level <= 0.04045 else ((level + 0.055) / 1.055) ** 2.4 for level in levels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("run it with `toolwire serve`, now", ["run it with", "  `toolwire serve`,", "  now"]),
        ("an `unclosed one is text as any", ["an `unclosed one is", "  text as any"]),
        ("a `span that is longer than a line` here", ["a `span that is", "  longer than a line`", "  here"]),
        ("hash = 0123456789012345678 and", ["hash =", " 0123456789012345678", "  and"]),
        ("hash = 01234567890123456789012 and", ["hash =", "01234567890123456789012", "  and"]),
    ],
)
def test_lines_break_at_words_but_not_in_commands(text: str, lines: list[str]) -> None:
    assert wrap_text(text, 21 if "`" in text else 20, 2).split("\n") == lines


@pytest.mark.parametrize(
    ("dollars", "text"),
    [(0, "$0.0000"), (0.00001, "<$0.0001"), (0.00006, "$0.0001"), (1234.5, "$1,234.5000")],
)
def test_small_amounts_are_not_shown_as_nothing(dollars: float, text: str) -> None:
    assert format_dollars(dollars) == text


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("hello", 5, "hello"),
        ("hello!", 5, "hell\u2026"),
        ("\u6771\u4eac\u6771\u4eac", 5, "\u6771\u4eac\u2026"),
        ("ab", 1, "\u2026"),
    ],
)
def test_texts_are_shortened_by_columns(text: str, width: int, short: str) -> None:
    assert shorten(text, width) == short
    assert text_width(short) <= width


def test_mcp_server_that_a_person_starts_says_whom_it_waits_for(tmp_path: Path) -> None:
    handle, end = pty.openpty()
    process = start_forked(
        "mcp", "serve", folder=tmp_path, environment=cli_environment(tmp_path), stdin=end, stdout=end, stderr=end
    )
    os.close(end)
    note = b""
    while not note.endswith(b"HTTP\r\n"):
        note += os.read(handle, 65_536)
    process.terminate()
    process.wait(DEADLINE)
    os.close(handle)
    assert b" ".join(note.split()).startswith(b"serving MCP on stdin and stdout, for a client that starts this command")
