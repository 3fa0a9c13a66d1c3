"""Replaying a recorded exchange through the gateway, to the same provider or another one."""

import asyncio
from collections.abc import Mapping, MutableMapping
from typing import Any

from toolwire.codec.suggestions import unknown_name
from toolwire.gateway.config import Config, RouteSection, build_redactor
from toolwire.gateway.errors import RouteNotFound
from toolwire.gateway.exchange.dispatcher import Dispatcher
from toolwire.gateway.exchange.routing import Backend, FixedRouter, RouteMatch, Router
from toolwire.gateway.exchange.token_count import TokenCounter
from toolwire.gateway.observability.recorder import Recorder
from toolwire.gateway.providers.discovery import embedded_simulator, resolve_providers
from toolwire.gateway.providers.models import ModelList
from toolwire.gateway.server.app import App
from toolwire.gateway.server.auth import Authenticator, Principal
from toolwire.gateway.signing_keys import load_signing_keys
from toolwire.gateway.state.conversations import ConversationState
from toolwire.gateway.state.resources import Resources
from toolwire.gateway.state.store_file import open_store
from toolwire.journal.records import JournalEntry, Record
from toolwire.journal.redaction import Redactor
from toolwire.journal.store import JournalError
from toolwire.journal.writer import JournalWriter
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.models.model_lists import ModelLists
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Transport


class _FixedAuthenticator(Authenticator):
    """Admits every request as the recorded tenant, whose envelopes then verify."""

    def __init__(self, tenant: str) -> None:
        super().__init__(())
        self._principal = Principal(tenant)

    def authenticate(self, headers: dict[bytes, bytes], query: bytes) -> Principal:
        """Return the recorded tenant as the caller."""
        return self._principal


class _SingleRecordJournal(JournalWriter):
    """A journal that keeps one record in memory."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__((), redactor, 0, lambda _: None)
        self.record: Record | None = None
        self._redactor = redactor

    def add(self, entry: JournalEntry) -> None:
        """Keep the record of a finished exchange, redacted."""
        self.record = self._redactor.redact_record(entry.to_record())


async def replay_exchange(config: Config, environment: Mapping[str, str], record: Record, target: str | None) -> Record:
    """Send a recorded request again and return the new record.

    `target` is a provider or `provider/model`; by default the recorded one.
    """
    if record.bodies is None or not record.bodies.request:
        raise JournalError(f"{record.id} was recorded without bodies: set journal.bodies to replay future exchanges")
    providers, simulator_socket = resolve_providers(config, environment)
    redactor = build_redactor(config, providers.values())
    journal = _SingleRecordJournal(redactor)
    async with embedded_simulator(simulator_socket, config.simulator):
        router = _fixed_router(Router(providers, config.routes, aliases=config.aliases), record, target)
        transport = Transport()
        conversation_state = ConversationState(
            open_store(config.state, environment), config.limits.streams, config.limits.answer
        )
        keys = load_signing_keys(config.server, environment)
        dispatcher = Dispatcher(
            router, transport, config.limits, keys, conversation_state, redactor=redactor, models=config.models
        )
        recorder = Recorder(journal, config.limits.answer)
        app = App(
            dispatcher,
            _FixedAuthenticator(record.tenant),
            ModelList(router, ModelLists(transport), dispatcher.services.catalog),
            config.limits,
            log=lambda _: None,
            resources=Resources(conversation_state),
            token_counter=TokenCounter(dispatcher, transport),
            recorder=recorder,
        )
        try:
            await _send_request(app, record)
        finally:
            app.close()
    if journal.record is None:
        raise JournalError(f"{record.id} can't be replayed: {record.path} is not a model endpoint")
    _check_continuation(record, journal.record)
    return journal.record


def _check_continuation(record: Record, replayed: Record) -> None:
    """Raise `JournalError` if the replay was not sent because what the request continues is not stored."""
    if record.bodies is None or not record.protocol or replayed.protocol:
        return
    continuation = PROTOCOLS[record.client].decode_request(record.bodies.request, record.route).continuation
    previous = None if continuation is None else continuation.id
    if previous is not None and previous in replayed.error:
        raise JournalError(
            f"{record.id} can't be replayed: it continues {previous}, which is not stored. On a websocket, clients such"
            " as Codex send only what is new; with limits.sockets = 0 they send complete requests"
        )


def _fixed_router(router: Router, record: Record, target: str | None) -> FixedRouter:
    """Return a router to the backend to replay to, with the options of the recorded model's route."""
    try:
        options = router.route(record.model).options
    except RouteNotFound:
        options = RouteSection()
    return FixedRouter(router, RouteMatch((_select_backend(record, router.providers, target),), options))


def _select_backend(record: Record, providers: Mapping[str, Provider], target: str | None) -> Backend:
    """Return the backend to replay to."""
    if not target and not record.provider:
        raise JournalError(f"{record.id} was not sent to a provider: name one with --to")
    name, slash, model = (target or record.provider).partition("/")
    if name not in providers:
        raise JournalError(unknown_name("provider", name, providers) + ("" if target else ": name one with --to"))
    if target is None:
        return Backend(providers[name], record.model or None)
    if slash:
        return Backend(providers[name], model)
    return Backend(providers[name], providers[name].default_model or record.model or None)


async def _send_request(app: App, record: Record) -> None:
    """Pass the recorded request to the application as a server would; the response ends up in the journal."""
    surface = PROTOCOLS[record.client].surface
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    if surface.version_header is not None and record.route.version is not None:
        headers.append((surface.version_header.encode(), record.route.version.encode("latin-1")))
    if record.strict:
        headers.append((b"toolwire-strict", b"error" if record.strict == "error" else b"refuse"))
    scope = {"type": "http", "method": "POST", "path": record.path, "query_string": b"", "headers": headers}
    body = [b"" if record.bodies is None else record.bodies.request]

    async def receive() -> MutableMapping[str, Any]:
        """Return the recorded body, then wait as for a client that stays connected."""
        if not body:
            await asyncio.Event().wait()  # the client stays connected
        return {"type": "http.request", "body": body.pop()}

    async def send(message: MutableMapping[str, Any]) -> None:
        """Ignore the response, which the journal records."""

    await app(scope, receive, send)
