"""Faults of a backend at every point of its response: the client gets a clean answer, or an error of its protocol.

Every fault meets every client protocol, with three pairs of upstream protocols. The first backend of a route has the
fault, the second one works. `make test-faults` also runs complete (not streamed) responses and more pairs.
"""

import asyncio
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from msgspec import Struct

import toolwire as tw
from tests.support.codecs import decode_events
from tests.support.gateway.in_process import RunningGateway, run_async, run_gateway
from tests.support.mcp.toolsets import SCRIPTED_SERVER
from tests.support.servers.asgi import QuickServer
from toolwire.canonical.content import Text, ToolCall
from toolwire.canonical.events import ResponseEnd, ResponseFailed
from toolwire.canonical.fold import fold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.interface import Codec, ResponseContext
from toolwire.gateway.providers.discovery import open_listener
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.asgi import AsgiRequest
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.prompt import read_prompt
from toolwire.upstream.simulator.script import parse_script
from toolwire.upstream.transport import UpstreamResponse, _Connection

IS_COMPLETE = bool(os.environ.get("TOOLWIRE_ALL_FAULTS"))
MODELS = {
    "anthropic": "claude-opus-4-5",
    "openai-chat": "gpt-5.5",
    "openai-responses": "gpt-5.5",
    "gemini": "gemini-2.5-pro",
    "gemini-interactions": "gemini-2.5-pro",
    "ollama": "qwen3",
    "openrouter": "z-ai/glm-4.6",
}
PAIRS = [("anthropic", "openai-chat"), ("openai-responses", "gemini"), ("ollama", "openrouter")]
MORE_PAIRS = [("gemini", "anthropic"), ("openrouter", "ollama"), ("openai-chat", "gemini-interactions")]
ALL_PAIRS = [*PAIRS, *MORE_PAIRS, ("gemini-interactions", "openai-responses")] if IS_COMPLETE else PAIRS
TRIPLE = ("anthropic", "gemini", "ollama")
"""Two backends with the same fault, before one that works."""

EARLY = [("connection", kind) for kind in ("close", "silence", "error")]
EARLY += [("head", kind) for kind in ("close", "silence", "garbage", "error")]
POINTS = ("thinking", "text", "arguments", "calls", "stop")
FAULTS = EARLY + list(itertools.product(POINTS, ("close", "end", "silence", "garbage", "error")))
TEXT = "Let me look at both."
CONTENT = f"""
thinking = "I had better look."
text = "{TEXT}"
calls = [{{name = "get_weather", arguments = {{city = "Oslo"}}}}, {{name = "get_time", arguments = {{city = "Rome"}}}}]
repeat = 0
"""
CALLS = [("get_weather", {"city": "Oslo"}), ("get_time", {"city": "Rome"})]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name, _ in CALLS]

_connections: set[_Connection] = set()


