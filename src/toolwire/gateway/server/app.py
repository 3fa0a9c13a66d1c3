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
from toolwire.codec.surface import EndpointMatch
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.errors import RequestRejected, encode_retry_after, to_api_error
from toolwire.gateway.exchange.dispatcher import Dispatcher
from toolwire.gateway.exchange.token_count import TokenCounter
from toolwire.gateway.exchange.types import BufferedResponse, ClientRequest
from toolwire.gateway.limits import BodyBudget, Quota, is_heavy_body, run_in_thread_if
from toolwire.gateway.observability.access_log import RequestRecord
from toolwire.gateway.observability.loss_report import encode_losses, encode_losses_header
from toolwire.gateway.observability.metrics import Metrics, Scoreboard
from toolwire.gateway.observability.recorder import Recorder
from toolwire.gateway.providers.catalog import MODEL_LIST_PATHS, ModelCatalog
from toolwire.gateway.server.auth import Authenticator, Principal
from toolwire.gateway.server.request import (
    ClientDisconnected,
    DisconnectMonitor,
    Header,
    HttpRequest,
    Receive,
    Scope,
    Send,
    guess_protocol,
    is_strict,
    request_route,
)
from toolwire.gateway.server.stream_sender import StreamSender
from toolwire.gateway.state.resources import Resources
from toolwire.gateway.websocket.connection import ResponsesWebSocket
from toolwire.protocols import PROTOCOLS

_JSON_HEADER: Header = (b"content-type", b"application/json")
_LIMIT_MODEL_LOOKUP_BODY = 64 * 1024  # bytes of a body that only names a model
_POST_PATHS = ("/toolwire/translate", "/api/show")
_GET_PATHS = ("/", "/metrics", "/api/version", *MODEL_LIST_PATHS)


class MethodNotAllowed(RequestRejected):
    """There is something, for another method."""

    def __init__(self, path: str, allowed: str) -> None:
        super().__init__(ApiError(kind="invalid_request", message=f"{path} takes {allowed} only", status=405))
        self.allowed = allowed


