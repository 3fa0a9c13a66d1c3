"""The console's endpoints: the page at `/`, its files, and the data that it shows.

Requests from other sites are rejected. Reading needs a viewer. Requests that act also need the viewer's CSRF
token.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from toolwire import __version__
from toolwire.codec.suggestions import unknown_name
from toolwire.codec.validation import Finding
from toolwire.gateway.config import Config, LoadedConfig
from toolwire.gateway.console.assets import PAGE, SECURITY_HEADERS, find_asset
from toolwire.gateway.console.exchange_buffer import BufferedExchange, ExchangeBuffer
from toolwire.gateway.console.exchange_details import build_details, build_record
from toolwire.gateway.console.exchange_feed import ExchangeFeed
from toolwire.gateway.console.exchange_rows import RowBuilder
from toolwire.gateway.console.peers import Peers
from toolwire.gateway.console.playground import (
    MAX_BODY,
    Playground,
    RunRequest,
    TranslationRequest,
    find_refusals,
    list_hosts,
    run_on_simulator,
    translate_to_all,
)
from toolwire.gateway.console.run_reports import RunReports
from toolwire.gateway.console.session import Sessions, Viewer, is_https, is_same_site
from toolwire.gateway.console.status_report import PeerStatus, Uptime, report_limits, report_providers, sum_limits
from toolwire.gateway.doctor import diagnose
from toolwire.gateway.exchange.dispatcher import Dispatcher
from toolwire.gateway.observability.access_log import RequestRecord
from toolwire.gateway.observability.recorder import Observability
from toolwire.gateway.server.auth import Authenticator
from toolwire.journal.redaction import Redactor
from toolwire.journal.store import build_bundle
from toolwire.protocols import PROTOCOLS
from toolwire.translation.body import get_host_profile
from toolwire.upstream.asgi import (
    JSON_HEADER,
    AsgiRequest,
    BodyTooLarge,
    ClientDisconnected,
    Header,
    Receive,
    Scope,
    Send,
)
from toolwire.upstream.provider import Origin

PREFIX = "/console"
_API = "/console/api/"
_STATIC = "/console/static/"
_NO_STORE: Header = (b"cache-control", b"no-store")
_MAX_SMALL_BODY = 16 * 1024
_DIAGNOSIS_TIMEOUT = 10.0
_MAX_COMPUTATIONS = 2  # translations in threads, which take time from exchanges
_T = TypeVar("_T")
_Endpoint = Callable[[AsgiRequest, Viewer, str], Awaitable[None]]


class ConsoleError(Exception):
    """A request that the console rejects, with its status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class SignIn(Struct, forbid_unknown_fields=True):
    """The body of a sign-in."""

    key: str


class CaptureSwitch(Struct, forbid_unknown_fields=True):
    """The body that switches capturing of bodies on for some seconds, or off."""

    seconds: float


