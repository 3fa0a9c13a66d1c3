"""The exchange: tries and fall-backs before the first byte, losses told, and what is looked up beside it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.bodies import anthropic_request, anthropic_response
from tests.clock import Clock
from tests.gateway.running import NEVER, PROTOCOL_NAMES, Running, in_front_of, question, run, running
from tests.gateway.test_faults import BEGUN, STREAM, chunk, error_of, events_of, piece, told, whole
from tests.upstream.sockets import received, upstream
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import ResponseEnd, ResponseFailed
from toolwire.codec.interface import Context
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import Origin

FINE = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    }
).encode()
GOOD = whole("200 OK", FINE)
STREAMED = STREAM + piece(BEGUN) + piece(chunk({}, "stop") + b"data: [DONE]\n\n") + b"0\r\n\r\n"
BUSY = whole("503 Busy", told("busy"), more="retry-after: 0\r\n")


class Script:
    """An upstream that answers request after request with the next of its answers, and keeps what it was asked."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.asked: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            self.asked.append(await received(reader))
            writer.write(self.answers[min(len(self.asked), len(self.answers)) - 1])
            await writer.drain()

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(one.partition(b"\r\n\r\n")[2]) for one in self.asked]


@asynccontextmanager
async def in_front(*scripts: Script, more: str = "", options: str = "") -> AsyncIterator[Running]:
    """A gateway with these upstreams, one to fall back on after the other."""
    origins: list[Origin] = []
    async with _all(list(scripts), origins):
        providers = "\n".join(
            f'[providers.p{number}]\nprotocol = "openai-chat"\nbase_url = "http://{origin.authority}"\n'
            f'api_key = "secret-of-p{number}"'
            for number, origin in enumerate(origins)
        )
        names = ", ".join(f'"p{number}"' for number in range(len(origins)))
        async with running(f"{more}\n{providers}\n[[routes]]\nproviders = [{names}]\n{options}") as gateway:
            yield gateway


@asynccontextmanager
async def _all(scripts: list[Script], origins: list[Origin]) -> AsyncIterator[None]:
    if not scripts:
        yield
        return
    async with upstream(scripts[0]) as origin:
        origins.append(origin)
        async with _all(scripts[1:], origins):
            yield


# ---- tries


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_busy_upstream_is_asked_again(stream: bool, clock: Clock) -> None:
    async def work() -> None:
        script = Script(BUSY, BUSY, STREAMED if stream else GOOD)
        async with in_front(script) as gateway:
            answer = await clock.expire(gateway.ask("anthropic", stream=stream), step=0.1)
            body = await answer.read(10_000)
            assert answer.status == 200
            assert b"sunny" in body if stream else b"fine" in body
            assert len(script.asked) == 3
            assert script.bodies[0] == script.bodies[2]

    run(work())


@pytest.mark.parametrize("client", [name for name in PROTOCOL_NAMES if name != "openai-chat"])
def test_an_answer_that_failed_half_way_is_an_error(client: str) -> None:
    async def work() -> None:
        failed = json.loads(FINE)
        failed["choices"][0] |= {"finish_reason": "error", "error": {"code": 400, "message": "Too long"}}
        async with in_front(Script(whole("200 OK", json.dumps(failed).encode()))) as gateway:
            answer = await gateway.ask(client)
            body = await answer.read(10_000)
            if PROTOCOLS[client].failing:
                failure = PROTOCOLS[client].decode_response(body, Context()).error
                assert (answer.status, failure and failure.message) == (200, "Too long")
            else:
                assert (answer.status, error_of(client, 400, body).message) == (400, "Too long")

    run(work())