@pytest.fixture(autouse=True)
def _no_timers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No connection gives up by the clock, only when its upstream falls silent."""
    monkeypatch.setattr(_Connection, "_set_timer", lambda connection, _: _connections.add(connection))
    yield
    _connections.clear()


class ObservedSimulator(Simulator):
    """A simulator that lists the cases it answers, and whose silence ends the wait for it."""

    def __init__(self, script: str) -> None:
        super().__init__(script=parse_script(script.encode(), "script"))
        self.answered: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, is_received = b"", False

        async def watched_receive() -> Any:
            nonlocal body, is_received
            if is_received and b"-silence;" in body:  # it waits for the client to leave
                _expire(scope["client"][1], scope["server"][1])
            message = await receive()
            body += message.get("body", b"")
            is_received = not message.get("more_body", False)
            return message

        await super().__call__(scope, watched_receive, send)

    async def _respond(self, http_request: AsgiRequest, codec: Codec, request: Request) -> None:
        self.answered.append(read_prompt(request).text.partition("case-")[2])
        await super()._respond(http_request, codec, request)


def _expire(client_port: int, server_port: int) -> None:
    """Let the time pass that the gateway waits on the connection between these ports."""
    for connection in list(_connections):
        transport = connection._transport
        local = None if transport is None else transport.get_extra_info("sockname")
        if local is not None and (local[1], connection.origin.port) == (client_port, server_port):
            connection._read_timeout = 0
            connection._check_timeout()


class Case(Struct, frozen=True):
    """One exchange: the fault, the protocols, and whether the response is streamed."""

    point: str
    kind: str
    client: str
    pair: tuple[str, ...]
    stream: bool

    @property
    def name(self) -> str:
        mode = "stream" if self.stream else "whole"
        return f"{self.point}-{self.kind}-{self.client}-{'+'.join(self.pair)}-{mode}"

    def request(self) -> tuple[str, bytes]:
        body = {
            "model": "+".join(self.pair),
            "messages": [{"role": "user", "content": f"fault-{self.point}-{self.kind}; case-{self.name}."}],
            "tools": TOOLS,
            "reasoning_effort": "low",
            "max_completion_tokens": 4096,
            "stream": self.stream,
            "store": False,
        }
        model = "+".join(self.pair)
        translation = tw.translate(body, "openai-chat", self.client, model=model, stream=self.stream)
        assert translation.route.path is not None
        return translation.route.path, translation.to_bytes()

    @property
    def must_succeed(self) -> bool:
        """Nothing of the response has arrived, so the second backend has to take over."""
        return self.point in ("connection", "head") or not self.stream


@asynccontextmanager
async def serve_simulator(script: str) -> AsyncIterator[tuple[str, ObservedSimulator]]:
    """Serve a simulator of all protocols in this event loop."""
    listener, app = open_listener("127.0.0.1", 0), ObservedSimulator(script)
    server = QuickServer(uvicorn.Config(app, log_level="critical", lifespan="off"))
    serving = asyncio.create_task(server._serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", app
    finally:
        server.should_exit = server.force_exit = True
        await serving


@asynccontextmanager
async def run_matrix() -> AsyncIterator[tuple[RunningGateway, ObservedSimulator, ObservedSimulator]]:
    """Run a gateway with a route for every pair, from a simulator with faults to one without."""
    faults = "".join(
        f'[[turns]]\nwhen = "fault-{point}-{kind};"\nfault = {{at = "{point}", kind = "{kind}"}}\n{CONTENT}'
        for point, kind in FAULTS
    )
    async with AsyncExitStack() as stack:
        first_url, first = await stack.enter_async_context(serve_simulator(faults))
        second_url, second = await stack.enter_async_context(serve_simulator(f"[[turns]]\n{CONTENT}"))
        config = "[limits]\nfailures = 1000000\n"
        for name, url in (("first", first_url), ("second", second_url)):
            for protocol in PROTOCOLS:
                config += f'[providers.{name}-{protocol}]\nprotocol = "{protocol}"\nbase_url = "{url}"\n'
                # For an unknown server, the gateway assumes that it stores the conversation.
                config += 'host = "openai"\n' if protocol == "openai-responses" else ""
        for *faulty, last in (*ALL_PAIRS, TRIPLE):
            config += f'[[routes]]\nmatch = "{"+".join((*faulty, last))}"\n'
            for name, protocol in (*(("first", one) for one in faulty), ("second", last)):
                config += f'[[routes.backends]]\nprovider = "{name}-{protocol}"\nmodel = "{MODELS[protocol]}"\n'
        yield await stack.enter_async_context(run_gateway(config)), first, second


def calls_in(response: Response) -> list[tuple[str, Any]]:
    parts = [part for message in response.candidates[0].messages for part in message.parts]
    calls = [part for part in parts if isinstance(part, ToolCall)]
    return [(call.name, json.loads(call.arguments)) for call in calls]


def text_of(response: Response) -> str:
    parts = [part for message in response.candidates[0].messages for part in message.parts]
    return "".join(part.text for part in parts if isinstance(part, Text))


def check_stream(case: Case, data: bytes) -> None:
    events = decode_events(case.client, data)
    last = events[-1]
    if isinstance(last, ResponseFailed):
        assert not last.broken, f"{case.name}: the stream breaks off: {last.error.message}"
        assert not case.must_succeed, f"{case.name}: {last.error}"
        return
    assert isinstance(last, ResponseEnd), f"{case.name}: ends with {last}"
    response = fold(events)
    assert (text_of(response).strip(), calls_in(response)) == (TEXT, CALLS), case.name


async def check_case(case: Case, gateway: RunningGateway) -> None:
    path, body = case.request()
    response: UpstreamResponse = await gateway.post(path, body)
    data = await response.read(1_000_000)
    if response.status != 200:
        error = PROTOCOLS[case.client].decode_error(data, response.status)
        assert error.message, case.name
        assert not case.must_succeed, f"{case.name}: {error}"
    elif case.stream:
        check_stream(case, data)
    else:
        answer = PROTOCOLS[case.client].decode_response(data, ResponseContext())
        assert (text_of(answer).strip(), calls_in(answer)) == (TEXT, CALLS), case.name


MODES = [True, False] if IS_COMPLETE else [True]


@pytest.mark.parametrize("pair", ALL_PAIRS, ids="+".join)
def test_every_fault_ends_in_a_clean_answer_or_an_error_of_the_protocol(pair: tuple[str, str]) -> None:
    cases = [
        Case(point, kind, client, pair, stream)
        for (point, kind), client, stream in itertools.product(FAULTS, PROTOCOLS, MODES)
    ]
    assert len(cases) >= 16 * 7

    run_async(run_cases(cases))


def test_third_backend_takes_over_if_two_fail() -> None:
    run_async(run_cases([Case(*fault, client, TRIPLE, True) for fault in EARLY for client in PROTOCOLS], failing=2))


async def run_cases(cases: list[Case], failing: int = 1) -> None:
    """Run all cases, and report those that fail; `failing` backends have the fault."""
    async with run_matrix() as (gateway, first, second):
        slots = asyncio.Semaphore(16)

        async def run_case(case: Case) -> str:
            async with slots:
                try:
                    await check_case(case, gateway)
                except Exception as error:  # noqa: BLE001 - all cases are reported together
                    return f"{case.name}: {type(error).__name__}: {str(error)[:300]}"
            return ""

        failures = [one for one in await asyncio.gather(*map(run_case, cases)) if one]
        assert not failures, f"{len(failures)} of {len(cases)}:\n" + "\n".join(failures[:40])
        # One generation at each backend at most: no tool call is produced twice.
        assert Counter(first.answered) == dict.fromkeys([f"{case.name}." for case in cases], failing)
        assert len(second.answered) == len(set(second.answered))


# ---- tools that the gateway runs


TOOL_SCRIPT = """
[[turns]]
when = "case-"
after = 0
repeat = 0
calls = [{name = "one__echo", arguments = {word = "hello"}}]
"""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_tool_of_the_gateway_runs_once_whatever_fault_follows(tmp_path: Path, stream: bool) -> None:
    """The second round breaks; no backend may run the tool again."""
    script = TOOL_SCRIPT + "".join(
        f'[[turns]]\nwhen = "fault-{point}-{kind};"\nafter = 1\nrepeat = 0\ntext = "{TEXT}"\n'
        f'fault = {{at = "{point}", kind = "{kind}"}}\n'
        for point, kind in FAULTS
        if point not in ("arguments", "calls")
    )
    log = tmp_path / "log"
    settings = {
        "version": "2025-11-25",
        "tools": [{"name": "echo", "inputSchema": {"type": "object"}}],
        "log": str(log),
    }
    arguments = json.dumps(["-S", str(SCRIPTED_SERVER), json.dumps(settings)])
    cases = [
        Case(point, kind, client, ("anthropic", "openai-chat"), stream)
        for point, kind in FAULTS
        for client in ("anthropic", "openai-responses", "gemini")
        if point not in ("arguments", "calls")
    ]

    async def work() -> None:
        async with serve_simulator(script) as (first_url, first), serve_simulator(TOOL_SCRIPT) as (second_url, second):
            config = f"""
[mcp.servers.one]
command = {json.dumps(sys.executable)}
args = {arguments}
[policy]
allow = ["one__*"]
[limits]
failures = 1000000
[providers.first]
protocol = "anthropic"
base_url = "{first_url}"
[providers.second]
protocol = "openai-chat"
base_url = "{second_url}"
[[routes]]
tools = ["one"]
backends = [{{provider = "first", model = "claude-opus-4-5"}}, {{provider = "second", model = "gpt-5.5"}}]
"""
            async with run_gateway(config) as gateway:
                for case in cases:
                    response = await gateway.post(*case.request())
                    data = await response.read(1_000_000)
                    if response.status == 200 and stream:
                        last = decode_events(case.client, data)[-1]
                        assert not isinstance(last, ResponseFailed) or not last.broken, case.name
        assert second.answered == []
        assert len(first.answered) == 2 * len(cases)

    run_async(work())
    calls = [json.loads(line).get("method") == "tools/call" for line in log.read_text().splitlines()]
    assert sum(calls) == len(cases)
