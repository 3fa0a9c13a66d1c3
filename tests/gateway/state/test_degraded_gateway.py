"""A gateway with unusable state: it serves stateless requests, reports the problem, and recovers."""

import asyncio
import contextlib
import json
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.bodies.minimal import anthropic_response
from tests.support.gateway.in_process import RunningGateway, one_provider_config, run_async, run_gateway
from tests.support.servers.http_responses import http_response
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire.gateway.config import parse_config
from toolwire.gateway.server.gateway import build_gateway
from toolwire.gateway.server.launch import startup_message
from toolwire.gateway.state import sql_store
from toolwire.upstream.provider import Origin

FINE = anthropic_response({"type": "text", "text": "fine"}, stop_reason="end_turn")
HEALTHY = b'{"status":"ok"}'
UNSTORED = "the response was not stored"
CHAT = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three"},
]


@asynccontextmanager
async def gateway_on(path: Path) -> AsyncIterator[RunningGateway]:
    """Run a gateway with its state in this file, in front of a provider of another protocol."""
    script = ScriptedUpstream(http_response("200 OK", json.dumps(FINE).encode()))
    async with serve_upstream(script) as origin:
        config = one_provider_config(origin, "anthropic", extra_config=f'[state]\npath = "{path}"\n', timeout=30)
        async with run_gateway(config) as gateway:
            yield gateway


async def ask(gateway: RunningGateway, path: str, **body: Any) -> tuple[int, Any, dict[str, str]]:
    response = await gateway.post(path, json.dumps({"model": "m"} | body).encode())
    return response.status, json.loads(await response.read(1_000_000)), dict(response.headers)


async def healthy(gateway: RunningGateway) -> None:
    while (await gateway.get("/healthz"))[1] != HEALTHY:  # noqa: ASYNC110 - asking is what has it looked at
        await asyncio.sleep(0.01)


async def degraded(gateway: RunningGateway, reason: str) -> None:
    status, body = await gateway.get("/healthz")
    decoded = json.loads(body)
    assert (status, decoded["status"]) == (200, "degraded")
    assert reason in decoded["reasons"]["state"]


def broken(path: Path) -> None:
    path.write_bytes(b"this is no database, whatever its name says" * 100)


def test_startup_message_reports_unavailable_state(tmp_path: Path) -> None:
    """Nothing was printed at start-up."""
    path = tmp_path / "state.db"
    more = f'[state]\npath = "{path}"\n'
    config = parse_config(one_provider_config(Origin("http", "127.0.0.1", 9), "anthropic", extra_config=more), {})

    def greet() -> str:
        gateway = build_gateway(config, environment={"HOME": str(tmp_path)})
        gateway.app.close()
        return startup_message(gateway)

    assert "state is unavailable" not in greet()
    broken(path)
    message = greet()
    assert "state is unavailable, only stateless requests are served: the file is damaged" in message
    assert "(run `toolwire doctor`)" in message


@pytest.mark.parametrize(("path", "more"), [("/v1/chat/completions", {}), ("/api/chat", {"stream": False})])
def test_stateless_clients_are_served_without_state(path: str, more: dict[str, Any], tmp_path: Path) -> None:
    """The second turn of a Chat or Ollama client can do without state."""
    broken(tmp_path / "state.db")

    async def work() -> None:
        async with gateway_on(tmp_path / "state.db") as gateway:
            for _ in range(2):
                status, decoded, _ = await ask(gateway, path, messages=CHAT, **more)
                assert status == 200, decoded
            await degraded(gateway, "file is not a database")

    run_async(work())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "hello", "store": True}),
        ("/v1/responses", {"input": "hello", "background": True}),
        ("/v1/responses", {"input": "hello", "previous_response_id": "resp_1"}),
        ("/v1/responses", {"input": "hello", "conversation": "conv_1"}),
        ("/v1/conversations", {}),
        ("/v1beta/interactions", {"input": "hello", "previous_interaction_id": "v1_1"}),
    ],
)
def test_requests_that_need_state_are_rejected_in_their_protocol(
    path: str, body: dict[str, Any], tmp_path: Path
) -> None:
    """Before the provider is called, with a status that clients retry."""
    broken(tmp_path / "state.db")

    async def work() -> None:
        async with gateway_on(tmp_path / "state.db") as gateway:
            status, decoded, headers = await ask(gateway, path, **body)
            assert status == 503, decoded
            assert "state is unavailable" in decoded["error"]["message"]
            assert str(tmp_path) not in json.dumps(decoded)
            assert headers["retry-after"] == "5"
            status, _ = await gateway.get("/v1/responses/resp_1")
            assert status == 503

    run_async(work())


