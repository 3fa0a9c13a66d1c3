"""Errors of upstreams: configured secrets never reach a client, and `retry-after` is read."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
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
from toolwire.gateway.errors import read_retry_after, redact_error
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
    """Return every error shape, plain and with the escapes that some servers write."""
    plain = [json.dumps(shape).encode() for shape in SHAPES]
    return plain + [one.replace(b"/", b"\\/") for one in plain]


def leaked_secrets(*data: bytes) -> list[str]:
    decoded = b" ".join(data).replace(b"\\/", b"/")
    return [secret for secret in SECRETS if secret.encode() in decoded]


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_errors_of_any_shape_are_redacted(protocol: str) -> None:
    """Errors of every upstream hold no secrets, for clients of every protocol including its own."""

    async def work() -> None:
        responses = [http_response("400 Bad", body) for body in bodies()]
        script = ScriptedUpstream(*responses * len(PROTOCOL_NAMES))
        async with serve_upstream(script) as origin, run_gateway(configured(origin, protocol)) as gateway:
            for client in PROTOCOL_NAMES:
                path, body = question_request(client)
                for error_body in bodies():
                    response = await gateway.post(path, body, authorization="Bearer the-clients-own-key")
                    data = await response.read(100_000)
                    assert response.status == 400, (client, error_body, data)
                    assert not leaked_secrets(data, str(response.headers).encode()), (client, error_body, data)
        assert len(script.requests) == len(responses) * len(PROTOCOL_NAMES)

    run_async(work())


def failing_stream(protocol: str, *, begun: bool) -> bytes:
    """Return a stream whose error contains all secrets, at once or after it began."""
    error = ApiError(kind="server", message=ALL, code=ALL, param=ALL, request_id=ALL)
    encoder = PROTOCOLS[protocol].stream_encoder(ResponseContext(created=1))
    start = [ResponseStart(origin=protocol, id="r", model="m")] if begun else []
    data = encoder.encode([*start, ResponseFailed(error=error)]) + encoder.close()
    assert ALL.encode() in data
    return SSE_HEAD + transfer_chunk(data) + b"0\r\n\r\n"


@pytest.mark.parametrize("started", [False, True], ids=["at once", "begun"])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_stream_errors_are_redacted(protocol: str, started: bool) -> None:
    """The same holds for errors in streams."""

    async def work() -> None:
        script = ScriptedUpstream(*[failing_stream(protocol, begun=started)] * len(PROTOCOL_NAMES))
        async with serve_upstream(script) as origin, run_gateway(configured(origin, protocol)) as gateway:
            for client in PROTOCOL_NAMES:
                path, body = question_request(client, stream=True)
                response = await gateway.post(path, body, authorization="Bearer the-clients-own-key")
                data = await response.read(100_000)
                assert b"[removed]" in data, (client, data)
                assert not leaked_secrets(data), (client, data)

    run_async(work())


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
def test_unknown_members_of_stream_errors_are_redacted(client: str) -> None:
    """OpenRouter repeats its provider's error in `metadata.raw`."""

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
                response = await gateway.post(path, body, authorization="Bearer the-clients-own-key")
                data = await response.read(100_000)
                assert b"sunny" in data
                assert not leaked_secrets(data), data

    run_async(work())


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@pytest.mark.parametrize("protocol", ["openai-responses", "gemini-interactions", "openai-chat"])
def test_failed_responses_are_redacted(protocol: str, client: str) -> None:
    """An error inside a body with status 200."""
    failed = {
        "openai-responses": {"status": "failed", "error": {"code": "server_error", "message": ALL, "more": ALL}},
        "gemini-interactions": {"status": "failed", "errors": [{"code": "13", "message": ALL, "more": ALL}]},
        "openai-chat": {"error": {"message": ALL, "metadata": {"raw": ALL}}},
    }[protocol]

    async def work() -> None:
        upstream_body = (
            json.loads(
                encode_http_response(protocol, canonical_response(Text(text="")), stream=False).partition(b"\r\n\r\n")[
                    2
                ]
            )
            | failed
        )
        script = ScriptedUpstream(http_response("200 OK", json.dumps(upstream_body).encode()))
        async with serve_upstream(script) as origin, run_gateway(configured(origin, protocol)) as gateway:
            path, body = question_request(client)
            response = await gateway.post(path, body, authorization="Bearer the-clients-own-key")
            data = await response.read(100_000)
            assert b"[removed]" in data
            assert not leaked_secrets(data), data

    run_async(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_dry_run_hides_the_providers_query(protocol: str) -> None:
    """`query` may contain a key, such as `code` of Azure Functions."""

    async def work() -> None:
        async with (
            serve_upstream(ScriptedUpstream(CHAT_RESPONSE)) as origin,
            run_gateway(configured(origin, protocol)) as gateway,
        ):
            request_body = {"protocol": "openai-chat", "body": json.loads(question_request("openai-chat")[1])}
            key = "Bearer the-clients-own-key"
            response = await gateway.post("/toolwire/translate", json.dumps(request_body).encode(), authorization=key)
            decoded = json.loads(await response.read(100_000))
            assert response.status == 200, decoded
            assert decoded["address"].startswith("/")
            assert "code" not in decoded["address"]
            assert "secret" not in decoded["address"]

    run_async(work())


def test_error_without_secrets_is_unchanged() -> None:
    """The spelling of errors without secrets is not touched."""
    config = parse_config('[server]\nkeys = ["some-long-key"]', {})
    redactor = Redactor(configured_secrets(config, ()))
    body = (
        b'{"error":{"message":"no","type":"t","beside":{"n": 1.50,"big":123456789012345678901234567890,"s":"a\\/b"}}}'
    )
    error = PROTOCOLS["openai-chat"].decode_error(body, 400)
    assert redact_error(error, redactor) == error


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0),
    ],
)
def test_retry_after_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert read_retry_after(headers) == seconds


def test_retry_after_may_be_a_date() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert 3500 < (read_retry_after({"retry-after": date}) or 0) <= 3600
