"""Failover between the backends of a route: order, weight, breakers and larger contexts."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.support.assertions import non_empty
from tests.support.codecs import decode_error
from tests.support.gateway.in_process import RunningGateway, question_request, run_async, run_gateway
from tests.support.servers.http_responses import (
    BUSY_RESPONSE,
    CHAT_RESPONSE,
    CHAT_STREAM,
    SSE_HEAD,
    STREAM_START,
    http_response,
    openai_error_body,
    transfer_chunk,
)
from tests.support.servers.upstream import Handler, ScriptedUpstream, read_http_request, serve_upstream
from toolwire.canonical.content import Message, Text
from toolwire.canonical.request import Request
from toolwire.gateway.config import RouteSection
from toolwire.gateway.exchange.failover import order_backends
from toolwire.gateway.exchange.routing import Backend, RouteMatch
from toolwire.upstream.provider import Provider

OVERFLOW = http_response(
    "400 Bad Request",
    json.dumps(
        {
            "error": {
                "message": "This model's maximum context length is 8 tokens",
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
            }
        }
    ).encode(),
)
FAILURE = http_response("500 Oh", openai_error_body("went wrong"))
INVALID = http_response("400 Bad Request", openai_error_body("bad value", "invalid_request_error"))


@asynccontextmanager
async def run_with_backends(
    *upstreams: Handler, entries: Sequence[str] = (), options: str = "", extra: str = ""
) -> AsyncIterator[RunningGateway]:
    """Run a gateway whose route lists these upstreams as backends p0, p1, ..., with the given settings."""
    async with AsyncExitStack() as stack:
        providers, backends = "", []
        for number, upstream in enumerate(upstreams):
            origin = await stack.enter_async_context(serve_upstream(upstream))
            providers += f'[providers.p{number}]\nprotocol = "openai-chat"\nbase_url = "http://{origin.authority}"\n'
            settings = entries[number] if entries else f'model = "m{number}"'
            backends.append(f'{{provider = "p{number}", {settings}}}')
        config = f"{extra}\n{providers}[[routes]]\n{options}\nbackends = [{', '.join(backends)}]\n"
        yield await stack.enter_async_context(run_gateway(config))


def test_each_backend_gets_its_own_model() -> None:
    async def work() -> None:
        first, second = ScriptedUpstream(FAILURE), ScriptedUpstream(CHAT_RESPONSE)
        async with run_with_backends(first, second) as gateway:
            assert (await gateway.send_question("anthropic")).status == 200
        assert [first.bodies[0]["model"], second.bodies[0]["model"]] == ["m0", "m1"]

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_client_errors_do_not_fail_over(stream: bool) -> None:
    async def work() -> None:
        first, second = ScriptedUpstream(INVALID), ScriptedUpstream(CHAT_RESPONSE)
        async with run_with_backends(first, second) as gateway:
            response = await gateway.send_question("anthropic", stream=stream)
            assert (response.status, second.requests) == (400, [])

    run_async(work())


def test_context_overflow_goes_on_to_a_larger_context() -> None:
    """A backend with a smaller or unknown context is not tried."""

    async def work() -> None:
        first, small, unknown, large = (ScriptedUpstream(*[one]) for one in (OVERFLOW, *[CHAT_RESPONSE] * 3))
        entries = ['model = "a", context = 1000', 'model = "b", context = 1000', 'model = "c"', 'model = "listed"']
        extra = '[models."listed"]\ncontext = 2000\n'
        async with run_with_backends(first, small, unknown, large, entries=entries, extra=extra) as gateway:
            assert (await gateway.send_question("anthropic")).status == 200
        # The provider of the unknown model was only asked for the model's facts.
        assert not any(b"POST" in request for request in [*small.requests, *unknown.requests])
        assert (len(first.requests), len(large.requests)) == (1, 1)

    run_async(work())


def test_context_overflow_without_a_larger_context_is_reported() -> None:
    async def work() -> None:
        first, second = ScriptedUpstream(OVERFLOW), ScriptedUpstream(CHAT_RESPONSE)
        entries = ["context = 1000", "context = 500"]
        async with run_with_backends(first, second, entries=entries) as gateway:
            response = await gateway.send_question("anthropic")
            error = decode_error("anthropic", response.status, await response.read(10_000))
        assert (error.kind, response.status, second.requests) == ("context_length", 400, [])

    run_async(work())


def test_backend_that_keeps_failing_is_skipped_and_shown() -> None:
    async def work() -> None:
        first, second = ScriptedUpstream(FAILURE), ScriptedUpstream(CHAT_RESPONSE)
        async with run_with_backends(first, second, extra="[limits]\nfailures = 2\n") as gateway:
            for _ in range(4):
                assert (await gateway.send_question("anthropic")).status == 200
            _, metrics = await gateway.get("/metrics")
        assert (len(first.requests), len(second.requests)) == (2, 4)
        assert b'toolwire_breakers_open{provider="p0",model="m0"} 1\n' in metrics
        assert b'toolwire_failovers_total{provider="p0",reason="server"} 2\n' in metrics

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_breaker_closes_when_the_probe_succeeds(stream: bool) -> None:
    async def work() -> None:
        success = CHAT_STREAM if stream else CHAT_RESPONSE
        first, second = ScriptedUpstream(FAILURE, success), ScriptedUpstream(success)
        async with run_with_backends(first, second, extra="[limits]\nfailures = 1\ncooldown = 0\n") as gateway:
            for _ in range(3):
                response = await gateway.send_question("anthropic", stream=stream)
                assert response.status == 200
                await response.read(100_000)
            _, metrics = await gateway.get("/metrics")
        assert (len(first.requests), len(second.requests)) == (3, 1)
        assert b'toolwire_breakers_open{provider="p0",model="m0"} 0\n' in metrics

    run_async(work())


def test_streams_that_break_after_their_first_byte_open_the_breaker() -> None:
    async def work() -> None:
        async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_http_request(reader)
            writer.write(SSE_HEAD + transfer_chunk(STREAM_START))
            await writer.drain()

        second = ScriptedUpstream(CHAT_STREAM)
        async with run_with_backends(cut, second, extra="[limits]\nfailures = 2\n") as gateway:
            for _ in range(3):
                response = await gateway.send_question("anthropic", stream=True)
                data = await response.read(100_000)
        assert b"event: error" not in data
        assert len(second.requests) == 1

    run_async(work())


def test_fallback_that_refuses_the_losses_does_not_hide_the_failure() -> None:
    async def work() -> None:
        first, second = ScriptedUpstream(FAILURE), ScriptedUpstream(CHAT_RESPONSE)
        async with serve_upstream(first) as one, serve_upstream(second) as two:
            config = f"""
