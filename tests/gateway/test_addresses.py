"""What is asked of the gateway besides an exchange, or in an unusual way: methods, look-ups, packed bodies."""

import gzip
import json
import zlib

import pytest

from tests.gateway.running import NEVER, PROTOCOL_NAMES, Running, question, run
from tests.gateway.test_exchange import GOOD, Script, in_front
from tests.gateway.test_faults import error_of
from toolwire.upstream.transport import head_of


async def ask(gateway: Running, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    answer = await gateway.transport.send(
        gateway.origin, head_of(gateway.origin, path, [], method), None, silence=NEVER
    )
    return answer.status, answer.headers, await answer.read(100_000)


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_an_address_that_takes_requests_says_so_to_another_method(protocol: str, method: str) -> None:
    async def work() -> None:
        script = Script(GOOD)
        path, _ = question(protocol)
        async with in_front(script) as gateway:
            status, headers, body = await ask(gateway, method, path)
            assert (status, headers["allow"]) == (405, "POST")
            assert "takes POST only" in error_of(protocol, 405, body).message
            assert script.asked == []

    run(work())


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/models", "GET"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/api/tags", "GET"),
        ("POST", "/metrics", "GET"),
        ("GET", "/api/show", "POST"),
        ("GET", "/toolwire/translate", "POST"),
    ],
)
def test_what_is_there_for_another_method_is_not_called_missing(method: str, path: str, allowed: str) -> None:
    async def work() -> None:
        async with in_front(Script(GOOD)) as gateway:
            status, headers, _ = await ask(gateway, method, path)
            assert (status, headers["allow"]) == (405, allowed)
            assert (await ask(gateway, method, "/nothing" + path))[0] == 404

    run(work())


def test_the_root_says_that_somebody_is_there() -> None:
    async def work() -> None:
        async with in_front(Script(GOOD)) as gateway:
            status, _, body = await ask(gateway, "GET", "/")
            assert (status, body) == (200, b"toolwire is running\n")

    run(work())


def test_a_model_that_would_answer_is_found_by_its_name() -> None:
    async def work() -> None:
        async with in_front(Script(GOOD)) as gateway:
            status, body = await gateway.get("/v1/models/any-name")
            found = json.loads(body)
            assert (status, found["id"], found["owned_by"]) == (200, "any-name", "p0")
            answer = await gateway.post("/api/show", b'{"model":"any-name:7b"}')
            assert "tools" in json.loads(await answer.read(10_000))["capabilities"]

    run(work())


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("GZIP, identity", gzip.compress),
        ("deflate, gzip", lambda body: gzip.compress(zlib.compress(body))),
        ("gzip", lambda body: gzip.compress(body[:20]) + gzip.compress(body[20:])),
    ],
    ids=["gzip", "deflate", "spelling", "two layers", "two members"],
)
def test_a_packed_body_is_read(encoding: str, pack: object) -> None:
    assert callable(pack)

    async def work() -> None:
        script = Script(GOOD)
        async with in_front(script) as gateway:
            path, body = question("anthropic")
            assert (await gateway.post(path, pack(body), content_encoding=encoding)).status == 200
            assert script.bodies[0]["messages"][0]["content"] == "What is the weather in Paris?"
            assert b"content-encoding" not in script.asked[0]

    run(work())


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("br", b"{}", 415),
        ("gzip," * 9, b"{}", 415),
        ("gzip", b"{}", 400),
        ("gzip", gzip.compress(b"{" + b" " * 100)[:-10], 400),
        ("gzip", gzip.compress(b" " * 50_000_000), 413),
        ("gzip, gzip", gzip.compress(gzip.compress(b" " * 50_000_000)), 413),
    ],
    ids=["unknown", "too many layers", "not packed", "cut", "bomb", "bomb in a bomb"],
)
def test_a_packed_body_that_is_no_good_is_refused(encoding: str, body: bytes, status: int) -> None:
    async def work() -> None:
        script = Script(GOOD)
        async with in_front(script, more="[limits]\nbody = 1000000") as gateway:
            answer = await gateway.post("/v1/messages", body, content_encoding=encoding)
            assert answer.status == status
            assert error_of("anthropic", status, await answer.read(10_000)).message.startswith("the body: ")
            assert script.asked == []

    run(work())


def test_a_last_piece_does_not_pass_the_limit() -> None:
    async def work() -> None:
        async with in_front(Script(GOOD), more="[limits]\nbody = 100") as gateway:
            head = head_of(gateway.origin, "/v1/messages", [("transfer-encoding", "chunked")])
            answer = await gateway.transport.send(gateway.origin, head + b"\r\nc8\r\n" + b" " * 200 + b"\r\n0", None)
            assert answer.status == 413

    run(work())


def test_a_wish_for_strictness_that_is_not_understood_is_not_ignored() -> None:
    async def work() -> None:
        script = Script(GOOD)
        async with in_front(script) as gateway:
            answer = await gateway.ask("anthropic", toolwire_strict="yes")
            assert answer.status == 400
            assert "'yes'" in error_of("anthropic", 400, await answer.read(10_000)).message
            assert (
                await gateway.post("/toolwire/translate", b'{"protocol":"anthropic","body":{},"modl":1}')
            ).status == 400
            assert script.asked == []

    run(work())
