"""A gateway in front of the strict simulator for every protocol, with all exchanges of both recorded."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import Struct

from tests.support.gateway.in_process import build_silent_app
from tests.support.sdk.clients import SDK_CLIENTS
from tests.support.servers.asgi import http_client, serve_app
from toolwire.canonical.content import Part, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.codec.interface import Route
from toolwire.gateway.config import parse_config
from toolwire.protocols import PROTOCOLS

UPSTREAM_KEY = "key-of-the-upstream"
_SIGNATURE = re.compile(r'"(?:signature|thoughtSignature|encrypted_content)":\s*"([^"]+)"')
_STANDARD = str.maketrans("-_", "+/")

SHOW_PATH = "/api/show"
"""The path on which the gateway looks up capabilities of an Ollama model, which is no exchange."""


class ObservedExchange(Struct):
    """One request and its response."""

    path: str
    request_headers: dict[str, str] = {}
    request_body: bytes = b""
    status: int = 0
    headers: dict[str, str] = {}
    response_body: bytes = b""
    # Whether the response was sent to its end.
    complete: bool = False
    # Whether the app has finished its work on the exchange.
    released: bool = False

    def request(self, protocol: str) -> Request:
        address = PROTOCOLS[protocol].surface.match(self.path)
        assert address is not None
        return PROTOCOLS[protocol].decode_request(self.request_body, Route(model=address.model, stream=address.stream))

    def parts(self, protocol: str) -> list[Part]:
        return [part for message in self.request(protocol).messages for part in message.parts]

    def calls(self, protocol: str) -> list[ToolCall]:
        return [part for part in self.parts(protocol) if isinstance(part, ToolCall)]

    def results(self, protocol: str) -> list[ToolResult]:
        return [part for part in self.parts(protocol) if isinstance(part, ToolResult)]


def signatures_in(body: bytes) -> set[str]:
    """Return every signature of thinking in a body or stream, found without a codec.

    Clients may use either base64 alphabet.
    """
    return {signature.translate(_STANDARD).rstrip("=") for signature in _SIGNATURE.findall(body.decode())}


class ObservedApp:
    """An ASGI app that records all of its exchanges."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.exchanges: list[ObservedExchange] = []
        self.hold_condition: Callable[[ObservedExchange, bytes], bool] | None = None

    def hold(self, matches: Callable[[ObservedExchange, bytes], bool]) -> threading.Event:
        """Delay each matching message of a response until the event is set."""
        released = threading.Event()
        self.hold_condition = lambda exchange, body: not released.is_set() and matches(exchange, body)
        return released

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] == SHOW_PATH:
            await self._app(scope, receive, send)
            return
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        exchange = ObservedExchange(scope["path"], headers)
        self.exchanges.append(exchange)

        async def watched_receive() -> Any:
            message = await receive()
            exchange.request_body += message.get("body", b"")
            return message

        async def watched_send(message: Any) -> None:
            while self.hold_condition is not None and self.hold_condition(exchange, message.get("body", b"")):  # noqa: ASYNC110 - any thread ends it
                await asyncio.sleep(0.002)
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                exchange.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                exchange.response_body += message["body"]
                exchange.complete = not message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, watched_receive, watched_send)
        finally:
            exchange.released = True


class GatewaySetup(Struct):
    """A gateway with observed exchanges of clients and upstreams."""

    base_url: str
    gateway: ObservedApp
    upstream: ObservedApp
    state_path: str | None = None

    def reset(self) -> None:
        self.gateway.exchanges.clear()
        self.upstream.exchanges.clear()
        self.gateway.hold_condition = self.upstream.hold_condition = None

    def losses(self, observed: ObservedExchange | None = None) -> list[dict[str, str]]:
        """Return the loss report of an exchange, by default the last one."""
        exchange = (observed or self.gateway.exchanges[-1]).headers.get("toolwire-exchange")
        answer = http_client.get(f"{self.base_url}/toolwire/exchanges/{exchange}/losses")
        losses: list[dict[str, str]] = answer.json()["losses"] if answer.status_code == 200 else []
        return losses


def routed_model(upstream: str) -> str:
    """Return the gateway's name of the simulated model of this protocol."""
    return f"{upstream}/{SDK_CLIENTS[upstream][1]}"


@contextmanager
def serve_gateway(simulator: Any, extra_config: str = "") -> Iterator[GatewaySetup]:
    """Serve a gateway with one provider per protocol, named after the protocol."""
    upstream = ObservedApp(simulator)
    with serve_app(upstream) as url:
        providers = "\n".join(
            f'[providers.{name}]\nprotocol = "{name}"\nbase_url = "{url}"\napi_key = "{UPSTREAM_KEY}"\n'
            f'models = ["{model}"]'
            for name, (_, model) in SDK_CLIENTS.items()
        )
        config = parse_config(f"{extra_config}\n{providers}", {})
        gateway = ObservedApp(build_silent_app(config))
        with serve_app(gateway) as base_url:
            yield GatewaySetup(base_url, gateway, upstream, config.state.path)


SIGNING_PROTOCOLS = ("anthropic", "openai-responses", "gemini", "gemini-interactions", "openrouter")

CLIENT_UPSTREAM_PAIRS = [(client, upstream) for client in SDK_CLIENTS for upstream in SDK_CLIENTS]
for_every_pair = pytest.mark.parametrize(("client", "upstream"), CLIENT_UPSTREAM_PAIRS)
buffered_and_streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
