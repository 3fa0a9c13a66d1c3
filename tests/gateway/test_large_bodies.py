"""Large bodies: off the event loop, bounded in number and in what they hold, with errors of the client's protocol."""

import asyncio
import gzip
import json
import threading
import time
from typing import Any

import pytest

import toolwire as tw
from tests.bodies import anthropic_response
from tests.gateway.running import PROTOCOL_NAMES, Running, in_front_of, question, run, running
from tests.gateway.test_exchange import FINE, GOOD, Script, in_front
from tests.gateway.test_faults import error_of, whole
from tests.upstream.sockets import answering, received, upstream
from toolwire.gateway.offload import BodyRoom, Offload, is_heavy
from toolwire.gateway.refusal import Refused
from toolwire.upstream.transport import head_of

MANY = 20_000
CHAT = "/v1/chat/completions"


def chat(messages: list[dict[str, Any]], **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": messages} | more).encode()


def turns(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[number % 2], "content": "x", **more} for number in range(count)]


LARGE = {
    "many messages": (CHAT, chat(turns(MANY))),
    "one long picture": (
        CHAT,
        chat(
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 8_000_000}}
                    ],
                }
            ]
        ),
    ),
    "many contents": (
        "/v1beta/models/m:generateContent",
        json.dumps(
            {"contents": [{"role": ("user", "model")[n % 2], "parts": [{"text": "y"}]} for n in range(MANY)]}
        ).encode(),
    ),
}


async def measured(gateway: Running, path: str, body: bytes) -> tuple[int, bytes, float]:
    """The answer, and the longest time that the event loop's own thread worked at a stretch: its CPU time, which no
    other process and no other thread adds to."""
    longest, ended = 0.0, False

    async def watch() -> None:
        nonlocal longest
        last = time.thread_time()
        while not ended:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    watching = asyncio.ensure_future(watch())
    answer = await gateway.post(path, body)
    data = await answer.read(100_000_000)
    ended = True
    await watching
    return answer.status, data, longest


@pytest.mark.parametrize("target", ["anthropic", "openai-chat"])
@pytest.mark.parametrize("case", LARGE)
def test_s_12_and_q_17_a_large_request_does_not_hold_the_event_loop(case: str, target: str) -> None:
    """On the loop these took from 100 ms to seconds; the upstream and the client of the test run on it, too."""
    path, body = LARGE[case]
    told = FINE if target == "openai-chat" else json.dumps(anthropic_response()).encode()

    async def work() -> None:
        answers = answering(whole("200 OK", told))
        async with upstream(answers) as origin, running(in_front_of(origin, target, timeout=60)) as gateway:
            status, data, longest = await measured(gateway, path, body)
        assert status == 200, data
        assert longest < 0.05

    run(work())


def test_q_17_a_large_answer_does_not_hold_the_event_loop() -> None:
    """Decoded and encoded by a thread, and correct."""
    threads: set[str] = set()
    text = json.loads(FINE)
    text["choices"][0]["message"]["content"] = "long " * 200_000

    async def work() -> None:
        async with in_front(Script(whole("200 OK", json.dumps(text).encode()))) as gateway:
            offload = gateway.gateway.app._exchanger._offload
            run_there = offload.run

            async def noting(body: bytes, work: Any, *args: Any) -> Any:
                def noted(*args: Any) -> Any:
                    threads.add(threading.current_thread().name)
                    return work(*args)

                return await run_there(body, noted, *args)

            offload.run = noting  # type: ignore[method-assign]
            answer = await gateway.ask("anthropic")
            data = await answer.read(10_000_000)
        told = json.loads(data)["content"][0]["text"]
        assert told == "long " * 200_000

    run(work())
    assert any(name.startswith("toolwire-body") for name in threads)


def test_small_bodies_are_dealt_with_at_once() -> None:
    async def work() -> None:
        offload = Offload()
        assert await offload.run(b"{}" * 100, threading.current_thread) is threading.current_thread()
        assert await offload.run(b"x" * 200_000, threading.current_thread) is threading.current_thread()
        assert offload._pool is None
        assert await offload.run(b"{}" * 50_000, threading.current_thread) is not threading.current_thread()
        offload.close()

    run(work())


