"""Calls and results to write in a dialect, and the forms that several dialects have in common.

Rendering mirrors parsing: what a dialect renders, its parser reads back as the same calls.
"""

import json
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import Struct

from toolwire.translation.stages.tool_call_parsers.calls import read_members
from toolwire.translation.stages.tool_call_parsers.cursor import Mismatch


class WrittenCall(Struct, frozen=True):
    """A call to write in a dialect."""

    name: str
    arguments: str  # JSON of an object
    number: int = 0  # among all calls of the conversation


class WrittenResult(Struct, frozen=True):
    """The result of a call, to write in a dialect."""

    name: str
    text: str
    number: int = 0  # of its call


class WrittenValue(Struct, frozen=True):
    """One argument, as dialects without JSON write it."""

    name: str
    text: str  # of a string: its characters; else JSON
    type: str  # the JSON type

    @property
    def is_string(self) -> bool:
        """Return whether the value is a string."""
        return self.type == "string"


CallRenderer = Callable[[Sequence[WrittenCall]], str]
ResultRenderer = Callable[[Sequence[WrittenResult]], str]

_TYPES = {'"': "string", "{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null"}


def render_object(call: WrittenCall, arguments_key: str = "arguments", name_key: str = "name") -> str:
    """Return a call as a JSON object with its name and arguments."""
    return f'{{"{name_key}": {render_string(call.name)}, "{arguments_key}": {call.arguments}}}'


def render_list(calls: Iterable[WrittenCall]) -> str:
    """Return calls as a JSON list of objects."""
    return f"[{', '.join([render_object(call) for call in calls])}]"


def render_string(text: str) -> str:
    """Return a string as JSON; a lone surrogate becomes an escape."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def written_values(call: WrittenCall) -> list[WrittenValue]:
    """Return the arguments of a call one by one; arguments that are no object stand in one value, as they are."""
    try:
        members = read_members(call.arguments)
    except (ValueError, RecursionError, Mismatch):
        return [WrittenValue("arguments", call.arguments, "string")]
    values: list[WrittenValue] = []
    for name, source in members.items():
        text = bytes(source).decode()
        kind = _TYPES.get(text[0], "number")
        values.append(WrittenValue(name, msgspec.json.decode(source, type=str) if kind == "string" else text, kind))
    return values


def call_renderer(template: Callable[[WrittenCall], str], separator: str = "\n") -> CallRenderer:
    """Return a renderer that writes one call after another."""

    def render(calls: Sequence[WrittenCall]) -> str:
        """Write the calls."""
        return separator.join(map(template, calls))

    return render


def result_renderer(template: Callable[[WrittenResult], str], separator: str = "\n") -> ResultRenderer:
    """Return a renderer that writes one result after another."""

    def render(results: Sequence[WrittenResult]) -> str:
        """Write the results."""
        return separator.join(map(template, results))

    return render


render_tool_responses = result_renderer(lambda result: f"<tool_response>\n{result.text}\n</tool_response>")
"""The form of Hermes, Qwen and GLM, which most models know."""
