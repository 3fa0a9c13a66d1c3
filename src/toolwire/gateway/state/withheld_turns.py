"""Assistant turns with signatures that the client's protocol can't carry (Chat, Ollama).

A turn is looked up by a digest of the conversation up to its end, which the client resends. The digest ignores dropped
ids, reformatting and merged messages (`translation.history`). The ids of tool calls, where the client resends them,
distinguish turns of equal text. A turn is only restored for the provider and model that produced it.
"""

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, ToolCall
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.interface import Codec, ResponseContext, Route
from toolwire.codec.losses import with_source_positions
from toolwire.gateway.state.store import Row, StateStore, StateUnavailable
from toolwire.translation.history import assistant_turns, reinsert_turn
from toolwire.translation.stages.withheld import WithheldSignatures

TURN_KIND = "turn"
_ECHO_PATHS = {"openai-chat": ("choices", 0, "message"), "ollama": ("message",)}
WITHHELD_FOR = frozenset(_ECHO_PATHS)
_LIMIT_EMPTY_KEYS = 4096

_decode_messages = msgspec.json.Decoder(tuple[Message, ...]).decode


class TurnKey(msgspec.Struct, frozen=True):
    """The scope of a stored turn: its owner, the client's protocol, and the provider and model that produced it."""

    owner: str
    client: str
    realm: str
    model: str

    @property
    def digest(self) -> str:
        """Return a digest of client protocol, provider and model."""
        text = f"{self.client}\0{self.realm}\0{self.model}"
        return hashlib.blake2s(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


class WithheldTurns:
    """Stores turns with withheld signatures, and restores them into later requests."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._empty_keys: dict[TurnKey, object] = {}

    async def restore(self, request: Request, client: Codec, turn_key: TurnKey) -> Request:
        """Replace assistant turns of this upstream by their originals, with the signatures that the client never saw.

        If state is unavailable, the request is sent as received: losing signatures is better than failing.
        """
        try:
            return await self._restore_turns(request, client, turn_key)
        except StateUnavailable:
            return request

    async def _restore_turns(self, request: Request, client: Codec, turn_key: TurnKey) -> Request:
        """Look up all assistant turns, and return the request with those found in place."""
        if not any(message.role == "assistant" for message in request.messages) or await self._is_empty(turn_key):
            return request
        key_digest = turn_key.digest
        turns = {
            _row_id(digest, request.messages[first:after], key_digest): (first, after)
            for first, after, digest in assistant_turns(request.messages)
        }
        rows = await self._store.get(turn_key.owner, TURN_KIND, list(turns))
        if not rows:
            return request
        messages: Sequence[Message] = with_source_positions(request, client.wire_names, "messages").messages
        for row_id, turn in reversed(turns.items()):  # from the end, so that earlier positions stay valid
            if (original := _decode_turn(rows.get(row_id))) is not None:
                messages = reinsert_turn(messages, turn, original)
        return replace(request, messages=tuple(messages))

    async def _is_empty(self, turn_key: TurnKey) -> bool:
        """Return whether nothing was ever stored for this key, so that no lookup is needed."""
        version = self._store.version()
        if self._empty_keys.get(turn_key) == version:
            return True
        if await self._store.has_children(turn_key.owner, TURN_KIND, turn_key.digest):
            self._empty_keys.pop(turn_key, None)
            return False
        if len(self._empty_keys) < _LIMIT_EMPTY_KEYS:
            self._empty_keys[turn_key] = version
        return True

    def store(
        self,
        withheld_signatures: WithheldSignatures,
        response: Response,
        client: Codec,
        context: ResponseContext,
        turn_key: TurnKey,
    ) -> bool:
        """Queue the original turn of a response if it has withheld signatures; return whether it was queued."""
        if not withheld_signatures.has_signatures or context.request is None:
            return False
        echo = _echoed_messages(client.encode_response(response, context).to_bytes(), client)
        turns = assistant_turns((*context.request.messages, *echo))
        is_new_turn = bool(turns) and turns[-1][0] >= len(context.request.messages)
        if not is_new_turn or not (original := withheld_signatures.original_messages()):
            return False
        body, key_digest, digest = msgspec.json.encode(original), turn_key.digest, turns[-1][2]
        row_ids = {_row_id(digest, echo, key_digest), _row_id(digest, (), key_digest)}
        self._store.enqueue([Row(turn_key.owner, TURN_KIND, row_id, body, key_digest) for row_id in row_ids])
        return True


def _decode_turn(body: bytes | None) -> tuple[Message, ...] | None:
    """Decode a stored turn; None if it is missing or of another version."""
    try:
        return None if body is None else _decode_messages(body)
    except msgspec.MsgspecError:
        return None


def _row_id(digest: str, turn: Sequence[Message], key_digest: str) -> str:
    """Return the row id of a turn, including the ids of its calls if all have one."""
    ids = [part.id for message in turn for part in message.parts if isinstance(part, ToolCall)]
    joined_ids = "\0".join(id or "" for id in ids) if all(ids) else ""
    return (
        f"{digest}.{hashlib.blake2s(joined_ids.encode(errors='surrogatepass'), digest_size=8).hexdigest()}.{key_digest}"
    )


def _echoed_messages(body: bytes, client: Codec) -> tuple[Message, ...]:
    """Decode a response as the client will resend it in its next request."""
    for step in _ECHO_PATHS[client.name]:
        body = msgspec.json.decode(body, type=list[Raw] if step == 0 else dict[str, Raw])[step]  # type: ignore[index]
    return client.decode_request(b'{"messages":[%b]}' % body, Route()).messages
