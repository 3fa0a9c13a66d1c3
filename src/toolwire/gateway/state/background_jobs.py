"""Background responses: produced without a waiting client, stored when complete, and streamed on request.

The upstream request is a stream, so that clients can follow a response from any event on. Frames are also stored, with
a short delay, so that another process can serve them with the same numbers.

The stored row decides about a job, since another process may be asked to cancel it. The process that runs a job checks
the row regularly and writes a heartbeat.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from toolwire.canonical.errors import ApiError, Loss, ToolwireError
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
    """The numbered frames of a background response while it is produced."""

    def __init__(self, store: StateStore, owner: str, adapter: StateAdapter, id: str, queued: bytes) -> None:
        self.frames: list[bytes] = []
        self.finished = False
        self.size = 0  # bytes of all frames
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
        """Add complete SSE frames as the codec encoded them, but not the start event, which the log has already.

        Without `publish`, readers see them only later.
        """
        for members in _decode_frames(data):
            if members.get(self._adapter.event_type_field) != self._adapter.start_events[0]:  # already added
                self._append_frame(members)
        if publish:
            self.publish_frames()

    def finish(self, response: bytes, *, publish: bool = True) -> None:
        """End the log with this response, adding an end event if there is none."""
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
        """Make all frames so far visible to readers, and wake them."""
        self._published_count = len(self.frames)
        update, self._update = self._update, asyncio.Event()
        update.set()

    def store_frames(self) -> None:
        """Queue published frames that are not stored yet. The end is stored together with the response."""
        if rows := self._rows_until(self._published_count):
            self._store.enqueue(rows)
            self._flushed_count = self._published_count

    def unstored_rows(self) -> list[Row]:
        """Return the rows of all frames that are not stored yet, published or not."""
        return self._rows_until(len(self.frames))

    def _rows_until(self, count: int) -> list[Row]:
        """Return the row of the frames that are not stored yet, up to this number."""
        if self._flushed_count >= count:
            return []
        body = b"".join(self.frames[self._flushed_count : count])
        return [Row(self._owner, FRAMES_KIND, f"{self._id}/{self._flushed_count:09}", body, self._id)]

    def finish_instead(self, response: bytes) -> None:
        """End the log with this response in place of frames that no reader has seen, unless the end is published."""
        if self.finished and self._published_count == len(self.frames):
            return
        del self.frames[self._published_count :]
        self.finished = self._has_end_frame = False
        self.finish(response)

    async def read_frames(self, after: int) -> AsyncIterator[bytes]:
        """Yield the frames after this number, as they are published."""
        position = after + 1
        while True:
            update = self._update
            if position < self._published_count:
                frames, position = self.frames[position : self._published_count], self._published_count
                yield b"".join(frames)
            elif self.finished and self._published_count == len(self.frames):
                return
            else:
                await update.wait()

    def _append_frame(self, members: dict[str, Any]) -> None:
        """Append a frame with its number, and the job's id in place of the upstream's."""
        response = members.get(self._adapter.kind)
        if isinstance(response, Raw):
            fields = _decode_json(response, type=dict[str, Raw])
            members[self._adapter.kind] = fields | {"id": self._id, "background": True}
        if "interaction_id" in members:
            members["interaction_id"] = self._id
        self._has_end_frame = members[self._adapter.event_type_field] in self._adapter.end_events
        frame = encode_frame(self._adapter, members, len(self.frames))
        self.frames.append(frame)
        self.size += len(frame)


class FrameLogReader:
    """A streaming response that reads a frame log; the job continues without its readers."""

    def __init__(self, frames: AsyncIterator[bytes], job: "BackgroundJob | None" = None) -> None:
        self.job = job
        self._frames = frames
        self.request_losses: list[Loss] = []
        self.losses: list[Loss] = []
        self.usage: Usage | None = None
        self.summary: Response | None = None
        self.error: ApiError | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield frames as they are published."""
        async for frames in self._frames:
            yield frames

    def ping_frame(self) -> bytes:
        """Return an SSE comment that serves as a ping."""
        return _PING

    def close(self) -> None:
        """Do nothing: the job continues without its readers."""


def encode_frame(adapter: StateAdapter, members: dict[str, Any], number: int) -> bytes:
    """Encode a frame with the number by which a stream can be resumed."""
    kind = members[adapter.event_type_field]
    sequence = {adapter.sequence_field: number if adapter.sequence_is_integer else str(number)}
    frame = framed(_encode_json({adapter.event_type_field: kind} | sequence | members | sequence), kind.encode())
    return frame + adapter.trailer if kind in adapter.end_events and kind != "error" else frame


