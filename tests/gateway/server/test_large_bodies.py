"""Large bodies: handled off the event loop, bounded, with errors in the client's protocol."""

import asyncio
import contextlib
import gzip
import json
import threading
import time
from functools import cache
from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import anthropic_response
from tests.support.codecs import decode_error
from tests.support.gateway.in_process import (
    PROTOCOL_NAMES,
    RunningGateway,
    one_provider_config,
    question_request,
    run_async,
    run_gateway,
    run_gateway_with,
)
from tests.support.servers.http_responses import CHAT_BODY, CHAT_RESPONSE, http_response
from tests.support.servers.upstream import ScriptedUpstream, read_http_request, reply_with, serve_upstream
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.exchange import token_count
from toolwire.gateway.limits import BodyBudget, BodyExecutor, _has_more_objects, check_values, is_heavy_body
from toolwire.gateway.server import dry_run, request
from toolwire.upstream.transport import request_head

MANY = 20_000
CHAT = "/v1/chat/completions"


def chat(messages: list[dict[str, Any]], **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": messages} | more).encode()


def turns(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[number % 2], "content": "x", **more} for number in range(count)]


@cache
def large_requests() -> dict[str, tuple[str, bytes]]:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 8_000_000}}
    contents = [{"role": ("user", "model")[number % 2], "parts": [{"text": "y"}]} for number in range(MANY)]
    return {
        "many messages": (CHAT, chat(turns(MANY))),
        "one long picture": (CHAT, chat([{"role": "user", "content": [picture]}])),
        "many contents": ("/v1beta/models/m:generateContent", json.dumps({"contents": contents}).encode()),
        "items of a conversation": ("/v1/conversations", json.dumps({"items": turns(MANY)}).encode()),
    }


LIMIT = 0.02
"""Seconds for which one request may occupy the event loop."""
ATTEMPTS = 5


async def measure(gateway: RunningGateway, path: str, body: bytes | None) -> tuple[int, bytes, float]:
    """Return the response to a POST (a GET without a body), and the longest busy time of the event loop.

    It is the CPU time of that thread. A busy machine can only prolong it, so a long one is measured again.
    """
    for _ in range(ATTEMPTS):
        status, data, longest = await measure_once(gateway, path, body)
        if longest < LIMIT:
            break
    return status, data, longest


async def measure_once(gateway: RunningGateway, path: str, body: bytes | None) -> tuple[int, bytes, float]:
    longest, ended = 0.0, False

    async def watch() -> None:
        nonlocal longest
        last = time.thread_time()
        while not ended:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    watching = asyncio.ensure_future(watch())
    if body is None:
        status, data = await gateway.get(path)
    else:
        response = await gateway.post(path, body)
        status, data = response.status, await response.read(100_000_000)
    ended = True
    await watching
    return status, data, longest


@pytest.mark.parametrize("target", ["anthropic", "openai-chat"])
@pytest.mark.parametrize("case", ["many messages", "one long picture", "many contents", "items of a conversation"])
def test_large_request_does_not_block_the_event_loop(case: str, target: str) -> None:
    """On the loop these took 100 ms to seconds; the test's upstream and client run on it, too."""
    path, body = large_requests()[case]
    upstream_body = CHAT_BODY if target == "openai-chat" else json.dumps(anthropic_response()).encode()

    async def work() -> None:
        responses = reply_with(*[http_response("200 OK", upstream_body)] * ATTEMPTS)
        async with (
            serve_upstream(responses) as origin,
            run_gateway(one_provider_config(origin, target, timeout=60)) as gateway,
        ):
            status, data, longest = await measure(gateway, path, body)
        assert status == 200, data
        assert longest < LIMIT

    run_async(work())


def test_long_history_does_not_block_the_event_loop() -> None:
    """Listing and continuing a stored response and a conversation."""
    upstream_body = json.dumps(anthropic_response()).encode()
    kinds = {"user": "input_text", "assistant": "output_text"}
    items = [
        {"type": "message", "role": turn["role"], "content": [{"type": kinds[turn["role"]], "text": "x"}]}
        for turn in turns(MANY)
    ]

    async def work() -> None:
        responses = reply_with(*[http_response("200 OK", upstream_body)] * 3 * ATTEMPTS)
        async with (
            serve_upstream(responses) as origin,
            run_gateway(one_provider_config(origin, "anthropic", timeout=60)) as gateway,
        ):

            async def ask(path: str, **body: Any) -> str:
                status, data, longest = await measure(gateway, path, json.dumps({"model": "m"} | body).encode())
                assert status == 200, data
                assert longest < LIMIT, path
                return str(json.loads(data)["id"])

            response = await ask("/v1/responses", input=items, store=True)
            await ask("/v1/responses", input="on", previous_response_id=response)
            conversation = await ask("/v1/conversations", items=items)
            await ask("/v1/responses", input="on", conversation=conversation)
            for path in (f"/v1/responses/{response}/input_items", f"/v1/conversations/{conversation}/items"):
                status, data, longest = await measure(gateway, f"{path}?after=none", None)
                assert status == 200, data
                assert longest < LIMIT, path

    run_async(work())


