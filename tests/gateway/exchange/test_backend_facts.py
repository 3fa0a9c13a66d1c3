"""Requests are fitted to the facts that the provider, the configuration or the model's name states.

Ollama gets `think` only if `/api/show` lists thinking, and a context that holds the prompt; Groq gets no output limit
above the model's; Anthropic gets the sampling parameters that the model accepts.
"""

import asyncio
import json
from typing import Any

import pytest

from tests.support.bodies.minimal import anthropic_request, chat_request
from tests.support.gateway.in_process import RunningGateway, one_provider_config, run_async, run_gateway
from tests.support.servers.http_responses import http_response
from tests.support.servers.upstream import read_http_request, serve_upstream
from toolwire.upstream.provider import Origin

MODELS: dict[str, Any] = {
    "qwen2.5-coder:7b": {"capabilities": ["completion", "tools"], "details": {"family": "qwen2"}},
    "qwen3:8b": {
        "capabilities": ["completion", "tools", "thinking"],
        "details": {"family": "qwen3"},
        "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40_960},
    },
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
    def contexts(self) -> list[Any]:
        return [body.get("options", {}).get("num_ctx") for path, body in self.asked if path == "/api/chat"]

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
            for _ in range(2):
                assert await ask(gateway, "qwen3:8b", **THINKING) == (200, ["dropped /output_config/effort"])
        assert ollama.thinks == [None, None]
        assert ollama.paths == ["/api/show", "/api/chat", "/api/chat"]  # a failed question is not repeated at once

    run_async(work())


def test_capabilities_are_not_fetched_for_a_short_request_without_thinking() -> None:
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
            response = await gateway.post("/api/chat", json.dumps(body).encode(), toolwire_strict="refuse")
            assert response.status == 400
            assert "not supported for this model" in (await response.read(10_000)).decode()
        assert ollama.asked == [("/api/chat", body)]

    run_async(work())


def configure(origin: Origin, protocol: str, *, provider: str = "", route: str = "", models: str = "") -> str:
    """Return a configuration with further options of the provider and the route, and facts about models."""
    config = one_provider_config(origin, protocol)
    return config.replace("timeout =", f"{provider}\ntimeout =") + f"{route}\n{models}\n"


LONG_TEXT = "word " * 6000


def request_contexts(texts: list[str], model: str = "qwen3:8b", **options: str) -> tuple[list[Any], list[str]]:
    """Return the context sizes that requests with these texts get, and the added values that the client sees."""
    ollama, added = Ollama(), list[str]()
    run_async(send_texts(ollama, texts, model, added, options))
    return ollama.contexts, added


async def send_texts(ollama: Ollama, texts: list[str], model: str, added: list[str], options: dict[str, str]) -> None:
    async with serve_upstream(ollama) as origin, run_gateway(configure(origin, "ollama", **options)) as gateway:
        for text in texts:
            body = anthropic_request({"role": "user", "content": text}, model=model, stream=False, max_tokens=9000)
            response = await gateway.post("/v1/messages", json.dumps(body).encode())
            await response.read(100_000)
            assert response.status == 200
            losses = json.loads(response.headers.get("toolwire-losses", '{"losses": []}'))["losses"]
            added += [loss["target"] for loss in losses if loss["kind"] == "added"]


def test_context_of_ollama_holds_the_prompt() -> None:
    contexts, added = request_contexts(["Hi", LONG_TEXT, "x" * 6000, LONG_TEXT * 10])
    assert contexts == [None, 16_384, 16_384, 40_960]
    assert added == ["/options/num_ctx"] * 3


def test_context_of_ollama_holds_a_stored_history() -> None:
    async def work() -> None:
        ollama = Ollama()
        async with serve_upstream(ollama) as origin, run_gateway(configure(origin, "ollama")) as gateway:
            first = {"model": "qwen3:8b", "input": LONG_TEXT}
            response = await gateway.post("/v1/responses", json.dumps(first).encode())
            id = json.loads(await response.read(100_000))["id"]
            second = {"model": "qwen3:8b", "input": "Go on.", "previous_response_id": id}
            response = await gateway.post("/v1/responses", json.dumps(second).encode())
            assert response.status == 200
            await response.read(100_000)
        assert [len(body["messages"]) for path, body in ollama.asked if path == "/api/chat"] == [1, 3]
        assert ollama.contexts == [16_384, 16_384]

    run_async(work())


@pytest.mark.parametrize(
    ("options", "context"),
    [
        ({"route": 'num_ctx = "off"'}, None),
        ({"provider": "num_ctx = 12000"}, 12_000),
        ({"provider": "num_ctx = 12000", "route": "num_ctx = 5000"}, 5000),
        ({"provider": "num_ctx = 99999"}, 40_960),
    ],
)
def test_context_of_ollama_can_be_set(options: dict[str, str], context: int | None) -> None:
    assert request_contexts([LONG_TEXT], **options)[0] == [context]


def test_context_of_an_unknown_model_is_left_to_the_server() -> None:
    assert request_contexts([LONG_TEXT], "old")[0] == [None]


def test_configuration_states_the_context_of_a_model() -> None:
    assert request_contexts([LONG_TEXT], "old", models='[models."old"]\ncontext = 9000')[0] == [9000]


class ChatServer:
    """A server of Chat Completions, or of Messages, with a list of models."""

    def __init__(self, answer: Any, entry: Any = None) -> None:
        self.bodies: list[Any] = []
        self.paths: list[str] = []
        self._answer, self._entry = answer, entry

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _, data = (await read_http_request(reader)).partition(b"\r\n\r\n")
            self.paths.append(head.split(b" ")[1].decode())
            if data:
                self.bodies.append(json.loads(data))
            status = "200 OK" if data or self._entry else "404 Not Found"
            writer.write(http_response(status, json.dumps(self._answer if data else self._entry).encode()))
            await writer.drain()


CHAT_ANSWER = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi"}}],
}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Hi"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


