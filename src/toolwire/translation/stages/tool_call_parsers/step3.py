"""Invokes of Step-3 (`steptml:`) and Muse Glimmer (`atem:`), whose outer marks carry more than a name."""

from toolwire.translation.stages.tool_call_parsers.anthropic_invoke import parse_invoke
from toolwire.translation.stages.tool_call_parsers.calls import ParsedCall
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect

_CALLS_BEGIN, _CALL_BEGIN, _CALL_END = "<｜tool_calls_begin｜>", "<｜tool_call_begin｜>", "<｜tool_call_end｜>"


def _parse_step3(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one call of Step-3."""
    yield from cursor.accept(_CALLS_BEGIN)
    yield from cursor.skip_space()
    yield from cursor.accept(_CALL_BEGIN)
    yield from cursor.accept("function")
    yield from cursor.accept("<｜tool_sep｜>")
    yield from cursor.skip_space()
    return [(yield from parse_invoke(cursor, "steptml:", _CALL_END))]


def _parse_muse_glimmer(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one call of Muse Glimmer; the recipient before it is needed, since the answer may quote the marks."""
    if (yield from cursor.accept(*_RECIPIENTS)):
        yield from cursor.read_name()
        yield from cursor.expect("<|message|>")
        yield from cursor.skip_space()
        yield from cursor.expect("<atem:function_calls>")
        yield from cursor.skip_space()
    call = yield from parse_invoke(cursor, "atem:", "</atem:function_calls>")
    head, _, tail = call.name.partition(".")
    if not head:
        raise Mismatch
    return [ParsedCall(head if head == tail else call.name, parameters=call.parameters)]


_RECIPIENTS = ("<|start|>assistant to=", "assistant to=")

STEP3 = Dialect(
    "step3",
    (_CALLS_BEGIN, _CALL_BEGIN, "<steptml:invoke "),
    _parse_step3,
    closers=(_CALL_END, "<｜tool_calls_end｜>"),
    models=("step-3", "step3"),
)
MUSE_GLIMMER = Dialect(
    "muse_glimmer",
    ("<|start|>assistant to=",),
    _parse_muse_glimmer,
    starters=("assistant to=",),
    closers=("</atem:function_calls>", "<|eom|>"),
    models=("muse", "glimmer"),
)

DIALECTS = (STEP3, MUSE_GLIMMER)
