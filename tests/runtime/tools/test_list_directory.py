"""The `list_directory` and `glob` tools."""

import os
from pathlib import Path

import pytest

from tests.support.runtime.tool_calls import built_in_tool, run_tool, run_tool_for_text
from toolwire.runtime.tool import ToolError


def create_files(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def test_directory_is_listed(tmp_path: Path) -> None:
    create_files(tmp_path, "b.txt", "a/deep", ".hidden")
    (tmp_path / "link").symlink_to("/etc")
    assert (
        run_tool_for_text(built_in_tool(tmp_path, "list_directory"), path=f"{tmp_path}")
        == ".hidden\na/\nb.txt\nlink -> /etc"
    )
    assert run_tool_for_text(built_in_tool(tmp_path, "list_directory"), path="a") == "deep"


def test_empty_directory_is_reported(tmp_path: Path) -> None:
    assert run_tool_for_text(built_in_tool(tmp_path, "list_directory"), path=".") == "(empty)"


@pytest.mark.parametrize(
    ("path", "message"),
    [("none", "file not found: none"), ("..", "outside"), ("/etc", "outside"), ("f", "f is a file, not a directory")],
)
def test_unlistable_path_is_an_error(tmp_path: Path, path: str, message: str) -> None:
    create_files(tmp_path, "f")
    with pytest.raises(ToolError, match=message):
        run_tool(built_in_tool(tmp_path, "list_directory"), path=path)


def test_names_with_line_breaks_are_escaped(tmp_path: Path) -> None:
    create_files(tmp_path, "a\nfake", "b\x1b[2J")
    (tmp_path / os.fsdecode(b"\xff")).write_text("")
    assert run_tool_for_text(built_in_tool(tmp_path, "list_directory"), path=".") == "a\\x0afake\nb\\x1b[2J\n\ufffd"


def test_number_of_entries_is_limited(tmp_path: Path) -> None:
    for number in range(1005):
        (tmp_path / f"{number:04}").touch()
    lines = run_tool_for_text(built_in_tool(tmp_path, "list_directory"), path=".").splitlines()
    assert lines[999:] == ["0999", "[5 more entries not listed]"]
    assert (
        run_tool_for_text(built_in_tool(tmp_path, "glob"), pattern="*").splitlines()[-1]
        == "[more files match: narrow the pattern]"
    )


def test_total_length_of_names_is_limited(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number:03}{'x' * 200}").touch()
    for told in (
        run_tool_for_text(built_in_tool(tmp_path, "list_directory"), path="."),
        run_tool_for_text(built_in_tool(tmp_path, "glob"), pattern="*"),
    ):
        assert len(told) < 40_000
        assert told.endswith("]")


def test_glob_finds_files(tmp_path: Path) -> None:
    create_files(
        tmp_path, "src/b.py", "src/a.py", "src/deep/c.py", "top.py", "out/x.py", "out/keep.py", "src/.git/y.py"
    )
    (tmp_path / ".gitignore").write_text("out/*\n!out/keep.py\n")
    (tmp_path / "src" / ".gitignore").write_text("deep\n")
    glob = built_in_tool(tmp_path, "glob")
    assert run_tool_for_text(glob, pattern="**/*.py") == "out/keep.py\nsrc/a.py\nsrc/b.py\ntop.py"
    assert run_tool_for_text(glob, pattern="*.py") == "top.py"
    assert run_tool_for_text(glob, pattern="*.py", path="src") == "src/a.py\nsrc/b.py"
    root = tmp_path.resolve()
    assert run_tool_for_text(glob, pattern=f"{root}/src/*.py") == f"{root}/src/a.py\n{root}/src/b.py"
    assert run_tool_for_text(glob, pattern="*.py", path=f"{root}/src") == f"{root}/src/a.py\n{root}/src/b.py"
    assert run_tool_for_text(glob, pattern="*.rs") == "No files match *.rs"


def test_glob_does_not_follow_links(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    create_files(outside, "secret.py")
    create_files(root, "a.py")
    (root / "out").symlink_to(outside)
    (root / "secret.py").symlink_to(outside / "secret.py")
    (root / "loop").symlink_to(".")
    assert run_tool_for_text(built_in_tool(root, "glob"), pattern="**") == "a.py"
    with pytest.raises(ToolError, match="outside"):
        run_tool(built_in_tool(root, "glob"), pattern="../outside/*", path="..")
    assert run_tool_for_text(built_in_tool(root, "glob"), pattern="../outside/*") == "No files match ../outside/*"


def test_hidden_entries_are_not_listed(tmp_path: Path) -> None:
    create_files(tmp_path, "a", "state/journal")
    settings = {"hidden": [tmp_path / "state"]}
    assert run_tool_for_text(built_in_tool(tmp_path, "list_directory", **settings), path=".") == "a"
    assert run_tool_for_text(built_in_tool(tmp_path, "glob", **settings), pattern="**") == "a"


def test_deep_directories_are_walked_to_a_limit(tmp_path: Path) -> None:
    handle = os.open(tmp_path, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("d", dir_fd=handle)
        deeper = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = deeper
    os.close(handle)
    create_files(tmp_path, "d/d/a")
    assert run_tool_for_text(built_in_tool(tmp_path, "glob"), pattern="**/a") == "d/d/a"


def test_invalid_or_expensive_gitignore_rules_do_no_harm(tmp_path: Path) -> None:
    create_files(tmp_path, "a" * 200, "b.log")
    (tmp_path / ".gitignore").write_text("[z-a]\n\\\n" + "*a" * 50 + "b\n*.log\n")
    assert run_tool_for_text(built_in_tool(tmp_path, "glob"), pattern="*") == f".gitignore\n{'a' * 200}"
