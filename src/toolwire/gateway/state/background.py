"""Answers that nobody waits for: asked in the background, kept when they are done, looked up by their id meanwhile.

Another process may be asked about an answer, or to cancel it, so that the row is what holds: who works on an answer
looks at its row now and then, and says that it is still there.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from toolwire.canonical.errors import ApiError, ToolwireError
from toolwire.canonical.response import Response
from toolwire.codec.interface import Codec, Context
from toolwire.gateway.refusal import Refused

from .holders import Holder
from .store import Row, Store

RUNNING = ("queued", "in_progress")
_BEAT = "running"
_PAUSE = 1.0
_DEAD = 30.0  # seconds without a sign of life
_STOPPED = ApiError(kind="server", message="the gateway was stopped before the answer was complete")

_decode = msgspec.json.decode
_encode = msgspec.json.encode


Answering = Callable[[], Awaitable[bytes]]


class Kept(Protocol):
    """An answer that is to be kept under an id: `note` while it is not complete, then `keep`."""

    id: str
    owner: str
    holder: Holder

    def note(self, answer: bytes) -> None: ...
    def keep(self, answer: bytes) -> None: ...


class Background:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._working: dict[tuple[str, str], tuple[asyncio.Task[None], Kept, bytes]] = {}

    def start(self, kept: Kept, client: Codec, context: Context, answer: Answering) -> bytes:
        """Have it answered; what the client is told meanwhile."""
        asked = context.request
        empty = Response(origin="", id=kept.id, model=None if asked is None else asked.model, created=context.created)
        body = _decode(client.encode_response(empty, context).to_bytes(), type=dict[str, Raw])
        queued = _changed(body, status=kept.holder.waiting, background=True) | {kept.holder.output: Raw(b"[]")}
        queued |= {"usage": Raw(b"null")} if "usage" in queued else {}
        told = _encode(queued)
        kept.note(told)
        task = asyncio.ensure_future(self._work(kept, told, answer))
        self._working[kept.owner, kept.id] = (task, kept, told)
        task.add_done_callback(lambda _: self._working.pop((kept.owner, kept.id), None))
        return told

    async def _work(self, kept: Kept, queued: bytes, answer: Answering) -> None:
        task = asyncio.ensure_future(answer())
        try:
            while not (await asyncio.wait({task}, timeout=_PAUSE))[0]:
                if not await self._is_wanted(kept):
                    return
                self._store.keep([Row(kept.owner, _BEAT, kept.id, str(time.time()).encode())])
            if await self._is_wanted(kept):
                try:
                    whole = _decode(task.result(), type=dict[str, Raw])
                    kept.keep(_encode(_changed(whole, id=kept.id, background=True)))
                except Refused as refused:
                    kept.note(_failed(queued, refused.error, kept.holder))
                except Exception as error:  # noqa: BLE001 - whatever went wrong is what its id tells from now on
                    known = isinstance(error, ToolwireError)
                    why = str(error) if known else "toolwire itself failed"
                    kept.note(_failed(queued, ApiError(kind="server", message=why), kept.holder))
        finally:
            task.cancel()
        await self._store.delete(kept.owner, _BEAT, kept.id)

    async def _is_wanted(self, kept: Kept) -> bool:
        """Whether it was neither deleted nor cancelled."""
        found = await self._store.get(kept.owner, kept.holder.kind, [kept.id])
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
        if (found := self._working.get((owner, id))) is not None:
            found[0].cancel()

    def close(self) -> None:
        for task, kept, queued in list(self._working.values()):
            kept.note(_failed(queued, _STOPPED, kept.holder))
            task.cancel()


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
