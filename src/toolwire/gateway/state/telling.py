"""The stream of an answer that is made in the background: its frames by number, told to whoever asks, from any on.

What was told is kept too, a little later: another process, or the client tomorrow, reads on with the same numbers.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from toolwire.canonical.errors import ApiError
from toolwire.canonical.loss import Loss
from toolwire.canonical.response import Response, Usage
from toolwire.codec.sse import SseSplitter
from toolwire.codec.sse import frame as framed

from .holders import Holder
from .store import Row, Store

if TYPE_CHECKING:
    from .background import Work

FRAMES = "frames"
_DONE = b"[DONE]"
_PING = b": ping\n\n"

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class Telling:
    """The frames while they are made. `size`: of all of them, in bytes. Readers get those that are shown."""

    def __init__(self, store: Store, owner: str, holder: Holder, id: str, queued: bytes) -> None:
        self.frames: list[bytes] = []
        self.over = False
        self.size = 0
        self._store = store
        self._owner = owner
        self._holder = holder
        self._id = id
        self._flushed = 0
        self._shown = 0
        self._news = asyncio.Event()
        self._ended = False
        for kind in holder.begins:
            self._add({holder.tag: kind, holder.kind: Raw(queued)})
        self._shown = len(self.frames)

    def add(self, data: bytes, *, shown: bool = True) -> None:
        """Whole frames, as the codec wrote them."""
        for members in _members(data):
            if members.get(self._holder.tag) != self._holder.begins[0]:  # which was told
                self._add(members)
        if shown:
            self.show()

    def end(self, answer: bytes, *, shown: bool = True) -> None:
        """It is over, and this is what became of it."""
        if not self.over and not self._ended:
            self._add({self._holder.tag: self._holder.ends_with(answer), self._holder.kind: Raw(answer)})
        self.over = True
        if shown:
            self.show()

    def show(self) -> None:
        """Let those who read have all frames so far."""
        self._shown = len(self.frames)
        news, self._news = self._news, asyncio.Event()
        news.set()

    def flush(self) -> None:
        if self._flushed < len(self.frames):
            body = b"".join(self.frames[self._flushed :])
            self._store.keep([Row(self._owner, FRAMES, f"{self._id}/{self._flushed:09}", body, self._id)])
            self._flushed = len(self.frames)

    async def read(self, after: int) -> AsyncIterator[bytes]:
        """The frames behind this number, as they come."""
        told = after + 1
        while True:
            news = self._news
            if told < self._shown:
                frames, told = self.frames[told : self._shown], self._shown
                yield b"".join(frames)
            elif self.over and self._shown == len(self.frames):
                return
            else:
                await news.wait()

    def _add(self, members: dict[str, Any]) -> None:
        named = members.get(self._holder.kind)
        if isinstance(named, Raw):
            whole = _decode(named, type=dict[str, Raw])
            members[self._holder.kind] = whole | {"id": self._id, "background": True}
        if "interaction_id" in members:
            members["interaction_id"] = self._id
        self._ended = members[self._holder.tag] in self._holder.ends
        written = numbered(self._holder, members, len(self.frames))
        self.frames.append(written)
        self.size += len(written)


class Following:
    """A stream that somebody reads and somebody else makes: it goes on without its reader. `work` is who makes it."""

    def __init__(self, frames: AsyncIterator[bytes], work: "Work | None" = None) -> None:
        self.work = work
        self._frames = frames
        self.before: list[Loss] = []
        self.losses: list[Loss] = []
        self.usage: Usage | None = None
        self.told: Response | None = None
        self.error: ApiError | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        async for frames in self._frames:
            yield frames

    def ping(self) -> bytes:
        return _PING

    def close(self) -> None: ...


def numbered(holder: Holder, members: dict[str, Any], number: int) -> bytes:
    """A frame with the number that it can be asked for by."""
    kind = members[holder.tag]
    numbers = {holder.number: number if holder.counts else str(number)}
    written = framed(_encode({holder.tag: kind} | numbers | members | numbers), kind.encode())
    return written + holder.closing if kind in holder.ends and kind != "error" else written


def renumbered(holder: Holder, data: bytes) -> list[bytes]:
    """The frames of a whole stream, each with its number."""
    return [numbered(holder, members, number) for number, members in enumerate(_members(data))]


def frames_of(rows: Iterable[Row]) -> list[bytes]:
    """The frames that were kept, each with its end; what closes the stream belongs to the last one."""
    frames = [one + b"\n\n" for one in b"".join(row.body for row in rows).split(b"\n\n") if one]
    if len(frames) > 1 and _DONE in frames[-1]:
        frames[-2:] = [frames[-2] + frames[-1]]
    return frames


def has_ended(holder: Holder, last: bytes) -> bool:
    return any(members[holder.tag] in holder.ends for members in _members(last))


def _members(data: bytes) -> Iterator[dict[str, Any]]:
    """What the frames in this say: their kinds as text, all else as it is written."""
    for said in SseSplitter().feed(data):
        if said != _DONE:
            members: dict[str, Any] = _decode(said, type=dict[str, Raw])
            tags = {tag: _decode(members[tag]) for tag in ("type", "event_type") if tag in members}
            yield members | tags
