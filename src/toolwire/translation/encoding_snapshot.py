"""Encode only the new messages of a request whose history was sent upstream before.

An `EncodingSnapshot` holds the last request of a conversation, and the bytes sent. Turns that were sent before are
copied from these bytes; others are encoded alone, and joined.

The complete encoder is the definition. `continue_with` returns None, and the caller uses that, unless all this holds:

* Each message of the conversation is regular (`incremental.is_regular`).
* The encoded history is cut between a user's and an assistant's message. The prefix law (see `codec.encoding.turns`)
  promises that a cut there splits the encoding, too.
* A cut that is not known from an earlier request is found by encoding what follows it alone: the bytes that were sent
  must end with the result. So the prefix law is checked, without any help of the encoder.
* The new messages, encoded alone, change neither a member outside the messages nor the names of tools.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from operator import is_not
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, ToolCall, ToolResult
from toolwire.canonical.errors import Loss
from toolwire.canonical.node import Node
from toolwire.canonical.request import Request
from toolwire.codec.interface import Codec, EncodedBody, ResponseMapping, Route, Target
from toolwire.codec.losses import LossReport, WireNames, source_pointers
from toolwire.codec.wire.reader import decode_members
from toolwire.translation.incremental import is_regular, messages_member, without_messages

_MAX_CUTS = 8


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
        if target != self.target or self.client is upstream or without_messages(request) != without_messages(known):
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
            piece: bytes | memoryview | None = None
            if (end_in_data := self._sent_turn_end(start, end, cut)) is not None:
                known_losses = self._losses_of_turn(request, start, end)
                if known_losses is not None:
                    piece, count = memoryview(self.data)[sent.cuts[start].end + 1 : end_in_data.end], end_in_data.count
                    losses.inside += known_losses
            if piece is None:
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

    def _sent_turn_end(self, start: int, end: int, cut: _Cut) -> _Cut | None:
        """Return the end of the messages from `start` to `end` in the bytes sent; None if it is not known."""
        cuts = {} if self.sent is None else self.sent.cuts
        return cuts.get(end) if start in cuts and cuts[start].count == cut.count else None

    def _losses_of_turn(self, request: Request, start: int, end: int) -> "_LocatedLosses | None":
        """Return the losses of messages that were sent before with the same bytes; None if these may differ.

        Clients move cache marks. A target that has none gets the same bytes with and without a mark: only the report
        that the mark is lost is no longer true.
        """
        losses = [entry for entry in self._located_losses() if start <= entry[0] < end]
        removed: set[str] = set()
        for number in range(start, end):
            known, message = self.request.messages[number], request.messages[number]
            if known is message or known == message:
                continue
            if (marks := _find_removed_marks(known, message)) is None:
                return None
            for position in marks:
                path = ("messages", number, "parts", position, "cache")
                removed.update(source_pointers(self.request, path, "", self.client.wire_names))
        remaining = [entry for entry in losses if entry[1].path not in removed]
        return remaining if len(losses) - len(remaining) == len(removed) else None

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
            for key, value in decode_members(self.data).items():
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
    size = min(len(known), len(messages))
    count = next(compress(range(size), map(is_not, known, messages)), size)
    while count < size and (known[count] is messages[count] or known[count] == messages[count]):
        count += 1
    cut = min(count, len(messages) - 1)
    while cut > 0 and not (_is_cut(messages, cut) and (cut == len(known) or _is_cut(known, cut))):
        cut -= 1
    return cut if len(known) - cut < cut else 0  # more is known than would be encoded again


def _find_removed_marks(known: Message, message: Message) -> list[int] | None:
    """Return the positions of parts whose cache mark was removed; None if the messages differ in anything else."""
    if len(known.parts) != len(message.parts):
        return None
    pairs = enumerate(zip(known.parts, message.parts, strict=True))
    marks = [index for index, (before, after) in pairs if before is not after and _has_mark(before, after)]
    parts = [replace(part, cache=None) if index in marks else part for index, part in enumerate(known.parts)]
    return marks if replace(known, parts=tuple(parts)) == message else None


def _has_mark(before: Part, after: Part) -> bool:
    """Return whether only the first of two parts has a cache mark."""
    return getattr(before, "cache", None) is not None and getattr(after, "cache", None) is None


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
