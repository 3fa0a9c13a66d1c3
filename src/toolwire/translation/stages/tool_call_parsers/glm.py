"""GLM-4.5 and later, and Hunyuan 3: the name, then pairs of `<arg_key>` and `<arg_value>`."""

from toolwire.translation.stages.tool_call_parsers.calls import Parameter, ParsedCall
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Incomplete, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.rendering import WrittenCall, call_renderer, written_values

_CALL, _CALL_END = "<tool_call>", "</tool_call>"
_KEY, _KEY_END, _VALUE, _VALUE_END = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"


def _parse_value(cursor: Cursor) -> Parse[str]:
    """Parse one value; the next key or the end of the call ends one whose closing mark is missing."""
    yield from cursor.skip_space()
    start = cursor.position
    if (yield from cursor.accept(_VALUE)):
        start = cursor.position
    while True:
        _, mark = yield from cursor.read_until(_VALUE_END, _KEY, _CALL_END)
        resume, end = cursor.position, cursor.position - len(mark)
        if mark == _KEY:
            cursor.position = end
            return cursor.text[start:end].rstrip()
        following = yield from cursor.skip_space()
        if mark == _VALUE_END and (not following or (yield from cursor.upcoming(_KEY, _CALL_END))):
            return cursor.text[start:end]
        if mark == _CALL_END and (not following or (yield from cursor.upcoming(_CALL))):
            cursor.position = end
            return cursor.text[start:end].rstrip()
        cursor.position = resume


def _parse_pairs(cursor: Cursor) -> Parse[list[Parameter]]:
    """Parse pairs of keys and values, and the end of the call, which may be missing at the end of the turn."""
    parameters: list[Parameter] = []
    while True:
        following = yield from cursor.skip_space()
        if (yield from cursor.accept(_KEY)):
            name, _ = yield from cursor.read_until(_KEY_END)
            value = yield from _parse_value(cursor)
            parameters.append(Parameter(name.strip(), value))
        elif (yield from cursor.accept(_CALL_END)):
            return parameters
        elif following:
            raise Mismatch
        elif not cursor.finished or not parameters:
            raise Incomplete
        else:
            return parameters


def _parse_glm(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one call of GLM; without arguments, the name stands alone."""
    yield from cursor.expect(_CALL)
    yield from cursor.skip_space()
    name = yield from cursor.read_name()
    return [ParsedCall(name, parameters=tuple((yield from _parse_pairs(cursor))))]


def _parse_hy_v3(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one call of Hunyuan 3, with the mark of the section if it comes first."""
    yield from cursor.accept("<tool_calls>")
    yield from cursor.skip_space()
    yield from cursor.expect(_CALL)
    yield from cursor.skip_space()
    name = yield from cursor.read_name()
    yield from cursor.expect("<tool_sep>")
    return [ParsedCall(name, parameters=tuple((yield from _parse_pairs(cursor))))]


def _render_pairs(call: WrittenCall) -> str:
    """Write the arguments of a call, and its end."""
    pairs = [f"{_KEY}{value.name}{_KEY_END}\n{_VALUE}{value.text}{_VALUE_END}\n" for value in written_values(call)]
    return "".join(pairs) + _CALL_END


GLM = Dialect(
    "glm",
    (_CALL,),
    _parse_glm,
    call_renderer(lambda call: f"{_CALL}{call.name}\n{_render_pairs(call)}"),
    closers=(_CALL_END,),
    models=("glm-4", "glm-5", "glm4", "laguna", "poolside"),
)
HY_V3 = Dialect(
    "hy_v3",
    ("<tool_calls>", _CALL),
    _parse_hy_v3,
    lambda calls: "\n".join(
        ["<tool_calls>", *[f"{_CALL}{call.name}<tool_sep>\n{_render_pairs(call)}" for call in calls], "</tool_calls>"]
    ),
    closers=(_CALL_END, "</tool_calls>"),
    models=("hunyuan-3", "hy-3", "hy3"),
)

DIALECTS = (GLM, HY_V3)
