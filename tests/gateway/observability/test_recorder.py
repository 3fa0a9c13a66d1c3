"""The gateway's journal: what is recorded of an exchange, and what never is."""

import json
from pathlib import Path

import pytest

from tests.support.deadlines import DEADLINE, run_event_loop, wait_until_async
from tests.support.gateway.in_process import (
    PROTOCOL_NAMES,
    RunningGateway,
    journal_config,
    one_provider_config,
    question_request,
    read_journal,
    run_async,
    run_gateway,
    run_gateway_with,
)
from tests.support.servers.asgi import serve_app
from tests.support.servers.http_responses import CHAT_RESPONSE, http_response, openai_error_body
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire import __version__
from toolwire.cli.output.exchange_report import format_record
from toolwire.journal.records import decode_recorded_response
from toolwire.upstream.provider import parse_origin
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script

CANARY = "canary-of-a-server-key"


async def exchange_once(gateway: RunningGateway, protocol: str, *, stream: bool, **headers: str) -> tuple[str, bytes]:
    response = await gateway.send_question(protocol, stream=stream, **headers)
    body = await response.read(1_000_000)
    assert response.status == 200, body
    return response.headers["toolwire-exchange"], body


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", PROTOCOL_NAMES)
def test_complete_exchange_is_recorded(client: str, stream: bool, tmp_path: Path) -> None:
    async def work(base_url: str) -> None:
        config = one_provider_config(parse_origin(base_url), "gemini", journal_config(tmp_path))
        async with run_gateway(config) as gateway:
            id, body = await exchange_once(gateway, client, stream=stream)
        (record,) = read_journal(tmp_path)
        path, request_body = question_request(client, stream=stream)
        assert (record.id, record.path, record.client) == (id, path.partition("?")[0], client)
        assert (record.provider, record.protocol, record.model) == ("up", "gemini", "m")
        assert (record.status, record.streamed, record.toolwire) == (200, stream, __version__)
        assert record.bodies is not None
        assert (record.bodies.request, record.bodies.response) == (request_body, body)
        assert json.loads(record.bodies.translated)["contents"][0]["parts"] == [
            {"text": "What is the weather in Paris?"}
        ]
        assert record.usage["input_tokens"] > 0
        assert record.usage["output_tokens"] > 0
        assert record.sent is not None
        assert record.answered is not None
        assert 0 < record.sent < record.answered <= record.ended < DEADLINE

    with serve_app(Simulator()) as base_url:
        run_async(work(base_url))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_recorded_losses_equal_reported_losses(stream: bool, tmp_path: Path) -> None:
    async def work(base_url: str) -> None:
        async with run_gateway(
            one_provider_config(parse_origin(base_url), "ollama", journal_config(tmp_path, ""))
        ) as gateway:
            body = {"model": "m", "max_tokens": 99, "metadata": {"user_id": "u"}, "stream": stream}
            body["messages"] = [{"role": "user", "content": "Hi"}]
            response = await gateway.post("/v1/messages", json.dumps(body).encode())
            await response.read(100_000)
            _, losses = await gateway.get(f"/toolwire/exchanges/{response.headers['toolwire-exchange']}/losses")
        (record,) = read_journal(tmp_path)
        assert "/metadata/user_id" in [loss.path for loss in record.losses]
        assert [loss.path for loss in record.losses] == [loss["path"] for loss in json.loads(losses)["losses"]]

    with serve_app(Simulator()) as base_url:
        run_async(work(base_url))


@pytest.mark.parametrize(
    ("price", "cost"), [('[models."m"]\nprices = {input = 1000.0, output = 2000.0}', 0.011), ("", None)]
)
def test_cost_of_each_exchange_is_recorded(price: str, cost: float | None, tmp_path: Path) -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(CHAT_RESPONSE, CHAT_RESPONSE, http_response("400 Bad", openai_error_body("no")))
        async with run_gateway_with(upstream, extra_config=f"{journal_config(tmp_path, '')}\n{price}") as gateway:
            for _ in range(3):
                await (await gateway.send_question("anthropic")).read(100_000)
        records = read_journal(tmp_path)
        assert [record.cost for record in records] == [cost, cost, None]  # the last request was refused
        text = "".join(map(format_record, records))
        assert text.count("$0.0110") == (0 if cost is None else 2)

    run_async(work())


