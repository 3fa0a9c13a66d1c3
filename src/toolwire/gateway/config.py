"""`toolwire.toml`: its sections, and reading it with `env:NAME` values resolved.

An invalid or unknown key raises `ConfigError`, which names the key.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.canonical.computer import ACTION_KINDS
from toolwire.canonical.errors import Strictness, ToolwireError
from toolwire.codec.hosts.custom import HostTables, UnknownHost
from toolwire.codec.hosts.profile import EFFORTS, HostProfile
from toolwire.codec.hosts.registry import PROFILED_PROTOCOLS
from toolwire.codec.models.info import ModelInfo
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.mcp.config import McpConfigError, McpSection, check_servers
from toolwire.runtime.mcp.config import McpServerConfig as McpServer
from toolwire.runtime.policy import PolicyError, Verdict, parse_rule
from toolwire.runtime.tools.browser.network_policy import parse_allowed_host
from toolwire.translation.stages.tool_call_parsers.registry import check_parser_names
from toolwire.upstream.address import InvalidAddress, resolve_base_url
from toolwire.upstream.provider import ContextSize, Provider, parse_origin, recognize_url

_ENV_PREFIX = "env:"
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$(.*)`)?")
_ERROR_WITH_PATH = re.compile(r"(.*) - at `\$(.*)`")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_URL_PATH = re.compile(r"/[\x21-\x7e]*")


class ConfigError(ToolwireError):
    """An invalid configuration; the message names the key."""


class Section(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A table of `toolwire.toml`; unknown keys are errors."""


_Section = TypeVar("_Section", bound=Section | McpServer | ModelInfo)


class ServerSection(Section, frozen=True, kw_only=True):
    """`[server]`: the listening address, keys, and allowed hosts and origins."""

    host: str = "127.0.0.1"
    port: int = 4000
    keys: tuple[str, ...] = ()
    seal_keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()


class ProviderSection(Section, frozen=True, kw_only=True):
    """`[providers.NAME]`: an upstream API, its credentials and its models."""

    protocol: str
    base_url: str = ""
    api_key: str | None = None
    timeout: float = 600
    connect_timeout: float = 10
    first_byte_timeout: float | None = None
    headers: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    path: str | None = None
    models: tuple[str, ...] = ()
    default_model: str | None = None
    host: str | None = None
    region: str | None = None
    project: str | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    num_ctx: ContextSize | None = None
    tool_calling: Literal["native", "prompt", "auto"] = "auto"


class BackendSection(Section, frozen=True, kw_only=True):
    """An entry of `backends` of a route: a provider, the model's name there, and its share of the requests."""

    provider: str
    model: str | None = None
    weight: float = 1
    timeout: float | None = None
    context: int | None = None


class RouteSection(Section, frozen=True, kw_only=True):
    """`[[routes]]`: the backends and options for matching model names; the first match wins."""

    match: str = "*"
    backends: tuple[BackendSection, ...] = ()
    provider: str | None = None
    providers: tuple[str, ...] = ()
    model: str | None = None
    balance: Literal["order", "weight"] = "order"
    retry_invalid_calls: int = 0
    strict: Strictness = False
    repair: bool = True
    hosted_tools: Literal["drop", "function", "refuse"] = "drop"
    binary_results: Literal["native", "summary"] = "native"
    tools: tuple[str, ...] = ()
    tool_calls: Literal["hidden", "shown"] = "hidden"
    search_above: int = 40
    cache: Literal["auto", "off"] = "auto"
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    num_ctx: ContextSize | None = None
    tool_calling: Literal["native", "prompt", "auto"] | None = None

    @property
    def backend_sections(self) -> tuple[BackendSection, ...]:
        """Return the backends in order, whichever of the three forms lists them."""
        names = self.providers or (() if self.provider is None else (self.provider,))
        return self.backends or tuple([BackendSection(provider=name) for name in names])


class LimitsSection(Section, frozen=True, kw_only=True):
    """`[limits]`: sizes in bytes, times in seconds."""

    head: int = 64 * 1024
    body: int = 32 * 1024 * 1024
    bodies: int = 256 * 1024 * 1024
    messages: int = 100_000
    parts: int = 200_000
    tools: int = 10_000
    losses: int = 10_000
    values: int = 1_000_000
    answer: int = 64 * 1024 * 1024
    stream: int = 256 * 1024 * 1024
    streams: int = 1000
    receive: float = 60
    send: float = 60
    retries: int = 2
    failures: int = 5
    cooldown: float = 30
    heartbeat: float = 15
    exchanges: int = 10_000
    history: int = 64 * 1024 * 1024
    pauses: int = 5
    rounds: int = 25
    sockets: int = 1000
    socket_time: float = 3600
    key_share: float = 0.5
    connections: int | None = None


