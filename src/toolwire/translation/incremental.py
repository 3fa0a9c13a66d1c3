"""Translate only the new messages of a request whose history the client sent before.

Agents resend their history with every request. A snapshot holds the last request of a conversation: the client's bytes
with the ends of its messages, the canonical request, and the bytes sent upstream. A request that is equal up to the end
of a message, and outside its messages, is decoded and encoded from there on, and joined with the snapshot's bytes.

The complete decoders and encoders are the definition. These functions return None, and the caller uses those, unless
all of this holds:

* Each message of the conversation is regular (`is_regular`): no part of it affects how other messages are translated.
* The encoded history is cut between a user's and an assistant's message. The prefix law (see `codec.encoding.turns`)
  promises that a cut there splits the encoding, too.
* The end of the snapshot's history, encoded alone, is the end of the bytes that were sent. So the cut is found, and the
  prefix law checked, without any help of the encoder.
* The new messages, encoded alone, change neither a member outside the messages nor the names of tools.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Data, Media, Message, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from toolwire.canonical.errors import Loss, ToolwireError
from toolwire.canonical.node import Node
from toolwire.canonical.request import Request
from toolwire.canonical.tools import NativeTool
from toolwire.codec.interface import Codec, EncodedBody, ResponseMapping, Route, Target
from toolwire.codec.losses import LossReport, WireNames
from toolwire.codec.wire.reader import JSON_ERRORS

_STEP = 64 * 1024
_KEY_BYTES = 1024
_MAX_CUTS = 8
_BRACE = ord("{")
_SENTINEL = b'["toolwire:messages"]'

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_elements = msgspec.json.Decoder(list[Raw]).decode
_array_start = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*").match
_separator = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*").match
_drop_cache_marks = partial(re.compile(rb',\s*"cache_control"\s*:\s*\{[^{}]*\}').sub, b"")
_structure = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL).finditer

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
    """Return the bytes of the message at `start`, or the beginning of a long one, to identify the conversation.

    Clients move cache marks, so these do not count.
    """
    head = body[start : start + _KEY_BYTES]
    if b"cache_control" in head:
        head = _drop_cache_marks(head)
    depth = 0
    for match in _structure(head):
        if (token := match[0]) in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
            if depth <= 0:
                return head[: match.end()]
    return head


# ---- decode


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
        array = bytes(_decode_members(self.body).get(name, b""))
        if not array or not self.body.startswith(array, opening):
            return False
        elements = _decode_elements(array)
        self.array_end = opening + len(array) - 1
        self.ends = _element_ends(self.body, self.start, elements)
        # A member of the same name, later or at another depth, would replace or enclose the one found.
        skeleton = self.body[:opening] + _SENTINEL + self.body[self.array_end + 1 :]
        is_effective = bytes(_decode_members(skeleton).get(name, b"")) == _SENTINEL
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
        if not body.endswith(tail := self.body[self.array_end :]):
            return None
        new_end = len(body) - len(tail)
        count = bisect_right(self.ends, _common_size(self.body, body, self.start))
        if count == 0 or new_end <= self.ends[count - 1]:
            return None
        separator = _separator(body, self.ends[count - 1], new_end)
        if separator is None or (limit is not None and new_end - separator.end() > limit):
            return None
        return self._append(codec, body, count, separator.end(), new_end)

    def _append(self, codec: Codec, body: bytes, count: int, start: int, end: int) -> "RequestSnapshot | None":
        """Decode the messages between two positions, and join them with the first `count` messages."""
        data = body[start:end]
        try:
            if not data.isascii():
                data.decode()
            elements = _decode_elements(b"[%b]" % data)
            if codec.has_independent_messages:
                decoded = codec.decode_request(b'{"%b":[%b]}' % (messages_member(codec).encode(), data), self.route)
            else:
                decoded = codec.decode_request(body[: self.start] + data + body[end:], self.route)
        except (ToolwireError, *JSON_ERRORS):
            return None
        known, added = self.request, decoded.messages
        if not 0 < len(added) == len(elements) or not _are_objects(elements) or not all(map(is_regular, added)):
            return None
        if not codec.has_independent_messages and _without_messages(decoded) != _without_messages(known):
            return None
        request = replace(
            known,
            messages=known.messages[:count] + added,
            continued=decoded.continued,
            plain=known.plain and decoded.plain,
        )
        ends = self.ends[:count] + _element_ends(body, start, elements)
        return RequestSnapshot(body, self.start, self.route, request, ends, end, is_regular=True)


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


def _without_messages(request: Request) -> Request:
    """Return the request without its messages and what depends only on them."""
    return replace(request, messages=(), continued=False, plain=False)


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


def _common_size(known: bytes, body: bytes, start: int) -> int:
    """Return the position of the first difference between two bodies; they are equal before `start`."""
    step = _STEP
    while step:
        while start < len(known) and body.startswith(known[start : start + step], start):
            start += step
        step //= 2
    return min(start, len(known), len(body))


# ---- encode


class KnownLosses(LossReport):
    """A report of losses that are resolved already."""

    def __init__(self, losses: list[Loss]) -> None:
        super().__init__()
        self.has_constraint = any(loss.constraint for loss in losses)
        self.losses = losses

    def __bool__(self) -> bool:
        return bool(self.losses)

    def resolve(self, root: Node, wire_names: WireNames) -> list[Loss]:
        """Return the losses."""
        return self.losses.copy()


class SerializedBody(EncodedBody):
    """An encoded body whose JSON is known."""

    data: bytes = b""

    def to_bytes(self) -> bytes:
        """Return the JSON of the body."""
        return self.data


class _Cut(Struct, frozen=True):
    """The end of the first messages of a request in the bytes sent upstream."""

    end: int  # of the last of these messages
    count: int  # of these messages in the target's format


class _SentMessages(Struct):
    """The position of the messages in the bytes of a request sent upstream, and its other members."""

    start: int  # of the first message
    tail_size: int  # of what follows the messages, from the bracket on
    others: dict[str, Any]  # the members other than messages and system text
    cuts: dict[int, _Cut]  # by the number of messages before them; the last one is the end of all messages


class _EncodedMessages(Struct):
    """Messages of a conversation, encoded alone."""

    encoding: EncodedBody
    data: bytes  # the JSON of the messages, separated by commas
    count: int


class EncodingSnapshot(Struct, eq=False):
    """An encoded request, with the bytes sent upstream and the position of the messages in them."""

    request: Request
    client: Codec
    target: Target
    data: bytes
    report: LossReport
    mapping: ResponseMapping
    route: Route
    count: int  # of messages in the target's format
    others: dict[str, Any] = {}  # the members sent, other than messages and system text
    is_regular: bool | None = None  # None until it is needed, as the following
    sent: _SentMessages | None = None
    losses: "_LocatedLosses | None" = None

    @classmethod
    def from_encoding(
        cls, encoding: EncodedBody, request: Request, client: Codec, upstream: Codec, target: Target
    ) -> "EncodingSnapshot":
        """Return a snapshot of a completely encoded request."""
        messages = encoding.body.get(messages_member(upstream))
        count = len(messages) if isinstance(messages, list) else 0
        others, data = _other_members(encoding.body, upstream), encoding.to_bytes()
        return cls(request, client, target, data, encoding.report, encoding.mapping, encoding.route, count, others)

    @property
    def encoding(self) -> EncodedBody:
        """Return the encoded request, with a mapping that the caller may change."""
        return SerializedBody(None, self.report, copy_mapping(self.mapping), self.route, self.data)

    def continue_with(self, request: Request, upstream: Codec, target: Target) -> "EncodingSnapshot | None":
        """Encode a later request of the conversation; None if it has to be encoded completely."""
        known = self.request
        if target != self.target or self.client is upstream or _without_messages(request) != _without_messages(known):
            return None
        first = _find_cut(known.messages, request.messages) if self._has_regular_messages() else 0
        if first == 0 or (sent := self._locate_messages(upstream)) is None:
            return None
        if (cut := self._find_cut_in_data(first, sent, upstream)) is None:
            return None
        members = (messages_member(self.client), messages_member(upstream))
        losses = _losses_before(self._located_losses(), first, members)
        if losses is None:
            return None
        mapping, cuts = self.mapping, {number: end for number, end in sent.cuts.items() if number < first}
        pieces: list[bytes | memoryview] = [memoryview(self.data)[: cut.end]]
        cuts[first] = cut
        for start, end in _split_turns(request.messages, first):
            cut = cuts[start]
            piece: bytes | memoryview | None = self._sent_turn(request, start, end, cut)
            if piece is not None:
                count = sent.cuts[end].count
                losses.inside += [entry for entry in self._located_losses() if start <= entry[0] < end]
            else:
                turn = replace(request, messages=request.messages[start:end], system=None)
                added = _encode_alone(turn, upstream, target)
                if added is None or not self._is_consistent(added.encoding, sent, upstream):
                    return None
                piece, count, mapping = added.data, cut.count + added.count, added.encoding.mapping
                report = added.encoding.report
                new_losses = report.resolve(turn, self.client.wire_names) if report else []
                if not losses.add(_locate_losses(new_losses, members[0]), start, cut.count, members[1]):
                    return None
            pieces += (b",", piece)
            cuts[end] = _Cut(cut.end + 1 + len(piece), count)
        data = b"".join([*pieces, memoryview(self.data)[-sent.tail_size :]])
        return EncodingSnapshot(
            request,
            self.client,
            self.target,
            data,
            KnownLosses([loss for _, loss in losses.join()]),
            mapping,
            self.route,
            count,
            sent.others,
            is_regular=True,
            sent=_SentMessages(sent.start, sent.tail_size, sent.others, dict([*cuts.items()][-_MAX_CUTS:])),
            losses=losses.join(),
        )

    def _find_cut_in_data(self, number: int, sent: _SentMessages, upstream: Codec) -> _Cut | None:
        """Return the end of the first `number` messages in the bytes sent; None if that is not certain.

        Unless it is known, the messages after it are encoded once more: the bytes sent must end with the result.
        """
        if (cut := sent.cuts.get(number)) is not None:
            return cut
        after = replace(self.request, messages=self.request.messages[number:], system=None)
        last = sent.cuts[len(self.request.messages)]
        encoded = _encode_alone(after, upstream, self.target)
        if encoded is None or not self.data.endswith(b"," + encoded.data, sent.start, last.end):
            return None
        return _Cut(last.end - len(encoded.data) - 1, last.count - encoded.count)

    def _sent_turn(self, request: Request, start: int, end: int, cut: _Cut) -> memoryview | None:
        """Return the bytes of the messages from `start` to `end` if they were sent before at this place."""
        cuts = {} if self.sent is None else self.sent.cuts
        if end not in cuts or start not in cuts or cuts[start].count != cut.count:
            return None
        if self.request.messages[start:end] != request.messages[start:end]:
            return None
        return memoryview(self.data)[cuts[start].end + 1 : cuts[end].end]

    def _is_consistent(self, encoding: EncodedBody, sent: _SentMessages, upstream: Codec) -> bool:
        """Return whether messages encoded alone have the members, tool names and route of the request sent."""
        if not self._has_same_names_and_route(encoding):
            return False
        others = _other_members(encoding.body, upstream)
        if others != sent.others and msgspec.json.encode(others) != msgspec.json.encode(sent.others):
            return False
        sent.others = others  # with memoized values, which are compared by identity the next time
        return True

    def _has_same_names_and_route(self, encoding: EncodedBody) -> bool:
        """Return whether another encoding uses the same tool names and the same route."""
        known, mapping = self.mapping, encoding.mapping
        return (
            known.tools == mapping.tools
            and known.used_names == mapping.used_names
            and known.computer_use is mapping.computer_use is None
            and encoding.route == self.route
        )

    def _located_losses(self) -> "_LocatedLosses":
        """Return the losses, resolved and located once."""
        if self.losses is None:
            losses = self.report.resolve(self.request, self.client.wire_names) if self.report else []
            self.losses = _locate_losses(losses, messages_member(self.client))
        return self.losses

    def _has_regular_messages(self) -> bool:
        """Return whether all messages are regular: see `is_regular`."""
        if self.is_regular is None:
            self.is_regular = all(map(is_regular, self.request.messages))
        return self.is_regular

    def _locate_messages(self, upstream: Codec) -> _SentMessages | None:
        """Return the position of the messages in the bytes sent, found once; None if they have none."""
        if self.sent is None and self.count:
            start, end, name = 0, 0, messages_member(upstream)
            position = 1
            for key, value in _decode_members(self.data).items():
                value_at = position + len(msgspec.json.encode(key)) + 1
                position = value_at + len(memoryview(value)) + 1
                if key == name:
                    start, end = value_at + 1, position - 2
            if position != len(self.data) or self.data[start - 1 : start] + self.data[end : end + 1] != b"[]":
                return None
            cuts = {len(self.request.messages): _Cut(end, self.count)}
            self.sent = _SentMessages(start, len(self.data) - end, self.others, cuts)
        return self.sent


def copy_mapping(mapping: ResponseMapping) -> ResponseMapping:
    """Return a copy of a mapping, so that two responses never share one."""
    return replace(mapping, tools=mapping.tools.copy(), used_names=mapping.used_names.copy())


def _encode_alone(request: Request, upstream: Codec, target: Target) -> _EncodedMessages | None:
    """Encode the end of a conversation without what comes before; None if it may depend on that."""
    messages = request.messages
    if not all(map(is_regular, messages)) or not _has_complete_calls(messages) or not upstream.is_separable(request):
        return None
    encoding = upstream.encode_request(request, target)
    encoded = encoding.body.get(messages_member(upstream))
    if not isinstance(encoded, list) or not encoded:
        return None
    data = msgspec.json.encode(encoded)[1:-1]
    return _EncodedMessages(encoding, data, len(encoded))


def _other_members(body: Mapping[str, Any], upstream: Codec) -> dict[str, Any]:
    """Return the members of a body other than the messages and the system text."""
    omitted = (messages_member(upstream), upstream.system_member)
    return {name: value for name, value in body.items() if name not in omitted}


def _split_turns(messages: Sequence[Message], start: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each assistant's turn, with the user's turn that follows, from `start` on."""
    for position in range(start + 1, len(messages)):
        if _is_cut(messages, position):
            yield start, position
            start = position
    yield start, len(messages)


