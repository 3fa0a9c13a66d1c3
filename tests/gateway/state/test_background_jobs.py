"""Background jobs: what remains in the store, and following them from another process."""

import asyncio
import contextlib
import json
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from tests.support.gateway.in_process import one_provider_config, run_async, run_gateway
from tests.support.gateway.state_store import AMPLE_BOUNDS
from tests.support.servers.http_responses import CHAT_STREAM
from tests.support.servers.upstream import read_http_request, reply_with, serve_upstream
from toolwire.codec.framing import SseSplitter
from toolwire.gateway.limits import Quota
from toolwire.gateway.state.adapters import STATE_ADAPTERS
from toolwire.gateway.state.background_jobs import FRAMES_KIND, BackgroundJobs, encode_frame, with_cancelled_status
from toolwire.gateway.state.conversations import StoredResponse
from toolwire.gateway.state.sqlite_store import SqliteStateStore
from toolwire.gateway.state.store import Row

RESPONSE = STATE_ADAPTERS["openai-responses"]


async def never_respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_http_request(reader)
    await reader.read()


def test_cancelled_job_leaves_no_heartbeat(tmp_path: Path) -> None:
    """The heartbeat row is deleted with the job."""
    path = tmp_path / "state.db"

    def signs() -> int:
        with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection:
            count: int = connection.execute("SELECT count(*) FROM kept WHERE kind = 'running'").fetchone()[0]
            return count

    async def work() -> None:
        async with serve_upstream(never_respond) as origin:
            config = one_provider_config(origin, extra_config=f'[state]\npath = "{path}"\n', timeout=60)
            async with run_gateway(config) as gateway:
                request_body = json.dumps({"model": "m", "input": "think", "background": True}).encode()
                response = await gateway.post("/v1/responses", request_body)
                id = json.loads(await response.read(1_000_000))["id"]
                while signs() != 1:  # noqa: ASYNC110 - another thread writes the file
                    await asyncio.sleep(0.01)
                cancelled = await gateway.post(f"/v1/responses/{id}/cancel", b"")
                assert json.loads(await cancelled.read(1_000_000))["status"] == "cancelled"
                while signs():  # noqa: ASYNC110 - another thread writes the file
                    await asyncio.sleep(0.01)

    run_async(work())


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_cancellation_that_comes_while_the_answer_is_being_stored_is_not_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    """Another process cancels when the answer is complete, right before or after this one looks."""
    cancelled, read_rows = asyncio.Event(), SqliteStateStore.get

    async def get_then_cancel(store: SqliteStateStore, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]:
        found = await read_rows(store, owner, kind, ids)
        if kind == "response" and not cancelled.is_set():
            (record,) = [msgspec.json.decode(body, type=StoredResponse) for body in found.values()]
            body = msgspec.json.encode(replace(record, response=Raw(with_cancelled_status(record.response))))
            await store.put([Row(owner, kind, ids[0], body)])
            cancelled.set()
        return await read_rows(store, owner, kind, ids) if is_seen else found

    async def work() -> None:
        async with serve_upstream(reply_with(CHAT_STREAM)) as origin:
            config = one_provider_config(origin, extra_config=f'[state]\npath = "{tmp_path / "state.db"}"\n')
            async with run_gateway(config) as gateway:
                monkeypatch.setattr(SqliteStateStore, "get", get_then_cancel)
                asked = json.dumps({"model": "m", "input": "think", "background": True, "stream": True}).encode()
                answer = await gateway.post("/v1/responses", asked)
                events = decode_frames(await answer.read(1_000_000))
                assert cancelled.is_set()
                assert events[-1]["response"]["status"] == "cancelled"
                _, stored = await gateway.get(f"/v1/responses/{events[-1]['response']['id']}")
                assert json.loads(stored)["status"] == "cancelled"

    run_async(work())