def test_many_exchanges_are_recorded_separately(tmp_path: Path) -> None:
    """Records are stored as differences to the one before."""
    request_body = ["anthropic"] * 40 + ["openai-chat", "anthropic", "anthropic", "openai-chat"] * 8

    async def work(base_url: str) -> None:
        async with run_gateway(
            one_provider_config(parse_origin(base_url), "openai-chat", journal_config(tmp_path, ""))
        ) as gateway:
            ids = [(await exchange_once(gateway, client, stream=False))[0] for client in request_body]
        records = read_journal(tmp_path)
        assert [(record.id, record.client) for record in records] == list(zip(ids, request_body, strict=True))
        assert [record.at for record in records] == sorted(record.at for record in records)
        for record in records:
            assert record.sent is not None
            assert record.answered is not None
            assert 0 < record.sent < record.answered <= record.ended
            assert record.usage["output_tokens"] > 0
            assert (record.status, record.provider, record.stop_reasons) == (200, "up", ["end_turn"])
            assert bool(record.losses) == (record.client == "anthropic")

    with serve_app(Simulator()) as base_url:
        run_async(work(base_url))


def test_bodies_are_recorded_only_if_configured(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_gateway_with(
            ScriptedUpstream(CHAT_RESPONSE), extra_config=journal_config(tmp_path, "")
        ) as gateway:
            await exchange_once(gateway, "anthropic", stream=False)
        (record,) = read_journal(tmp_path)
        assert (record.bodies, record.usage["input_tokens"]) == (None, 3)
        assert b"weather in Paris" not in (tmp_path / "journal.db").read_bytes()

    run_async(work())


def test_disabled_journal_creates_no_file(tmp_path: Path) -> None:
    async def work() -> None:
        more = f'[journal]\npath = "{tmp_path}/journal.db"\n'
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE), extra_config=more) as gateway:
            await exchange_once(gateway, "anthropic", stream=False)
            assert gateway.gateway.app._recorder is None
            assert b"toolwire_journal" not in (await gateway.get("/metrics"))[1]

    run_async(work())
    assert list(tmp_path.iterdir()) == []


def test_errors_are_recorded_with_their_response(tmp_path: Path) -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            http_response("400 Bad", openai_error_body("temperature: too hot", "invalid_request_error"))
        )
        async with run_gateway_with(script, extra_config=journal_config(tmp_path)) as gateway:
            response = await gateway.send_question("gemini")
            body = await response.read(10_000)
            await gateway.post("/v1/messages", b"{")
        refused, unreadable = read_journal(tmp_path)
        assert (refused.status, refused.provider, refused.protocol) == (400, "p0", "openai-chat")
        assert "too hot" in refused.error
        assert refused.bodies is not None
        assert refused.bodies.response == body
        assert json.loads(refused.bodies.translated)["model"] == "m"
        assert (unreadable.status, unreadable.provider, unreadable.client) == (400, "", "anthropic")

    run_async(work())


def test_client_disconnect_is_recorded(tmp_path: Path) -> None:
    async def work(base_url: str) -> None:
        async with run_gateway(
            one_provider_config(parse_origin(base_url), "gemini", journal_config(tmp_path))
        ) as gateway:
            response = await gateway.send_question("anthropic", stream=True)
            await response.next()
            response.close()
            while b'client="anthropic"' not in (await gateway.get("/metrics"))[1]:
                await run_event_loop()
        (record,) = read_journal(tmp_path)
        assert (record.status, record.streamed) == (499, True)
        assert record.bodies is not None
        assert record.bodies.response.startswith(b"event: message_start")

    with serve_app(Simulator(pace=0.05)) as base_url:
        run_async(work(base_url))


