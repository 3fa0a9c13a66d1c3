"""Answers that nobody waits for: asked in the background, kept when they are done, looked up by their id meanwhile.

They are asked as streams, so that whoever wants to can watch, and go on watching. Another process may be asked about an
answer, or to cancel it, so that the row is what holds: who works on an answer looks at its row now and then, and says
that it is still there.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from toolwire.canonical.errors import ApiError, ToolwireError
from toolwire.canonical.loss import Loss
from toolwire.canonical.response import Response
from toolwire.codec.interface import Codec, Context
from toolwire.gateway.quota import Quota
from toolwire.gateway.refusal import Refused

from .holders import Holder
from .store import Row, Store, Unavailable
from .telling import FRAMES, Telling, frames_of, has_ended, numbered

RUNNING = ("queued", "in_progress")
_BEGUN = "in_progress"
_BEAT = "running"
_PAUSE = 1.0
_LOOK = 0.1
_DEAD = 30.0  # seconds without a sign of life

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class Stream(Protocol):
    """An answer as it comes, what it told, and what went wrong with it."""

    @property
    def told(self) -> Response | None: ...
    @property
    def losses(self) -> list[Loss]: ...
    @property
    def error(self) -> ApiError | None: ...
    def chunks(self) -> AsyncIterator[bytes]: ...
    def close(self) -> None: ...


Answering = Callable[[], Awaitable[Stream]]


class Kept(Protocol):
    """An answer that is to be kept under an id: `announce` before the client has the id, `note` while it is not
    complete, then `keep` and `settle`. `complete`: it is, and this is it."""

    id: str
    owner: str
    holder: Holder
    complete: bytes | None

    async def announce(self, answer: bytes) -> None: ...
    def note(self, answer: bytes) -> None: ...
    def keep(self, answer: bytes) -> None: ...
    async def settle(self) -> Loss | None: ...


class Work(Struct, eq=False):
    """An answer under way. `queued` is what its client was told of it at first, `stream` what comes from upstream."""

    kept: Kept
    queued: bytes
    telling: Telling
    stream: Stream | None = None
    failure: ApiError | None = None
    task: "asyncio.Task[None] | None" = None

    @property
    def told(self) -> Response | None:
        return None if self.stream is None else self.stream.told

    @property
    def losses(self) -> list[Loss]:
        return [] if self.stream is None else self.stream.losses

    @property
    def ended(self) -> bytes:
        """What became of it."""
        if self.failure is not None:
            return _failed(self.queued, self.failure, self.kept.holder)
        return self.kept.complete or self.queued


class Background:
    """`places` is how many answers may be under way at once, `limit` how many bytes each may tell."""

    def __init__(self, store: Store, places: Quota, limit: int) -> None:
        self._store = store
        self._places = places
        self._limit = limit
        self._working: dict[tuple[str, str], Work] = {}

    async def start(self, kept: Kept, client: Codec, context: Context, answer: Answering) -> Work:
        """Have it answered. The id is stored before anybody is asked."""
        self._places.take(kept.owner)
        try:
            work = await self._queue(kept, client, context)
        except BaseException:
            self._places.give_back(kept.owner)
            raise
        work.task = asyncio.ensure_future(self._work(work, answer))
        self._working[kept.owner, kept.id] = work
        work.task.add_done_callback(lambda _: self._forget(kept))
        return work

    def _forget(self, kept: Kept) -> None:
        self._working.pop((kept.owner, kept.id), None)
        self._places.give_back(kept.owner)

    async def _queue(self, kept: Kept, client: Codec, context: Context) -> Work:
        asked = context.request
        empty = Response(origin="", id=kept.id, model=None if asked is None else asked.model, created=context.created)
        body = _decode(client.encode_response(empty, context).to_bytes(), type=dict[str, Raw])
        queued = _changed(body, status=kept.holder.waiting, background=True) | {kept.holder.output: Raw(b"[]")}
        queued |= {"usage": Raw(b"null")} if "usage" in queued else {}
        told = _encode(queued)
        await kept.announce(told)
        self._beat(kept)
        return Work(kept, told, Telling(self._store, kept.owner, kept.holder, kept.id, told))

    async def follow(self, owner: str, holder: Holder, id: str, after: int) -> AsyncIterator[bytes]:
        """The stream of an answer, from behind this number on: also of one that another process makes."""
        if (work := self._working.get((owner, id))) is not None:
            async for data in work.telling.read(after):
                yield data
            return
        reader = _FrameReader(self._store, owner, id, after)
        while True:
            # First how it is, then what was told: the last frames are kept before the answer is.
            record = (await self._store.get(owner, holder.kind, [id])).get(id)
            answer = None if record is None else await self.seen(owner, holder, id, _answer(record))
            fresh = await reader.read()
            running = answer is not None and status_of(answer) in RUNNING
            if not running and answer is not None and not has_ended(holder, reader.last):
                members = {holder.tag: holder.ends_with(bytes(answer)), holder.kind: answer}
                fresh.append(numbered(holder, members, reader.count))
            if fresh:
                yield b"".join(fresh)
            if not running:
                return
            await asyncio.sleep(_LOOK)

    async def _work(self, work: Work, answer: Answering) -> None:
        kept, telling = work.kept, work.telling
        task = asyncio.ensure_future(self._tell(work, answer))
        try:
            while not (await asyncio.wait({task}, timeout=_PAUSE))[0]:
                if not await self._is_wanted(kept):
                    return
                self._beat(kept)
                telling.flush()
            if await self._is_wanted(kept):
                await self._settle(work)
        finally:
            task.cancel()
            telling.end(_encode(_changed(_decode(work.queued, type=dict[str, Raw]), status="cancelled")))
            self._store.discard(kept.owner, _BEAT, kept.id)

    async def _settle(self, work: Work) -> None:
        """Store what became of it, the frames first, and only then show how it ended."""
        work.telling.end(work.ended, shown=False)
        work.telling.flush()
        if work.failure is None:
            work.kept.keep(work.ended)
            await work.kept.settle()
        else:
            work.kept.note(work.ended)
        work.telling.show()

    def _beat(self, kept: Kept) -> None:
        self._store.keep([Row(kept.owner, _BEAT, kept.id, str(time.time()).encode())])

    async def _tell(self, work: Work, answer: Answering) -> None:
        """Ask, and tell what comes."""
        try:
            work.stream = stream = await answer()
            try:
                await self._begin(work)
                async for data in stream.chunks():
                    work.telling.add(data, shown=work.kept.complete is None)
                    if work.telling.size > self._limit:
                        work.failure = _failure(f"the answer is longer than {self._limit} bytes")
                        return
            finally:
                stream.close()
            work.failure = stream.error
        except Refused as refused:
            work.failure = refused.error
        except Exception as error:  # noqa: BLE001 - whatever went wrong is what its id tells from now on
            work.failure = _failure(str(error) if isinstance(error, ToolwireError) else "toolwire itself failed")
        if work.kept.complete is None and work.failure is None:
            work.failure = _failure("the upstream ended before its answer did")

    async def _begin(self, work: Work) -> None:
        """It is no longer waiting, unless it is cancelled by now."""
        if work.kept.holder.waiting != _BEGUN and await self._is_wanted(work.kept):
            work.queued = _encode(_changed(_decode(work.queued, type=dict[str, Raw]), status=_BEGUN))
            work.kept.note(work.queued)

    async def _is_wanted(self, kept: Kept) -> bool:
        """Whether it was neither deleted nor cancelled, as far as can be known."""
        try:
            found = await self._store.get(kept.owner, kept.holder.kind, [kept.id])
        except Unavailable:
            return True
        return kept.id in found and status_of(_answer(found[kept.id])) in RUNNING

    async def seen(self, owner: str, holder: Holder, id: str, answer: Raw) -> Raw:
        """An answer as it is now: one that nobody works on any more has failed."""
        if status_of(answer) not in RUNNING or (owner, id) in self._working:
            return answer
        beat = (await self._store.get(owner, _BEAT, [id])).get(id)
        began = _decode(answer, type=dict[str, Any]).get("created_at")
        last = float(beat) if beat is not None else began if isinstance(began, int | float) else 0.0
        return answer if time.time() - last < _DEAD else Raw(_failed(bytes(answer), _STOPPED, holder))

    def stop(self, owner: str, id: str) -> None:
        """Let go of the upstream, if it is this process that asks it."""
        if (found := self._working.get((owner, id))) is not None and found.task is not None:
            found.task.cancel()

    def close(self) -> None:
        for work in list(self._working.values()):
            work.failure = _STOPPED
            work.telling.end(work.ended)
            work.telling.flush()
            work.kept.note(work.ended)
            self._store.discard(work.kept.owner, _BEAT, work.kept.id)
            if work.task is not None:
                work.task.cancel()


class _FrameReader:
    """The frames of an answer that another process makes, or made: each is read from the store once."""

    def __init__(self, store: Store, owner: str, id: str, after: int) -> None:
        self.count = 0
        self.last = b""
        self._store = store
        self._owner = owner
        self._id = id
        self._after = after
        self._row = ""

    async def read(self) -> list[bytes]:
        """Those that are new, and behind the number that was asked for."""
        rows = await self._store.under(self._owner, FRAMES, self._id, self._row)
        if not rows:
            return []
        frames = frames_of(rows)
        behind = max(0, self._after + 1 - self.count)
        self._row, self.last, self.count = rows[-1].id, frames[-1], self.count + len(frames)
        return frames[behind:]


def _failure(why: str) -> ApiError:
    return ApiError(kind="server", message=why)


_STOPPED = _failure("the gateway was stopped before the answer was complete")


def status_of(answer: Raw) -> Any:
    return _decode(answer, type=dict[str, Any]).get("status")


def cancelled(answer: Raw) -> bytes:
    return _encode(_changed(_decode(answer, type=dict[str, Raw]), status="cancelled"))


def _answer(record: bytes) -> Raw:
    return _decode(record, type=dict[str, Raw])["answer"]


def _failed(body: bytes, error: ApiError, holder: Holder) -> bytes:
    whole = _decode(body, type=dict[str, Raw])
    return _encode(_changed(whole, status="failed", **holder.failure(error)))


def _changed(body: dict[str, Raw], **fields: Any) -> dict[str, Raw]:
    return body | {name: Raw(_encode(value)) for name, value in fields.items()}
