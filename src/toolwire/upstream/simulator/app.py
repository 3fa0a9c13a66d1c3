"""The model behind HTTP: a plain ASGI app that speaks one protocol, or all of them at once."""

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.events import Event, PartDelta
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.interface import Codec, Context, Route
from toolwire.codec.lines import in_one_line
from toolwire.codec.surface import ModelCard
from toolwire.protocols import PROTOCOLS

from .asgi import Exchange, Gone, Receive, Scope, Send, live
from .brain import reply_to
from .composing import Composer, input_tokens
from .dialects import DIALECTS
from .memory import Memory
from .pieces import pieces_of
from .proofs import Proofs
from .script import Script, Turn
from .strict import Refused, admitted, demand_proofs, no_key, no_model

LIMIT_BODY = 64 * 1024 * 1024
OLLAMA_VERSION = "0.99.0"
# An endless stream leaves room for others.
_LEAST_PACE = 0.001


class Simulator:
    """`models`: the only ones it serves; without, any name is taken. `require_key`: a key must be sent, whatever it is.
    `pace`: seconds between the pieces of a stream."""

    def __init__(
        self,
        protocols: Iterable[str] = (),
        *,
        models: tuple[str, ...] | None = None,
        script: Script | None = None,
        require_key: bool = False,
        pace: float = 0,
        limit_body: int = LIMIT_BODY,
        proofs: Proofs | None = None,
    ) -> None:
        self._codecs = {name: PROTOCOLS[name] for name in tuple(protocols) or DIALECTS}
        self._models = models
        self._script = script
        self._require_key = require_key
        self._pace = pace
        self._limit_body = limit_body
        self._proofs = proofs or Proofs()
        self._memory = Memory()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await live(receive, send)
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        codec = self._spoken(exchange)
        with suppress(Gone):
            try:
                await self._answer(exchange, codec)
            except Refused as refused:
                await exchange.send_error(refused.error, codec)

    def _spoken(self, exchange: Exchange) -> Codec:
        """The protocol that an address belongs to, or else the one that the request sounds like."""
        path, headers = exchange.path, exchange.headers
        for codec in self._codecs.values():
            if codec.surface.match(path) is not None:
                return codec
        guess = "openai-chat"
        if path.startswith("/api/"):
            guess = "openrouter" if path.startswith("/api/v1/") else "ollama"
        elif "anthropic-version" in headers:
            guess = "anthropic"
        elif path.startswith("/v1beta/") or "x-goog-api-key" in headers or "key=" in exchange.query:
            guess = "gemini"
        return self._codecs.get(guess) or next(iter(self._codecs.values()))

    async def _answer(self, exchange: Exchange, codec: Codec) -> None:
        if self._require_key and not _has_key(exchange, codec):
            raise Refused(no_key(codec.name))
        address = codec.surface.match(exchange.path)
        if address is None:
            await exchange.send_json(await self._about_models(exchange, codec))
            return
        if exchange.method != "POST":
            raise Refused(_no_address(exchange))
        body = await exchange.body(self._limit_body)
        version = exchange.headers.get(codec.surface.version_header or "")
        route = Route(path=exchange.path, model=address.model, stream=address.stream, version=version)
        if address.counts:
            await exchange.send_json(_counted(codec, body, route))
            return
        request = admitted(codec, body, route)
        self._serve(request.model or "", codec)
        request = self._memory.expanded(request, codec.name)
        demand_proofs(request, codec.name, self._proofs)
        await self._play(exchange, codec, request)

    async def _play(self, exchange: Exchange, codec: Codec, request: Request) -> None:
        turn = None if self._script is None else self._script.next_turn(request, codec.name)
        if turn is not None:
            await exchange.pause(turn.delay)
            if turn.is_refusal():
                raise Refused(turn.failure())
        reply = reply_to(request, codec.name) if turn is None else turn.reply()
        response = Composer(request, codec.name, self._proofs).response(reply)
        self._memory.keep(request, response, codec.name)
        context = Context(request=request, created=int(time.time()))
        turn = turn or Turn(pace=self._pace)
        if codec.surface.streams if request.stream is None else request.stream:
            await _stream(exchange, codec, response, context, turn)
        else:
            await _send(exchange, codec, response, context, turn)

    async def _about_models(self, exchange: Exchange, codec: Codec) -> Any:
        """The list of models, a single one, and what Ollama's clients ask before they begin."""
        models = [ModelCard(one) for one in (DIALECTS[codec.name].models if self._models is None else self._models)]
        match exchange.method, exchange.path.strip("/").split("/"):
            case "GET", ["api", "version"] if codec.name == "ollama":
                return {"version": OLLAMA_VERSION}
            case "GET", ["api", "tags"] if codec.name == "ollama":
                return codec.encode_models(models)
            case "POST", ["api", "show"] if codec.name == "ollama":
                return codec.encode_model(ModelCard(self._serve(_named(await exchange.body(self._limit_body)), codec)))
            case "GET", ["v1" | "v1beta", "models"] | ["api", "v1", "models"]:
                return codec.encode_models(models)
            case "GET", ["v1" | "v1beta", "models", *name] | ["api", "v1", "model", *name] if name:
                return codec.encode_model(ModelCard(self._serve("/".join(name), codec)))
            case _:
                raise Refused(_no_address(exchange))

    def _serve(self, model: str, codec: Codec) -> str:
        if self._models is not None and model not in self._models:
            raise Refused(no_model(codec.name, model))
        return model