def _has_complete_calls(messages: Sequence[Message]) -> bool:
    """Return whether all results in these messages belong to calls in them, and calls of a turn have different ids.

    Otherwise results become text, or calls get ids that depend on their position.
    """
    call_ids, turn_ids = set[str | None](), set[str | None]()
    for message in messages:
        if message.role == "user":
            turn_ids.clear()
        for part in message.parts:
            if isinstance(part, ToolCall):
                if part.id in turn_ids:
                    return False
                turn_ids.add(part.id)
                call_ids.add(part.id)
            elif isinstance(part, ToolResult) and part.call_id not in call_ids:
                return False
    return True


def _find_cut(known: Sequence[Message], messages: Sequence[Message]) -> int:
    """Return how many leading messages two requests share, up to the start of an assistant turn; 0 if too few."""
    count = 0
    for known_message, message in zip(known, messages, strict=False):
        if known_message is not message and known_message != message:
            break
        count += 1
    cut = min(count, len(messages) - 1)
    while cut > 0 and not (_is_cut(messages, cut) and (cut == len(known) or _is_cut(known, cut))):
        cut -= 1
    return cut if len(known) - cut < cut else 0  # more is known than would be encoded again


def _is_cut(messages: Sequence[Message], position: int) -> bool:
    """Return whether an assistant's turn starts at this position, directly after a user's turn."""
    return messages[position - 1].role == "user" and messages[position].role == "assistant"


