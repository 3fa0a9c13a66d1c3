"""Arguments with null for what is absent, as a complete dialect asks for them: as their own schema has them again.

Raising an answer to what the client asked: its own tool names, free text, whole numbers.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, ToolCall
from toolwire.canonical.events import Event, PartDelta, PartEnd, PartStart
from toolwire.canonical.fold import TextPieces
from toolwire.canonical.response import Candidate, Response
from toolwire.codec.encoding.computer import ComputerUseAdapter, ScreenContext
from toolwire.codec.encoding.tools import INPUT_PARAMETER, unwrap_freeform_input
from toolwire.codec.interface import ResponseMapping
from toolwire.codec.losses import WireNames
from toolwire.codec.schema.references import References
from toolwire.codec.wire.reader import decode_json
from toolwire.translation.stages.computer import ComputerStage, adapt_message
from toolwire.translation.stages.integers import IntegerArguments, integer_schema, may_need_integers, with_integers

LIMIT_VISITED_SCHEMAS = 10_000


def without_nulls(arguments: str, schema: Raw) -> str:
    """The arguments without each null that stands for an optional property; as they are if there is none."""
    try:
        value, tree = decode_json(arguments), decode_json(schema)
        removed = _NullRemoval(References(tree)).strip(value, tree)
        return msgspec.json.encode(value).decode() if removed else arguments
    except (msgspec.DecodeError, RecursionError):
        return arguments


class _NullRemoval:
    """A value beside its schema, whose references are followed so often only."""

    def __init__(self, references: References) -> None:
        self._references = references
        self._budget = LIMIT_VISITED_SCHEMAS

    def _spend_budget(self, schema: Any) -> bool:
        self._budget -= 1
        return self._budget >= 0 and isinstance(schema, dict)

    def strip(self, value: Any, schema: Any) -> int:
        """How many nulls were taken out."""
        if not isinstance(value, dict | list) or not self._spend_budget(schema):
            return 0
        removed = 0
        if (target := self._references.resolve(schema.get("$ref"))) is not None:
            removed += self.strip(value, target.value)
        for keyword in ("allOf", "anyOf", "oneOf"):
            removed += sum(self.strip(value, branch) for branch in _list_or_empty(schema.get(keyword)))
        if isinstance(value, list):
            return removed + sum(self.strip(one, schema.get("items")) for one in value)
        declared = schema.get("properties")
        for name, inner in declared.items() if isinstance(declared, dict) else ():
            if name not in value:
                continue
            if value[name] is not None:
                removed += self.strip(value[name], inner)
            elif name not in _list_or_empty(schema.get("required")) and not self._is_nullable(inner):
                del value[name]
                removed += 1
        return removed

    def _is_nullable(self, schema: Any) -> bool:
        """Whether null is a value of its own."""
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
        words = schema.get("type")
        return words is None or words == "null" or "null" in _list_or_empty(words)


def _list_or_empty(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


NO_WIRE_NAMES: WireNames = {}


def restore_calls(
    response: Response,
    mapping: ResponseMapping,
    adapter: ComputerUseAdapter | None = None,
    wire_names: WireNames = NO_WIRE_NAMES,
) -> Response:
    """`form` is how the client tells what drives a screen, and `names` are those of the protocol that answers."""
    if mapping.computer_use is not None and adapter is not None:
        response = _adapt_computer_calls(response, mapping.computer_use, adapter, wire_names)
    if not mapping.tools and (mapping.integer_schemas is None or not _has_fractional_arguments(response)):
        return response
    return replace(response, candidates=tuple(_restore_candidate(one, mapping) for one in response.candidates))


def _adapt_computer_calls(
    response: Response, screen: ScreenContext, adapter: ComputerUseAdapter, wire_names: WireNames
) -> Response:
    def act(one: Candidate) -> Candidate:
        acted = tuple(adapt_message(message, screen, adapter, wire_names) for message in one.messages)
        return one if acted == one.messages else replace(one, messages=acted, plain=False)

    acted = tuple(map(act, response.candidates))
    return response if acted == response.candidates else replace(response, candidates=acted, plain=False)


def _has_fractional_arguments(response: Response) -> bool:
    """Whether a number may have to be written anew: mostly not, and it is asked of every answer."""
    for candidate in response.candidates:
        for message in candidate.messages:
            for part in message.parts:
                if type(part) is ToolCall and may_need_integers(part.arguments):
                    return True
    return False


def _restore_candidate(candidate: Candidate, mapping: ResponseMapping) -> Candidate:
    return replace(candidate, messages=tuple(_restore_message(one, mapping) for one in candidate.messages))


def _restore_message(message: Message, mapping: ResponseMapping) -> Message:
    return replace(message, parts=tuple(restore_part(part, mapping) for part in message.parts))


def restore_part(part: Part, mapping: ResponseMapping) -> Part:
    return _restore_call(part, mapping) if isinstance(part, ToolCall) else part


def _restore_call(part: ToolCall, mapping: ResponseMapping) -> ToolCall:
    """A call under its own name; a lowered one with its text, or as it came if the model did not keep to the shape."""
    if part.name not in mapping.used_names:
        part = replace(part, name=_without_repeated_prefix(part.name, mapping))
    if (known := mapping.tools.get(part.name)) is None:
        return _restore_integers(part, mapping)
    if known.parameters is not None:
        part = replace(part, arguments=without_nulls(part.arguments, known.parameters))
    if not known.freeform:
        native = known.native or part.native
        return _restore_integers(replace(part, name=known.name, namespace=known.namespace, native=native), mapping)
    text = unwrap_freeform_input(part.arguments)
    if text is None:
        text = part.arguments
    return replace(part, name=known.name, namespace=known.namespace, shape="freeform", arguments=text)


_MAX_NAME_LENGTH = 512


def _without_repeated_prefix(name: str, mapping: ResponseMapping) -> str:
    """The name that a model meant when it repeated how that begins (`mcp__w__mcp__w__get`)."""
    if name in mapping.used_names or len(name) > _MAX_NAME_LENGTH:
        return name
    meant = [
        alias for alias in mapping.used_names if name.endswith(alias) and alias.startswith(name.removesuffix(alias))
    ]
    return max(meant, key=len, default=name)


def _restore_integers(call: ToolCall, mapping: ResponseMapping) -> ToolCall:
    if not may_need_integers(call.arguments) or (schema := integer_schema(mapping.integer_schemas, call)) is None:
        return call
    if (arguments := with_integers(call.arguments, schema)) == call.arguments:
        return call
    return replace(call, arguments=arguments)


class CallRestoreStage:
    """The same for a stream: the text of a lowered call is taken out of its JSON as it arrives."""

    def __init__(
        self, mapping: ResponseMapping, adapter: ComputerUseAdapter | None = None, wire_names: WireNames = NO_WIRE_NAMES
    ) -> None:
        self._mapping = mapping
        self._computer_stage = (
            None
            if mapping.computer_use is None or adapter is None
            else ComputerStage(mapping.computer_use, adapter, wire_names)
        )
        self._argument_readers: dict[tuple[int, int], FreeformInput | IntegerArguments | BufferedArguments] = {}

    def process(self, events: Sequence[Event]) -> Iterable[Event]:
        if self._computer_stage is not None:
            events = list(self._computer_stage.process(events))
        if not self._mapping.tools and self._mapping.integer_schemas is None:
            return events
        if not self._argument_readers and not any(type(event) in _CALL_EVENTS and _is_call(event) for event in events):
            return events
        return self._process_all(events)

    def _process_all(self, events: Iterable[Event]) -> list[Event]:
        raised: list[Event] = []
        texts = self._argument_readers
        for event in events:
            if type(event) is PartDelta:
                if texts and (text := texts.get((event.candidate, event.index))) is not None:
                    said = text.feed(event.text)
                    event = event if said is event.text else replace(event, text=said)  # noqa: PLW2901
                raised.append(event)
                continue
            if type(event) is PartEnd:
                text = texts.pop((event.candidate, event.index), None)
                if text is not None and (rest := text.close()):
                    raised.append(PartDelta(index=event.index, candidate=event.candidate, text=rest))
            raised.append(self._restore_event(event))
        return raised

    def _restore_event(self, event: Event) -> Event:
        if isinstance(event, PartStart) and isinstance(event.part, ToolCall):
            raised = _restore_call(event.part, self._mapping)
            if (reader := self._argument_reader(event.part.name, raised)) is not None:
                self._argument_readers[event.candidate, event.index] = reader
                raised = replace(raised, arguments=reader.feed(event.part.arguments))
            return replace(event, part=raised)
        if isinstance(event, PartEnd) and event.final is not None:
            return replace(event, final=restore_part(event.final, self._mapping))
        return event

    def _argument_reader(
        self, alias: str, call: ToolCall
    ) -> "FreeformInput | IntegerArguments | BufferedArguments | None":
        """What reads the arguments of a call as they arrive, if they are not passed on as they are."""
        known = self._mapping.tools.get(_without_repeated_prefix(alias, self._mapping))
        if known is not None and known.freeform:
            return FreeformInput()
        schema = integer_schema(self._mapping.integer_schemas, call)
        if known is not None and known.parameters is not None:
            return BufferedArguments(known.parameters, schema)
        return None if schema is None else IntegerArguments(schema)


_CALL_EVENTS = (PartStart, PartEnd)


def _is_call(event: Event) -> bool:
    return isinstance(event.part if isinstance(event, PartStart) else getattr(event, "final", None), ToolCall)


class BufferedArguments:
    """Arguments that can only be raised when all of them are there."""

    def __init__(self, parameters: Raw, integer_schema: Any) -> None:
        self._parameters = parameters
        self._integer_schema = integer_schema
        self._pieces = TextPieces()

    def feed(self, text: str) -> str:
        self._pieces.append(text)
        return ""

    def close(self) -> str:
        arguments = without_nulls("".join(self._pieces), self._parameters)
        return arguments if self._integer_schema is None else with_integers(arguments, self._integer_schema)


_INPUT_START = re.compile(rf'\s*\{{\s*"{INPUT_PARAMETER}"\s*:\s*"')
_LIMIT_INPUT_START = 200
_SPECIAL = re.compile(r'["\\]')
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class FreeformInput:
    """The string value of `{"input": "..."}`, unescaped piece by piece.

    What starts otherwise is kept until it is whole, and then raised like a call that came at once.
    """

    def __init__(self) -> None:
        self._head = TextPieces()
        self._inside = False
        self._unexpected = False
        self._done = False
        self._incomplete_escape = ""

    def feed(self, text: str) -> str:
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
        """What was kept."""
        if self._inside:
            return ""
        whole = "".join(self._head)
        text = unwrap_freeform_input(whole)
        return whole if text is None else text

    def _unescape(self, text: str) -> Iterator[str]:
        self._incomplete_escape = ""
        place = 0
        while place < len(text):
            if (special := _SPECIAL.search(text, place)) is None:
                yield text[place:]
                return
            cut = special.start()
            yield text[place:cut]
            if text[cut] == '"':
                self._done = True
                return
            size = _escape_size(text, cut)
            if size is None:
                self._incomplete_escape = text[cut:]
                return
            yield _decode_escape(text[cut : cut + size])
            place = cut + size


_HIGH_SURROGATES = ("d8", "d9", "da", "db")
_LOW_SURROGATES = ("dc", "dd", "de", "df")


def _escape_size(text: str, index: int) -> int | None:
    """How long the escape at this place is; None while it is cut."""
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
    if escape[1] != "u":
        return _ESCAPES.get(escape[1], escape[1])
    try:
        units = bytes.fromhex(escape[2:6] + escape[8:12])
        return units.decode("utf-16-be")
    except ValueError:
        return "\ufffd"
