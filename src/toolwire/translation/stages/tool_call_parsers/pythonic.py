"""Python calls in a list: Llama 4, LFM2 and OLMo 3 between marks; ToolACE and Llama 3.2 without."""

import json
from collections.abc import Sequence

from toolwire.translation.stages.tool_call_parsers.calls import ParsedCall, parse_calls
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Incomplete, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.literals import (
    Call,
    parse_balanced,
    read_call_lines,
    read_call_list,
    render_literal,
)
from toolwire.translation.stages.tool_call_parsers.rendering import (
    ResultRenderer,
    WrittenCall,
    render_tool_responses,
    result_renderer,
    written_values,
)


def _encode_calls(calls: list[Call]) -> list[ParsedCall]:
    """Return calls with their arguments as JSON."""
    return [ParsedCall(name, _encode(arguments)) for name, arguments in calls]


def _encode(arguments: dict[str, object]) -> str:
    """Return arguments as JSON; lone surrogates become escapes."""
    text = json.dumps(arguments, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(arguments)


def _render_call(call: WrittenCall) -> str:
    """Write one call as in Python."""
    arguments = [
        f"{value.name}={render_literal(value.text if value.is_string else json.loads(value.text))}"
        for value in written_values(call)
    ]
    return f"{call.name}({', '.join(arguments)})"


def _render_list(calls: Sequence[WrittenCall]) -> str:
    """Write calls as a list in Python."""
    return f"[{', '.join(map(_render_call, calls))}]"


def _marked_dialect(
    name: str,
    opener: str,
    closer: str,
    models: tuple[str, ...],
    render_results: ResultRenderer = render_tool_responses,
) -> Dialect:
    """Return a dialect of a list of calls between marks; the closing one may be missing at the end of the turn."""

    def parse(cursor: Cursor) -> Parse[list[ParsedCall]]:
        """Parse one list, in Python or in JSON."""
        yield from cursor.expect(opener)
        following = yield from cursor.skip_space()
        if following == "{":
            calls = yield from parse_calls(cursor)
        elif following == "[":
            start = cursor.position
            cursor.position += 1
            is_json = (yield from cursor.skip_space()) == "{"
            cursor.position = start
            if is_json:
                calls = yield from parse_calls(cursor)
            else:
                calls = _encode_calls(read_call_list((yield from parse_balanced(cursor)), loose=True))
        else:
            raise Mismatch if following else Incomplete
        if (yield from cursor.skip_space()):
            yield from cursor.expect(closer)
        return calls

    return Dialect(
        name,
        (opener,),
        parse,
        lambda calls: f"{opener}{_render_list(calls)}{closer}",
        render_results,
        closers=(closer,),
        models=models,
    )


def _parse_olmo3(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one call a line, without brackets."""
    yield from cursor.expect(_OLMO_OPENER)
    if (yield from cursor.skip_space()) in ("<", "{", "["):
        raise Mismatch
    text, _ = yield from cursor.read_until(_OLMO_CLOSER)
    return _encode_calls(read_call_lines(text))


_OLMO_OPENER, _OLMO_CLOSER = "<function_calls>", "</function_calls>"


def _parse_pythonic(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse an answer that is one list of calls."""
    start = cursor.position
    yield from cursor.expect("[")
    yield from cursor.skip_space()
    yield from cursor.read_name()
    yield from cursor.expect("(")  # so that a Markdown link is not held back
    cursor.position = start
    text = yield from parse_balanced(cursor)
    return _encode_calls(read_call_list(text))


LLAMA4_PYTHONIC = _marked_dialect("llama4_pythonic", "<|python_start|>", "<|python_end|>", ("llama-4", "llama4"))
LFM2 = _marked_dialect(
    "lfm2",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    ("lfm2",),
    result_renderer(lambda result: f"<|tool_response_start|>{result.text}<|tool_response_end|>"),
)
OLMO3 = Dialect(
    "olmo3",
    (_OLMO_OPENER,),
    _parse_olmo3,
    lambda calls: "\n".join([_OLMO_OPENER + _render_call(calls[0]), *map(_render_call, calls[1:])]) + _OLMO_CLOSER,
    closers=(_OLMO_CLOSER,),
    models=("olmo-3", "olmo3"),
)
PYTHONIC = Dialect("pythonic", ("[",), _parse_pythonic, _render_list, bare=True, models=("toolace", "llama-3.2"))

DIALECTS = (LLAMA4_PYTHONIC, LFM2, OLMO3, PYTHONIC)
