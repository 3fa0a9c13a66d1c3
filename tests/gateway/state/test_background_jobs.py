"""Answers in the background: what is left of them in the store, and how they are followed from another process."""

import asyncio
import contextlib
import json
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from tests.support.gateway.in_process import one_provider_config, run_async, run_gateway
from tests.support.gateway.state_store import AMPLE_BOUNDS
from tests.support.servers.upstream import read_http_request, serve_upstream
from toolwire.gateway.limits import Quota
from toolwire.gateway.state.adapters import STATE_ADAPTERS
from toolwire.gateway.state.background_jobs import FRAMES_KIND, BackgroundJobs, encode_frame
from toolwire.gateway.state.conversations import StoredResponse
from toolwire.gateway.state.store import Row, SqliteStateStore

RESPONSE = STATE_ADAPTERS["openai-responses"]


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_http_request(reader)
    await reader.read()


def test_cancelled_job_leaves_no_heartbeat(tmp_path: Path) -> None:
    """The heartbeat row is deleted when the job ends."""
    path = tmp_path / "state.db"

    def signs() -> int:
        with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection:
            found: int = connection.execute("SELECT count(*) FROM kept WHERE kind = 'running'").fetchone()[0]
            return found

    async def work() -> None:
        async with serve_upstream(silent) as origin:
            config = one_provider_config(origin, extra_config=f'[state]\npath = "{path}"\n', timeout=60)
            async with run_gateway(config) as gateway:
                asked = json.dumps({"model": "m", "input": "think", "background": True}).encode()
                answer = await gateway.post("/v1/responses", asked)
                id = json.loads(await answer.read(1_000_000))["id"]
                while signs() != 1:  # noqa: ASYNC110 - another thread writes the file
                    await asyncio.sleep(0.01)
                cancelled = await gateway.post(f"/v1/responses/{id}/cancel", b"")
                assert json.loads(await cancelled.read(1_000_000))["status"] == "cancelled"
                while signs():  # noqa: ASYNC110 - another thread writes the file
                    await asyncio.sleep(0.01)

    run_async(work())


class Counting(SqliteStateStore):
    """Counts the rows of frames that it reads."""

    frames = 0

    async def children(self, owner: str, kind: str, parent: str, after: str = "") -> list[Row]:
        rows = await super().children(owner, kind, parent, after)
        self.frames += len(rows)
        return rows


def frames(count: int) -> list[bytes]:
    told: list[dict[str, Any]] = [
        {"type": "response.output_text.delta", "delta": f"{number}"} for number in range(count - 1)
    ]
    last = {"type": "response.completed", "response": {"id": "r", "status": "completed"}}
    return [encode_frame(RESPONSE, members, number) for number, members in enumerate([*told, last])]


def answer(status: str) -> Row:
    told = {"id": "r", "status": status, "background": True, "created_at": time.time()}
    return Row("me", "response", "r", msgspec.json.encode(StoredResponse([], Raw(msgspec.json.encode(told)))))


def follow(path: Path, after: int, told: Sequence[bytes]) -> tuple[list[bytes], int]:
    """What one gets who follows an answer that another process makes frame by frame, and how many rows it read."""
    got: list[bytes] = []

    async def work() -> None:
        maker, store = SqliteStateStore(str(path), AMPLE_BOUNDS), Counting(str(path), AMPLE_BOUNDS)
        await maker.put([answer("in_progress")])
        read = asyncio.Event()

        async def follows() -> None:
            async for data in BackgroundJobs(store, Quota("answers", 10, 10), 1_000_000).read_frames(
                "me", RESPONSE, "r", after
            ):
                got.append(data)
                read.set()

        following = asyncio.ensure_future(follows())
        for number, frame in enumerate(told):
            read.clear()
            await maker.put([Row("me", FRAMES_KIND, f"r/{number:09}", frame, "r")])
            if number == len(told) - 1:
                await maker.put([answer("completed")])
            if number > after:
                await read.wait()
        await following
        counts.append(store.frames)
        maker.close()
        store.close()

    counts: list[int] = []
    run_async(work())
    return got, counts[0]


def test_follower_reads_each_frame_once(tmp_path: Path) -> None:
    """Following a response of n frames reads n rows, not n squared."""
    told = frames(12)
    got, read = follow(tmp_path / "state.db", -1, told)
    assert (b"".join(got), read) == (b"".join(told), 12)


def test_who_follows_from_a_frame_on_gets_what_is_behind_it(tmp_path: Path) -> None:
    told = frames(6)
    got, read = follow(tmp_path / "state.db", 2, told)
    assert (b"".join(got), read) == (b"".join(told[3:]), 6)
