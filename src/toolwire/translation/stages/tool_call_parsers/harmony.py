"""Harmony, the format of gpt-oss: a call is a message to `functions.NAME`, before or after its channel."""

from toolwire.translation.stages.tool_call_parsers.calls import ParsedCall, decode_object
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.rendering import call_renderer, result_renderer

_START, _CHANNEL, _MESSAGE = "<|start|>assistant", "<|channel|>", "<|message|>"
_RECIPIENT = "to=functions."


def _parse_recipient(cursor: Cursor) -> Parse[str]:
    """Parse ` to=functions.NAME`; return an empty name if it is not here."""
    yield from cursor.skip_space()
    if not (yield from cursor.accept(_RECIPIENT)):
        return ""
    return (yield from cursor.read_name())


def _parse(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one call; servers that strip special tokens leave only its words."""
    yield from cursor.accept(_START)
    name = yield from _parse_recipient(cursor)
    marked = yield from cursor.accept(_CHANNEL)
    yield from cursor.accept("commentary", "analysis", "final")
    name = name or (yield from _parse_recipient(cursor))
    if not name:
        raise Mismatch
    yield from cursor.skip_space()
    yield from cursor.accept("<|constrain|>")
    yield from cursor.accept("json", "code")
    yield from cursor.skip_space()
    if marked:
        yield from cursor.expect(_MESSAGE)
    else:
        yield from cursor.accept(_MESSAGE)
    yield from cursor.skip_space()
    return [ParsedCall(name, decode_object((yield from cursor.read_json())))]


HARMONY = Dialect(
    "harmony",
    (
        "<|channel|>commentary to=functions.",
        "<|channel|>analysis to=functions.",
        "<|start|>assistant to=functions.",
        "<|start|>assistant<|channel|>commentary to=functions.",
        "<|start|>assistant<|channel|>analysis to=functions.",
    ),
    _parse,
    call_renderer(
        lambda call: (
            f"{_CHANNEL}commentary {_RECIPIENT}{call.name} <|constrain|>json{_MESSAGE}{call.arguments}<|call|>"
        ),
        _START,
    ),
    result_renderer(
        lambda result: (
            f"<|start|>functions.{result.name} to=assistant{_CHANNEL}commentary{_MESSAGE}{result.text}<|end|>"
        ),
        "",
    ),
    starters=("commentary to=functions.", "to=functions."),
    closers=("<|call|>", "<|end|>", "<|return|>"),
    models=("gpt-oss", "gpt_oss"),
)

DIALECTS = (HARMONY,)
