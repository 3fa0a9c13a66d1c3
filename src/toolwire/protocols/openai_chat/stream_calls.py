"""Assemble the tool calls of a streamed response from their fragments.

By the specification a fragment belongs to the call of its `index`, and only the first one has `id` and `name`.
Compatible servers deviate:

1. No index: a fragment belongs to the call with its id, or without an id to the last call.
2. One index for several calls: a new id starts a new call, and so does a new name or a name after complete arguments.
3. Id and name on every fragment: only the first ones count. An empty id counts as none.
4. A late name: the call starts once its name is known. A call without an id gets a derived one.

A call ends with the response, or when the next one starts if its arguments are complete JSON by then. Fragments of
several calls may alternate, so a call with incomplete arguments stays open.
"""

import re
from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from toolwire.canonical.content import ToolCall
from toolwire.canonical.events import Event, PartDelta, PartEnd, PartStart
from toolwire.canonical.fold import TextPieces
from toolwire.codec.encoding.turns import derive_call_id
from toolwire.codec.wire.extras import merge_extras, unset_to_none
from toolwire.codec.wire.reader import WireObject
from toolwire.protocols.openai_chat.parts.call_signatures import with_signature
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
    """Detect cheaply whether growing JSON text may be complete: no bracket and no string is open.

    Servers that repeat the name need this for every fragment, so each piece is scanned only once.
    """

    def __init__(self) -> None:
        self._scanned = 0  # number of pieces scanned
        self._length = 0
        self._depth = 0  # of open brackets
        self._quoted = False  # inside a string
        self._escaped = False  # the last piece ends with a backslash
        self._closed = False  # a top-level value has ended
        self._invalid = False  # something follows that value

    def is_balanced(self, pieces: TextPieces) -> bool:
        """Scan the new pieces; tell whether all brackets are closed, so that the JSON text may be complete."""
        for piece in pieces.text_after(self._scanned, self._length):
            self._invalid = self._invalid or (self._closed and not piece.isspace())
            self._length += len(piece)
            self._scan(piece)
        self._scanned = pieces.append_count
        if self._invalid or self._quoted or self._depth:
            return False
        return self._closed or self._length < _MAX_NUMBER_LENGTH

    def _scan(self, piece: str) -> None:
        """Update the state with the brackets and quotes of one piece."""
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
    """A call whose fragments are still arriving."""

    def __init__(self, *, freeform: bool, legacy: bool) -> None:
        self.id: str | None = None
        self.name: str | None = None
        self.freeform = freeform
        self.legacy = legacy
        self.pieces = TextPieces()  # arguments or free-form input so far
        self.extras: list[dict[str, Any]] = []
        self.part: ToolCall | None = None  # set once the start of the call is emitted
        self.index = -1  # of the part
        self.ended = False
        self._braces = _BraceCounter()

    def is_complete(self) -> bool:
        """Tell whether the arguments are complete JSON; always False for free-form input."""
        return not self.freeform and self._braces.is_balanced(self.pieces) and is_json("".join(self.pieces))


