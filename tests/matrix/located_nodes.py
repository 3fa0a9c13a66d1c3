"""The nodes of a body with their position and with marks for their context."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from toolwire.canonical.content import Media, Message, SettingChange, Text, ToolCall, ToolChange, ToolResult
from toolwire.canonical.node import Node
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.canonical.tools import FreeformTool, FunctionTool, ToolChoice
from toolwire.codec.losses import SourcePath, node_fields

Marks = dict[int, set[str]]
Mark = Callable[[Node, str], None]


class LocatedNode(NamedTuple):
    """A node with its path and its context.

    Marks, including those of its parents:

    `later`     a system message after others          `after`     a text after calls in its message
    `parallel`  a call beside others                   `late`      a result away from its call
    `odd`       a call without a JSON object           `unchosen`  a tool that the choice excludes
    `function`  a choice of a function                 `more`      in a second candidate
    """

    node: Any
    path: SourcePath
    owners: tuple[Any, ...]  # the parents, root first
    marks: frozenset[str]

    def within(self, kind: type[Node]) -> Any:
        """Return the nearest parent of a kind."""
        return next((owner for owner in reversed(self.owners) if isinstance(owner, kind)), None)


def walk(root: Node) -> Iterator[LocatedNode]:
    """Yield every node, except those inside a change of tools or settings."""
    marks = _marks(root)

    def visit(
        node: Node, trail: SourcePath, owners: tuple[Any, ...], node_marks: frozenset[str]
    ) -> Iterator[LocatedNode]:
        node_marks |= marks.get(id(node), set())
        yield LocatedNode(node, trail, owners, node_marks)
        if isinstance(node, ToolChange | SettingChange):
            return
        for field in node_fields(type(node)) or ():
            child = getattr(node, field)
            inner = enumerate(child) if isinstance(child, tuple) else ((None, child),)
            for index, element in inner:
                if isinstance(element, Node):
                    step = (field,) if index is None else (field, index)
                    yield from visit(element, (*trail, *step), (*owners, node), node_marks)

    return visit(root, (), (), frozenset())


def _marks(root: Node) -> Marks:
    """Return the marks of all nodes by their id."""
    marks: Marks = {}

    def mark(node: Node, name: str) -> None:
        marks.setdefault(id(node), set()).add(name)

    if isinstance(root, Request):
        _mark_order(root.messages, mark)
        _mark_choice(root, mark)
    if isinstance(root, Response):
        for candidate in root.candidates:
            _mark_order(candidate.messages, mark)
            if candidate.index:
                mark(candidate, "more")
    return marks


def _mark_order(messages: tuple[Message, ...], mark: Mark) -> None:
    turn: list[ToolCall] = []
    has_results = has_turns = False
    for message in messages:
        if message.role in ("user", "assistant"):
            has_turns = True
        elif has_turns:
            mark(message, "later")
        for part in message.parts:
            if isinstance(part, ToolCall) and part.executor == "client":
                turn, has_results = ([], False) if has_results else (turn, has_results)
                turn.append(part)
                _mark_call(part, turn, mark)
            elif isinstance(part, ToolResult) and part.executor == "client":
                has_results = True
                if part.call_id is not None and part.call_id not in {call.id for call in turn}:
                    mark(part, "late")
            elif isinstance(part, Text | Media) and message.role == "user":
                turn = []
            elif isinstance(part, Text) and turn and not has_results:
                mark(part, "after")


def _mark_call(call: ToolCall, turn: list[ToolCall], mark: Mark) -> None:
    if len(turn) > 1:
        mark(turn[0], "parallel")
        mark(call, "parallel")
    if call.shape == "json" and not _is_object(call.arguments):
        mark(call, "odd")


def _mark_choice(request: Request, mark: Mark) -> None:
    choice = request.tool_choice or ToolChoice()
    if any(name.kind == "function" for name in choice.names):
        mark(choice, "function")
    if choice.mode in ("none", "named", "allowed"):
        names = {name.name for name in choice.names}
        for tool in request.tools or ():
            for member in getattr(tool, "tools", (tool,)):
                if isinstance(member, FunctionTool | FreeformTool) and member.name not in names:
                    mark(member, "unchosen")


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments or "{}"), dict)
    except ValueError:
        return False
