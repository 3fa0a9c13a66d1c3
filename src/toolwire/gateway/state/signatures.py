"""Signatures that clients received, stored with their issuer: an account and a model of a provider.

Between equal protocols, a client gets the provider's own signatures, encrypted reasoning included, and sends them back
with every request. A row per signature, with its digest as the key, holds the issuer, and only that issuer gets it. A
signature without a row is from a conversation that began elsewhere.

Some clients drop reasoning without visible text, although it carries a signature. It is stored by the id of the call
that follows, and put back before that call.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import compress, repeat
from operator import is_not, itemgetter

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Reasoning, Signature, Text, ToolCall
from toolwire.canonical.events import Event, PartDelta, PartDeltas, PartEnd, PartStart
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.envelope import is_envelope
from toolwire.codec.losses import WireNames, with_source_positions
from toolwire.codec.memo import BoundedMemo
from toolwire.gateway.state.store import Row, StateStore, StateUnavailable
from toolwire.translation.history import signatures_in

SIGNATURE_KIND = "signature"
REASONING_KIND = "reasoning"
DROPPING_CLIENTS = frozenset({"anthropic"})
"""Client protocols in which some clients drop reasoning without visible text."""

_MEMO_BYTES = 8 * 1024 * 1024
_ENTRY_BYTES = 400
_URL_SAFE = str.maketrans("-_", "+/")
_DroppedParts = tuple[tuple[int, Reasoning], ...]
"""Reasoning before a call, each with the number of texts between it and the call."""
_decode_reasoning = msgspec.json.Decoder(_DroppedParts).decode


class IssuedSignatures:
    """The signatures that clients received, and their issuers."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        # An issuer is "", and reasoning (), if the store has no row: none can appear later.
        self._issuers: BoundedMemo[tuple[str, str], str] = BoundedMemo(_MEMO_BYTES)
        self._reasoning: BoundedMemo[tuple[str, str], _DroppedParts] = BoundedMemo(_MEMO_BYTES)

    def record_signature(self, owner: str, data: str, issuer: str) -> bool:
        """Store the issuer of a signature that a client receives; return whether a row was queued."""
        if not data or self._issuers.get((owner, data)) == issuer:
            return False
        self._issuers.put((owner, data), issuer, _ENTRY_BYTES + len(data))
        self._store.enqueue([Row(owner, SIGNATURE_KIND, _digest(data), issuer.encode())])
        return True

    def record_reasoning(self, owner: str, call_id: str, reasoning: _DroppedParts) -> bool:
        """Store reasoning without visible text that stands before a call, or remember that there is none.

        Returns whether a row was queued.
        """
        if not reasoning:
            if self._reasoning.get((owner, call_id)) is None:
                self._reasoning.put((owner, call_id), (), _ENTRY_BYTES)
            return False
        body = msgspec.json.encode(reasoning)
        self._reasoning.put((owner, call_id), reasoning, _ENTRY_BYTES + 2 * len(body))
        self._store.enqueue([Row(owner, REASONING_KIND, _digest(call_id), body)])
        return True

    async def find_foreign(self, owner: str, signatures: Sequence[str], issuer: str) -> frozenset[str]:
        """Return the signatures that are known to be from another issuer."""
        known = self._issuers.get
        others = [data for data in signatures if known((owner, data)) != issuer]
        if not others:  # as in most conversations
            return frozenset()
        issuers = {data: known((owner, data)) for data in others if not is_envelope(data)}
        if unknown := [data for data, found in issuers.items() if found is None]:
            rows = await self._find_rows(owner, SIGNATURE_KIND, [_digest(data) for data in unknown])
            for data in unknown:
                issuers[data] = stored = rows.get(_digest(data), b"").decode()
                self._issuers.put((owner, data), stored, _ENTRY_BYTES + len(data))
        return frozenset([data for data, found in issuers.items() if found not in ("", issuer)])

    async def restore_reasoning(
        self, owner: str, request: Request, calls: Sequence["CallPlace"], wire_names: WireNames
    ) -> Request:
        """Restore the reasoning that the client dropped, each before the call that followed it.

        `calls` are the calls of the request that `MessageScan` found.
        """
        known = self._reasoning.get
        ids = list(map(itemgetter(2), calls))  # in C, as a long conversation has many calls
        found = dict(zip(ids, map(known, zip(repeat(owner), ids, strict=False)), strict=True))
        if None in found.values():
            unknown = {_digest(id): id for id, reasoning in found.items() if reasoning is None}
            rows = await self._find_rows(owner, REASONING_KIND, list(unknown))
            for row_id, id in unknown.items():
                found[id] = decoded = _decode_row(rows.get(row_id))
                self._reasoning.put((owner, id), decoded, _ENTRY_BYTES + 2 * len(rows.get(row_id, b"")))
        if not any(found.values()):
            return request
        messages: list[Message] | None = None
        for number, index, id in calls:
            if reasoning := found[id]:
                messages = list(request.messages) if messages is None else messages
                positioned = with_source_positions(messages[number], wire_names)
                parts = list(positioned.parts)
                for texts, part in reversed(reasoning):
                    parts.insert(max(index - texts, 0), replace(part, at=""))
                positioned = replace(positioned, parts=tuple(parts))
                messages[number] = positioned
        return request if messages is None else replace(request, messages=tuple(messages))

    async def _find_rows(self, owner: str, kind: str, ids: list[str]) -> dict[str, bytes]:
        """Return the bodies of stored rows; none if the state is unavailable, since the request should not fail."""
        try:
            return await self._store.get(owner, kind, ids)
        except StateUnavailable:
            return {}


