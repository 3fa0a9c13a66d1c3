"""`think` is sent to Ollama only if `/api/show` lists thinking."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.bodies.minimal import anthropic_request
from tests.support.gateway.in_process import RunningGateway, one_provider_config, run_async, run_gateway
from tests.support.servers.http_responses import http_response
from tests.support.servers.upstream import read_http_request, serve_upstream

MODELS: dict[str, Any] = {
    "qwen2.5-coder:7b": {"capabilities": ["completion", "tools"], "details": {"family": "qwen2"}},
    "qwen3:8b": {"capabilities": ["completion", "tools", "thinking"], "details": {"family": "qwen3"}},
    "gpt-oss:20b": {"capabilities": ["completion", "tools", "thinking"], "details": {"family": "gptoss"}},
    "old": {"details": {"family": "llama"}, "license": "x" * 1000},
}
THINKING = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}


class Ollama:
    """An Ollama that rejects `think` like the real one; `shows`: it has `/api/show`."""

    def __init__(self, *, shows: bool = True) -> None:
        self.asked: list[tuple[str, Any]] = []
        self._shows = shows

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _, data = (await read_http_request(reader)).partition(b"\r\n\r\n")
            path, body = head.split(b" ")[1].decode(), json.loads(data)
            self.asked.append((path, body))
            status, response = self._answer(path, body, MODELS.get(body["model"]))
            writer.write(http_response(status, json.dumps(response).encode()))
            await writer.drain()

    def _answer(self, path: str, body: Any, model: Any) -> tuple[str, Any]:
        if model is None or (path == "/api/show" and not self._shows):
            return "404 Not Found", {"error": "not found"}
        if path == "/api/show":
            return "200 OK", model
        think, name = body.get("think"), body["model"]
        if think and "thinking" not in model.get("capabilities", ()):
            return "400 Bad Request", {"error": f'"{name}" does not support thinking'}
        if isinstance(think, str) and model["details"]["family"] != "gptoss":
            return "400 Bad Request", {"error": f'think value "{think}" is not supported for this model'}
        said = {"role": "assistant", "content": "Hi"}
        return "200 OK", {"model": name, "message": said, "done": True, "done_reason": "stop"}

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    @property
    def thinks(self) -> list[Any]:
        return [body.get("think") for path, body in self.asked if path == "/api/chat"]


async def ask(gateway: RunningGateway, model: str, **fields: Any) -> tuple[int, list[str]]:
    """Return the status of a response, and its losses about thinking."""
    body = anthropic_request({"role": "user", "content": "Hi"}, **{"model": model, "stream": False, **fields})
    response = await gateway.post("/v1/messages", json.dumps(body).encode())
    await response.read(100_000)
    losses = json.loads(response.headers.get("toolwire-losses", '{"losses": []}'))["losses"]
    return response.status, [f"{one['kind']} {one['path']}" for one in losses if "effort" in one["path"]]


@pytest.mark.parametrize(
    ("model", "think", "lost"),
    [
        ("qwen2.5-coder:7b", None, ["dropped /output_config/effort"]),
        ("qwen3:8b", True, ["approximated /output_config/effort"]),
        ("gpt-oss:20b", "high", []),
        ("old", None, ["dropped /output_config/effort"]),
    ],
)
def test_thinking_is_requested_from_models_that_support_it(model: str, think: Any, lost: list[str]) -> None:
    async def work() -> None:
        ollama = Ollama()
        async with serve_upstream(ollama) as origin, run_gateway(one_provider_config(origin, "ollama")) as gateway:
            for _ in range(3):
                assert await ask(gateway, model, **THINKING) == (200, lost)
        assert ollama.paths == ["/api/show", *["/api/chat"] * 3]
        assert ollama.asked[0][1] == {"model": model}
        assert ollama.thinks == [think] * 3

    run_async(work())


def test_think_is_omitted_if_capabilities_are_unknown() -> None:
    async def work() -> None:
        ollama = Ollama(shows=False)
        async with serve_upstream(ollama) as origin, run_gateway(one_provider_config(origin, "ollama")) as gateway:
            assert await ask(gateway, "qwen3:8b", **THINKING) == (200, ["dropped /output_config/effort"])
        assert ollama.thinks == [None]

    run_async(work())


def test_capabilities_are_not_fetched_without_thinking() -> None:
    async def work() -> None:
        ollama = Ollama()
        async with serve_upstream(ollama) as origin, run_gateway(one_provider_config(origin, "ollama")) as gateway:
            assert await ask(gateway, "qwen2.5-coder:7b") == (200, [])
        assert ollama.paths == ["/api/chat"]

    run_async(work())


def test_disabled_thinking_stays_disabled() -> None:
    async def work() -> None:
        ollama = Ollama()
        async with serve_upstream(ollama) as origin, run_gateway(one_provider_config(origin, "ollama")) as gateway:
            assert (await ask(gateway, "qwen2.5-coder:7b", thinking={"type": "disabled"}))[0] == 200
        assert ollama.thinks == [False]

    run_async(work())


def test_ollama_request_passes_through() -> None:
    async def work() -> None:
        ollama = Ollama()
        body = {"model": "qwen3:8b", "messages": [{"role": "user", "content": "Hi"}], "think": "high", "stream": False}
        async with serve_upstream(ollama) as origin, run_gateway(one_provider_config(origin, "ollama")) as gateway:
            response = await gateway.post("/api/chat", json.dumps(body).encode())
            assert response.status == 400
            assert "not supported for this model" in (await response.read(10_000)).decode()
        assert ollama.asked == [("/api/chat", body)]

    run_async(work())