class CallAssembler:
    """Turn the call fragments of one choice into part events."""

    def __init__(self, candidate: int, response_id: str, open_part: Callable[[list[Event]], int]) -> None:
        """Create an assembler; `open_part` ends the open part and returns the index of a new one."""
        self._candidate = candidate
        self._response_id = response_id
        self._open_part = open_part
        self._calls: list[_OpenCall] = []
        self._by_index: dict[int, _OpenCall] = {}  # latest call of each wire index
        self._legacy: _OpenCall | None = None  # the call of `function_call`

    def __bool__(self) -> bool:
        """Tell whether any call has been added."""
        return bool(self._calls)

    def add_fragment(self, fragment: FragmentShape, events: list[Event]) -> None:
        """Add an element of `tool_calls`, appending its events; most continue the arguments of a started call."""
        function, call = fragment.function, self._continued_call(fragment)
        if call is not None and isinstance(function, FunctionCallShape) and (text := function.arguments):
            call.pieces.append(text)
            events.append(PartDelta(index=call.index, text=text, candidate=self._candidate))
            return
        self._add_other_fragment(fragment, events)

    def _add_other_fragment(self, fragment: FragmentShape, events: list[Event]) -> None:
        """Add a fragment that may start a call, or that has no usable index."""
        custom = fragment.custom if isinstance(fragment.custom, CustomCallShape) else None
        function = fragment.function if isinstance(fragment.function, FunctionCallShape) else None
        id = unset_to_none(fragment.id) or None
        if custom is not None:
            name, text = unset_to_none(custom.name) or None, unset_to_none(custom.input) or ""
        elif function is not None:
            name, text = unset_to_none(function.name) or None, decode_arguments(function)[0]
        else:
            name, text = None, ""
        if id is None and name is None and not text and not self._calls:
            return
        call = self._call_for(unset_to_none(fragment.index), id, name, freeform=custom is not None)
        call.id = call.id or id
        if call.part is None:
            call.extras += _collect_fragment_extras(fragment, custom or function)
        self._append(call, name, text, events)

    def _continued_call(self, fragment: FragmentShape) -> _OpenCall | None:
        """Return the started call that a fragment with nothing but arguments continues; None if there is none."""
        function = fragment.function
        if not isinstance(function, FunctionCallShape) or function.name or fragment.id or fragment.custom:
            return None
        call = self._by_index.get(fragment.index)  # type: ignore[arg-type]
        return None if call is None or call.part is None else call

    def continued_pieces(self, fragment: FragmentShape) -> TextPieces | None:
        """Return the pieces of the arguments that a fragment has continued; None if it may have started a call."""
        call = self._continued_call(fragment)
        return None if call is None else call.pieces

    def add_legacy_fragment(self, shape: FunctionCallShape, events: list[Event]) -> None:
        """Add a fragment of the deprecated `function_call`."""
        if self._legacy is None:
            if not shape.name and not shape.arguments and not shape.unknown:
                return
            self._legacy = _OpenCall(freeform=False, legacy=True)
            self._calls.append(self._legacy)
        self._append(self._legacy, unset_to_none(shape.name) or None, decode_arguments(shape)[0], events)

    def _call_for(self, index: int | None, id: str | None, name: str | None, *, freeform: bool) -> _OpenCall:
        """Return the open call that a fragment belongs to, or a new call that it starts."""
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
        """Return the open call of a fragment without an index; None if the fragment starts a call."""
        if id is not None:
            return next((call for call in reversed(self._calls) if call.id == id), None)
        last = self._calls[-1] if self._calls else None
        if name is None or last is None or last.name is None:
            return last
        return None if last.name != name or last.is_complete() else last

    def _append(self, call: _OpenCall, name: str | None, text: str, events: list[Event]) -> None:
        """Add name and arguments to a call, appending the resulting events."""
        if text:
            call.pieces.append(text)
        if call.part is not None:
            if text:
                events.append(PartDelta(index=call.index, text=text, candidate=self._candidate))
        elif name is not None:
            call.name = name
            self._start(call, events)

    def _start(self, call: _OpenCall, events: list[Event]) -> None:
        """Append the start of a call and its buffered arguments to `events`."""
        for earlier_call in self._calls:
            if earlier_call.part is not None and not earlier_call.ended and earlier_call.is_complete():
                self._end(earlier_call, events)
        call.index = self._open_part(events)
        position = self._calls.index(call)
        if call.id is None and not call.legacy:
            # The id is derived here: the start is sent before the call is complete, so no later stage can do it.
            call.id = derive_call_id(call.name or UNNAMED_CALL, self._response_id, self._candidate, position)
        wire_form = CUSTOM_NAMES if call.freeform else (LEGACY_FORM, *LEGACY_NAMES) if call.legacy else ()
        call.part = ToolCall(
            id=call.id,
            name=call.name or UNNAMED_CALL,
            arguments="",
            shape="freeform" if call.freeform else "json",
            at="/function_call" if call.legacy else f"/tool_calls/{position}",
            **with_signature(merge_extras({"wire_form": wire_form}, *call.extras)),
        )
        events.append(PartStart(index=call.index, part=call.part, candidate=self._candidate))
        if call.pieces:
            text = "".join(call.pieces)
            events.append(PartDelta(index=call.index, text=text, candidate=self._candidate))

    def _end(self, call: _OpenCall, events: list[Event], *, is_truncated: bool = False) -> None:
        """Append the end of a call to `events`; a call with invalid arguments is marked as incomplete."""
        call.ended = True
        final = None
        text = "".join(call.pieces)
        if call.part is not None and text and (is_truncated if call.freeform else not is_json(text)):
            final = _incomplete_call(call.part, text)
        events.append(PartEnd(index=call.index, candidate=self._candidate, final=final))

    def finish(self, events: list[Event], *, is_truncated: bool = False) -> None:
        """End all calls; one that never got a name is named `unnamed`."""
        for call in list(self._calls):
            if call.part is None:
                self._start(call, events)
            if not call.ended:
                self._end(call, events, is_truncated=is_truncated)

    def is_broken(self) -> bool:
        """Tell whether the arguments of a call are cut off."""
        return any(call.pieces and not call.freeform and not call.is_complete() for call in self._calls)


def _is_new_call(call: _OpenCall, id: str | None, name: str | None) -> bool:
    """Tell whether a fragment starts another call at an index that is in use."""
    if id is not None and call.id is not None:
        return id != call.id
    if name is None or call.name is None:
        return False
    return name != call.name or call.is_complete()


def _collect_fragment_extras(
    fragment: FragmentShape, call_shape: CustomCallShape | FunctionCallShape | None
) -> list[dict[str, Any]]:
    """Return the `extras` arguments of a fragment and of the function or custom call in it."""
    extras = [] if fragment.unknown is UNSET else [_extras_only(fragment)]
    if call_shape is not None and call_shape.unknown:
        prefix = "custom/" if isinstance(call_shape, CustomCallShape) else "function/"
        extras.append(_extras_only(call_shape, prefix))
    return extras


def _extras_only(shape: WireObject, prefix: str = "") -> dict[str, Any]:
    """Collect unknown fields of a wire object as the keyword argument `extras`; `prefix` starts their names."""
    return {"extras": collect_chat_extras(shape, prefix=prefix).get("extras")}


def _incomplete_call(part: ToolCall, text: str) -> ToolCall:
    """Return the call with the arguments received so far, marked as incomplete."""
    return ToolCall(
        id=part.id,
        name=part.name,
        arguments=text,
        shape=part.shape,
        complete=False,
        signature=part.signature,
        extras=part.extras,
        wire_form=part.wire_form,
        at=part.at,
    )
