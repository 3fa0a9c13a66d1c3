"""Two gateways that share their state: each continues what the other began, and survives an outage."""

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from websockets.asyncio.client import connect

from tests.support.bodies.minimal import anthropic_response
from tests.support.deadlines import wait_until_async
from tests.support.gateway.in_process import (
    NO_TIMEOUT,
    RunningGateway,
    one_provider_config,
    run_async,
    run_gateway,
)
from tests.support.gateway.state_store import AMPLE_BOUNDS, response_row
from tests.support.postgres import POSTGRES, PostgresServer, cut_connections
from tests.support.servers.http_responses import http_response
from tests.support.servers.upstream import Handler, ScriptedUpstream, StalledUpstream, serve_upstream
from toolwire.gateway.config import ConfigError, parse_config
from toolwire.gateway.keys.client_key import hash_secret
from toolwire.gateway.server.gateway import make_shared_resources
from toolwire.gateway.state.postgres_store import PostgresStateStore
from toolwire.journal import listener
from toolwire.journal.postgres import adapt_statement
from toolwire.journal.run_database import POSTGRES_SCHEMA
from toolwire.journal.runs import RunStore
from toolwire.journal.store import JournalError
from toolwire.upstream.transport import UpstreamResponse

FINE = anthropic_response({"type": "text", "text": "fine"}, stop_reason="end_turn")
SIGNED = anthropic_response(
    {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVkIGJ5IHRoZSBwcm92aWRlciwgbm9ib2R5IGVsc2U="},
    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
    stop_reason="tool_use",
)
KEYS = '[server]\nseal_keys = ["the same key on all replicas"]\n'
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(params=["file", POSTGRES])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The section of the state that two gateways share."""
    if request.param == "file":
        return f'path = "{tmp_path}/state.db"'
    return f'url = "{request.getfixturevalue("postgres_url")}"'


@asynccontextmanager
async def two_gateways(
    state: str, upstream: Handler, protocol: str = "anthropic"
) -> AsyncIterator[tuple[RunningGateway, RunningGateway]]:
    async with serve_upstream(upstream) as origin:
        config = one_provider_config(origin, protocol, extra_config=f"{KEYS}[state]\n{state}\n")
        async with run_gateway(config) as first, run_gateway(config) as second:
            yield first, second


@asynccontextmanager
async def two_replicas(
    state: str, *answers: dict[str, Any]
) -> AsyncIterator[tuple[RunningGateway, RunningGateway, ScriptedUpstream]]:
    script = ScriptedUpstream(*[http_response("200 OK", json.dumps(answer).encode()) for answer in answers or (FINE,)])
    async with two_gateways(state, script) as (first, second):
        yield first, second, script


async def post(gateway: RunningGateway, path: str, **body: Any) -> tuple[int, Any, dict[str, str]]:
    response: UpstreamResponse = await gateway.post(path, json.dumps({"model": "m"} | body).encode())
    data = await response.read(1_000_000)
    return response.status, json.loads(data) if data.startswith(b"{") else data, dict(response.headers)


def test_any_replica_continues_a_stored_response(state: str) -> None:
    async def work() -> None:
        async with two_replicas(state) as (first, second, script):
            _, began, _ = await post(first, "/v1/responses", input="one", store=True)
            status, found = await second.get(f"/v1/responses/{began['id']}")
            assert (status, json.loads(found)["id"]) == (200, began["id"])
            status, _, _ = await post(second, "/v1/responses", input="two", previous_response_id=began["id"])
            assert status == 200
            sent = script.bodies[-1]["messages"]
            assert [message["role"] for message in sent] == ["user", "assistant", "user"]
            _, conversation, _ = await post(second, "/v1/conversations")
            for gateway in (first, second):
                status, _, _ = await post(gateway, "/v1/responses", input="three", conversation=conversation["id"])
                assert status == 200
            assert len(script.bodies[-1]["messages"]) == 3
            reference = {"type": "item_reference", "id": began["output"][0]["id"]}
            status, _, _ = await post(second, "/v1/responses", input=[reference, {"role": "user", "content": "four"}])
            assert (status, script.bodies[-1]["messages"][0]["content"]) == (200, [{"type": "text", "text": "fine"}])
            path = "/v1beta/interactions"
            _, interaction, _ = await post(first, path, input="five", store=True)
            status, _, _ = await post(second, path, input="six", previous_interaction_id=interaction["id"])
            assert (status, len(script.bodies[-1]["messages"])) == (200, 3)

    run_async(work())


def test_any_replica_follows_and_finishes_a_background_response(state: str) -> None:
    async def work() -> None:
        async with two_replicas(state) as (first, second, _):
            _, began, _ = await post(first, "/v1/responses", input="one", background=True, stream=False)
            path = f"/v1/responses/{began['id']}"
            status, streamed = await second.get(f"{path}?stream=true")
            assert status == 200
            assert b"response.completed" in streamed
            _, found = await second.get(path)
            assert json.loads(found)["status"] == "completed"

    run_async(work())


def test_any_replica_follows_a_background_response_in_progress(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL announces new events, so that the follower need not look for them."""
    monkeypatch.setattr(listener, "_WAIT_TIMEOUT", math.inf)

    async def work() -> None:
        upstream = StalledUpstream()
        async with two_gateways(state, upstream, "openai-chat") as (first, second):
            _, began, _ = await post(first, "/v1/responses", input="one", background=True, stream=False)
            path = f"/v1/responses/{began['id']}?stream=true"
            following = await second.transport.send(
                second.origin, second._head(path, {}, "GET"), None, read_timeout=NO_TIMEOUT
            )
            received = b""
            while b" sunny" not in received:
                received += await following.next() or b""
            assert b"response.completed" not in received
            upstream.released.set()
            received += await following.read(1_000_000)
            numbers = [int(number) for number in re.findall(rb'"sequence_number":(\d+)', received)]
            assert numbers == list(range(len(numbers)))
            assert received.count(b"event: response.completed") == 1
            _, resumed = await second.get(f"{path}&starting_after={numbers[-3]}")
            assert [int(number) for number in re.findall(rb'"sequence_number":(\d+)', resumed)] == numbers[-2:]

    run_async(work())


def test_any_replica_cancels_a_background_response(state: str) -> None:
    async def work() -> None:
        upstream = StalledUpstream()
        async with two_gateways(state, upstream, "openai-chat") as (first, second):
            _, began, _ = await post(first, "/v1/responses", input="one", background=True, stream=False)
            jobs = first.gateway.app._dispatcher.services.conversation_state.background_jobs._jobs
            status, cancelled, _ = await post(second, f"/v1/responses/{began['id']}/cancel")
            assert (status, cancelled["status"]) == (200, "cancelled")
            await wait_until_async(lambda: not jobs)
            for gateway in (first, second):
                _, found = await gateway.get(f"/v1/responses/{began['id']}")
                assert json.loads(found)["status"] == "cancelled"

    run_async(work())


def test_websocket_continues_on_another_replica_from_a_stored_response(state: str) -> None:
    async def create(gateway: RunningGateway, **fields: Any) -> dict[str, Any]:
        """Open a connection, send a request, and return its last event."""
        async with connect(f"ws://{gateway.origin.authority}/v1/responses") as connection:
            await connection.send(json.dumps({"type": "response.create", "model": "m", "input": "one"} | fields))
            async for message in connection:
                event: dict[str, Any] = json.loads(message)
                if event["type"] in ("response.completed", "error"):
                    return event
        raise AssertionError("the connection was closed")

    async def work() -> None:
        async with two_replicas(state) as (first, second, script):
            stored = (await create(first, store=True))["response"]["id"]
            assert (await create(second, previous_response_id=stored))["type"] == "response.completed"
            assert [message["role"] for message in script.bodies[-1]["messages"]] == ["user", "assistant", "user"]
            unstored = (await create(first, store=False))["response"]["id"]
            rejected = await create(second, previous_response_id=unstored, store=False)
            assert rejected["error"]["code"] == "previous_response_not_found"

    run_async(work())


@pytest.mark.postgres
def test_any_replica_reports_the_losses_of_an_exchange(postgres_url: str) -> None:
    async def work() -> None:
        async with two_replicas(f'url = "{postgres_url}"') as (first, second, _):
            body = {"messages": [{"role": "user", "content": "hello"}], "logit_bias": {"1": 2}}
            for stream in (False, True):
                _, _, headers = await post(first, "/v1/chat/completions", stream=stream, **body)
                path = f"/toolwire/exchanges/{headers['toolwire-exchange']}/losses"
                reports = [json.loads((await gateway.get(path))[1]) for gateway in (first, second)]
                assert reports[0] == reports[1]
                assert "/logit_bias" in [loss["path"] for loss in reports[1]["losses"]]
            assert (await second.get("/toolwire/exchanges/ex_0123456789abcdef/losses"))[0] == 404

    run_async(work())


@pytest.mark.postgres
@pytest.mark.parametrize("stream", [False, True])
def test_withheld_signature_is_stored_before_the_last_byte(stream: bool, postgres_url: str) -> None:
    async def work() -> None:
        async with two_replicas(f'url = "{postgres_url}"', SIGNED, FINE) as (first, second, script):
            question = {"role": "user", "content": "Look."}
            body = {"messages": [question], "tools": [LOOK], "stream": stream, "reasoning_effort": "high"}
            assert (await post(first, "/v1/responses", input="one", store=True))[0] == 200  # creates the tables
            script.requests.clear()
            _, answered, _ = await answer_to_blocked_write(postgres_url, first, "/v1/chat/completions", **body)
            call = (
                {"id": "toolu_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
                if isinstance(answered, bytes)
                else answered["choices"][0]["message"]["tool_calls"][0]
            )
            messages = [
                question,
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"], "content": "seen"},
            ]
            await post(second, "/v1/chat/completions", **body | {"messages": messages, "stream": False})
            assistant = script.bodies[-1]["messages"][1]["content"]
            assert assistant[0].get("signature") == SIGNED["content"][0]["signature"]

    run_async(work())


@pytest.mark.postgres
@pytest.mark.parametrize("stream", [False, True])
def test_response_is_stored_before_the_last_byte(stream: bool, postgres_url: str) -> None:
    async def work() -> None:
        async with two_replicas(f'url = "{postgres_url}"') as (first, second, _):
            assert (await post(first, "/v1/responses", input="one", store=True))[0] == 200  # creates the tables
            fields: dict[str, Any] = {"input": "two", "store": True, "stream": stream}
            _, answered, _ = await answer_to_blocked_write(postgres_url, first, "/v1/responses", **fields)
            found = re.search(rb"resp_[0-9a-z]+", answered if stream else json.dumps(answered).encode())
            assert found is not None
            assert (await second.get(f"/v1/responses/{found[0].decode()}"))[0] == 200

    run_async(work())


async def answer_to_blocked_write(
    url: str, gateway: RunningGateway, path: str, **body: Any
) -> tuple[int, Any, dict[str, str]]:
    """Send a request while another session keeps the gateway from writing; its response must wait for that."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as observer:
        locker = await psycopg.AsyncConnection.connect(url)
        await locker.execute("LOCK TABLE toolwire.kept IN SHARE MODE")
        answer = asyncio.create_task(post(gateway, path, **body))
        while not await blocked_writes(observer):  # noqa: ASYNC110 - the server announces no locks
            await asyncio.sleep(0.01)
        for _ in range(3):  # in which a response that does not wait arrives
            assert (await post(gateway, "/v1/responses", input="stateless", store=False))[0] == 200
        assert not answer.done()
        await locker.close()
    return await answer


async def blocked_writes(observer: "psycopg.AsyncConnection[Any]") -> bool:
    cursor = await observer.execute("SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'toolwire.kept'::regclass")
    return await cursor.fetchone() is not None


@pytest.mark.postgres
def test_gateway_serves_what_it_can_without_its_database(private_postgres: PostgresServer) -> None:
    async def work() -> None:
        async with two_replicas(f'url = "{private_postgres.url}"') as (first, second, _):
            _, began, _ = await post(first, "/v1/responses", input="one", store=True)
            await asyncio.to_thread(private_postgres.stop, "immediate")
            chat = [{"role": "user", "content": "hello"}]
            for gateway in (first, second):
                status, body, _ = await post(gateway, "/v1/responses", input="x", previous_response_id=began["id"])
                assert status == 503, body
                assert "state is unavailable" in body["error"]["message"]
                assert (await post(gateway, "/v1/chat/completions", messages=chat))[0] == 200
                assert json.loads((await gateway.get("/healthz"))[1])["status"] == "degraded"
            await asyncio.to_thread(private_postgres.start)
            for gateway in (first, second):
                while (await gateway.get("/healthz"))[1] != b'{"status":"ok"}':  # noqa: ASYNC110 - asking tries the store
                    await asyncio.sleep(0.05)
                status, body, _ = await post(gateway, "/v1/responses", input="x", previous_response_id=began["id"])
                assert status == 200, body

    run_async(work())


@pytest.mark.postgres
def test_connections_that_were_cut_refuse_no_request(postgres_url: str) -> None:
    async def work() -> None:
        async with two_replicas(f'url = "{postgres_url}"') as (first, second, _):
            _, began, _ = await post(first, "/v1/responses", input="one", store=True)
            for gateway in (first, second, second, first):
                await cut_connections(postgres_url)
                status, body, _ = await post(gateway, "/v1/responses", input="x", previous_response_id=began["id"])
                assert status == 200, body
                assert (await gateway.get(f"/v1/responses/{body['id']}"))[0] == 200

    run_async(work())


@pytest.mark.postgres
def test_background_response_that_ends_during_an_outage_is_stored_after_it(private_postgres: PostgresServer) -> None:
    async def work() -> None:
        upstream = StalledUpstream()
        async with serve_upstream(upstream) as origin:
            state = f'[state]\nurl = "{private_postgres.url}"\n'
            async with run_gateway(one_provider_config(origin, extra_config=KEYS + state)) as gateway:
                _, began, _ = await post(gateway, "/v1/responses", input="one", background=True, stream=False)
                (job,) = gateway.gateway.app._dispatcher.services.conversation_state.background_jobs._jobs.values()
                await wait_until_async(lambda: job.source is not None)
                await asyncio.to_thread(private_postgres.stop, "immediate")
                assert (await post(gateway, "/v1/responses", input="two", previous_response_id="resp_1"))[0] == 503
                upstream.released.set()
                await wait_until_async(lambda: job.frame_log.finished)
                await asyncio.to_thread(private_postgres.start)
                task = job.task
                assert task is not None
                await task
                status, found = await gateway.get(f"/v1/responses/{began['id']}")
                assert (status, json.loads(found)["status"]) == (200, "completed")

    run_async(work())


@pytest.mark.postgres
def test_replicas_without_common_keys_do_not_start(postgres_url: str) -> None:
    hashed_key = f'[keys.alice]\nhash = "{hash_secret("s")}"\n'  # a hash is no secret
    for keys in ("", hashed_key):
        config = parse_config(f'{keys}[state]\nurl = "{postgres_url}"', {})
        with pytest.raises(ConfigError, match=r"need the same keys .*: set server.seal_keys"):
            make_shared_resources(config, {})
    one, other = (make_shared_resources(parse_config(f'{KEYS}[state]\nurl = "{postgres_url}"', {}), {}) for _ in "12")
    assert (one.signing_keys, one.console_secret) == (other.signing_keys, other.console_secret)


@pytest.mark.postgres
def test_tables_are_migrated_once_and_never_backwards(postgres_url: str) -> None:
    """Several processes may start at the same time, of this version or of another one."""
    with ThreadPoolExecutor(4) as threads:
        stores = list(threads.map(lambda _: RunStore(postgres_url), range(4)))
    for store in stores:
        store.close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        (version,) = connection.execute("SELECT version FROM toolwire.versions WHERE name = 'runs'").fetchone() or (0,)
        assert version == POSTGRES_SCHEMA.version
        connection.execute("UPDATE toolwire.versions SET version = 99 WHERE name = 'runs'")
    with pytest.raises(JournalError, match=r"written by a newer toolwire \(runs version 99.*upgrade toolwire"):
        RunStore(postgres_url)


@pytest.mark.postgres
def test_gateway_refuses_tables_of_a_newer_version(postgres_url: str) -> None:
    async def work() -> None:
        async with two_replicas(f'url = "{postgres_url}"') as (gateway, _, _):
            assert (await post(gateway, "/v1/responses", input="one", store=True))[0] == 200
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("UPDATE toolwire.versions SET version = 99")
        async with two_replicas(f'url = "{postgres_url}"') as (gateway, _, _):
            status, body, _ = await post(gateway, "/v1/responses", input="one", previous_response_id="resp_1")
            assert (status, "written by a newer toolwire (state version 99" in body["error"]["message"]) == (503, True)
            assert (await post(gateway, "/v1/responses", input="one", store=False))[0] == 200

    run_async(work())


@pytest.mark.postgres
def test_ancestors_are_looked_up_by_id(postgres_url: str) -> None:
    """However many rows the owner has, and whatever the server's statistics say."""

    async def work() -> None:
        store = PostgresStateStore(postgres_url, AMPLE_BOUNDS)
        try:
            await store.put(
                [response_row(f"r{number}", b"{}", f"r{number - 1}" if number else None) for number in range(500)]
            )
            assert len(await store.lineage("me", "response", "r3")) == 4
        finally:
            store.close()

    run_async(work())
    values = {"owner": "me", "kind": "response", "id": "r3", "since": 0.0, "deepest": 9}
    with psycopg.connect(postgres_url, options="-c search_path=toolwire") as connection:
        statement = b"EXPLAIN (ANALYZE, FORMAT JSON) " + adapt_statement(PostgresStateStore.lineage_statement)
        ((plan,),) = connection.execute(statement, values).fetchall()
    assert (
        max(node["Actual Rows"] + node.get("Rows Removed by Join Filter", 0) for node in plan_nodes(plan[0]["Plan"]))
        <= 4
    )


def plan_nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(below for child in node.get("Plans", ()) for below in plan_nodes(child))]
