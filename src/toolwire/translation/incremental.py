"""Decode only the new messages of a request whose history the client sent before.

Agents resend their history with every request. A `RequestSnapshot` holds the last request of a conversation: the
client's bytes with the ends of its messages, and the canonical request. A request that is equal up to the end of a
message, and outside its messages, is decoded from there on. `encoding_snapshot` does the same for what is sent.

The complete decoder is the definition. It is used unless each message of the conversation is regular (`is_regular`):
no part of it affects how other messages are translated.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter

from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Data, Media, Message, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import NativeTool
from toolwire.codec.interface import Codec, Route
from toolwire.codec.wire.reader import JSON_ERRORS, decode_elements, decode_members

_STEP = 64 * 1024
_KEY_BYTES = 1024
_MOVING_MESSAGES = 4
_BRACE = ord("{")
_SENTINEL = b'["toolwire:messages"]'

_array_start = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*").match
_separator = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*").match

# One comparison of all fields that must be empty shows that a call or result is regular.
_call_fields = attrgetter("executor", "native", "use", "screen", "asynchronous", "complete")
_REGULAR_CALL = ("client", None, None, None, None, True)
_result_fields = attrgetter("executor", "native", "use", "screen")
_REGULAR_RESULT = ("client", None, None, None)
_REGULAR_TYPES = frozenset({Text, Media, Reasoning, Refusal})
_CONTENT_TYPES = frozenset({Text, Media, Data})


def messages_member(codec: Codec) -> str:
    """Return the name of the member that holds the messages in requests of a protocol."""
    return codec.wire_names.get("Request.messages", "/messages")[1:]


def find_messages(body: bytes, codec: Codec) -> int | None:
    """Return the offset of the first message in a request body, as a guess to be verified; None if there is none.

    The first member with the right name may be a nested one. The position is verified before it is used.
    """
    name = b'"%b"' % messages_member(codec).encode()
    position = -1
    while (position := body.find(name, position + 1)) >= 0:
        if (match := _array_start(body, position + len(name))) is not None:
            return match.end()
    return None


def conversation_key(body: bytes, start: int) -> bytes:
    """Return the beginning of the message at `start`, up to its first text or its first kilobyte.

    It identifies the conversation, not reliably, but cheaply. Clients move cache marks, so these do not count.
    """
    text = body[start : start + _KEY_BYTES].partition(b'"}')[0]
    return text.partition(b'"cache_control"')[0].rstrip(b'", \t\r\n')


class RequestSnapshot(Struct, eq=False):
    """A decoded request, with the client's bytes and the positions of its messages."""

    body: bytes
    start: int  # of the first message
    route: Route
    request: Request
    ends: list[int] = []  # of all messages, once `locate_messages` was called
    array_end: int = 0  # position of the bracket after the last message
    is_regular: bool | None = None  # None until `locate_messages` was called

    def locate_messages(self, codec: Codec) -> bool:
        """Find the ends of all messages, once; return False if the request can't be continued incrementally."""
        if self.is_regular is None:
            try:
                self.is_regular = self._find_ends(messages_member(codec))
            except JSON_ERRORS:
                self.is_regular = False
        return self.is_regular

    def _find_ends(self, name: str) -> bool:
        """Find the ends of all messages, and check that they are regular."""
        request = self.request
        if _has_computer(request) or not all(map(is_regular, request.messages)):
            return False
        opening = self.body.rindex(b"[", 0, self.start)
        array = bytes(decode_members(self.body).get(name, b""))
        if not array or not self.body.startswith(array, opening):
            return False
        elements = decode_elements(array)
        self.array_end = opening + len(array) - 1
        self.ends = _element_ends(self.body, self.start, elements)
        # A member of the same name, later or at another depth, would replace or enclose the one found.
        skeleton = self.body[:opening] + _SENTINEL + self.body[self.array_end + 1 :]
        is_effective = bytes(decode_members(skeleton).get(name, b"")) == _SENTINEL
        return is_effective and len(elements) == len(request.messages) and _are_objects(elements)

    def continue_with(
        self, codec: Codec, body: bytes, route: Route, limit: int | None = None
    ) -> "RequestSnapshot | None":
        """Decode a later request of the conversation; None if it has to be decoded completely.

        So it is if the new messages take more than `limit` bytes.
        """
        if route != self.route:
            return None
        if body == self.body:
            return self
        if not self.locate_messages(codec) or body[: self.start] != self.body[: self.start]:
            return None
        if not body.endswith(tail := memoryview(self.body)[self.array_end :]):
            return None
        new_end = len(body) - len(tail)
        count = self._count_common(body)
        if count == 0 or new_end <= self.ends[count - 1]:
            return None
        separator = _separator(body, self.ends[count - 1], new_end)
        if separator is None or (limit is not None and new_end - separator.end() > limit):
            return None
        return self._append(codec, body, count, separator.end(), new_end)

    def _count_common(self, body: bytes) -> int:
        """Return how many messages at the beginning are the same in another body."""
        known, ends = memoryview(self.body), self.ends
        count = max(1, len(ends) - _MOVING_MESSAGES)  # most clients change at most the last ones
        if not body.startswith(known[self.start : ends[count - 1]], self.start):
            return bisect_right(ends, common_size(self.body, body, self.start))
        while count < len(ends) and body.startswith(known[ends[count - 1] : ends[count]], ends[count - 1]):
            count += 1
        return count

    def _append(self, codec: Codec, body: bytes, count: int, start: int, end: int) -> "RequestSnapshot | None":
        """Decode the messages between two positions, and join them with the first `count` messages."""
        data = body[start:end]
        try:
            if not data.isascii():
                data.decode()
            elements = decode_elements(b"[%b]" % data)
            reused = self._find_messages(elements, count) if codec.has_independent_messages else {}
            if codec.has_independent_messages:
                new = b",".join([element for index, element in enumerate(elements) if index not in reused])
                decoded = codec.decode_request(b'{"%b":[%b]}' % (messages_member(codec).encode(), new), self.route)
            else:
                decoded = codec.decode_request(body[: self.start] + data + body[end:], self.route)
        except (ToolwireError, *JSON_ERRORS):
            return None
        known = self.request
        if not codec.has_independent_messages and without_messages(decoded) != without_messages(known):
            return None
        if len(decoded.messages) + len(reused) != len(elements) or not _are_objects(elements):
            return None
        if not decoded.messages or not all(map(is_regular, decoded.messages)):
            return None
        new_messages = iter(decoded.messages)
        added = tuple([reused.get(index) or next(new_messages) for index in range(len(elements))])
        request = replace(
            known,
            messages=known.messages[:count] + added,
            continued=decoded.continued,
        )
        ends = self.ends[:count] + _element_ends(body, start, elements)
        return RequestSnapshot(body, self.start, self.route, request, ends, end, is_regular=True)

    def _find_messages(self, elements: Sequence[Raw], count: int) -> dict[int, Message]:
        """Return, by index, the messages among `elements`, which follow `count` known ones, that are known as well.

        The last one is never among them: whether the request continues a text depends on it.
        """
        known: dict[int, Message] = {}
        for index, (start, end) in enumerate(pairwise(self.ends[count - 1 :])):
            if index + 1 < len(elements) and _is_element(self.body[start:end], bytes(elements[index])):
                known[index] = self.request.messages[count + index]
        return known