[providers.a]
protocol = "anthropic"
base_url = "http://{one.authority}"
[providers.b]
protocol = "openai-chat"
base_url = "http://{two.authority}"
[[routes]]
strict = true
providers = ["a", "b"]
"""
            body = {"model": "m", "max_tokens": 9, "top_k": 4, "messages": [{"role": "user", "content": "Hi"}]}
            async with run_gateway(config) as gateway:
                response = await gateway.post("/v1/messages", json.dumps(body).encode())
                assert (response.status, b"went wrong" in await response.read(10_000)) == (500, True)
        assert second.requests == []

    run_async(work())


def test_first_byte_timeout_fails_over_while_pings_arrive() -> None:
    """The provider is not silent, but sends no content."""

    async def work() -> None:
        left = asyncio.Event()

        async def ping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_http_request(reader)
            writer.write(SSE_HEAD)
            while not writer.is_closing():
                writer.write(transfer_chunk(b": ping\n\n"))
                await asyncio.sleep(0.01)
            left.set()

        second = ScriptedUpstream(CHAT_STREAM)
        entries = ['model = "m0", timeout = 0.1', 'model = "m1"']
        async with run_with_backends(ping, second, entries=entries) as gateway:
            response = await gateway.send_question("anthropic", stream=True)
            assert b"sunny" in await response.read(100_000)
            await left.wait()

    run_async(work())


def test_first_byte_timeout_fails_over_before_the_head() -> None:
    async def work() -> None:
        async def stay_silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await read_http_request(reader)
            await reader.read()

        second = ScriptedUpstream(CHAT_RESPONSE)
        entries = ['model = "m0", timeout = 0.1', 'model = "m1"']
        async with run_with_backends(stay_silent, second, entries=entries) as gateway:
            assert (await gateway.send_question("anthropic")).status == 200

    run_async(work())


# ---- weight


def backends(*weights: float) -> tuple[Backend, ...]:
    return tuple(
        Backend(Provider(name=f"p{number}", protocol="openai-chat", base_url="http://127.0.0.1:1"), "m", weight=weight)
        for number, weight in enumerate(weights)
    )


def conversation(text: str, *later: str) -> Request:
    messages = [Message(role="user", parts=(Text(text=one),)) for one in (text, *later)]
    return Request(origin="openai-chat", model="m", messages=tuple(messages))


BY_WEIGHT = RouteSection(providers=("p0", "p1", "p2"), balance="weight")


def first_choice(weights: Sequence[float], request: Request, tenant: str = "") -> str:
    return order_backends(RouteMatch(backends(*weights), BY_WEIGHT), request, tenant)[0].provider.name


def test_conversations_are_balanced_by_weight() -> None:
    counts = Counter(first_choice((1, 3, 0), conversation(f"question {number}")) for number in range(2000))
    assert set(counts) == {"p0", "p1"}
    assert 0.70 < counts["p1"] / 2000 < 0.80


def test_conversation_stays_at_its_backend() -> None:
    for number in non_empty(range(50)):
        text = f"question {number}"
        assert first_choice((1, 1, 1), conversation(text)) == first_choice((1, 1, 1), conversation(text, "and then?"))


def test_tenants_are_balanced_apart() -> None:
    chosen = {first_choice((1, 1, 1), conversation("Hi"), f"tenant {number}") for number in range(50)}
    assert chosen == {"p0", "p1", "p2"}


def test_removed_backend_moves_only_its_own_conversations() -> None:
    for number in non_empty(range(100)):
        request = conversation(f"question {number}")
        before = first_choice((1, 1, 1), request)
        assert before == "p2" or first_choice((1, 1, 0), request) == before


def test_backend_without_weight_is_the_last_fallback() -> None:
    for number in non_empty(range(20)):
        order = order_backends(RouteMatch(backends(0, 1, 1), BY_WEIGHT), conversation(f"{number}"), "")
        assert order[-1].provider.name == "p0"


def test_conversation_without_text_goes_anywhere() -> None:
    request = Request(origin="openai-chat", model="m", messages=())
    assert {first_choice((1, 1, 1), request) for _ in range(200)} == {"p0", "p1", "p2"}


def test_conversation_is_sent_to_one_of_several_accounts() -> None:
    async def work() -> None:
        upstreams = [ScriptedUpstream(CHAT_RESPONSE) for _ in range(3)]
        entries = ["weight = 1"] * 3
        async with run_with_backends(*upstreams, entries=entries, options='balance = "weight"') as gateway:
            for _ in range(5):
                assert (await gateway.send_question("anthropic")).status == 200
            for number in range(30):
                path, body = question_request("openai-chat", text=f"question {number}")
                assert (await gateway.post(path, body)).status == 200
        counts = [_count_questions(upstream) for upstream in upstreams]
        assert sorted(count["What is the weather in Paris?"] for count in counts) == [0, 0, 5]
        assert all(counts)

    run_async(work())


def _count_questions(upstream: ScriptedUpstream) -> Counter[Any]:
    return Counter(body["messages"][0]["content"] for body in upstream.bodies)


def test_busy_backend_is_retried_before_failover() -> None:
    async def work() -> None:
        first, second = ScriptedUpstream(BUSY_RESPONSE), ScriptedUpstream(CHAT_RESPONSE)
        async with run_with_backends(first, second) as gateway:
            assert (await gateway.send_question("anthropic")).status == 200
        assert (len(first.requests), len(second.requests)) == (3, 1)

    run_async(work())