class StateSection(Section, frozen=True, kw_only=True):
    """`[state]`: the store of responses and conversations; sizes in bytes, `ttl` in seconds."""

    path: str | None = None
    ttl: float = 30 * 24 * 3600
    rows: int = 100_000
    bytes: int = 1024 * 1024 * 1024
    queue: int = 64 * 1024 * 1024


class JournalSection(Section, frozen=True, kw_only=True):
    """`[journal]`: the record of exchanges; sizes in bytes."""

    enabled: bool = False
    path: str | None = None
    bodies: bool = False
    days: float = 30
    size: int = 256 * 1024 * 1024
    queue: int = 64 * 1024 * 1024


class PolicySection(Section, frozen=True, kw_only=True):
    """`[policy]`: the tool calls an agent may make, as rules for `parse_rule`."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @property
    def rules_by_verdict(self) -> dict[Verdict, tuple[str, ...]]:
        """Return the rules (as text) of each verdict."""
        return {"allow": self.allow, "ask": self.ask, "deny": self.deny}


class SearchSection(Section, frozen=True, kw_only=True):
    """`[search]`: a web search service that answers in JSON, and the names of its result fields."""

    url: str | None = None
    api_key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    results: str = "results"
    title: str = "title"
    link: str = "url"
    text: str = "content"
    timeout: float = 20


class ToolsSection(Section, frozen=True, kw_only=True):
    """`[tools]`: access of the built-in tools beyond the workspace, and files hidden within it.

    Without `sandbox`, commands run with all rights of the user.
    """

    network: bool = False
    sandbox: bool = True
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    fetchable: tuple[str, ...] = ()


class BrowserSection(Section, frozen=True, kw_only=True):
    """`[browser]`: the agent's browser: allowed hosts, screen size in CSS pixels, and redaction."""

    chromium: str | None = None
    hosts: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    width: int = 1280
    height: int = 800
    scale: float = 1.0
    headless: bool = True
    actions: tuple[str, ...] = ()
    sensitive: str | None = None
    redact: tuple[str, ...] = ()
    redact_areas: tuple[tuple[int, int, int, int], ...] = ()


class SimulatorSection(Section, frozen=True, kw_only=True):
    """`[simulator]`: the built-in model, used if no provider is configured."""

    script: str | None = None
    pace: float = 0


class Config(Section, frozen=True, kw_only=True):
    """All of `toolwire.toml`."""

    server: ServerSection = ServerSection()
    providers: dict[str, ProviderSection] = field(default_factory=dict)
    models: dict[str, ModelInfo] = field(default_factory=dict)
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    routes: tuple[RouteSection, ...] = ()
    limits: LimitsSection = LimitsSection()
    journal: JournalSection = JournalSection()
    state: StateSection = StateSection()
    policy: PolicySection = PolicySection()
    tools: ToolsSection = ToolsSection()
    search: SearchSection = SearchSection()
    browser: BrowserSection = BrowserSection()
    simulator: SimulatorSection = SimulatorSection()
    mcp: McpSection = McpSection()


def read_config(path: Path, environment: Mapping[str, str] = os.environ) -> Config:
    """Read a configuration file; errors name the file and the key."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
    try:
        return parse_config(text, environment)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def key_variables(path: Path) -> dict[str, str]:
    """Return, by provider, the environment variable of its `api_key`, for providers that use `env:`."""
    providers = tomllib.loads(path.read_text(encoding="utf-8")).get("providers", {})
    keys = {name: str(table.get("api_key", "")) for name, table in providers.items()}
    return {name: key.removeprefix(_ENV_PREFIX) for name, key in keys.items() if key.startswith(_ENV_PREFIX)}


def override_server(config: Config, host: str | None, port: int | None) -> Config:
    """Return the configuration with another host or port, each unless it is None."""
    server = config.server
    server = replace(server, host=server.host if host is None else host, port=server.port if port is None else port)
    return replace(config, server=server)


def override_journal(config: Config, *, record: bool, bodies: bool) -> Config:
    """Return the configuration with the journal on, and bodies in it, where these say so."""
    journal = config.journal
    enabled, with_bodies = journal.enabled or record or bodies, journal.bodies or bodies
    return replace(config, journal=replace(journal, enabled=enabled, bodies=with_bodies))


def parse_config(text: str, environment: Mapping[str, str]) -> Config:
    """Parse and validate the text of a configuration file."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(error)) from None
    resolved = _resolve_environment(tree, "", environment)
    if isinstance(providers := resolved.get("providers"), dict):
        for name, table in providers.items():
            _convert_section(table, ProviderSection, f"providers.{name}")
    if isinstance(models := resolved.get("models"), dict):
        for name, table in models.items():
            _check_model(_convert_section(table, ModelInfo, f"models.{name}"), f"models.{name}")
    if isinstance(mcp := resolved.get("mcp"), dict) and isinstance(servers := mcp.get("servers"), dict):
        for name, table in servers.items():
            _convert_section(table, McpServer, f"mcp.servers.{name}")
    config = _convert_section(resolved, Config, "")
    _check_config(config)
    try:
        check_servers(config.mcp)
    except McpConfigError as error:
        raise ConfigError(str(error)) from None
    return config