def test_heavy_is_a_matter_of_objects_then_of_size() -> None:
    assert not is_heavy(b"{" * 30_000)
    assert is_heavy(b"{" * 40_000)
    assert not is_heavy(b"x" * 500_000)
    assert is_heavy(b"x" * 600_000)


# ---- bounds


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("limit", ["messages", "tools", "parts"])
def test_s_12_too_many_messages_tools_or_parts_are_refused(protocol: str, limit: str) -> None:
    """With an error of the client's protocol that names the limit."""
    text = [{"type": "text", "text": "word"}] * (1_500 if limit == "parts" else 1)
    said = {
        "model": "m",
        "messages": [
            {"role": ("user", "assistant")[number % 2], "content": text}
            for number in range(1_501 if limit == "messages" else 1)
        ],
        "tools": [
            {"type": "function", "function": {"name": f"tool_{number}", "parameters": {"type": "object"}}}
            for number in range(1_500 if limit == "tools" else 1)
        ],
    }
    path, _ = question(protocol)
    body = _translated(said, protocol)

    async def work() -> None:
        async with in_front(Script(GOOD), more=f"[limits]\n{limit} = 1000") as gateway:
            answer = await gateway.post(path, body)
            data = await answer.read(100_000)
        assert answer.status == 413
        assert f"limits.{limit}" in error_of(protocol, 413, data).message

    run(work())


def _translated(said: dict[str, Any], protocol: str) -> bytes:
    return tw.translate(said, "openai-chat", protocol, model="m", stream=False).to_bytes()


def test_s_12_more_losses_than_can_be_reported_are_refused() -> None:
    async def work() -> None:
        async with (
            upstream(answering(whole("200 OK", json.dumps(anthropic_response()).encode()))) as origin,
            running(in_front_of(origin, "anthropic", "[limits]\nlosses = 100")) as gateway,
        ):
            answer = await gateway.post(CHAT, chat(turns(200, zz=1)))
            data = await answer.read(100_000)
        assert answer.status == 400
        assert b"limits.losses" in data

    run(work())


def test_s_12_large_bodies_at_once_are_bounded_in_bytes() -> None:
    """A second large request is told to come back while the first one's body is held; small ones are served."""
    body = chat([{"role": "user", "content": "x" * 2_000_000}])
    got, go_on = asyncio.Event(), asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            if len(await received(reader)) > 1_000_000:
                got.set()
                await go_on.wait()
            writer.write(GOOD)
            await writer.drain()

    async def work() -> None:
        config = "[limits]\nbodies = 3_000_000"
        async with upstream(slow) as origin, running(in_front_of(origin, more=config, timeout=60)) as gateway:
            first = asyncio.ensure_future(gateway.post(CHAT, body))
            await got.wait()
            second = await gateway.post(CHAT, body)
            assert second.status == 503
            assert b"limits.bodies" in await second.read(10_000)
            small = await gateway.ask("openai-chat")
            assert (small.status, await small.read(10_000)) == (200, FINE)
            go_on.set()
            assert await (await first).read(10_000) == FINE
            third = await gateway.post(CHAT, body)
            assert (third.status, await third.read(10_000)) == (200, FINE)

    run(work())


def test_room_for_bodies_counts_each_once() -> None:
    room = BodyRoom(3_000_000)
    assert room.take(0, 500_000) == 0
    held = room.take(0, 2_000_000)
    assert room.take(held, 2_500_000) == room.taken == 2_500_000
    with pytest.raises(Refused):
        room.take(0, 1_500_000)
    assert room.taken == 2_500_000


def test_s_12_a_packed_body_is_unpacked_in_a_thread() -> None:
    body = chat([{"role": "user", "content": "x" * 3_000_000}])

    async def work() -> None:
        async with in_front(Script(GOOD)) as gateway:
            head = head_of(gateway.origin, CHAT, [("content-encoding", "gzip")], "POST")
            answer = await gateway.transport.send(gateway.origin, head, gzip.compress(body), silence=60)
            assert answer.status == 200

    run(work())
