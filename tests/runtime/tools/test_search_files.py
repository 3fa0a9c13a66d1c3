"""`search_file_content`, with ripgrep and in pure Python."""

import asyncio
from pathlib import Path

import pytest

from tests.support.runtime.tool_calls import run_tool_for_text, tool_context
from toolwire.runtime.tool import Tool, ToolError
from toolwire.runtime.tools.search_files import find_ripgrep, search_files_tools
from toolwire.runtime.tools.workspace import Workspace

PROGRAM = find_ripgrep()
WAYS = {"ripgrep": PROGRAM, "Python": None}


def test_ripgrep_is_installed_for_the_tests() -> None:
    assert PROGRAM is not None


def search_tool(root: Path, program: str | None, hidden: Path | None = None) -> Tool:
    (tool,) = search_files_tools(Workspace(root, hidden=[hidden] if hidden else []), program)
    return tool


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def search(tmp_path: Path, request: pytest.FixtureRequest) -> Tool:
    return search_tool(tmp_path, request.param)


def write_files(root: Path, **files: str | bytes) -> None:
    for name, content in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def test_matches_have_path_and_line_number(tmp_path: Path, search: Tool) -> None:
    write_files(tmp_path, b_dot_ts="x\n// TODO: add tests\n", a_dot_ts="\n" * 9 + "// TODO: refactor\n")
    root = tmp_path.resolve()
    assert run_tool_for_text(search, pattern="TODO", path=str(root), include="**/*.ts") == (
        f"{root}/a.ts:10: // TODO: refactor\n{root}/b.ts:2: // TODO: add tests"
    )
    assert run_tool_for_text(search, pattern="TODO") == "a.ts:10: // TODO: refactor\nb.ts:2: // TODO: add tests"


def test_no_results_are_reported(tmp_path: Path, search: Tool) -> None:
    write_files(tmp_path, a="text")
    assert run_tool_for_text(search, pattern="none") == "No matches found."


def test_path_selects_a_directory_or_file(tmp_path: Path, search: Tool) -> None:
    write_files(tmp_path, a="one\n", sub__b="one\n", sub__deep__c="one\n")
    assert run_tool_for_text(search, pattern="one", path="sub") == "sub/b:1: one\nsub/deep/c:1: one"
    assert run_tool_for_text(search, pattern="one", path="sub/b") == "sub/b:1: one"
    assert run_tool_for_text(search, pattern="one", path=f"{tmp_path.resolve()}/a") == f"{tmp_path.resolve()}/a:1: one"


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/*.py", ["src/b.py"]),
        ("src/**/*.{py,txt}", ["src/b.py", "src/d.txt", "src/deep/c.py"]),
        ("*.log", []),
    ],
)
def test_include_filters_files_by_glob(tmp_path: Path, search: Tool, include: str, expected: list[str]) -> None:
    write_files(tmp_path, a_dot_py="x", src__b_dot_py="x", src__d_dot_txt="x", src__deep__c_dot_py="x", e_dot_log="x")
    write_files(tmp_path, _dot_gitignore="*.log\n")
    text = run_tool_for_text(search, pattern="x", include=include)
    assert [line.partition(":")[0] for line in text.splitlines() if ":" in line] == expected


def test_ignored_files_are_skipped_from_any_start_directory(tmp_path: Path, search: Tool) -> None:
    write_files(tmp_path, _dot_gitignore="build/\n*.log\n/only-here\n", src___dot_gitignore="!keep.log\nlocal\n")
    write_files(tmp_path, build__a="x", src__build__b="x", src__c="x", src__d_dot_log="x", src__keep_dot_log="x")
    write_files(tmp_path, src__local="x", _dot_git__config="x", _dot_hidden="x")
    (tmp_path / "only-here").write_text("x")
    (tmp_path / "src" / "only-here").write_text("x")
    lines = ".hidden:1: x\nsrc/c:1: x\nsrc/keep.log:1: x\nsrc/only-here:1: x"
    assert run_tool_for_text(search, pattern="^x") == lines
    assert run_tool_for_text(search, pattern="^x", path="src") == lines.partition("\n")[2]
    # A file that is named explicitly is searched.
    assert run_tool_for_text(search, pattern="^x", path="build/a") == "build/a:1: x"


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("^b$", [2]),
        ("\\Ab\\z", [2]),
        ("(?i)^B$", [2]),
        ("^$", [3]),
        ("a|b", [1, 2, 5]),
        ("a\\s*b", [5]),
        ("c[^x]a", []),
        ("\\bc\\b", [4]),
        ("(?s)c.a", []),
        ("a$|^c", [1, 4]),
        ("(?-m)^c", [4]),
        ("\\Qa.\\E", []),
    ],
)
def test_anchors_and_classes_match_single_lines(tmp_path: Path, search: Tool, pattern: str, lines: list[int]) -> None:
    write_files(tmp_path, f="a\nb\n\nc\nab\n")
    found = run_tool_for_text(search, pattern=pattern).splitlines()
    assert [int(line.split(":")[1]) for line in found if line.startswith("f:")] == lines


def test_gitignore_above_the_workspace_is_not_read(tmp_path: Path) -> None:
    write_files(tmp_path, _dot_gitignore="*.py\n", _dot_ignore="*.py\n", _dot_rgignore="*\n", root__a_dot_py="x\n")
    for program in WAYS.values():
        assert run_tool_for_text(search_tool(tmp_path / "root", program), pattern="x") == "a.py:1: x"


