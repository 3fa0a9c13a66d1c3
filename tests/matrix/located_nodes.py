"""Every node of a body with where it stands, and what only its surroundings tell of it."""

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
    """A node, the trail to it, what it stands in (the root first), and its marks with those of what it stands in:

    `later`     a system message after others          `after`     a text after calls in its message
    `parallel`  a call beside others                   `late`      a result away from its call
    `odd`       a call without a JSON object           `unchosen`  a tool that the choice leaves out
    `function`  a choice of a function                 `more`      in a second answer
    """

    node: Any
    path: SourcePath
    owners: tuple[Any, ...]
    marks: frozenset[str]

    def within(self, kind: type[Node]) -> Any:
        """The nearest node of a kind around this one."""
        return next((owner for owner in reversed(self.owners) if isinstance(owner, kind)), None)


def walk(root: Node) -> Iterator[LocatedNode]:
    """Every node. What a change brings counts with the change."""
    marks = _marks(root)

    def down(node: Node, trail: SourcePath, owners: tuple[Any, ...], known: frozenset[str]) -> Iterator[LocatedNode]:
        known |= marks.get(id(node), set())
        yield LocatedNode(node, trail, owners, known)
        if isinstance(node, ToolChange | SettingChange):
            return
        for field in node_fields(type(node)) or ():
            child = getattr(node, field)
            inner = enumerate(child) if isinstance(child, tuple) else ((None, child),)
            for index, element in inner:
                if isinstance(element, Node):
                    step = (field,) if index is None else (field, index)
                    yield from down(element, (*trail, *step), (*owners, node), known)

    return down(root, (), (), frozenset())


def _marks(root: Node) -> Marks:
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
    answered = begun = False
    for message in messages:
        if message.role in ("user", "assistant"):
            begun = True
        elif begun:
            mark(message, "later")
        for part in message.parts:
            if isinstance(part, ToolCall) and part.executor == "client":
                turn, answered = ([], False) if answered else (turn, answered)
                turn.append(part)
                _mark_call(part, turn, mark)
            elif isinstance(part, ToolResult) and part.executor == "client":
                answered = True
                if part.call_id is not None and part.call_id not in {call.id for call in turn}:
                    mark(part, "late")
            elif isinstance(part, Text | Media) and message.role == "user":
                turn = []
            elif isinstance(part, Text) and turn and not answered:
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
            for one in getattr(tool, "tools", (tool,)):
                if isinstance(one, FunctionTool | FreeformTool) and one.name not in names:
                    mark(one, "unchosen")


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments or "{}"), dict)
    except ValueError:
        return False
