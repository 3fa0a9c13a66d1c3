"""The retry without the settings that a provider refused."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.bodies.minimal import anthropic_request, chat_request
from tests.support.gateway.emulated_exchange import canonical_response, encode_http_response
from tests.support.gateway.in_process import (
    RunningGateway,
    one_provider_config,
    run_async,
    run_gateway,
    run_gateway_with,
)
from tests.support.servers.http_responses import BUSY_RESPONSE, CHAT_RESPONSE, http_response
from tests.support.servers.upstream import ScriptedUpstream, read_http_request, serve_upstream
from toolwire.canonical.content import Text
from toolwire.codec.interface import Route
from toolwire.gateway.config import parse_config
from toolwire.gateway.in_process import open_model
from toolwire.protocols import PROTOCOLS

Body = dict[str, Any]
MODES = pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
ANSWER = canonical_response(Text(text="fine"), reason="end_turn")


class RefusingUpstream:
    """An upstream that refuses bodies with some member, in the wording of a host, and answers all others."""

    def __init__(self, protocol: str, refuse: Callable[[Body], tuple[int, Any] | None]) -> None:
        self.bodies: list[Body] = []
        self._protocol = protocol
        self._refuse = refuse

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _, data = (await read_http_request(reader)).partition(b"\r\n\r\n")
            body = json.loads(data)
            self.bodies.append(body)
            stream = bool(body.get("stream")) or b":streamGenerateContent" in head
            if (refusal := self._refuse(body)) is None:
                writer.write(encode_http_response(self._protocol, ANSWER, stream=stream))
            else:
                writer.write(http_response(f"{refusal[0]} Refused", json.dumps(refusal[1]).encode()))
            await writer.drain()


def openai_error(message: str, **details: Any) -> Body:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None, **details}}


def refuse_effort(body: Body) -> tuple[int, Any] | None:
    """Refuse an effort as xAI does."""
    if "reasoning_effort" not in body:
        return None
    message = "Model grok-4-latest does not support parameter reasoningEffort."
    return 400, {"code": "Client specified an invalid argument", "error": message}


def refuse_max_tokens(body: Body) -> tuple[int, Any] | None:
    """Refuse `max_tokens` as Azure does for reasoning models."""
    if "max_tokens" not in body:
        return None
    message = (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    )
    return 400, openai_error(message, param="max_tokens", code="unsupported_parameter")


def refuse_unknown(*names: str) -> Callable[[Body], tuple[int, Any] | None]:
    """Refuse members as Mistral does."""

    def refuse(body: Body) -> tuple[int, Any] | None:
        detail = [
            {"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted", "input": 1}
            for name in names
            if name in body
        ]
        return (422, {"object": "error", "message": {"detail": detail}, "type": "x"}) if detail else None

    return refuse


def refuse_thinking(member: str, error: Any) -> Callable[[Body], tuple[int, Any] | None]:
    def refuse(body: Body) -> tuple[int, Any] | None:
        return (400, error) if f'"{member}"' in json.dumps(body) else None

    return refuse


async def post(gateway: RunningGateway, path: str, body: Body, **headers: str) -> tuple[int, list[Body], bytes]:
    """Return status, losses that name a refusal, and body of the response."""
    response = await gateway.post(path, json.dumps(body).encode(), **headers)
    data = await response.read(1_000_000)
    report = json.loads(response.headers.get("toolwire-losses", '{"losses":[]}'))
    return response.status, [loss for loss in report["losses"] if "refuses" in loss["reason"]], data


@MODES
def test_refused_setting_is_left_out_from_then_on(stream: bool) -> None:
    async def work() -> None:
        upstream = RefusingUpstream("openai-chat", refuse_effort)
        async with serve_upstream(upstream) as origin, run_gateway(one_provider_config(origin)) as gateway:
            body = chat_request(reasoning_effort="high", stream=stream, model="grok-4")
            for _ in range(2):
                status, losses, data = await post(gateway, "/v1/chat/completions", body)
                assert (status, b"fine" in data) == (200, True)
                (loss,) = losses
                assert (loss["kind"], loss["path"]) == ("dropped", "/reasoning_effort")
                assert loss["reason"] == "up refuses reasoning_effort"
            _, metrics = await gateway.get("/metrics")
        efforts = [body.pop("reasoning_effort", None) for body in upstream.bodies]
        assert efforts == ["high", None, None]
        assert upstream.bodies[0] == upstream.bodies[1] == upstream.bodies[2]
        assert (
            b'toolwire_refused_settings_total{provider="up",model="grok-4",setting="reasoning_effort"} 1\n' in metrics
        )

    run_async(work())


def test_other_models_keep_the_setting() -> None:
    def refuse(body: Body) -> tuple[int, Any] | None:
        return refuse_effort(body) if body["model"] == "small" else None

    async def work() -> None:
        upstream = RefusingUpstream("openai-chat", refuse)
        async with serve_upstream(upstream) as origin, run_gateway(one_provider_config(origin)) as gateway:
            for model in ("small", "large", "small"):
                status, _, _ = await post(
                    gateway, "/v1/chat/completions", chat_request(reasoning_effort="high", model=model)
                )
                assert status == 200
        assert [(body["model"], "reasoning_effort" in body) for body in upstream.bodies] == [
            ("small", True),
            ("small", False),
            ("large", True),
            ("small", False),
        ]

    run_async(work())


def test_output_limit_is_sent_under_the_name_that_the_host_asks_for() -> None:
    async def work() -> None:
        upstream = RefusingUpstream("openai-chat", refuse_max_tokens)
        async with serve_upstream(upstream) as origin, run_gateway(one_provider_config(origin)) as gateway:
            for _ in range(2):
                status, losses, _ = await post(gateway, "/v1/messages", anthropic_request(max_tokens=77, model="m"))
                assert status == 200
                (loss,) = losses
                assert (loss["kind"], loss["path"]) == ("approximated", "/max_tokens")
        assert [body.get("max_completion_tokens") for body in upstream.bodies] == [None, 77, 77]

    run_async(work())


def test_settings_refused_together_are_left_out_together() -> None:
    async def work() -> None:
        upstream = RefusingUpstream("openai-chat", refuse_unknown("store", "metadata", "prompt_cache_key"))
        async with serve_upstream(upstream) as origin, run_gateway(one_provider_config(origin)) as gateway:
            body = chat_request(store=False, metadata={"team": "a"}, prompt_cache_key="k", user="u")
            status, losses, _ = await post(gateway, "/v1/chat/completions", body)
        assert status == 200
        assert {loss["path"] for loss in losses} == {"/store", "/metadata"}  # a cache key is of no consequence
        assert upstream.bodies[0].keys() - upstream.bodies[1].keys() == {"store", "metadata", "prompt_cache_key"}

    run_async(work())


def test_settings_refused_one_after_the_other_need_one_request_each() -> None:
    def refuse(body: Body) -> tuple[int, Any] | None:
        return refuse_effort(body) or refuse_max_tokens(body)

    async def work() -> None:
        upstream = RefusingUpstream("openai-chat", refuse)
        async with serve_upstream(upstream) as origin, run_gateway(one_provider_config(origin)) as gateway:
            body = chat_request(reasoning_effort="high", max_tokens=5)
            statuses = [(await post(gateway, "/v1/chat/completions", body))[0] for _ in range(3)]
        assert statuses == [400, 200, 200]
        assert len(upstream.bodies) == 2 + 2 + 1

    run_async(work())


@MODES
@pytest.mark.parametrize(
    ("protocol", "member", "error"),
    [
        ("anthropic", "thinking", "adaptive thinking is not supported on this model"),
        (
            "openai-responses",
            "reasoning",
            "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
        ),
        ("gemini", "thinkingConfig", "Thinking level is not supported for this model."),
        ("ollama", "think", '"gemma3" does not support thinking'),
        ("openrouter", "reasoning", "Unknown parameter: 'reasoning'."),
    ],
)
def test_every_protocol_retries_without_refused_settings(protocol: str, member: str, error: str, stream: bool) -> None:
    chat_error = PROTOCOLS["openai-chat"].decode_error(json.dumps(openai_error(error)).encode(), 400)
    error_body = json.loads(PROTOCOLS[protocol].encode_error(chat_error).to_bytes())

    async def work() -> None:
        upstream = RefusingUpstream(protocol, refuse_thinking(member, error_body))
        async with serve_upstream(upstream) as origin:
            models = '[models."m"]\nthinking = "optional"\n'
            async with run_gateway(one_provider_config(origin, protocol, models)) as gateway:
                request = chat_request(reasoning_effort="high", stream=stream, model="m", max_tokens=9)
                for _ in range(2):
                    status, _, data = await post(gateway, "/v1/chat/completions", request)
                    assert (status, b"fine" in data) == (200, True)
        assert [f'"{member}"' in json.dumps(body) for body in upstream.bodies] == [True, False, False]

    run_async(work())


@pytest.mark.parametrize("place", ["header", "route"])
def test_strict_exchanges_are_not_retried(place: str) -> None:
    async def work() -> None:
        upstream = RefusingUpstream("openai-chat", refuse_effort)
        async with serve_upstream(upstream) as origin:
            config = one_provider_config(origin) + ("strict = true\n" if place == "route" else "")
            headers = {"toolwire_strict": "refuse"} if place == "header" else {}
            async with run_gateway(config) as gateway:
                status, _, data = await post(
                    gateway, "/v1/chat/completions", chat_request(reasoning_effort="high"), **headers
                )
        assert (status, len(upstream.bodies)) == (400, 1)
        assert b"reasoningEffort" in data

    run_async(work())


@pytest.mark.parametrize("name", ["tools", "response_format", "stop"])
def test_essential_members_are_never_left_out(name: str) -> None:
    async def work() -> None:
        upstream = RefusingUpstream("openai-chat", refuse_unknown(name))
        tool = {"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}}
        body = chat_request(tools=[tool], response_format={"type": "json_object"}, stop=["x"])
        async with serve_upstream(upstream) as origin, run_gateway(one_provider_config(origin)) as gateway:
            status, _, _ = await post(gateway, "/v1/chat/completions", body)
        assert (status, len(upstream.bodies)) == (422, 1)

    run_async(work())


def test_retry_that_fails_is_the_last() -> None:
    async def work() -> None:
        def refuse(body: Body) -> tuple[int, Any] | None:
            return 400, openai_error("Unknown parameter: 'store'.")

        upstream = RefusingUpstream("openai-chat", refuse)
        async with serve_upstream(upstream) as origin, run_gateway(one_provider_config(origin)) as gateway:
            for _ in range(2):
                status, _, _ = await post(gateway, "/v1/chat/completions", chat_request(store=True))
                assert status == 400
        assert ["store" in body for body in upstream.bodies] == [True, False, True, False]  # nothing was learned

    run_async(work())


def test_retry_without_a_setting_fails_over_as_the_first_request() -> None:
    refusal = http_response("400 Bad Request", json.dumps(openai_error("Unknown parameter: 'store'.")).encode())
    broken = http_response("500 Broken", b"{}")

    async def work() -> None:
        first, second = ScriptedUpstream(refusal, BUSY_RESPONSE, broken), ScriptedUpstream(CHAT_RESPONSE)
        async with run_gateway_with(first, second) as gateway:
            status, _, _ = await post(gateway, "/v1/chat/completions", chat_request(store=False))
        assert status == 200
        assert [b'"store"' in request for request in first.requests] == [True, False, False]
        assert [b'"store"' in request for request in second.requests] == [True]

    run_async(work())


def test_runtime_retries_without_refused_settings() -> None:
    async def work() -> None:
        upstream = RefusingUpstream("openai-chat", refuse_effort)
        async with serve_upstream(upstream) as origin:
            body = chat_request(reasoning_effort="high")
            model = await open_model("up/m", parse_config(one_provider_config(origin), {}), {"HOME": "/nonexistent"})
            request = PROTOCOLS["openai-chat"].decode_request(json.dumps(body).encode(), Route())
            events = [event async for event in model.stream(request)]
            await model.close()
        assert events
        assert ["reasoning_effort" in body for body in upstream.bodies] == [True, False]

    run_async(work())
