"""Continuity for clients that can't carry proofs: their turns as they were said, found by what the client repeats.

A turn is known by a digest of the conversation up to its end, which survives clients that drop ids, reformat and merge
(`codec.history`). Where the client repeats the ids of its calls, they tell apart what was answered twice in the same
words. It goes back only to the upstream and model that said it.
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
    """Who said it to whom, and in which protocol that one listens."""

    owner: str
    client: str
    realm: str
    model: str

    @property
    def digest(self) -> str:
        text = f"{self.client}\0{self.realm}\0{self.model}"
        return hashlib.blake2s(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


class WithheldTurns:
    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._empty_keys: dict[TurnKey, object] = {}

    async def restore(self, request: Request, client: Codec, turn_key: TurnKey) -> Request:
        """The request with the turns that this upstream said as it said them. Without state it is as the client has it:
        the answer is then worse at most, where a refusal would be none."""
        try:
            return await self._restore_turns(request, client, turn_key)
        except StateUnavailable:
            return request

    async def _restore_turns(self, request: Request, client: Codec, turn_key: TurnKey) -> Request:
        if not any(message.role == "assistant" for message in request.messages) or await self._is_empty(turn_key):
            return request
        place = turn_key.digest
        turns = {
            _row_id(digest, request.messages[first:after], place): (first, after)
            for first, after, digest in assistant_turns(request.messages)
        }
        found = await self._store.get(turn_key.owner, TURN_KIND, list(turns))
        if not found:
            return request
        messages: Sequence[Message] = with_source_positions(request, client.wire_names, "messages").messages
        for name, turn in reversed(turns.items()):  # from the end, so that the numbers before stay true
            if (whole := _decode_turn(found.get(name))) is not None:
                messages = reinsert_turn(messages, turn, whole)
        return replace(request, messages=tuple(messages), plain=False)

    async def _is_empty(self, turn_key: TurnKey) -> bool:
        """Whether nothing was ever kept of this one, as of most: then there is nothing to look for."""
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
    ) -> None:
        """Keep what the client does not get to see of an answer, until it repeats what it did see."""
        if not withheld_signatures.has_signatures or context.request is None:
            return
        echo = _echoed_messages(client.encode_response(response, context).to_bytes(), client)
        turns = assistant_turns((*context.request.messages, *echo))
        began_it = bool(turns) and turns[-1][0] >= len(context.request.messages)
        if began_it and (whole := withheld_signatures.original_messages()):
            body, place, digest = msgspec.json.encode(whole), turn_key.digest, turns[-1][2]
            names = {_row_id(digest, echo, place), _row_id(digest, (), place)}
            self._store.enqueue([Row(turn_key.owner, TURN_KIND, name, body, place) for name in names])


def _decode_turn(body: bytes | None) -> tuple[Message, ...] | None:
    """What was kept; one that another version wrote in other words is not there."""
    try:
        return None if body is None else _decode_messages(body)
    except msgspec.MsgspecError:
        return None


def _row_id(digest: str, turn: Sequence[Message], key_digest: str) -> str:
    """The name of a turn: with the ids of its calls, if all of them have one."""
    ids = [part.id for message in turn for part in message.parts if isinstance(part, ToolCall)]
    told = "\0".join(id or "" for id in ids) if all(ids) else ""
    return f"{digest}.{hashlib.blake2s(told.encode(errors='surrogatepass'), digest_size=8).hexdigest()}.{key_digest}"


def _echoed_messages(body: bytes, client: Codec) -> tuple[Message, ...]:
    """The answer as its client will repeat it."""
    for step in _ECHO_PATHS[client.name]:
        body = msgspec.json.decode(body, type=list[Raw] if step == 0 else dict[str, Raw])[step]  # type: ignore[index]
    return client.decode_request(b'{"messages":[%b]}' % body, Route()).messages
