"""Limits of keys: reserved before a request is sent, settled when it ends, on both databases."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from tests.support.deadlines import wait_until_async
from tests.support.gateway.in_process import PROTOCOL_NAMES, RunningGateway, run_async, run_gateway
from tests.support.postgres import POSTGRES, PostgresServer, cut_connections
from tests.support.servers.http_responses import CHAT_BODY_WITHOUT_USAGE, CHAT_RESPONSE, http_response
from tests.support.servers.upstream import Handler, StalledUpstream, read_http_request, serve_upstream
from toolwire.cli import main
from toolwire.gateway.config import KeySection, StateSection
from toolwire.gateway.keys.client_key import create_secret, hash_secret
from toolwire.gateway.keys.ledger import (
    LimitExceeded,
    PostgresLedgerDatabase,
    Reservation,
    SqliteLedgerDatabase,
    UsageLedger,
    UsageRow,
)
from toolwire.gateway.keys.ledger_file import open_ledger
from toolwire.gateway.server.auth import secret_tenant

SECRET = create_secret()
KEY = KeySection(hash=hash_secret(SECRET))
NOON = 1_794_916_800.0  # 2026-11-17T12:00:00Z
PRICES = '[models."m"]\nprices = {input = 1000.0, output = 2000.0}\n'  # a dollar for 1,000 tokens of input
CENT = 10_000_000


@pytest.fixture(params=["sqlite", POSTGRES])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    return tmp_path / "usage.db" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def ledger(location: Path | str) -> Iterator[UsageLedger]:
    opened = open_ledger_at(location)
    yield opened
    opened.close()


def open_ledger_at(location: Path | str) -> UsageLedger:
    is_file = isinstance(location, Path)
    database = SqliteLedgerDatabase(location) if is_file else PostgresLedgerDatabase(str(location))
    return UsageLedger(database, clock=lambda: NOON)


def reservation(id: str, *, cents: int = 0, tokens: int = 0, at: float = NOON) -> Reservation:
    return Reservation(id=id, owner="alice", at=at, model="p/m", nanodollars=cents * CENT, tokens=tokens)


def row(*, cents: int = 0, day: str = "2026-11-17", owner: str = "alice") -> UsageRow:
    return UsageRow(day=day, owner=owner, provider="p", model="m", requests=1, nanodollars=cents * CENT)


def test_requests_per_minute_start_anew_each_minute(ledger: UsageLedger) -> None:
    section = replace(KEY, requests_per_minute=2)
    for id in "ab":
        ledger.reserve(section, reservation(id))
    with pytest.raises(LimitExceeded, match="2 requests per minute") as caught:
        ledger.reserve(section, reservation("c", at=NOON + 20))
    assert caught.value.retry_after == 40
    ledger.reserve(section, reservation("d", at=NOON + 60))


def test_tokens_that_were_reserved_but_not_used_are_free_again(ledger: UsageLedger) -> None:
    section = replace(KEY, tokens_per_minute=1000)
    ledger.reserve(section, first := reservation("a", tokens=900))
    with pytest.raises(LimitExceeded, match="900 are used or reserved, and this request may need 200"):
        ledger.reserve(section, reservation("b", tokens=200))
    ledger.settle(first, 100, [row()])
    ledger.reserve(section, reservation("b", tokens=200))


def test_request_alone_may_exceed_the_tokens_that_are_left(ledger: UsageLedger) -> None:
    section = replace(KEY, tokens_per_minute=1000)
    for id in ("a", "b"):
        ledger.reserve(section, alone := reservation(id, tokens=5000))
        with pytest.raises(LimitExceeded):
            ledger.reserve(section, reservation("c", tokens=1))
        ledger.settle(alone, 400, [row()])
    ledger.reserve(section, reservation("d", tokens=100, at=NOON - 60))  # it counts in its own minute
    ledger.reserve(section, alone := reservation("e", tokens=5000))
    ledger.settle(alone, 200, [row()])
    with pytest.raises(LimitExceeded, match="1000 are used or reserved"):
        ledger.reserve(section, reservation("f", tokens=1))


@pytest.mark.parametrize(
    ("limit", "earlier", "retry_after"),
    [("dollars_per_day", "2026-11-17", 12 * 3600), ("dollars_per_month", "2026-11-01", 13.5 * 86_400)],
)
def test_money_is_reserved_and_settled(ledger: UsageLedger, limit: str, earlier: str, retry_after: float) -> None:
    section = replace(KEY, **{limit: 1.0})
    ledger.add("b1", [row(cents=40, day=earlier), row(cents=900, day="2026-10-31"), row(cents=900, owner="bob")])
    ledger.reserve(section, first := reservation("a", cents=50))
    with pytest.raises(LimitExceeded, match=rf"\$1 \({limit}\): \$0.4000 are spent and \$0.5000 reserved") as caught:
        ledger.reserve(section, reservation("b", cents=20))
    assert caught.value.retry_after == retry_after
    ledger.settle(first, 10, [row(cents=5)])
    ledger.reserve(section, second := reservation("b", cents=20))
    ledger.settle(second, 10, [row(cents=55)])
    with pytest.raises(LimitExceeded, match=r"\$1.0000 are spent and \$0.0000 reserved"):
        ledger.reserve(section, reservation("c", cents=1))
    spent = {(used.owner, used.day): used.nanodollars for used in ledger.usage_since("2026-11-17")}
    assert spent["bob", "2026-11-17"] == 900 * CENT
    assert spent["alice", "2026-11-17"] == (100 if limit == "dollars_per_day" else 60) * CENT


def test_request_alone_may_exceed_what_is_left(ledger: UsageLedger) -> None:
    section = replace(KEY, dollars_per_day=1.0)
    ledger.reserve(section, reservation("a", cents=500))
    with pytest.raises(LimitExceeded):
        ledger.reserve(section, reservation("b", cents=1))


def test_reservation_of_a_killed_gateway_counts_and_is_listed(ledger: UsageLedger) -> None:
    ledger.reserve(replace(KEY, dollars_per_month=1.0), reservation("a", cents=99, at=NOON - 7200))
    assert [one.id for one in ledger.reservations()] == ["a"]
    with pytest.raises(LimitExceeded, match=r"\$0.9900 reserved"):
        ledger.reserve(replace(KEY, dollars_per_month=1.0), reservation("b", cents=2))


def test_repeated_writes_count_once(ledger: UsageLedger) -> None:
    """The answer to a commit may be lost, so that a write is repeated although it took effect."""
    section = replace(KEY, dollars_per_day=1.0, tokens_per_minute=1000)
    for _ in range(2):
        ledger.reserve(section, reservation("a", cents=60, tokens=600))
    for _ in range(2):
        ledger.settle(reservation("a", cents=60, tokens=600), 500, [row(cents=50)])
        ledger.add("batch", [row(cents=20)])
    assert [(used.requests, used.nanodollars) for used in ledger.usage_since("2026-11-17")] == [(2, 70 * CENT)]
    with pytest.raises(LimitExceeded, match="500 are used or reserved"):
        ledger.reserve(replace(section, tokens_per_minute=500), reservation("b", tokens=1))
    ledger.reserve(section, reservation("c", tokens=500))


def test_concurrent_requests_of_several_gateways_stay_within_the_limits(location: Path | str) -> None:
    section = replace(KEY, dollars_per_day=1.0, requests_per_minute=100)

    def reserve(gateway: int) -> int:
        """Reserve from a gateway of its own, as often as possible; return how often it was."""
        ledger, count = open_ledger_at(location), 0
        with contextlib.suppress(LimitExceeded):
            for number in range(20):
                ledger.reserve(section, reservation(f"{gateway}-{number}", cents=11))
                count += 1
        ledger.close()
        return count

    with ThreadPoolExecutor(4) as gateways:
        assert sum(gateways.map(reserve, range(4))) == 9  # the tenth would need more than is left


# ---- in the gateway


def answers(response: bytes) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_http_request(reader)
            writer.write(response)
            await writer.drain()

    return handler


@asynccontextmanager
async def run_limited(rules: str, upstream: Handler, extra: str = PRICES) -> AsyncIterator[RunningGateway]:
    async with serve_upstream(upstream) as origin:
        provider = f'[providers.up]\nprotocol = "openai-chat"\nbase_url = "http://{origin.authority}"\n'
        route = '[[routes]]\nprovider = "up"\nmodel = "m"\n'
        key = f'[keys.alice]\nhash = "{KEY.hash}"\n{rules}\n'
        async with run_gateway(f"{key}{provider}{route}{extra}") as gateway:
            yield gateway


def ledger_of(gateway: RunningGateway) -> UsageLedger:
    accounting = gateway.gateway.app._accounting
    assert accounting is not None
    return accounting._ledger


async def spent_cents(gateway: RunningGateway, requests: int = 1) -> float:
    """Wait until this many requests are booked, and return what they cost."""
    rows: list[UsageRow] = []

    def is_booked() -> bool:
        rows[:] = ledger_of(gateway).usage_since("2026-01-01")
        return sum(used.requests for used in rows) == requests

    await wait_until_async(is_booked)
    return sum(used.nanodollars for used in rows) / CENT


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("stream", [False, True])
def test_limit_is_an_error_of_the_protocol_with_retry_after(protocol: str, *, stream: bool) -> None:
    async def work() -> None:
        async with run_limited("requests_per_minute = 1", answers(CHAT_RESPONSE)) as gateway:
            first = await gateway.send_question(protocol, x_api_key=SECRET)
            assert (first.status, bool(await first.read(100_000))) == (200, True)
            second = await gateway.send_question(protocol, stream=stream, x_api_key=SECRET)
            body = (await second.read(100_000)).decode()
            assert second.status == 429, body
            assert "the key 'alice' has reached its limit of 1 requests per minute (requests_per_minute)" in body
            assert 1 <= int(second.headers["retry-after"]) <= 60

    run_async(work())


def test_cost_of_a_request_is_booked() -> None:
    async def work() -> None:
        async with run_limited("dollars_per_day = 100\nadmin = true", answers(CHAT_RESPONSE)) as gateway:
            answer = await gateway.send_question("anthropic", x_api_key=SECRET)
            assert answer.status == 200
            await answer.read(100_000)
            assert await spent_cents(gateway) == 1.1  # 3 tokens of input, 4 of output
            await wait_until_async(lambda: b"toolwire_cost" in gateway.gateway.app._metrics.render())
            _, metrics = await gateway.get("/metrics", x_api_key=SECRET)
            assert b'toolwire_cost_dollars_total{provider="up"} 0.011000' in metrics

    run_async(work())


def test_money_that_is_spent_stops_further_requests() -> None:
    async def work() -> None:
        async with run_limited("dollars_per_day = 0.01", answers(CHAT_RESPONSE)) as gateway:
            first = await gateway.send_question("openai-chat", x_api_key=SECRET)
            assert (first.status, bool(await first.read(100_000))) == (200, True)
            await spent_cents(gateway)
            second = await gateway.send_question("openai-chat", x_api_key=SECRET)
            assert second.status == 429
            assert b"$0.01 (dollars_per_day): $0.0110 are spent" in await second.read(100_000)
            third = await gateway.post("/v1/embeddings", b'{"model": "m", "input": "x"}', x_api_key=SECRET)
            assert third.status == 429

    run_async(work())


def test_key_with_limited_money_may_not_use_models_without_a_price() -> None:
    async def work() -> None:
        for rules, status in (("", 403), ('unpriced = "allow"', 200)):
            async with run_limited(f"dollars_per_day = 1\n{rules}", answers(CHAT_RESPONSE), "") as gateway:
                answer = await gateway.send_question("openai-chat", x_api_key=SECRET)
                body = (await answer.read(100_000)).decode()
                assert answer.status == status, body
                assert status == 200 or 'set `prices` in [models.\\"up/m\\"], or set keys.alice.unpriced' in body

    run_async(work())


def test_answer_without_usage_costs_what_was_reserved() -> None:
    async def work() -> None:
        response = http_response("200 OK", CHAT_BODY_WITHOUT_USAGE)
        async with run_limited("dollars_per_day = 100", answers(response)) as gateway:
            body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
            answer = await gateway.post("/v1/chat/completions", json.dumps(body).encode(), x_api_key=SECRET)
            assert answer.status == 200
            assert await spent_cents(gateway) > 20  # 100 tokens of output, and the input

    run_async(work())


def test_stream_that_its_client_leaves_costs_what_was_reserved() -> None:
    async def work() -> None:
        upstream = StalledUpstream()
        async with run_limited("dollars_per_day = 100", upstream) as gateway:
            body = {"model": "m", "max_tokens": 100, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
            answer = await gateway.post("/v1/chat/completions", json.dumps(body).encode(), x_api_key=SECRET)
            await answer.next()
            answer.close()
            cost = await spent_cents(gateway)
            upstream.released.set()
            assert cost > 20

    run_async(work())


def test_refused_request_costs_nothing() -> None:
    async def work() -> None:
        refusal = http_response("400 Bad Request", b'{"error": {"message": "no"}}')
        async with run_limited("dollars_per_day = 100", answers(refusal)) as gateway:
            assert (await gateway.send_question("openai-chat", x_api_key=SECRET)).status == 400
            assert await spent_cents(gateway) == 0

    run_async(work())


@pytest.mark.postgres
def test_requests_that_end_while_the_database_is_down_are_booked_later(private_postgres: PostgresServer) -> None:
    async def work() -> None:
        upstream = StalledUpstream()
        state = f'[state]\nurl = "{private_postgres.url}"\n[server]\nseal_keys = ["a shared key"]\n'
        async with run_limited("dollars_per_day = 100\n", upstream, PRICES + state) as gateway:
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
            answer = await gateway.post("/v1/chat/completions", json.dumps(body).encode(), x_api_key=SECRET)
            await answer.next()
            await asyncio.to_thread(private_postgres.stop, "immediate")
            upstream.released.set()
            await answer.read(100_000)
            refused = await gateway.send_question("openai-chat", x_api_key=SECRET)
            assert refused.status == 503
            await asyncio.to_thread(private_postgres.start)
            ledger = UsageLedger(PostgresLedgerDatabase(private_postgres.url))
            await wait_until_async(lambda: ledger.usage_since("2026-01-01"))
            assert ledger.reservations() == []
            ledger.close()

    run_async(work())


@pytest.mark.postgres
def test_connection_that_was_cut_refuses_no_request(postgres_url: str) -> None:
    async def work() -> None:
        state = f'[state]\nurl = "{postgres_url}"\n[server]\nseal_keys = ["a shared key"]\n'
        async with run_limited("dollars_per_day = 100\n", answers(CHAT_RESPONSE), PRICES + state) as gateway:
            for requests in (1, 2):
                answer = await gateway.send_question("openai-responses", x_api_key=SECRET)
                assert (answer.status, bool(await answer.read(100_000))) == (200, True)
                assert await spent_cents(gateway, requests) > 0
                await cut_connections(postgres_url)
            assert (await gateway.send_question("openai-responses", x_api_key=SECRET)).status == 200

    run_async(work())


# ---- the command


def test_usage_is_printed_by_key_model_and_day(tmp_path: Path) -> None:
    config = tmp_path / "toolwire.toml"
    config.write_text(f'[server]\nkeys = ["a-secret-key"]\n[state]\npath = "{tmp_path / "state.db"}"\n')
    ledger = open_ledger(StateSection(path=str(tmp_path / "state.db")), {})
    used: dict[str, Any] = {
        "provider": "openai",
        "model": "gpt-5",
        "requests": 2,
        "input_tokens": 1500,
        "output_tokens": 20,
    }
    ledger.add("b1", [UsageRow(day="2999-01-01", owner="alice", nanodollars=50 * CENT, **used)])
    ledger.add(
        "b2",
        [UsageRow(day="2999-01-02", owner=secret_tenant(b"a-secret-key"), unpriced=1, **used | {"model": "local"})],
    )
    for number in range(22):
        ledger.reserve(replace(KEY, requests_per_minute=99), reservation(f"ex_{number}", cents=3, at=float(number)))
    for id in ("ex_new", "ex_newer"):
        ledger.reserve(replace(KEY, requests_per_minute=99), reservation(id, cents=2, at=time.time()))
    ledger.close()

    def usage(*arguments: str) -> Any:
        result = CliRunner().invoke(main, ["usage", "--config", str(config), *arguments])
        assert result.exit_code == 0, result.output
        return result

    lines = [line.split() for line in usage().stdout.splitlines()]
    assert lines == [
        ["alice", "2", "1,500", "0", "20", "$0.5000"],
        ["server.keys[0]", "2", "1,500", "0", "20", "$0.0000*"],
        ["total", "4", "3,000", "0", "40", "$0.5000*"],
    ]
    notes = usage().stderr.splitlines()
    assert notes[:3] == [
        "* without 1 request to models whose price is unknown",
        "in progress: 2 requests, at most $0.0400",
        "unsettled: ex_0 of alice, at most $0.0300 for p/m",
    ]
    assert (len(notes), notes[-1]) == (23, "and 2 more, which --json lists")
    assert [line.split()[0] for line in usage("--by", "model").stdout.splitlines()] == [
        "openai/gpt-5",
        "openai/local",
        "total",
    ]
    found = json.loads(usage("--by", "day", "--json").stdout)
    assert [(one["day"], one["dollars"], one["unpriced"]) for one in found["usage"]] == [
        ("2999-01-01", 0.5, 0),
        ("2999-01-02", 0.0, 1),
    ]
    assert (found["unsettled"][0]["key"], len(found["unsettled"])) == ("alice", 22)
    assert found["in_progress"] == {"requests": 2, "dollars": 0.04}
