"""Quotas of streams and websockets, in total and per key, and the size of websocket histories."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from tests.support.codecs import decode_error
from tests.support.gateway.in_process import PROTOCOL_NAMES, RunningGateway, run_async, run_stalled_gateway
from tests.support.servers.upstream import StalledUpstream
from toolwire.gateway.config import ConfigError, parse_config
from toolwire.gateway.state.conversations import ConnectionState, HistoryMemo

KEYS = '[server]\nkeys = ["first-key-1", "second-key-2"]\n'


def websocket(gateway: RunningGateway, key: str = "any") -> connect:
    url = f"ws://{gateway.origin.authority}/v1/responses"
    return connect(url, additional_headers={"authorization": f"Bearer {key}"})


async def ask(socket: ClientConnection, stream_id: str = "", said: str = "Hi", **more: Any) -> dict[str, Any]:
    """Send a request and return the first event of its response."""
    frame = {"type": "response.create", "model": "m", "input": said, "store": False, "stream_id": stream_id, **more}
    await socket.send(json.dumps({name: value for name, value in frame.items() if value != ""}))
    return await event(socket)


async def event(socket: ClientConnection) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(await socket.recv())
    return decoded


async def streams(gateway: RunningGateway) -> int:
    samples = dict(line.rsplit(b" ", 1) for line in (await gateway.get("/metrics"))[1].splitlines())
    return int(samples[b"toolwire_streams"])


def test_websocket_streams_count_towards_the_limit() -> None:
    async def work() -> None:
        stalled = StalledUpstream()
        async with (
            run_stalled_gateway(stalled, "[limits]\nstreams = 3\n") as gateway,
            websocket(gateway) as socket,
        ):
            assert (await ask(socket, "a"))["type"] == "response.created"
            assert (await ask(socket, "b"))["type"] in ("response.created", "response.in_progress")
            posted = await gateway.send_question("anthropic", stream=True)
            assert posted.status == 200
            assert await streams(gateway) == 3
            refused = await ask(socket, "c")
            while refused["stream_id"] != "c":
                refused = await event(socket)
            assert refused["type"] == "error"
            assert refused["status"] == 503
            assert "too many streams" in refused["error"]["message"]
            assert (await gateway.send_question("anthropic", stream=True)).status == 503
            stalled.released.set()
            await posted.read(100_000)
            ended = set[str]()
            while ended != {"a", "b"}:
                if (last_event := await event(socket))["type"] == "response.completed":
                    ended.add(last_event["stream_id"])
            assert (await ask(socket, "a"))["type"] == "response.created"

    run_async(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_one_key_can_not_take_all_streams(protocol: str) -> None:
    async def work() -> None:
        stalled = StalledUpstream()
        async with run_stalled_gateway(stalled, KEYS + "[limits]\nstreams = 5\n") as gateway:
            first = [await gateway.send_question(protocol, stream=True, x_api_key="first-key-1") for _ in range(2)]
            refused = await gateway.send_question(protocol, stream=True, x_api_key="first-key-1")
            assert refused.status == 429
            error = decode_error(protocol, 429, await refused.read(10_000))
            assert "this key already has 2 streams, its share (limits.key_share)" in error.message
            second = await gateway.send_question(protocol, stream=True, x_api_key="second-key-2")
            assert [response.status for response in (*first, second)] == [200] * 3
            stalled.released.set()
            await first[0].read(100_000)
            assert (await gateway.send_question(protocol, stream=True, x_api_key="first-key-1")).status == 200

    run_async(work())


@pytest.mark.parametrize(
    ("keys", "share", "statuses"),
    [(KEYS, "", [101, 429]), (KEYS, "key_share = 1.0", [101, 101, 503]), ("", "", [101, 101, 503])],
)
def test_one_key_can_not_take_all_websockets(keys: str, share: str, statuses: list[int]) -> None:
    async def work() -> None:
        async with run_stalled_gateway(StalledUpstream(), f"{keys}[limits]\nsockets = 2\n{share}\n") as gateway:
            seen: list[int] = []
            sockets = []
            while seen[-1:] in ([], [101]):
                try:
                    sockets.append(await websocket(gateway, "first-key-1"))
                    seen.append(101)
                except InvalidStatus as refused:
                    seen.append(refused.response.status_code)
            assert seen == statuses
            if statuses[-1] == 429:
                async with websocket(gateway, "second-key-2"):
                    pass
            for socket in sockets:
                await socket.close()

    run_async(work())


def test_one_key_can_not_take_all_background_responses() -> None:
    async def work() -> None:
        stalled = StalledUpstream()
        async with run_stalled_gateway(stalled, KEYS + "[limits]\nstreams = 4\n") as gateway:
            body = json.dumps({"model": "m", "input": "Hi", "background": True}).encode()
            keys = ["first-key-1"] * 3 + ["second-key-2"]
            responses = [await gateway.post("/v1/responses", body, x_api_key=key) for key in keys]
            assert [response.status for response in responses] == [200, 200, 429, 200]
            id = json.loads(await responses[0].read(10_000))["id"]
            stalled.released.set()
            status = "queued"
            while status in ("queued", "in_progress"):
                decoded = await gateway.get(f"/v1/responses/{id}?stream=true", x_api_key="first-key-1")
                status = json.loads((await gateway.get(f"/v1/responses/{id}", x_api_key="first-key-1"))[1])["status"]
            assert decoded[0] == 200
            assert status == "completed"
            again = 429
            while again == 429:
                again = (await gateway.post("/v1/responses", body, x_api_key="first-key-1")).status
            assert again == 200

    run_async(work())


@pytest.mark.parametrize("share", ["0", "-0.5", "1.5"])
def test_key_share_must_be_a_fraction(share: str) -> None:
    with pytest.raises(ConfigError, match=r"limits\.key_share: expected a number greater than 0 and at most 1"):
        parse_config(f"[limits]\nkey_share = {share}", {})


def test_history_over_the_body_limit_is_not_kept() -> None:
    async def work() -> None:
        async with (
            run_stalled_gateway(StalledUpstream(), "[limits]\nbody = 8000\n") as gateway,
            websocket(gateway) as socket,
        ):
            previous: str | None = None
            for turn in range(1, 4):
                created = await ask(socket, said="x" * 3000, generate=False, previous_response_id=previous)
                if turn == 3:
                    assert created["type"] == "response.created"
                previous = created["response"]["id"]
                while (await event(socket))["type"] != "response.completed":
                    pass
            refused = await ask(socket, generate=False, previous_response_id=previous)
            assert refused["type"] == "error"
            assert refused["error"]["code"] == "previous_response_not_found"

    run_async(work())


def items(size: int) -> list[Raw]:
    return msgspec.json.decode(b'["%b", "%b"]' % (b"x" * (size - 4 - 1), b"y"), type=list[Raw])


def test_histories_are_bounded_and_evicted_by_last_use() -> None:
    histories = HistoryMemo(250, max_entry=100)
    one, other = ConnectionState(histories), ConnectionState(histories)
    one.store_history("a", "r1", items(100))
    one.store_history("b", "r2", items(100))
    assert one.find_history("r1") == items(100)
    other.store_history("a", "r3", items(100))
    assert one.find_history("r2") is None
    assert one.find_history("r1") == other.find_history("r3") == items(100)
    assert other.find_history("r1") is None
    one.store_history("a", "r4", items(101))
    assert one.find_history("r4") is one.find_history("r1") is None
    assert other.find_history("r3") == items(100)
    other.close()
    other.store_history("a", "r5", items(10))
    assert other.find_history("r5") is None
    for name in ("a", "b"):
        one.store_history(name, name, items(100))
    assert one.find_history("a") == one.find_history("b") == items(100)
