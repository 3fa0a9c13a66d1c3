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
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn
from msgspec import Raw
from msgspec.structs import replace

import toolwire as tw
from tests.support.bodies.tool_cycles import TOOL_OUTPUT, decode_response_stream, next_request
from tests.support.deadlines import DEADLINE
from tests.support.gateway.in_process import RunningGateway, run_async, run_gateway, with_memory_state
from tests.support.servers.asgi import QuickServer
from toolwire.canonical.content import Message, Reasoning, Signature, Text, ToolCall, ToolResult
from toolwire.canonical.fold import fold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response
from toolwire.canonical.tools import FunctionTool, Sampling, Thinking
from toolwire.codec.hosts.registry import host_profiles
from toolwire.gateway.config import parse_config
from toolwire.gateway.in_process import open_model
from toolwire.gateway.providers.discovery import open_listener
from toolwire.gateway.state.signatures import IssuedSignatures, MessageScan, SignatureObserver
from toolwire.gateway.state.sqlite_store import IN_MEMORY, SqliteStateStore
from toolwire.gateway.state.store import StoreLimits
from toolwire.protocols import PROTOCOLS
from toolwire.translation.history import signatures_in
from toolwire.upstream.simulator.app import Simulator, StoredConversations
from toolwire.upstream.simulator.script import Script, parse_script

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
async def serve_account(
    name: str, protocol: str, script: Script | None = None, host: str = ""
) -> AsyncIterator[tuple[str, Exchanges]]:
    """Serve a simulator in this event loop, as one account of its provider, or of another host of the protocol."""
    profiles = [host_profiles(host)[protocol]] if host else []
    listener = open_listener("127.0.0.1", 0)
    app = Simulator([protocol], account=name, script=script, profiles=profiles)
    app._conversations = exchanges = Exchanges()
    # The default is to close connections that were idle for five seconds, just when the gateway may send on one.
    config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_keep_alive=int(DEADLINE))
    server = QuickServer(config)
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


class Provider(NamedTuple):
    """A provider that a conversation may use, and its models."""

    name: str
    protocol: str
    models: tuple[str, ...]
    is_model_bound: bool = True


async def converse(
    gateway: RunningGateway, accounts: dict[str, Exchanges], client: str, seed: int, providers: list[Provider]
) -> None:
    """Hold a conversation that switches at random, and check what every provider received."""
    choose = random.Random(f"{client} {seed}")
    name, expected = f"{client}-{seed}", list[tuple[str, str]]()
    issued: dict[tuple[str, str], set[str]] = defaultdict(set)
    body = first_request(client, f"{name}: {wish(0, two=False)}")
    asked = ["get_weather"]
    own = [provider for provider in providers if provider.protocol == client]
    for turn in range(TURNS):
        provider = choose.choice(own if own and choose.random() < 0.4 else providers)
        model = choose.choice(provider.models)
        response = await send(gateway, client, body, f"{provider.name}/{model}", stream=choose.random() < 0.5)
        request, answer = accounts[provider.name].seen[name][-1]
        assert calls_and_results(request.messages) == expected, f"turn {turn} at {provider.name}"
        sent_back, issuer = (
            set(signatures_in(request.messages)),
            (provider.name, model if provider.is_model_bound else ""),
        )
        assert issued[issuer] <= sent_back, f"turn {turn}: {issuer} misses signatures"
        others = set().union(*(data for key, data in issued.items() if key != issuer))
        assert not others & sent_back, f"turn {turn}: {issuer} gets signatures of others"
        produced = Request(origin="", messages=answer.candidates[0].messages)
        issued[issuer].update(signatures_in(produced.messages))
        if not turn % 2:
            new = calls_and_results(produced.messages)
            assert [tool for tool, _ in new] == asked
            expected += [*new, *[("result", TOOL_OUTPUT)] * len(new)]
        two = choose.random() < 0.5
        asked = ["get_weather", "get_time"] if two and turn % 2 else ["get_weather"] if turn % 2 else asked
        body = continue_with(body, response, client, wish(turn, two=two))


