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
from toolwire.gateway.state.store import Row, SqliteStateStore

RESPONSE = STATE_ADAPTERS["openai-responses"]


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_http_request(reader)
    await reader.read()


def test_q_18_a_cancelled_answer_leaves_no_sign_of_life(tmp_path: Path) -> None:
    """Q-18: the row that says "somebody works on it" goes when nobody does."""
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


def test_a_cancellation_that_comes_while_the_answer_is_being_stored_is_not_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process cancels right after this one has looked whether the answer is still wanted."""
    cancelled, read_rows = asyncio.Event(), SqliteStateStore.get

    async def get_then_cancel(store: SqliteStateStore, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]:
        found = await read_rows(store, owner, kind, ids)
        if kind == "response" and not cancelled.is_set():
            (record,) = [msgspec.json.decode(body, type=StoredResponse) for body in found.values()]
            body = msgspec.json.encode(replace(record, answer=Raw(with_cancelled_status(record.answer))))
            await store.put([Row(owner, kind, ids[0], body)])
            cancelled.set()
        return found

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


def decode_frames(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(data) for data in SseSplitter().feed(stream) if data != b"[DONE]"]


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


def test_q_19_each_frame_is_read_once_by_who_follows(tmp_path: Path) -> None:
    """Q-19: an answer of n frames is n rows, not n squared."""
    told = frames(12)
    got, read = follow(tmp_path / "state.db", -1, told)
    assert (b"".join(got), read) == (b"".join(told), 12)


def test_who_follows_from_a_frame_on_gets_what_is_behind_it(tmp_path: Path) -> None:
    told = frames(6)
    got, read = follow(tmp_path / "state.db", 2, told)
    assert (b"".join(got), read) == (b"".join(told[3:]), 6)