_LocatedLosses = list[tuple[int, Loss]]
"""Losses with the number of their message, -1 outside the messages."""


def _locate_losses(losses: Sequence[Loss], member: str) -> _LocatedLosses:
    """Return each loss with the index of its message, which is read from its JSON pointer."""
    return [(_message_number(loss.path, member), loss) for loss in losses]


class _ContinuedLosses(Struct):
    """Losses of a request whose messages are encoded turn by turn.

    New losses follow those of earlier messages. An encoder that goes through the messages several times would report
    them in another order.
    """

    before: _LocatedLosses  # all up to the last one inside the messages
    after: _LocatedLosses
    outside: list[Loss]
    inside: _LocatedLosses = []

    def add(self, losses: _LocatedLosses, first: int, count: int, member: str) -> bool:
        """Add losses of messages encoded alone, of which the first one has number `first`, in the target `count`.

        Return False if there is a new loss outside the messages, which may depend on them.
        """
        if any(number < 0 and loss not in self.outside for number, loss in losses):
            return False
        self.inside += [
            (number + first, _shift_loss(loss, first, count, member)) for number, loss in losses if number >= 0
        ]
        return True

    def join(self) -> _LocatedLosses:
        """Return all losses in order."""
        return self.before + self.inside + self.after


def _losses_before(known: _LocatedLosses, cut: int, members: tuple[str, str]) -> _ContinuedLosses | None:
    """Return the losses without those of the messages from `cut` on; None if one outside may depend on messages.

    `members` hold the messages in the client's protocol and in the target's.
    """
    outside = [loss for number, loss in known if number < 0]
    if any(loss.path == f"/{members[0]}" or _message_number(loss.target or "", members[1]) >= 0 for loss in outside):
        return None
    kept = [(number, loss) for number, loss in known if number < cut]
    position = max((index for index, (number, _) in enumerate(kept) if number >= 0), default=len(kept) - 1) + 1
    return _ContinuedLosses(kept[:position], kept[position:], outside)


def _message_number(path: str, member: str) -> int:
    """Return the number of the message that a JSON pointer leads to, -1 if it leads elsewhere."""
    steps = path.split("/", 3)
    return int(steps[2]) if len(steps) > 2 and steps[1] == member and steps[2].isdecimal() else -1


def _shift_loss(loss: Loss, cut: int, count: int, target_member: str) -> Loss:
    """Return a loss from separately encoded messages, with its pointers shifted to the entire conversation."""
    target = loss.target
    if target is not None and _message_number(target, target_member) >= 0:
        target = _shift_pointer(target, count)
    return replace(loss, path=_shift_pointer(loss.path, cut), target=target)


def _shift_pointer(pointer: str, count: int) -> str:
    """Return the JSON pointer with its message index increased by `count`."""
    _, member, number, *rest = pointer.split("/", 3)
    return "/".join(("", member, str(int(number) + count), *rest))