class App:
    def __init__(
        self,
        dispatcher: Dispatcher,
        authenticator: Authenticator,
        catalog: ModelCatalog,
        limits: LimitsSection,
        *,
        log: Callable[[RequestRecord], None],
        resources: Resources,
        token_counter: TokenCounter,
        recorder: Recorder | None = None,
        scoreboard: Scoreboard | None = None,
        worker: int = 0,
    ) -> None:
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        self._catalog = catalog
        self._limits = limits
        self._log = log
        self._token_counter = token_counter
        self._recorder = recorder
        self._resources = resources
        scoreboard = scoreboard or Scoreboard()
        self._metrics = metrics = Metrics(scoreboard, worker)
        self._loss_store = scoreboard.loss_store(worker)
        self._stream_quota = Quota(
            "streams", limits.streams, authenticator.key_quota(limits.streams), metrics.set_streams
        )
        self._websocket = ResponsesWebSocket(
            dispatcher,
            authenticator,
            limits,
            self._stream_quota,
            on_exchange_end=self._finish_websocket_exchange,
            recorder=recorder,
        )
        self._disconnect_monitor = DisconnectMonitor(limits.receive)
        self._body_budget = BodyBudget(limits.bodies)
        if recorder is not None:
            recorder.journal.publish_counts = metrics.set_journal_counts
        self._codecs = tuple(PROTOCOLS.values())
        self._static_addresses = {
            endpoint.path: (codec, EndpointMatch(stream=endpoint.stream, counts_tokens=endpoint.counts_tokens))
            for codec in reversed(self._codecs)
            for endpoint in codec.surface.endpoints
            if "{model}" not in endpoint.path
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._handle_http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._handle_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await self._websocket.serve(scope, receive, send)

    def _finish_websocket_exchange(self, record: RequestRecord, principal: Principal, losses: list[Loss]) -> None:
        """One exchange over a websocket."""
        self._loss_store.add(record.id, principal, encode_losses(losses) if losses else b"")
        record.duration = time.monotonic() - record.started_at
        self._metrics.count_request(record)
        self._log(record)

    async def _handle_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                self.close()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    def close(self) -> None:
        """Let go of the connections that are kept for the next request, and write what waits to be recorded."""
        self._dispatcher.close()
        if self._recorder is not None:
            self._recorder.journal.close()

    async def _handle_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        id = f"ex_{random.getrandbits(64):016x}"  # a name, no secret: only its own caller is told of an exchange
        line = RequestRecord(id=id, method=scope["method"], path=scope["path"], started_at=time.monotonic())
        watch = self._disconnect_monitor.watch(receive, line)
        incoming = HttpRequest(scope, receive, send, dict(scope["headers"]), line, watch, self._body_budget)
        codec, address = self._match_protocol(incoming)
        try:
            await self._serve_request(incoming, codec, address)
        except ClientDisconnected:
            line.status = 499
        except asyncio.CancelledError:
            if watch.disconnected:
                line.status = 499
            elif watch.timed_out:
                await self._send_error(incoming, codec, self._body_timeout())
            else:
                raise
        except Exception as error:  # noqa: BLE001 - the one place that turns whatever went wrong into an answer
            if not isinstance(error, ToolwireError | RequestRejected):
                line.exception = error
            if line.head_sent:
                return
            more = [(b"allow", error.allowed.encode())] if isinstance(error, MethodNotAllowed) else []
            await self._send_error(incoming, codec, to_api_error(error), more)
        finally:
            incoming.release_body()
            watch.close()
            line.duration = time.monotonic() - line.started_at
            self._metrics.count_request(line)
            self._log(line)
            if self._recorder is not None and incoming.capture is not None:
                self._recorder.record_exchange(line, incoming.capture)

    def _match_protocol(self, http_request: HttpRequest) -> tuple[Codec, EndpointMatch | None]:
        """Whose address it is; for one that is nobody's, in whose words it is answered."""
        path = http_request.path
        if (known := self._static_addresses.get(path)) is not None:
            return known
        for codec in self._codecs:
            if (address := codec.surface.match(path)) is not None:
                return codec, address
        return PROTOCOLS[
            self._resources.protocol_for(path) or guess_protocol(http_request.scope, http_request.headers)
        ], None

    async def _serve_request(self, http_request: HttpRequest, codec: Codec, address: EndpointMatch | None) -> None:
        if http_request.path == "/healthz":
            await http_request.respond(200, self._encode_health(), [_JSON_HEADER])
            return
        if (why := self._authenticator.rejection_reason(http_request.headers)) is not None:
            raise RequestRejected(ApiError(kind="permission", message=why, status=403))
        caller = self._authenticator.authenticate(http_request.headers, http_request.scope["query_string"])
        if caller is None:
            raise RequestRejected(ApiError(kind="authentication", message="no valid key was given", status=401))
        http_request.principal = caller
        path, posted = http_request.path, http_request.scope["method"] == "POST"
        if not posted and (address is not None or path in _POST_PATHS):
            raise MethodNotAllowed(path, "POST")
        if address is not None:
            await (self._serve_token_count if address.counts_tokens else self._serve_exchange)(
                http_request, codec, address
            )
        elif path == "/toolwire/translate":
            await self._serve_dry_run(http_request)
        elif self._resources.protocol_for(path) is not None:
            await self._serve_stored_resource(http_request, codec)
        else:
            await self._serve_resource(http_request, codec)

    def _encode_health(self) -> bytes:
        """Whether all of it works. What serves without state is up: the status of the answer stays 200."""
        reasons: dict[str, str] = {}
        if (trouble := self._resources.unavailable_reason) is not None:
            reasons["state"] = trouble
        if self._recorder is not None and self._recorder.journal.last_error:
            reasons["journal"] = "records can't be written: the log says why"
        if not reasons:
            return b'{"status":"ok"}'
        return msgspec.json.encode({"status": "degraded", "reasons": reasons})

    # ---- the exchange

    async def _serve_exchange(self, http_request: HttpRequest, codec: Codec, address: EndpointMatch) -> None:
        asked = await self._read_request(http_request, codec, address)
        line = http_request.record
        note = None if self._recorder is None else self._recorder.start_capture(asked, http_request.headers)
        http_request.capture = note
        relay = StreamSender(http_request, codec, self._stream_quota, self._limits.heartbeat)
        try:
            answer = await self._dispatcher.dispatch(
                asked, line.set_backend, relay.start, None if note is None else note.on_request_sent
            )
            if note is not None:
                note.on_response(answer)
            if isinstance(answer, BufferedResponse):
                await self._send_response(http_request, answer)
            else:
                await relay.send_all(answer)
        except Exception as error:
            if not line.head_sent or line.finished:
                raise
            line.exception = None if isinstance(error, ToolwireError | RequestRejected) else error
            await relay.send_error(to_api_error(error))
        finally:
            relay.close()
            if relay.losses:
                self._store_losses(http_request, relay.losses)
                if note is not None:
                    note.losses = relay.losses

    async def _send_response(self, http_request: HttpRequest, response: BufferedResponse) -> None:
        http_request.watch.close()
        http_request.record.usage = None if response.summary is None else response.summary.usage
        headers = [_JSON_HEADER]
        if response.losses:
            told = self._store_losses(http_request, response.losses)
            headers.append((b"toolwire-losses", encode_losses_header(response.losses, told)))
        await http_request.respond(200, response.body, headers)

    def _store_losses(self, http_request: HttpRequest, losses: list[Loss]) -> bytes:
        told = encode_losses(losses)
        http_request.record.losses = len(losses)
        self._loss_store.add(http_request.record.id, http_request.principal, told)
        return told

    async def _serve_token_count(self, http_request: HttpRequest, codec: Codec, address: EndpointMatch) -> None:
        """How many tokens a request would take; a header says whether that is an estimate."""
        asked = await self._read_request(http_request, codec, address)
        if codec.token_count is None:
            raise AssertionError(f"{codec.name} has an address for counting, and no way to count")
        asked = replace(asked, body=codec.token_count.unwrap_request(asked.body))
        counted = await self._token_counter.count_tokens(asked, http_request.record)
        how = (b"toolwire-tokens", b"estimated" if counted.is_estimate else b"counted")
        await http_request.respond(
            200, msgspec.json.encode(codec.token_count.encode_count(counted.tokens)), [_JSON_HEADER, how]
        )

    async def _read_request(self, http_request: HttpRequest, codec: Codec, address: EndpointMatch) -> ClientRequest:
        body = await http_request.read_body(self._limits.body)
        line, headers = http_request.record, http_request.headers
        line.client = codec.name
        self._loss_store.add(line.id, http_request.principal)
        return ClientRequest(
            codec=codec,
            body=body,
            route=request_route(codec, address, headers),
            tenant=http_request.principal.tenant,
            strict=is_strict(headers),
            created=int(time.time()),
        )

    def _body_timeout(self) -> ApiError:
        why = f"the body did not arrive within {self._limits.receive:g} seconds"
        return ApiError(kind="timeout", message=why, status=408)

    async def _serve_dry_run(self, http_request: HttpRequest) -> None:
        """What would be sent upstream, without sending it."""
        body = await http_request.read_body(self._limits.body)
        wanted, given = await run_in_thread_if(_read_dry_run, body, heavy=is_heavy_body(body))
        if wanted.protocol not in PROTOCOLS:
            why = f"protocol: {wanted.protocol!r} is none of {', '.join(PROTOCOLS)}"
            raise RequestRejected(ApiError(kind="invalid_request", message=why, status=400))
        asked = ClientRequest(
            codec=PROTOCOLS[wanted.protocol],
            body=given,
            route=Route(model=wanted.model, stream=wanted.stream),
            tenant=http_request.principal.tenant,
        )
        sent = await self._dispatcher.translate(asked)
        provider = sent.backend.provider
        told = {
            "provider": provider.name,
            "protocol": provider.protocol,
            "address": replace(provider, query={}).request_target(sent.route.path or "/"),  # `query` may hold keys
            "body": msgspec.Raw(sent.body),
            "losses": sent.losses,
        }
        encoded = await run_in_thread_if(msgspec.json.encode, told, heavy=is_heavy_body(body))
        await http_request.respond(200, encoded, [_JSON_HEADER])

    # ---- what can be looked up

    async def _serve_stored_resource(self, http_request: HttpRequest, codec: Codec) -> None:
        """An answer or a conversation that is kept, by its id."""
        scope = http_request.scope
        found = await self._resources.serve(
            http_request.principal.tenant,
            scope["method"],
            http_request.path,
            scope["query_string"],
            lambda: http_request.read_body(self._limits.body),
        )
        if found.stream is None:
            await http_request.respond(200, found.body, [_JSON_HEADER])
            return
        http_request.watch.mark_body_received()
        relay = StreamSender(http_request, codec, self._stream_quota, self._limits.heartbeat)
        try:
            relay.start()
            await relay.send_all(found.stream)
        finally:
            relay.close()

    async def _serve_resource(self, http_request: HttpRequest, codec: Codec) -> None:
        path = http_request.path
        asked = (
            await http_request.read_body(min(self._limits.body, _LIMIT_MODEL_LOOKUP_BODY))
            if path in _POST_PATHS
            else b""
        )
        got = path in _POST_PATHS or http_request.scope["method"] in ("GET", "HEAD")
        if not got and path in _GET_PATHS:
            raise MethodNotAllowed(path, "GET")
        found = self._resource_at(path, codec, http_request.principal, asked) if got else None
        if found is None:
            raise RequestRejected(ApiError(kind="not_found", message=f"there is nothing at {path}", status=404))
        body, kind = found
        await http_request.respond(200, body, [kind])

    def _resource_at(
        self, path: str, codec: Codec, principal: Principal, request_body: bytes
    ) -> tuple[bytes, Header] | None:
        """What is at a path, and of which type it is."""
        if path == "/":  # Ollama's command line looks here first
            return b"toolwire is running\n", (b"content-type", b"text/plain")
        if path == "/metrics":
            journal = None if self._recorder is None else self._recorder.journal
            return self._metrics.render(journal), (b"content-type", b"text/plain; version=0.0.4")
        if path.startswith("/toolwire/exchanges/") and path.endswith("/losses"):
            id = path.removeprefix("/toolwire/exchanges/").removesuffix("/losses")
            losses = self._loss_store.find_losses(id, principal)
            return None if losses is None else (losses, _JSON_HEADER)
        body = self._catalog.look_up(path, codec.name, request_body)
        return None if body is None else (msgspec.json.encode(body), _JSON_HEADER)

    # ---- errors

    async def _send_error(
        self, http_request: HttpRequest, codec: Codec, error: ApiError, extra_headers: Sequence[Header] = ()
    ) -> None:
        http_request.record.error = error.message
        encoding = codec.encode_error(error)
        headers = [_JSON_HEADER, *extra_headers]
        if (seconds := encode_retry_after(error)) is not None:
            headers.append((b"retry-after", seconds))
        status = error.status or codec.surface.status_of(error.kind)
        body = encoding.to_bytes()
        if http_request.capture is not None:
            http_request.capture.append_body(body)
        await http_request.respond(status, body, headers)


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
        raise RequestRejected(ApiError(kind="invalid_request", message=str(error), status=400)) from None
    return wanted, bytes(wanted.body)
