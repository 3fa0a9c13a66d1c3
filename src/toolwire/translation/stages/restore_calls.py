"""Restore calls to the tools that the client declared: names, freeform text, omitted properties and integers."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Part, ToolCall
from toolwire.canonical.events import Event, MessageEnd, PartDelta, PartDeltas, PartEnd, PartStart, append_text
from toolwire.canonical.fold import TextPieces
from toolwire.canonical.response import Response
from toolwire.codec.encoding.tools import INPUT_PARAMETER, unwrap_freeform_input
from toolwire.codec.interface import ResponseMapping
from toolwire.codec.schema.references import References
from toolwire.codec.wire.reader import decode_json
from toolwire.translation.stages.integers import IntegerArguments, integer_schema, may_need_integers, with_integers

LIMIT_VISITED_SCHEMAS = 10_000


def without_nulls(arguments: str, schema: Raw) -> str:
    """Return JSON arguments without the nulls that stand for absent optional properties."""
    try:
        value, tree = decode_json(arguments), decode_json(schema)
        removed = _NullRemoval(References(tree)).strip(value, tree)
        return msgspec.json.encode(value).decode() if removed else arguments
    except (msgspec.DecodeError, RecursionError):
        return arguments


class _NullRemoval:
    """Removes nulls from a value according to its schema, within a limit of visited schemas."""

    def __init__(self, references: References) -> None:
        self._references = references
        self._budget = LIMIT_VISITED_SCHEMAS

    def _spend_budget(self, schema: Any) -> bool:
        """Count a visited schema, and return whether it is an object and the limit is not exceeded."""
        self._budget -= 1
        return self._budget >= 0 and isinstance(schema, dict)

    def strip(self, value: Any, schema: Any) -> int:
        """Remove, in place, nulls that stand for absent properties, and return how many."""
        if not isinstance(value, dict | list) or not self._spend_budget(schema):
            return 0
        removed = 0
        if (target := self._references.resolve(schema.get("$ref"))) is not None:
            removed += self.strip(value, target.value)
        for keyword in ("allOf", "anyOf", "oneOf"):
            removed += sum(self.strip(value, branch) for branch in _list_or_empty(schema.get(keyword)))
        if isinstance(value, list):
            return removed + sum(self.strip(element, schema.get("items")) for element in value)
        declared = schema.get("properties")
        for name, property_schema in declared.items() if isinstance(declared, dict) else ():
            if name not in value:
                continue
            if value[name] is not None:
                removed += self.strip(value[name], property_schema)
            elif name not in _list_or_empty(schema.get("required")) and not self._is_nullable(property_schema):
                del value[name]
                removed += 1
        return removed

    def _is_nullable(self, schema: Any) -> bool:
        """Return whether the schema admits null, so that a null must stay."""
        if not self._spend_budget(schema):
            return True
        if (target := self._references.resolve(schema.get("$ref"))) is not None:
            return self._is_nullable(target.value)
        if (
            schema.get("nullable") is True
            or None in _list_or_empty(schema.get("enum"))
            or schema.get("const", 0) is None
        ):
            return True
        branches = [branch for keyword in ("anyOf", "oneOf") for branch in _list_or_empty(schema.get(keyword))]
        if branches:
            return any(self._is_nullable(branch) for branch in branches)
        if isinstance(schema.get("enum"), list) or "const" in schema:
            return False
        types = schema.get("type")
        return types is None or types == "null" or "null" in _list_or_empty(types)


def _list_or_empty(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def restore_part(part: Part, mapping: ResponseMapping) -> Part:
    """Return a call under the name and kind of the client's tool; other parts are unchanged."""
    return _restore_call(part, mapping) if isinstance(part, ToolCall) else part


def _restore_call(part: ToolCall, mapping: ResponseMapping) -> ToolCall:
    """Return the call under the name and kind of the client's tool; malformed freeform input stays as it is."""
    if part.name not in mapping.used_names:
        part = replace(part, name=_without_repeated_prefix(part.name, mapping))
    if (original := mapping.tools.get(part.name)) is None:
        return _restore_integers(part, mapping)
    if original.parameters is not None:
        part = replace(part, arguments=without_nulls(part.arguments, original.parameters))
    if not original.freeform:
        native = original.native or part.native
        return _restore_integers(
            replace(part, name=original.name, namespace=original.namespace, native=native), mapping
        )
    text = unwrap_freeform_input(part.arguments)
    if text is None:
        text = part.arguments
    return replace(part, name=original.name, namespace=original.namespace, shape="freeform", arguments=text)


