"""The stream of an answer that is made in the background: its frames by number, told to whoever asks, from any on.

What was told is kept too, a little later: another process, or the client tomorrow, reads on with the same numbers.

Answers that nobody waits for: asked in the background, kept when they are done, looked up by their id meanwhile.

They are asked as streams, so that whoever wants to can watch, and go on watching. Another process may be asked about an
answer, or to cancel it, so that the row is what holds: who works on an answer looks at its row now and then, and says
that it is still there.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from toolwire.canonical.errors import ApiError, ToolwireError
from toolwire.canonical.loss import Loss
from toolwire.canonical.response import Response, Usage
from toolwire.codec.framing import SseSplitter
from toolwire.codec.framing import encode_sse_frame as framed
from toolwire.codec.interface import Codec, ResponseContext
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.limits import Quota
from toolwire.gateway.state.adapters import StateAdapter
from toolwire.gateway.state.store import Row, StateStore, StateUnavailable

FRAMES_KIND = "frames"
_DONE = b"[DONE]"
_PING = b": ping\n\n"

_decode_json = msgspec.json.decode
_encode_json = msgspec.json.encode


class FrameLog:
    """The frames while they are made. `size`: of all of them, in bytes. Readers get those that are shown."""

    def __init__(self, store: StateStore, owner: str, adapter: StateAdapter, id: str, queued: bytes) -> None:
        self.frames: list[bytes] = []
        self.finished = False
        self.size = 0
        self._store = store
        self._owner = owner
        self._adapter = adapter
        self._id = id
        self._flushed_count = 0
        self._published_count = 0
        self._update = asyncio.Event()
        self._has_end_frame = False
        for kind in adapter.start_events:
            self._append_frame({adapter.event_type_field: kind, adapter.kind: Raw(queued)})
        self._published_count = len(self.frames)

    def add_frames(self, data: bytes, *, publish: bool = True) -> None:
        """Whole frames, as the codec wrote them."""
        for members in _decode_frames(data):
            if members.get(self._adapter.event_type_field) != self._adapter.start_events[0]:  # which was told
                self._append_frame(members)
        if publish:
            self.publish_frames()

    def finish(self, response: bytes, *, publish: bool = True) -> None:
        """It is over, and this is what became of it."""
        if not self.finished and not self._has_end_frame:
            self._append_frame(
                {
                    self._adapter.event_type_field: self._adapter.end_event_for(response),
                    self._adapter.kind: Raw(response),
                }
            )
        self.finished = True
        if publish:
            self.publish_frames()

    def publish_frames(self) -> None:
        """Let those who read have all frames so far."""
        self._published_count = len(self.frames)
        news, self._update = self._update, asyncio.Event()
        news.set()

    def store_frames(self) -> None:
        """Store the published frames: how the answer ended is stored with the answer itself."""
        if rows := self._rows_until(self._published_count):
            self._store.enqueue(rows)
            self._flushed_count = self._published_count

    def unstored_rows(self) -> list[Row]:
        """The rows of all frames that are not stored yet, also of those that are not published."""
        return self._rows_until(len(self.frames))

    def _rows_until(self, count: int) -> list[Row]:
        if self._flushed_count >= count:
            return []
        body = b"".join(self.frames[self._flushed_count : count])
        return [Row(self._owner, FRAMES_KIND, f"{self._id}/{self._flushed_count:09}", body, self._id)]

    def discard_unpublished(self) -> None:
        """Forget the frames that nobody has read: the answer ended otherwise."""
        del self.frames[self._published_count :]
        self.finished = self._has_end_frame = False

    async def read_frames(self, after: int) -> AsyncIterator[bytes]:
        """The frames behind this number, as they come."""
        told = after + 1
        while True:
            news = self._update
            if told < self._published_count:
                frames, told = self.frames[told : self._published_count], self._published_count
                yield b"".join(frames)
            elif self.finished and self._published_count == len(self.frames):
                return
            else:
                await news.wait()

    def _append_frame(self, members: dict[str, Any]) -> None:
        named = members.get(self._adapter.kind)
        if isinstance(named, Raw):
            whole = _decode_json(named, type=dict[str, Raw])
            members[self._adapter.kind] = whole | {"id": self._id, "background": True}
        if "interaction_id" in members:
            members["interaction_id"] = self._id
        self._has_end_frame = members[self._adapter.event_type_field] in self._adapter.end_events
        written = encode_frame(self._adapter, members, len(self.frames))
        self.frames.append(written)
        self.size += len(written)


class FrameLogReader:
    """A stream that somebody reads and somebody else makes: it goes on without its reader. `work` is who makes it."""

    def __init__(self, frames: AsyncIterator[bytes], job: "BackgroundJob | None" = None) -> None:
        self.job = job
        self._frames = frames
        self.request_losses: list[Loss] = []
        self.losses: list[Loss] = []
        self.usage: Usage | None = None
        self.summary: Response | None = None
        self.error: ApiError | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        async for frames in self._frames:
            yield frames

    def ping_frame(self) -> bytes:
        return _PING

    def close(self) -> None: ...


def encode_frame(adapter: StateAdapter, members: dict[str, Any], number: int) -> bytes:
    """A frame with the number that it can be asked for by."""
    kind = members[adapter.event_type_field]
    numbers = {adapter.sequence_field: number if adapter.sequence_is_integer else str(number)}
    written = framed(_encode_json({adapter.event_type_field: kind} | numbers | members | numbers), kind.encode())
    return written + adapter.trailer if kind in adapter.end_events and kind != "error" else written


def number_frames(adapter: StateAdapter, data: bytes) -> list[bytes]:
    """The frames of a whole stream, each with its number."""
    return [encode_frame(adapter, members, number) for number, members in enumerate(_decode_frames(data))]


def split_frames(rows: Iterable[Row]) -> list[bytes]:
    """The frames that were kept, each with its end; what closes the stream belongs to the last one."""
    frames = [one + b"\n\n" for one in b"".join(row.body for row in rows).split(b"\n\n") if one]
    if len(frames) > 1 and _DONE in frames[-1]:
        frames[-2:] = [frames[-2] + frames[-1]]
    return frames


def is_end_frame(adapter: StateAdapter, frame: bytes) -> bool:
    return any(members[adapter.event_type_field] in adapter.end_events for members in _decode_frames(frame))


def _decode_frames(data: bytes) -> Iterator[dict[str, Any]]:
    """What the frames in this say: their kinds as text, all else as it is written."""
    for said in SseSplitter().feed(data):
        if said != _DONE:
            members: dict[str, Any] = _decode_json(said, type=dict[str, Raw])
            tags = {tag: _decode_json(members[tag]) for tag in ("type", "event_type") if tag in members}
            yield members | tags


RUNNING_STATUSES = ("queued", "in_progress")
_IN_PROGRESS = "in_progress"
_HEARTBEAT_KIND = "running"
_HEARTBEAT_INTERVAL = 1.0
_POLL_INTERVAL = 0.1
_DEAD_AFTER = 30.0  # seconds without a sign of life

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class ResponseSource(Protocol):
    """An answer as it comes, what it told, and what went wrong with it."""

    @property
    def summary(self) -> Response | None: ...
    @property
    def losses(self) -> list[Loss]: ...
    @property
    def error(self) -> ApiError | None: ...
    def chunks(self) -> AsyncIterator[bytes]: ...
    def close(self) -> None: ...


ResponseOpener = Callable[[], Awaitable[ResponseSource]]


class ResponseSink(Protocol):
    """An answer that is to be stored under an id: `register` before the client has the id, then `stage` once it is
    complete. The rows are stored by the job, unless the answer was cancelled or deleted meanwhile."""

    id: str
    owner: str
    adapter: StateAdapter
    completed_body: bytes | None

    async def register(self, body: bytes) -> None: ...
    def incomplete_row(self, body: bytes) -> Row: ...
    def stage(self, body: bytes) -> None: ...
    def take_staged_rows(self) -> list[Row]: ...


class BackgroundJob(Struct, eq=False):
    """An answer under way. `queued` is what its client was told of it at first, `stream` what comes from upstream."""

    sink: ResponseSink
    queued_body: bytes
    frame_log: FrameLog
    source: ResponseSource | None = None
    failure: ApiError | None = None
    task: "asyncio.Task[None] | None" = None

    @property
    def summary(self) -> Response | None:
        return None if self.source is None else self.source.summary

    @property
    def losses(self) -> list[Loss]:
        return [] if self.source is None else self.source.losses

    @property
    def final_body(self) -> bytes:
        """What became of it."""
        if self.failure is not None:
            return _with_failure(self.queued_body, self.failure, self.sink.adapter)
        return self.sink.completed_body or self.queued_body


class BackgroundJobs:
    """`places` is how many answers may be under way at once, `limit` how many bytes each may tell."""

    def __init__(self, store: StateStore, quota: Quota, max_bytes: int) -> None:
        self._store = store
        self._quota = quota
        self._max_bytes = max_bytes
        self._jobs: dict[tuple[str, str], BackgroundJob] = {}

    async def start(
        self, sink: ResponseSink, client: Codec, context: ResponseContext, open_response: ResponseOpener
    ) -> BackgroundJob:
        """Have it answered. The id is stored before anybody is asked."""
        self._quota.acquire(sink.owner)
        try:
            work = await self._create_job(sink, client, context)
        except BaseException:
            self._quota.release(sink.owner)
            raise
        work.task = asyncio.ensure_future(self._run_job(work, open_response))
        self._jobs[sink.owner, sink.id] = work
        work.task.add_done_callback(lambda _: self._remove_job(sink))
        return work

    def _remove_job(self, sink: ResponseSink) -> None:
        self._jobs.pop((sink.owner, sink.id), None)
        self._quota.release(sink.owner)

    async def _create_job(self, sink: ResponseSink, client: Codec, context: ResponseContext) -> BackgroundJob:
        asked = context.request
        empty = Response(origin="", id=sink.id, model=None if asked is None else asked.model, created=context.created)
        body = _decode(client.encode_response(empty, context).to_bytes(), type=dict[str, Raw])
        queued = _with_fields(body, status=sink.adapter.queued_status, background=True) | {
            sink.adapter.output_field: Raw(b"[]")
        }
        queued |= {"usage": Raw(b"null")} if "usage" in queued else {}
        told = _encode(queued)
        await sink.register(told)
        self._write_heartbeat(sink)
        return BackgroundJob(sink, told, FrameLog(self._store, sink.owner, sink.adapter, sink.id, told))

    async def read_frames(self, owner: str, adapter: StateAdapter, id: str, after: int) -> AsyncIterator[bytes]:
        """The stream of an answer, from behind this number on: also of one that another process makes."""
        if (work := self._jobs.get((owner, id))) is not None:
            async for data in work.frame_log.read_frames(after):
                yield data
            return
        reader = _StoredFrameReader(self._store, owner, id, after)
        while True:
            # First how it is, then what was told: the last frames are kept before the answer is.
            record = (await self._store.get(owner, adapter.kind, [id])).get(id)
            answer = None if record is None else await self.current_response(owner, adapter, id, _stored_answer(record))
            fresh = await reader.read_new()
            running = answer is not None and response_status(answer) in RUNNING_STATUSES
            if not running and answer is not None and not is_end_frame(adapter, reader.last_frame):
                members = {adapter.event_type_field: adapter.end_event_for(bytes(answer)), adapter.kind: answer}
                fresh.append(encode_frame(adapter, members, reader.count))
            if fresh:
                yield b"".join(fresh)
            if not running:
                return
            await asyncio.sleep(_POLL_INTERVAL)

    async def _run_job(self, job: BackgroundJob, open_response: ResponseOpener) -> None:
        kept, telling = job.sink, job.frame_log
        task = asyncio.ensure_future(self._read_source(job, open_response))
        try:
            while not (await asyncio.wait({task}, timeout=_HEARTBEAT_INTERVAL))[0]:
                if not await self._is_wanted(kept):
                    return
                self._write_heartbeat(kept)
                telling.store_frames()
            if await self._is_wanted(kept):
                await self._store_result(job)
        finally:
            task.cancel()
            telling.finish(_encode(_with_fields(_decode(job.queued_body, type=dict[str, Raw]), status="cancelled")))
            self._store.enqueue_delete(kept.owner, _HEARTBEAT_KIND, kept.id)

    async def _store_result(self, job: BackgroundJob) -> None:
        """Store what became of it, its frames with it, and only then show how it ended."""
        job.frame_log.finish(job.final_body, publish=False)
        if job.failure is None:
            job.sink.stage(job.final_body)
            rows = job.sink.take_staged_rows()
        else:
            rows = [job.sink.incomplete_row(job.final_body)]
        if await self._put_if_wanted(rows + job.frame_log.unstored_rows()):
            job.frame_log.publish_frames()
        else:
            job.frame_log.discard_unpublished()

    def _write_heartbeat(self, sink: ResponseSink) -> None:
        self._store.enqueue([Row(sink.owner, _HEARTBEAT_KIND, sink.id, str(time.time()).encode())])

    async def _read_source(self, job: BackgroundJob, open_response: ResponseOpener) -> None:
        """Ask, and tell what comes."""
        try:
            job.source = stream = await open_response()
            try:
                await self._mark_in_progress(job)
                async for data in stream.chunks():
                    job.frame_log.add_frames(data, publish=job.sink.completed_body is None)
                    if job.frame_log.size > self._max_bytes:
                        job.failure = _server_error(f"the answer is longer than {self._max_bytes} bytes")
                        return
            finally:
                stream.close()
            job.failure = stream.error
        except RequestRejected as refused:
            job.failure = refused.error
        except Exception as error:  # noqa: BLE001 - whatever went wrong is what its id tells from now on
            job.failure = _server_error(str(error) if isinstance(error, ToolwireError) else "toolwire itself failed")
        if job.sink.completed_body is None and job.failure is None:
            job.failure = _server_error("the upstream ended before its answer did")

    async def _mark_in_progress(self, job: BackgroundJob) -> None:
        """It is no longer waiting, unless it is cancelled by now."""
        if job.sink.adapter.queued_status != _IN_PROGRESS:
            body = _encode(_with_fields(_decode(job.queued_body, type=dict[str, Raw]), status=_IN_PROGRESS))
            if await self._put_if_wanted([job.sink.incomplete_row(body)]):
                job.queued_body = body

    async def _put_if_wanted(self, rows: list[Row]) -> bool:
        """Store rows, the answer's first, unless it was deleted or cancelled. To look first and then write would undo
        a cancellation that comes between the two."""
        try:
            return await self._store.put_if(rows, is_running)
        except StateUnavailable:
            return True

    async def _is_wanted(self, sink: ResponseSink) -> bool:
        """Whether it was neither deleted nor cancelled, as far as can be known."""
        try:
            found = await self._store.get(sink.owner, sink.adapter.kind, [sink.id])
        except StateUnavailable:
            return True
        return is_running(found.get(sink.id))

    async def current_response(self, owner: str, adapter: StateAdapter, id: str, response: Raw) -> Raw:
        """An answer as it is now: one that nobody works on any more has failed."""
        if response_status(response) not in RUNNING_STATUSES or (owner, id) in self._jobs:
            return response
        beat = (await self._store.get(owner, _HEARTBEAT_KIND, [id])).get(id)
        began = _decode(response, type=dict[str, Any]).get("created_at")
        last = float(beat) if beat is not None else began if isinstance(began, int | float) else 0.0
        return (
            response
            if time.time() - last < _DEAD_AFTER
            else Raw(_with_failure(bytes(response), _STOPPED_ERROR, adapter))
        )

    def stop_job(self, owner: str, id: str) -> None:
        """Let go of the upstream, if it is this process that asks it."""
        if (found := self._jobs.get((owner, id))) is not None and found.task is not None:
            found.task.cancel()

    def close(self) -> None:
        for work in list(self._jobs.values()):
            work.failure = _STOPPED_ERROR
            work.frame_log.finish(work.final_body)
            work.frame_log.store_frames()
            self._store.enqueue([work.sink.incomplete_row(work.final_body)])
            self._store.enqueue_delete(work.sink.owner, _HEARTBEAT_KIND, work.sink.id)
            if work.task is not None:
                work.task.cancel()


class _StoredFrameReader:
    """The frames of an answer that another process makes, or made: each is read from the store once."""

    def __init__(self, store: StateStore, owner: str, id: str, after: int) -> None:
        self.count = 0
        self.last_frame = b""
        self._store = store
        self._owner = owner
        self._id = id
        self._after = after
        self._last_row_id = ""

    async def read_new(self) -> list[bytes]:
        """Those that are new, and behind the number that was asked for."""
        rows = await self._store.children(self._owner, FRAMES_KIND, self._id, self._last_row_id)
        if not rows:
            return []
        frames = split_frames(rows)
        behind = max(0, self._after + 1 - self.count)
        self._last_row_id, self.last_frame, self.count = rows[-1].id, frames[-1], self.count + len(frames)
        return frames[behind:]


def _server_error(reason: str) -> ApiError:
    return ApiError(kind="server", message=reason)


_STOPPED_ERROR = _server_error("the gateway was stopped before the answer was complete")


def response_status(response: Raw) -> Any:
    return _decode(response, type=dict[str, Any]).get("status")


def is_running(record: bytes | None) -> bool:
    """Whether the stored answer is still being made: it was neither deleted nor cancelled, and did not end."""
    return record is not None and response_status(_stored_answer(record)) in RUNNING_STATUSES


def with_cancelled_status(response: Raw) -> bytes:
    return _encode(_with_fields(_decode(response, type=dict[str, Raw]), status="cancelled"))


def _stored_answer(record: bytes) -> Raw:
    return _decode(record, type=dict[str, Raw])["answer"]


def _with_failure(body: bytes, error: ApiError, adapter: StateAdapter) -> bytes:
    whole = _decode(body, type=dict[str, Raw])
    return _encode(_with_fields(whole, status="failed", **adapter.failure_fields(error)))


def _with_fields(body: dict[str, Raw], **fields: Any) -> dict[str, Raw]:
    return body | {name: Raw(_encode(value)) for name, value in fields.items()}
