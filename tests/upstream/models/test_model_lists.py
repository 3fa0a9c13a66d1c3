"""Lists of models, asked from servers on loopback."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.clock import Clock
from tests.support.deadlines import DEADLINE, wait_until_async
from tests.support.servers.http_responses import http_response
from tests.support.servers.upstream import ScriptedUpstream, read_http_request, serve_upstream
from toolwire.upstream.models.listings import LIMIT_MODELS, LIMIT_NAME, read_list
from toolwire.upstream.models.model_lists import LIST_TTL, RETRY_AFTER, ModelLists
from toolwire.upstream.provider import Origin, Provider
from toolwire.upstream.transport import Transport

LISTS = {
    "anthropic": (
        "/v1/models?limit=1000",
        {"data": [{"type": "model", "id": "claude-x", "display_name": "Claude X", "max_input_tokens": 9}]},
        {"claude-x": 9},
    ),
    "openai-chat": ("/v1/models", {"data": [{"id": "a/b", "max_model_len": 9}, {"id": "c"}]}, {"a/b": 9, "c": None}),
    "openai-responses": ("/v1/models", [{"id": "gpt-x"}], {"gpt-x": None}),
    "gemini": (
        "/v1beta/models?pageSize=1000",
        {"models": [{"name": "models/gemini-x", "displayName": "X", "inputTokenLimit": 9}]},
        {"gemini-x": 9},
    ),
    "gemini-interactions": (
        "/v1beta/models?pageSize=1000",
        {"models": [{"name": "models/gemini-x", "displayName": "X"}]},
        {"gemini-x": None},
    ),
    "ollama": ("/api/tags", {"models": [{"name": "qwen3:8b", "model": "qwen3:8b"}]}, {"qwen3:8b": None}),
    "openrouter": (
        "/api/v1/models",
        {"data": [{"id": "x/y", "name": "X: Y", "context_length": 9}]},
        {"x/y": 9},
    ),
}


def provider_at(origin: Origin, name: str = "up", protocol: str = "openai-chat", key: str = "k") -> Provider:
    return Provider(name=name, protocol=protocol, base_url=f"http://{origin.authority}", api_key=key)


def json_response(value: Any, status: str = "200 OK") -> bytes:
    return http_response(status, json.dumps(value).encode())


@pytest.mark.parametrize("protocol", LISTS)
def test_list_of_each_protocol_is_read(protocol: str) -> None:
    path, listing, contexts = LISTS[protocol]

    async def work() -> None:
        server, transport = ScriptedUpstream(json_response(listing), lists_models=True), Transport()
        async with serve_upstream(server) as origin:
            answered = await ModelLists(transport, DEADLINE).fetch(provider_at(origin, protocol=protocol))
        transport.close()
        assert {name: info.context for name, info in answered.models.items()} == contexts
        assert server.requests[0].startswith(f"GET {path} HTTP/1.1".encode())

    asyncio.run(work())


def test_dead_and_silent_providers_neither_delay_nor_break_the_others(clock: Clock) -> None:
    async def stay_silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await read_http_request(reader)
        await reader.read()

    async def send_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_http_request(reader)
        head, separator, body = json_response({"data": [{"id": "late"}]}).partition(b"\r\n\r\n")
        writer.write(head + separator)
        for byte in body:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(DEADLINE / 10)  # often enough for each read, too long for the list

    async def work() -> None:
        transport = Transport()
        answers = {"good": json_response({"data": [{"id": "m"}]}), "broken": http_response("200 OK", b"<html>")}
        answers |= {"refusing": json_response({}, "401 Unauthorized"), "odd": http_response("200 OK", b'{"data":7}')}
        async with (
            serve_upstream(ScriptedUpstream(answers["good"], lists_models=True)) as good,
            serve_upstream(ScriptedUpstream(answers["broken"], lists_models=True)) as broken,
            serve_upstream(ScriptedUpstream(answers["refusing"], lists_models=True)) as refusing,
            serve_upstream(ScriptedUpstream(answers["odd"], lists_models=True)) as odd,
            serve_upstream(stay_silent) as silent,
            serve_upstream(send_slowly) as slow,
        ):
            origins = {"good": good, "broken": broken, "refusing": refusing, "odd": odd, "silent": silent, "slow": slow}
            providers = [provider_at(origin, name) for name, origin in origins.items()]
            providers.append(provider_at(Origin("http", "127.0.0.1", 9), "dead"))
            lists = ModelLists(transport, DEADLINE)
            fetching = asyncio.create_task(lists.fetch_all(providers))
            await wait_until_async(lambda: len(lists._pending) == 2)  # the silent and the slow one
            answered = await clock.advance_until_done(fetching)
        transport.close()
        assert list(answered["good"].models) == ["m"]
        errors = {name: models.error for name, models in answered.items() if name != "good"}
        assert "can't connect" in errors.pop("dead")
        # Whichever of the two time-outs comes first.
        assert "300 seconds" in errors.pop("silent")
        assert errors == {
            "broken": "sent no list of models",
            "odd": "sent no list of models",
            "refusing": "key rejected (401)",
            "slow": "no list of models within 300 seconds",
        }

    asyncio.run(work())


def test_list_is_asked_again_when_it_is_old_and_kept_if_that_fails(clock: Clock) -> None:
    async def work() -> None:
        server = ScriptedUpstream(
            json_response({"data": [{"id": "old"}]}), json_response({}, "500 Oops"), lists_models=True
        )
        server.responses.append(json_response({"data": [{"id": "new"}]}))
        transport = Transport()
        async with serve_upstream(server) as origin:
            lists, provider = ModelLists(transport, DEADLINE), provider_at(origin)
            assert list(lists.known_names(provider)) == []
            # One server with two protocols, as OpenAI is discovered, is asked once.
            twin = provider_at(origin, "twin", "openai-responses")
            answered = await lists.fetch_all([provider, twin, provider])
            assert (list(answered["twin"].models), len(server.requests)) == (["old"], 1)
            clock.advance(LIST_TTL)
            failed = await lists.fetch(provider)
            assert (list(failed.models), failed.error) == (["old"], "the list of models has status 500")
            assert (await lists.fetch(provider), len(server.requests)) == (failed, 2)
            clock.advance(RETRY_AFTER)
            assert list((await lists.fetch(provider)).models) == list(lists.known_names(provider)) == ["new"]
        transport.close()

    asyncio.run(work())


def test_list_is_bounded_and_odd_entries_are_skipped() -> None:
    entries: list[Any] = [{"id": "n" * (LIMIT_NAME + 1)}, {"id": ""}, {"id": 7}, {}, "m", None, {"id": "a\nb"}]
    assert read_list("openai-chat", json.dumps({"data": [*entries, {"id": "ok", "context_length": []}]}).encode()) == {
        "ok": read_list("openai-chat", b'[{"id":"ok"}]')["ok"]  # type: ignore[index]
    }
    many = read_list("openai-chat", json.dumps([{"id": f"m{number}"} for number in range(LIMIT_MODELS + 9)]).encode())
    assert many is not None
    assert len(many) == LIMIT_MODELS
    for data in (b"", b"\xff", b"7", b"{}", b"[" * 100_000):
        assert read_list("openai-chat", data) is None
