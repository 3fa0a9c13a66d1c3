"""Invokes of Step-3 (`steptml:`) and Muse Glimmer (`atem:`), whose outer marks carry more than a name."""

from collections.abc import Sequence

from toolwire.translation.stages.tool_call_parsers.anthropic_invoke import parse_invoke, render_invoke
from toolwire.translation.stages.tool_call_parsers.calls import ParsedCall
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.rendering import WrittenCall, call_renderer

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


def _render_step3(calls: Sequence[WrittenCall]) -> str:
    """Write calls of Step-3 in one section."""
    written = [f"{_CALL_BEGIN}function<｜tool_sep｜>{render_invoke(call, 'steptml:')}{_CALL_END}" for call in calls]
    return f"{_CALLS_BEGIN}{''.join(written)}<｜tool_calls_end｜>"


def _render_muse_glimmer(call: WrittenCall) -> str:
    """Write one call of Muse Glimmer, with its recipient."""
    invoke = render_invoke(call, "atem:")
    return (
        f"{_RECIPIENTS[0]}{call.name}.{call.name}<|message|><atem:function_calls>\n{invoke}\n"
        "</atem:function_calls><|eom|>"
    )


_RECIPIENTS = ("<|start|>assistant to=", "assistant to=")

STEP3 = Dialect(
    "step3",
    (_CALLS_BEGIN, _CALL_BEGIN, "<steptml:invoke "),
    _parse_step3,
    _render_step3,
    closers=(_CALL_END, "<｜tool_calls_end｜>"),
    models=("step-3", "step3"),
)
MUSE_GLIMMER = Dialect(
    "muse_glimmer",
    ("<|start|>assistant to=",),
    _parse_muse_glimmer,
    call_renderer(_render_muse_glimmer, ""),
    starters=("assistant to=",),
    closers=("</atem:function_calls>", "<|eom|>"),
    models=("muse", "glimmer"),
)

DIALECTS = (STEP3, MUSE_GLIMMER)