def test_an_upstream_that_stays_busy_is_given_up_and_its_word_passed_on() -> None:
    async def work() -> None:
        script = Script(whole("429 Slow down", told("too fast", "rate_limit_error"), more="retry-after: 33\r\n"))
        async with in_front(script) as gateway:
            answer = await gateway.ask("anthropic")
            assert (answer.status, answer.headers["retry-after"], len(script.asked)) == (429, "33", 1)
            assert error_of("anthropic", 429, await answer.read(10_000)).kind == "rate_limit"

    run(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "broken",
    [
        whole("500 Oh", told("went wrong")),
        whole("401 No", told("bad key", "authentication_error")),
        whole("404 No", told("no such model", "not_found_error")),
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        STREAM + piece(b"data: " + told("overloaded", "overloaded_error") + b"\n\n") + b"0\r\n\r\n",
    ],
    ids=["500", "401", "404", "empty", "error as the first event"],
)
def test_what_one_provider_can_not_do_the_next_one_does(broken: bytes, stream: bool) -> None:
    async def work() -> None:
        first, second = Script(broken), Script(STREAMED if stream else GOOD)
        async with in_front(first, second, more="[limits]\nretries = 0") as gateway:
            answer = await gateway.ask("openai-responses", stream=stream)
            body = await answer.read(100_000)
            assert answer.status == 200, body
            assert b"sunny" in body if stream else b"fine" in body
            assert (len(first.asked), len(second.asked)) == (1, 1)
            assert b"secret-of-p1" in second.asked[0]
            assert b"secret-of-p0" not in second.asked[0]

    run(work())


def test_what_the_request_is_at_fault_for_is_nobody_elses_to_try() -> None:
    async def work() -> None:
        first = Script(whole("400 Bad", told("temperature: too hot", "invalid_request_error")))
        second = Script(GOOD)
        async with in_front(first, second) as gateway:
            answer = await gateway.ask("gemini")
            assert answer.status == 400
            assert "too hot" in error_of("gemini", 400, await answer.read(10_000)).message
            assert (len(first.asked), len(second.asked)) == (1, 0)

    run(work())


def test_after_the_first_byte_nobody_else_is_asked() -> None:
    async def work() -> None:
        first, second = Script(STREAM + piece(BEGUN) + b"0\r\n\r\n"), Script(STREAMED)
        async with in_front(first, second) as gateway:
            wire = await (await gateway.ask("anthropic", stream=True)).read(10_000)
            assert any(isinstance(event, ResponseFailed) for event in events_of("anthropic", wire))
            assert second.asked == []

    run(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_whole_answer_to_a_streamed_request_is_streamed(protocol: str) -> None:
    async def work() -> None:
        async with in_front(Script(GOOD)) as gateway:
            wire = await (await gateway.ask(protocol, stream=True)).read(10_000)
            assert b"fine" in wire
            assert isinstance(events_of(protocol, wire)[-1], ResponseEnd)

    run(work())


# ---- losses


LOSSY = {
    "model": "m",
    "max_tokens": 100,
    "top_k": 4,
    "container": "c_1",
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "citations": None, "wählt": "ü"}]}],
}


def test_losses_are_told_in_a_header_and_by_exchange_to_the_same_key_only() -> None:
    async def work() -> None:
        keys = '[server]\nkeys = ["first-key-1", "second-key-2"]'
        async with in_front(Script(GOOD), more=keys) as gateway:
            body = json.dumps(LOSSY).encode()
            answer = await gateway.post("/v1/messages", body, x_api_key="first-key-1")
            header = json.loads(answer.headers["toolwire-losses"])
            assert "/container" in [loss["path"] for loss in header["losses"]]
            assert answer.headers["toolwire-losses"].isascii()
            path = f"/toolwire/exchanges/{answer.headers['toolwire-exchange']}/losses"
            status, found = await gateway.get(path, x_api_key="first-key-1")
            assert status == 200
            assert [loss["path"] for loss in json.loads(found)["losses"]] == [loss["path"] for loss in header["losses"]]
            assert (await gateway.get(path, x_api_key="second-key-2"))[0] == 404
            assert (await gateway.get(path))[0] == 401

    run(work())