async def run_seeds(
    gateway: RunningGateway, accounts: dict[str, Exchanges], client: str, providers: list[Provider]
) -> None:
    """Hold a conversation for each seed, and report those that fail."""
    slots = asyncio.Semaphore(8)

    async def run_seed(seed: int) -> str:
        async with slots:
            try:
                await converse(gateway, accounts, client, seed, providers)
            except Exception as error:  # noqa: BLE001 - all seeds are reported together
                return f"seed {seed}: {type(error).__name__}: {str(error)[:600]}"
        return ""

    failures = [one for one in await asyncio.gather(*map(run_seed, range(SEEDS))) if one]
    assert not failures, f"{len(failures)} of {SEEDS}:\n" + "\n".join(failures[:20])


@pytest.mark.parametrize("client", PROTOCOLS)
def test_conversation_switches_between_all_providers_accounts_and_models(client: str) -> None:
    async def work() -> None:
        async with run_accounts() as (gateway, accounts):
            providers = [Provider(name, name.partition("-")[2], MODELS[name.partition("-")[2]]) for name in accounts]
            await run_seeds(gateway, accounts, client, providers)

    run_async(work())


HOSTS: dict[str, dict[str, tuple[str, ...]]] = {
    "anthropic": {
        "bedrock": ("anthropic.claude-opus-4-7", "anthropic.claude-sonnet-5"),
        "deepseek": ("deepseek-flash", "deepseek-v4-pro"),
        "moonshot": ("kimi-k3", "kimi-k2.7"),
    },
    "openai-responses": {"azure": MODELS["openai-responses"]},
}


@pytest.mark.parametrize("client", ["anthropic", "openai-responses", "openai-chat"])
def test_conversation_switches_between_hosts_of_one_protocol(client: str) -> None:
    async def work() -> None:
        async with AsyncExitStack() as stack:
            config, accounts, providers = "", dict[str, Exchanges](), list[Provider]()
            for protocol, hosts in HOSTS.items():
                for host, models in ({"": MODELS[protocol]} | hosts).items():
                    name = f"{host or 'vendor'}-{protocol}"
                    url, accounts[name] = await stack.enter_async_context(serve_account(name, protocol, host=host))
                    is_bound = host not in ("deepseek", "moonshot")
                    providers.append(Provider(name, protocol, models, is_bound))
                    config += f'[providers.{name}]\nprotocol = "{protocol}"\nbase_url = "{url}"\n'
                    config += f'host = "{host or "openai"}"\n' if host or protocol == "openai-responses" else ""
                    config += 'region = "us-east-1"\n' if host == "bedrock" else ""
            gateway = await stack.enter_async_context(run_gateway(config))
            await run_seeds(gateway, accounts, client, providers)

    run_async(work())


# ---- one issuer


async def call_and_continue(
    gateway: RunningGateway, client: str, first: str, second: str, *, drop: tuple[str, ...] = ()
) -> tuple[dict[str, Any], str]:
    """Get a call from one backend, and send its result to another; return the second request and its exchange.

    `drop` has the types of blocks that the client does not send back.
    """
    body = first_request(client, f"test: {wish(0, two=False)}")
    if drop:
        body["thinking"]["display"] = "omitted"
    response = await send(gateway, client, body, first, stream=True)
    if drop:
        response["content"] = [block for block in response["content"] if block["type"] not in drop]
    following = next_request(body, response, client) | {"model": second, "stream": False}
    answer = await gateway.post(PROTOCOLS[client].surface.endpoints[0].path, json.dumps(following).encode())
    data = await answer.read(1_000_000)
    assert answer.status == 200, data
    return following, answer.headers["toolwire-exchange"]


async def losses_of(gateway: RunningGateway, exchange: str) -> list[tuple[str, str]]:
    _, data = await gateway.get(f"/toolwire/exchanges/{exchange}/losses")
    return [(loss["kind"], loss["path"]) for loss in json.loads(data)["losses"]]


