"""No path leads out of the workspace, however it is written, linked or swapped."""

import asyncio
import ctypes
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.deadlines import DEADLINE
from tests.support.runtime.tool_calls import built_in_tool, tool_context
from toolwire.runtime.tool import Tool, ToolError
from toolwire.runtime.tools.workspace import Workspace

SECRET = b"the secret outside"
ENOUGH = 1000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(SECRET)
    root = tmp_path / "workspace"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "file").write_bytes(b"inside")
    (root / "file").write_bytes(b"inside")
    return root


def refusal_kind(workspace: Workspace, path: str) -> str:
    """Return the error kind, which must be the same for reading and writing."""
    with pytest.raises(ToolError) as read:
        workspace.read(path, ENOUGH)
    with pytest.raises(ToolError) as written:
        workspace.write(path, b"changed")
    assert read.value.kind == written.value.kind
    return read.value.kind


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret",
        "inner/../../outside/secret",
        "./.././outside//secret",
        "inner/../inner/../../outside/secret",
        "//etc/passwd",
        "/etc/passwd",
        "/",
        "/../etc/passwd",
        "..",
    ],
)
def test_path_outside_is_refused(root: Path, path: str) -> None:
    assert refusal_kind(Workspace(root), path) == "outside"


def test_absolute_path_with_root_as_string_prefix_is_outside(root: Path) -> None:
    beside = root.with_name("workspace-of-another")
    beside.mkdir()
    (beside / "secret").write_bytes(SECRET)
    workspace = Workspace(root)
    assert refusal_kind(workspace, str(beside / "secret")) == "outside"
    assert refusal_kind(workspace, f"{root}/../outside/secret") == "outside"


@pytest.mark.parametrize(
    "path",
    [
        "\u2025/outside/secret",  # one character that looks like two dots
        "\uff0e\uff0e/outside/secret",  # full-width dots
        "..\u2215outside\u2215secret",  # a character that looks like a slash
        "%2e%2e/outside/secret",
        "..\\outside\\secret",
        "~/.ssh/id_rsa",
        "$HOME/secret",
    ],
)
def test_names_that_look_like_dots_are_names(root: Path, path: str) -> None:
    workspace = Workspace(root)
    with pytest.raises(ToolError) as fault:
        workspace.read(path, ENOUGH)
    assert fault.value.kind == "not_found"
    workspace.write(path, b"a name like others")
    assert workspace.read(path, ENOUGH) == b"a name like others"
    assert (root.parent / "outside" / "secret").read_bytes() == SECRET


@pytest.mark.parametrize(("path", "kind"), [("", "path"), ("fi\0le", "path"), ("\udc00\ud800", "path")])
def test_invalid_path_is_refused(root: Path, path: str, kind: str) -> None:
    assert refusal_kind(Workspace(root), path) == kind


@pytest.mark.parametrize("path", ["a" * 300, "/".join(["a" * 200] * 100)])
def test_very_long_path_gives_a_short_message(root: Path, path: str) -> None:
    with pytest.raises(ToolError) as fault:
        Workspace(root).write(path, b"")
    assert len(str(fault.value)) < 300


@pytest.mark.parametrize("target", ["../outside/secret", "{parent}/outside/secret", "inner/../../outside/secret"])
def test_link_to_the_outside_is_not_followed(root: Path, target: str) -> None:
    (root / "link").symlink_to(target.format(parent=root.parent))
    workspace = Workspace(root)
    with pytest.raises(ToolError) as fault:
        workspace.read("link", ENOUGH)
    assert fault.value.kind == "outside"


def test_linked_directory_outside_is_not_entered(root: Path) -> None:
    (root / "link").symlink_to("../outside")
    (root / "via").symlink_to("link")
    workspace = Workspace(root)
    for path in ("link/secret", "via/secret", "inner/../via/secret"):
        with pytest.raises(ToolError) as fault:
            workspace.read(path, ENOUGH)
        assert fault.value.kind == "outside"
    with pytest.raises(ToolError), workspace.open_directory("link"):
        pass


def test_reading_follows_links_inside(root: Path) -> None:
    (root / "relative").symlink_to("inner/file")
    (root / "absolute").symlink_to(root / "inner" / "file")
    (root / "folder").symlink_to("inner")
    (root / "inner" / "up").symlink_to("..")
    (root / "home").symlink_to(root)
    workspace = Workspace(root)
    for path in ("relative", "absolute", "folder/file", "inner/up/inner/file", "folder/up/file", "home/inner/file"):
        assert workspace.read(path, ENOUGH) == b"inside"
    with workspace.open_directory("home") as folder:
        assert folder.parts == ()


