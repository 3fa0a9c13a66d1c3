"""A memo of the conversations that agents resend, so that only their new messages are translated.

See `translation.incremental` and `translation.encoding_snapshot` for what is reused and when. A conversation is found
by the client's key and protocol, the model and options in the URL, and the beginning of its first message: nothing is
shared between keys. Whatever can't be reused is decoded and encoded completely, and remembered for the next request.
"""

from typing import TYPE_CHECKING

from toolwire.canonical.request import Request
from toolwire.codec.interface import Codec, EncodedBody, Target
from toolwire.codec.memo import BoundedMemo
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.limits import check_request_counts, count_parts
from toolwire.gateway.state.signatures import MessageScan
from toolwire.translation.encoding_snapshot import EncodingSnapshot
from toolwire.translation.history import ConversationDigest
from toolwire.translation.incremental import RequestSnapshot, conversation_key, find_messages

if TYPE_CHECKING:
    from toolwire.gateway.exchange.exchange import ClientRequest

MIN_BODY = 4 * 1024
"""The size from which remembering a body is worthwhile: below it, complete translation is as fast."""

_LIGHT_ADDITION = 32 * 1024
_LIGHT_BODY = 4 * 1024 * 1024
_LIGHT_PARTS = 4000
_MAX_ENCODINGS = 2
_EMPTY_SIZE = 2048
_MESSAGE_WEIGHT = 4
"""Approximate bytes of memory per byte of decoded messages. Python keeps the UTF-8 of each encoded string beside the
string. Decoded tools are counted in a memo of their own."""

_Key = tuple[str, str, str | None, bool | None, bytes]


class CompleteEncodingRequired(Exception):
    """A request that can't be encoded incrementally, where only that was allowed."""


class Conversation:
    """The last request of one conversation, as received and as sent to each backend."""

    def __init__(self, memo: "ConversationMemo", key: _Key | None = None) -> None:
        self.key = key  # None if the conversation is not to be remembered
        self._memo = memo
        self.is_resent = False
        """Whether a request has continued the conversation."""

        self._snapshot: RequestSnapshot | None = None
        self._encodings: dict[tuple[str, str], EncodingSnapshot] = {}
        self.digest_before = ConversationDigest().digest_before
        self.scan_messages = MessageScan().scan

    @property
    def is_regular(self) -> bool:
        """Return whether the messages of the last request are known to be regular: see `incremental.is_regular`."""
        return self._snapshot is not None and self._snapshot.is_regular is True

    def is_light(self, body: bytes) -> bool:
        """Return whether a body that continues this conversation is cheap enough to process on the event loop."""
        snapshot = self._snapshot
        return (
            snapshot is not None
            and snapshot.is_regular is True
            and len(body) <= _LIGHT_BODY
            and count_parts(snapshot.request) <= _LIGHT_PARTS
        )

    def decode_light(self, client_request: "ClientRequest", limits: LimitsSection) -> Request | None:
        """Decode a request most of which is known; None if it has to be decoded otherwise, perhaps in a thread."""
        if not self.is_light(client_request.body):
            return None
        return self.decode_new_messages(client_request, limits, _LIGHT_ADDITION)

    def decode_new_messages(
        self, client_request: "ClientRequest", limits: LimitsSection, size: int | None = None
    ) -> Request | None:
        """Decode a request that continues the conversation; None if it has to be decoded completely.

        So it is if the new messages take more than `size` bytes.
        """
        snapshot, body = self._snapshot, client_request.body
        if snapshot is None or len(body) > 2 * limits.values:  # it may have more values than are allowed
            return None
        continued = snapshot.continue_with(client_request.codec, body, client_request.route, size)
        if continued is None:
            return None
        check_request_counts(continued.request, limits, body)
        self._snapshot, self.is_resent = continued, True
        self._memo.store(self)
        return continued.request

    def remember(self, client_request: "ClientRequest", request: Request) -> None:
        """Remember a completely decoded request, in place of earlier ones."""
        if self.key is None or (request.continuation is not None and request.continuation.id is not None):
            return  # the body does not hold the history
        if (start := find_messages(client_request.body, client_request.codec)) is not None:
            self._snapshot = RequestSnapshot(client_request.body, start, client_request.route, request)
            self._memo.store(self)

    def encode(
        self, request: Request, client: Codec, upstream: Codec, target: Target, *, complete: bool = True
    ) -> EncodedBody:
        """Encode a prepared request for a backend, from the last one that it got if possible.

        Otherwise it is encoded completely; without `complete`, `CompleteEncodingRequired` is raised.
        """
        key = (target.realm or "", target.model or "")
        known = None if self._snapshot is None or client is upstream else self._encodings.get(key)
        snapshot = None if known is None else known.continue_with(request, upstream, target)
        if snapshot is None and not complete:
            raise CompleteEncodingRequired
        if self._snapshot is None or client is upstream:
            return upstream.encode_request(request, target)
        if snapshot is None:
            encoding = upstream.encode_request(request, target)
            snapshot = EncodingSnapshot.from_encoding(encoding, request, client, upstream, target)
        encodings = {**self._encodings, key: snapshot}
        if len(encodings) > _MAX_ENCODINGS:
            del encodings[next(iter(encodings))]
        self._encodings = encodings
        self._memo.store(self)
        return snapshot.encoding

    def count_bytes(self) -> int:
        """Return about how many bytes the conversation keeps alive."""
        snapshot, size = self._snapshot, _EMPTY_SIZE
        if snapshot is not None:
            end = snapshot.array_end or len(snapshot.body)
            size += len(snapshot.body) + _MESSAGE_WEIGHT * (end - snapshot.start)
        return size + sum([len(encoding.data) for encoding in self._encodings.values()])


class ConversationMemo:
    """The most recently used conversations, within a number of bytes; safe for use by several threads.

    A quarter is for conversations of which only one request is known, so that single requests do not displace agents.
    """

    def __init__(self, limit: int) -> None:
        """Create a memo of at most `limit` bytes; 0 turns it off."""
        self._is_enabled = limit > 0
        self._new: BoundedMemo[_Key, Conversation] = BoundedMemo(limit // 4, limit // 4)
        self._resent: BoundedMemo[_Key, Conversation] = BoundedMemo(limit - limit // 4, limit // 4)

    def find(self, client_request: "ClientRequest") -> Conversation:
        """Return the conversation that a request belongs to, empty if it is new or not to be remembered."""
        body, codec, route = client_request.body, client_request.codec, client_request.route
        if not self._is_enabled or len(body) < MIN_BODY or (start := find_messages(body, codec)) is None:
            return Conversation(self)
        key = (client_request.tenant, codec.name, route.model, route.stream, conversation_key(body, start))
        return self._resent.get(key) or self._new.get(key) or Conversation(self, key)

    def store(self, conversation: Conversation) -> None:
        """Keep a conversation as the one used last, and forget the least recently used ones beyond the limit."""
        if (key := conversation.key) is None:
            return
        memo, other = (self._resent, self._new) if conversation.is_resent else (self._new, self._resent)
        other.remove(key)
        memo.put(key, conversation, conversation.count_bytes())
