"""Two gateways that share a PostgreSQL database: each continues what the other began, and survives an outage."""

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from tests.support.bodies.minimal import anthropic_response
from tests.support.deadlines import wait_until_async
from tests.support.gateway.in_process import RunningGateway, one_provider_config, run_async, run_gateway
from tests.support.gateway.state_store import AMPLE_BOUNDS, response_row
from tests.support.postgres import PostgresServer, cut_connections
from tests.support.servers.http_responses import http_response
from tests.support.servers.upstream import ScriptedUpstream, StalledUpstream, serve_upstream
from toolwire.gateway.config import ConfigError, parse_config
from toolwire.gateway.server.gateway import make_shared_resources
from toolwire.gateway.state.postgres_store import PostgresStateStore
from toolwire.journal.postgres import adapt_statement
from toolwire.journal.run_database import POSTGRES_SCHEMA
from toolwire.journal.runs import RunStore
from toolwire.journal.store import JournalError
from toolwire.upstream.transport import UpstreamResponse

pytestmark = pytest.mark.postgres

FINE = anthropic_response({"type": "text", "text": "fine"}, stop_reason="end_turn")
SIGNED = anthropic_response(
    {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVkIGJ5IHRoZSBwcm92aWRlciwgbm9ib2R5IGVsc2U="},
    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
    stop_reason="tool_use",
)
KEYS = '[server]\nseal_keys = ["the same key on all replicas"]\n'
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


@asynccontextmanager
async def two_replicas(
    url: str, *answers: dict[str, Any]
) -> AsyncIterator[tuple[RunningGateway, RunningGateway, ScriptedUpstream]]:
    script = ScriptedUpstream(*[http_response("200 OK", json.dumps(answer).encode()) for answer in answers or (FINE,)])
    async with serve_upstream(script) as origin:
        config = one_provider_config(origin, "anthropic", extra_config=f'{KEYS}[state]\nurl = "{url}"\n')
        async with run_gateway(config) as first, run_gateway(config) as second:
            yield first, second, script


async def post(gateway: RunningGateway, path: str, **body: Any) -> tuple[int, Any, dict[str, str]]:
    response: UpstreamResponse = await gateway.post(path, json.dumps({"model": "m"} | body).encode())
    data = await response.read(1_000_000)
    return response.status, json.loads(data) if data.startswith(b"{") else data, dict(response.headers)


def test_any_replica_continues_a_stored_response(postgres_url: str) -> None:
    async def work() -> None:
        async with two_replicas(postgres_url) as (first, second, script):
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

    run_async(work())


def test_any_replica_follows_and_finishes_a_background_response(postgres_url: str) -> None:
    async def work() -> None:
        async with two_replicas(postgres_url) as (first, second, _):
            _, began, _ = await post(first, "/v1/responses", input="one", background=True, stream=False)
            path = f"/v1/responses/{began['id']}"
            status, streamed = await second.get(f"{path}?stream=true")
            assert status == 200
            assert b"response.completed" in streamed
            _, found = await second.get(path)
            assert json.loads(found)["status"] == "completed"

    run_async(work())


def test_any_replica_reports_the_losses_of_an_exchange(postgres_url: str) -> None:
    async def work() -> None:
        async with two_replicas(postgres_url) as (first, second, _):
            body = {"messages": [{"role": "user", "content": "hello"}], "logit_bias": {"1": 2}}
            for stream in (False, True):
                _, _, headers = await post(first, "/v1/chat/completions", stream=stream, **body)
                path = f"/toolwire/exchanges/{headers['toolwire-exchange']}/losses"
                reports = [json.loads((await gateway.get(path))[1]) for gateway in (first, second)]
                assert reports[0] == reports[1]
                assert "/logit_bias" in [loss["path"] for loss in reports[1]["losses"]]
            assert (await second.get("/toolwire/exchanges/ex_0123456789abcdef/losses"))[0] == 404

    run_async(work())


@pytest.mark.parametrize("stream", [False, True])
def test_withheld_signature_is_stored_before_the_last_byte(stream: bool, postgres_url: str) -> None:
    """The response waits while another session keeps the gateway from writing; then the other replica knows it."""

    async def work() -> None:
        async with two_replicas(postgres_url, SIGNED, FINE) as (first, second, script):
            question = {"role": "user", "content": "Look."}
            body = {"messages": [question], "tools": [LOOK], "stream": stream, "reasoning_effort": "high"}
            assert (await post(first, "/v1/responses", input="one", store=True))[0] == 200  # creates the tables
            script.requests.clear()
            async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as observer:
                locker = await psycopg.AsyncConnection.connect(postgres_url)
                await locker.execute("LOCK TABLE toolwire.kept IN SHARE MODE")
                answer = asyncio.create_task(post(first, "/v1/chat/completions", **body))
                while not await blocked_writes(observer):
                    await asyncio.sleep(0.01)
                    assert not answer.done()
                await locker.close()
            _, answered, _ = await answer
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


async def blocked_writes(observer: "psycopg.AsyncConnection[Any]") -> bool:
    cursor = await observer.execute("SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'toolwire.kept'::regclass")
    return await cursor.fetchone() is not None


def test_gateway_serves_what_it_can_without_its_database(private_postgres: PostgresServer) -> None:
    async def work() -> None:
        async with two_replicas(private_postgres.url) as (first, second, _):
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


def test_connections_that_were_cut_refuse_no_request(postgres_url: str) -> None:
    async def work() -> None:
        async with two_replicas(postgres_url) as (first, second, _):
            _, began, _ = await post(first, "/v1/responses", input="one", store=True)
            for gateway in (first, second, second, first):
                await cut_connections(postgres_url)
                status, body, _ = await post(gateway, "/v1/responses", input="x", previous_response_id=began["id"])
                assert status == 200, body
                assert (await gateway.get(f"/v1/responses/{body['id']}"))[0] == 200

    run_async(work())


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


def test_replicas_without_common_keys_do_not_start(postgres_url: str) -> None:
    config = parse_config(f'[state]\nurl = "{postgres_url}"', {})
    with pytest.raises(ConfigError, match=r"need the same keys .*: set server.seal_keys"):
        make_shared_resources(config, {})
    one, other = (make_shared_resources(parse_config(f'{KEYS}[state]\nurl = "{postgres_url}"', {}), {}) for _ in "12")
    assert (one.signing_keys, one.console_secret) == (other.signing_keys, other.console_secret)


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
