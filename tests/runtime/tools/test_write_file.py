"""The `write_file` and `replace` tools."""

import stat
from pathlib import Path

import pytest

from tests.support.runtime.tool_calls import built_in_tool, run_tool, run_tool_for_text
from toolwire.runtime.tool import ToolError


def test_write_reports_the_number_of_bytes(tmp_path: Path) -> None:
    write = built_in_tool(tmp_path, "write_file")
    path = f"{tmp_path}/deep/NEW.txt"
    assert run_tool_for_text(write, file_path=path, content="hello") == f"Wrote 5 bytes to {path}"
    assert run_tool_for_text(write, file_path=path, content="ä\r\n") == f"Wrote 4 bytes to {path}"
    assert Path(path).read_bytes() == b"\xc3\xa4\r\n"


def test_directory_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="is a directory"):
        run_tool(built_in_tool(tmp_path, "write_file"), file_path=f"{tmp_path}", content="")
    (tmp_path / "sub").mkdir()
    with pytest.raises(ToolError, match="is a directory"):
        run_tool(built_in_tool(tmp_path, "write_file"), file_path="sub", content="")
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolError, match="has a part that is not a directory"):
        run_tool(built_in_tool(tmp_path, "write_file"), file_path="file/below", content="")


def test_invalid_unicode_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="not valid Unicode at character 1"):
        run_tool(built_in_tool(tmp_path, "write_file"), file_path="a", content="a\ud800")
    assert list(tmp_path.iterdir()) == []


def test_user_configuration_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text("[policy]\n")
    for name in ("write_file", "replace"):
        arguments = {"content": ""} if name == "write_file" else {"old_string": "policy", "new_string": "p"}
        with pytest.raises(ToolError, match="configuration"):
            run_tool(built_in_tool(tmp_path, name), file_path=f"{tmp_path}/toolwire.toml", **arguments)


def test_one_occurrence_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "app.ts").write_text("const a = 1;\nconst b = 1;\n")
    (tmp_path / "app.ts").chmod(0o755)
    replace, path = built_in_tool(tmp_path, "replace"), f"{tmp_path}/app.ts"
    message = run_tool_for_text(
        replace, file_path=path, old_string="const a = 1;", new_string="const a = 2;", expected_replacements=1
    )
    assert message == f"Updated {path}: 1 replacement"
    assert (tmp_path / "app.ts").read_text() == "const a = 2;\nconst b = 1;\n"
    assert stat.S_IMODE((tmp_path / "app.ts").stat().st_mode) == 0o755
    assert run_tool_for_text(
        replace, file_path=path, old_string="const", new_string="let", expected_replacements=2
    ) == (f"Updated {path}: 2 replacements")


@pytest.mark.parametrize(
    ("old", "expected", "message"),
    [
        ("one", None, "old_string occurs 3 times in a, expected 1"),
        ("one", 2, "old_string occurs 3 times in a, expected 2"),
        ("One", None, "old_string not found in a"),
        ("two", 1, "the same"),
        ("", None, "a already exists"),
    ],
)
def test_failed_replacement_changes_nothing(tmp_path: Path, old: str, expected: int | None, message: str) -> None:
    (tmp_path / "a").write_text("one one one")
    more = {} if expected is None else {"expected_replacements": expected}
    with pytest.raises(ToolError, match=message):
        run_tool(built_in_tool(tmp_path, "replace"), file_path="a", old_string=old, new_string="two", **more)
    assert (tmp_path / "a").read_text() == "one one one"


def test_empty_old_string_creates_a_file(tmp_path: Path) -> None:
    assert (
        run_tool_for_text(built_in_tool(tmp_path, "replace"), file_path="a", old_string="", new_string="new")
        == "Wrote 3 bytes to a"
    )
    with pytest.raises(ToolError, match="file not found: b"):
        run_tool(built_in_tool(tmp_path, "replace"), file_path="b", old_string="x", new_string="new")


def test_invalid_utf_8_is_preserved(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"caf\xe9\0 one")
    run_tool_for_text(built_in_tool(tmp_path, "replace"), file_path="a", old_string="one", new_string="zwölf")
    assert (tmp_path / "a").read_bytes() == b"caf\xe9\0 zw\xc3\xb6lf"