def test_writing_never_follows_links(root: Path) -> None:
    (root / "link").symlink_to("file")
    (root / "folder").symlink_to("inner")
    (root / "dangling").symlink_to("../outside/new")
    workspace = Workspace(root)
    for path in ("link", "folder/file", "folder/new/deep", "dangling"):
        with pytest.raises(ToolError) as fault:
            workspace.write(path, b"changed")
        assert fault.value.kind == "link"
    with pytest.raises(ToolError):
        workspace.remove("link")
    assert (root / "file").read_bytes() == b"inside"
    assert (root / "inner" / "file").read_bytes() == b"inside"
    assert not (root.parent / "outside" / "new").exists()


def test_circular_links_are_an_error(root: Path) -> None:
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    with pytest.raises(ToolError) as fault:
        Workspace(root).read("one", ENOUGH)
    assert fault.value.kind == "link"


def repeat_until(enough: Callable[[], bool], *, least: int) -> Iterator[int]:
    """Repeat at least so many times, and until the condition holds: a busy machine may starve a thread."""
    deadline = time.monotonic() + DEADLINE
    for number in count():
        if number >= least and (enough() or time.monotonic() > deadline):
            return
        yield number


EXCHANGE = 2
HERE = -100


@contextmanager
def swap_with_link(place: Path, other: Path) -> Iterator[None]:
    """Swap a path with a link as fast as possible; the path always exists."""
    link = place.with_name("link-to-swap-in")
    link.symlink_to(other)
    libc, ended = ctypes.CDLL(None, use_errno=True), threading.Event()

    def swap() -> None:
        while not ended.is_set():
            libc.renameat2(HERE, bytes(link), HERE, bytes(place), EXCHANGE)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("swapped", ["inner", "inner/secret"])
def test_swapped_link_never_reveals_files_outside(root: Path, swapped: str) -> None:
    (root / "inner" / "secret").write_bytes(b"inside")
    target = root.parent / "outside" / ("" if swapped == "inner" else "secret")
    workspace, seen = Workspace(root), set[bytes]()
    with swap_with_link(root / swapped, target):
        for _ in repeat_until(lambda: {b"inside", b"outside"} <= seen, least=3000):
            try:
                seen.add(workspace.read("inner/secret", ENOUGH))
            except ToolError as fault:
                seen.add(fault.kind.encode())
    assert SECRET not in seen
    # Both states were really observed.
    assert b"inside" in seen
    assert b"outside" in seen


@pytest.mark.parametrize("swapped", ["inner", "inner/secret"])
def test_swapped_link_is_never_written_through(root: Path, swapped: str) -> None:
    (root / "inner" / "secret").write_bytes(b"inside")
    target = root.parent / "outside" / ("" if swapped == "inner" else "secret")
    workspace, written = Workspace(root), list[bool]()
    with swap_with_link(root / swapped, target):
        for _ in repeat_until(lambda: bool(written), least=150):
            with suppress(ToolError):
                workspace.write("inner/secret", b"changed")
                written.append(True)
    assert written
    assert (root.parent / "outside" / "secret").read_bytes() == SECRET
    assert sorted(found.name for found in (root.parent / "outside").iterdir()) == ["secret"]


def test_special_files_are_refused(root: Path) -> None:
    os.mkfifo(root / "pipe")
    workspace = Workspace(root)
    for path in ("pipe", "inner", "."):
        assert refusal_kind(workspace, path) == "not_a_file"


def test_devices_and_proc_are_refused_anywhere() -> None:
    # The root of a workspace may be a parent of them.
    devices = Workspace(Path("/dev"))
    with pytest.raises(ToolError) as fault:
        devices.read("null", ENOUGH)
    assert fault.value.kind == "not_a_file"


def test_proc_is_refused_by_its_file_system(root: Path) -> None:
    workspace = Workspace(root)
    status = Path("/proc/self/environ").stat()
    assert stat.S_ISREG(status.st_mode)
    with pytest.raises(ToolError):
        workspace._require_regular_file(status, "environ")


def test_file_system_root_is_not_a_workspace() -> None:
    with pytest.raises(NotADirectoryError):
        Workspace(Path("/"))


def test_root_may_be_named_through_a_link(root: Path) -> None:
    alias = root.with_name("alias")
    alias.symlink_to(root)
    workspace = Workspace(alias)
    assert workspace.read(f"{alias}/file", ENOUGH) == workspace.read(f"{root}/file", ENOUGH) == b"inside"


def test_write_keeps_the_mode_and_leaves_no_temporary_file(root: Path) -> None:
    (root / "script").write_bytes(b"old")
    (root / "script").chmod(0o750)
    workspace = Workspace(root)
    workspace.write("script", b"new")
    assert (root / "script").read_bytes() == b"new"
    assert stat.S_IMODE((root / "script").stat().st_mode) == 0o750
    assert sorted(found.name for found in root.iterdir()) == ["file", "inner", "script"]


