"""The playground: a body in other protocols, with losses and refusals, and runs on the simulator or a provider."""

import asyncio
import secrets
import time
from collections.abc import MutableMapping
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.canonical.errors import Loss, LossyTranslationError, ToolwireError
from toolwire.codec.hosts.compatible import COMPATIBLE
from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.hosts.registry import all_profiles
from toolwire.codec.interface import Codec, Route
from toolwire.codec.validation import Finding
from toolwire.gateway.console.exchange_details import UpstreamAddress, find_address
from toolwire.gateway.console.session import Viewer
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.exchange.dispatcher import Dispatcher
from toolwire.gateway.exchange.exchange import BufferedResponse, ClientRequest
from toolwire.gateway.observability.access_log import RequestRecord
from toolwire.gateway.observability.recorder import Observability, RequestObserver
from toolwire.journal.redaction import Redactor
from toolwire.protocols import PROTOCOLS
from toolwire.tool_cycle import check
from toolwire.translation.body import BodyKind, Translation, get_host_profile, translate
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.hosts.host import CHECKED_PROTOCOLS, SimulatedHost
from toolwire.upstream.simulator.hosts.refusals import HostRefusal

MAX_BODY = 2 * 1024 * 1024
MAX_FINDINGS = 50
_DEFAULT_HOST = "openai"


class TranslationRequest(Struct, forbid_unknown_fields=True):
    """A body to translate: to one protocol, to a provider, or to all protocols."""

    protocol: str
    body: str
    target: str | None = None
    provider: str | None = None
    host: str | None = None
    model: str | None = None
    stream: bool | None = None


class RunRequest(Struct, forbid_unknown_fields=True):
    """A body to send: to the simulator in a protocol as a host, or to a provider."""

    protocol: str
    body: str
    provider: str | None = None
    target: str | None = None
    host: str | None = None
    model: str | None = None


class TranslatedBody(Struct, omit_defaults=True):
    """A body, translated for one target."""

    protocol: str
    body: str = ""
    path: str = ""
    model: str = ""
    upstream: UpstreamAddress | None = None
    """Address of a configured provider, for a command line."""
    losses: list[Loss] = []
    findings: list[Finding] = []
    """Reasons why the target would refuse the body."""
    refused: str = ""
    """The reason if the body can't be translated."""


class RunResult(Struct, omit_defaults=True):
    """The result of a run."""

    status: int
    response: str
    """The response in the protocol of the request."""
    answer: str = ""
    """The response as the simulator sent it."""
    protocol: str = ""
    losses: list[Loss] = []
    exchange: str = ""
    """Id of the exchange, if it went through the gateway."""


def list_hosts() -> dict[str, list[dict[str, str]]]:
    """Return the host profiles by protocol."""
    hosts: dict[str, list[dict[str, str]]] = {}
    for profile in all_profiles():
        if profile.name not in (_DEFAULT_HOST, COMPATIBLE.name):
            hosts.setdefault(profile.protocol, []).append(
                {"name": profile.name, "title": profile.title or profile.name}
            )
    return hosts


def translate_to_all(request: TranslationRequest) -> list[TranslatedBody]:
    """Return the body in one target, or in every protocol."""
    targets = list(PROTOCOLS) if request.target is None else [request.target]
    return [translate_to(request, target) for target in targets]


def translate_to(request: TranslationRequest, target: str) -> TranslatedBody:
    """Return the body in one target, with what the target would refuse."""
    translated = TranslatedBody(target)
    host = request.host or _DEFAULT_HOST
    try:
        translation = translate(
            request.body, request.protocol, target, model=request.model, stream=request.stream, host=host
        )
        translated.body, translated.losses = _text(translation.to_bytes()), translation.losses
        translated.path = translation.route.path or ""
    except LossyTranslationError as error:
        translated.refused, translated.losses = str(error), error.all_losses
        return translated
    except (ToolwireError, ValueError, RecursionError) as error:
        translated.refused = str(error)
        return translated
    translated.findings = find_refusals(translated.body, target, get_host_profile(host, target), request.model)
    return translated


def find_refusals(body: str, protocol: str, profile: HostProfile, model: str | None = None) -> list[Finding]:
    """Return why a host would refuse a body: the rules of the protocol, and what its profile excludes."""
    findings: list[Finding] = []
    try:
        is_vendor = profile.name == _DEFAULT_HOST
        findings += check(body, protocol, model=model, compatible=not is_vendor)[:MAX_FINDINGS]
    except (ToolwireError, ValueError, RecursionError) as error:
        return [Finding("body", "", str(error))]
    if protocol in CHECKED_PROTOCOLS and profile.name != _DEFAULT_HOST:
        try:
            SimulatedHost(profile).check_request(body.encode())
        except HostRefusal as refusal:
            findings.append(Finding(refusal.fact, "", _text(refusal.body)))
    return [finding for finding in findings if finding.level == "error"]


def _text(data: bytes) -> str:
    """Return a body as text."""
    return data.decode("utf-8", "replace")