def test_binary_files_are_skipped(tmp_path: Path, search: Tool) -> None:
    write_files(tmp_path, a="needle\n", b=b"needle\n" + b"\0" * 10, c=b"needle\n" + b"x\n" * 200_000 + b"\0")
    assert run_tool_for_text(search, pattern="needle") == "a:1: needle"


def test_invalid_utf_8_is_shown_as_replacement_characters(tmp_path: Path, search: Tool) -> None:
    write_files(tmp_path, a=b"caf\xe9 needle\r\nsecond n\xc3\xa9edle\n")
    assert run_tool_for_text(search, pattern="n.edle") == "a:1: caf\ufffd needle\na:2: second n\u00e9edle"


def test_matches_are_limited_with_a_note(tmp_path: Path, search: Tool) -> None:
    write_files(tmp_path, a="x\n" * 300, b="x\n")
    lines = run_tool_for_text(search, pattern="x", max_matches=3).splitlines()
    assert lines[:3] == ["a:1: x", "a:2: x", "a:3: x"]
    assert lines[3:] == ["[only the first 3 matches are shown: narrow the search]"]
    assert len(run_tool_for_text(search, pattern="x").splitlines()) == 201
    assert run_tool_for_text(search, pattern="x", max_matches=301).splitlines()[-1] == "b:1: x"
    write_files(tmp_path, a=("x" * 400 + "\n") * 200)
    assert (
        run_tool_for_text(search, pattern="x").splitlines()[-1]
        == "[only the first 88 matches are shown: narrow the search]"
    )


def test_long_lines_are_cut(tmp_path: Path, search: Tool) -> None:
    write_files(tmp_path, a="needle " + "y" * 1_000_000)
    assert run_tool_for_text(search, pattern="needle") == f"a:1: needle {'y' * 493}[... 999507 more characters]"


def test_matches_are_sorted_by_path(tmp_path: Path, search: Tool) -> None:
    write_files(tmp_path, a__z="x", a_dot_b="x", a_b="x", B="x", aa="x", a__A="x")
    lines = run_tool_for_text(search, pattern="x").splitlines()
    assert [line.partition(":")[0] for line in lines] == ["B", "a/A", "a/z", "a.b", "a_b", "aa"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    write_files(tmp_path, outside__secret="needle", root__a="needle")
    (tmp_path / "root" / "link").symlink_to("../outside")
    (tmp_path / "root" / "file").symlink_to("../outside/secret")
    (tmp_path / "root" / "b").symlink_to("a")
    for program in WAYS.values():
        search = search_tool(tmp_path / "root", program)
        assert run_tool_for_text(search, pattern="needle") == "a:1: needle"
        for path in ("link", "file", "../outside", "/etc"):
            with pytest.raises(ToolError, match="outside"):
                run_tool_for_text(search, pattern="needle", path=path)


def test_files_outside_found_by_ripgrep_are_not_shown(tmp_path: Path) -> None:
    write_files(tmp_path, outside__secret="needle", root__a="needle")
    (tmp_path / "root" / "link").symlink_to("../outside/secret")
    # As if a file became a link after ripgrep listed its directory.
    led = tmp_path / "led"
    led.write_text("#!/bin/sh\nprintf './a\\0./link\\0../outside/secret\\0'\n")
    led.chmod(0o755)
    assert run_tool_for_text(search_tool(tmp_path / "root", str(led)), pattern="needle") == "a:1: needle"


def test_hidden_files_are_not_found(tmp_path: Path) -> None:
    write_files(tmp_path, a="needle", state__journal="needle")
    for program in WAYS.values():
        assert run_tool_for_text(search_tool(tmp_path, program, tmp_path / "state"), pattern="needle") == "a:1: needle"


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", "(a)\\1", "a\nb", "\udcff"])
def test_invalid_pattern_is_an_error(tmp_path: Path, search: Tool, pattern: str) -> None:
    with pytest.raises(ToolError):
        run_tool_for_text(search, pattern=pattern)


@pytest.mark.parametrize("pattern", ["-e", "--files", "--pre=sh", "-f/etc/passwd"])
def test_pattern_is_never_parsed_as_an_option(tmp_path: Path, search: Tool, pattern: str) -> None:
    write_files(tmp_path, a=f"{pattern}\nroot:x:0\n")
    assert run_tool_for_text(search, pattern=pattern) == f"a:1: {pattern}"


def test_file_named_like_an_option_is_a_file(tmp_path: Path, search: Tool) -> None:
    (tmp_path / "--pre=sh").write_text("needle\n")
    assert run_tool_for_text(search, pattern="needle", path="--pre=sh") == "--pre=sh:1: needle"


def test_no_pattern_takes_exponential_time(tmp_path: Path, search: Tool) -> None:
    write_files(tmp_path, a="a" * 20_000)
    assert run_tool_for_text(search, pattern="(a*)*(a|a)*(a+)+$b") == "No matches found."


def test_ripgrep_is_killed_on_cancellation(tmp_path: Path) -> None:
    # A command that does not end by itself: sh ignores the options and reads the file.
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\necho $$ > pid\nexec sleep 60\n")
    slow.chmod(0o755)
    search = search_tool(tmp_path, str(slow))

    async def cancelled() -> None:
        task = asyncio.ensure_future(search.run({"pattern": "a"}, tool_context(search)))
        pid = tmp_path / "pid"
        while not (pid.exists() and pid.read_text()):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
