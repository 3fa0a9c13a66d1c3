"""Diagnostics for `toolwire doctor`: server access, database files, provider keys, and backends that are failing."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.codec.env_references import describe_unset
from toolwire.gateway.config import (
    PROJECT_FILE,
    Config,
    ConfigError,
    LoadedConfig,
    RouteSection,
    ServerSection,
    build_providers,
    journal_path,
)
from toolwire.gateway.errors import RouteNotFound
from toolwire.gateway.exchange.routing import Backend, Router
from toolwire.gateway.keys.key_check import find_refused_keys
from toolwire.gateway.keys.ledger import LEDGER_SCHEMA as LEDGER
from toolwire.gateway.keys.ledger import POSTGRES_SCHEMA as POSTGRES_LEDGER
from toolwire.gateway.observability.metrics import open_breakers
from toolwire.gateway.policy_check import find_unused_rules
from toolwire.gateway.providers.discovery import (
    discover_providers,
    find_listener,
    load_simulator_script,
    with_proxies,
)
from toolwire.gateway.providers.known_providers import KEY_VARIABLES
from toolwire.gateway.providers.models import with_ollama_models
from toolwire.gateway.signing_keys import describe_missing_keys
from toolwire.gateway.start_checks import build_router, find_start_errors
from toolwire.gateway.state.postgres_store import STATE_SCHEMA as POSTGRES_STATE
from toolwire.gateway.state.sqlite_store import IN_MEMORY
from toolwire.gateway.state.sqlite_store import STATE_SCHEMA as STATE
from toolwire.gateway.state.store_file import state_path
from toolwire.journal.postgres import displayed_url, inspect_tables
from toolwire.journal.postgres_records import SCHEMA as POSTGRES_JOURNAL
from toolwire.journal.run_database import POSTGRES_SCHEMA as POSTGRES_RUNS
from toolwire.journal.run_database import SCHEMA as RUNS
from toolwire.journal.sqlite_files import DatabaseUnusable, inspect_database, inspect_missing_database
from toolwire.journal.store import SCHEMA as JOURNAL
from toolwire.upstream.key_command import KeyCommandError
from toolwire.upstream.models.catalog import fetch_entry
from toolwire.upstream.models.listings import read_entry, read_list
from toolwire.upstream.models.model_lists import list_request
from toolwire.upstream.provider import Origin, Provider, is_loopback
from toolwire.upstream.transport import Transport, TransportError, request_head

_LIMIT_MODEL_LIST = 16 * 1024 * 1024
# Their model lists are public, so a successful response does not prove the key.
_PUBLIC_MODEL_LISTS = ("openrouter", "ollama")


class Finding(Struct, frozen=True):
    """The result of one check; `advice` is set if there is a problem."""

    subject: str
    detail: str
    advice: str = ""

    @property
    def is_ok(self) -> bool:
        """Return whether the check passed."""
        return not self.advice

    def __str__(self) -> str:
        return (
            f"{'ok' if self.is_ok else 'problem':8} {self.subject}: {self.detail}{self.advice and f'; {self.advice}'}"
        )


async def diagnose(
    loaded: LoadedConfig, environment: Mapping[str, str], timeout: float, model: str | None = None
) -> list[Finding]:
    """Return the findings of all checks; `model` is the default model that the environment names."""
    config = loaded.config
    gateway = await asyncio.to_thread(check_gateway, config.server)
    providers, variables = _providers_with_variables(config, loaded.key_variables, environment)
    listed = await with_ollama_models(providers)
    findings = [*check_configuration(loaded, listed, model)]
    findings += [check_server(config.server, len(config.keys)), gateway, *check_files(config, environment)]
    if (problem := describe_missing_keys(config)) is not None:
        findings.append(Finding("server", *problem.split(": ", 1)))
    if not providers:
        names = ", ".join(dict.fromkeys(KEY_VARIABLES.values()))
        detail = f"none configured; using the built-in simulator, which answers to any model name (no {names})"
        findings.append(Finding("providers", detail))
    findings += [*check_variables(config), *check_policy(config)]
    transport = Transport()
    try:
        findings += await check_providers(providers.values(), variables, transport, timeout)
        without_default = replace(config, default_model=None)
        known = build_router(without_default, listed)
        findings += check_aliases(config.aliases, known)
        refused = find_refused_keys(config, known.providers)
        findings += [Finding(key.setting, key.problem, key.advice) for key in refused]
        routes = [route for route in config.routes if len(route.backend_sections) > 1]
        if routes:
            router = build_router(without_default, providers)
            findings += [check_route(route, router) for route in routes]
            findings += await _check_breakers(config.server, transport, timeout)
        return findings
    finally:
        transport.close()


def check_configuration(
    loaded: LoadedConfig, providers: Mapping[str, Provider], model: str | None
) -> Iterator[Finding]:
    """Yield a finding for each problem that keeps the gateway from starting; without any, one on the files."""
    errors = list(find_start_errors(loaded, providers, model))
    for error in errors:
        yield Finding("configuration", str(error), "`toolwire serve` does not start until this is corrected")
    if not errors:
        files = loaded.description or f"no {PROJECT_FILE}; providers are found by API keys in the environment"
        yield Finding("configuration", files)
        if default := model or loaded.config.default_model:
            yield Finding("default model", default)


async def find_provider_problems(
    config: Config, variables: Mapping[str, str], environment: Mapping[str, str], model: str | None, timeout: float
) -> list[Finding]:
    """Return what is wrong with the providers that a model name may lead to; without one, with any provider."""
    providers, variables = _providers_with_variables(config, variables, environment)
    selected: Iterable[Provider] = providers.values()
    if providers and model is not None:
        try:
            backends = Router(providers, config.routes, aliases=config.aliases).route(model).backends
        except RouteNotFound:
            return []
        selected = {backend.provider.name: backend.provider for backend in backends}.values()
    transport = Transport()
    try:
        findings = await check_providers(selected, variables, transport, timeout)
    finally:
        transport.close()
    return [finding for finding in findings if not finding.is_ok]


def _providers_with_variables(
    config: Config, variables: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[dict[str, Provider], Mapping[str, str]]:
    """Return the configured providers, or else those of the environment, with the variables of their keys."""
    if providers := build_providers(config):
        return with_proxies(providers, environment), variables
    return with_proxies(discover_providers(environment), environment), KEY_VARIABLES


async def check_providers(
    providers: Iterable[Provider], variables: Mapping[str, str], transport: Transport, timeout: float
) -> list[Finding]:
    """Return a finding for each group of providers with one key, all checked at the same time."""
    checks = (
        _check_provider(group, variables.get(group[0].name), transport, timeout) for group in group_by_key(providers)
    )
    return await asyncio.gather(*checks)


def check_gateway(server: ServerSection) -> Finding:
    """Return a finding on what listens at the gateway's address, since `toolwire launch` uses a running gateway."""
    if server.port == 0:
        return Finding("gateway", "each start takes a free port (server.port is 0): `toolwire launch` starts one")
    address = f"[{server.host}]:{server.port}" if ":" in server.host else f"{server.host}:{server.port}"
    match find_listener(server.host, server.port):
        case "gateway":
            detail = f"one runs at {address}: `toolwire launch` uses it, with the configuration it started with"
            return Finding("gateway", detail)
        case "simulator":
            detail = f"one runs at {address}, on the built-in simulator: `toolwire launch` uses it"
            return Finding("gateway", detail)
        case "other":
            return Finding("gateway", f"another program listens on {address}: `toolwire serve` needs another port")
        case "none":
            return Finding("gateway", f"none runs at {address}: `toolwire launch` starts one")