class Playground:
    """Sends bodies from the page."""

    def __init__(self, dispatcher: Dispatcher, observability: Observability, redactor: Redactor) -> None:
        self._dispatcher = dispatcher
        self._observability = observability
        self._redactor = redactor

    async def translate_for_provider(self, request: TranslationRequest, viewer: Viewer) -> TranslatedBody:
        """Return the body as a configured provider would get it, without sending it."""
        providers = self._dispatcher.services.router.providers
        if request.provider not in providers:
            return TranslatedBody("", refused=f"unknown provider {request.provider!r}")
        provider = providers[request.provider]
        name = provider.default_model or (request.model or "").rpartition("/")[2] or "model"
        translated = TranslatedBody(provider.protocol, model=name)
        try:
            upstream_request = await self._dispatcher.translate(
                self._client_request(request, f"{provider.name}/{name}", viewer, stream=request.stream)
            )
        except (ToolwireError, RequestRejected) as error:
            translated.refused = _reason(error)
            return translated
        translated.path, translated.losses = upstream_request.route.path or "", upstream_request.losses
        translated.upstream = find_address(
            provider.name, provider.protocol, translated.path, self._dispatcher.services.router, self._redactor
        )
        profile = self._dispatcher.services.catalog.look_up(provider, name).host
        translated.body = _text(await asyncio.to_thread(self._redactor.redact_bytes, upstream_request.body))
        translated.findings = await asyncio.to_thread(find_refusals, translated.body, provider.protocol, profile, name)
        return translated

    async def run(self, request: RunRequest, viewer: Viewer) -> RunResult:
        """Send a body to a configured provider, as an exchange like any other."""
        providers = self._dispatcher.services.router.providers
        if request.provider not in providers:
            return RunResult(404, f"unknown provider {request.provider!r}")
        provider = providers[request.provider]
        name = request.model or provider.default_model or ""
        codec = PROTOCOLS[request.protocol]
        record = RequestRecord(
            id=_new_id(), method="POST", path=codec.surface.endpoints[0].path, started_at=time.monotonic()
        )
        record.client = codec.name
        observer = RequestObserver(self._observability, record, viewer.principal)
        result = RunResult(200, "", protocol=provider.protocol, exchange=record.id)
        try:
            client_request = self._client_request(request, f"{provider.name}/{name}", viewer, stream=False)
            observer.start_capture(client_request, {})
            response = await self._dispatcher.dispatch(await self._dispatcher.open_exchange(client_request, observer))
            if not isinstance(response, BufferedResponse):
                raise TypeError("a request for a complete response got a stream")
            record.usage = None if response.summary is None else response.summary.usage
            observer.store_losses(response.losses)
            result.response, result.losses = _text(response.body), response.losses
        except (ToolwireError, RequestRejected) as error:
            result.status = getattr(getattr(error, "error", None), "status", None) or 502
            result.response = record.error = _reason(error)
        finally:
            record.status = result.status
            observer.finish()
        result.response = self._redactor.redact_text(result.response)
        return result

    @staticmethod
    def _client_request(
        request: TranslationRequest | RunRequest, model: str, viewer: Viewer, *, stream: bool | None
    ) -> ClientRequest:
        """Return a client request for a model."""
        codec = PROTOCOLS[request.protocol]
        return ClientRequest(
            codec=codec,
            body=_with_members(request.body.encode("utf-8", "replace"), codec, model, stream=stream),
            route=Route(model=model, stream=stream),
            tenant=viewer.principal.tenant,
            key=viewer.principal.key,
            created=int(time.time()),
        )


def _with_members(body: bytes, codec: Codec, model: str, *, stream: bool | None) -> bytes:
    """Return a body with another model, and streamed or not, unless its protocol has both in the path."""
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body
    if any("{model}" in endpoint.path for endpoint in codec.surface.endpoints):
        return body
    changed: dict[str, Any] = {"model": model} if stream is None else {"model": model, "stream": stream}
    return msgspec.json.encode(members | changed)


def _new_id() -> str:
    """Return an id for an exchange."""
    return f"ex_{secrets.token_hex(8)}"


def _reason(error: Exception) -> str:
    """Return the message of an error."""
    return error.error.message if isinstance(error, RequestRejected) else str(error)


def run_on_simulator(request: RunRequest) -> RunResult:
    """Translate a body, send it to a simulated host in this thread, and translate the answer back."""
    target, host = request.target or request.protocol, request.host or _DEFAULT_HOST
    model = request.model or "simulated"
    try:
        translation = translate(request.body, request.protocol, target, model=model, stream=False, host=host)
    except (ToolwireError, ValueError) as error:
        return RunResult(400, str(error), protocol=target)
    profile = get_host_profile(host, target)
    if profile.address.path:
        return RunResult(
            400, f"{profile.title} is a cloud platform, which the playground does not run", protocol=target
        )
    profiles = [] if host == _DEFAULT_HOST or target not in CHECKED_PROTOCOLS else [profile]
    status, answer = asyncio.run(_call(Simulator([target], profiles=profiles), translation))
    result = RunResult(status, answer, answer, target)
    try:
        kind: BodyKind = "response" if status < 300 else "error"
        translated = translate(answer, target, request.protocol, kind, request=request.body if status < 300 else None)
        result.response, result.losses = _text(translated.to_bytes()), translated.losses
    except (ToolwireError, ValueError) as error:
        result.response = str(error)
    return result


async def _call(simulator: Simulator, translation: Translation) -> tuple[int, str]:
    """Send a translated request to an ASGI application, and return status and body of the answer."""
    body, chunks, status = [translation.to_bytes()], list[bytes](), [0]
    headers = [(b"content-type", b"application/json"), *_encoded(translation.route.headers)]
    path, _, query = (translation.route.path or "/").partition("?")
    scope = {"type": "http", "method": "POST", "path": path, "query_string": query.encode(), "headers": headers}

    async def receive() -> MutableMapping[str, Any]:
        """Return the body."""
        return {"type": "http.request", "body": body.pop() if body else b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        """Collect the answer."""
        if message["type"] == "http.response.start":
            status[0] = message["status"]
        else:
            chunks.append(message.get("body", b""))

    await simulator(scope, receive, send)
    return status[0], _text(b"".join(chunks))


def _encoded(headers: tuple[tuple[str, str], ...]) -> list[tuple[bytes, bytes]]:
    """Return headers as ASGI has them."""
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