def test_unstored_response_reports_a_loss(tmp_path: Path) -> None:
    """Responses stores by default, but most clients do not rely on it: they get a response and a loss."""
    broken(tmp_path / "state.db")

    async def work() -> None:
        async with gateway_on(tmp_path / "state.db") as gateway:
            status, decoded, headers = await ask(gateway, "/v1/responses", input="hello")
            assert (status, decoded["status"]) == (200, "completed")
            losses = json.loads(headers["toolwire-losses"])["losses"]
            assert [loss["path"] for loss in losses if UNSTORED in loss["reason"]] == ["/store"]
            _, _, headers = await ask(gateway, "/v1/responses", input="hello", store=False)
            assert UNSTORED not in headers.get("toolwire-losses", "")

    run_async(work())


def test_gateway_recovers_once_the_file_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a restart."""
    monkeypatch.setattr(sql_store, "_REOPEN_INTERVAL", 0.0)
    path = tmp_path / "state.db"
    broken(path)

    async def work() -> None:
        async with gateway_on(path) as gateway:
            await degraded(gateway, "file is not a database")
            path.unlink()
            await healthy(gateway)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            _, first, headers = await ask(gateway, "/v1/responses", input="hello", store=True)
            assert UNSTORED not in headers.get("toolwire-losses", "")
            status, second, _ = await ask(gateway, "/v1/responses", input="on", previous_response_id=first["id"])
            assert status == 200, second

    run_async(work())


def test_gateway_recovers_after_a_lock(tmp_path: Path) -> None:
    """A backup that locks the file for long blocks nothing permanently."""
    path = tmp_path / "state.db"

    async def work() -> None:
        async with gateway_on(path) as gateway:
            gateway.gateway.app._resources._store._busy_timeout = 0.05  # type: ignore[attr-defined]
            _, first, _ = await ask(gateway, "/v1/responses", input="hello")
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("UPDATE kept SET used = used - 1000")
                other.execute("BEGIN IMMEDIATE")
                # Stored responses can be read, and new ones are not stored.
                status, decoded, headers = await ask(
                    gateway, "/v1/responses", input="on", previous_response_id=first["id"]
                )
                assert (status, UNSTORED in headers["toolwire-losses"]) == (200, True), decoded
                await degraded(gateway, "database is locked")
                status, decoded, _ = await ask(gateway, "/v1/responses", input="on", store=True)
                assert status == 503, decoded
                assert (await ask(gateway, "/v1/chat/completions", messages=CHAT))[0] == 200
                other.execute("ROLLBACK")
            await healthy(gateway)
            status, decoded, headers = await ask(
                gateway, "/v1/responses", input="on", previous_response_id=first["id"], store=True
            )
            assert (status, UNSTORED in headers.get("toolwire-losses", "")) == (200, False), decoded

    run_async(work())


def test_unstored_stream_reports_a_loss_at_its_end(tmp_path: Path) -> None:
    broken(tmp_path / "state.db")

    async def work() -> None:
        async with gateway_on(tmp_path / "state.db") as gateway:
            response = await gateway.post("/v1/responses", b'{"model": "m", "input": "hello", "stream": true}')
            decoded = await response.read(1_000_000)
            assert b"response.completed" in decoded
            assert UNSTORED.encode() in decoded.rpartition(b": toolwire-losses ")[2]

    run_async(work())