def last_signatures(accounts: dict[str, Exchanges], provider: str) -> list[str]:
    return signatures_in(accounts[provider].seen["test"][-1][0].messages)


OPUS, SONNET = MODELS["anthropic"]


@pytest.mark.parametrize(
    "second", [f"two-anthropic/{OPUS}", f"one-anthropic/{SONNET}"], ids=["another account", "another model"]
)
def test_signature_of_another_issuer_is_a_loss(second: str) -> None:
    async def work() -> None:
        async with run_accounts() as (gateway, accounts):
            _, exchange = await call_and_continue(gateway, "anthropic", f"one-anthropic/{OPUS}", second)
            assert last_signatures(accounts, second.partition("/")[0]) == []
            assert await losses_of(gateway, exchange) == [("dropped", "/messages/1/content/0/signature")]

    run_async(work())


@pytest.mark.parametrize(
    "second", [f"one-anthropic/{OPUS}", f"one-anthropic/{OPUS}-20260801"], ids=["same model", "a snapshot of it"]
)
def test_signature_returns_to_its_issuer(second: str) -> None:
    async def work() -> None:
        async with run_accounts() as (gateway, accounts):
            _, exchange = await call_and_continue(gateway, "anthropic", f"one-anthropic/{OPUS}", second)
            assert len(last_signatures(accounts, "one-anthropic")) == 1
            assert await losses_of(gateway, exchange) == []

    run_async(work())


@pytest.mark.parametrize("client", ["anthropic", "openai-responses"])
def test_providers_of_one_account_get_the_same_signatures(client: str) -> None:
    """Two addresses of one account, such as two regions whose signatures are compatible."""

    async def work() -> None:
        async with AsyncExitStack() as stack:
            url, exchanges = await stack.enter_async_context(serve_account("shared", "anthropic"))
            config = "".join(
                f'[providers.{name}]\nprotocol = "anthropic"\nbase_url = "{url}"\naccount = "shared"\n'
                for name in ("east", "west")
            )
            gateway = await stack.enter_async_context(run_gateway(config))
            await call_and_continue(gateway, client, f"east/{OPUS}", f"west/{OPUS}")
            assert len(last_signatures({"west": exchanges}, "west")) == 1

    run_async(work())


def test_issuer_is_known_after_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        async with AsyncExitStack() as stack:
            config = f'[state]\npath = "{tmp_path / "state.db"}"\n'
            for name in ("one", "two"):
                url, exchanges = await stack.enter_async_context(serve_account(name, "anthropic"))
                config += f'[providers.{name}]\nprotocol = "anthropic"\nbase_url = "{url}"\n'
            body = first_request("anthropic", f"test: {wish(0, two=False)}")
            async with run_gateway(config) as gateway:
                response = await send(gateway, "anthropic", body, f"one/{OPUS}", stream=False)
            async with run_gateway(config) as gateway:
                following = next_request(body, response, "anthropic")
                await send(gateway, "anthropic", following, f"two/{OPUS}", stream=False)
            assert last_signatures({"two": exchanges}, "two") == []

    run_async(work())


def test_signature_of_unknown_origin_is_passed_on() -> None:
    """The conversation began without the gateway."""

    async def work() -> None:
        async with AsyncExitStack() as stack:
            url, exchanges = await stack.enter_async_context(serve_account("", "anthropic"))
            config = f'[providers.{{}}]\nprotocol = "anthropic"\nbase_url = "{url}"\n'
            body = first_request("anthropic", f"test: {wish(0, two=False)}")
            async with run_gateway(config.format("elsewhere")) as gateway:
                response = await send(gateway, "anthropic", body, f"elsewhere/{OPUS}", stream=False)
            async with run_gateway(config.format("here")) as gateway:
                following = next_request(body, response, "anthropic")
                await send(gateway, "anthropic", following, f"here/{OPUS}", stream=False)
            assert len(last_signatures({"here": exchanges}, "here")) == 1

    run_async(work())


