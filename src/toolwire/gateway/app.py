"""The ASGI application: who is spoken to, and the answer in the client's own words. The exchange does the work."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, ToolwireError
from toolwire.canonical.loss import Loss
from toolwire.codec.interface import Codec, Route
from toolwire.codec.surface import Address
from toolwire.protocols import PROTOCOLS

from .auth import Caller, Gate
from .config import LimitsSection
from .counting import Counter
from .exchange import Exchanger
from .faults import retry_after_of, told
from .headers import is_strict, route_of, speaker
from .incoming import Gone, Header, Incoming, Scope, Send
from .log import Line
from .metrics import Metrics
from .models import LISTS, Catalogue
from .offload import BodyRoom, is_heavy, run_apart
from .passing import Asked, Whole
from .quota import Quota
from .recording import Recorder
from .refusal import Refused
from .relay import Relay
from .report import losses_body, losses_header
from .scoreboard import Scoreboard
from .sockets import Sockets
from .state.resources import Resources
from .watch import Receive, Watching

_JSON: Header = (b"content-type", b"application/json")
_LIMIT_NAMING = 64 * 1024  # bytes of a body that only names a model
_POSTED = ("/toolwire/translate", "/api/show")
_GOT = ("/", "/metrics", "/api/version", *LISTS)


class WrongMethod(Refused):
    """There is something, for another method."""

    def __init__(self, path: str, allowed: str) -> None:
        super().__init__(ApiError(kind="invalid_request", message=f"{path} takes {allowed} only", status=405))
        self.allowed = allowed


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
        counter: Counter,
        recorder: Recorder | None = None,
        scoreboard: Scoreboard | None = None,
        worker: int = 0,
    ) -> None:
        self._exchanger = exchanger
        self._gate = gate
        self._catalogue = catalogue
        self._limits = limits
        self._log = log
        self._counter = counter
        self._recorder = recorder
        self._resources = resources
        scoreboard = scoreboard or Scoreboard()
        self._metrics = metrics = Metrics(scoreboard, worker)
        self._exchanges = scoreboard.exchanges(worker)
        self._streams = Quota("streams", limits.streams, gate.share(limits.streams), metrics.count_streams)
        self._sockets = Sockets(exchanger, gate, limits, self._streams, note=self._note, recorder=recorder)
        self._watching = Watching(limits.receive)
        self._bodies = BodyRoom(limits.bodies)
        if recorder is not None:
            recorder.journal.publish = metrics.count_journal
        self._codecs = tuple(PROTOCOLS.values())
        self._addresses = {
            endpoint.path: (codec, Address(stream=endpoint.stream, counts=endpoint.counts))
            for codec in reversed(self._codecs)
            for endpoint in codec.surface.endpoints
            if "{model}" not in endpoint.path
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await self._sockets.serve(scope, receive, send)

    def _note(self, line: Line, caller: Caller, losses: list[Loss]) -> None:
        """One exchange over a websocket."""
        self._exchanges.add(line.id, caller, losses_body(losses) if losses else b"")
        line.seconds = time.monotonic() - line.began
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
        """Let go of the connections that are kept for the next request, and write what waits to be recorded."""
        self._exchanger.close()
        if self._recorder is not None:
            self._recorder.journal.close()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        id = f"ex_{random.getrandbits(64):016x}"  # a name, no secret: only its own caller is told of an exchange
        line = Line(id=id, method=scope["method"], path=scope["path"], began=time.monotonic())
        watch = self._watching.over(receive, line)
        incoming = Incoming(scope, receive, send, dict(scope["headers"]), line, watch, self._bodies)
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
            more = [(b"allow", error.allowed.encode())] if isinstance(error, WrongMethod) else []
            await self._refuse(incoming, codec, told(error), more)
        finally:
            incoming.let_go()
            watch.close()
            line.seconds = time.monotonic() - line.began
            self._metrics.count(line)
            self._log(line)
            if self._recorder is not None and incoming.note is not None:
                self._recorder.record(line, incoming.note)

    def _recognise(self, incoming: Incoming) -> tuple[Codec, Address | None]:
        """Whose address it is; for one that is nobody's, in whose words it is answered."""
        path = incoming.path
        if (known := self._addresses.get(path)) is not None:
            return known
        for codec in self._codecs:
            if (address := codec.surface.match(path)) is not None:
                return codec, address
        return PROTOCOLS[self._resources.speaker(path) or speaker(incoming.scope, incoming.headers)], None

    async def _serve(self, incoming: Incoming, codec: Codec, address: Address | None) -> None:
        if incoming.path == "/healthz":
            await incoming.answer(200, self._health(), [_JSON])
            return
        if (why := self._gate.stranger(incoming.headers)) is not None:
            raise Refused(ApiError(kind="permission", message=why, status=403))
        caller = self._gate.admit(incoming.headers, incoming.scope["query_string"])
        if caller is None:
            raise Refused(ApiError(kind="authentication", message="no valid key was given", status=401))
        incoming.caller = caller
        path, posted = incoming.path, incoming.scope["method"] == "POST"
        if not posted and (address is not None or path in _POSTED):
            raise WrongMethod(path, "POST")
        if address is not None:
            await (self._count if address.counts else self._exchange)(incoming, codec, address)
        elif path == "/toolwire/translate":
            await self._translate(incoming)
        elif self._resources.speaker(path) is not None:
            await self._use(incoming, codec)
        else:
            await self._look_up(incoming, codec)

    def _health(self) -> bytes:
        """Whether all of it works. What serves without state is up: the status of the answer stays 200."""
        reasons: dict[str, str] = {}
        if (trouble := self._resources.trouble) is not None:
            reasons["state"] = trouble
        if self._recorder is not None and self._recorder.journal.trouble:
            reasons["journal"] = "records can't be written: the log says why"
        if not reasons:
            return b'{"status":"ok"}'
        return msgspec.json.encode({"status": "degraded", "reasons": reasons})

    # ---- the exchange

    async def _exchange(self, incoming: Incoming, codec: Codec, address: Address) -> None:
        asked = await self._ask(incoming, codec, address)
        line = incoming.line
        note = None if self._recorder is None else self._recorder.note(asked, incoming.headers)
        incoming.note = note
        relay = Relay(incoming, codec, self._streams, self._limits.heartbeat)
        try:
            answer = await self._exchanger.exchange(
                asked, line.goes_to, relay.expect, None if note is None else note.sends
            )
            if note is not None:
                note.answers(answer)
            if isinstance(answer, Whole):
                await self._answer(incoming, answer)
            else:
                await relay.pass_on(answer)
        except Exception as error:
            if not line.started or line.over:
                raise
            line.crash = None if isinstance(error, ToolwireError | Refused) else error
            await relay.fail(told(error))
        finally:
            relay.close()
            if relay.losses:
                self._keep(incoming, relay.losses)
                if note is not None:
                    note.losses = relay.losses

    async def _answer(self, incoming: Incoming, answer: Whole) -> None:
        incoming.watch.close()
        incoming.line.usage = None if answer.told is None else answer.told.usage
        headers = [_JSON]
        if answer.losses:
            told = self._keep(incoming, answer.losses)
            headers.append((b"toolwire-losses", losses_header(answer.losses, told)))
        await incoming.answer(200, answer.body, headers)

    def _keep(self, incoming: Incoming, losses: list[Loss]) -> bytes:
        told = losses_body(losses)
        incoming.line.losses = len(losses)
        self._exchanges.add(incoming.line.id, incoming.caller, told)
        return told

    async def _count(self, incoming: Incoming, codec: Codec, address: Address) -> None:
        """How many tokens a request would take; a header says whether that is an estimate."""
        asked = await self._ask(incoming, codec, address)
        if codec.counting is None:
            raise AssertionError(f"{codec.name} has an address for counting, and no way to count")
        asked = replace(asked, body=codec.counting.unwrap(asked.body))
        counted = await self._counter.count(asked, incoming.line)
        how = (b"toolwire-tokens", b"estimated" if counted.estimated else b"counted")
        await incoming.answer(200, msgspec.json.encode(codec.counting.encode_count(counted.tokens)), [_JSON, how])

    async def _ask(self, incoming: Incoming, codec: Codec, address: Address) -> Asked:
        body = await incoming.body(self._limits.body)
        line, headers = incoming.line, incoming.headers
        line.client = codec.name
        self._exchanges.add(line.id, incoming.caller)
        return Asked(
            client=codec,
            body=body,
            route=route_of(codec, address, headers),
            tenant=incoming.caller.tenant,
            strict=is_strict(headers),
            created=int(time.time()),
        )

    def _late(self) -> ApiError:
        why = f"the body did not arrive within {self._limits.receive:g} seconds"
        return ApiError(kind="timeout", message=why, status=408)

    async def _translate(self, incoming: Incoming) -> None:
        """What would be sent upstream, without sending it."""
        body = await incoming.body(self._limits.body)
        wanted, given = await run_apart(_read_dry_run, body, heavy=is_heavy(body))
        if wanted.protocol not in PROTOCOLS:
            why = f"protocol: {wanted.protocol!r} is none of {', '.join(PROTOCOLS)}"
            raise Refused(ApiError(kind="invalid_request", message=why, status=400))
        asked = Asked(
            client=PROTOCOLS[wanted.protocol],
            body=given,
            route=Route(model=wanted.model, stream=wanted.stream),
            tenant=incoming.caller.tenant,
        )
        sent = await self._exchanger.translate(asked)
        provider = sent.way.provider
        told = {
            "provider": provider.name,
            "protocol": provider.protocol,
            "address": replace(provider, query={}).address(sent.route.path or "/"),  # `query` may hold keys
            "body": msgspec.Raw(sent.body),
            "losses": sent.losses,
        }
        encoded = await run_apart(msgspec.json.encode, told, heavy=is_heavy(body))
        await incoming.answer(200, encoded, [_JSON])

    # ---- what can be looked up

    async def _use(self, incoming: Incoming, codec: Codec) -> None:
        """An answer or a conversation that is kept, by its id."""
        scope = incoming.scope
        found = await self._resources.answer(
            incoming.caller.tenant,
            scope["method"],
            incoming.path,
            scope["query_string"],
            lambda: incoming.body(self._limits.body),
        )
        if found.stream is None:
            await incoming.answer(200, found.body, [_JSON])
            return
        incoming.watch.received()
        relay = Relay(incoming, codec, self._streams, self._limits.heartbeat)
        try:
            relay.expect()
            await relay.pass_on(found.stream)
        finally:
            relay.close()

    async def _look_up(self, incoming: Incoming, codec: Codec) -> None:
        path = incoming.path
        asked = await incoming.body(min(self._limits.body, _LIMIT_NAMING)) if path in _POSTED else b""
        got = path in _POSTED or incoming.scope["method"] in ("GET", "HEAD")
        if not got and path in _GOT:
            raise WrongMethod(path, "GET")
        found = self._found(path, codec, incoming.caller, asked) if got else None
        if found is None:
            raise Refused(ApiError(kind="not_found", message=f"there is nothing at {path}", status=404))
        body, kind = found
        await incoming.answer(200, body, [kind])

    def _found(self, path: str, codec: Codec, caller: Caller, asked: bytes) -> tuple[bytes, Header] | None:
        """What is at a path, and of which type it is."""
        if path == "/":  # Ollama's command line looks here first
            return b"toolwire is running\n", (b"content-type", b"text/plain")
        if path == "/metrics":
            journal = None if self._recorder is None else self._recorder.journal
            return self._metrics.render(journal), (b"content-type", b"text/plain; version=0.0.4")
        if path.startswith("/toolwire/exchanges/") and path.endswith("/losses"):
            id = path.removeprefix("/toolwire/exchanges/").removesuffix("/losses")
            losses = self._exchanges.losses(id, caller)
            return None if losses is None else (losses, _JSON)
        body = self._catalogue.look_up(path, codec.name, asked)
        return None if body is None else (msgspec.json.encode(body), _JSON)

    # ---- errors

    async def _refuse(self, incoming: Incoming, codec: Codec, error: ApiError, more: Sequence[Header] = ()) -> None:
        incoming.line.why = error.message
        encoding = codec.encode_error(error)
        headers = [_JSON, *more]
        if (seconds := retry_after_of(error)) is not None:
            headers.append((b"retry-after", seconds))
        status = error.status or codec.surface.status_of(error.kind)
        body = encoding.to_bytes()
        if incoming.note is not None:
            incoming.note.keep(body)
        await incoming.answer(status, body, headers)


class DryRun(Struct, forbid_unknown_fields=True):
    """What `/toolwire/translate` is asked."""

    protocol: str
    body: msgspec.Raw
    model: str | None = None
    stream: bool | None = None


def _read_dry_run(body: bytes) -> tuple[DryRun, bytes]:
    """Return what is asked, and the body to translate."""
    try:
        wanted = msgspec.json.decode(body, type=DryRun)
    except msgspec.MsgspecError as error:
        raise Refused(ApiError(kind="invalid_request", message=str(error), status=400)) from None
    return wanted, bytes(wanted.body)