class _OpenReasoning:
    """Reasoning in a stream: its signature, and whether it has text."""

    def __init__(self, part: Reasoning) -> None:
        self.part = part if part.content else replace(part, hidden=part.hidden or "omitted")

    def add(self, delta: PartDelta | PartDeltas) -> None:
        """Add a delta."""
        if delta.text:
            self.part = replace(self.part, hidden=None)
        if isinstance(delta, PartDelta) and delta.signature is not None:
            self.part = replace(self.part, signature=delta.signature)


class SignatureObserver:
    """Records the signatures of one response as its client receives them."""

    def __init__(self, signatures: IssuedSignatures, owner: str, issuer: str, *, client_drops: bool) -> None:
        """`client_drops` also stores reasoning without visible text, for clients that drop it."""
        self._signatures = signatures
        self._owner = owner
        self._issuer = issuer
        self._client_drops = client_drops
        self._has_recorded = False
        self._open: dict[tuple[int, int], _OpenReasoning] = {}
        self._before_call: dict[int, list[tuple[int, Reasoning]]] = {}

    def observe(self, events: Iterable[Event]) -> None:
        """Record the signatures in events of a stream."""
        for event in events:
            kind = type(event)
            if kind is PartDelta:
                self._record(event.signature)  # type: ignore[union-attr]
            elif kind is PartStart or kind is PartEnd:
                part = event.part if isinstance(event, PartStart) else event.final  # type: ignore[union-attr]
                self._record(getattr(part, "signature", None))
            if self._client_drops:
                self._collect_reasoning(event)

    def observe_response(self, response: Response) -> None:
        """Record the signatures in a complete response."""
        for candidate in response.candidates:
            for message in candidate.messages:
                for part in message.parts:
                    self._record(getattr(part, "signature", None))
                    self._add_part(candidate.index, part)

    def take_recorded(self) -> bool:
        """Return whether rows were queued since the last call."""
        has_recorded, self._has_recorded = self._has_recorded, False
        return has_recorded

    def _collect_reasoning(self, event: Event) -> None:
        """Collect reasoning from a stream, up to the call that follows it."""
        if isinstance(event, PartStart):
            if isinstance(event.part, Reasoning):
                self._open[event.candidate, event.index] = _OpenReasoning(event.part)
            else:
                self._add_part(event.candidate, event.part)
        elif isinstance(event, PartDelta | PartDeltas):
            if (reasoning := self._open.get((event.candidate, event.index))) is not None:
                reasoning.add(event)
        elif isinstance(event, PartEnd) and (ended := self._open.pop((event.candidate, event.index), None)):
            self._add_part(event.candidate, event.final or ended.part)

    def _add_part(self, candidate: int, part: Part) -> None:
        """Collect reasoning that a client may drop, and store it at the call that follows."""
        if isinstance(part, Reasoning) and part.signature is not None and part.hidden is not None:
            self._before_call.setdefault(candidate, []).append((0, part))
            return
        reasoning = self._before_call.pop(candidate, [])
        if reasoning and isinstance(part, Text):
            self._before_call[candidate] = [(texts + 1, dropped) for texts, dropped in reasoning]
        elif isinstance(part, ToolCall) and part.id and self._client_drops:
            self._has_recorded |= self._signatures.record_reasoning(self._owner, part.id, tuple(reasoning))

    def _record(self, signature: Signature | None) -> None:
        """Record a signature, unless it is an envelope, which names its issuer itself."""
        if signature is not None and not is_envelope(signature.data):
            self._has_recorded |= self._signatures.record_signature(self._owner, signature.data, self._issuer)


