"""Apertus (the name is the key of an object), Inkling (messages of their own) and MiniCPM 5 (`<function name=`)."""

from collections.abc import Sequence

from msgspec import Raw

from toolwire.translation.stages.tool_call_parsers.anthropic_invoke import parse_attributes
from toolwire.translation.stages.tool_call_parsers.calls import (
    Parameter,
    ParsedCall,
    decode_object,
    read_call,
    read_items,
    read_members,
)
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.rendering import (
    WrittenCall,
    call_renderer,
    render_object,
    render_string,
    written_values,
)


def _parse_apertus(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one list of objects with one member each."""
    yield from cursor.expect("<|tools_prefix|>")
    yield from cursor.skip_space()
    source = yield from cursor.read_json()
    if (yield from cursor.skip_space()):
        yield from cursor.expect("<|tools_suffix|>")
    try:
        items = [bytes(item).decode() for item in read_items(source)]
        members = [(item, *_single_member(read_members(item))) for item in items]
    except (ValueError, RecursionError):
        raise Mismatch from None
    return [ParsedCall(name, decode_object(bytes(value).decode()), source=item) for item, name, value in members]


def _single_member(members: dict[str, Raw]) -> tuple[str, Raw]:
    """Return the only member of an object."""
    if len(members) != 1:
        raise Mismatch
    return next(iter(members.items()))


def _parse_inkling(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one message with a call; the name in its payload counts."""
    if (yield from cursor.accept("<|message_model|>")):
        yield from cursor.read_name()
    yield from cursor.expect("<|content_invoke_tool_json|>")
    yield from cursor.skip_space()
    call = read_call((yield from cursor.read_json()))
    if (yield from cursor.skip_space()):
        yield from cursor.expect("<|end_message|>")
    return [call]


_FUNCTION = ("<function name=", "<functionname=", "<functionĠname=")
_PARAM = ("<param name=", "<paramname=", "<paramĠname=")


def _parse_minicpm5(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one function; blanks of its tags may be lost in the tokenizer."""
    mark = yield from cursor.expect(*_FUNCTION)
    cursor.position -= len("name=")
    attributes, _ = yield from parse_attributes(cursor)
    name = attributes.get("name", "")
    parameters: list[Parameter] = []
    while not (yield from cursor.accept("</function>")):
        if not (yield from cursor.skip_space()).startswith("<"):
            raise Mismatch
        mark = yield from cursor.expect(*_PARAM, "</function>")
        if mark == "</function>":
            break
        cursor.position -= len("name=")
        attributes, _ = yield from parse_attributes(cursor)
        if (yield from cursor.accept("<![CDATA[")):
            value, _ = yield from cursor.read_until("]]></param>")
        else:
            value, _ = yield from cursor.read_until("</param>")
        parameters.append(Parameter(attributes.get("name", ""), value))
    return [ParsedCall(name, parameters=tuple(parameters), only_declared=True)]


def _render_apertus(calls: Sequence[WrittenCall]) -> str:
    """Write calls as objects with one member each."""
    objects = [f"{{{render_string(call.name)}: {call.arguments}}}" for call in calls]
    return f"<|tools_prefix|>[{', '.join(objects)}]<|tools_suffix|>"


def _render_minicpm5(call: WrittenCall) -> str:
    """Write one function; a value with marks in it is written as CDATA."""
    values = [
        f'<param name="{value.name}">{f"<![CDATA[{value.text}]]>" if "<" in value.text else value.text}</param>'
        for value in written_values(call)
    ]
    return f'<function name="{call.name}">{"".join(values)}</function>'


APERTUS = Dialect(
    "apertus",
    ("<|tools_prefix|>",),
    _parse_apertus,
    _render_apertus,
    closers=("<|tools_suffix|>",),
    models=("apertus",),
)
INKLING = Dialect(
    "inkling",
    ("<|message_model|>", "<|content_invoke_tool_json|>"),
    _parse_inkling,
    call_renderer(
        lambda call: (
            f"<|message_model|>{call.name}<|content_invoke_tool_json|>{render_object(call, 'args')}<|end_message|>"
        ),
        "",
    ),
    closers=("<|end_message|>",),
    models=("inkling",),
)
MINICPM5 = Dialect("minicpm5", _FUNCTION, _parse_minicpm5, call_renderer(_render_minicpm5), models=("minicpm",))

DIALECTS = (APERTUS, INKLING, MINICPM5)