@pytest.mark.parametrize(("key", "expected"), [("first-client-key", (200, False)), ("other-client-key", (400, True))])
def test_issuers_are_known_for_each_client_key(key: str, expected: tuple[int, bool]) -> None:
    """What one client received says nothing about the requests of another."""

    async def work() -> None:
        async with AsyncExitStack() as stack:
            config = '[server]\nkeys = ["first-client-key", "other-client-key"]\n'
            for name in ("one", "two"):
                url, exchanges = await stack.enter_async_context(serve_account(name, "anthropic"))
                config += f'[providers.{name}]\nprotocol = "anthropic"\nbase_url = "{url}"\n'
            gateway = await stack.enter_async_context(run_gateway(config))
            body = first_request("anthropic", f"test: {wish(0, two=False)}") | {"model": f"one/{OPUS}"}
            answer = await gateway.post("/v1/messages", json.dumps(body).encode(), x_api_key="first-client-key")
            response = json.loads(await answer.read(1_000_000))
            following = next_request(body, response, "anthropic") | {"model": f"two/{OPUS}"}
            answer = await gateway.post("/v1/messages", json.dumps(following).encode(), x_api_key=key)
            data = await answer.read(1_000_000)
            assert (answer.status, b"Invalid `signature`" in data) == expected
            assert len(exchanges.seen["test"]) == (answer.status == 200)

    run_async(work())


# ---- clients that drop reasoning without text


@pytest.mark.parametrize(
    "backend", [f"one-anthropic/{OPUS}", "one-openai-responses/gpt-5.5"], ids=["own protocol", "another protocol"]
)
def test_dropped_reasoning_is_put_back_before_its_call(backend: str) -> None:
    async def work() -> None:
        async with run_accounts() as (gateway, accounts):
            following, _ = await call_and_continue(gateway, "anthropic", backend, backend, drop=("thinking",))
            assert [block["type"] for block in following["messages"][1]["content"]] == ["tool_use"]
            provider = backend.partition("/")[0]
            (_, produced), (request, _) = accounts[provider].seen["test"]
            parts = [part for message in request.messages for part in message.parts if message.role == "assistant"]
            assert [type(part) for part in parts] == [Reasoning, ToolCall]
            assert signatures_in(request.messages) == signatures_in(produced.candidates[0].messages)

    run_async(work())


def test_reasoning_is_put_back_before_the_text_that_it_preceded() -> None:
    signature = Signature(issuer="anthropic", data="EqQB", kind="signature")
    hidden = Reasoning(hidden="omitted", signature=signature)
    call = ToolCall(id="toolu_1", name="look", arguments="{}")
    parts = (hidden, Text(text="Let me look."), call, replace(call, id="toolu_2"))
    store = SqliteStateStore(IN_MEMORY, StoreLimits(ttl=1000, rows=1000, bytes=1_000_000))
    issued = IssuedSignatures(store)
    observer = SignatureObserver(issued, "owner", "issuer", client_drops=True)
    message = Message(role="assistant", parts=parts)
    observer.observe_response(Response(origin="anthropic", candidates=(Candidate(index=0, messages=(message,)),)))

    async def work() -> None:
        sent = Request(origin="anthropic", messages=(replace(message, parts=parts[1:]),))
        wire_names = PROTOCOLS["anthropic"].wire_names
        calls, _ = MessageScan().scan(sent.messages)
        restored = await issued.restore_reasoning("owner", sent, calls, wire_names)
        assert [replace(part, at=None) for part in restored.messages[0].parts] == list(parts)
        assert MessageScan().scan(restored.messages) == ([], ["EqQB"])
        assert await issued.restore_reasoning("another owner", sent, calls, wire_names) is sent

    with closing(store):
        run_async(work())