_MAX_NAME_LENGTH = 512


def _without_repeated_prefix(name: str, mapping: ResponseMapping) -> str:
    """Return the tool name that a model meant when it repeated a prefix (`mcp__w__mcp__w__get`)."""
    if name in mapping.used_names or len(name) > _MAX_NAME_LENGTH:
        return name
    candidates = [
        alias for alias in mapping.used_names if name.endswith(alias) and alias.startswith(name.removesuffix(alias))
    ]
    return max(candidates, key=len, default=name)


def _restore_integers(call: ToolCall, mapping: ResponseMapping) -> ToolCall:
    """Return the call with integral floats (`1.0`) as integers where the tool's schema wants these."""
    if not may_need_integers(call.arguments) or (schema := integer_schema(mapping.integer_schemas, call)) is None:
        return call
    if (arguments := with_integers(call.arguments, schema)) == call.arguments:
        return call
    return replace(call, arguments=arguments)


class BufferedArguments:
    """Arguments that can only be converted once they are complete."""

    def __init__(self, parameters: Raw, integer_schema: Any) -> None:
        self._parameters = parameters
        self._integer_schema = integer_schema
        self._pieces = TextPieces()

    def feed(self, text: str) -> str:
        """Buffer the next piece of the arguments, and return an empty text."""
        self._pieces.append(text)
        return ""

    def close(self) -> str:
        """Return the complete arguments, converted."""
        arguments = without_nulls("".join(self._pieces), self._parameters)
        return arguments if self._integer_schema is None else with_integers(arguments, self._integer_schema)


_INPUT_START = re.compile(rf'\s*\{{\s*"{INPUT_PARAMETER}"\s*:\s*"')
_LIMIT_INPUT_START = 200
_SPECIAL = re.compile(r'["\\]')
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class FreeformInput:
    """The string value of `{"input": "..."}`, unescaped piece by piece.

    Arguments of another shape are buffered, and converted when they are complete.
    """

    def __init__(self) -> None:
        self._head = TextPieces()
        self._inside = False
        self._unexpected = False
        self._done = False
        self._incomplete_escape = ""

    def feed(self, text: str) -> str:
        """Return the freeform text that the next piece of the JSON arguments adds."""
        if self._done:
            return ""
        if not self._inside:
            self._head.append(text)
            if self._unexpected:
                return ""
            head = "".join(self._head)
            if (match := _INPUT_START.match(head)) is None:
                self._unexpected = len(head) > _LIMIT_INPUT_START
                return ""
            text = head[match.end() :]
            self._inside = True
        return "".join(self._unescape(self._incomplete_escape + text))

    def close(self) -> str:
        """Return the freeform text of arguments that had to be buffered; empty if none were."""
        if self._inside:
            return ""
        arguments = "".join(self._head)
        text = unwrap_freeform_input(arguments)
        return arguments if text is None else text

    def _unescape(self, text: str) -> Iterator[str]:
        """Yield the unescaped text up to the closing quote; an incomplete escape waits."""
        self._incomplete_escape = ""
        position = 0
        while position < len(text):
            if (special := _SPECIAL.search(text, position)) is None:
                yield text[position:]
                return
            special_at = special.start()
            yield text[position:special_at]
            if text[special_at] == '"':
                self._done = True
                return
            size = _escape_size(text, special_at)
            if size is None:
                self._incomplete_escape = text[special_at:]
                return
            yield _decode_escape(text[special_at : special_at + size])
            position = special_at + size


_HIGH_SURROGATES = ("d8", "d9", "da", "db")
_LOW_SURROGATES = ("dc", "dd", "de", "df")


def _escape_size(text: str, index: int) -> int | None:
    """Return the length of the JSON escape at an index; None while it is incomplete."""
    if index + 1 >= len(text):
        return None
    if text[index + 1] != "u":
        return 2
    if index + 6 > len(text):
        return None
    if text[index + 2 : index + 4].lower() in _HIGH_SURROGATES and "\\u".startswith(text[index + 6 : index + 8]):
        if index + 12 > len(text):
            return None
        return 12 if text[index + 8 : index + 10].lower() in _LOW_SURROGATES else 6
    return 6


