"""The ASGI application: authenticates requests, dispatches them by path, and answers in the client's protocol."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, ToolwireError
from toolwire.codec.interface import Codec
from toolwire.codec.suggestions import suggest
from toolwire.codec.surface import EndpointMatch
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.console.console import PREFIX, Console
from toolwire.gateway.errors import RequestRejected, encode_retry_after, to_api_error
from toolwire.gateway.exchange.client_credentials import read_credentials
from toolwire.gateway.exchange.dispatcher import Dispatcher
from toolwire.gateway.exchange.exchange import BufferedResponse, ClientRequest
from toolwire.gateway.exchange.native_endpoints import (
    NATIVE_ENDPOINTS,
    NativeEndpoint,
    dispatch_native,
    read_native_request,
)
from toolwire.gateway.exchange.token_count import TokenCounter
from toolwire.gateway.keys.accounting import Accounting
from toolwire.gateway.limits import BodyBudget, Quota
from toolwire.gateway.observability.access_log import RequestRecord, encode_losses_header
from toolwire.gateway.observability.metrics import Metrics, Scoreboard
from toolwire.gateway.observability.recorder import Observability, Recorder, RequestObserver
from toolwire.gateway.providers.models import MODEL_LIST_PATHS, PROVIDERS_PATH, ModelList
from toolwire.gateway.server.auth import Authenticator, Principal, key_rejection
from toolwire.gateway.server.dry_run import serve_dry_run
from toolwire.gateway.server.request import (
    DisconnectMonitor,
    HttpRequest,
    guess_protocol,
    request_route,
    requested_strictness,
)
from toolwire.gateway.server.stream_sender import StreamedResponse, StreamSender
from toolwire.gateway.state.conversations import ConversationState
from toolwire.gateway.state.loss_reports import SharedLossReports
from toolwire.gateway.state.resources import Resources
from toolwire.gateway.websocket.connection import ResponsesWebSocket
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.asgi import JSON_HEADER, ClientDisconnected, Header, Receive, Scope, Send, run_lifespan
from toolwire.upstream.transport import Transport

_LIMIT_MODEL_LOOKUP_BODY = 64 * 1024  # bytes of a body that only names a model
_KEY_STATUSES = (401, 403)  # with `x-should-retry: false`, or Claude Code would try for minutes
_PROBE_PATHS = ("/healthz", "/livez", "/readyz")
_STATIC_ADDRESSES = {
    endpoint.path: (codec, match)
    for codec in reversed(tuple(PROTOCOLS.values()))
    for endpoint in codec.surface.endpoints
    if "{model}" not in endpoint.path and (match := codec.surface.match(endpoint.path)) is not None
}
_POST_PATHS = ("/toolwire/translate", "/api/show")
_GET_PATHS = ("/", "/metrics", "/api/version", "/api/ps", *MODEL_LIST_PATHS)


_CONSOLE_PATHS = ("/", PREFIX)

Dispatch = Callable[[], Awaitable[BufferedResponse | StreamedResponse]]
ENDPOINTS = (
    *[(endpoint.path, f"POST {codec.name}") for codec in PROTOCOLS.values() for endpoint in codec.surface.endpoints],
    *[(path, f"POST {endpoint.feature.partition(' (')[0]}") for path, endpoint in NATIVE_ENDPOINTS.items()],
    *[(path, "GET  models") for path in MODEL_LIST_PATHS],
    ("/api/show", "POST one model"),
    ("/api/version", "GET  version"),
    ("/api/ps", "GET  models in memory"),
    ("/toolwire/translate", "POST dry run of a translation"),
    (f"{PROVIDERS_PATH}{{model}}", "GET  providers of a model"),
    ("/toolwire/exchanges/{id}/losses", "GET  losses of an exchange"),
    ("/metrics", "GET  metrics"),
    ("/healthz", "GET  health"),
    ("/livez", "GET  liveness"),
    ("/readyz", "GET  readiness"),
    ("/", "GET  the console, for browsers"),
)
"""The paths that the gateway serves, each with its method and purpose."""

_WELCOME = "".join(
    ["toolwire is running\n\n", *[f"{about[:4]} {path:48} {about[5:]}\n" for path, about in ENDPOINTS]]
).encode()


_LONGEST_SEGMENT = 100
_LEAST_SIMILARITY = 0.85


def _suggest_path(path: str) -> str:
    """Return a suggestion for a path that is not served: a base URL is wrong, or the last segment is misspelled."""
    end = path.rstrip("/").rpartition("/")[2].removesuffix("s")
    ends = {known: known.rpartition("/")[2].removesuffix("s") for known, _ in ENDPOINTS}
    nearest = get_close_matches(end[:_LONGEST_SEGMENT], ends.values(), n=1, cutoff=_LEAST_SIMILARITY)
    return (
        f" ({suggestion})" if (suggestion := suggest(path, [known for known in ends if ends[known] in nearest])) else ""
    )


class MethodNotAllowed(RequestRejected):
    """The path exists, but only for another method."""

    def __init__(self, allowed: str) -> None:
        super().__init__(ApiError(kind="invalid_request", message=f"method not allowed: use {allowed}", status=405))
        self.allowed = allowed


class App:
    """The gateway as an ASGI application."""

    is_stopping = False
    """Whether requests under way are the last ones."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        authenticator: Authenticator,
        catalog: ModelList,
        limits: LimitsSection,
        *,
        log: Callable[[RequestRecord], None],
        resources: Resources,
        token_counter: TokenCounter,
        recorder: Recorder | None = None,
        console: Console | None = None,
        accounting: Accounting | None = None,
        scoreboard: Scoreboard | None = None,
        worker: int = 0,
        is_simulated: bool = False,
    ) -> None:
        self._dispatcher = dispatcher
        self._is_simulated = is_simulated
        self._authenticator = authenticator
        self._catalog = catalog
        self._limits = limits
        self._token_counter = token_counter
        self._recorder = recorder
        self._resources = resources
        scoreboard = scoreboard or Scoreboard()
        self._metrics = metrics = Metrics(scoreboard, worker)
        self._loss_store = scoreboard.loss_store(worker)
        self._shared_losses = SharedLossReports(dispatcher.services.conversation_state.store)
        self.console = console
        exchanges = None if console is None else console.buffer
        self._accounting = accounting
        self._observability = Observability(
            log, metrics, self._loss_store, recorder, self._shared_losses, exchanges, accounting
        )
        if console is not None:
            console.attach(self._observability)
        uses = scoreboard.uses
        self._stream_quota = Quota(
            "streams",
            limits.streams,
            authenticator.key_quota(limits.streams),
            uses.counts("streams", worker),
            metrics.set_streams,
        )
        sockets = Quota(
            "websockets", limits.sockets, authenticator.key_quota(limits.sockets), uses.counts("websockets", worker)
        )
        self._websocket = ResponsesWebSocket(
            dispatcher,
            authenticator,
            limits,
            stream_quota=self._stream_quota,
            connection_quota=sockets,
            observability=self._observability,
        )
        self._disconnect_monitor = DisconnectMonitor(limits.receive)
        self._body_budget = BodyBudget(limits.bodies, uses.counts("bodies", worker))
        self._publish_metrics()

    def _publish_metrics(self) -> None:
        """Let accounting, breakers and journal report to the metrics."""
        metrics = self._metrics
        if self._accounting is not None:
            self._accounting.on_cost = metrics.count_cost
        self._dispatcher.services.breakers.on_change = lambda backend, is_open: metrics.set_breaker(
            backend.provider.name, backend.model or "", is_open=is_open
        )
        if self._recorder is not None:
            self._recorder.journal.publish_counts = metrics.set_journal_counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if self.console is not None and scope["path"][:8] in _CONSOLE_PATHS and self.console.serves(scope):
                await self.console.serve(scope, receive, send)
            else:
                await self._handle_http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await run_lifespan(receive, send, self.close)
        elif scope["type"] == "websocket":
            await self._websocket.serve(scope, receive, send)

    def close(self) -> None:
        """Close pooled connections and flush the journal."""
        self._shared_losses.flush()
        self._dispatcher.close()
        if self._recorder is not None:
            self._recorder.journal.close()
        if self._accounting is not None:
            self._accounting.close()

    def retire(self) -> None:
        """Close what the app does not share with the one that follows it after a reload."""
        self._dispatcher.services.emulator.close()
        if self._recorder is not None:
            self._recorder.journal.close()

    @property
    def transport(self) -> Transport:
        """The connections to providers."""
        return self._dispatcher.transport

    @property
    def conversation_state(self) -> ConversationState:
        """The stored responses and conversations."""
        return self._dispatcher.services.conversation_state

    def end_feeds(self) -> None:
        """End the console's feeds, which would delay a stop of the server."""
        if self.console is not None:
            self.console.close()

    async def _handle_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request, convert any exception to an error response, and log the request."""
        id = f"ex_{random.getrandbits(64):016x}"  # not a secret: an exchange is shown only to the key that made it
        record = RequestRecord(id=id, method=scope["method"], path=scope["path"], started_at=time.monotonic())
        observer = RequestObserver(self._observability, record)
        watch = self._disconnect_monitor.watch(receive, record.started_at)
        http_request = HttpRequest(scope, receive, send, dict(scope["headers"]), observer, watch, self._body_budget)
        codec, endpoint = self._match_protocol(http_request)
        try:
            await self._serve_request(http_request, codec, endpoint)
        except ClientDisconnected:
            record.status = 499
        except asyncio.CancelledError:
            if watch.disconnected:
                record.status = 499
            elif watch.timed_out:
                await self._send_error(http_request, codec, self._body_timeout())
            else:
                raise
        except Exception as error:  # noqa: BLE001 - the one place that converts exceptions to responses
            if not isinstance(error, ToolwireError | RequestRejected):
                record.exception = error
            if http_request.head_sent:
                return
            headers = [(b"allow", error.allowed.encode())] if isinstance(error, MethodNotAllowed) else []
            await self._send_error(http_request, codec, to_api_error(error), headers)
        finally:
            if http_request.reserved_bytes:
                http_request.release_body()
            watch.close()
            observer.finish()

    def _match_protocol(self, http_request: HttpRequest) -> tuple[Codec, EndpointMatch | None]:
        """Return the codec for a path, and its endpoint; for unknown or shared paths, a guess and None."""
        path = http_request.path
        if (static_match := _STATIC_ADDRESSES.get(path)) is not None:
            return static_match
        for codec in PROTOCOLS.values():
            if (endpoint := codec.surface.match(path)) is not None:
                return codec, endpoint
        return PROTOCOLS[
            self._resources.protocol_for(path) or guess_protocol(http_request.scope, http_request.headers)
        ], None

    async def _serve_request(self, http_request: HttpRequest, codec: Codec, endpoint: EndpointMatch | None) -> None:
        """Check access, then serve the request by its path."""
        http_request.read_trace_headers()
        if http_request.path in _PROBE_PATHS:
            status, body = self._probe(http_request.path)
            await http_request.respond(status, body, [JSON_HEADER])
            return
        if (reason := self._authenticator.rejection_reason(http_request.headers)) is not None:
            raise RequestRejected(ApiError(kind="permission", message=reason, status=403))
        query = http_request.scope["query_string"]
        principal = self._authenticator.authenticate(http_request.headers, query)
        if principal is None:
            raise key_rejection(codec, http_request.headers, query)
        http_request.observer.principal = principal
        path, is_post = http_request.path, http_request.scope["method"] == "POST"
        native_endpoint = NATIVE_ENDPOINTS.get(path)
        if not is_post and (endpoint is not None or native_endpoint is not None or path in _POST_PATHS):
            raise MethodNotAllowed("POST")
        if endpoint is not None:
            serve = self._serve_token_count if endpoint.counts_tokens else self._serve_exchange
            await serve(http_request, codec, endpoint)
        elif native_endpoint is not None:
            await self._serve_native(http_request, native_endpoint)
        elif path == "/toolwire/translate":
            await serve_dry_run(http_request, self._dispatcher, self._limits.body)
        elif self._resources.protocol_for(path) is not None:
            await self._serve_stored_resource(http_request, codec)
        else:
            await self._serve_resource(http_request, codec)

    def _probe(self, path: str) -> tuple[int, bytes]:
        """Return status and body of a probe: whether the process lives, takes requests, or has problems."""
        if path == "/livez":
            return 200, b'{"status":"alive"}'
        if path == "/readyz":
            return (503, b'{"status":"stopping"}') if self.is_stopping else (200, b'{"status":"ready"}')
        return 200, self._encode_health()

    def start_lag_probe(self) -> "asyncio.Task[None]":
        """Start to measure how late the event loop is."""
        return asyncio.create_task(self._metrics.measure_lag())

    def _encode_health(self) -> bytes:
        """Return the body of `/healthz`: degraded if state or journal fail, still with status 200."""
        reasons: dict[str, str] = {}
        if (reason := self._resources.unavailable_reason) is not None:
            reasons["state"] = reason
        if self._recorder is not None and self._recorder.journal.last_error:
            reasons["journal"] = "records can't be written: see the log"
        health: dict[str, Any] = {"status": "degraded", "reasons": reasons} if reasons else {"status": "ok"}
        if self._is_simulated:
            health["simulated"] = True
        return msgspec.json.encode(health)

    # ---- exchanges

    async def _serve_exchange(self, http_request: HttpRequest, codec: Codec, endpoint: EndpointMatch) -> None:
        """Dispatch a model request and send its response, buffered or streamed."""
        client_request = await self._read_request(http_request, codec, endpoint)
        http_request.observer.start_capture(client_request, http_request.headers)
        exchange = await self._dispatcher.open_exchange(client_request, http_request.observer)
        if endpoint.compacts:
            await self._send_response(http_request, await self._dispatcher.compact(exchange))
            return
        dispatch = partial(self._dispatcher.dispatch, exchange)
        await self._serve_response(http_request, codec, dispatch, is_streaming=exchange.is_streaming)

    async def _serve_native(self, http_request: HttpRequest, endpoint: NativeEndpoint) -> None:
        """Pass a request through to a provider that has the same endpoint."""
        services, observer = self._dispatcher.services, http_request.observer
        body = await http_request.read_body(self._limits.body)
        observer.record.client = endpoint.protocol
        request = await read_native_request(services, endpoint, body, observer.principal.tenant, observer.principal.key)
        request = replace(request, credentials=self._read_credentials(http_request))
        dispatch = partial(dispatch_native, services, request, observer)
        codec = PROTOCOLS[endpoint.protocol]
        await self._serve_response(http_request, codec, dispatch, is_streaming=request.is_streaming)

    async def _serve_response(
        self, http_request: HttpRequest, codec: Codec, dispatch: Dispatch, *, is_streaming: bool
    ) -> None:
        """Dispatch a request and send its response, buffered or streamed."""
        if is_streaming:
            await self._serve_stream(http_request, codec, dispatch)
            return
        response = await dispatch()
        if isinstance(response, BufferedResponse):
            await self._send_response(http_request, response)
            return
        raise AssertionError("a request for a complete response got a stream")

    async def _serve_stream(self, http_request: HttpRequest, codec: Codec, dispatch: Dispatch) -> None:
        """Dispatch a request for a stream and send the stream, or a complete response if the upstream sent one."""
        observer = http_request.observer
        sender = StreamSender(http_request, codec, self._stream_quota, self._limits.heartbeat)
        try:
            observer.store_losses([])  # before the client learns the id
            sender.start()
            response = await dispatch()
            if isinstance(response, BufferedResponse):
                await self._send_response(http_request, response)
            else:
                await sender.send_all(response)
        except Exception as error:
            if not http_request.head_sent or http_request.watch.response_complete:
                raise
            observer.record.exception = None if isinstance(error, ToolwireError | RequestRejected) else error
            await sender.send_error(to_api_error(error))
        finally:
            sender.close()
            if losses := sender.losses:
                observer.store_losses(losses)

    async def _send_response(self, http_request: HttpRequest, response: BufferedResponse) -> None:
        """Send a buffered response, with its losses in a header."""
        observer, losses = http_request.observer, response.losses
        http_request.watch.close()
        observer.record.usage = None if response.summary is None else response.summary.usage
        headers = [JSON_HEADER]
        if (report := observer.store_losses(losses)) and (header := encode_losses_header(losses, report)):
            headers.append((b"toolwire-losses", header))
        await http_request.respond(200, response.body, headers)

    async def _serve_token_count(self, http_request: HttpRequest, codec: Codec, endpoint: EndpointMatch) -> None:
        """Count a request's tokens; the `toolwire-tokens` header says whether the count is an estimate."""
        client_request = await self._read_request(http_request, codec, endpoint)
        if codec.token_count is None:
            raise AssertionError(f"{codec.name} has a token count endpoint but no token count codec")
        client_request = replace(client_request, body=codec.token_count.unwrap_request(client_request.body))
        count = await self._token_counter.count_tokens(client_request, http_request.observer)
        http_request.observer.store_losses([])
        source_header = (b"toolwire-tokens", b"estimated" if count.is_estimate else b"counted")
        await http_request.respond(
            200, msgspec.json.encode(codec.token_count.encode_count(count.tokens)), [JSON_HEADER, source_header]
        )

    async def _read_request(self, http_request: HttpRequest, codec: Codec, endpoint: EndpointMatch) -> ClientRequest:
        """Read a model request: its body, route and strictness."""
        body = await http_request.read_body(self._limits.body)
        observer, headers = http_request.observer, http_request.headers
        observer.record.client = codec.name
        return ClientRequest(
            codec=codec,
            body=body,
            route=request_route(codec, endpoint, headers),
            tenant=observer.principal.tenant,
            key=observer.principal.key,
            strict=requested_strictness(headers),
            created=int(time.time()),
            compacts=endpoint.compacts,
            credentials=self._read_credentials(http_request),
        )

    def _read_credentials(self, http_request: HttpRequest) -> dict[str, str]:
        """Return the client's own keys for providers."""
        names = self._dispatcher.services.router.credential_headers
        return read_credentials(http_request.headers, names, self._authenticator.is_gateway_key) if names else {}

    def _body_timeout(self) -> ApiError:
        """Build the error for a body that took too long (408)."""
        message = f"the request body did not arrive within {self._limits.receive:g} seconds (limits.receive)"
        return ApiError(kind="timeout", message=message, status=408)

    # ---- resources

    async def _serve_stored_resource(self, http_request: HttpRequest, codec: Codec) -> None:
        """Serve a stored response or conversation by its id."""
        scope = http_request.scope
        resource = await self._resources.serve(
            http_request.observer.principal.tenant,
            scope["method"],
            http_request.path,
            scope["query_string"],
            lambda: http_request.read_body(self._limits.body),
        )
        if resource.stream is None:
            await http_request.respond(200, resource.body, [JSON_HEADER])
            return
        http_request.watch.mark_body_received()
        sender = StreamSender(http_request, codec, self._stream_quota, self._limits.heartbeat)
        try:
            sender.start()
            await sender.send_all(resource.stream)
        finally:
            sender.close()

    async def _serve_resource(self, http_request: HttpRequest, codec: Codec) -> None:
        """Serve a status page, metrics, a loss report or the model catalog."""
        path = http_request.path
        request_body = (
            await http_request.read_body(min(self._limits.body, _LIMIT_MODEL_LOOKUP_BODY))
            if path in _POST_PATHS
            else b""
        )
        is_readable = path in _POST_PATHS or http_request.scope["method"] in ("GET", "HEAD")
        if not is_readable and path in _GET_PATHS:
            raise MethodNotAllowed("GET")
        resource = (
            await self._resource_at(path, codec, http_request.observer.principal, request_body) if is_readable else None
        )
        if resource is None:
            message = f"not found: {path}{_suggest_path(path)}; GET / lists the supported endpoints"
            raise RequestRejected(ApiError(kind="not_found", message=message, status=404))
        body, content_type = resource
        await http_request.respond(200, body, [content_type])

    async def _resource_at(
        self, path: str, codec: Codec, principal: Principal, request_body: bytes
    ) -> tuple[bytes, Header] | None:
        """Return body and content type of the resource at this path; None if there is none."""
        if path == "/":  # Ollama's command line checks this path first
            return _WELCOME, (b"content-type", b"text/plain")
        if path == "/metrics":
            _require_admin(principal)
            journal = None if self._recorder is None else self._recorder.journal
            return self._metrics.render(journal), (b"content-type", b"text/plain; version=0.0.4")
        if path.startswith("/toolwire/exchanges/") and path.endswith("/losses"):
            id = path.removeprefix("/toolwire/exchanges/").removesuffix("/losses")
            losses = self._loss_store.find_losses(id, principal) or await self._shared_losses.find(principal.tenant, id)
            return None if losses is None else (losses, JSON_HEADER)
        body = await self._catalog.look_up(path, codec.name, request_body, principal.key)
        return None if body is None else (msgspec.json.encode(body), JSON_HEADER)

    # ---- errors

    async def _send_error(
        self, http_request: HttpRequest, codec: Codec, error: ApiError, extra_headers: Sequence[Header] = ()
    ) -> None:
        """Send an error in the client's protocol."""
        observer = http_request.observer
        observer.record.error = error.message
        if observer.record.client:  # the request was read
            observer.store_request_losses()
        encoding = codec.encode_error(error)
        headers = [JSON_HEADER, *extra_headers]
        if observer.losses and (header := encode_losses_header(observer.losses, observer.loss_report)):
            headers.append((b"toolwire-losses", header))
        if (seconds := encode_retry_after(error)) is not None:
            headers.append((b"retry-after", seconds))
        status = error.status or codec.surface.status_of(error.kind)
        if status in _KEY_STATUSES:
            headers.append((b"x-should-retry", b"false"))
        body = encoding.to_bytes()
        if observer.capture is not None:
            observer.capture.append_body(body)
        await http_request.respond(status, body, headers)


def _require_admin(principal: Principal) -> None:
    """Raise `RequestRejected` for a key of `[keys]` that may only see its own data."""
    if principal.key is not None and not principal.is_admin:
        message = f"the key {principal.key.name!r} is no admin key (keys.{principal.key.name}.admin)"
        raise RequestRejected(ApiError(kind="permission", message=message, status=403))