def test_scans_of_a_changed_conversation_equal_a_first_scan() -> None:
    call = ToolCall(id="a", name="look", arguments="{}")
    signature = Signature(issuer="anthropic", data="EqQB", kind="signature")
    turns = [
        Message(role="assistant", parts=(Reasoning(signature=signature), call)),
        Message(role="user", parts=(Text(text="Go on."),)),
        Message(role="assistant", parts=(call, Text(text="And?"), replace(call, id="b"), replace(call, id="c"))),
        Message(role="assistant", parts=(replace(call, id="d", signature=signature),)),
    ]
    assert MessageScan().scan(turns) == ([(2, 2, "b"), (2, 0, "a"), (3, 0, "d")], ["EqQB", "EqQB"])
    scan = MessageScan()
    for messages in (turns, turns[:1], turns, turns[1:], [*turns[:2], turns[3], turns[2]], [], turns):
        assert scan.scan(messages) == MessageScan().scan(messages)


class CountingStore(SqliteStateStore):
    """A store that counts the rows that were requested."""

    requested = 0

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]:
        self.requested += len(ids)
        return await super().get(owner, kind, ids)


@pytest.mark.parametrize("backend", ["one-openai-chat/m", f"one-anthropic/{OPUS}"])
@pytest.mark.parametrize("stream", [True, False])
def test_store_is_not_read_for_calls_that_the_gateway_answered_itself(backend: str, *, stream: bool) -> None:
    async def work() -> None:
        async with run_accounts() as (gateway, _):
            store = CountingStore(IN_MEMORY, StoreLimits(ttl=1000, rows=1000, bytes=1_000_000))
            gateway.gateway.app._dispatcher.services.conversation_state.signatures._store = store
            body = first_request("anthropic", f"test: {wish(0, two=True)}")
            del body["thinking"]
            response = await send(gateway, "anthropic", body, backend, stream=stream)
            assert "tool_use" in [block["type"] for block in response["content"]]
            await send(gateway, "anthropic", next_request(body, response, "anthropic"), backend, stream=stream)
            assert store.requested == 0
            store.close()

    run_async(work())


# ---- agents

BUSY_AFTER_A_CALL = b"""
[[turns]]
after = 1
repeat = 0
error = {kind = "overloaded", message = "Later."}
"""


def test_agent_fails_over_between_accounts() -> None:
    """The second account gets the turns of the first one without their signatures."""

    async def work() -> None:
        async with AsyncExitStack() as stack:
            script = parse_script(BUSY_AFTER_A_CALL, "script")
            url, _ = await stack.enter_async_context(serve_account("one", "anthropic", script))
            config = f'[limits]\nretries = 0\n[providers.one]\nprotocol = "anthropic"\nbase_url = "{url}"\n'
            url, exchanges = await stack.enter_async_context(serve_account("two", "anthropic"))
            config += f'[providers.two]\nprotocol = "anthropic"\nbase_url = "{url}"\n'
            config += f'[[routes]]\nproviders = ["one", "two"]\nmodel = "{OPUS}"\n'
            parsed = with_memory_state(parse_config(config, {}))
            model = await open_model("m", parsed, {"HOME": "/nonexistent"})
            stack.push_async_callback(model.close)
            look = FunctionTool(name="get_weather", parameters=Raw(json.dumps(PARAMETERS).encode()))
            question = Message(role="user", parts=(Text(text=f"test: {wish(0, two=False)}"),))
            request = Request(
                origin="",
                messages=(question,),
                tools=(look,),
                thinking=Thinking(enabled=True),
                sampling=Sampling(max_tokens=4000),
            )
            turn = fold([event async for event in model.stream(request)]).candidates[0].messages
            assert len(signatures_in(turn)) == 1
            (call,) = [part for message in turn for part in message.parts if isinstance(part, ToolCall)]
            result = ToolResult(call_id=call.id, content=(Text(text=TOOL_OUTPUT),))
            following = replace(request, messages=(question, *turn, Message(role="user", parts=(result,))))
            answer = fold([event async for event in model.stream(following)])
            assert TOOL_OUTPUT in str(answer.candidates[0].messages[-1].parts[-1])
            assert last_signatures({"two": exchanges}, "two") == []
            assert [loss.kind for loss in model.losses if loss.path.endswith("/signature")] == ["dropped"]

    run_async(work())