def _decode_escape(escape: str) -> str:
    """Return the character of a JSON escape."""
    if escape[1] != "u":
        return _ESCAPES.get(escape[1], escape[1])
    try:
        units = bytes.fromhex(escape[2:6] + escape[8:12])
        return units.decode("utf-16-be")
    except ValueError:
        return "\ufffd"


_ArgumentReader = FreeformInput | IntegerArguments | BufferedArguments


class CallRestoreStage:
    """Restores calls to the tools that the client declared; arguments are converted as they arrive."""

    def __init__(self, mapping: ResponseMapping) -> None:
        self._mapping = mapping
        self._argument_readers: dict[tuple[int, int], tuple[int, _ArgumentReader]] = {}  # with the call's message

    def applies(self, response: Response) -> bool:
        """Return whether the response has calls that may change."""
        for candidate in response.candidates:
            for message in candidate.messages:
                for part in message.parts:
                    if type(part) is ToolCall and (self._mapping.tools or may_need_integers(part.arguments)):
                        return True
        return False

    def process(self, events: list[Event]) -> list[Event]:
        """Return the events with restored calls; the same list if there are none."""
        if not self._argument_readers and not any(map(_is_call, events)):
            return events
        restored: list[Event] = []
        readers = self._argument_readers
        for event in events:
            if type(event) is PartDelta or type(event) is PartDeltas:
                entry = readers.get((event.candidate, event.index))
                restored += (event,) if entry is None else _convert_arguments(event, entry[1])
                continue
            if readers and type(event) is PartEnd:
                restored += self._remaining_arguments(event.candidate, event.index)
            elif readers and type(event) is MessageEnd:  # which an incomplete call has in place of its own end
                for candidate, index in [
                    key
                    for key, (message, _) in readers.items()
                    if (key[0], message) == (event.candidate, event.message)
                ]:
                    restored += self._remaining_arguments(candidate, index)
            restored.append(self._restore_event(event))
        return restored

    def _remaining_arguments(self, candidate: int, index: int) -> list[Event]:
        """Return a delta with the arguments that the reader of a part held back, if there are any."""
        _, reader = self._argument_readers.pop((candidate, index), (0, None))
        remainder = "" if reader is None else reader.close()
        return [PartDelta(index=index, candidate=candidate, text=remainder)] if remainder else []

    def _restore_event(self, event: Event) -> Event:
        """Return the start or end of a part with its call restored."""
        if isinstance(event, PartStart) and isinstance(event.part, ToolCall):
            call = _restore_call(event.part, self._mapping)
            if (reader := self._argument_reader(event.part.name, call)) is not None:
                self._argument_readers[event.candidate, event.index] = event.message, reader
                call = replace(call, arguments=reader.feed(event.part.arguments))
            return replace(event, part=call)
        if isinstance(event, PartEnd) and event.final is not None:
            return replace(event, final=restore_part(event.final, self._mapping))
        return event

    def _argument_reader(self, alias: str, call: ToolCall) -> _ArgumentReader | None:
        """Return a converter for the arguments of a call; None if they pass unchanged."""
        original = self._mapping.tools.get(_without_repeated_prefix(alias, self._mapping))
        if original is not None and original.freeform:
            return FreeformInput()
        schema = integer_schema(self._mapping.integer_schemas, call)
        if original is not None and original.parameters is not None:
            return BufferedArguments(original.parameters, schema)
        return None if schema is None else IntegerArguments(schema)


def _convert_arguments(event: PartDelta | PartDeltas, reader: _ArgumentReader) -> Sequence[Event]:
    """Return deltas of arguments, converted."""
    if isinstance(event, PartDelta):
        converted = reader.feed(event.text)
        return (event if converted is event.text else replace(event, text=converted),)
    texts = list(map(reader.feed, event.texts))
    if texts == event.texts:
        return (event,)
    events: list[Event] = []
    for text in texts:
        append_text(events, event.index, text, event.candidate)
    return events


def _is_call(event: Event) -> bool:
    """Return whether an event is the start or end of a tool call."""
    if type(event) is PartStart:
        return type(event.part) is ToolCall
    return type(event) is PartEnd and type(event.final) is ToolCall
