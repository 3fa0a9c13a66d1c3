"""The ASGI application: who is spoken to, and the answer in the client's own words. The exchange does the work."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.canonical.errors import ApiError, ToolwireError
from toolwire.canonical.loss import Loss
from toolwire.codec.interface import Codec, Route
from toolwire.codec.surface import Address
from toolwire.protocols import PROTOCOLS

from .auth import Caller, Gate
from .config import LimitsSection
from .exchange import Asked, Exchanger, Streaming
from .faults import told
from .log import Line
from .metrics import Metrics
from .models import Catalogue
from .refusal import Refused
from .report import Exchanges, losses_header
from .sockets import Sockets
from .state.resources import Resources
from .watch import Receive, Watch

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

_JSON: Header = (b"content-type", b"application/json")


class Gone(Exception):
    """The client left."""


class Incoming(Struct):
    """A request as it came."""

    scope: Scope
    receive: Receive
    send: Send
    headers: dict[bytes, bytes]
    line: Line
    watch: Watch
    caller: Caller = Caller("")

    @property
    def path(self) -> str:
        path: str = self.scope["path"]
        return path

    async def answer(self, status: int, body: bytes, headers: list[Header]) -> None:
        self.line.status = status
        length = (b"content-length", str(len(body)).encode())
        exchange = (b"toolwire-exchange", self.line.id.encode())
        await self.send(
            {"type": "http.response.start", "status": status, "headers": [*headers, length, exchange]},
        )
        await self.send({"type": "http.response.body", "body": body})


class App:
    def __init__(
        self,
        exchanger: Exchanger,
        gate: Gate,
        catalogue: Catalogue,
        limits: LimitsSection,
        *,
        log: Callable[[Line], None],
        resources: Resources,
    ) -> None:
        self._exchanger = exchanger
        self._gate = gate
        self._catalogue = catalogue
        self._limits = limits
        self._log = log
        self._resources = resources
        self._sockets = Sockets(exchanger, gate, limits, self._note)
        self._metrics = Metrics()
        self._exchanges = Exchanges(limits.exchanges)
        self._streams = 0
        self._beats: set[asyncio.Task[None]] = set()
        self._codecs = tuple(PROTOCOLS.values())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await self._sockets.serve(scope, receive, send)

    def _note(self, line: Line, caller: Caller, losses: list[Loss]) -> None:
        """One exchange over a websocket."""
        if losses:
            self._exchanges.keep(line.id, caller, losses)
        self._metrics.count(line)
        self._log(line)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                self.close()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    def close(self) -> None:
        """Let go of the connections that are kept for the next request."""
        self._exchanger.close()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        line = Line(id=f"ex_{secrets.token_hex(8)}", method=scope["method"], path=scope["path"], began=time.monotonic())
        watch = Watch(receive, line, self._limits.receive)
        incoming = Incoming(scope, receive, send, dict(scope["headers"]), line, watch)
        codec, address = self._recognise(incoming)
        try:
            await self._serve(incoming, codec, address)
        except Gone:
            line.status = 499
        except asyncio.CancelledError:
            if watch.left:
                line.status = 499
            elif watch.late:
                await self._refuse(incoming, codec, self._late())
            else:
                raise
        except Exception as error:  # noqa: BLE001 - the one place that turns whatever went wrong into an answer
            if not isinstance(error, ToolwireError | Refused):
                line.crash = error
            if line.started:
                return
            await self._refuse(incoming, codec, told(error))
        finally:
            watch.close()
            self._metrics.count(line)
            self._log(line)

    def _recognise(self, incoming: Incoming) -> tuple[Codec, Address | None]:
        """Whose address it is; for one that is nobody's, in whose words it is answered."""
        path = incoming.path
        for codec in self._codecs:
            if (address := codec.surface.match(path)) is not None:
                return codec, address
        return PROTOCOLS[self._resources.speaker(path) or _speaker(incoming)], None

    async def _serve(self, incoming: Incoming, codec: Codec, address: Address | None) -> None:
        if incoming.path == "/healthz":
            await incoming.answer(200, b'{"status":"ok"}', [_JSON])
            return
        if (why := self._gate.stranger(incoming.headers)) is not None:
            raise Refused(ApiError(kind="permission", message=why, status=403))
        caller = self._gate.admit(incoming.headers, incoming.scope["query_string"])
        if caller is None:
            raise Refused(ApiError(kind="authentication", message="no valid key was given", status=401))
        incoming.caller = caller
        if address is not None and incoming.scope["method"] == "POST":
            await self._exchange(incoming, codec, address)
        elif incoming.scope["method"] == "POST" and incoming.path == "/toolwire/translate":
            await self._translate(incoming)
        elif address is None and self._resources.speaker(incoming.path) is not None:
            await self._use(incoming)
        elif incoming.scope["method"] in ("GET", "HEAD") or incoming.path == "/api/show":
            await self._look_up(incoming, codec)
        elif address is not None:
            raise Refused(ApiError(kind="invalid_request", message=f"{incoming.path} takes POST only", status=405))
        else:
            raise Refused(ApiError(kind="not_found", message=f"there is nothing at {incoming.path}", status=404))

    # ---- the exchange

    async def _exchange(self, incoming: Incoming, codec: Codec, address: Address) -> None:
        asked = await self._ask(incoming, codec, address)
        line = incoming.line
        answer = await self._exchanger.exchange(asked, line.goes_to)
        if isinstance(answer, Streaming):
            await self._stream(incoming, codec, answer)
            return
        incoming.watch.close()
        line.usage, line.losses = answer.usage, len(answer.losses)
        headers = [_JSON]
        if answer.losses:
            self._exchanges.keep(line.id, incoming.caller, answer.losses)
            headers.append((b"toolwire-losses", losses_header(answer.losses)))
        await incoming.answer(200, answer.body, headers)

    async def _ask(self, incoming: Incoming, codec: Codec, address: Address) -> Asked:
        body = await self._body(incoming)
        line, headers = incoming.line, incoming.headers
        line.client = codec.name
        version = None
        if codec.surface.version_header is not None:
            version = headers.get(codec.surface.version_header.encode(), b"").decode("latin-1") or None
        return Asked(
            client=codec,
            body=body,
            route=Route(model=address.model, stream=address.stream, version=version),
            tenant=incoming.caller.tenant,
            strict=headers.get(b"toolwire-strict", b"") == b"refuse",
            created=int(time.time()),
        )

    async def _body(self, incoming: Incoming) -> bytes:
        """The whole body, within its limit of size; how long it may take is the watch's to know."""
        limit = self._limits.body
        announced = incoming.headers.get(b"content-length", b"0")
        pieces: list[bytes] = []
        size = int(announced) if announced.isdigit() else 0
        while size <= limit:
            message = await incoming.receive()
            if message["type"] == "http.disconnect":
                raise Gone
            pieces.append(message.get("body", b""))
            if not message.get("more_body", False):
                incoming.watch.received()
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            size = sum(map(len, pieces))
        raise Refused(ApiError(kind="too_large", message=f"the body is longer than {limit} bytes", status=413))

    def _late(self) -> ApiError:
        why = f"the body did not arrive within {self._limits.receive:g} seconds"
        return ApiError(kind="timeout", message=why, status=408)

    async def _stream(self, incoming: Incoming, codec: Codec, answer: Streaming) -> None:
        line, send = incoming.line, incoming.send
        headers: list[Header] = [
            (b"content-type", codec.surface.stream_type.encode()),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
            (b"toolwire-exchange", line.id.encode()),
        ]
        if answer.losses:
            headers.append((b"toolwire-losses", losses_header(answer.losses)))
        if self._streams >= self._limits.streams:
            answer.close()
            raise Refused(ApiError(kind="overloaded", message="too many streams at once", status=503))
        self._streams += 1
        line.status, line.started, line.streamed = 200, True, True
        beat = asyncio.get_running_loop().call_later(self._limits.heartbeat, self._beat, incoming, answer)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for data in answer.chunks():
                line.told = time.monotonic()
                await send({"type": "http.response.body", "body": data, "more_body": True})
            line.over = True
            await send({"type": "http.response.body", "body": b""})
        finally:
            beat.cancel()
            line.over = True
            self._streams -= 1
            line.usage, line.failed = answer.translation.usage, answer.translation.error is not None
            if losses := answer.losses:
                line.losses = len(losses)
                self._exchanges.keep(line.id, incoming.caller, losses)

    def _beat(self, incoming: Incoming, answer: Streaming) -> None:
        """Say something harmless while the upstream is silent, at a boundary between events."""
        line, pause = incoming.line, self._limits.heartbeat
        if line.over:
            return
        loop = asyncio.get_running_loop()
        loop.call_later(pause, self._beat, incoming, answer)
        if time.monotonic() - line.told >= pause and (data := answer.ping()):
            body = {"type": "http.response.body", "body": data, "more_body": True}
            self._beats.add(task := loop.create_task(_quietly(incoming.send(body))))
            task.add_done_callback(self._beats.discard)

    async def _translate(self, incoming: Incoming) -> None:
        """What would be sent upstream, without sending it."""
        body = await self._body(incoming)
        try:
            wanted = msgspec.json.decode(body, type=DryRun)
        except msgspec.MsgspecError as error:
            raise Refused(ApiError(kind="invalid_request", message=str(error), status=400)) from None
        if wanted.protocol not in PROTOCOLS:
            why = f"protocol: {wanted.protocol!r} is none of {', '.join(PROTOCOLS)}"
            raise Refused(ApiError(kind="invalid_request", message=why, status=400))
        asked = Asked(
            client=PROTOCOLS[wanted.protocol],
            body=bytes(wanted.body),
            route=Route(model=wanted.model, stream=wanted.stream),
            tenant=incoming.caller.tenant,
        )
        sent, encoding = self._exchanger.translate(asked)
        provider = sent.way.provider
        told = {
            "provider": provider.name,
            "protocol": provider.protocol,
            "address": provider.address(encoding.route.path or "/"),
            "body": encoding.body,
            "losses": sent.losses,
        }
        await incoming.answer(200, msgspec.json.encode(told), [_JSON])

    # ---- what can be looked up

    async def _use(self, incoming: Incoming) -> None:
        """An answer or a conversation that is kept, by its id."""
        scope = incoming.scope
        found = await self._resources.answer(
            incoming.caller.tenant,
            scope["method"],
            incoming.path,
            scope["query_string"],
            lambda: self._body(incoming),
        )
        await incoming.answer(200, found.body, [(b"content-type", found.kind.encode())])

    async def _look_up(self, incoming: Incoming, codec: Codec) -> None:
        path = incoming.path
        if path == "/metrics":
            kind = (b"content-type", b"text/plain; version=0.0.4")
            await incoming.answer(200, self._metrics.told(self._streams), [kind])
            return
        if path.startswith("/toolwire/exchanges/") and path.endswith("/losses"):
            id = path.removeprefix("/toolwire/exchanges/").removesuffix("/losses")
            losses = self._exchanges.losses(id, incoming.caller)
            if losses is not None:
                await incoming.answer(200, msgspec.json.encode({"losses": losses}), [_JSON])
                return
        body = self._catalogue.look_up(path, codec.name, await self._shown(incoming))
        if body is None:
            raise Refused(ApiError(kind="not_found", message=f"there is nothing at {path}", status=404))
        await incoming.answer(200, msgspec.json.encode(body), [_JSON])

    async def _shown(self, incoming: Incoming) -> bytes:
        return await self._body(incoming) if incoming.scope["method"] == "POST" else b""

    # ---- errors

    async def _refuse(self, incoming: Incoming, codec: Codec, error: ApiError) -> None:
        incoming.line.why = error.message
        encoding = codec.encode_error(error)
        headers = [_JSON]
        if error.retry_after is not None:
            headers.append((b"retry-after", f"{error.retry_after:g}".encode()))
        status = error.status or codec.surface.status_of(error.kind)
        await incoming.answer(status, encoding.to_bytes(), headers)


class DryRun(Struct):
    """What `/toolwire/translate` is asked."""

    protocol: str
    body: msgspec.Raw
    model: str | None = None
    stream: bool | None = None


def _speaker(incoming: Incoming) -> str:
    """Whose words an address that several share, or none has, is answered in."""
    path, headers = incoming.path, incoming.headers
    if b"anthropic-version" in headers:
        return "anthropic"
    if path.startswith("/v1beta/interactions"):
        return "gemini-interactions"
    google = b"x-goog-api-key" in headers or b"key=" in incoming.scope["query_string"]
    if google or path.startswith("/v1beta/"):
        return "gemini"
    if path.startswith("/api/v1/"):
        return "openrouter"
    if path.startswith("/api/"):
        return "ollama"
    if path.startswith("/v1/messages"):
        return "anthropic"
    return "openai-responses" if path.startswith("/v1/responses") else "openai-chat"


async def _quietly(sending: Awaitable[None]) -> None:
    with contextlib.suppress(Exception):
        await sending
