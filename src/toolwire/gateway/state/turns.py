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
from toolwire.codec.history import spoken
from toolwire.codec.interface import Codec, Context, Route
from toolwire.codec.losses import pinned
from toolwire.codec.withholding import Withholding, put_back

from .store import Row, Store, Unavailable

KIND = "turn"
_ECHOED = {"openai-chat": ("choices", 0, "message"), "ollama": ("message",)}
KEPT_FOR = frozenset(_ECHOED)
_LIMIT_PLACES = 4096

_read = msgspec.json.Decoder(tuple[Message, ...]).decode


class Speaker(msgspec.Struct, frozen=True):
    """Who said it to whom, and in which protocol that one listens."""

    owner: str
    client: str
    realm: str
    model: str

    @property
    def place(self) -> str:
        text = f"{self.client}\0{self.realm}\0{self.model}"
        return hashlib.blake2s(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


class Turns:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._empty: dict[Speaker, object] = {}

    async def recall(self, request: Request, client: Codec, speaker: Speaker) -> Request:
        """The request with the turns that this upstream said as it said them. Without state it is as the client has it:
        the answer is then worse at most, where a refusal would be none."""
        try:
            return await self._recall(request, client, speaker)
        except Unavailable:
            return request

    async def _recall(self, request: Request, client: Codec, speaker: Speaker) -> Request:
        if not any(message.role == "assistant" for message in request.messages) or await self._is_empty(speaker):
            return request
        place = speaker.place
        turns = {
            _name(digest, request.messages[first:after], place): (first, after)
            for first, after, digest in spoken(request.messages)
        }
        found = await self._store.get(speaker.owner, KIND, list(turns))
        if not found:
            return request
        messages: Sequence[Message] = pinned(request, client.names, "messages").messages
        for name, turn in reversed(turns.items()):  # from the end, so that the numbers before stay true
            if (whole := _whole(found.get(name))) is not None:
                messages = put_back(messages, turn, whole)
        return replace(request, messages=tuple(messages), plain=False)

    async def _is_empty(self, speaker: Speaker) -> bool:
        """Whether nothing was ever kept of this one, as of most: then there is nothing to look for."""
        version = self._store.version()
        if self._empty.get(speaker) == version:
            return True
        if await self._store.has(speaker.owner, KIND, speaker.place):
            self._empty.pop(speaker, None)
            return False
        if len(self._empty) < _LIMIT_PLACES:
            self._empty[speaker] = version
        return True

    def keep(self, withheld: Withholding, shown: Response, client: Codec, context: Context, speaker: Speaker) -> None:
        """Keep what the client does not get to see of an answer, until it repeats what it did see."""
        if not withheld.found or context.request is None:
            return
        echo = _echo(client.encode_response(shown, context).to_bytes(), client)
        turns = spoken((*context.request.messages, *echo))
        began_it = bool(turns) and turns[-1][0] >= len(context.request.messages)
        if began_it and (whole := withheld.whole()):
            body, place, digest = msgspec.json.encode(whole), speaker.place, turns[-1][2]
            names = {_name(digest, echo, place), _name(digest, (), place)}
            self._store.keep([Row(speaker.owner, KIND, name, body, place) for name in names])


def _whole(body: bytes | None) -> tuple[Message, ...] | None:
    """What was kept; one that another version wrote in other words is not there."""
    try:
        return None if body is None else _read(body)
    except msgspec.MsgspecError:
        return None


def _name(digest: str, turn: Sequence[Message], place: str) -> str:
    """The name of a turn: with the ids of its calls, if all of them have one."""
    ids = [part.id for message in turn for part in message.parts if isinstance(part, ToolCall)]
    told = "\0".join(id or "" for id in ids) if all(ids) else ""
    return f"{digest}.{hashlib.blake2s(told.encode(errors='surrogatepass'), digest_size=8).hexdigest()}.{place}"


def _echo(body: bytes, client: Codec) -> tuple[Message, ...]:
    """The answer as its client will repeat it."""
    for step in _ECHOED[client.name]:
        body = msgspec.json.decode(body, type=list[Raw] if step == 0 else dict[str, Raw])[step]  # type: ignore[index]
    return client.decode_request(b'{"messages":[%b]}' % body, Route()).messages
