"""Secrets of the configuration in what an upstream says went wrong: no client sees them, in any protocol."""

import json
from typing import Any

import pytest

from tests.support.gateway.emulated_exchange import canonical_response, encode_http_response
from tests.support.gateway.in_process import (
    PROTOCOL_NAMES,
    one_provider_config,
    question_request,
    run_async,
    run_gateway,
)
from tests.support.servers.http_responses import CHAT_RESPONSE, SSE_HEAD, STREAM_START, http_response, transfer_chunk
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire.canonical.content import Text
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import ResponseFailed, ResponseStart
from toolwire.codec.interface import ResponseContext
from toolwire.gateway.config import configured_secrets, parse_config
from toolwire.gateway.errors import redact_error
from toolwire.journal.redaction import Redactor
from toolwire.protocols import PROTOCOLS

SECRETS = ("upstream-secret-key", "header/secret+123456", "query secret 987654", "client-key-of-another")
ALL = " ".join(SECRETS)
SETTINGS = f'headers = {{"x-token" = "{SECRETS[1]}"}}\nquery = {{code = "{SECRETS[2]}"}}\n'
KEYS = f'[server]\nkeys = ["the-clients-own-key", "{SECRETS[3]}"]\n[limits]\nretries = 0\n'
SHAPES: tuple[Any, ...] = (
    {"error": {"message": f"bad key {ALL}", "type": ALL, "param": ALL, "code": ALL}},
    {"error": {"message": "no", "code": 400, "metadata": {"raw": ALL, "provider_name": "x"}, "beside": [ALL]}},
    {"error": {"message": "no", "status": "INVALID_ARGUMENT", "details": [{"reason": ALL, "metadata": {"k": ALL}}]}},
    {"type": "error", "error": {"type": "invalid_request_error", "message": ALL, "details": ALL}, "request_id": ALL},
    {"error": ALL},
    {"error": [ALL]},
    {"detail": ALL},
    {"detail": [{"loc": ["header", ALL], "msg": ALL}]},
    {"message": ALL, "unknown": {ALL: ALL}},
    [{"error": {"message": ALL}}],
    ALL,
)


def configured(origin: Any, protocol: str) -> str:
    return one_provider_config(origin, protocol, KEYS, timeout=60).replace("timeout", f"{SETTINGS}timeout")


def bodies() -> list[bytes]:
    """Every shape, spelled plainly and with the escapes that some servers write."""
    plain = [json.dumps(shape).encode() for shape in SHAPES]
    return plain + [one.replace(b"/", b"\\/") for one in plain]


def leaked(*data: bytes) -> list[str]:
    found = b" ".join(data).replace(b"\\/", b"/")
    return [secret for secret in SECRETS if secret.encode() in found]


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_errors_contain_no_secrets(protocol: str) -> None:
    """Errors of every upstream reach clients of every protocol without secrets."""

    async def work() -> None:
        answers = [http_response("400 Bad", body) for body in bodies()]
        script = ScriptedUpstream(*answers * len(PROTOCOL_NAMES))
        async with serve_upstream(script) as origin, run_gateway(configured(origin, protocol)) as gateway:
            for client in PROTOCOL_NAMES:
                path, body = question_request(client)
                for sent in bodies():
                    got = await gateway.post(path, body, authorization="Bearer the-clients-own-key")
                    data = await got.read(100_000)
                    assert got.status == 400, (client, sent, data)
                    assert not leaked(data, str(got.headers).encode()), (client, sent, data)
        assert len(script.requests) == len(answers) * len(PROTOCOL_NAMES)

    run_async(work())


def failing_stream(protocol: str, *, begun: bool) -> bytes:
    """A stream of the protocol that says all secrets in its error, at once or after it began."""
    error = ApiError(kind="server", message=ALL, code=ALL, param=ALL, request_id=ALL)
    encoder = PROTOCOLS[protocol].stream_encoder(ResponseContext(created=1))
    start = [ResponseStart(origin=protocol, id="r", model="m")] if begun else []
    data = encoder.encode([*start, ResponseFailed(error=error)]) + encoder.close()
    assert ALL.encode() in data
    return SSE_HEAD + transfer_chunk(data) + b"0\r\n\r\n"


