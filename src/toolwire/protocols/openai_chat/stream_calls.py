"""The calls of one streamed answer, as their fragments arrive.

The wire says that a fragment belongs to the call of its index, and that only the first has id and name. Servers say
less:

1. No index: a fragment belongs to the call of its id, or without one to the last call.
2. One index for several calls: a new id is a new call, and so is a new name, or a name after complete arguments.
3. Id and name on every fragment: they are read once. An empty id is none.
4. A late name: the call starts when it is known. No id by then: one is made.

A call ends at the end of the answer; or when the next one starts, if its arguments are complete by then. Fragments of
several calls may alternate, so that one whose arguments are not complete stays open.
"""

import re
from collections.abc import Callable
from typing import Any

from msgspec import UNSET, UnsetType

from toolwire.canonical.content import ToolCall
from toolwire.canonical.events import Event, PartDelta, PartEnd, PartStart
from toolwire.canonical.fold import MAX_LOOSE_PIECES, TextPieces, append_piece
from toolwire.codec.encoding.ids import derive_call_id
from toolwire.codec.wire.extras import merge_extras, unset_to_none
from toolwire.protocols.openai_chat.parts.calls import (
    CUSTOM_NAMES,
    LEGACY_FORM,
    LEGACY_NAMES,
    decode_arguments,
    is_json,
)
from toolwire.protocols.openai_chat.parts.content import collect_chat_extras
from toolwire.protocols.openai_chat.wire import CustomCallShape, FragmentShape, FunctionCallShape

UNNAMED_CALL = "unnamed"
_JSON_MARKS = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)
_BRACE_DEPTHS = {"{": 1, "[": 1, "}": -1, "]": -1}
_MAX_NUMBER_LENGTH = 400


class _BraceCounter:
    """Whether a growing JSON text may be complete: it can only be where no bracket and no string is open.

    Servers that repeat the name ask for it with every fragment, so that each piece is looked at once.
    """

    def __init__(self) -> None:
        self._scanned = 0
        self._length = 0
        self._depth = 0
        self._quoted = False
        self._escaped = False
        self._closed = False
        self._invalid = False

    def is_balanced(self, pieces: TextPieces) -> bool:
        for piece in pieces.text_after(self._scanned, self._length):
            self._invalid = self._invalid or (self._closed and not piece.isspace())
            self._length += len(piece)
            self._scan(piece)
        self._scanned = pieces.append_count
        if self._invalid or self._quoted or self._depth:
            return False
        return self._closed or self._length < _MAX_NUMBER_LENGTH

    def _scan(self, piece: str) -> None:
        marks = _JSON_MARKS.findall(piece, 1 if self._escaped else 0)
        self._escaped = bool(marks) and marks[-1] == "\\"
        for mark in marks:
            if mark == '"':
                self._quoted = not self._quoted
            elif not self._quoted:
                self._depth += _BRACE_DEPTHS.get(mark, 0)
            self._invalid = self._invalid or self._closed
            self._closed = self._depth <= 0 and not self._quoted


class _OpenCall:
    def __init__(self, *, freeform: bool, legacy: bool) -> None:
        self.id: str | None = None
        self.name: str | None = None
        self.freeform = freeform
        self.legacy = legacy
        self.pieces = TextPieces()
        self.extras: list[dict[str, Any]] = []
        self.part: ToolCall | None = None
        self.index = -1
        self.ended = False
        self._braces = _BraceCounter()

    def is_complete(self) -> bool:
        return not self.freeform and self._braces.is_balanced(self.pieces) and is_json("".join(self.pieces))