def _has_key(exchange: Exchange, codec: Codec) -> bool:
    places = (codec.surface.key_header, "authorization")
    return any(exchange.headers.get(name) for name in places) or "key=" in exchange.query


def _no_address(exchange: Exchange) -> ApiError:
    return ApiError(kind="not_found", message=f"Invalid URL ({exchange.method} {exchange.path})")


def _counted(codec: Codec, body: bytes, route: Route) -> Any:
    """What the request would take; it is not checked as one that is to be answered."""
    if codec.counting is None:
        raise AssertionError(f"{codec.name} does not count")
    try:
        request = codec.decode_request(codec.counting.unwrap(body), route)
    except DecodeError as error:
        raise Refused(ApiError(kind="invalid_request", message=str(error))) from None
    return codec.counting.encode_count(input_tokens(request))


def _named(body: bytes) -> str:
    """The model that a body names; older clients of Ollama call it `name`."""
    try:
        whole = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        whole = {}
    model = whole.get("model") or whole.get("name")
    if not isinstance(model, str):
        raise Refused(ApiError(kind="invalid_request", message="model is required"))
    return model


async def _send(exchange: Exchange, codec: Codec, response: Response, context: Context, turn: Turn) -> None:
    if turn.error is not None:
        raise Refused(turn.failure())
    body = codec.encode_response(response, context).to_bytes()
    if turn.cut is not None:
        await exchange.send_half(body)
    else:
        await exchange.send(body if turn.garbage is None else turn.garbage.encode())


async def _stream(exchange: Exchange, codec: Codec, response: Response, context: Context, turn: Turn) -> None:
    encoder = codec.stream_encoder(context)
    await exchange.start(200, codec.surface.stream_type, ("cache-control", "no-cache"))
    for number, events in enumerate(pieces_of(response)):
        if number:
            await exchange.pause(turn.pace)
        if number == turn.cut:
            return  # without its end: the server closes the connection
        if number and turn.garbage is not None:
            await exchange.write(turn.garbage.encode())
            return
        if data := in_one_line(encoder.encode(events)):
            await exchange.write(data, more=True)
        while turn.endless and _grows(events):
            await exchange.pause(max(turn.pace, _LEAST_PACE))
            await exchange.write(in_one_line(encoder.encode(events[-1:])), more=True)
    await exchange.write(in_one_line(encoder.close()))


def _grows(events: list[Event]) -> bool:
    return isinstance(events[-1], PartDelta)
