"""The model catalog, against a server on loopback."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.clock import Clock
from tests.support.deadlines import DEADLINE, wait_until_async
from tests.support.servers.http_responses import http_response
from tests.support.servers.upstream import read_http_request, serve_upstream
from toolwire.codec.models.info import ModelInfo
from toolwire.upstream.models import catalog as module
from toolwire.upstream.models.catalog import ModelCatalog
from toolwire.upstream.provider import Origin, Provider
from toolwire.upstream.transport import Transport


@pytest.fixture(autouse=True)
def _long_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the server as much time as a slow machine needs."""
    monkeypatch.setattr(module, "ASK_TIMEOUT", DEADLINE)


class ListServer:
    """A server with a list of models that answers when it is released."""

    def __init__(self, entry: Any, status: str = "200 OK") -> None:
        self.paths: list[str] = []
        self.released = asyncio.Event()
        self._response = http_response(status, json.dumps(entry).encode())

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await read_http_request(reader)
            self.paths.append(head.split(b" ")[1].decode())
            await self.released.wait()
            writer.write(self._response)
            await writer.drain()


def provider_at(origin: Origin, protocol: str = "openai-chat") -> Provider:
    return Provider(name="up", protocol=protocol, base_url=f"http://{origin.authority}")


def test_concurrent_requests_share_one_question() -> None:
    async def work() -> None:
        server, transport = ListServer({"max_model_len": 4096}), Transport()
        async with serve_upstream(server) as origin:
            catalog, provider = ModelCatalog(transport), provider_at(origin)
            assert catalog.look_up(provider, "a/b c").info.context is None
            questions = [asyncio.create_task(catalog.ask(provider, "a/b c")) for _ in range(5)]
            server.released.set()
            assert {entry.info.context for entry in await asyncio.gather(*questions)} == {4096}
            assert (await catalog.ask(provider, "a/b c")).is_answered
            assert catalog.look_up(provider, "a/b c").info.context == 4096
        transport.close()
        assert server.paths == ["/v1/models/a/b%20c"]

    asyncio.run(work())


def test_client_that_leaves_does_not_end_the_question() -> None:
    async def work() -> None:
        server, transport = ListServer({"max_model_len": 4096}), Transport()
        async with serve_upstream(server) as origin:
            catalog, provider = ModelCatalog(transport), provider_at(origin)
            first, second = (asyncio.create_task(catalog.ask(provider, "m")) for _ in range(2))
            await wait_until_async(lambda: server.paths)
            first.cancel()
            await asyncio.wait([first])
            server.released.set()
            assert (await second).info.context == 4096
            assert first.cancelled()
        transport.close()
        assert len(server.paths) == 1

    asyncio.run(work())


def test_provider_without_an_answer_is_asked_again_later(clock: Clock) -> None:
    async def work() -> None:
        server, transport = ListServer({"error": "no"}, "404 Not Found"), Transport()
        server.released.set()
        async with serve_upstream(server) as origin:
            catalog, provider = ModelCatalog(transport), provider_at(origin)
            for _ in range(2):
                assert not (await catalog.ask(provider, "m")).is_answered
            assert len(server.paths) == 1
            clock.advance(module.RETRY_AFTER)
            assert not (await catalog.ask(provider, "m")).is_answered
        transport.close()
        assert len(server.paths) == 2

    asyncio.run(work())


def test_silent_provider_does_not_delay_a_request_for_long(clock: Clock) -> None:
    async def work() -> None:
        server, transport = ListServer({}), Transport()
        async with serve_upstream(server) as origin:
            question = asyncio.create_task(ModelCatalog(transport).ask(provider_at(origin, "ollama"), "m"))
            await wait_until_async(lambda: server.paths)
            assert not question.done()
            clock.advance(module.ASK_TIMEOUT)
            entry = await question
        transport.close()
        assert not entry.is_answered

    asyncio.run(work())


def test_configuration_wins_over_the_provider_and_the_name() -> None:
    async def work() -> None:
        server, transport = ListServer({"max_model_len": 4096, "max_completion_tokens": 512}), Transport()
        server.released.set()
        configured = {"up/gpt-4*": ModelInfo(context=99), "gpt-4*": ModelInfo(context=1)}
        async with serve_upstream(server) as origin:
            info = (await ModelCatalog(transport, configured).ask(provider_at(origin), "gpt-4o")).info
        transport.close()
        assert (info.context, info.output, info.thinking) == (99, 512, "never")

    asyncio.run(work())


def test_entries_of_many_names_are_forgotten() -> None:
    transport = Transport()
    catalog, provider = ModelCatalog(transport), Provider(name="up", protocol="anthropic", base_url="http://127.0.0.1")
    first = catalog.look_up(provider, "first")
    assert catalog.look_up(provider, "first") is first
    for number in range(300):
        catalog.look_up(provider, f"{number}-{'m' * 1000}")
    assert catalog.look_up(provider, "first") is not first
    transport.close()