def test_response_that_ends_while_it_is_being_cancelled_stays_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job stores its response after the cancellation has looked whether the job is still running."""
    released, read_lineage = asyncio.Event(), SqliteStateStore.lineage

    async def respond_when_released(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_http_request(reader)
        await released.wait()
        writer.write(CHAT_STREAM)
        await reader.read()

    async def work() -> None:
        async with serve_upstream(respond_when_released) as origin, run_gateway(one_provider_config(origin)) as gateway:

            async def end_then_read_lineage(store: SqliteStateStore, owner: str, kind: str, id: str) -> list[Row]:
                released.set()
                while json.loads((await gateway.get(f"/v1/responses/{id}"))[1])["status"] != "completed":  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
                return await read_lineage(store, owner, kind, id)

            request_body = json.dumps({"model": "m", "input": "think", "background": True}).encode()
            id = json.loads(await (await gateway.post("/v1/responses", request_body)).read(1_000_000))["id"]
            monkeypatch.setattr(SqliteStateStore, "lineage", end_then_read_lineage)
            answer = await gateway.post(f"/v1/responses/{id}/cancel", b"")
            assert released.is_set()
            assert json.loads(await answer.read(1_000_000))["status"] == "completed"
            assert json.loads((await gateway.get(f"/v1/responses/{id}"))[1])["status"] == "completed"

    run_async(work())


def decode_frames(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(data) for data in SseSplitter().feed(stream) if data != b"[DONE]"]


class Counting(SqliteStateStore):
    """A store that counts the frame rows it reads."""

    frames = 0

    async def children(self, owner: str, kind: str, parent: str, after: str = "") -> list[Row]:
        rows = await super().children(owner, kind, parent, after)
        self.frames += len(rows)
        return rows


def frames(count: int) -> list[bytes]:
    events: list[dict[str, Any]] = [
        {"type": "response.output_text.delta", "delta": f"{number}"} for number in range(count - 1)
    ]
    last = {"type": "response.completed", "response": {"id": "r", "status": "completed"}}
    return [encode_frame(RESPONSE, members, number) for number, members in enumerate([*events, last])]


def response_row(status: str) -> Row:
    events = {"id": "r", "status": status, "background": True, "created_at": time.time()}
    return Row("me", "response", "r", msgspec.json.encode(StoredResponse([], Raw(msgspec.json.encode(events)))))


def follow(path: Path, after: int, written_frames: Sequence[bytes]) -> tuple[list[bytes], int]:
    """Follow a job that another process runs; return the frames, and the number of rows read."""
    read_frames: list[bytes] = []

    async def work() -> None:
        maker, store = SqliteStateStore(str(path), AMPLE_BOUNDS), Counting(str(path), AMPLE_BOUNDS)
        await maker.put([response_row("in_progress")])
        read = asyncio.Event()

        async def follows() -> None:
            async for data in BackgroundJobs(store, Quota("answers", 10, 10), 1_000_000).read_frames(
                "me", RESPONSE, "r", after
            ):
                read_frames.append(data)
                read.set()

        following = asyncio.ensure_future(follows())
        for number, frame in enumerate(written_frames):
            read.clear()
            await maker.put([Row("me", FRAMES_KIND, f"r/{number:09}", frame, "r")])
            if number == len(written_frames) - 1:
                await maker.put([response_row("completed")])
            if number > after:
                await read.wait()
        await following
        counts.append(store.frames)
        maker.close()
        store.close()

    counts: list[int] = []
    run_async(work())
    return read_frames, counts[0]


def test_follower_reads_each_frame_once(tmp_path: Path) -> None:
    """N frames take n row reads, not n squared."""
    written_frames = frames(12)
    read_frames, read = follow(tmp_path / "state.db", -1, written_frames)
    assert (b"".join(read_frames), read) == (b"".join(written_frames), 12)


def test_follower_resumes_after_a_frame(tmp_path: Path) -> None:
    written_frames = frames(6)
    read_frames, read = follow(tmp_path / "state.db", 2, written_frames)
    assert (b"".join(read_frames), read) == (b"".join(written_frames[3:]), 6)
