"""A gateway, and building it from its configuration."""

import hashlib
import os
import secrets
import socket
from collections.abc import Mapping

from msgspec import Struct

from toolwire.gateway.config import Config, ConfigError, build_redactor, state_directory
from toolwire.gateway.console.console import build_console
from toolwire.gateway.exchange.dispatcher import Dispatcher
from toolwire.gateway.exchange.routing import FixedRouter, Router
from toolwire.gateway.exchange.token_count import TokenCounter
from toolwire.gateway.in_flight_counts import InFlightCounts
from toolwire.gateway.keys.accounting import Accounting
from toolwire.gateway.keys.ledger_file import open_ledger
from toolwire.gateway.observability.access_log import AccessLog
from toolwire.gateway.observability.metrics import Scoreboard
from toolwire.gateway.observability.recorder import build_recorder
from toolwire.gateway.providers.discovery import are_simulated, resolve_providers, with_simulator_fallback
from toolwire.gateway.providers.models import ModelList
from toolwire.gateway.rounds.route_tools import RouteToolsets
from toolwire.gateway.server.app import App
from toolwire.gateway.server.auth import Authenticator, build_authenticator
from toolwire.gateway.signing_keys import describe_missing_keys, load_signing_keys
from toolwire.gateway.state.conversations import ConversationState
from toolwire.gateway.state.resources import Resources
from toolwire.gateway.state.store_file import open_store
from toolwire.journal.redaction import Redactor
from toolwire.runtime.policy import Policy
from toolwire.upstream.models.model_lists import ModelLists
from toolwire.upstream.provider import Origin, Provider
from toolwire.upstream.transport import Transport


class Gateway(Struct):
    """A gateway that is built and ready to listen."""

    app: App
    config: Config
    router: Router
    log: AccessLog
    route_toolsets: RouteToolsets
    simulator_socket: socket.socket | None = None
    """The socket of the built-in simulator; None if there are providers."""
    state_error: str | None = None
    """Why the state store is unavailable; None if it works."""


class SharedResources(Struct, frozen=True):
    """Resources that all workers share, created before the workers start."""

    scoreboard: Scoreboard
    signing_keys: list[bytes]
    console_secret: bytes
    """Signs the sessions of the console."""
    worker_listeners: tuple[socket.socket, ...] = ()
    """A listener on loopback for each worker, at which the others reach its console; empty for a single process."""

    def peer_origins(self, worker: int) -> list[Origin]:
        """Return the addresses of all workers but this one."""
        addresses = [listener.getsockname() for listener in self.worker_listeners]
        return [Origin("http", *address) for number, address in enumerate(addresses) if number != worker]


def build_gateway(
    config: Config,
    catch_all: str | None = None,
    environment: Mapping[str, str] = os.environ,
    providers: dict[str, Provider] | None = None,
    *,
    shared_resources: SharedResources | None = None,
    worker: int = 0,
    model: str | None = None,
    log: AccessLog | None = None,
    predecessor: Gateway | None = None,
) -> Gateway:
    """Build the gateway of one worker. With `model`, it sends every request to that model.

    It takes over state and connections of its `predecessor`, if there is one.
    """
    authenticator = build_authenticator(config, config.server.host)
    available, simulator_socket = (
        resolve_providers(config, environment) if providers is None else with_simulator_fallback(providers)
    )
    router = Router(available, config.routes, catch_all or config.default_model, config.aliases)
    if model is not None:
        router = FixedRouter(router, router.route(model))
    shared_resources = shared_resources or make_shared_resources(config, environment)
    log = log or AccessLog(is_json=config.server.log == "json")
    redactor = build_redactor(config, available.values())
    route_toolsets = _build_route_toolsets(config, redactor, log, environment)
    if predecessor is None:
        background = shared_resources.scoreboard.uses.counts("background", worker)
        transport = Transport(config.limits.connections)
        conversation_state = _open_state(config, authenticator, environment, background)
    else:
        transport, conversation_state = predecessor.app.transport, predecessor.app.conversation_state
    dispatcher = Dispatcher(
        router,
        transport,
        config.limits,
        shared_resources.signing_keys,
        conversation_state,
        redactor=redactor,
        route_toolsets=route_toolsets,
        models=config.models,
        compaction=config.compaction,
    )
    app = _build_app(
        config,
        dispatcher,
        authenticator,
        shared_resources=shared_resources,
        predecessor=predecessor,
        log=log,
        environment=environment,
        worker=worker,
    )
    state_error = conversation_state.store.unavailable_reason
    return Gateway(app, config, router, log, route_toolsets, simulator_socket, state_error)


def _build_app(
    config: Config,
    dispatcher: Dispatcher,
    authenticator: Authenticator,
    *,
    shared_resources: SharedResources,
    predecessor: Gateway | None,
    log: AccessLog,
    environment: Mapping[str, str],
    worker: int,
) -> App:
    """Build the ASGI application, with its log, recorder and console."""
    services = dispatcher.services
    return App(
        dispatcher,
        authenticator,
        ModelList(services.router, ModelLists(dispatcher.transport), services.catalog),
        config.limits,
        log=log.add_record,
        resources=Resources(services.conversation_state, config.limits),
        token_counter=TokenCounter(dispatcher, dispatcher.transport),
        recorder=build_recorder(config, services.redactor, environment, log.write_line, services.prices),
        console=build_console(
            config,
            dispatcher,
            authenticator,
            services.redactor,
            secret=shared_resources.console_secret,
            environment=environment,
            worker=worker,
            peers=shared_resources.peer_origins(worker),
            predecessor=None if predecessor is None else predecessor.app.console,
        ),
        accounting=Accounting(open_ledger(config.state, environment), services.prices, log=log.write_line),
        scoreboard=shared_resources.scoreboard,
        worker=worker,
        is_simulated=are_simulated(services.router.providers.values()),
    )


def _build_route_toolsets(
    config: Config, redactor: Redactor, log: AccessLog, environment: Mapping[str, str]
) -> RouteToolsets:
    """Build the tools of MCP servers that routes offer."""
    return RouteToolsets(
        config.mcp.servers,
        Policy(allow=config.policy.allow, ask=config.policy.ask, deny=config.policy.deny),
        redactor=redactor,
        directory=state_directory(environment) / "mcp",
        log=log.write_line,
    )


def _open_state(
    config: Config, authenticator: Authenticator, environment: Mapping[str, str], counts: InFlightCounts
) -> ConversationState:
    """Open the store of responses and conversations."""
    streams = config.limits.streams
    store = open_store(config.state, environment)
    return ConversationState(store, streams, config.limits.answer, authenticator.key_quota(streams), counts=counts)


def make_shared_resources(config: Config, environment: Mapping[str, str], workers: int = 1) -> SharedResources:
    """Create the scoreboard and load the signing keys; replicas must have keys in common."""
    if (problem := describe_missing_keys(config)) is not None:
        raise ConfigError(problem)
    signing_keys = load_signing_keys(config.server, environment)
    console_secret = hashlib.blake2s(signing_keys[0], person=b"console").digest()
    return SharedResources(
        Scoreboard(workers, config.limits.exchanges),
        signing_keys,
        console_secret if config.state.url is not None else secrets.token_bytes(32),
    )