class Console:
    """Serves the page and its data."""

    def __init__(
        self,
        config: Config,
        dispatcher: Dispatcher,
        authenticator: Authenticator,
        redactor: Redactor,
        *,
        secret: bytes,
        environment: Mapping[str, str],
        worker: int = 0,
        peers: Sequence[Origin] = (),
        predecessor: "Console | None" = None,
    ) -> None:
        section, services = config.console, dispatcher.services
        self._is_journaled = config.journal.enabled and config.journal.bodies
        captures_always = section.bodies or self._is_journaled
        if predecessor is None:
            self.buffer = ExchangeBuffer(
                section.exchanges, section.size, body_limit=config.limits.answer, captures_always=captures_always
            )
            self.uptime = Uptime()
        else:
            self.buffer, self.uptime = predecessor.buffer, predecessor.uptime
            self.buffer.reconfigure(
                section.exchanges, section.size, body_limit=config.limits.answer, captures_always=captures_always
            )
        self._router = services.router
        self._redactor = redactor
        self._authenticator = authenticator
        self._sessions = Sessions(authenticator, secret)
        self._rows = RowBuilder(services.router, services.prices, authenticator.key_names(), redactor)
        self._peers = Peers(peers)
        self._feed = ExchangeFeed(self.buffer, self._rows, redactor, peers=self._peers, worker=worker)
        self._config = config
        self._environment = environment
        self._runs = RunReports(config, environment, redactor)
        self._dispatcher = dispatcher
        self._endpoints: dict[tuple[str, str], _Endpoint] = {
            ("GET", "feed"): self._send_feed,
            ("GET", "exchanges"): self._send_exchange,
            ("GET", "export"): self._send_bundle,
            ("GET", "hosts"): self._send_hosts,
            ("GET", "runs"): self._send_runs,
            ("GET", "pictures"): self._send_picture,
            ("GET", "status"): self._send_status,
            ("POST", "capture"): self._switch_capture,
            ("POST", "translate"): self._translate,
            ("POST", "run"): self._run,
            ("POST", "diagnose"): self._diagnose,
        }
        """Handlers by method and first segment of the path. Those that change or compute data need the token."""
        self._computations = asyncio.Semaphore(_MAX_COMPUTATIONS)
        self._observability: Observability | None = None
        self._playground: Playground | None = None

    def attach(self, observability: Observability) -> None:
        """Set the log, metrics and journal that record requests from the page, like all requests."""
        self._observability = observability
        self._playground = Playground(self._dispatcher, observability, self._redactor)

    def close(self) -> None:
        """End open feeds, since the server stops."""
        self._feed.is_closed = True
        self._peers.close()

    @staticmethod
    def serves(scope: Scope) -> bool:
        """Return whether a request is for the console: at `/`, only if it comes from a browser."""
        path: str = scope["path"]
        if path != "/":
            return path == PREFIX or path.startswith(PREFIX + "/")
        accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
        return scope["method"] in ("GET", "HEAD") and b"text/html" in accept

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request to the console."""
        request = AsgiRequest(scope, receive, send, dict(scope["headers"]))
        try:
            await self._serve_checked(request)
        except ConsoleError as error:
            await _respond_json(request, {"error": str(error)}, status=error.status)
        except (ClientDisconnected, OSError):
            return
        except Exception as error:  # noqa: BLE001 - logged as for every other request
            self._log_failure(request, error)
            await _respond_json(request, {"error": "internal error: see the log of the gateway"}, status=500)

    def _log_failure(self, request: AsgiRequest, error: Exception) -> None:
        """Log an unexpected error with its traceback."""
        record = RequestRecord(id="-", method=request.method, path=request.path, started_at=time.monotonic())
        record.status, record.exception = 500, error
        if self._observability is not None:
            self._observability.log(record)

    async def _serve_checked(self, request: AsgiRequest) -> None:
        """Check the origin of a request, and serve it by its path."""
        path, method = request.path, request.method
        if not self._authenticator.requires_key or b"origin" not in request.headers:
            headers = {name: value for name, value in request.headers.items() if name != b"origin"}
            if (reason := self._authenticator.rejection_reason(headers)) is not None:
                raise ConsoleError(403, reason)
        if path in ("/", PREFIX, PREFIX + "/"):
            await _send_asset(request, PAGE)
        elif path.startswith(_STATIC):
            await _send_asset(request, path.removeprefix(_STATIC))
        elif path.startswith(_API):
            if not is_same_site(request, acts=method not in ("GET", "HEAD")):
                raise ConsoleError(403, "the request comes from another site")
            await self._serve_api(request, path.removeprefix(_API))
        else:
            raise ConsoleError(404, "not found")

    async def _serve_api(self, request: AsgiRequest, path: str) -> None:
        """Serve a request to the data of the page."""
        if path == "session":
            await self._serve_session(request)
            return
        if (viewer := self._sessions.viewer(request)) is None:
            raise ConsoleError(401, "sign in first")
        kind, _, argument = path.partition("/")
        serve = self._endpoints.get((request.method, kind))
        if serve is None:
            raise ConsoleError(404, "not found")
        if request.method != "GET" and not self._sessions.has_token(request, viewer):
            raise ConsoleError(403, "the token of this page is missing or has expired: reload the page")
        await serve(request, viewer, argument)

    # ---- session

    async def _serve_session(self, request: AsgiRequest) -> None:
        """Describe the session, sign in, or sign out."""
        if request.method == "POST":
            sign_in = await read_json(request, SignIn, _MAX_SMALL_BODY)
            cookie = self._sessions.sign_in(sign_in.key.strip(), is_secure=is_https(request))
            if cookie is None:
                raise ConsoleError(401, "this key is not valid")
            await _respond_json(request, {"signed_in": True}, [(b"set-cookie", cookie.encode())])
        elif request.method == "DELETE":
            cookie = self._sessions.sign_out(is_secure=is_https(request))
            await _respond_json(request, {"signed_in": False}, [(b"set-cookie", cookie.encode())])
        else:
            await _respond_json(request, self._describe_session(self._sessions.viewer(request)))

    def _describe_session(self, viewer: Viewer | None) -> dict[str, Any]:
        """Return the data that a page needs first."""
        session: dict[str, Any] = {
            "version": __version__,
            "needs_key": self._sessions.needs_key,
            "signed_in": viewer is not None,
        }
        if viewer is not None:
            session |= {
                "is_admin": viewer.is_admin,
                "token": self._sessions.token(viewer),
                "capture": self.buffer.capture_seconds,
                "feed_problem": self._feed.open_page_problem(viewer),
                "providers": [
                    {"name": provider.name, "protocol": provider.protocol, "model": provider.default_model}
                    for provider in self._router.providers.values()
                ],
            }
        return session

    # ---- exchanges

    async def _send_feed(self, request: AsgiRequest, viewer: Viewer, _: str) -> None:
        """Send the live feed."""
        if problem := self._feed.open_page_problem(viewer):
            raise ConsoleError(503, problem)
        await request.receive_body(0)
        headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no"), _NO_STORE]
        await request.start_response(200, [*headers, *SECURITY_HEADERS])
        await self._feed.send(request, viewer)

    async def _send_exchange(self, request: AsgiRequest, viewer: Viewer, id: str) -> None:
        """Send everything about one exchange."""
        if (exchange := self._find_exchange(viewer, id)) is None:
            await self._send_from_peers(request)
            return
        (row,) = await self._rows.build([exchange])
        details = await asyncio.to_thread(
            build_details, exchange, row, self._router, self._redactor, is_journaled=self._is_journaled
        )
        await _respond(request, 200, details, [JSON_HEADER])

    async def _send_bundle(self, request: AsgiRequest, viewer: Viewer, id: str) -> None:
        """Send one exchange as a zip file for a bug report."""
        if (exchange := self._find_exchange(viewer, id)) is None:
            await self._send_from_peers(request)
            return
        bundle = await asyncio.to_thread(build_bundle, [build_record(exchange)], self._redactor, __version__)
        name = f'attachment; filename="toolwire-{exchange.record.id}.zip"'
        await _respond(
            request, 200, bundle, [(b"content-type", b"application/zip"), (b"content-disposition", name.encode())]
        )

    def _find_exchange(self, viewer: Viewer, id: str) -> BufferedExchange | None:
        """Return an exchange of this worker; None if it has none that the viewer may see."""
        exchange = self.buffer.find(id)
        return exchange if exchange is not None and viewer.may_see(exchange.tenant) else None

    async def _send_from_peers(self, request: AsgiRequest) -> None:
        """Send the exchange that another worker has."""
        if (reply := await self._peers.find(request)) is None:
            raise ConsoleError(404, "this exchange is unknown, or too old to be in memory")
        await _respond(request, 200, reply.body, reply.headers)

    async def _switch_capture(self, request: AsgiRequest, viewer: Viewer, _: str) -> None:
        """Capture bodies in all workers for some seconds, or stop capturing."""
        _require_admin(viewer)
        switch = await read_json(request, CaptureSwitch, _MAX_SMALL_BODY)
        self.buffer.capture_for(max(0.0, switch.seconds))
        await self._peers.ask_all(request, msgspec.json.encode(switch))
        await _respond_json(request, {"capture": self.buffer.capture_seconds})

    # ---- playground

    async def _send_hosts(self, request: AsgiRequest, viewer: Viewer, _: str) -> None:
        """Send the host profiles of each protocol."""
        await _respond_json(request, {"hosts": list_hosts()})

    async def _translate(self, request: AsgiRequest, viewer: Viewer, _: str) -> None:
        """Translate a body without sending it."""
        wanted = await read_json(request, TranslationRequest, MAX_BODY)
        _require_protocols(wanted.protocol, wanted.target)
        findings: list[Finding] = []
        async with self._computations:
            if wanted.provider is not None and self._playground is not None:
                targets = [await self._playground.translate_for_provider(wanted, viewer)]
            else:
                targets = await asyncio.to_thread(translate_to_all, wanted)
            if not wanted.target and not wanted.provider:
                own = get_host_profile("openai", wanted.protocol)
                findings = await asyncio.to_thread(find_refusals, wanted.body, wanted.protocol, own)
        await _respond_json(request, {"targets": targets, "findings": findings})

    async def _run(self, request: AsgiRequest, viewer: Viewer, _: str) -> None:
        """Send a body to the simulator or a provider."""
        wanted = await read_json(request, RunRequest, MAX_BODY)
        _require_protocols(wanted.protocol, wanted.target)
        if wanted.provider is None or self._playground is None:
            async with self._computations:
                result = await asyncio.to_thread(run_on_simulator, wanted)
            await _respond_json(request, result)
        else:
            await _respond_json(request, await self._playground.run(wanted, viewer))

    # ---- runs and status

    async def _send_runs(self, request: AsgiRequest, viewer: Viewer, id: str) -> None:
        """Send the list of runs, or one run."""
        _require_admin(viewer)
        data = await asyncio.to_thread(self._runs.show_run, id) if id else await asyncio.to_thread(self._runs.list_runs)
        if data is None:
            raise ConsoleError(404, "this run is unknown")
        await _respond(request, 200, data, [JSON_HEADER])

    async def _send_picture(self, request: AsgiRequest, viewer: Viewer, path: str) -> None:
        """Send a picture of a run."""
        _require_admin(viewer)
        id, _, number = path.rpartition("/")
        is_number = number.isdecimal() and len(number) < 7
        picture = await asyncio.to_thread(self._runs.find_picture, id, int(number)) if is_number else None
        if picture is None:
            raise ConsoleError(404, "this picture is unknown")
        await _respond(request, 200, picture[0], [(b"content-type", picture[1].encode("ascii", "replace"))])

    async def _send_status(self, request: AsgiRequest, viewer: Viewer, _: str) -> None:
        """Send the status of the gateway; without an admin key only its version."""
        status: dict[str, Any] = {"version": __version__, "uptime": self.uptime.seconds}
        if viewer.is_admin and self._observability is not None:
            services, observability = self._dispatcher.services, self._observability
            status["providers"] = report_providers(services, observability)
            own = report_limits(self._config, services, observability, self.buffer)
            others = [
                msgspec.json.decode(reply.body, type=PeerStatus).limits for reply in await self._peers.ask_all(request)
            ]
            status["limits"] = sum_limits([own, *others])
        await _respond(request, 200, self._redactor.redact_bytes(msgspec.json.encode(status)), [JSON_HEADER])

    async def _diagnose(self, request: AsgiRequest, viewer: Viewer, _: str) -> None:
        """Run the checks of `toolwire doctor`."""
        _require_admin(viewer)
        await request.receive_body(_MAX_SMALL_BODY)
        findings = await diagnose(LoadedConfig(self._config), self._environment, _DIAGNOSIS_TIMEOUT)
        data = self._redactor.redact_bytes(msgspec.json.encode({"findings": findings}))
        await _respond(request, 200, data, [JSON_HEADER])


def build_console(
    config: Config,
    dispatcher: Dispatcher,
    authenticator: Authenticator,
    redactor: Redactor,
    *,
    secret: bytes,
    environment: Mapping[str, str],
    worker: int = 0,
    peers: Sequence[Origin] = (),
    predecessor: Console | None = None,
) -> Console | None:
    """Build the console; None if it is disabled.

    `secret` signs the sessions, and is shared by all workers; `peers` are the addresses of the other ones. The console
    takes over the exchanges of its `predecessor`, which served until the configuration was loaded again.
    """
    if not config.console.enabled:
        return None
    return Console(
        config,
        dispatcher,
        authenticator,
        redactor,
        secret=secret,
        environment=environment,
        worker=worker,
        peers=peers,
        predecessor=predecessor,
    )


def _require_admin(viewer: Viewer) -> None:
    """Raise `ConsoleError` unless the viewer may see data of all keys."""
    if not viewer.is_admin:
        raise ConsoleError(403, "only an admin key may see this")


def _require_protocols(*names: str | None) -> None:
    """Raise `ConsoleError` for an unknown protocol."""
    for name in names:
        if name is not None and name not in PROTOCOLS:
            raise ConsoleError(400, unknown_name("protocol", name, PROTOCOLS))


async def read_json(request: AsgiRequest, type_: type[_T], limit: int) -> _T:
    """Read the body of a request as this type; raise `ConsoleError` if that fails."""
    try:
        return msgspec.json.decode(await request.receive_body(limit), type=type_)
    except BodyTooLarge:
        raise ConsoleError(413, f"the body is larger than {limit} bytes") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConsoleError(400, str(error)) from None


async def _send_asset(request: AsgiRequest, name: str) -> None:
    """Send a static file, or 304 if the browser has it."""
    asset = find_asset(name) if len(name) < 100 else None
    if asset is None or request.method not in ("GET", "HEAD"):
        raise ConsoleError(404, "not found")
    if request.headers.get(b"if-none-match") == asset.etag:
        await request.respond(304, b"", list(asset.headers))
        return
    await request.respond(200, asset.body, list(asset.headers))


async def _respond_json(
    request: AsgiRequest, value: Any, headers: list[Header] | None = None, status: int = 200
) -> None:
    """Send a value as JSON."""
    await _respond(request, status, msgspec.json.encode(value), [JSON_HEADER, *(headers or [])])


async def _respond(request: AsgiRequest, status: int, body: bytes, headers: list[Header]) -> None:
    """Send a body that no cache may store."""
    await request.respond(status, body, [*headers, _NO_STORE, *SECURITY_HEADERS])
