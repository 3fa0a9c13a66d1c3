"""The gateway as a model of the runtime: canonical events, decoded once, with failures and failover."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from tests.support.gateway.in_process import run_async, with_memory_state
from tests.support.servers.http_responses import (
    CHAT_RESPONSE,
    CHAT_STREAM,
    SSE_HEAD,
    STREAM_START,
    http_response,
    openai_error_body,
    transfer_chunk,
)
from tests.support.servers.upstream import ScriptedUpstream, read_http_request, serve_upstream
from toolwire.canonical.content import Message, Text
from toolwire.canonical.events import Event, ResponseEnd, ResponseStart
from toolwire.canonical.fold import fold
from toolwire.canonical.request import Request
from toolwire.canonical.tools import HostedTool, NativeTool
from toolwire.gateway.config import parse_config
from toolwire.gateway.in_process import GatewayModel, open_model
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.model import ModelFailed

Upstream = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
QUESTION = Request(origin="", messages=(Message(role="user", parts=(Text(text="What is the weather?"),)),))


@asynccontextmanager
async def model_of(*upstreams: Upstream) -> AsyncIterator[GatewayModel]:
    """Open a model of these upstreams, each the fallback of the one before."""
    async with AsyncExitStack() as stack:
        config = "[limits]\nretries = 0\n"
        for number, upstream in enumerate(upstreams):
            origin = await stack.enter_async_context(serve_upstream(upstream))
            config += f'[providers.p{number}]\nprotocol = "openai-chat"\nbase_url = "http://{origin.authority}"\n'
            config += f'api_key = "secret-of-p{number}"\n'
        names = ", ".join(f'"p{number}"' for number in range(len(upstreams)))
        config += f"[[routes]]\nproviders = [{names}]"
        model = await open_model("m", with_memory_state(parse_config(config, {})), {"HOME": "/nonexistent"})
        stack.push_async_callback(model.close)
        yield model


async def collect(model: GatewayModel, events: list[Event]) -> None:
    async for event in model.stream(QUESTION):
        events += [event]


async def events_of(model: GatewayModel) -> list[Event]:
    events: list[Event] = []
    await collect(model, events)
    return events


def text_of(events: list[Event]) -> str:
    parts = fold(events).candidates[0].messages[0].parts
    return "".join(part.text for part in parts if isinstance(part, Text))


@pytest.mark.parametrize("response", [CHAT_STREAM, CHAT_RESPONSE], ids=["stream", "body instead of a stream"])
def test_turn_arrives_as_canonical_events(response: bytes) -> None:
    async def work() -> None:
        async with model_of(ScriptedUpstream(response)) as model:
            events = await events_of(model)
        assert isinstance(events[0], ResponseStart)
        assert isinstance(events[-1], ResponseEnd)
        assert text_of(events) in ("It is sunny", "fine")

    run_async(work())


def test_stream_of_a_turn_is_decoded_once_and_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    codec = PROTOCOLS["openai-chat"]

    def count(kind: str, make: Any) -> Any:
        def make_and_count(*args: Any) -> Any:
            made.append(kind)
            return make(*args)

        return make_and_count

    counted = replace(
        codec,
        stream_decoder=count("decoder", codec.stream_decoder),
        stream_encoder=count("encoder", codec.stream_encoder),
    )
    monkeypatch.setattr("toolwire.gateway.in_process.PROTOCOLS", {"openai-chat": counted})

    async def work() -> None:
        async with model_of(ScriptedUpstream(CHAT_STREAM)) as model:
            assert text_of(await events_of(model)) == "It is sunny"

    run_async(work())
    assert made == ["decoder"]


def test_cut_stream_fails_after_its_events() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_http_request(reader)
        writer.write(SSE_HEAD + transfer_chunk(STREAM_START))
        await writer.drain()
        writer.close()

    async def work() -> None:
        events: list[Event] = []
        async with model_of(cut) as model:
            with pytest.raises(ModelFailed, match=r"p0: .* closed the connection"):
                await collect(model, events)
        assert isinstance(events[0], ResponseStart)

    run_async(work())


def test_failure_before_the_first_event_tries_the_fallback() -> None:
    async def work() -> None:
        busy = ScriptedUpstream(http_response("503 Busy", openai_error_body("busy")))
        async with model_of(busy, ScriptedUpstream(CHAT_STREAM)) as model:
            assert text_of(await events_of(model)) == "It is sunny"
        assert len(busy.requests) == 1

    run_async(work())


def test_secrets_are_redacted_from_a_failure_within_the_stream() -> None:
    failed = b'data: {"error": {"message": "key secret-of-p0 is wrong", "type": "server_error"}}\n\n'

    async def work() -> None:
        stream = SSE_HEAD + transfer_chunk(STREAM_START) + transfer_chunk(failed) + b"0\r\n\r\n"
        async with model_of(ScriptedUpstream(stream)) as model:
            with pytest.raises(ModelFailed) as failure:
                await events_of(model)
        assert "secret-of-p0" not in str(failure.value)
        assert "is wrong" in str(failure.value)

    run_async(work())


@pytest.mark.parametrize(("option", "is_marked"), [("", True), ('cache = "off"', False)])
def test_requests_of_agents_are_marked_for_the_cache_of_anthropic(option: str, is_marked: bool) -> None:
    async def work() -> None:
        script = ScriptedUpstream(http_response("401 Unauthorized", b"{}"))
        async with serve_upstream(script) as origin:
            config = (
                f'[providers.p]\nprotocol = "anthropic"\nbase_url = "http://{origin.authority}"\napi_key = "secret"\n'
            )
            config += f'[[routes]]\nprovider = "p"\n{option}'
            model = await open_model("m", with_memory_state(parse_config(config, {})), {"HOME": "/nonexistent"})
            with pytest.raises(ModelFailed):
                await events_of(model)
            await model.close()
        assert (b'"cache_control":{"type":"ephemeral"}' in script.requests[0]) is is_marked

    run_async(work())


def test_support_of_a_hosted_tool_is_remembered() -> None:
    async def work() -> None:
        hosted = HostedTool(kind="web_search")
        tool = NativeTool(protocol="", kind="web_search", name="web_search", body=Raw(b"{}"), hosted=hosted)
        async with model_of(ScriptedUpstream()) as model:
            found = model.hosted_support(tool, has_functions=True)
            assert found.unsupported is not None
            assert model.hosted_support(tool, has_functions=True) is found
            assert model.hosted_support(tool, has_functions=False) is not found

    run_async(work())
