"""`apply_patch`: the format, the search for context, and atomicity."""

import asyncio
import stat
from pathlib import Path

import llguidance
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runtime.tool_calls import built_in_tool, tool_context
from toolwire.runtime.tool import ToolError
from toolwire.runtime.tools.apply_patch import PATCH_GRAMMAR, AddFile, DeleteFile, UpdateFile, apply_update, parse_patch


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


async def _run(root: Path, text: str) -> str:
    apply_patch = built_in_tool(root, "apply_patch")
    return str(await apply_patch.run(text, tool_context(apply_patch)))


def apply_patch(root: Path, *lines: str) -> str:
    return asyncio.run(_run(root, patch(*lines)))


def files(root: Path) -> dict[str, str]:
    """Return the content of each file; a directory has none."""
    paths = sorted(root.rglob("*"))
    return {str(path.relative_to(root)): path.read_text() if path.is_file() else "" for path in paths}


def grammar_accepts(text: str) -> bool:
    """Return whether the grammar accepts the complete text."""
    tokenizer = llguidance.LLTokenizer("byte")
    matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_lark(PATCH_GRAMMAR))
    tokens = tokenizer.tokenize_str(text)
    fits = matcher.validate_tokens(tokens) == len(tokens) and bool(matcher.consume_tokens(tokens))
    return fits and matcher.is_accepting()


WHOLE = patch(
    "*** Add File: new/a.txt",
    "+one",
    "+",
    "*** Update File: b.txt",
    "*** Move to: c.txt",
    "@@ def f():",
    " kept",
    "-old",
    "+new",
    "*** End of File",
    "*** Delete File: d.txt",
)


def test_grammar_and_parser_accept_every_construct() -> None:
    assert grammar_accepts(WHOLE)
    added, updated, deleted = parse_patch(WHOLE)
    assert added == AddFile("new/a.txt", "one\n\n")
    assert deleted == DeleteFile("d.txt")
    assert isinstance(updated, UpdateFile)
    assert (updated.path, updated.move_to) == ("b.txt", "c.txt")
    (change,) = updated.changes
    assert (change.anchor, change.lines, change.at_end) == ("def f():", [" kept", "-old", "+new"], True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*** Begin Patch",
        "*** Begin Patch\n*** End Patch",
        "*** Begin Patch\n*** End Patch\nmore",
        " *** Begin Patch\n*** Delete File: a\n*** End Patch",
        patch("*** Add File: a"),
        patch("*** Add File: a", "no plus"),
        patch("*** Add File: "),
        patch("*** Rename File: a"),
        patch("*** Delete File: a", "+x"),
        patch("*** Update File: a", "*** Move to: "),
        patch("*** Update File: a", "@@", "x"),
        patch("*** Update File: a", "*** End of File", "+x"),
        patch("*** Update File: a", "+x", "*** End of File", "+y"),
        "*** Begin Patch\n*** Begin Patch\n*** Delete File: a\n*** End Patch\n*** End Patch",
    ],
)
def test_parser_rejects_what_the_grammar_rejects(text: str) -> None:
    assert not grammar_accepts(text)
    with pytest.raises(ToolError, match="of the patch is invalid"):
        parse_patch(text)


def test_update_without_changes_is_an_error() -> None:
    with pytest.raises(ToolError, match="a has no changes"):
        parse_patch(patch("*** Update File: a"))


def test_signed_lines_that_look_like_headers_are_content() -> None:
    (added,) = parse_patch(patch("*** Add File: a", "+*** End Patch", "+*** Delete File: b"))
    assert added == AddFile("a", "*** End Patch\n*** Delete File: b\n")


def test_patch_may_have_windows_line_endings() -> None:
    assert parse_patch(WHOLE.replace("\n", "\r\n")) == parse_patch(WHOLE)


def apply_changes(text: str, *lines: str) -> str:
    (update,) = parse_patch(patch("*** Update File: a", *lines))
    assert isinstance(update, UpdateFile)
    return apply_update(update, text)


