"""Signatures belong to their issuer: a conversation may change provider, account and model between any two turns.

Two accounts of every provider refuse the signatures of each other, and of other models. `make test-switching` runs 100
conversations of every client protocol.
"""

import asyncio
import itertools
import json
import os
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import uvicorn

import toolwire as tw
from tests.support.bodies.tool_cycles import TOOL_OUTPUT, decode_response_stream, next_request
from tests.support.gateway.in_process import RunningGateway, run_async, run_gateway
from tests.support.servers.asgi import QuickServer
from toolwire.canonical.content import Message, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.gateway.providers.discovery import open_listener
from toolwire.protocols import PROTOCOLS
from toolwire.translation.history import signatures_in
from toolwire.upstream.simulator.app import Simulator, StoredConversations

SEEDS = 100 if os.environ.get("TOOLWIRE_ALL_SEEDS") else 3
TURNS = 12
MODELS = {
    "anthropic": ("claude-opus-4-7", "claude-sonnet-5"),
    "openai-chat": ("gpt-5.5", "gpt-5.4"),
    "openai-responses": ("gpt-5.5", "gpt-5.4"),
    "gemini": ("gemini-3-pro", "gemini-3.8-flash"),
    "gemini-interactions": ("gemini-3-pro", "gemini-3.8-flash"),
    "ollama": ("qwen3", "gpt-oss:20b"),
    "openrouter": ("anthropic/claude-opus-4.7", "openai/gpt-5.4"),
}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in ("get_weather", "get_time")
]


class Exchanges(StoredConversations):
    """What a simulator received and answered, by conversation."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, list[tuple[Request, Response]]] = defaultdict(list)

    def store(self, request: Request, response: Response, protocol: str) -> None:
        super().store(request, response, protocol)
        first = next(part.text for message in request.messages for part in message.parts if isinstance(part, Text))
        self.seen[first.partition(":")[0]].append((request, response))


@asynccontextmanager
async def serve_account(name: str, protocol: str) -> AsyncIterator[tuple[str, Exchanges]]:
    """Serve a simulator in this event loop, as one account of its provider."""
    listener, app = open_listener("127.0.0.1", 0), Simulator([protocol], account=name)
    app._conversations = exchanges = Exchanges()
    server = QuickServer(uvicorn.Config(app, log_level="critical", lifespan="off"))
    serving = asyncio.create_task(server._serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", exchanges
    finally:
        server.should_exit = server.force_exit = True
        await serving


@asynccontextmanager
async def run_accounts(settings: str = "") -> AsyncIterator[tuple[RunningGateway, dict[str, Exchanges]]]:
    """Run a gateway with two accounts of every provider."""
    async with AsyncExitStack() as stack:
        config, accounts = settings, {}
        for account, protocol in itertools.product(("one", "two"), PROTOCOLS):
            name = f"{account}-{protocol}"
            url, accounts[name] = await stack.enter_async_context(serve_account(name, protocol))
            config += f'[providers.{name}]\nprotocol = "{protocol}"\nbase_url = "{url}"\n'
            # For an unknown server, the gateway assumes that it stores the conversation.
            config += 'host = "openai"\n' if protocol == "openai-responses" else ""
        yield await stack.enter_async_context(run_gateway(config)), accounts


def first_request(client: str, text: str) -> dict[str, Any]:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": text}],
        "tools": TOOLS,
        "reasoning_effort": "low",
        "max_completion_tokens": 4096,
        "store": False,
    }
    translated: dict[str, Any] = tw.translate(body, "openai-chat", client, model=MODELS[client][0]).value
    return translated


async def send(
    gateway: RunningGateway, client: str, body: dict[str, Any], model: str, *, stream: bool
) -> dict[str, Any]:
    """Send a request for a model, and return the response as a complete body."""
    codec, sent = PROTOCOLS[client], dict(body)
    path = codec.surface.endpoints[0].path
    if "{model}" in path:
        path = next(one.path for one in codec.surface.endpoints if one.stream is stream).format(model=model)
    else:
        sent |= {"model": model, "stream": stream}
    response = await gateway.post(path, json.dumps(sent).encode())
    data = await response.read(4_000_000)
    assert response.status == 200, f"{model}: {data.decode()}"
    received: dict[str, Any] = decode_response_stream(data, client) if stream else json.loads(data)
    return received


def wish(number: int, *, two: bool) -> str:
    text = f'get_weather {{"city": "Oslo {number}"}}'
    return f'{text} and get_time {{"city": "Rome {number}"}}' if two else text


def continue_with(body: dict[str, Any], response: dict[str, Any], client: str, text: str) -> dict[str, Any]:
    """Return the next request: the results of the calls, or another wish if there are none."""
    following = next_request(body, response, client)
    continued: dict[str, Any] = json.loads(json.dumps(following).replace('"Go on."', json.dumps(text)))
    return continued


def calls_and_results(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                found.append((part.name, str(json.loads(part.arguments)["city"])))
            elif isinstance(part, ToolResult):
                texts = [one.text for one in part.content or () if isinstance(one, Text)]
                found.append(("result", "".join(texts)))
    return found


async def converse(gateway: RunningGateway, accounts: dict[str, Exchanges], client: str, seed: int) -> None:
    """Hold a conversation that switches at random, and check what every provider received."""
    choose = random.Random(f"{client} {seed}")
    name, expected = f"{client}-{seed}", []
    issued: dict[tuple[str, str], set[str]] = defaultdict(set)
    body = first_request(client, f"{name}: {wish(0, two=False)}")
    asked = ["get_weather"]
    for turn in range(TURNS):
        protocol = client if choose.random() < 0.4 else choose.choice(list(PROTOCOLS))
        provider, model = f"{choose.choice(('one', 'two'))}-{protocol}", choose.choice(MODELS[protocol])
        response = await send(gateway, client, body, f"{provider}/{model}", stream=choose.random() < 0.5)
        request, answer = accounts[provider].seen[name][-1]
        assert calls_and_results(request.messages) == expected, f"turn {turn} at {provider}"
        sent_back, issuer = set(signatures_in(request)), (provider, model)
        assert issued[issuer] <= sent_back, f"turn {turn}: {issuer} misses signatures"
        others = set().union(*(data for key, data in issued.items() if key != issuer))
        assert not others & sent_back, f"turn {turn}: {issuer} gets signatures of others"
        produced = Request(origin="", messages=answer.candidates[0].messages)
        issued[issuer].update(signatures_in(produced))
        if not turn % 2:
            new = calls_and_results(produced.messages)
            assert [tool for tool, _ in new] == asked
            expected += [*new, *[("result", TOOL_OUTPUT)] * len(new)]
        two = choose.random() < 0.5
        asked = ["get_weather", "get_time"] if two and turn % 2 else ["get_weather"] if turn % 2 else asked
        body = continue_with(body, response, client, wish(turn, two=two))


@pytest.mark.parametrize("client", PROTOCOLS)
def test_conversation_switches_between_all_providers_accounts_and_models(client: str) -> None:
    async def work() -> None:
        async with run_accounts() as (gateway, accounts):
            slots = asyncio.Semaphore(8)

            async def run_seed(seed: int) -> str:
                async with slots:
                    try:
                        await converse(gateway, accounts, client, seed)
                    except Exception as error:  # noqa: BLE001 - all seeds are reported together
                        return f"seed {seed}: {type(error).__name__}: {str(error)[:600]}"
                return ""

            failures = [one for one in await asyncio.gather(*map(run_seed, range(SEEDS))) if one]
            assert not failures, f"{len(failures)} of {SEEDS}:\n" + "\n".join(failures[:20])

    run_async(work())
