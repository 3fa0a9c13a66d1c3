"""`<function=NAME>` with a `<parameter=KEY>` per argument: Qwen3-Coder, Seed-OSS; with JSON inside: Functionary.

The outer mark is often missing: half of the reports of this dialect.
"""

from toolwire.translation.stages.tool_call_parsers.calls import Parameter, ParsedCall, decode_object
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Incomplete, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.rendering import WrittenCall, call_renderer, written_values

_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"


def _parse_function_name(cursor: Cursor) -> Parse[str]:
    """Parse `<function=NAME>`; blanks and quotes around the name are tolerated."""
    yield from cursor.expect(_FUNCTION)
    name, _ = yield from cursor.read_until(">")
    if not name or len(name) > 256 or "\n" in name or "<" in name:
        raise Mismatch
    return name.strip().strip("\"'")


def parse_value(cursor: Cursor, closer: str, *followers: str) -> Parse[str]:
    """Parse a value up to its closing mark; one that no mark of the grammar follows belongs to the value."""
    start = cursor.position
    while True:
        yield from cursor.read_until(closer)
        end, resume = cursor.position - len(closer), cursor.position
        if not (yield from cursor.skip_space()) or (yield from cursor.upcoming(*followers)):
            return cursor.text[start:end]
        cursor.position = resume


def _parse_parameters(cursor: Cursor, *outer: str) -> Parse[list[Parameter]]:
    """Parse parameters and the end of the function, which may be missing at the end of the turn."""
    parameters: list[Parameter] = []
    while True:
        following = yield from cursor.skip_space()
        if (yield from cursor.accept(_PARAMETER)):
            name, _ = yield from cursor.read_until(">")
            value = yield from parse_value(cursor, _PARAMETER_END, _PARAMETER, _FUNCTION_END, *outer)
            parameters.append(Parameter(name.strip().strip("\"'"), _without_newlines(value)))
        elif (yield from cursor.accept(_FUNCTION_END)) or (outer and (yield from cursor.upcoming(*outer))):
            return parameters
        elif following:
            raise Mismatch
        elif not cursor.finished or not parameters:
            raise Incomplete
        else:
            return parameters


def _without_newlines(value: str) -> str:
    """Return a value without the newlines of its marks: one on each side, if there is one at the beginning."""
    return value[1:].removesuffix("\n") if value.startswith("\n") else value


def _function_dialect(name: str, opener: str, closer: str, models: tuple[str, ...]) -> Dialect:
    """Return a dialect of functions inside these outer marks."""

    def parse(cursor: Cursor) -> Parse[list[ParsedCall]]:
        """Parse one call, with or without its outer mark."""
        yield from cursor.accept(opener)
        yield from cursor.skip_space()
        function = yield from _parse_function_name(cursor)
        parameters = yield from _parse_parameters(cursor, closer)
        return [ParsedCall(function, parameters=tuple(parameters))]

    def render(call: WrittenCall) -> str:
        """Write one call with its outer marks."""
        values = [f"{_PARAMETER}{value.name}>\n{value.text}\n{_PARAMETER_END}\n" for value in written_values(call)]
        return f"{opener}\n{_FUNCTION}{call.name}>\n{''.join(values)}{_FUNCTION_END}\n{closer}"

    return Dialect(
        name, (opener, _FUNCTION), parse, call_renderer(render), closers=(closer, _FUNCTION_END), models=models
    )


def _parse_functionary(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one call with JSON arguments."""
    function = yield from _parse_function_name(cursor)
    yield from cursor.skip_space()
    arguments = decode_object((yield from cursor.read_json()))
    yield from cursor.skip_space()
    yield from cursor.expect(_FUNCTION_END)
    return [ParsedCall(function, arguments)]


QWEN3_CODER = _function_dialect(
    "qwen3_coder",
    "<tool_call>",
    "</tool_call>",
    ("qwen3-coder", "qwen3.5", "qwen3.6", "qwen3.8", "nemotron-3", "step-3.5", "mimo", "trinity"),
)
SEED_OSS = _function_dialect("seed_oss", "<seed:tool_call>", "</seed:tool_call>", ("seed-oss",))
FUNCTIONARY = Dialect(
    "functionary",
    (_FUNCTION,),
    _parse_functionary,
    call_renderer(lambda call: f"{_FUNCTION}{call.name}>{call.arguments}{_FUNCTION_END}"),
    models=("functionary",),
)

DIALECTS = (QWEN3_CODER, SEED_OSS, FUNCTIONARY)