def test_secrets_are_not_recorded(tmp_path: Path) -> None:
    """In a body, in a provider's error, in the URL, and in the keys themselves."""

    async def work() -> None:
        echo = openai_error_body("wrong key upstream-secret-key for sk-abcdefghijklmnop")
        script = ScriptedUpstream(
            http_response("400 Bad", echo.replace(b"server_error", b"invalid_request_error")), CHAT_RESPONSE
        )
        more = f'[server]\nkeys = ["{CANARY}"]\n{journal_config(tmp_path)}'
        async with (
            serve_upstream(script) as origin,
            run_gateway(one_provider_config(origin, "openai-chat", more)) as gateway,
        ):
            for _ in range(2):
                path, body = question_request(
                    "gemini", text=f"my keys: {CANARY}, upstream-secret-key\nsk-abcdefghijklmnop"
                )
                response = await gateway.post(f"{path}?key={CANARY}", body)
                await response.read(10_000)

    run_async(work())
    assert len(read_journal(tmp_path)) == 2
    recorded = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"my keys: [removed], [removed]" in recorded
    for secret in (CANARY.encode(), b"upstream-secret-key", b"sk-abcdefghijklmnop"):
        assert secret not in recorded


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
def test_secrets_split_over_stream_chunks_are_not_recorded(client: str, tmp_path: Path) -> None:
    """The simulator repeats its input word by word: no chunk contains the secret."""

    async def work(base_url: str) -> None:
        async with run_gateway(
            one_provider_config(parse_origin(base_url), "gemini", journal_config(tmp_path))
        ) as gateway:
            for text in ("Say upstream-secret-key or sk-abcd-efgh-ijkl", "Say something else"):
                path, body = question_request(client, stream=True, text=text)
                http_reply = await gateway.post(path, body)
                read = await http_reply.read(100_000)
                assert http_reply.status == 200
            assert b"secret" not in read

    with serve_app(Simulator()) as base_url:
        run_async(work(base_url))
    recorded = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for piece in (b"secret", b"efgh"):
        assert piece not in recorded
    folded, complete_body = read_journal(tmp_path)
    assert folded.bodies is not None
    assert folded.bodies.folded
    assert b"Say [removed] or [removed]" in folded.bodies.response
    assert complete_body.bodies is not None
    assert not complete_body.bodies.folded
    assert (response := decode_recorded_response(folded)) is not None
    assert response.candidates[0].stop is not None
    assert response.candidates[0].stop.reason == "end_turn"


def test_full_journal_queue_does_not_change_responses(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_gateway_with(
            ScriptedUpstream(CHAT_RESPONSE), extra_config=journal_config(tmp_path, "bodies = true\nqueue = 1")
        ) as gateway:
            await exchange_once(gateway, "anthropic", stream=False)
            metrics = (await gateway.get("/metrics"))[1]
            assert b"toolwire_journal_dropped_total 1\n" in metrics
            assert b"toolwire_journal_written_total 0\n" in metrics
        assert read_journal(tmp_path) == []

    run_async(work())


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def test_journal_failure_does_not_stop_exchanges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE), extra_config=journal_config(tmp_path)) as gateway:
            replace_by_directory(tmp_path / "journal.db")
            await exchange_once(gateway, "anthropic", stream=False)
            while b"dropped_total 1" not in (await gateway.get("/metrics"))[1]:
                await run_event_loop()
            health = json.loads((await gateway.get("/healthz"))[1])
            assert (health["status"], list(health["reasons"])) == ("degraded", ["journal"])

    run_async(work())
    assert "journal: DatabaseUnusable: Is a directory" in capsys.readouterr().err


def test_model_lists_and_health_checks_are_not_recorded(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE), extra_config=journal_config(tmp_path)) as gateway:
            for path in ("/healthz", "/v1/models", "/nothing"):
                await gateway.get(path)
        assert read_journal(tmp_path) == []

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("text", ["What is the weather?", "senseless"])
def test_background_response_is_recorded_when_complete(stream: bool, text: str, tmp_path: Path) -> None:
    script = b'[[turns]]\nwhen = "senseless"\nrepeat = 0\nerror = {kind = "invalid_request", message = "No sense."}\n'

    async def work(base_url: str) -> None:
        async with run_gateway(
            one_provider_config(parse_origin(base_url), "gemini", journal_config(tmp_path))
        ) as gateway:
            body = {"model": "m", "input": text, "background": True, "stream": stream}
            response = await gateway.post("/v1/responses", json.dumps(body).encode())
            await response.read(100_000)
            await wait_until_async(lambda: read_journal(tmp_path))
        (record,) = read_journal(tmp_path)
        assert (record.id, record.provider) == (response.headers["toolwire-exchange"], "up")
        assert record.bodies is not None
        assert json.loads(record.bodies.translated)["contents"][0]["parts"] == [{"text": text}]
        header = json.loads(record.bodies.response)
        if text == "senseless":
            assert (record.status, record.error, header["status"]) == (400, "No sense.", "failed")
        else:
            assert (record.status, record.stop_reasons, header["status"]) == (200, ["end_turn"], "completed")
            assert record.usage["output_tokens"] > 0

    with serve_app(Simulator(script=parse_script(script, "script"))) as base_url:
        run_async(work(base_url))
