"""The `read_file`, `read_many_files` and `view_image` tools."""

import base64
from pathlib import Path

import pytest

from tests.support.runtime.tool_calls import built_in_tool, run_tool, run_tool_for_text
from toolwire.canonical.content import Inline, Media, Text
from toolwire.runtime.tool import ToolError

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PDF = b"%PDF-1.4\n%%EOF\n"


def test_text_is_returned_verbatim(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(b"# README\n\xc3\xa4\r\nno end")
    assert (
        run_tool_for_text(built_in_tool(tmp_path, "read_file"), absolute_path=f"{tmp_path}/README.md")
        == "# README\nä\r\nno end"
    )


def test_path_may_be_relative_to_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    assert run_tool_for_text(built_in_tool(tmp_path, "read_file"), absolute_path="a") == "text"


def test_missing_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"file not found: .*none"):
        run_tool(built_in_tool(tmp_path, "read_file"), absolute_path=f"{tmp_path}/none")


def test_offset_and_limit_select_lines_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"line {number}\n" for number in range(1, 11)))
    read = built_in_tool(tmp_path, "read_file")
    path = f"{tmp_path}/a"
    first = run_tool_for_text(read, absolute_path=path, limit=2)
    assert first == "line 1\nline 2\n[Lines 1 to 2 of 10 are shown. To read on, use offset=2.]"
    assert run_tool_for_text(read, absolute_path=path, offset=2, limit=1).startswith("line 3\n[Lines 3 to 3 of 10")
    assert run_tool_for_text(read, absolute_path=path, offset=8) == "line 9\nline 10\n[Lines 9 to 10 of 10 are shown.]"
    assert run_tool_for_text(read, absolute_path=path, offset=10) == "[There is no line 11: the file has 10.]"
    assert run_tool_for_text(read, absolute_path=path, limit=10) == run_tool_for_text(read, absolute_path=path)


def test_lines_are_numbered_from_the_offset(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\nthree")
    read = built_in_tool(tmp_path, "read_file")
    assert run_tool_for_text(read, absolute_path="a", line_numbers=True) == "1: one\n2: two\n3: three"
    numbered = run_tool_for_text(read, absolute_path="a", offset=1, limit=1, line_numbers=True)
    assert numbered == "2: two\n[Lines 2 to 2 of 3 are shown. To read on, use offset=2.]"
    (tmp_path / "empty").write_text("")
    assert run_tool_for_text(read, absolute_path="empty", line_numbers=True) == ""


def test_numbered_lines_fit_into_the_output(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * 17 + "\n" + ("x" * 17 + "\n") * 1999)
    read = built_in_tool(tmp_path, "read_file")
    text = run_tool_for_text(read, absolute_path="a", line_numbers=True)
    assert text.endswith("2000: " + "x" * 17 + "\n")
    assert len(text) < read.output_limit


def test_directory_is_listed(tmp_path: Path) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "a").write_text("")
    read = built_in_tool(tmp_path, "read_file")
    assert run_tool_for_text(read, absolute_path="src", line_numbers=True) == "a\ndeep/"
    with pytest.raises(ToolError, match="outside"):
        run_tool(read, absolute_path="..")


def test_reading_on_returns_every_line_once(tmp_path: Path) -> None:
    lines = [f"{number} {'x' * (number % 97)}\n" for number in range(20_000)]
    (tmp_path / "a").write_text("".join(lines))
    read, texts, offset = built_in_tool(tmp_path, "read_file"), list[str](), 0
    while True:
        text = run_tool_for_text(read, absolute_path="a", offset=offset)
        shown, _, note = text.rpartition("[Lines ")
        texts += shown.splitlines(keepends=True)
        assert len(text) < 40_000
        if "offset=" not in note:
            break
        offset = int(note.partition("offset=")[2].partition(".")[0])
    assert texts == lines


def test_very_long_line_is_cut_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" + "ä" * 100_000 + "\nsecond\n")
    text = run_tool_for_text(built_in_tool(tmp_path, "read_file"), absolute_path="a")
    assert len(text) < 40_000
    assert "Line 1 of 2 is cut after 36000 bytes" in text
    assert "\ufffd" not in text
    assert run_tool_for_text(built_in_tool(tmp_path, "read_file"), absolute_path="a", offset=1).startswith("second\n")


