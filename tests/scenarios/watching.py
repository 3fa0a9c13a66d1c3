"""A gateway in front of the strict simulator, in every protocol at once, and what goes in and out of both."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from tests.gateway.running import forgetful
from tests.upstream.clients import CLIENTS
from tests.upstream.serving import http, served
from toolwire.canonical.content import Part, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.codec.interface import Route
from toolwire.gateway.config import parse_config
from toolwire.gateway.server import build
from toolwire.protocols import PROTOCOLS

UPSTREAM_KEY = "key-of-the-upstream"
_PROOF = re.compile(r'"(?:signature|thoughtSignature|encrypted_content)":\s*"([^"]+)"')
_STANDARD = str.maketrans("-_", "+/")


LOOKED_UP = "/api/show"
"""The capabilities of an Ollama's model, which the gateway asks for once: no exchange."""


class Seen(Struct):
    """One request, and what was answered. `whole`: to the end of it. `let_go`: nobody works on it any more."""

    path: str
    asked: bytes = b""
    status: int = 0
    headers: dict[str, str] = {}
    answered: bytes = b""
    whole: bool = False
    let_go: bool = False

    def request(self, protocol: str) -> Request:
        address = PROTOCOLS[protocol].surface.match(self.path)
        assert address is not None
        return PROTOCOLS[protocol].decode_request(self.asked, Route(model=address.model, stream=address.stream))

    def parts(self, protocol: str) -> list[Part]:
        return [part for message in self.request(protocol).messages for part in message.parts]

    def calls(self, protocol: str) -> list[ToolCall]:
        return [part for part in self.parts(protocol) if isinstance(part, ToolCall)]

    def results(self, protocol: str) -> list[ToolResult]:
        return [part for part in self.parts(protocol) if isinstance(part, ToolResult)]


def proofs_in(body: bytes) -> set[str]:
    """Every proof of thinking in a body or a stream, found without a codec. Clients may use the other alphabet."""
    return {one.translate(_STANDARD).rstrip("=") for one in _PROOF.findall(body.decode())}


class Watched:
    """An ASGI app, and all that goes in and out of it."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.seen: list[Seen] = []
        self.holds: Callable[[Seen, bytes], bool] | None = None

    def hold(self, matches: Callable[[Seen, bytes], bool]) -> threading.Event:
        """Hold back each message of an answer that matches until the event is set."""
        released = threading.Event()
        self.holds = lambda seen, body: not released.is_set() and matches(seen, body)
        return released

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] == LOOKED_UP:
            await self._app(scope, receive, send)
            return
        seen = Seen(scope["path"])
        self.seen.append(seen)

        async def watched_receive() -> Any:
            message = await receive()
            seen.asked += message.get("body", b"")
            return message

        async def watched_send(message: Any) -> None:
            while self.holds is not None and self.holds(seen, message.get("body", b"")):  # noqa: ASYNC110 - any thread ends it
                await asyncio.sleep(0.002)
            if message["type"] == "http.response.start":
                seen.status = message["status"]
                seen.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                seen.answered += message["body"]
                seen.whole = not message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, watched_receive, watched_send)
        finally:
            seen.let_go = True


class Place(Struct):
    """Where clients go, and what is seen there and behind it."""

    base_url: str
    gateway: Watched
    upstream: Watched
    state_path: str | None = None

    def forget(self) -> None:
        self.gateway.seen.clear()
        self.upstream.seen.clear()
        self.gateway.holds = self.upstream.holds = None

    def losses(self, seen: Seen | None = None) -> list[dict[str, str]]:
        """What the gateway reports of an exchange, if not told otherwise the last one."""
        exchange = (seen or self.gateway.seen[-1]).headers.get("toolwire-exchange")
        answer = http.get(f"{self.base_url}/toolwire/exchanges/{exchange}/losses")
        found: list[dict[str, str]] = answer.json()["losses"] if answer.status_code == 200 else []
        return found


def model_of(upstream: str) -> str:
    """The name under which the gateway knows the simulated model of this protocol."""
    return f"{upstream}/{CLIENTS[upstream][1]}"


@contextmanager
def gateway_in_front_of(simulator: Any, more: str = "") -> Iterator[Place]:
    """Every protocol's provider is named after the protocol."""
    upstream = Watched(simulator)
    with served(upstream) as url:
        providers = "\n".join(
            f'[providers.{name}]\nprotocol = "{name}"\nbase_url = "{url}"\napi_key = "{UPSTREAM_KEY}"\n'
            f'models = ["{model}"]'
            for name, (_, model) in CLIENTS.items()
        )
        config = forgetful(parse_config(f"{more}\n{providers}", {}))
        built = build(config, None, {"HOME": "/nonexistent"})
        gateway = Watched(built.app)
        with served(gateway) as base_url:
            yield Place(base_url, gateway, upstream, config.state.path)
