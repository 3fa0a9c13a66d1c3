"""Raising an answer to what the client asked: its own tool names, free text, whole numbers."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, ToolCall
from toolwire.canonical.events import Event, PartDelta, PartEnd, PartStart
from toolwire.canonical.response import Candidate, Response
from toolwire.canonical.text_pieces import TextPieces

from .acting import StreamActing, act_message
from .computer import Form, OnScreen
from .integers import IntegerText, integer_schema, may_need_integers, with_integers
from .interface import Undo
from .losses import Names
from .schema.absent import without_nulls
from .tools import INPUT, raise_input

NO_NAMES: Names = {}


def raise_response(response: Response, undo: Undo, form: Form | None = None, names: Names = NO_NAMES) -> Response:
    """`form` is how the client tells what drives a screen, and `names` are those of the protocol that answers."""
    if undo.screen is not None and form is not None:
        response = _act(response, undo.screen, form, names)
    if not undo.names and (undo.integers is None or not _holds_fractions(response)):
        return response
    return replace(response, candidates=tuple(_raise_candidate(one, undo) for one in response.candidates))


def _act(response: Response, screen: OnScreen, form: Form, names: Names) -> Response:
    def act(one: Candidate) -> Candidate:
        acted = tuple(act_message(message, screen, form, names) for message in one.messages)
        return one if acted == one.messages else replace(one, messages=acted, plain=False)

    acted = tuple(map(act, response.candidates))
    return response if acted == response.candidates else replace(response, candidates=acted, plain=False)


def _holds_fractions(response: Response) -> bool:
    """Whether a number may have to be written anew: mostly not, and it is asked of every answer."""
    for candidate in response.candidates:
        for message in candidate.messages:
            for part in message.parts:
                if type(part) is ToolCall and may_need_integers(part.arguments):
                    return True
    return False


def _raise_candidate(candidate: Candidate, undo: Undo) -> Candidate:
    return replace(candidate, messages=tuple(_raise_message(one, undo) for one in candidate.messages))


def _raise_message(message: Message, undo: Undo) -> Message:
    return replace(message, parts=tuple(raise_part(part, undo) for part in message.parts))


def raise_part(part: Part, undo: Undo) -> Part:
    return _raise_call(part, undo) if isinstance(part, ToolCall) else part


def _raise_call(part: ToolCall, undo: Undo) -> ToolCall:
    """A call under its own name; a lowered one with its text, or as it came if the model did not keep to the shape."""
    if part.name not in undo.taken:
        part = replace(part, name=_said_once(part.name, undo))
    if (known := undo.names.get(part.name)) is None:
        return _with_integers(part, undo)
    if known.parameters is not None:
        part = replace(part, arguments=without_nulls(part.arguments, known.parameters))
    if not known.freeform:
        native = known.native or part.native
        return _with_integers(replace(part, name=known.name, namespace=known.namespace, native=native), undo)
    text = raise_input(part.arguments)
    if text is None:
        text = part.arguments
    return replace(part, name=known.name, namespace=known.namespace, shape="freeform", arguments=text)


_LONGEST_NAME = 512


def _said_once(name: str, undo: Undo) -> str:
    """The name that a model meant when it repeated how that begins (`mcp__w__mcp__w__get`)."""
    if name in undo.taken or len(name) > _LONGEST_NAME:
        return name
    meant = [alias for alias in undo.taken if name.endswith(alias) and alias.startswith(name.removesuffix(alias))]
    return max(meant, key=len, default=name)


def _with_integers(call: ToolCall, undo: Undo) -> ToolCall:
    if not may_need_integers(call.arguments) or (schema := integer_schema(undo.integers, call)) is None:
        return call
    if (arguments := with_integers(call.arguments, schema)) == call.arguments:
        return call
    return replace(call, arguments=arguments)


class StreamRaiser:
    """The same for a stream: the text of a lowered call is taken out of its JSON as it arrives."""

    def __init__(self, undo: Undo, form: Form | None = None, names: Names = NO_NAMES) -> None:
        self._undo = undo
        self._acting = None if undo.screen is None or form is None else StreamActing(undo.screen, form, names)
        self._texts: dict[tuple[int, int], InputText | IntegerText | WholeArguments] = {}

    def raise_events(self, events: Sequence[Event]) -> Iterable[Event]:
        if self._acting is not None:
            events = list(self._acting.act(events))
        if not self._undo.names and self._undo.integers is None:
            return events
        if not self._texts and not any(type(event) in _CALLING and _is_call(event) for event in events):
            return events
        return self._raise_all(events)

    def _raise_all(self, events: Iterable[Event]) -> list[Event]:
        raised: list[Event] = []
        texts = self._texts
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
            raised.append(self._raise(event))
        return raised

    def _raise(self, event: Event) -> Event:
        if isinstance(event, PartStart) and isinstance(event.part, ToolCall):
            raised = _raise_call(event.part, self._undo)
            if (reader := self._reader(event.part.name, raised)) is not None:
                self._texts[event.candidate, event.index] = reader
                raised = replace(raised, arguments=reader.feed(event.part.arguments))
            return replace(event, part=raised)
        if isinstance(event, PartEnd) and event.final is not None:
            return replace(event, final=raise_part(event.final, self._undo))
        return event

    def _reader(self, alias: str, raised: ToolCall) -> "InputText | IntegerText | WholeArguments | None":
        """What reads the arguments of a call as they arrive, if they are not passed on as they are."""
        known = self._undo.names.get(_said_once(alias, self._undo))
        if known is not None and known.freeform:
            return InputText()
        schema = integer_schema(self._undo.integers, raised)
        if known is not None and known.parameters is not None:
            return WholeArguments(known.parameters, schema)
        return None if schema is None else IntegerText(schema)


_CALLING = (PartStart, PartEnd)


def _is_call(event: Event) -> bool:
    return isinstance(event.part if isinstance(event, PartStart) else getattr(event, "final", None), ToolCall)


class WholeArguments:
    """Arguments that can only be raised when all of them are there."""

    def __init__(self, parameters: Raw, integers: Any) -> None:
        self._parameters = parameters
        self._integers = integers
        self._pieces = TextPieces()

    def feed(self, text: str) -> str:
        self._pieces.append(text)
        return ""

    def close(self) -> str:
        arguments = without_nulls("".join(self._pieces), self._parameters)
        return arguments if self._integers is None else with_integers(arguments, self._integers)


_HEAD = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
_LIMIT_HEAD = 200
_SPECIAL = re.compile(r'["\\]')
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class InputText:
    """The string value of `{"input": "..."}`, unescaped piece by piece.

    What starts otherwise is kept until it is whole, and then raised like a call that came at once.
    """

    def __init__(self) -> None:
        self._head = TextPieces()
        self._inside = False
        self._strange = False
        self._done = False
        self._held = ""

    def feed(self, text: str) -> str:
        if self._done:
            return ""
        if not self._inside:
            self._head.append(text)
            if self._strange:
                return ""
            head = "".join(self._head)
            if (match := _HEAD.match(head)) is None:
                self._strange = len(head) > _LIMIT_HEAD
                return ""
            text = head[match.end() :]
            self._inside = True
        return "".join(self._unescape(self._held + text))

    def close(self) -> str:
        """What was kept."""
        if self._inside:
            return ""
        whole = "".join(self._head)
        text = raise_input(whole)
        return whole if text is None else text

    def _unescape(self, text: str) -> Iterator[str]:
        self._held = ""
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
                self._held = text[cut:]
                return
            yield _unescaped(text[cut : cut + size])
            place = cut + size


_HIGH = ("d8", "d9", "da", "db")
_LOW = ("dc", "dd", "de", "df")


def _escape_size(text: str, at: int) -> int | None:
    """How long the escape at this place is; None while it is cut."""
    if at + 1 >= len(text):
        return None
    if text[at + 1] != "u":
        return 2
    if at + 6 > len(text):
        return None
    if text[at + 2 : at + 4].lower() in _HIGH and "\\u".startswith(text[at + 6 : at + 8]):
        if at + 12 > len(text):
            return None
        return 12 if text[at + 8 : at + 10].lower() in _LOW else 6
    return 6


def _unescaped(escape: str) -> str:
    if escape[1] != "u":
        return _ESCAPES.get(escape[1], escape[1])
    try:
        units = bytes.fromhex(escape[2:6] + escape[8:12])
        return units.decode("utf-16-be")
    except ValueError:
        return "\ufffd"