@pytest.mark.parametrize("begun", [False, True], ids=["at once", "begun"])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_stream_errors_contain_no_secrets(protocol: str, begun: bool) -> None:
    """The same holds for errors in streams."""

    async def work() -> None:
        script = ScriptedUpstream(*[failing_stream(protocol, begun=begun)] * len(PROTOCOL_NAMES))
        async with serve_upstream(script) as origin, run_gateway(configured(origin, protocol)) as gateway:
            for client in PROTOCOL_NAMES:
                path, body = question_request(client, stream=True)
                got = await gateway.post(path, body, authorization="Bearer the-clients-own-key")
                data = await got.read(100_000)
                assert b"[removed]" in data, (client, data)
                assert not leaked(data), (client, data)

    run_async(work())


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
def test_unknown_fields_of_stream_errors_contain_no_secrets(client: str) -> None:
    """OpenRouter repeats the error of its provider in `metadata.raw`."""

    async def work() -> None:
        error = {"error": {"message": "no", "code": 502, "metadata": {"raw": ALL}}, "beside": ALL}
        stream = (
            SSE_HEAD + transfer_chunk(STREAM_START + b"data: " + json.dumps(error).encode() + b"\n\n") + b"0\r\n\r\n"
        )
        for protocol in ("openai-chat", "openrouter"):
            async with (
                serve_upstream(ScriptedUpstream(stream)) as origin,
                run_gateway(configured(origin, protocol)) as gateway,
            ):
                path, body = question_request(client, stream=True)
                got = await gateway.post(path, body, authorization="Bearer the-clients-own-key")
                data = await got.read(100_000)
                assert b"sunny" in data
                assert not leaked(data), data

    run_async(work())


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@pytest.mark.parametrize("protocol", ["openai-responses", "gemini-interactions", "openai-chat"])
def test_failed_responses_contain_no_secrets(protocol: str, client: str) -> None:
    """The error is inside a body with status 200."""
    failed = {
        "openai-responses": {"status": "failed", "error": {"code": "server_error", "message": ALL, "more": ALL}},
        "gemini-interactions": {"status": "failed", "errors": [{"code": "13", "message": ALL, "more": ALL}]},
        "openai-chat": {"error": {"message": ALL, "metadata": {"raw": ALL}}},
    }[protocol]

    async def work() -> None:
        told = (
            json.loads(
                encode_http_response(protocol, canonical_response(Text(text="")), stream=False).partition(b"\r\n\r\n")[
                    2
                ]
            )
            | failed
        )
        script = ScriptedUpstream(http_response("200 OK", json.dumps(told).encode()))
        async with serve_upstream(script) as origin, run_gateway(configured(origin, protocol)) as gateway:
            path, body = question_request(client)
            got = await gateway.post(path, body, authorization="Bearer the-clients-own-key")
            data = await got.read(100_000)
            assert b"[removed]" in data
            assert not leaked(data), data

    run_async(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_dry_run_omits_the_providers_query(protocol: str) -> None:
    """`query` may hold a key, such as `code` of Azure Functions."""

    async def work() -> None:
        async with (
            serve_upstream(ScriptedUpstream(CHAT_RESPONSE)) as origin,
            run_gateway(configured(origin, protocol)) as gateway,
        ):
            asked = {"protocol": "openai-chat", "body": json.loads(question_request("openai-chat")[1])}
            key = "Bearer the-clients-own-key"
            got = await gateway.post("/toolwire/translate", json.dumps(asked).encode(), authorization=key)
            found = json.loads(await got.read(100_000))
            assert got.status == 200, found
            assert found["address"].startswith("/")
            assert "code" not in found["address"]
            assert "secret" not in found["address"]

    run_async(work())


def test_an_error_without_secrets_stays_as_it_is() -> None:
    """Home is exact: the spelling of what holds no secret is not touched."""
    config = parse_config('[server]\nkeys = ["some-long-key"]', {})
    redactor = Redactor(configured_secrets(config, ()))
    body = (
        b'{"error":{"message":"no","type":"t","beside":{"n": 1.50,"big":123456789012345678901234567890,"s":"a\\/b"}}}'
    )
    error = PROTOCOLS["openai-chat"].decode_error(body, 400)
    assert redact_error(error, redactor) == error
