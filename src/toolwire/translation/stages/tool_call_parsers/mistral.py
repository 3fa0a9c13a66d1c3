"""Mistral: `[TOOL_CALLS]` before a JSON list (old), or before a name and its arguments (v11, v13). No end mark."""

from toolwire.translation.stages.tool_call_parsers.calls import ParsedCall, decode_object, parse_calls
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.rendering import call_renderer, result_renderer

_MARK = "[TOOL_CALLS]"


def _parse(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one list of calls, or one call."""
    yield from cursor.expect(_MARK)
    if (yield from cursor.skip_space()) in ("[", "{"):
        return (yield from parse_calls(cursor))
    name = yield from cursor.read_name()
    if (yield from cursor.accept("[CALL_ID]")):
        yield from cursor.read_name()
    yield from cursor.skip_space()
    yield from cursor.accept("[ARGS]")
    yield from cursor.skip_space()
    return [ParsedCall(name, decode_object((yield from cursor.read_json())))]


MISTRAL = Dialect(
    "mistral",
    (_MARK,),
    _parse,
    call_renderer(lambda call: f"{_MARK}{call.name}[ARGS]{call.arguments}", ""),
    result_renderer(lambda result: f"[TOOL_RESULTS]{result.text}[/TOOL_RESULTS]", ""),
    closers=("[/TOOL_CALLS]",),
    models=("mistral", "mixtral", "ministral", "devstral", "magistral", "codestral"),
)

DIALECTS = (MISTRAL,)
