"""A recorded exchange, once more: the same request through the same gateway, to the same provider or another one."""

import asyncio
from collections.abc import Mapping, MutableMapping
from typing import Any

from toolwire.journal.records import Entry, Record
from toolwire.journal.secrets import Redactor
from toolwire.journal.store import JournalError
from toolwire.journal.writer import Journal
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Transport

from .app import App
from .auth import Caller, Gate
from .config import Config, RouteSection
from .counting import Counter
from .exchange import Exchanger
from .models import Catalogue
from .providing import providers_of, simulating
from .recording import Recorder, secrets_of
from .routing import NoRoute, Routed, Router, Way
from .seals import seal_keys
from .state.memory import Memory
from .state.opening import opened
from .state.resources import Resources


class _Bound(Router):
    """Every name leads one way; how, is what the routes say."""

    def __init__(self, providers: Mapping[str, Provider], routes: tuple[RouteSection, ...], way: Way) -> None:
        super().__init__(providers, routes)
        self._way = way

    def route(self, model: str | None) -> Routed:
        try:
            options = super().route(model).options
        except NoRoute:
            options = RouteSection()
        return Routed((self._way,), options)


class _Caller(Gate):
    """Lets in who made the exchange: what was sealed for that key opens again."""

    def __init__(self, tenant: str) -> None:
        super().__init__(())
        self._caller = Caller(tenant)

    def admit(self, headers: dict[bytes, bytes], query: bytes) -> Caller:
        return self._caller


class _Kept(Journal):
    """Keeps the one record."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__((), redactor, 0, lambda _: None)
        self.record: Record | None = None
        self._redactor = redactor

    def add(self, entry: Entry) -> None:
        self.record = self._redactor.record(entry.record())


async def replay(config: Config, environment: Mapping[str, str], record: Record, to: str | None) -> Record:
    """What it comes to now. `to` is a provider, or `provider/model`; without, it is the one of then."""
    if record.bodies is None or not record.bodies.request:
        raise JournalError(f"{record.id} was recorded without bodies: set journal.bodies to replay what comes next")
    providers, embedded = providers_of(config, environment)
    redactor = Redactor(secrets_of(config, providers.values()))
    kept = _Kept(redactor)
    async with simulating(embedded, config.simulator):
        router = _Bound(providers, config.routes, _way(record, providers, to))
        transport = Transport()
        memory = Memory(opened(config.state, environment), config.limits.streams, config.limits.answer)
        keys = seal_keys(config.server, environment)
        exchanger = Exchanger(router, transport, config.limits, keys, memory, redactor=redactor)
        recorder = Recorder(kept, config.limits.answer)
        app = App(
            exchanger,
            _Caller(record.tenant),
            Catalogue(router),
            config.limits,
            log=lambda _: None,
            resources=Resources(memory),
            counter=Counter(exchanger, transport),
            recorder=recorder,
        )
        try:
            await _ask(app, record)
        finally:
            app.close()
    if kept.record is None:
        raise JournalError(f"{record.id} can't be replayed: nothing takes requests at {record.path}")
    return kept.record


def _way(record: Record, providers: Mapping[str, Provider], to: str | None) -> Way:
    name, slash, model = (to or record.provider).partition("/")
    if name not in providers:
        raise JournalError(f"there is no provider {name!r}: use --to with one of {', '.join(providers)}")
    if to is None:
        return Way(providers[name], record.model or None)
    if slash:
        return Way(providers[name], model)
    return Way(providers[name], providers[name].default_model or record.model or None)


async def _ask(app: App, record: Record) -> None:
    """Call the application as a server would. Its answer is in what it records."""
    surface = PROTOCOLS[record.client].surface
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    if surface.version_header is not None and record.route.version is not None:
        headers.append((surface.version_header.encode(), record.route.version.encode("latin-1")))
    if record.strict:
        headers.append((b"toolwire-strict", b"refuse"))
    scope = {"type": "http", "method": "POST", "path": record.path, "query_string": b"", "headers": headers}
    body = [b"" if record.bodies is None else record.bodies.request]

    async def receive() -> MutableMapping[str, Any]:
        if not body:
            await asyncio.Event().wait()  # the client stays
        return {"type": "http.request", "body": body.pop()}

    async def send(message: MutableMapping[str, Any]) -> None:
        pass

    await app(scope, receive, send)