def is_regular(message: Message) -> bool:
    """Return whether the translation of other messages does not depend on this one, nor its own on its position.

    That is so for text, media, reasoning, and the client's tool calls and results with ids.
    """
    return message.at is None and all(map(_is_regular_part, message.parts))


def _is_regular_part(part: Part) -> bool:
    """Return whether a part is regular: see `is_regular`."""
    kind = type(part)
    if kind in _REGULAR_TYPES:
        return True
    if isinstance(part, ToolCall):
        return bool(part.id) and _call_fields(part) == _REGULAR_CALL
    if isinstance(part, ToolResult):
        if not part.call_id or _result_fields(part) != _REGULAR_RESULT:
            return False
        return part.content is None or _CONTENT_TYPES.issuperset(map(type, part.content))
    return False


def _has_computer(request: Request) -> bool:
    """Return whether a request declares a computer, whose calls depend on earlier screenshots."""
    return any(type(tool) is NativeTool and tool.computer is not None for tool in request.tools or ())


def without_messages(request: Request) -> Request:
    """Return the request without its messages and what depends only on them."""
    return replace(request, messages=(), continued=False)


def _is_element(data: bytes, element: bytes) -> bool:
    """Return whether the data is a separator and this element."""
    return data.endswith(element) and not data[: -len(element)].strip(b", \t\r\n")


def _are_objects(elements: Sequence[Raw]) -> bool:
    """Return whether all elements are JSON objects, which end where their last brace is."""
    return all(memoryview(element)[0] == _BRACE for element in elements)


def _element_ends(body: bytes, start: int, elements: Sequence[Raw]) -> list[int]:
    """Return the end of each element of an array whose first element starts at `start`."""
    ends: list[int] = []
    for element in elements:
        if ends:
            separator = _separator(body, ends[-1])
            start = ends[-1] if separator is None else separator.end()
        ends.append(start + len(memoryview(element)))
    return ends


def common_size(known: bytes, body: bytes, start: int = 0) -> int:
    """Return the position of the first difference between two bodies; they are equal before `start`."""
    step = _STEP
    while step:
        while start < len(known) and body.startswith(known[start : start + step], start):
            start += step
        step //= 2
    return min(start, len(known), len(body))