@pytest.mark.parametrize(
    ("before", "lines", "after"),
    [
        ("a\nb\nc\n", [" a", "-b", "+B", " c"], "a\nB\nc\n"),
        ("a\nb\nc\n", ["@@", "-b"], "a\nc\n"),
        ("a\nb\n", ["+c"], "a\nb\nc\n"),
        ("", ["+a"], "a\n"),
        ("x\nf\nx\n", ["@@ f", "-x", "+y"], "x\nf\ny\n"),
        ("c1\nf\nc2\nf\n", ["@@ c2", "-f", "+g"], "c1\nf\nc2\ng\n"),
        ("a\nb\n", ["@@ a", "+between"], "a\nbetween\nb\n"),
        ("x\ny\nx\n", ["-x", "+z", "*** End of File"], "x\ny\nz\n"),
        ("1\n2\n3\n4\n", ["@@", "-1", "+one", "@@", "-4", "+four"], "one\n2\n3\nfour\n"),
        ("a\nb", ["-a", "+A"], "A\nb"),
        ("a\nb", ["+c"], "a\nb\nc\n"),
        ("a\nb", ["-b", "+B"], "a\nB\n"),
        ("a\r\nb\r\n", [" a", "-b", "+B"], "a\r\nB\r\n"),
        ("a\r\nb\nc\r\n", ["-c", "+C"], "a\r\nb\nC\r\n"),
        ("a  \nb\n", [" a", "-b", "+B"], "a  \nB\n"),
        ("\ta\nb\n", [" a", "-b", "+B"], "\ta\nB\n"),
        ("\u201ca\u201d \u2014\nb\n", [' "a" -', "-b", "+B"], "\u201ca\u201d \u2014\nB\n"),
        ("a\n\nb\n", [" a", "", "-b", "+B"], "a\n\nB\n"),
    ],
)
def test_change_is_located_by_context(before: str, lines: list[str], after: str) -> None:
    assert apply_changes(before, *lines) == after


@pytest.mark.parametrize(
    ("before", "lines"),
    [
        ("a\n", ["-b"]),
        ("a\n", ["@@ none", "+b"]),
        ("b\na\n", ["@@", "-a", "+A", "@@", "-b", "+B"]),
        ("x\ny\n", ["-x", "*** End of File"]),
        ("a\n", [" a", " b", " c", "-d"]),
        ("", ["-a"]),
    ],
)
def test_missing_context_is_an_error(before: str, lines: list[str]) -> None:
    with pytest.raises(ToolError, match=r"a has no line|a does not contain these lines"):
        apply_changes(before, *lines)


def test_files_are_added_changed_moved_and_deleted(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("def f():\nkept\nold\n")
    (tmp_path / "b.txt").chmod(0o755)
    (tmp_path / "d.txt").write_text("gone")
    result = apply_patch(tmp_path, *WHOLE.splitlines()[1:-1])
    assert result == "Success. Updated the following files:\nA new/a.txt\nM c.txt\nD d.txt"
    assert files(tmp_path) == {"c.txt": "def f():\nkept\nnew\n", "new": "", "new/a.txt": "one\n\n"}


def test_mode_of_changed_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n")
    (tmp_path / "a").chmod(0o750)
    apply_patch(tmp_path, "*** Update File: a", "-x", "+y")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o750


def test_hunks_apply_in_order_for_any_path_spelling(tmp_path: Path) -> None:
    result = apply_patch(
        tmp_path,
        *("*** Add File: a", "+1", "*** Update File: ./sub/../a", "-1", "+2", f"*** Update File: {tmp_path}/a"),
        *("*** Move to: b", "-2", "+3"),
    )
    assert result.splitlines()[1:] == ["A a", "M ./sub/../a", "M b"]
    assert files(tmp_path) == {"b": "3\n"}


def test_file_can_be_moved_without_changes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"caf\xe9")
    apply_patch(tmp_path, "*** Update File: a", "*** Move to: b")
    assert (tmp_path / "b").read_bytes() == b"caf\xe9"
    assert not (tmp_path / "a").exists()


def test_invalid_utf_8_is_preserved(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"caf\xe9\nx\n")
    apply_patch(tmp_path, "*** Update File: a", "-x", "+y")
    assert (tmp_path / "a").read_bytes() == b"caf\xe9\ny\n"