def test_large_response_does_not_block_the_event_loop() -> None:
    """It is decoded and encoded in a thread, correctly."""
    threads: set[str] = set()
    upstream_body = json.loads(CHAT_BODY)
    upstream_body["choices"][0]["message"]["content"] = "long " * 200_000

    async def work() -> None:
        async with run_gateway_with(
            ScriptedUpstream(http_response("200 OK", json.dumps(upstream_body).encode()))
        ) as gateway:
            executor = gateway.gateway.app._dispatcher.services.body_executor
            original_run = executor.run

            async def run_and_record(function: Any, *args: Any, heavy: bool) -> Any:
                def recorded(*args: Any) -> Any:
                    threads.add(threading.current_thread().name)
                    return function(*args)

                return await original_run(recorded, *args, heavy=heavy)

            executor.run = run_and_record  # type: ignore[method-assign]
            response = await gateway.send_question("anthropic")
            data = await response.read(10_000_000)
        text = json.loads(data)["content"][0]["text"]
        assert text == "long " * 200_000

    run_async(work())
    assert any(name.startswith("toolwire-body") for name in threads)


def test_small_bodies_are_handled_inline() -> None:
    async def work() -> None:
        executor = BodyExecutor()
        assert await executor.run(threading.current_thread, heavy=False) is threading.current_thread()
        assert executor._pool is None
        assert await executor.run(threading.current_thread, heavy=True) is not threading.current_thread()
        executor.close()

    run_async(work())


def test_heaviness_depends_on_objects_then_on_size() -> None:
    assert not is_heavy_body(b"{" * 30_000)
    assert is_heavy_body(b"{" * 40_000)
    assert not is_heavy_body(b"x" * 500_000)
    assert not is_heavy_body(b"{}" * 100)
    assert is_heavy_body(b"{}" * 50_000)
    assert is_heavy_body(b"x" * 600_000)


# ---- limits


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("limit", ["messages", "tools", "parts"])
def test_too_many_messages_tools_or_parts_are_rejected(protocol: str, limit: str) -> None:
    """The error is in the client's protocol and names the limit."""
    text = [{"type": "text", "text": "word"}] * (1_500 if limit == "parts" else 1)
    fields: dict[str, Any] = {
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
    path, _ = question_request(protocol)
    body = _translated(fields, protocol)
    if (protocol, limit) == ("openai-responses", "tools"):  # of which translation passes on only 128
        tools = [{"type": "function", **tool["function"]} for tool in fields["tools"]]
        body = json.dumps(json.loads(body) | {"tools": tools}).encode()

    async def work() -> None:
        async with run_gateway_with(
            ScriptedUpstream(CHAT_RESPONSE), extra_config=f"[limits]\n{limit} = 1000"
        ) as gateway:
            response = await gateway.post(path, body)
            data = await response.read(100_000)
        assert response.status == 413
        assert f"limits.{limit}" in decode_error(protocol, 413, data).message

    run_async(work())


def _translated(fields: dict[str, Any], protocol: str) -> bytes:
    return tw.translate(fields, "openai-chat", protocol, model="m", stream=False).to_bytes()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, b'{"model":"m","messages":[%b]}'),
        (CHAT, b'{"model":"m","messages":[],"unknown":[[],%b]}'),
        ("/v1/messages/count_tokens", b'{"model":"m","messages":[],"metadata":{"unknown":[%b]}}'),
        ("/toolwire/translate", b'{"protocol":"openai-chat","body":{"model":"m","messages":[%b]}}'),
        ("/v1/conversations", b'{"items":[],"metadata":[%b]}'),
    ],
)
def test_too_many_json_values_are_rejected_before_decoding(path: str, body: bytes) -> None:
    """15 million zeros were decoded by one C call, which blocked all threads for seconds."""

    async def work() -> None:
        async with run_gateway_with(
            ScriptedUpstream(CHAT_RESPONSE), extra_config="[limits]\nvalues = 10_000"
        ) as gateway:
            response = await gateway.post(path, body % b",".join([b"0"] * 20_000))
            data = await response.read(100_000)
        assert response.status == 413, data
        assert b"limits.values" in data

    run_async(work())


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (b'["%b"]' % (b"," * 5_000), False),
        (b'["%b"]' % (b'\\",[{' * 5_000), False),
        (b'["%b", 1]' % (b"\\\\" * 5_000), False),
        (b'["%b",%b 1]' % (b"\\\\" * 5_000, b"1," * 1_000), True),
        (b"[%b]" % b",".join([b'"a,b"'] * 1_001), True),
        (b"[%b]" % b",".join([b'"a,b"'] * 900), False),
        (b"[%b]" % (b"[]" * 2_000), True),
        (b'{"a":"%b' % (b"," * 5_000), False),
    ],
)
def test_values_are_counted_outside_strings(body: bytes, refused: bool) -> None:
    limits = LimitsSection(values=1_000)
    with pytest.raises(RequestRejected) if refused else contextlib.nullcontext():
        check_values(body, limits)


