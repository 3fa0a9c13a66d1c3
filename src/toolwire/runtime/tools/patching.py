"""`apply_patch`: files added, changed, moved and deleted by one patch, all of it or nothing."""

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct

from toolwire.canonical.tools import Grammar
from toolwire.runtime.toolset import Annotations, Arguments, Calling, Tool, ToolFault

from .patch import GRAMMAR, Add, Delete, Hunk, Update, apply, parse
from .workspace import Workspace
from .writing import MOST_WRITTEN, difference, encoded


def patching_tools(workspace: Workspace) -> list[Tool]:
    async def run(arguments: Arguments, calling: Calling) -> str:
        return await asyncio.to_thread(_patched, workspace, arguments)

    def touches(arguments: Arguments) -> frozenset[str] | None:
        try:
            return frozenset(map(workspace.resolved, _paths(parse(arguments))))
        except ToolFault:
            return frozenset()

    def amounts_to(arguments: Arguments) -> Sequence[Arguments] | None:
        try:
            return [{"file_path": workspace.resolved(path)} for path in _paths(parse(arguments))]
        except ToolFault:
            return None

    def preview(arguments: Arguments) -> str | None:
        try:
            return _previewed(_planned(workspace, parse(arguments)))
        except ToolFault as fault:
            return str(fault)

    tool = Tool(
        name="apply_patch",
        run=run,
        description=f"Edits files of the workspace ({workspace.root}) by a patch, all of it or nothing. This is a"
        " FREEFORM tool, so do not wrap the patch in JSON.",
        grammar=Grammar(syntax="lark", definition=GRAMMAR),
        annotations=Annotations(destructive=True),
        source="built-in",
        stoppable=False,
        retries=0,
        touches=touches,
        amounts_to=amounts_to,
        preview=preview,
    )
    return [tool]


def _paths(hunks: Sequence[Hunk]) -> list[str]:
    found = dict[str, None]()
    for hunk in hunks:
        found[hunk.path] = None
        if isinstance(hunk, Update) and hunk.to is not None:
            found[hunk.to] = None
    return list(found)


class _Plan(Struct):
    """What each file holds before and after; None is nothing. `told` is one line for each hunk."""

    before: dict[str, bytes | None]
    after: dict[str, bytes | None]
    told: list[str]


class _Overlay:
    """The workspace as the hunks so far would leave it. A file is one, whichever way its path is spelled."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._names = dict[str, str]()
        self.before = dict[str, bytes | None]()
        self.after = dict[str, bytes | None]()

    def name(self, path: str) -> str:
        """The spelling that a file was first named by."""
        return self._names.setdefault(self._workspace.resolved(path), path)

    def get(self, path: str) -> bytes | None:
        name = self.name(path)
        if name not in self.after:
            there = self._workspace.exists(name)
            self.before[name] = self.after[name] = self._workspace.read(name, MOST_WRITTEN) if there else None
        return self.after[name]

    def put(self, path: str, content: bytes | None) -> None:
        if content is not None and len(content) > MOST_WRITTEN:
            raise ToolFault(f"{path} would have {len(content)} bytes; the most is {MOST_WRITTEN}", "too_large")
        self.get(path)
        self.after[self.name(path)] = content


def _planned(workspace: Workspace, hunks: Sequence[Hunk]) -> _Plan:
    files, told = _Overlay(workspace), list[str]()
    for hunk in hunks:
        there = files.get(hunk.path)
        if isinstance(hunk, Add):
            if there is not None:
                raise ToolFault(f"{hunk.path} is there already: update it", "exists")
            files.put(hunk.path, encoded(hunk.content))
            told.append(f"A {hunk.path}")
            continue
        if there is None:
            raise ToolFault(f"{hunk.path} is not there", "not_found")
        if isinstance(hunk, Delete):
            files.put(hunk.path, None)
            told.append(f"D {hunk.path}")
        else:
            told.append(_update(files, hunk, there))
    return _Plan(files.before, files.after, told)


def _update(files: _Overlay, hunk: Update, there: bytes) -> str:
    # Bytes that are no text come through as they are.
    changed = apply(hunk, there.decode("utf-8", "surrogateescape"))
    try:
        content = changed.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ToolFault(f"what {hunk.path} would hold is not valid Unicode", "text") from error
    if hunk.to is None or files.name(hunk.to) == files.name(hunk.path):
        files.put(hunk.path, content)
        return f"M {hunk.path}"
    if files.get(hunk.to) is not None:
        raise ToolFault(f"{hunk.to} is there already: {hunk.path} can't be moved onto it", "exists")
    files.put(hunk.path, None)
    files.put(hunk.to, content)
    return f"M {hunk.to}"


def _patched(workspace: Workspace, text: str) -> str:
    plan = _planned(workspace, parse(text))
    done, folders = list[str](), list[str]()
    try:
        # What is new first, so that what is moved is never nowhere.
        for path in sorted(plan.after, key=lambda path: plan.after[path] is None):
            folders += workspace.missing_folders(path)
            _put(workspace, path, plan.before[path], plan.after[path])
            done.append(path)
    except ToolFault:
        for path in reversed(done):
            _put(workspace, path, plan.after[path], plan.before[path])
        for folder in sorted(folders, reverse=True):
            workspace.remove_folder(folder)
        raise
    return "\n".join(["Success. Updated the following files:", *plan.told])


def _put(workspace: Workspace, path: str, before: bytes | None, after: bytes | None) -> None:
    if before == after:
        return
    if after is None:
        workspace.remove(path)
    else:
        workspace.write(path, after)


def _previewed(plan: _Plan) -> str:
    def one(path: str, before: Mapping[str, bytes | None], after: Mapping[str, bytes | None]) -> str:
        gone = after[path] is None
        return difference(path, before[path] or b"", after[path] or b"", to="/dev/null" if gone else None)

    return "".join(one(path, plan.before, plan.after) for path in plan.after)
