"""Glob patterns."""

import pytest

from toolwire.runtime.tool import ToolError
from toolwire.runtime.tools.directory_walk import is_glob, matches_glob, matches_glob_anywhere


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*.py", ["a.py", ".py"], ["a/b.py", "a.pyc", "a"]),
        ("**/*.py", ["a.py", "a/b.py", "a/b/c.py"], ["a.txt"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "a/src/b"]),
        ("src/**/test_*.py", ["src/test_a.py", "src/x/y/test_.py"], ["src/xtest_a.py", "test_a.py"]),
        ("a?c", ["abc"], ["ac", "a/c", "abbc"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "[a-c]x"]),
        ("[!a]x", ["bx"], ["ax", "/x"]),
        ("*.{ts,tsx}", ["a.ts", "a.tsx"], ["a.t", "a.{ts,tsx}"]),
        ("{src,**/lib}/*.c", ["src/a.c", "lib/a.c", "x/lib/a.c"], ["x/src/a.c"]),
        ("a.b+c(d)", ["a.b+c(d)"], ["axb+c(d)"]),
        ("\\*", ["*"], ["a"]),
        ("[", ["["], ["a"]),
        ("{", ["{"], ["a"]),
        ("./a", ["a"], ["./b"]),
    ],
)
def test_pattern_matches_complete_paths(pattern: str, matching: list[str], other: list[str]) -> None:
    assert [path for path in matching if not matches_glob(path, pattern)] == []
    assert [path for path in other if matches_glob(path, pattern)] == []


def test_pattern_without_slash_can_match_names_anywhere() -> None:
    assert matches_glob_anywhere("a/b/c.py", "*.py")
    assert not matches_glob_anywhere("a/b/c.py", "b/*.py")


def test_is_glob() -> None:
    assert [path for path in ("a*", "?", "[a]", "{a}", "a", "a/b.c") if is_glob(path)] == ["a*", "?", "[a]", "{a}"]


def test_no_pattern_takes_exponential_time() -> None:
    # A backtracking matcher would take forever.
    assert not matches_glob("a" * 5000, "*a" * 200 + "b")
    assert not matches_glob("a/" * 2000, "**/*" * 100 + "b")
    assert not matches_glob("a", "{a,b}" * 150)


def test_too_long_or_invalid_pattern_is_an_error() -> None:
    for pattern in ("a" * 2000, "[z-a]"):
        with pytest.raises(ToolError, match="pattern"):
            matches_glob("a", pattern)