def check_server(server: ServerSection, client_keys: int = 0) -> Finding:
    """Return a finding on whether a server reachable from other machines requires keys.

    `client_keys` is the number of keys of `[keys]`.
    """
    if count := len(server.keys) + client_keys:
        return Finding("server", f"{server.host}:{server.port}, {count} {'key' if count == 1 else 'keys'}")
    if is_loopback(server.host):
        return Finding("server", f"{server.host}:{server.port}, this machine only, no key required")
    detail = f"{server.host} is reachable from other machines, and no keys are set"
    return Finding("server", detail, "set server.keys or [keys.NAME], or listen on 127.0.0.1")


def check_variables(config: Config) -> Iterator[Finding]:
    """Yield a finding for each MCP server, and the search service, whose settings refer to unset variables."""
    for name, server in config.mcp.servers.items():
        if server.enabled and server.unavailable_reason is not None:
            yield Finding(f"MCP server {name}", server.unavailable_reason, "set it, or disable the server")
    if (reason := describe_unset(msgspec.structs.asdict(config.search))) is not None:
        yield Finding("web search", reason, "set it, or remove [search]")


def check_policy(config: Config) -> Iterator[Finding]:
    """Yield a finding for each rule of `[policy]` that applies to no known tool, or one if all do."""
    unused = list(find_unused_rules(config))
    for rule in unused:
        yield Finding(rule.key, f"{rule.problem}, so the rule applies to nothing", rule.advice)
    if not unused and (count := sum(map(len, config.policy.rules_by_verdict.values()))):
        yield Finding("policy", f"{count} {'rule' if count == 1 else 'rules'}")