@pytest.mark.parametrize(
    ("entry", "limit"), [({"id": "m", "context_window": 131_072, "max_completion_tokens": 8192}, 8192), (None, 32_000)]
)
def test_output_limit_above_that_of_the_model_is_lowered(entry: Any, limit: int) -> None:
    async def work() -> None:
        server = ChatServer(CHAT_ANSWER, entry)
        async with serve_upstream(server) as origin:
            config = configure(origin, "openai-chat", provider='host = "groq"')
            async with run_gateway(config) as gateway:
                for _ in range(2):
                    body = anthropic_request(model="llama", stream=False, max_tokens=32_000)
                    response = await gateway.post("/v1/messages", json.dumps(body).encode())
                    await response.read(100_000)
                    assert ("max_tokens" in response.headers.get("toolwire-losses", "")) == (limit == 8192)
        assert [body["max_completion_tokens"] for body in server.bodies] == [limit] * 2
        assert server.paths == ["/v1/models/llama", *["/v1/chat/completions"] * 2]

    run_async(work())


@pytest.mark.parametrize(
    ("model", "options", "sampling"),
    [
        ("claude-sonnet-4-0", {}, {"temperature": 0, "top_p": 0.5}),
        ("claude-sonnet-4-5", {}, {"temperature": 0}),
        ("claude-opus-4-7", {}, {}),
        ("my-alias", {}, {"temperature": 0, "top_p": 0.5}),
        ("claude-sonnet-4-0", {"provider": 'headers = { Anthropic-Version = "2026-10-21" }'}, {}),
        ("claude-sonnet-4-0", {"models": '[models."claude-sonnet-4-*"]\nsampling = false'}, {}),
    ],
)
def test_anthropic_gets_the_sampling_parameters_that_it_accepts(
    model: str, options: dict[str, str], sampling: Any
) -> None:
    async def work() -> None:
        server = ChatServer(MESSAGE)
        async with (
            serve_upstream(server) as origin,
            run_gateway(configure(origin, "anthropic", **options)) as gateway,
        ):
            body = chat_request(model=model, temperature=0, top_p=0.5)
            response = await gateway.post("/v1/chat/completions", json.dumps(body).encode())
            await response.read(100_000)
            losses = json.loads(response.headers["toolwire-losses"])["losses"]
        sent = {name: server.bodies[0][name] for name in ("temperature", "top_p") if name in server.bodies[0]}
        assert sent == sampling
        dropped = {loss["path"][1:] for loss in losses if loss["kind"] == "dropped"}
        assert dropped == {"temperature", "top_p"} - sampling.keys()

    run_async(work())