def test_line_endings_of_the_file_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    run_tool_for_text(built_in_tool(tmp_path, "replace"), file_path="a", old_string="one\ntwo", new_string="1\n2")
    assert (tmp_path / "a").read_bytes() == b"1\r\n2\r\nthree\r\n"


def test_preview_shows_the_diff(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    expected = "--- a\n+++ a\n@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n"
    write, replace = built_in_tool(tmp_path, "write_file"), built_in_tool(tmp_path, "replace")
    assert write.preview({"file_path": "a", "content": "one\nzwei\n"}) == expected
    assert replace.preview({"file_path": "a", "old_string": "two", "new_string": "zwei"}) == expected
    assert write.preview({"file_path": "b", "content": "x"}) == (
        "--- /dev/null\n+++ b\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
    )
    assert replace.preview({"file_path": "a", "old_string": "no", "new_string": "x"}) == (
        "old_string not found in a: read the file and copy the text exactly"
    )
    assert (tmp_path / "a").read_text() == "one\ntwo\n"


def test_preview_escapes_control_characters(tmp_path: Path) -> None:
    shown = built_in_tool(tmp_path, "write_file").preview(
        {"file_path": "a", "content": "safe\x1b[2K\x1b[1A\u202eevil\r\n"}
    )
    assert shown is not None
    assert "\\x1b[2K" in shown
    assert not {"\x1b", "\r", "\u202e"} & set(shown)


def test_long_diff_is_cut_and_huge_file_not_diffed(tmp_path: Path) -> None:
    write = built_in_tool(tmp_path, "write_file")
    long = write.preview({"file_path": "a", "content": "line\n" * 20_000})
    assert long is not None
    assert len(long) < 21_000 + 40_000
    assert long.endswith("[rest of the diff not shown]\n")
    assert (
        write.preview({"file_path": "a", "content": "x" * 2_000_000})
        == "a: 0 bytes before, 2000000 after; diff not shown\n"
    )


@pytest.mark.parametrize(
    ("before", "line", "text", "after"),
    [
        ("a\nb\n", 0, "x\n", "x\na\nb\n"),
        ("a\nb\n", 1, "x", "a\nx\nb\n"),
        ("a\nb\n", 2, "x\ny", "a\nb\nx\ny\n"),
        ("a\nb", 2, "x", "a\nb\nx"),
        ("a\nb", 1, "x", "a\nx\nb"),
        ("a\r\nb\r\n", 1, "x\ny\n", "a\r\nx\r\ny\r\nb\r\n"),
        ("a\r\nb", 2, "x", "a\r\nb\r\nx"),
        ("", 0, "x", "x\n"),
        ("\n", 1, "x", "\nx\n"),
    ],
)
def test_text_is_inserted_as_lines(before: str, line: int, text: str, after: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(before.encode())
    tool = built_in_tool(tmp_path, "replace")
    message = run_tool_for_text(tool, file_path="a", old_string="", new_string=text, after_line=line)
    assert (tmp_path / "a").read_bytes() == after.encode()
    assert message == f"Updated a: inserted {len(after) - len(before)} bytes after line {line}"


def test_text_is_inserted_only_where_there_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\nb\n")
    tool = built_in_tool(tmp_path, "replace")
    with pytest.raises(ToolError, match="a has 2 lines: there is no line 3"):
        run_tool(tool, file_path="a", old_string="", new_string="x", after_line=3)
    with pytest.raises(ToolError, match="after_line needs an empty old_string"):
        run_tool(tool, file_path="a", old_string="a", new_string="x", after_line=1)
    with pytest.raises(ToolError, match="file not found"):
        run_tool(tool, file_path="none", old_string="", new_string="x", after_line=0)
    assert (tmp_path / "a").read_text() == "a\nb\n"
    preview = tool.preview({"file_path": "a", "old_string": "", "new_string": "x", "after_line": 1})
    assert preview is not None
    assert "+x" in preview