def check_files(config: Config, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each database file that exists, or that can't be created although it is configured."""
    journal, state = journal_path(config, environment), state_path(config.state, environment)
    is_state_set = config.state.path is not None
    is_journal_set = config.journal.path is not None or config.journal.enabled
    files = [
        ("state", state, STATE, is_state_set),
        ("usage", state.with_name("usage.db"), LEDGER, is_state_set),
        ("journal", journal, JOURNAL, is_journal_set),
        ("runs", journal.with_name("runs.db"), RUNS, False),
    ]
    if config.state.url is not None:
        yield _check_postgres(config.state.url)
        files = files[2:3] if config.journal.path is not None else []
    elif config.state.path == IN_MEMORY:
        yield Finding("state", "in memory, so it is lost when the gateway stops")
        files = files[2:]
    for subject, path, schema, is_required in files:
        if path.is_file() and not path.is_symlink():
            yield _check_file(subject, path, partial(inspect_database, path, schema))
        elif is_required or os.path.lexists(path):
            finding = _check_file(subject, path, partial(inspect_missing_database, path))
            if not finding.is_ok:
                yield finding
    if config.simulator.script is not None:
        yield _check_script(config)


def _check_file(subject: str, path: Path, inspect: Callable[[], None]) -> Finding:
    """Return a finding on a database file."""
    try:
        inspect()
    except DatabaseUnusable as error:
        advice = error.advice or "check which process uses the file, and its permissions"
        return Finding(subject, f"{path}: {error.reason}", advice)
    return Finding(subject, str(path))


def _check_script(config: Config) -> Finding:
    """Return a finding on the script of the simulator."""
    try:
        load_simulator_script(config.simulator)
    except ConfigError as error:
        return Finding("simulator", str(error), "correct the file, or simulator.script")
    return Finding("simulator", f"script {config.simulator.script}")


def _check_postgres(url: str) -> Finding:
    """Return a finding on the shared database."""
    name = displayed_url(url)
    try:
        inspect_tables(url, (POSTGRES_STATE, POSTGRES_JOURNAL, POSTGRES_RUNS, POSTGRES_LEDGER))
    except DatabaseUnusable as error:
        advice = error.advice or "check that the server runs, and host, user and password in state.url"
        return Finding("state", f"{name}: {error.reason}", advice)
    return Finding("state", name)


def check_route(route: RouteSection, router: Router) -> Finding:
    """Return a finding on the backends of a route, in the order in which they are tried."""
    backends = router.build_backends(route, None)
    unnamed = [
        backend.provider
        for backend in backends[1:]
        if backend.model is None and not backend.provider.models and not _same_vendor(backend, backends[0])
    ]
    separator = " or " if route.balance == "weight" else ", then "
    detail = separator.join(backend.name for backend in backends)
    advice = "" if not unnamed else f"{unnamed[0].name} gets model names of {backends[0].provider.name}: set its model"
    return Finding(f"route {route.match}", detail, advice)


def _same_vendor(backend: Backend, other: Backend) -> bool:
    """Return whether two backends speak the same protocol, so that they may know the same model names."""
    return backend.provider.protocol == other.provider.protocol


async def _check_breakers(server: ServerSection, transport: Transport, timeout: float) -> list[Finding]:
    """Return a finding for each backend that a running gateway skips; none if no gateway runs."""
    origin = Origin("http", "127.0.0.1" if server.host in ("0.0.0.0", "::") else server.host, server.port)  # noqa: S104
    headers = [("authorization", f"Bearer {key}") for key in server.keys[:1]]
    head = request_head(origin, "/metrics", headers, "GET")
    try:
        response = await transport.send(origin, head, None, read_timeout=timeout, connect_timeout=timeout)
        metrics = await response.read(_LIMIT_MODEL_LIST)
    except TransportError:
        return []
    if response.status != 200:
        return []
    backends = open_breakers(metrics.decode(errors="replace"))
    advice = "the gateway skips it until a request succeeds: see the gateway's log"
    findings = [Finding("breaker", f"{backend} keeps failing", advice) for backend in backends]
    return findings or [Finding("breakers", f"none is open in the gateway at {origin.authority}")]


def group_by_key(providers: Iterable[Provider]) -> list[list[Provider]]:
    """Group providers that share server, key and model list, so that each group is checked once."""
    groups: dict[object, list[Provider]] = {}
    for provider in providers:
        is_alone = provider.key_command or provider.client_credential or provider.unavailable_reason or provider.address
        key = list_request(provider) if is_alone is None else provider.name
        groups.setdefault(key, []).append(provider)
    return list(groups.values())


def check_aliases(aliases: Mapping[str, str], router: Router) -> list[Finding]:
    """Return a finding for each alias: the model that it stands for, and whether a provider has it."""
    findings = []
    for alias, model in aliases.items():
        try:
            backend = router.route(model).backends[0]
        except RouteNotFound:
            problem = router.describe_unknown_model(model)
            findings.append(Finding(f"alias {alias}", problem, f"set aliases.{alias} to PROVIDER/MODEL"))
        else:
            findings.append(Finding(f"alias {alias}", backend.name))
    return findings


async def _check_provider(group: list[Provider], variable: str | None, transport: Transport, timeout: float) -> Finding:
    """Return a finding on whether a server accepts the key, by requesting its model list, which is free."""
    provider = group[0]
    if provider.unavailable_reason is not None:
        return Finding(provider.name, provider.unavailable_reason, "set it, or remove the provider")
    key = _describe_key(provider, variable)
    name, location = ", ".join(one.name for one in group), f"{provider.base_url}, {key}"
    if provider.client_credential is not None:
        return Finding(name, f"{location}: not checked, as only clients have it")
    try:
        authorized = await provider.with_current_key()
        if provider.address is not None:
            title = provider.profile(None).title
            return Finding(name, f"{location}: not checked, as {title} has no list of models here")
        origin, head = list_request(authorized)
        response = await transport.send(origin, head, None, read_timeout=timeout, connect_timeout=timeout)
        status, listing = response.status, await response.read(_LIMIT_MODEL_LIST)
    except TransportError as error:
        advice = "check base_url and your network connection"
        if provider.protocol == "ollama" and is_loopback(provider.origin.host):
            advice = f"start Ollama, or correct {'base_url' if variable is None else variable}"
        return Finding(name, f"{location}: {error}", advice)
    except KeyCommandError as error:
        return Finding(name, f"{location}: {error}", "run it in a terminal to see its errors")
    if status in (401, 403):
        key_setting = f"providers.{provider.name}.api_key" if variable is None else variable
        advice = f"set {key_setting} to a valid key" if provider.key_command is None else "run it in a terminal"
        return Finding(name, f"{location}: key rejected ({status})", advice)
    if status in (404, 405):
        return Finding(name, f"{location}: reachable, but has no model list")
    if status >= 300:
        advice = "redirects are not followed: set base_url to the final address" if status < 400 else "try again later"
        return Finding(name, f"{location}: status {status}", advice)
    caveat = " (its model list is public: the key was not checked)" if provider.protocol in _PUBLIC_MODEL_LISTS else ""
    detail = f"{location}: reachable{caveat if provider.has_key else ''}"
    if provider.protocol == "ollama":
        detail += await _describe_ollama(provider, listing, transport, timeout)
    return Finding(name, detail)


def _describe_key(provider: Provider, variable: str | None) -> str:
    """Return where the key of a provider comes from."""
    if provider.key_command is not None:
        return f"key from the command {provider.key_command.program!r}"
    if provider.client_credential is not None:
        return f"key of the client, from the header {provider.client_credential!r}"
    return "without a key" if provider.api_key is None else f"key from {variable or 'the configuration'}"


async def _describe_ollama(provider: Provider, listing: bytes, transport: Transport, timeout: float) -> str:
    """Return what the default model of an Ollama server supports, and how its context size is chosen."""
    model = provider.default_model or next(iter(read_list("ollama", listing) or ()), None)
    if model is None:
        return ", no models installed"
    data = await fetch_entry(transport, provider, model, timeout)
    if data is None:
        return f", but does not describe {model}: requests are sent without think and num_ctx"
    info, setting = read_entry("ollama", data), provider.num_ctx or "auto"
    features = [name for name in ("tools", "vision") if getattr(info, name)]
    features += ["thinking"] if info.thinking == "optional" else []
    context = "of unknown size" if info.context is None else f"of {info.context} tokens"
    return f"; {model}: context {context} (num_ctx = {setting}), {', '.join(features) or 'no tools'}"