def test_a_strict_request_is_refused_before_anything_is_sent() -> None:
    async def work() -> None:
        script = Script(GOOD)
        async with in_front(script) as gateway:
            answer = await gateway.post("/v1/messages", json.dumps(LOSSY).encode(), toolwire_strict="refuse")
            assert answer.status == 400
            assert "/" in error_of("anthropic", 400, await answer.read(10_000)).message
            assert script.asked == []
        async with in_front(script, options="strict = true") as gateway:
            assert (await gateway.post("/v1/messages", json.dumps(LOSSY).encode())).status == 400
            assert script.asked == []

    run(work())


def test_a_dry_run_says_what_would_be_sent() -> None:
    async def work() -> None:
        script = Script(GOOD)
        async with in_front(script) as gateway:
            asked = json.dumps({"protocol": "anthropic", "body": LOSSY}).encode()
            answer = await gateway.post("/toolwire/translate", asked)
            found = json.loads(await answer.read(10_000))
            assert (found["provider"], found["protocol"], found["address"]) == (
                "p0",
                "openai-chat",
                "/v1/chat/completions",
            )
            assert found["body"]["messages"][0]["role"] == "user"
            assert "/container" in [loss["path"] for loss in found["losses"]]
            assert script.asked == []
            assert (await gateway.post("/toolwire/translate", b'{"protocol":"smtp","body":{}}')).status == 400
            assert (await gateway.post("/toolwire/translate", b"nonsense")).status == 400

    run(work())


# ---- silence


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_silent_upstream_does_not_make_a_silent_stream(protocol: str, clock: Clock) -> None:
    async def work() -> None:
        go_on = asyncio.Event()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await received(reader)
            writer.write(STREAM + piece(BEGUN))
            await go_on.wait()
            writer.write(piece(chunk({}, "stop") + b"data: [DONE]\n\n") + b"0\r\n\r\n")
            await reader.read()

        async with upstream(slow) as origin:
            config = in_front_of(origin, more="[limits]\nheartbeat = 10", timeout=NEVER)
            async with running(config) as gateway:
                answer = await gateway.ask(protocol, stream=True)
                pieces = [await answer.next()]
                while b"sunny" not in b"".join(pieces):
                    pieces.append(await answer.next())
                pieces += [await clock.expire(answer.next()) for _ in range(3)]  # beats: the upstream says nothing
                go_on.set()
                pieces += [piece async for piece in answer.chunks()]
            events = events_of(protocol, b"".join(pieces))
            assert isinstance(events[-1], ResponseEnd)

    run(work())


# ---- addresses


@pytest.mark.parametrize(
    ("path", "headers", "protocol"),
    [
        ("/v1/nothing", {}, "openai-chat"),
        ("/v1/nothing", {"anthropic-version": "2023-06-01"}, "anthropic"),
        ("/v1/messages/x", {}, "anthropic"),
        ("/v1beta/nothing", {}, "gemini"),
        ("/v1/nothing", {"x-goog-api-key": "k"}, "gemini"),
        ("/v1beta/interactions/x/y", {}, "gemini-interactions"),
        ("/api/nothing", {}, "ollama"),
        ("/api/v1/nothing", {}, "openrouter"),
        ("/v1/responses/x/y", {}, "openai-responses"),
    ],
)
def test_an_unknown_path_is_answered_in_the_protocol_so_recognised(
    path: str, headers: dict[str, str], protocol: str
) -> None:
    async def work() -> None:
        async with in_front(Script(GOOD)) as gateway:
            status, body = await gateway.get(path, **headers)
            assert status == 404
            error = error_of(protocol, 404, body)
            assert path in error.message
            expected = ApiError(kind="not_found", message=error.message, status=404)
            assert body == PROTOCOLS[protocol].encode_error(expected).to_bytes()

    run(work())


def test_query_strings_are_tolerated() -> None:
    async def work() -> None:
        async with in_front(Script(GOOD)) as gateway:
            _, body = question("anthropic")
            assert (await gateway.post("/v1/messages?beta=true", body)).status == 200

    run(work())