def _convert_section(table: Any, kind: type[_Section], location: str) -> _Section:
    """Return a table as a section of this type; error messages start with its location, a dotted key."""
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(_describe_error(str(error), location)) from None


def _resolve_environment(value: Any, location: str, environment: Mapping[str, str]) -> Any:
    """Return the value with each `env:NAME` in it replaced by that environment variable."""
    if isinstance(value, dict):
        return {
            key: _resolve_environment(inner, f"{location}.{key}" if location else key, environment)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_resolve_environment(inner, f"{location}[{index}]", environment) for index, inner in enumerate(value)]
    if isinstance(value, str) and value.startswith(_ENV_PREFIX):
        name = value.removeprefix(_ENV_PREFIX)
        variable = environment.get(name)
        if not variable:
            raise ConfigError(f"{location}: environment variable {name} is not set")
        return variable
    return value


def _describe_error(message: str, location: str) -> str:
    """Return a msgspec error message reworded, with the configuration key first."""
    if (unknown := _UNKNOWN_FIELD.fullmatch(message)) is not None:
        return f"unknown key {_join_key(location, unknown[2] or '', unknown[1])}"
    match = _ERROR_WITH_PATH.fullmatch(message)
    problem, path = (message, "") if match is None else (match[1], match[2])
    return f"{_join_key(location, path)}: {problem[0].lower()}{problem[1:]}"


def _join_key(*parts: str) -> str:
    """Join the parts of a dotted key, leaving out empty ones."""
    return ".".join(stripped for part in parts if (stripped := part.strip(".")))


def _check_config(config: Config) -> None:
    """Raise `ConfigError` for values that break rules which the types can't express."""
    for name in config.hosts:
        for protocol in PROFILED_PROTOCOLS:
            _host_profile(config, name, protocol, f"hosts.{name}")
    for name, section in config.providers.items():
        _check_provider(section, f"providers.{name}")
        _check_address(config, section, f"providers.{name}")
    _check_routes(config)
    for index, key in enumerate(config.server.keys):
        if len(key) < 8:
            raise ConfigError(f"server.keys[{index}]: must have at least 8 characters")
    if config.limits.connections is not None and config.limits.connections < 1:
        raise ConfigError("limits.connections: must be greater than 0")
    if config.limits.failures < 1:
        raise ConfigError("limits.failures: must be greater than 0")
    if not 0 < config.limits.key_share <= 1:
        raise ConfigError("limits.key_share: must be greater than 0 and at most 1")
    for name in ("days", "size", "queue"):
        if getattr(config.journal, name) <= 0:
            raise ConfigError(f"journal.{name}: must be greater than 0")
    _check_runtime(config)


def _check_provider(section: ProviderSection, location: str) -> None:
    """Raise `ConfigError` for an invalid protocol, address or credential of one provider."""
    if section.protocol not in PROTOCOLS:
        raise ConfigError(
            f"{location}.protocol: unknown protocol {section.protocol!r}; expected one of {', '.join(PROTOCOLS)}"
        )
    try:
        if section.base_url:
            parse_origin(section.base_url)
    except ValueError as error:
        raise ConfigError(f"{location}.base_url: {error}") from None
    for header, value in section.headers.items():
        if not _HEADER_NAME.fullmatch(header) or "\n" in value or "\r" in value:
            raise ConfigError(f"{location}.headers.{header}: not a valid header")
    if section.host is not None and section.protocol not in PROFILED_PROTOCOLS:
        expected = ", ".join(PROFILED_PROTOCOLS)
        raise ConfigError(f"{location}.host: only valid for {expected}, not {section.protocol}")
    if section.path is not None and not _URL_PATH.fullmatch(section.path):
        raise ConfigError(
            f"{location}.path: invalid path {section.path!r}: start with '/' and percent-encode special characters"
        )
    _check_parsers(section, location)
    _check_context_size(section, location)
    if section.api_key is not None and not section.api_key.isprintable():
        raise ConfigError(f"{location}.api_key: contains characters that are not allowed in a header")