class CallAssembler:
    """`answer` is the id of the whole; `open_part` ends what was being said, and gives the number of a new part."""

    def __init__(self, candidate: int, response_id: str, open_part: Callable[[list[Event]], int]) -> None:
        self._candidate = candidate
        self._response_id = response_id
        self._open_part = open_part
        self._calls: list[_OpenCall] = []
        self._by_index: dict[int, _OpenCall] = {}
        self._legacy: _OpenCall | None = None

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add_fragment(self, fragment: FragmentShape, events: list[Event]) -> None:
        more = fragment.function
        goes_on = isinstance(more, FunctionCallShape) and not (more.name or fragment.id or fragment.custom)
        if goes_on and more.arguments and self.append_arguments(fragment.index, more.arguments, events):  # type: ignore[union-attr]
            return
        custom = fragment.custom if isinstance(fragment.custom, CustomCallShape) else None
        function = fragment.function if isinstance(fragment.function, FunctionCallShape) else None
        id = unset_to_none(fragment.id) or None
        if custom is not None:
            name, text, under = unset_to_none(custom.name) or None, unset_to_none(custom.input) or "", "custom/"
        elif function is not None:
            name, text, under = unset_to_none(function.name) or None, decode_arguments(function)[0], "function/"
        else:
            name, text, under = None, "", ""
        if id is None and name is None and not text and not self._calls:
            return
        call = self._call_for(unset_to_none(fragment.index), id, name, freeform=custom is not None)
        call.id = call.id or id
        if call.part is None:
            if fragment.unknown is not UNSET:
                call.extras.append(_fragment_extras(fragment))
            inner = custom if custom is not None else function
            if inner is not None and inner.unknown:
                call.extras.append({"extras": collect_chat_extras(inner, prefix=under).get("extras")})
        self._append(call, name, text, events)

    def append_arguments(self, index: int | UnsetType | None, text: str, events: list[Event]) -> bool:
        """Whether more of the arguments of a call that is known could be told."""
        call = self._by_index.get(index)  # type: ignore[arg-type]
        if call is None or call.part is None:
            return False
        append_piece(call.pieces, text)
        if len(call.pieces) > MAX_LOOSE_PIECES:
            call.pieces.compact()
        events.append(PartDelta(index=call.index, text=text, candidate=self._candidate, plain=True))
        return True

    def add_legacy_fragment(self, shape: FunctionCallShape, events: list[Event]) -> None:
        if self._legacy is None:
            if not shape.name and not shape.arguments and not shape.unknown:
                return
            self._legacy = _OpenCall(freeform=False, legacy=True)
            self._calls.append(self._legacy)
        self._append(self._legacy, unset_to_none(shape.name) or None, decode_arguments(shape)[0], events)

    def _call_for(self, index: int | None, id: str | None, name: str | None, *, freeform: bool) -> _OpenCall:
        if index is None:
            call = self._call_without_index(id, name)
        else:
            call = self._by_index.get(index)
            if call is not None and _is_new_call(call, id, name):
                call = None
        if call is None:
            call = _OpenCall(freeform=freeform, legacy=False)
            self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _call_without_index(self, id: str | None, name: str | None) -> _OpenCall | None:
        if id is not None:
            return next((call for call in reversed(self._calls) if call.id == id), None)
        last = self._calls[-1] if self._calls else None
        if name is None or last is None or last.name is None:
            return last
        return None if last.name != name or last.is_complete() else last

    def _append(self, call: _OpenCall, name: str | None, text: str, events: list[Event]) -> None:
        if text:
            call.pieces.append(text)
        if call.part is not None:
            if text:
                events.append(PartDelta(index=call.index, text=text, candidate=self._candidate, plain=True))
        elif name is not None:
            call.name = name
            self._start(call, events)

    def _start(self, call: _OpenCall, events: list[Event]) -> None:
        for other in self._calls:
            if other.part is not None and not other.ended and other.is_complete():
                self._end(other, events)
        call.index = self._open_part(events)
        number = self._calls.index(call)
        if call.id is None and not call.legacy:
            # It is told before it is whole, so that nobody after us could make an id that all agree on.
            call.id = derive_call_id(call.name or UNNAMED_CALL, self._response_id, self._candidate, number)
        names = CUSTOM_NAMES if call.freeform else (LEGACY_FORM, *LEGACY_NAMES) if call.legacy else ()
        call.part = ToolCall(
            id=call.id,
            name=call.name or UNNAMED_CALL,
            arguments="",
            shape="freeform" if call.freeform else "json",
            at="/function_call" if call.legacy else f"/tool_calls/{number}",
            **merge_extras({"wire_form": names}, *call.extras),
        )
        events.append(PartStart(index=call.index, part=call.part, candidate=self._candidate))
        if call.pieces:
            text = "".join(call.pieces)
            events.append(PartDelta(index=call.index, text=text, candidate=self._candidate, plain=True))

    def _end(self, call: _OpenCall, events: list[Event], *, is_truncated: bool = False) -> None:
        call.ended = True
        final = None
        text = "".join(call.pieces)
        if call.part is not None and text and (is_truncated if call.freeform else not is_json(text)):
            final = _incomplete_call(call.part, text)
        events.append(PartEnd(index=call.index, candidate=self._candidate, final=final))

    def finish(self, events: list[Event], *, is_truncated: bool = False) -> None:
        """End all; a call that never got a name is told under a made one."""
        for call in list(self._calls):
            if call.part is None:
                self._start(call, events)
            if not call.ended:
                self._end(call, events, is_truncated=is_truncated)

    def is_broken(self) -> bool:
        """Whether the stream ended in the middle of a call."""
        return any(call.pieces and not call.freeform and not call.is_complete() for call in self._calls)


def _is_new_call(call: _OpenCall, id: str | None, name: str | None) -> bool:
    """Whether a fragment opens another call at the same index."""
    if id is not None and call.id is not None:
        return id != call.id
    if name is None or call.name is None:
        return False
    return name != call.name or call.is_complete()


def _fragment_extras(fragment: FragmentShape) -> dict[str, Any]:
    found = collect_chat_extras(fragment)
    return {"extras": found.get("extras")}


def _incomplete_call(part: ToolCall, text: str) -> ToolCall:
    return ToolCall(
        id=part.id,
        name=part.name,
        arguments=text,
        shape=part.shape,
        complete=False,
        extras=part.extras,
        wire_form=part.wire_form,
        at=part.at,
    )