def test_new_file_mode_respects_umask(root: Path) -> None:
    earlier = os.umask(0o027)
    try:
        Workspace(root).write("deep/er/new", b"")
    finally:
        os.umask(earlier)
    assert stat.S_IMODE((root / "deep/er/new").stat().st_mode) == 0o640


def test_write_does_not_follow_hard_links(root: Path) -> None:
    (root / "hard").hardlink_to(root.parent / "outside" / "secret")
    Workspace(root).write("hard", b"changed")
    assert (root.parent / "outside" / "secret").read_bytes() == SECRET


def test_concurrent_reader_sees_old_or_new_content(root: Path) -> None:
    workspace, contents = Workspace(root), [bytes([letter]) * 200_000 for letter in b"ab"]
    workspace.write("file", contents[0])
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            for content in contents:
                workspace.write("file", content)

    thread = threading.Thread(target=write)
    thread.start()
    seen = set[bytes]()
    try:
        for _ in repeat_until(lambda: len(seen) > 1, least=200):
            seen.add(workspace.read("file", 1_000_000))
    finally:
        ended.set()
        thread.join()
    assert seen == set(contents)


def test_hidden_paths_are_inaccessible(root: Path) -> None:
    (root / "state").mkdir()
    (root / "state" / "journal").write_bytes(SECRET)
    (root / "link").symlink_to("state/journal")
    workspace = Workspace(root, hidden=[root / "state"])
    for path in ("state/journal", "inner/../state/journal", "link"):
        with pytest.raises(ToolError) as fault:
            workspace.read(path, ENOUGH)
        assert fault.value.kind == "hidden"
    with pytest.raises(ToolError):
        workspace.write("state/journal", b"")


def test_workspace_inside_a_hidden_directory_is_visible(root: Path) -> None:
    for hidden in (root, root.parent):
        assert Workspace(root, hidden=[hidden]).read("file", ENOUGH) == b"inside"


def test_git_directory_is_not_written(root: Path) -> None:
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "config").write_bytes(b"[core]")
    workspace = Workspace(root)
    for path in (".git/hooks/pre-commit", ".git/config", ".GIT/config", "sub/.git/config", "inner/../.git/config"):
        with pytest.raises(ToolError) as fault:
            workspace.write(path, b"run me")
        assert fault.value.kind == "protected"
    assert workspace.read(".git/config", ENOUGH) == b"[core]"


@pytest.mark.parametrize("path", ["own.toml", "sub/../own.toml", "./own.toml", "sub/own.toml", "OWN.toml", "sub/named"])
def test_user_configuration_is_not_written_by_any_path(root: Path, path: str) -> None:
    (root / "sub").mkdir(exist_ok=True)
    workspace = Workspace(root, protected=[root / "sub" / "named"], reserved_names=["own.toml"])
    for spelled in (path, f"{root}/{path}"):
        with pytest.raises(ToolError) as fault:
            workspace.write(spelled, b"allow all")
        assert fault.value.kind == "protected"
    assert not (root / path).exists()


def test_no_descriptors_leak(root: Path) -> None:
    workspace = Workspace(root)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ("file", "inner/file", "inner/../file", "../outside", "none", "inner/none/deep", "file/none", "inner"):
        for act in (lambda path: workspace.read(path, ENOUGH), lambda path: workspace.write(path, b"inside")):
            with suppress(ToolError):
                act(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_too_large_file_is_refused_with_its_size(root: Path) -> None:
    (root / "file").write_bytes(b"x" * 2000)
    with pytest.raises(ToolError, match="2000 bytes"):
        Workspace(root).read("file", ENOUGH)


async def _run(writer: Tool, given: Any) -> None:
    await writer.run(given, tool_context(writer))


def test_tools_do_not_write_outside_through_a_hard_link(root: Path) -> None:
    """Each writing tool replaces the file in the workspace; its other hard links stay unchanged."""
    outside = root.parent / "store.txt"
    changes: list[tuple[str, Any]] = [
        ("write_file", {"content": "two\n"}),
        ("replace", {"old_string": "one", "new_string": "two"}),
        ("apply_patch", "*** Begin Patch\n*** Update File: hard.txt\n@@\n-one\n+two\n*** End Patch\n"),
    ]
    for name, arguments in changes:
        outside.write_text("one\n")
        (root / "hard.txt").unlink(missing_ok=True)
        os.link(outside, root / "hard.txt")
        given = arguments if isinstance(arguments, str) else {**arguments, "file_path": str(root / "hard.txt")}
        asyncio.run(_run(built_in_tool(root, name), given))
        assert ((root / "hard.txt").read_text(), outside.read_text()) == ("two\n", "one\n")