def may_have_signatures(body: bytes) -> bool:
    """Return whether a response body may have signatures or encrypted reasoning, of any protocol."""
    return b"ignature" in body or b"encrypted" in body or b"redacted_thinking" in body


CallPlace = tuple[int, int, str]
"""Message index, part index and id of a call."""


class MessageScan:
    """Finds calls that lack reasoning, and signatures, in a growing conversation. It scans each message once."""

    def __init__(self) -> None:
        self._known: tuple[Sequence[Message], list[CallPlace], list[tuple[int, str]]] = (), [], []

    def scan(self, messages: Sequence[Message]) -> tuple[list[CallPlace], list[str]]:
        """Return the calls that lack reasoning, and the data of all signatures and envelopes.

        Such a call follows neither reasoning nor another call. Within a message, the last call is first, so that parts
        can be inserted at these indexes.
        """
        known, calls, signatures = self._known  # a single read, since another thread may replace the tuple
        size = min(len(known), len(messages))
        first = next(compress(range(size), map(is_not, known, messages)), size)
        calls, signatures = calls[: bisect_left(calls, (first,))], signatures[: bisect_left(signatures, (first,))]
        for number in range(first, len(messages)):
            message = messages[number]
            if message.role == "assistant":
                calls += [(number, index, id) for index, id in _calls_without_reasoning(message)]
                signatures += [(number, data) for data in signatures_in([message])]
        self._known = messages, calls, signatures
        return calls, [data for _, data in signatures]


def _calls_without_reasoning(message: Message) -> list[tuple[int, str]]:
    """Return part index and id of each call that follows neither reasoning nor a call, the last call first."""
    found: list[tuple[int, str]] = []
    before: type | None = None
    for index, part in enumerate(message.parts):
        if type(part) is ToolCall and part.id and before is None:
            found.append((index, part.id))
        if type(part) in (Reasoning, ToolCall):
            before = type(part)
        elif before is ToolCall:
            before = None
    return found[::-1]


def _decode_row(body: bytes | None) -> _DroppedParts:
    """Decode stored reasoning; none if it is missing or of another version."""
    try:
        return () if body is None else _decode_reasoning(body)
    except msgspec.MsgspecError:
        return ()


def _digest(text: str) -> str:
    """Return the row id of a signature or a call id. Clients may write base64 in either alphabet."""
    normal = text.translate(_URL_SAFE).rstrip("=")
    return hashlib.blake2b(normal.encode(errors="surrogatepass"), digest_size=16).hexdigest()
