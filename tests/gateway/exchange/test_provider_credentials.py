"""Keys that a command prints, and clients' own keys: where they go, and where they never go."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from websockets.asyncio.client import connect

from tests.support.clock import Clock
from tests.support.gateway.in_process import (
    PROTOCOL_NAMES,
    RunningGateway,
    journal_config,
    question_request,
    read_journal,
    run_async,
    run_gateway,
)
from tests.support.servers.http_responses import BUSY_RESPONSE, CHAT_RESPONSE, http_response, openai_error_body
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire.cli import main
from toolwire.gateway.config import ConfigError, parse_config
from toolwire.gateway.keys.client_key import create_secret, hash_secret
from toolwire.gateway.observability.metrics import open_breakers
from toolwire.upstream.key_command import MIN_INTERVAL

OWN_KEY = "my-own-key-for-the-provider"
GATEWAY_KEY = "key-of-the-gateway"
TEAM_KEY = create_secret()
PATH, BODY = question_request("openai-chat", model="one/m")


def provider(name: str, origin: str, credential: str, protocol: str = "openai-chat") -> str:
    return f'[providers.{name}]\nprotocol = "{protocol}"\nbase_url = "http://{origin}"\n{credential}\n'


def key_command(folder: Path) -> str:
    """Return the setting of a command that prints `printed-key-1`, `printed-key-2` and so on."""
    count = f"echo x >> '{folder}/runs'; echo printed-key-$(wc -l < '{folder}/runs' | tr -d ' ')"
    return f"api_key = {{command = ['sh', '-c', \"{count}\"], ttl = 300}}"


def unauthorized(secret: str) -> bytes:
    return http_response("401 Unauthorized", openai_error_body(f"Incorrect API key provided: {secret}"))


def sent_headers(request: bytes) -> dict[str, str]:
    lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return dict(line.lower().split(": ", 1) if "authorization" not in line else line.split(": ", 1) for line in lines)


@asynccontextmanager
async def run_with(
    upstream: ScriptedUpstream, credential: str, extra: str = "", protocol: str = "openai-chat"
) -> AsyncIterator[RunningGateway]:
    async with (
        serve_upstream(upstream) as origin,
        run_gateway(provider("one", origin.authority, credential, protocol) + extra) as gateway,
    ):
        yield gateway


async def ask(gateway: RunningGateway, **headers: str) -> tuple[int, str]:
    answer = await gateway.post(PATH, BODY, **headers)
    return answer.status, (await answer.read(100_000)).decode()


# ---- keys that a command prints


def test_request_carries_the_key_that_the_command_prints(tmp_path: Path, clock: Clock) -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(CHAT_RESPONSE)
        async with run_with(upstream, key_command(tmp_path)) as gateway:
            for _ in range(2):
                assert (await ask(gateway))[0] == 200
            clock.advance(301)
            assert (await ask(gateway))[0] == 200
        sent = [sent_headers(request)["authorization"] for request in upstream.requests]
        assert sent == ["Bearer printed-key-1", "Bearer printed-key-1", "Bearer printed-key-2"]

    run_async(work())


def test_rejected_key_is_renewed_and_the_request_sent_once_more(tmp_path: Path, clock: Clock) -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(CHAT_RESPONSE, unauthorized("printed-key-1"), CHAT_RESPONSE, unauthorized("x"))
        async with run_with(upstream, key_command(tmp_path)) as gateway:
            assert (await ask(gateway))[0] == 200
            clock.advance(MIN_INTERVAL)
            assert (await ask(gateway))[0] == 200
            clock.advance(MIN_INTERVAL)
            status, text = await ask(gateway)
            assert (status, "one rejected the configured API key" in text) == (401, True)
        sent = [sent_headers(request)["authorization"][-1] for request in upstream.requests]
        assert sent == ["1", "1", "2", "2", "3"]

    run_async(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_failed_command_is_an_error_in_the_clients_protocol_without_output(protocol: str, tmp_path: Path) -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(CHAT_RESPONSE)
        credential = 'api_key = {command = ["sh", "-c", "echo hunter2-hunter2; exit 7"]}'
        async with run_with(upstream, credential, journal_config(tmp_path)) as gateway:
            path, body = question_request(protocol, model="one/m")
            answer = await gateway.post(path, body)
            text = (await answer.read(100_000)).decode()
            assert "one can't be used: the command 'sh' for its key failed with exit status 7" in text
            assert (answer.status, "hunter2" in text) == (502, False)
        assert not upstream.requests
        assert "hunter2" not in repr(read_journal(tmp_path))

    run_async(work())


def test_failed_command_fails_over(tmp_path: Path) -> None:
    async def work() -> None:
        spare = ScriptedUpstream(CHAT_RESPONSE)
        async with serve_upstream(spare) as origin:
            extra = provider("two", origin.authority, 'api_key = "static-key"')
            extra += '[[routes]]\nproviders = ["one", "two"]\nmodel = "m"\n'
            async with run_with(ScriptedUpstream(), 'api_key = {command = ["false"]}', extra) as gateway:
                assert (await ask(gateway))[0] == 200
        assert sent_headers(spare.requests[0])["authorization"] == "Bearer static-key"

    run_async(work())


def test_printed_key_is_redacted_in_errors_and_in_the_journal(tmp_path: Path) -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(http_response("400 Bad", openai_error_body("bad header: Bearer printed-key-1")))
        async with run_with(upstream, key_command(tmp_path), journal_config(tmp_path)) as gateway:
            status, text = await ask(gateway)
            assert (status, "bad header: Bearer [removed]" in text) == (400, True)
        assert "printed-key" not in repr(read_journal(tmp_path))

    run_async(work())


def test_list_of_models_is_requested_with_the_printed_key(tmp_path: Path) -> None:
    async def work() -> None:
        models = http_response("200 OK", b'{"object": "list", "data": [{"id": "listed"}]}')
        upstream = ScriptedUpstream(models, lists_models=True)
        async with run_with(upstream, key_command(tmp_path)) as gateway:
            _, data = await gateway.get("/v1/models")
            assert "one/listed" in data.decode()
        assert sent_headers(upstream.requests[0])["authorization"] == "Bearer printed-key-1"

    run_async(work())


def test_doctor_runs_the_command_and_says_why_it_fails(tmp_path: Path) -> None:
    config = tmp_path / "toolwire.toml"
    config.write_text(provider("one", "127.0.0.1:9", 'api_key = {command = ["false"]}'))
    result = CliRunner().invoke(main, ["doctor", "--config", str(config)])
    assert "key from the command 'false': the command 'false' for its key failed with exit status 1" in result.output


def test_config_show_hides_only_secrets_in_the_command(tmp_path: Path) -> None:
    config = tmp_path / "toolwire.toml"
    for argument, is_shown in (("print-access-token", True), ("--token=hunter2", False)):
        config.write_text(provider("one", "127.0.0.1:9", f'api_key = {{command = ["gcloud", "{argument}"]}}'))
        shown = CliRunner().invoke(main, ["config", "show", "--config", str(config)]).output
        assert ("providers.one.api_key.command" in shown, argument in shown) == (True, is_shown)
    config.write_text(provider("one", "127.0.0.1:9", 'client_credential = "x-one-key"'))
    assert "x-one-key" in CliRunner().invoke(main, ["config", "show", "--config", str(config)]).output


# ---- clients' own keys


OWN = 'client_credential = "authorization"'
BEARER = f"Bearer {OWN_KEY}"


def test_own_key_reaches_its_provider_and_no_other() -> None:
    async def work() -> None:
        one, two = ScriptedUpstream(BUSY_RESPONSE), ScriptedUpstream(CHAT_RESPONSE)
        async with serve_upstream(two) as origin:
            extra = provider("two", origin.authority, 'api_key = "static-key"')
            extra += '[[routes]]\nmatch = "one/*"\nproviders = ["one", "two"]\nmodel = "m"\n[limits]\nretries = 0\n'
            async with run_with(one, OWN, extra) as gateway:
                assert (await ask(gateway, authorization=BEARER))[0] == 200
        assert sent_headers(one.requests[0])["authorization"] == BEARER
        assert sent_headers(two.requests[0])["authorization"] == "Bearer static-key"
        assert OWN_KEY.encode() not in two.requests[0]

    run_async(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_request_without_its_own_key_is_an_error_in_the_clients_protocol(protocol: str) -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(CHAT_RESPONSE)
        async with run_with(upstream, OWN) as gateway:
            path, body = question_request(protocol, model="one/m")
            answer = await gateway.post(path, body, x_api_key=OWN_KEY)
            text = (await answer.read(100_000)).decode()
            assert "one can't be used: it needs the client's own key in the header 'authorization'" in text
            assert (answer.status, upstream.requests) == (401, [])

    run_async(work())


@pytest.mark.parametrize("secret", [GATEWAY_KEY, TEAM_KEY], ids=["server.keys", "keys"])
def test_key_of_the_gateway_is_never_passed_on(secret: str) -> None:
    keys = f'[server]\nkeys = ["{GATEWAY_KEY}"]\n[keys.team]\nhash = "{hash_secret(TEAM_KEY)}"\n'

    async def work() -> None:
        upstream = ScriptedUpstream(CHAT_RESPONSE)
        async with run_with(upstream, OWN, keys) as gateway:
            status, text = await ask(gateway, authorization=f"Bearer {secret}")
            assert (status, "not a key of the gateway" in text, upstream.requests) == (401, True, [])
            assert (await ask(gateway, authorization=BEARER, x_api_key=secret))[0] == 200
            assert (await ask(gateway, authorization=BEARER))[0] == 401
        assert [secret.encode() in request for request in upstream.requests] == [False]

    run_async(work())


@pytest.mark.parametrize(
    ("client", "header", "value", "sent"),
    [
        ("anthropic", "authorization", BEARER, ("authorization", BEARER)),
        ("anthropic", "x-api-key", OWN_KEY, ("x-api-key", OWN_KEY)),
        ("openai-chat", "authorization", BEARER, ("x-api-key", OWN_KEY)),
        ("openai-chat", "x-one-key", OWN_KEY, ("x-api-key", OWN_KEY)),
    ],
)
def test_own_key_is_sent_as_the_provider_expects_it(
    client: str, header: str, value: str, sent: tuple[str, str]
) -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(http_response("400 Bad", b"{}"))
        async with run_with(upstream, f'client_credential = "{header}"', protocol="anthropic") as gateway:
            path, body = question_request(client, model="one/m")
            answer = await gateway.post(path, body, **{header.replace("-", "_"): value})
            await answer.read(100_000)
        headers = sent_headers(upstream.requests[0])
        assert headers[sent[0]] == sent[1]
        assert str(headers).count(OWN_KEY) == 1

    run_async(work())


def test_own_key_is_redacted_and_its_rejection_concerns_only_its_client(tmp_path: Path) -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(*[unauthorized(OWN_KEY)] * 6, CHAT_RESPONSE)
        extra = journal_config(tmp_path) + '[[routes]]\nbackends = [{provider = "one", model = "m"}]\n'
        async with run_with(upstream, OWN, extra) as gateway:
            for _ in range(6):  # more than `limits.failures`
                status, text = await ask(gateway, authorization=BEARER)
                assert (status, OWN_KEY in text) == (401, False)
                assert "one rejected the client's API key: Incorrect API key provided: [removed]" in text
            assert open_breakers((await gateway.get("/metrics"))[1].decode()) == []
            assert (await ask(gateway, authorization="Bearer another-key"))[0] == 200
        records = read_journal(tmp_path)
        assert (len(records), OWN_KEY in repr(records)) == (7, False)

    run_async(work())


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/messages/count_tokens"])
def test_own_key_is_used_at_other_endpoints(path: str) -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(http_response("200 OK", b'{"data": [], "input_tokens": 3}'))
        protocol = "anthropic" if "messages" in path else "openai-chat"
        async with run_with(upstream, OWN, protocol=protocol) as gateway:
            body = {"model": "one/m", "input": "x", "messages": [{"role": "user", "content": "Hi"}]}
            answer = await gateway.post(path, json.dumps(body).encode(), authorization=BEARER)
            assert answer.status == 200, await answer.read(1000)
        assert sent_headers(upstream.requests[-1])["authorization"] == BEARER

    run_async(work())


def test_own_key_of_a_websocket_is_that_of_its_handshake() -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(http_response("400 Bad", openai_error_body("no")))
        async with run_with(upstream, OWN) as gateway:
            url = f"ws://{gateway.origin.authority}/v1/responses"
            async with connect(url, additional_headers={"authorization": BEARER}) as socket:
                await socket.send(json.dumps({"type": "response.create", "model": "one/m", "input": "Hi"}))
                assert "error" in str(await socket.recv())
        assert sent_headers(upstream.requests[0])["authorization"] == BEARER

    run_async(work())


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ('client_credential = "cookie"', "'cookie' can't carry a key: use authorization, or a name such as x-one-key"),
        ('client_credential = "X Y"', "can't carry a key"),
        ('client_credential = "authorization"\napi_key = "k"', "can't be combined with api_key"),
        ('client_credential = "authorization"\nheaders = {Authorization = "k"}', "headers sets authorization already"),
        ("api_key = {command = []}", "expected a program and its arguments"),
        ('api_key = {command = "gcloud auth"}', "expected an array"),
        ('api_key = {command = ["gcloud"], ttl = 0}', "expected a number greater than 0"),
        ('api_key = {command = ["x"], tll = 3}', 'unknown key "tll" in [providers.one.api_key] (did you mean "ttl"?)'),
    ],
)
def test_invalid_credentials_are_configuration_errors(settings: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(provider("one", "127.0.0.1:9", settings), {})
    assert problem in str(caught.value)


def test_header_of_own_keys_belongs_to_one_address() -> None:
    one, same = provider("one", "a.example", OWN), provider("same", "a.example/v1", OWN, "openai-responses")
    assert len(parse_config(one + same, {}).providers) == 2
    with pytest.raises(ConfigError, match=r"providers\.one has another address and takes the same header"):
        parse_config(one + provider("two", "b.example", OWN), {})


def test_command_of_an_untrusted_file_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toolwire.toml").write_text(provider("one", "127.0.0.1:9", key_command(tmp_path)))
    result = CliRunner().invoke(main, ["doctor"])
    assert "toolwire.toml is not trusted" in result.output
    assert not (tmp_path / "runs").exists()
    assert CliRunner().invoke(main, ["config", "trust"]).exit_code == 0
    CliRunner().invoke(main, ["doctor"])
    assert (tmp_path / "runs").exists()