def test_too_many_losses_are_rejected() -> None:
    async def work() -> None:
        async with (
            serve_upstream(reply_with(http_response("200 OK", json.dumps(anthropic_response()).encode()))) as origin,
            run_gateway(one_provider_config(origin, "anthropic", "[limits]\nlosses = 100")) as gateway,
        ):
            response = await gateway.post(CHAT, chat(turns(200, zz=1)))
            data = await response.read(100_000)
        assert response.status == 400
        assert b"limits.losses" in data

    run_async(work())


def test_concurrent_large_bodies_are_bounded_in_bytes() -> None:
    """A second large request must retry while the first body is held; small ones are served."""
    body = chat([{"role": "user", "content": "x" * 2_000_000}])
    received, go_on = asyncio.Event(), asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            if len(await read_http_request(reader)) > 1_000_000:
                received.set()
                await go_on.wait()
            writer.write(CHAT_RESPONSE)
            await writer.drain()

    async def work() -> None:
        config = "[limits]\nbodies = 3_000_000"
        async with (
            serve_upstream(slow) as origin,
            run_gateway(one_provider_config(origin, extra_config=config, timeout=60)) as gateway,
        ):
            first = asyncio.ensure_future(gateway.post(CHAT, body))
            await received.wait()
            second = await gateway.post(CHAT, body)
            assert second.status == 503
            assert b"limits.bodies" in await second.read(10_000)
            small = await gateway.send_question("openai-chat")
            assert (small.status, await small.read(10_000)) == (200, CHAT_BODY)
            go_on.set()
            assert await (await first).read(10_000) == CHAT_BODY
            third = await gateway.post(CHAT, body)
            assert (third.status, await third.read(10_000)) == (200, CHAT_BODY)

    run_async(work())


def test_body_budget_counts_each_body_once() -> None:
    room = BodyBudget(3_000_000)
    assert room.reserve(0, 500_000) == 0
    reserved = room.reserve(0, 2_000_000)
    assert room.reserve(reserved, 2_500_000) == room.used == 2_500_000
    with pytest.raises(RequestRejected):
        room.reserve(0, 1_500_000)
    assert room.used == 2_500_000


def record_threads(monkeypatch: pytest.MonkeyPatch, module: Any, function: str) -> list[threading.Thread]:
    """Return a list to which each call of a function adds its thread."""
    threads: list[threading.Thread] = []
    original = getattr(module, function)

    def recorded(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return original(*args)

    monkeypatch.setattr(module, function, recorded)
    return threads


@pytest.mark.parametrize(
    ("module", "function", "path", "body"),
    [
        (token_count, "estimate_tokens", "/v1/messages/count_tokens", b"%b"),
        (dry_run, "_read_dry_run", "/toolwire/translate", b'{"protocol":"openai-chat","body":%b}'),
    ],
)
def test_large_bodies_of_other_endpoints_are_decoded_in_a_thread(
    module: Any, function: str, path: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Estimating the tokens of 15 million zeros blocked the event loop for 12 seconds."""
    threads = record_threads(monkeypatch, module, function)

    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE)) as gateway:
            response = await gateway.post(path, body % chat(turns(MANY)))
            assert (response.status, bool(await response.read(10_000_000))) == (200, True)

    run_async(work())
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


def test_compressed_body_is_decoded_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    body = chat([{"role": "user", "content": "x" * 3_000_000}])
    threads = record_threads(monkeypatch, request, "_decompress_body")

    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE)) as gateway:
            head = request_head(gateway.origin, CHAT, [("content-encoding", "gzip")], "POST")
            response = await gateway.transport.send(gateway.origin, head, gzip.compress(body), read_timeout=60)
            assert (response.status, await response.read(10_000)) == (200, CHAT_BODY)

    run_async(work())
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


@pytest.mark.parametrize("size", [0, 1, 1_999, 2_000, 2_001, 4_001, 60_000])
def test_objects_are_counted_up_to_a_limit(size: int) -> None:
    body = (b"x{" * size)[: size or 1]
    for most in (0, 1, max(0, size // 2 - 1), size // 2, size // 2 + 1):
        assert _has_more_objects(body, most) == (body.count(b"{") > most)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1beta/models/m:generateContent", {"contents": ["some words of text"] * 2_000}),
        ("/v1/responses", {"model": "m", "input": [{"type": "message", "role": "user", "content": "hi"}] * 2_000}),
        (
            "/v1/responses",
            {
                "model": "m",
                "input": [
                    {"type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": "{}"} for n in range(2_000)
                ],
            },
        ),
    ],
    ids=["strings", "messages", "calls of one message"],
)
def test_messages_are_counted_as_in_the_body(path: str, body: dict[str, Any]) -> None:
    async def work() -> None:
        async with run_gateway_with(
            ScriptedUpstream(CHAT_RESPONSE), extra_config="[limits]\nmessages = 1999"
        ) as gateway:
            answer = await gateway.post(path, json.dumps(body).encode())
            data = await answer.read(100_000)
        assert answer.status == 413, data
        assert b"limits.messages" in data

    run_async(work())
