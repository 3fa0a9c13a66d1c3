"""A stream on its way to a client, from the moment it is asked for.

1. While nothing comes, the client is told that it lives, at a boundary between events: before the first one, too, so
   that nobody on the way gives up a model that thinks for long.
2. Then the head is out. The upstream may still be given up for another one, for the client has seen nothing of an
   answer; what goes wrong in the end is told in the stream.
3. What the answer lost is known when it is over: a comment says so, where the protocol's clients read on over it.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Sequence

from msgspec.structs import replace

from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import Notice
from toolwire.canonical.loss import Loss
from toolwire.codec.arrays import MEDIA_TYPE, ArrayFraming
from toolwire.codec.interface import Codec, Context
from toolwire.streaming import Translation

from .incoming import Header, Incoming
from .passing import Streaming
from .quota import Quota
from .report import losses_body, losses_header
from .state.telling import Following


class Relay:
    def __init__(self, incoming: Incoming, codec: Codec, streams: Quota, pause: float) -> None:
        self._incoming = incoming
        self._codec = codec
        self._streams = streams
        self._pause = pause
        self._array = ArrayFraming() if codec.surface.is_array(incoming.scope["query_string"]) else None
        self._expected = False
        self._answer: Streaming | Following | None = None
        self._unanswered: Translation | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None

    @property
    def losses(self) -> list[Loss]:
        return [] if self._answer is None else self._answer.losses

    def expect(self) -> None:
        """The client wants a stream."""
        self._streams.take(self._incoming.caller.tenant)
        self._expected = True
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._beat)

    def close(self) -> None:
        if not self._expected:
            return
        self._streams.give_back(self._incoming.caller.tenant)
        line = self._incoming.line
        line.over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._answer is not None:
            self._answer.close()
            line.usage, line.failed = self._answer.usage, self._answer.error is not None

    async def pass_on(self, answer: Streaming | Following) -> None:
        """All of an answer, as it comes."""
        self._answer = answer
        line, send = self._incoming.line, self._incoming.send
        before = answer.before
        await self._quiet()
        if not line.started:
            await self._begin(before)
        note = self._incoming.note
        keep = None if note is None or note.pieces is None else note.keep
        async for frames in answer.chunks():
            line.told = time.monotonic()
            data = frames if self._array is None else self._array.add(frames)
            if keep is not None:
                keep(data)
            await send({"type": "http.response.body", "body": data, "more_body": True})
        line.over = True
        if self._array is not None:
            await send({"type": "http.response.body", "body": self._array.close(), "more_body": True})
        if self._codec.surface.comments and (lost := answer.losses[len(before) :]):
            comment = b": toolwire-losses %b\n\n" % losses_header(lost, losses_body(lost))
            await send({"type": "http.response.body", "body": comment, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def fail(self, error: ApiError) -> None:
        """There will be no answer, and the head is out."""
        line = self._incoming.line
        line.over, line.failed, line.why = True, True, error.message
        await self._quiet()
        told = replace(error, form=())  # which is how a body spelt it
        data = Translation(self._codec, self._codec, Context()).fail(told)
        await self._incoming.send({"type": "http.response.body", "body": data})

    async def _quiet(self) -> None:
        """What was being said to keep the client waiting is said first."""
        if self._beating is not None:
            await self._beating

    async def _begin(self, losses: Sequence[Loss]) -> None:
        line = self._incoming.line
        line.status, line.started, line.streamed = 200, True, True
        headers: list[Header] = [
            (b"content-type", self._codec.surface.stream_type.encode() if self._array is None else MEDIA_TYPE),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
            (b"toolwire-exchange", line.id.encode()),
        ]
        if losses:
            headers.append((b"toolwire-losses", losses_header(losses, losses_body(losses))))
        await self._incoming.send({"type": "http.response.start", "status": 200, "headers": headers})

    def _beat(self) -> None:
        """Say something harmless while the upstream is silent."""
        line = self._incoming.line
        if line.over:
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._pause, self._beat)
        busy = self._beating is not None and not self._beating.done()
        if not busy and time.monotonic() - line.told >= self._pause:
            self._beating = loop.create_task(_quietly(self._ping()))

    async def _ping(self) -> None:
        if self._answer is not None:
            data = self._answer.ping()
        else:
            if self._unanswered is None:
                self._unanswered = Translation(self._codec, self._codec, Context())
            data = self._unanswered.tell(Notice(kind="ping"))
            if not self._incoming.line.started:
                await self._begin(())
        if self._array is not None:
            data = self._array.add(data)
        if data:
            await self._incoming.send({"type": "http.response.body", "body": data, "more_body": True})


async def _quietly(sending: Awaitable[None]) -> None:
    with contextlib.suppress(Exception):
        await sending