def test_what_happened_is_counted() -> None:
    async def work() -> None:
        async with in_front(Script(GOOD)) as gateway:
            await (await gateway.ask("anthropic")).read(10_000)
            await (await gateway.post("/v1/messages", b"{")).read(10_000)
            status, body = await gateway.get("/metrics")
            text = body.decode()
            assert status == 200
            assert 'toolwire_requests_total{client="anthropic",provider="p0",status="200"} 1' in text
            assert 'toolwire_requests_total{client="anthropic",provider="",status="400"} 1' in text
            assert 'toolwire_tokens_total{provider="p0",kind="output"} 4' in text
            assert "toolwire_request_seconds_count 2" in text
            assert (await gateway.get("/healthz"))[0] == 200

    run(work())


def test_ollama_streams_unless_told_not_to() -> None:
    async def work() -> None:
        script = Script(STREAMED, GOOD)
        async with in_front(script) as gateway:
            body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
            answer = await gateway.post("/api/chat", json.dumps(body).encode())
            assert answer.headers["content-type"] == "application/x-ndjson"
            assert b"sunny" in await answer.read(10_000)
            answer = await gateway.post("/api/chat", json.dumps({**body, "stream": False}).encode())
            assert b"fine" in await answer.read(10_000)
            assert [one.get("stream") for one in script.bodies] == [True, False]

    run(work())


def test_a_whole_number_reaches_the_client_as_the_integer_that_its_schema_says() -> None:
    schema = {"type": "object", "properties": {"days": {"type": "integer"}}}
    asked = {
        "model": "m",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Go."}],
        "tools": [{"name": "forecast", "input_schema": schema}],
    }
    call = {"id": "call_1", "type": "function", "function": {"name": "forecast", "arguments": '{"days": 3.0}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    answered = {"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}

    async def work() -> None:
        async with in_front(Script(whole("200 OK", json.dumps(answered).encode()))) as gateway:
            answer = await gateway.post("/v1/messages", json.dumps(asked).encode())
            assert b'"input":{"days": 3}' in await answer.read(10_000)

    run(work())


def test_an_answer_that_may_not_lose_its_guard_is_refused() -> None:
    check = {"id": "sc_1", "code": "malicious_instructions", "message": "Look first."}
    call = {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "call_1",
        "status": "completed",
        "action": {"type": "click", "x": 1, "y": 2, "button": "left"},
        "pending_safety_checks": [check],
    }
    answered = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [call]}

    async def work() -> None:
        script = Script(whole("200 OK", json.dumps(answered).encode()))
        async with upstream(script) as origin, running(in_front_of(origin, "openai-responses")) as gateway:
            answer = await gateway.ask("anthropic")
            assert answer.status == 400
            assert "pending_safety_checks" in error_of("anthropic", 400, await answer.read(10_000)).message

    run(work())


def test_what_a_client_uses_of_its_protocol_is_said_to_a_provider_of_the_same() -> None:
    said = {"anthropic-beta": "one-2026-01-01,two-2026-02-02", "anthropic-version": "2026-06-01", "x-else": "kept back"}
    body = json.dumps(anthropic_request()).encode()
    good = whole("200 OK", json.dumps(anthropic_response()).encode())

    async def head_at(protocol: str, more: str = "") -> str:
        script = Script(good if protocol == "anthropic" else GOOD)
        async with upstream(script) as origin:
            config = in_front_of(origin, protocol).replace("timeout", f"{more}\ntimeout")
            async with running(config) as gateway:
                answer = await gateway.post("/v1/messages", body, **said)
                await answer.read(100_000)
                assert answer.status == 200
        return script.asked[0].partition(b"\r\n\r\n")[0].decode().lower()

    async def work() -> None:
        head = await head_at("anthropic") + "\r\n"
        assert "\r\nanthropic-beta: one-2026-01-01,two-2026-02-02\r\n" in head
        assert "\r\nanthropic-version: 2026-06-01\r\n" in head
        assert "kept back" not in head
        also = await head_at("anthropic", 'headers = {"anthropic-beta" = "own-2026-03-03"}')
        assert "anthropic-beta: own-2026-03-03,one-2026-01-01,two-2026-02-02" in also
        assert "anthropic" not in await head_at("openai-chat")

    run(work())