def number_frames(adapter: StateAdapter, data: bytes) -> list[bytes]:
    """Return the SSE frames of a complete stream, each with the number by which it can be resumed."""
    return [encode_frame(adapter, members, number) for number, members in enumerate(_decode_frames(data))]


def split_frames(rows: Iterable[Row]) -> list[bytes]:
    """Return the SSE frames in stored rows; a `[DONE]` marker belongs to the frame before it."""
    frames = [frame + b"\n\n" for frame in b"".join(row.body for row in rows).split(b"\n\n") if frame]
    if len(frames) > 1 and _DONE in frames[-1]:
        frames[-2:] = [frames[-2] + frames[-1]]
    return frames


def is_end_frame(adapter: StateAdapter, frame: bytes) -> bool:
    """Return whether a frame ends its stream."""
    return any(members[adapter.event_type_field] in adapter.end_events for members in _decode_frames(frame))


def _decode_frames(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON members of each SSE frame, with event types as text and the others raw."""
    for data_field in SseSplitter().feed(data):
        if data_field != _DONE:
            members: dict[str, Any] = _decode_json(data_field, type=dict[str, Raw])
            types = {name: _decode_json(members[name]) for name in ("type", "event_type") if name in members}
            yield members | types


RUNNING_STATUSES = ("queued", "in_progress")
_IN_PROGRESS = "in_progress"
_HEARTBEAT_KIND = "running"
_HEARTBEAT_INTERVAL = 1.0
_DEAD_AFTER = 30.0  # seconds without a sign of life
_STORE_PATIENCE = 600.0  # seconds in which a complete response waits for the state to be available

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class ResponseSource(Protocol):
    """A streamed response that a job reads."""

    @property
    def summary(self) -> Response | None:
        """Return ids, stop reasons and usage known so far."""

    @property
    def losses(self) -> list[Loss]:
        """Return the losses known so far."""

    @property
    def error(self) -> ApiError | None:
        """Return the error that ended the stream early, if any."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the frames as they arrive."""

    def close(self) -> None:
        """Close the upstream connection."""


ResponseOpener = Callable[[], Awaitable[ResponseSource]]


class ResponseSink(Protocol):
    """Stores a response under its id."""

    id: str
    owner: str
    adapter: StateAdapter
    completed_body: bytes | None
    """The complete response; None until then."""

    async def register(self, body: bytes) -> None:
        """Store the incomplete response, before the client gets its id."""

    def incomplete_row(self, body: bytes) -> Row:
        """Return the row of an incomplete response."""

    def stage(self, body: bytes) -> None:
        """Take a complete response body, which `flush` stores."""

    def take_staged_rows(self) -> list[Row]:
        """Return the rows of the staged response, its own first, for the job to store."""


class BackgroundJob(Struct, eq=False):
    """A background response under way."""

    sink: ResponseSink
    queued_body: bytes
    """The response as the client got it at first."""
    frame_log: FrameLog
    source: ResponseSource | None = None
    """The upstream's stream, once it is open."""
    failure: ApiError | None = None
    task: "asyncio.Task[None] | None" = None

    @property
    def summary(self) -> Response | None:
        """Return ids, stop reasons and usage known so far."""
        return None if self.source is None else self.source.summary

    @property
    def losses(self) -> list[Loss]:
        """Return the losses known so far."""
        return [] if self.source is None else self.source.losses

    @property
    def final_body(self) -> bytes:
        """Return the body of the complete response, or one that reports the failure."""
        if self.failure is not None:
            return _with_failure(self.queued_body, self.failure, self.sink.adapter)
        return self.sink.completed_body or self.queued_body


class BackgroundJobs:
    """Runs background responses; `max_bytes` bounds the stream of each."""

    def __init__(self, store: StateStore, quota: Quota, max_bytes: int) -> None:
        self._store = store
        self._quota = quota
        self._max_bytes = max_bytes
        self._jobs: dict[tuple[str, str], BackgroundJob] = {}

    async def start(
        self, sink: ResponseSink, client: Codec, context: ResponseContext, open_response: ResponseOpener
    ) -> BackgroundJob:
        """Start a job; its id is stored before anything is sent upstream."""
        self._quota.acquire(sink.owner)
        try:
            job = await self._create_job(sink, client, context)
        except BaseException:
            self._quota.release(sink.owner)
            raise
        job.task = asyncio.ensure_future(self._run_job(job, open_response))
        self._jobs[sink.owner, sink.id] = job
        job.task.add_done_callback(lambda _: self._remove_job(sink))
        return job

    def _remove_job(self, sink: ResponseSink) -> None:
        """Remove a job that ended, and release its place in the quota."""
        self._jobs.pop((sink.owner, sink.id), None)
        self._quota.release(sink.owner)

    async def _create_job(self, sink: ResponseSink, client: Codec, context: ResponseContext) -> BackgroundJob:
        """Register the queued response, and create the job."""
        request = context.request
        empty = Response(
            origin="", id=sink.id, model=None if request is None else request.model, created=context.created
        )
        body = _decode(client.encode_response(empty, context).to_bytes(), type=dict[str, Raw])
        fields = _with_fields(body, status=sink.adapter.queued_status, background=True) | {
            sink.adapter.output_field: Raw(b"[]")
        }
        fields |= {"usage": Raw(b"null")} if "usage" in fields else {}
        queued_body = _encode(fields)
        await sink.register(queued_body)
        self._write_heartbeat(sink)
        return BackgroundJob(sink, queued_body, FrameLog(self._store, sink.owner, sink.adapter, sink.id, queued_body))

    async def read_frames(self, owner: str, adapter: StateAdapter, id: str, after: int) -> AsyncIterator[bytes]:
        """Yield the frames after this number, also of a job that another process runs."""
        if (job := self._jobs.get((owner, id))) is not None:
            async for data in job.frame_log.read_frames(after):
                yield data
            return
        reader = _StoredFrameReader(self._store, owner, id, after)
        with self._store.watch_children(owner, FRAMES_KIND, id) as wait_for_frames:
            while True:
                # Read the status before the frames: the last frames are stored before the response.
                record = (await self._store.get(owner, adapter.kind, [id])).get(id)
                response = (
                    None if record is None else await self.current_response(owner, adapter, id, _stored_body(record))
                )
                frames = await reader.read_new()
                is_running = response is not None and response_status(response) in RUNNING_STATUSES
                if not is_running and response is not None and not is_end_frame(adapter, reader.last_frame):
                    members = {adapter.event_type_field: adapter.end_event_for(bytes(response)), adapter.kind: response}
                    frames.append(encode_frame(adapter, members, reader.count))
                if frames:
                    yield b"".join(frames)
                if not is_running:
                    return
                await wait_for_frames()

    async def _run_job(self, job: BackgroundJob, open_response: ResponseOpener) -> None:
        """Run a job until it is complete, cancelled or deleted, with a heartbeat meanwhile."""
        sink, frame_log = job.sink, job.frame_log
        source_task = asyncio.ensure_future(self._read_source(job, open_response))
        try:
            while not (await asyncio.wait({source_task}, timeout=_HEARTBEAT_INTERVAL))[0]:
                if not await self._is_wanted(sink):
                    return
                self._write_heartbeat(sink)
                frame_log.store_frames()
            if await self._is_wanted(sink):
                await self._store_result(job)
        finally:
            source_task.cancel()
            frame_log.finish_instead(with_cancelled_status(Raw(job.queued_body)))
            self._store.enqueue_delete(sink.owner, _HEARTBEAT_KIND, sink.id)

    async def _store_result(self, job: BackgroundJob) -> None:
        """Store frames and response, and only then publish the end."""
        job.frame_log.finish(job.final_body, publish=False)
        if job.failure is None:
            job.sink.stage(job.final_body)
            rows = job.sink.take_staged_rows()
        else:
            rows = [job.sink.incomplete_row(job.final_body)]
        if await self._put_if_wanted(rows + job.frame_log.unstored_rows(), _STORE_PATIENCE):
            job.frame_log.publish_frames()

    def _write_heartbeat(self, sink: ResponseSink) -> None:
        """Record that this process is still running the job."""
        self._store.enqueue([Row(sink.owner, _HEARTBEAT_KIND, sink.id, str(time.time()).encode())])

    async def _read_source(self, job: BackgroundJob, open_response: ResponseOpener) -> None:
        """Open the upstream stream and add its frames to the log."""
        try:
            job.source = source = await open_response()
            try:
                await self._mark_in_progress(job)
                async for data in source.chunks():
                    job.frame_log.add_frames(data, publish=job.sink.completed_body is None)
                    if job.frame_log.size > self._max_bytes:
                        job.failure = _server_error(f"the response is larger than {self._max_bytes} bytes")
                        return
            finally:
                source.close()
            job.failure = source.error
        except RequestRejected as rejection:
            job.failure = rejection.error
        except Exception as error:  # noqa: BLE001 - any failure becomes the stored outcome of the job
            job.failure = _server_error(str(error) if isinstance(error, ToolwireError) else "internal error")
        if job.sink.completed_body is None and job.failure is None:
            job.failure = _server_error("the upstream closed the stream before the response was complete")

    async def _mark_in_progress(self, job: BackgroundJob) -> None:
        """Change the stored status from queued to in progress, unless the job was cancelled."""
        if job.sink.adapter.queued_status != _IN_PROGRESS:
            body = _encode(_with_fields(_decode(job.queued_body, type=dict[str, Raw]), status=_IN_PROGRESS))
            if await self._put_if_wanted([job.sink.incomplete_row(body)]):
                job.queued_body = body

    async def _put_if_wanted(self, rows: list[Row], patience: float = 0.0) -> bool:
        """Store rows, the response's first, unless it was deleted or cancelled; return whether it is wanted.

        While state is unavailable, try again for `patience` seconds. A separate check before the write would undo a
        cancellation that comes between the two.
        """
        deadline = time.monotonic() + patience
        while True:
            try:
                return await self._store.put_if(rows, is_running)
            except StateUnavailable:
                if time.monotonic() >= deadline:
                    return True
            await asyncio.sleep(_HEARTBEAT_INTERVAL)

    async def _is_wanted(self, sink: ResponseSink) -> bool:
        """Return whether the job's response was neither deleted nor cancelled; True if state is unavailable."""
        try:
            rows = await self._store.get(sink.owner, sink.adapter.kind, [sink.id])
        except StateUnavailable:
            return True
        return is_running(rows.get(sink.id))

    async def current_response(self, owner: str, adapter: StateAdapter, id: str, response: Raw) -> Raw:
        """Return a stored response body; if the process that was to complete it is gone, with status `failed`."""
        if response_status(response) not in RUNNING_STATUSES or (owner, id) in self._jobs:
            return response
        heartbeat = (await self._store.get(owner, _HEARTBEAT_KIND, [id])).get(id)
        created_at = _decode(response, type=dict[str, Any]).get("created_at")
        last_seen = (
            float(heartbeat) if heartbeat is not None else created_at if isinstance(created_at, int | float) else 0.0
        )
        return (
            response
            if time.time() - last_seen < _DEAD_AFTER
            else Raw(_with_failure(bytes(response), _STOPPED_ERROR, adapter))
        )

    def stop_job(self, owner: str, id: str) -> None:
        """Cancel a job, if this process runs it."""
        if (job := self._jobs.get((owner, id))) is not None and job.task is not None:
            job.task.cancel()

    def close(self) -> None:
        """Fail all jobs: the gateway is stopping."""
        for job in list(self._jobs.values()):
            job.failure = _STOPPED_ERROR
            job.frame_log.finish(job.final_body)
            job.frame_log.store_frames()
            self._store.enqueue([job.sink.incomplete_row(job.final_body)])
            self._store.enqueue_delete(job.sink.owner, _HEARTBEAT_KIND, job.sink.id)
            if job.task is not None:
                job.task.cancel()


class _StoredFrameReader:
    """Reads the stored frames of a job that another process runs or ran, each once."""

    def __init__(self, store: StateStore, owner: str, id: str, after: int) -> None:
        self.count = 0
        self.last_frame = b""
        self._store = store
        self._owner = owner
        self._id = id
        self._after = after
        self._last_row_id = ""

    async def read_new(self) -> list[bytes]:
        """Return the frames stored since the last call, without those that the client has seen."""
        rows = await self._store.children(self._owner, FRAMES_KIND, self._id, self._last_row_id)
        if not rows:
            return []
        frames = split_frames(rows)
        skipped = max(0, self._after + 1 - self.count)
        self._last_row_id, self.last_frame, self.count = rows[-1].id, frames[-1], self.count + len(frames)
        return frames[skipped:]


def _server_error(reason: str) -> ApiError:
    """Build an internal error."""
    return ApiError(kind="server", message=reason)


_STOPPED_ERROR = _server_error("the gateway was stopped before the response was complete")


def response_status(response: Raw) -> Any:
    """Return the `status` member of a response body; None if it has none."""
    return _decode(response, type=dict[str, Any]).get("status")


def is_running(record: bytes | None) -> bool:
    """Check whether a stored response is still being made: not deleted, cancelled or ended."""
    return record is not None and response_status(_stored_body(record)) in RUNNING_STATUSES


def with_cancelled_status(response: Raw) -> bytes:
    """Return the response with status `cancelled`."""
    return _encode(_with_fields(_decode(response, type=dict[str, Raw]), status="cancelled"))


def _stored_body(record: bytes) -> Raw:
    """Return the response body in a stored row."""
    return _decode(record, type=dict[str, Raw])["response"]


def _with_failure(body: bytes, error: ApiError, adapter: StateAdapter) -> bytes:
    """Return the response with status `failed` and this error."""
    fields = _decode(body, type=dict[str, Raw])
    return _encode(_with_fields(fields, status="failed", **adapter.failure_fields(error)))


def _with_fields(body: dict[str, Raw], **fields: Any) -> dict[str, Raw]:
    """Return the object with these fields set."""
    return body | {name: Raw(_encode(value)) for name, value in fields.items()}