def test_empty_file_is_empty(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    assert run_tool_for_text(built_in_tool(tmp_path, "read_file"), absolute_path="a") == ""


@pytest.mark.parametrize(
    ("name", "content", "kind", "shape"),
    [
        ("a.png", PNG, "image/png", "image"),
        ("liar.txt", PNG, "image/png", "image"),
        ("a.pdf", PDF, "application/pdf", "document"),
    ],
)
def test_images_and_documents_are_media(tmp_path: Path, name: str, content: bytes, kind: str, shape: str) -> None:
    (tmp_path / name).write_bytes(content)
    note, media = run_tool(built_in_tool(tmp_path, "read_file"), absolute_path=f"{tmp_path}/{name}").content
    assert note == Text(text=f"Binary content of type {kind} was processed.")
    assert isinstance(media, Media)
    assert (media.kind, media.media_type, media.name) == (shape, kind, name)
    assert isinstance(media.source, Inline)
    assert base64.b64decode(media.source.data) == content


def test_other_binaries_are_described(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\x7fELF\0\1\2" * 100)
    text = run_tool_for_text(built_in_tool(tmp_path, "read_file"), absolute_path="a")
    assert text == "Binary content of type application/octet-stream, 700 bytes, not shown."


def test_invalid_utf_8_is_marked_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"caf\xe9 and na\xefve \xef\xbf\xbd\n")
    text = run_tool_for_text(built_in_tool(tmp_path, "read_file"), absolute_path="a")
    assert text == ("caf\ufffd and na\ufffdve \ufffd\n[2 byte sequences are not valid UTF-8 and are shown as \ufffd.]")


@pytest.mark.parametrize(
    ("encoding", "note"), [("utf-8-sig", ""), ("utf-16", "[The file is UTF-16.]"), ("utf-32", "[The file is UTF-32.]")]
)
def test_encodings_with_byte_order_mark_are_decoded(tmp_path: Path, encoding: str, note: str) -> None:
    (tmp_path / "a").write_text("größer\nals\n", encoding=encoding)
    assert run_tool_for_text(built_in_tool(tmp_path, "read_file"), absolute_path="a") == f"größer\nals\n{note}"


def test_huge_file_is_read_in_parts_quickly(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.write(b"first\n")
        file.truncate(300 * 1024 * 1024)
    # Sparse: the NUL bytes are after the inspected part.
    content = b"x" * 9000 + b"\n"
    with (tmp_path / "a").open("r+b") as file:
        file.write(content * 3)
    text = run_tool_for_text(built_in_tool(tmp_path, "read_file"), absolute_path="a", limit=1)
    assert text == "x" * 9000 + "\n[Lines 1 to 1 are shown. To read on, use offset=1.]"


def test_many_files_are_preceded_by_their_paths(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("...a...")
    (tmp_path / "b.txt").write_text("...b...\n")
    (tmp_path / "c.txt").write_text("...c...")
    paths = [f"{tmp_path}/{name}.txt" for name in "abc"]
    assert run_tool_for_text(built_in_tool(tmp_path, "read_many_files"), paths=paths) == (
        f"--- {tmp_path}/a.txt ---\n...a...\n--- {tmp_path}/b.txt ---\n...b...\n--- {tmp_path}/c.txt ---\n...c..."
    )


def test_many_files_by_directory_and_glob(tmp_path: Path) -> None:
    for name in ("src/a.py", "src/deep/b.py", "src/deep/b.txt", "top.py", "ignored/x.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".gitignore").write_text("ignored/\n")
    read = built_in_tool(tmp_path, "read_many_files")

    def found(**arguments: object) -> list[str]:
        lines = run_tool_for_text(read, **arguments).splitlines()
        return [line.removeprefix("--- ").removesuffix(" ---") for line in lines if line.startswith("--- ")]

    assert found(paths=["src"]) == ["src/a.py", "src/deep/b.py", "src/deep/b.txt"]
    assert found(paths=["**/*.py"]) == ["src/a.py", "src/deep/b.py", "top.py"]
    assert found(paths=[f"{tmp_path}/src/*.py"]) == [f"{tmp_path.resolve()}/src/a.py"]
    assert found(paths=["src"], include=["*.py"]) == ["src/a.py", "src/deep/b.py"]
    assert found(paths=["src", "top.py"], exclude=["deep/**", "**/deep/**"]) == ["src/a.py", "top.py"]
    assert found(paths=["top.py", "*.py", "top.py"]) == ["top.py"]
    assert found(paths=["ignored/x.py"]) == ["ignored/x.py"]


def test_unreadable_file_does_not_affect_the_others(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    (tmp_path / "b.png").write_bytes(PNG)
    output = run_tool(built_in_tool(tmp_path, "read_many_files"), paths=["none", "a", "b.png", "/etc/passwd"])
    (part,) = output.content
    assert isinstance(part, Text)
    assert not output.is_error
    assert part.text.splitlines() == [
        *("--- none ---", "[file not found: none]", "--- a ---", "text", "--- b.png ---"),
        "[Binary content of type image/png was processed. Read it alone to see it.]",
        "--- /etc/passwd ---",
        f"[/etc/passwd is outside the workspace: use a path below {tmp_path.resolve()}]",
    ]


def test_no_matching_files_is_an_error(tmp_path: Path) -> None:
    assert run_tool(built_in_tool(tmp_path, "read_many_files"), paths=["none"]).is_error
    with pytest.raises(ToolError, match="no file matches"):
        run_tool(built_in_tool(tmp_path, "read_many_files"), paths=["*.none"])


def test_many_files_are_limited_with_a_note(tmp_path: Path) -> None:
    for name in "abcde":
        (tmp_path / name).write_text(f"{name * 9}\n" * 1500)
    text = run_tool_for_text(built_in_tool(tmp_path, "read_many_files"), paths=["."])
    assert len(text) < 40_000
    assert "[the rest of c is cut: use read_file]" in text
    assert text.endswith("[2 more files not read, output too long: d, e]")


def test_image_is_shown(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (media,) = run_tool(built_in_tool(tmp_path, "view_image"), absolute_path="a.png").content
    assert isinstance(media, Media)
    assert media.media_type == "image/png"


@pytest.mark.parametrize("content", [b"text", PDF, b"", b"GIF8"])
def test_other_files_are_not_shown_as_images(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(ToolError, match="not a PNG, JPEG, GIF or WebP"):
        run_tool(built_in_tool(tmp_path, "view_image"), absolute_path="a.png")