@pytest.mark.parametrize(
    "bad",
    [
        ["*** Update File: a", "-not there"],
        ["*** Update File: none", "-x"],
        ["*** Delete File: none"],
        ["*** Delete File: sub"],
        ["*** Add File: a", "+again"],
        ["*** Update File: a", "*** Move to: b"],
        ["*** Add File: ../out", "+x"],
        ["*** Add File: /etc/toolwire-was-here", "+x"],
        ["*** Update File: a", "*** Move to: ../out"],
        ["*** Update File: link", "-one", "+x"],
        ["*** Delete File: link"],
        ["*** Add File: linked/x", "+x"],
        ["*** Add File: .git/hooks/pre-commit", "+x"],
        ["*** Add File: toolwire.toml", "+x"],
        ["*** Add File: a/below", "+x"],
        ["*** Delete File: a", "*** Update File: a", "-one"],
        ["*** Add File: a\0b", "+x"],
        ["*** Update File: a", "+\ud800"],
    ],
)
def test_failing_hunk_changes_nothing(tmp_path: Path, bad: list[str]) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    for name in ("a", "b", "gone"):
        (root / name).write_text("one\n")
    (root / "link").symlink_to("a")
    (root / "linked").symlink_to("sub")
    before = files(root)
    good = ["*** Add File: new", "+x", "*** Update File: b", "-one", "+two", "*** Delete File: gone"]
    for lines in ([*good, *bad], [*bad, *good]):
        with pytest.raises(ToolError):
            apply_patch(root, *lines)
        assert files(root) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root"]


def test_write_failure_is_rolled_back(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    # A name that can be planned but not created, because it is too long for the file system.
    name = "x" * 250
    with pytest.raises(ToolError):
        apply_patch(tmp_path, "*** Update File: a", "-one", "+two", f"*** Add File: {name}/{'y' * 300}", "+x")
    assert files(tmp_path) == {"a": "one\n"}
    with pytest.raises(ToolError):
        apply_patch(tmp_path, "*** Add File: new/f", "+x", "*** Add File: new/f/g", "+x", "*** Delete File: a")
    assert files(tmp_path) == {"a": "one\n"}


def test_preview_shows_every_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "d").write_text("gone\n")
    text = patch("*** Update File: a", "*** Move to: b", "-one", "+two", "*** Add File: c", "+x", "*** Delete File: d")
    assert built_in_tool(tmp_path, "apply_patch").preview(text) == (
        "--- a\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n"
        "--- /dev/null\n+++ b\n@@ -0,0 +1 @@\n+two\n"
        "--- /dev/null\n+++ c\n@@ -0,0 +1 @@\n+x\n"
        "--- d\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"
    )
    assert built_in_tool(tmp_path, "apply_patch").preview("nonsense") is not None
    assert files(tmp_path) == {"a": "one\n", "d": "gone\n"}


PIECES = st.sampled_from(
    [
        *("*** Begin Patch", "*** End Patch", "*** Add File: a", "*** Delete File: b", "*** Update File: c"),
        *("*** Move to: d", "*** End of File", "@@", "@@ x", "+x", "-x", " x", "+", "-", " ", "x", "", "*** Other"),
    ]
)


def parser_rejects(text: str) -> bool:
    """Return whether the parser rejects the text. An empty update is valid in the grammar and is not counted."""
    try:
        parse_patch(text)
    except ToolError as fault:
        return "has no changes" not in str(fault)
    return False


@settings(max_examples=300, deadline=None)
@given(lines=st.lists(PIECES, max_size=7), end=st.sampled_from(["", "\n"]))
def test_parser_accepts_what_the_grammar_accepts(lines: list[str], end: str) -> None:
    text = patch(*lines) + end
    assert not (grammar_accepts(text) and parser_rejects(text))


@settings(max_examples=200, deadline=None)
@given(data=st.data(), length=st.integers(1, 12), ended=st.booleans(), newline=st.sampled_from(["\n", "\r\n"]))
def test_change_with_context_applies_exactly(data: st.DataObject, length: int, ended: bool, newline: str) -> None:
    lines = [f"line {number}" for number in range(length)]
    start = data.draw(st.integers(0, length - 1))
    stop = data.draw(st.integers(start + 1, length))
    new = data.draw(st.lists(st.sampled_from(["one", "two", ""]), max_size=3))
    around = [f" {line}" for line in lines[max(0, start - 2) : start]], [f" {line}" for line in lines[stop : stop + 2]]
    written = [*around[0], *(f"-{line}" for line in lines[start:stop]), *(f"+{line}" for line in new), *around[1]]
    # Only the last line may lack a line ending.
    ends_with_newline = ended or stop == length
    before = newline.join(lines) + (newline if ended else "")
    after = [*lines[:start], *new, *lines[stop:]]
    expected = newline.join(after) + (newline if ends_with_newline and after else "")
    single = length == 1 and not ended
    expected_text = expected.replace("\r\n", "\n") if single else expected
    assert apply_changes(before, *written) == expected_text