def _check_address(config: Config, section: ProviderSection, location: str) -> None:
    """Raise `ConfigError` for an unknown host, or a missing or invalid base URL, region or project."""
    if section.host is not None:
        _host_profile(config, section.host, section.protocol, f"{location}.host")
    try:
        _locate_provider(section, HostTables(config.hosts))
    except InvalidAddress as error:
        raise ConfigError(f"{location}.{error}") from None


def _host_profile(config: Config, name: str, protocol: str, location: str) -> HostProfile:
    """Return the profile of a host by its name; raise `ConfigError` if there is none or its table is invalid."""
    tables = HostTables(config.hosts)
    try:
        return tables.profile(name, protocol)
    except UnknownHost as error:
        expected = ", ".join(tables.names)
        raise ConfigError(f"{location}: unknown host {str(error)!r}; expected one of {expected}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(_describe_error(str(error), f"hosts.{name}")) from None


def _check_parsers(section: ProviderSection | RouteSection, location: str) -> None:
    """Raise `ConfigError` for an unknown parser of calls or reasoning in text."""
    try:
        check_parser_names(section.tool_call_parser or "auto", section.reasoning_parser or "auto")
    except ValueError as error:
        raise ConfigError(f"{location}: {error}") from None


def _check_context_size(section: ProviderSection | RouteSection, location: str) -> None:
    """Raise `ConfigError` for a context size that no model has."""
    if isinstance(section.num_ctx, int) and section.num_ctx < 1:
        raise ConfigError(f"{location}.num_ctx: must be greater than 0")


def _check_model(info: ModelInfo, location: str) -> None:
    """Raise `ConfigError` for facts about a model that can't be true."""
    for name in ("context", "output"):
        if (limit := getattr(info, name)) is not None and limit < 1:
            raise ConfigError(f"{location}.{name}: must be greater than 0")
    for index, effort in enumerate(info.efforts or ()):
        if effort not in EFFORTS:
            raise ConfigError(
                f"{location}.efforts[{index}]: unknown effort {effort!r}; expected one of {', '.join(EFFORTS)}"
            )
    if info.budget and (len(info.budget) != 2 or not 0 < info.budget[0] <= info.budget[1]):
        raise ConfigError(f"{location}.budget: expected the least and the greatest budget, or an empty list")


def _check_routes(config: Config) -> None:
    """Raise `ConfigError` for a route that names a missing provider or MCP server."""
    for index, route in enumerate(config.routes):
        location = f"routes[{index}]"
        _check_parsers(route, location)
        _check_context_size(route, location)
        _check_backends(route, location, config.providers)
        for name in route.tools:
            if name not in config.mcp.servers:
                raise ConfigError(f"{location}.tools: unknown MCP server {name!r}")


def _check_backends(route: RouteSection, location: str, providers: Mapping[str, ProviderSection]) -> None:
    """Raise `ConfigError` unless a route lists known providers in exactly one form, with valid settings."""
    forms = [name for name in ("backends", "providers", "provider") if getattr(route, name)]
    if not forms:
        raise ConfigError(f"{location}: no provider given")
    if len(forms) > 1:
        raise ConfigError(
            f"{location}.{forms[1]}: {location}.{forms[0]} lists the backends already; remove one of them"
        )
    if route.backends and route.model is not None:
        raise ConfigError(f"{location}.model: set the model of each entry in {location}.backends instead")
    for number, backend in enumerate(route.backend_sections):
        entry = f"{location}.backends[{number}]" if route.backends else location
        if backend.provider not in providers:
            raise ConfigError(f"{entry}: unknown provider {backend.provider!r}")
        if backend.weight < 0:
            raise ConfigError(f"{entry}.weight: must not be negative")
        for name in ("timeout", "context"):
            if (limit := getattr(backend, name)) is not None and limit <= 0:
                raise ConfigError(f"{entry}.{name}: must be greater than 0")
    if route.retry_invalid_calls not in (0, 1):
        raise ConfigError(f"{location}.retry_invalid_calls: must be 0 or 1")
    if route.balance == "weight" and not any(backend.weight for backend in route.backend_sections):
        raise ConfigError(f"{location}.balance: no backend has a weight greater than 0")


def _check_runtime(config: Config) -> None:
    """Raise `ConfigError` for invalid values in the sections that agents use."""
    if config.simulator.pace < 0:
        raise ConfigError("simulator.pace: must not be negative")
    search = config.search
    if search.url is not None and "{query}" not in search.url:
        raise ConfigError("search.url: must contain {query}, the placeholder for the search words")
    if search.api_key is not None and "{key}" not in (search.url or ""):
        raise ConfigError(
            "search.api_key: search.url has no {key} placeholder; add it, or pass the key in search.headers"
        )
    for verdict, texts in config.policy.rules_by_verdict.items():
        for index, text in enumerate(texts):
            try:
                parse_rule(verdict, text)
            except PolicyError as error:
                raise ConfigError(f"policy.{verdict}[{index}]: {error}") from None
    _check_browser(config.browser)


def _check_browser(section: BrowserSection) -> None:
    """Raise `ConfigError` for invalid hosts, sizes, actions or patterns in `[browser]`."""
    for name in ("hosts", "resources", "private"):
        for index, text in enumerate(getattr(section, name)):
            try:
                parse_allowed_host(text)
            except ValueError as error:
                raise ConfigError(f"browser.{name}[{index}]: {error}") from None
    for name in ("width", "height", "scale"):
        if getattr(section, name) <= 0:
            raise ConfigError(f"browser.{name}: must be greater than 0")
    for index, kind in enumerate(section.actions):
        if kind not in ACTION_KINDS:
            raise ConfigError(
                f"browser.actions[{index}]: unknown action {kind!r}; expected one of {', '.join(ACTION_KINDS)}"
            )
    try:
        re.compile(section.sensitive or "")
    except re.error as error:
        raise ConfigError(f"browser.sensitive: invalid regular expression: {error}") from None


def build_providers(config: Config) -> dict[str, Provider]:
    """Build the configured providers, by name."""
    return {name: _build_provider(name, section, config.hosts) for name, section in config.providers.items()}


def _build_provider(name: str, section: ProviderSection, hosts: Mapping[str, dict[str, Any]]) -> Provider:
    """Build the provider that a section configures."""
    host, base_url = _locate_provider(section, HostTables(hosts))
    return Provider(name=name, **msgspec.structs.asdict(section) | {"host": host, "base_url": base_url})


def _locate_provider(section: ProviderSection, tables: HostTables) -> tuple[HostProfile | None, str]:
    """Return the profile of a provider's host, if the configuration decides it, and the base URL."""
    host, protocol = None, section.protocol
    if section.host is not None:
        host = tables.profile(section.host, protocol)
    elif section.base_url:
        origin, path = parse_origin(section.base_url), urlsplit(section.base_url).path
        host = tables.recognize(origin.host, origin.port, path, protocol)
    known = host or (recognize_url(section.base_url, protocol) if section.base_url else None)
    return host, resolve_base_url(known, section.base_url, section.region, section.project)


def state_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory for state files: `$XDG_STATE_HOME/toolwire` or `~/.local/state/toolwire`."""
    base = environment.get("XDG_STATE_HOME") or str(
        Path(environment.get("HOME", "~")).expanduser() / ".local" / "state"
    )
    return Path(base) / "toolwire"


_SECRET_NAME = re.compile("key|token|secret|password|credential", re.IGNORECASE)
"""Names of environment variables whose values are redacted; others hold common words."""


def journal_path(config: Config, environment: Mapping[str, str]) -> Path:
    """Return the path of the journal's database."""
    path = config.journal.path
    return state_directory(environment) / "journal.db" if path is None else Path(path).expanduser()


def configured_secrets(config: Config, providers: Iterable[Provider]) -> Iterator[str]:
    """Yield every configured key, token and credential, for redaction."""
    yield from (*config.server.keys, *config.server.seal_keys)
    yield from (config.search.api_key or "", *config.search.headers.values())
    for server in config.mcp.servers.values():
        yield from (server.oauth.client_secret or "", *server.headers.values())
        yield from (value for name, value in server.env.items() if _SECRET_NAME.search(name))
    for provider in providers:
        yield from (provider.api_key or "", *provider.headers.values(), *provider.query.values())
