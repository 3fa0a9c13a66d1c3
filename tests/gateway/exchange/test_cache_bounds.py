"""Caches with keys that clients choose are bounded in bytes, whatever the number and length of the keys."""

import tracemalloc
from collections.abc import Callable

import pytest

from tests.support.codecs import decode_error
from tests.support.gateway.in_process import (
    PROTOCOL_NAMES,
    one_provider_config,
    question_request,
    run_async,
    run_gateway_with,
    with_memory_state,
)
from tests.support.servers.http_responses import CHAT_RESPONSE
from tests.support.servers.upstream import ScriptedUpstream
from toolwire.codec.surface import EndpointMatch
from toolwire.gateway.config import parse_config
from toolwire.gateway.emulation import tool_search
from toolwire.gateway.errors import ModelNameTooLong
from toolwire.gateway.exchange.dispatcher import Dispatcher
from toolwire.gateway.exchange.routing import LIMIT_MODEL_NAME, Backend
from toolwire.gateway.server import auth, request
from toolwire.gateway.server.gateway import build_gateway
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import Origin

LIMIT = 2_500_000


def dispatcher_for(protocol: str) -> Dispatcher:
    config = with_memory_state(parse_config(one_provider_config(Origin("http", "127.0.0.1", 9), protocol), {}))
    return build_gateway(config, environment={"HOME": "/nonexistent"}).app._dispatcher


def growth(work: Callable[[int], object], times: int) -> int:
    """Return the bytes still allocated after this many calls."""
    work(0)
    tracemalloc.start()
    try:
        for number in range(1, times):
            work(number)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_overlong_model_name_is_refused_in_the_clients_protocol(protocol: str) -> None:
    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE)) as gateway:
            path, body = question_request(protocol, model="MODEL")
            longest, longer = "x" * LIMIT_MODEL_NAME, "x" * (LIMIT_MODEL_NAME + 1)
            for name, status in ((longest, 200), (longer, 400)):
                response = await gateway.post(path.replace("MODEL", name), body.replace(b"MODEL", name.encode()))
                assert response.status == status
            error = decode_error(protocol, 400, await response.read(10_000))
            assert error.message == "the model name has 513 characters, the limit is 512"

    run_async(work())


def test_route_cache_is_bounded() -> None:
    router = dispatcher_for("openai-chat").services.router
    assert growth(lambda number: router.route(f"up/{number:0500d}"), 20_000) < LIMIT
    with pytest.raises(ModelNameTooLong):
        router.route("x" * 5_000_000)


def test_envelope_key_cache_is_bounded() -> None:
    services = dispatcher_for("anthropic").services
    provider = services.router.providers["up"]
    assert growth(lambda number: services.envelope_key("t", Backend(provider, f"{number:0500d}")), 20_000) < LIMIT


def test_request_head_cache_is_bounded() -> None:
    services = dispatcher_for("gemini").services
    provider = services.router.providers["up"]

    def head(number: int) -> None:
        path, headers = f"/v1beta/models/{number:0500d}:generateContent", (("anthropic-beta", f"{number:04000d}"),)
        services.sender._request_head(provider, PROTOCOLS["gemini"], path, headers)

    assert growth(head, 6000) < LIMIT


def test_route_header_cache_is_bounded() -> None:
    codec = PROTOCOLS["anthropic"]

    def route(number: int) -> None:
        address = EndpointMatch(model=f"{number:060000d}")
        request.request_route(codec, address, {b"anthropic-beta": b"%060000d" % number, b"anthropic-version": b"1"})

    assert growth(route, 1000) < LIMIT


def test_host_cache_is_bounded() -> None:
    assert growth(lambda number: auth._host_of(f"{number:060000d}"), 1000) < 1_000_000
    assert auth._host_of("Example.org:80") == "example.org"


def test_tool_index_cache_is_bounded() -> None:
    def index(number: int) -> None:
        tool_search._index_for((("tool", f"{number:02500000d}", b"{}"),))

    assert growth(index, 20) < LIMIT
