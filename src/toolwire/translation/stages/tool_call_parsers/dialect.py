"""The record that describes one dialect: its marks, its parser and the models that are known to write it."""

from collections.abc import Callable

from msgspec import Struct

from toolwire.translation.stages.tool_call_parsers.calls import ParsedCall
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Parse
from toolwire.translation.stages.tool_call_parsers.rendering import (
    CallRenderer,
    ResultRenderer,
    render_tool_responses,
)

CallParser = Callable[[Cursor], Parse[list[ParsedCall]]]


class Dialect(Struct, frozen=True):
    """One way of writing calls as text."""

    name: str
    openers: tuple[str, ...]  # marks at which the parser is tried; it reads them itself
    parse: CallParser  # reads one block: a call, or a list of them
    render_calls: CallRenderer  # writes calls so that `parse` reads them back
    render_results: ResultRenderer = render_tool_responses  # as the model's chat template writes them
    starters: tuple[str, ...] = ()  # more such marks, which count only at the beginning of text
    closers: tuple[str, ...] = ()  # marks without content that may follow a call
    bare: bool = False  # without marks of its own: counts only if it is the complete answer
    models: tuple[str, ...] = ()  # parts of model names that are known to write it
