"""Checks of values that the types of the configuration can't express."""

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from toolwire.canonical.computer import ACTION_KINDS
from toolwire.codec.env_references import describe_unset, variable_name
from toolwire.codec.hosts.custom import HostTables, UnknownHost
from toolwire.codec.hosts.profile import EFFORTS, HostProfile
from toolwire.codec.hosts.registry import PROFILED_PROTOCOLS
from toolwire.codec.models.info import ModelInfo
from toolwire.codec.suggestions import suggest
from toolwire.gateway.config.aliases import resolve_aliases
from toolwire.gateway.config.errors import KeyProblem, format_key
from toolwire.gateway.config.positions import KeyPath
from toolwire.gateway.config.sections import (
    BrowserSection,
    Config,
    KeyCommandSection,
    ProviderSection,
    RouteSection,
    SearchSection,
    StateSection,
)
from toolwire.gateway.config.type_checks import find_problems
from toolwire.installation import has_extra, missing_extra_message
from toolwire.journal.postgres import is_postgres_url
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.mcp.config import McpConfigError, check_servers
from toolwire.runtime.policy import PolicyError, parse_rule
from toolwire.runtime.tools.browser.network_policy import parse_allowed_host
from toolwire.translation.stages.tool_call_parsers.registry import check_parser_names
from toolwire.upstream.address import InvalidAddress, resolve_base_url
from toolwire.upstream.network import DIRECT, NetworkSettings, parse_proxy
from toolwire.upstream.provider import parse_origin, recognize_url

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_RESERVED_HEADERS = ("host", "connection", "content-length", "content-type", "cookie", "transfer-encoding")
_SECRET_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_URL_PATH = re.compile(r"/[\x21-\x7e]*")


def check_config(config: Config) -> None:
    """Raise `KeyProblem` for values that break rules which the types can't express."""
    for name in config.hosts:
        for protocol in PROFILED_PROTOCOLS:
            _host_profile(config, name, protocol, ("hosts", name))
    for name, section in config.providers.items():
        _check_protocol(section, ("providers", name))
        # With a variable that is not set, the provider can't be used, and its settings can't be checked.
        if describe_unset(msgspec.to_builtins(section)) is None:
            _check_provider(section, ("providers", name))
            _check_address(config, section, ("providers", name))
    _check_client_credentials(config.providers)
    for name, info in config.models.items():
        _check_model(info, ("models", name))
    resolve_aliases(config.aliases)
    _check_routes(config)
    for index, key in enumerate(config.server.keys):
        if len(key) < 8:
            raise KeyProblem(("server", "keys", index), "must have at least 8 characters")
    _check_keys(config)
    _check_state(config.state)
    _check_runtime(config)
    try:
        check_servers(config.mcp)
    except McpConfigError as error:
        raise KeyProblem(error.path, error.problem) from None


def _check_keys(config: Config) -> None:
    """Raise `KeyProblem` for a hash that no secret can have, or that two keys share."""
    names: dict[str, str] = {}
    for name, section in config.keys.items():
        path: KeyPath = ("keys", name, "hash")
        if not _SECRET_HASH.fullmatch(section.hash):
            raise KeyProblem(path, "expected sha256: and 64 hexadecimal digits, as `toolwire keys create` prints them")
        if (other := names.setdefault(section.hash, name)) != name:
            raise KeyProblem(path, f"keys.{other} has the same secret; create another one")


def _check_state(section: StateSection) -> None:
    """Raise `KeyProblem` for a database URL that is not one of PostgreSQL, or stands beside a path."""
    if section.url is None:
        return
    if not is_postgres_url(section.url):
        raise KeyProblem(("state", "url"), "must be a PostgreSQL URL: postgresql://USER:PASSWORD@HOST/DATABASE")
    if section.path is not None:
        raise KeyProblem(("state", "path"), "can't be combined with state.url: remove one of them")
    if not has_extra("postgres"):
        raise KeyProblem(("state", "url"), missing_extra_message("postgres", "a PostgreSQL database"))


def _check_protocol(section: ProviderSection, path: KeyPath) -> None:
    """Raise `KeyProblem` for an unknown protocol of a provider."""
    if section.protocol not in PROTOCOLS:
        problem = f"{_unknown_message('protocol', section.protocol, PROTOCOLS)}; expected one of {', '.join(PROTOCOLS)}"
        raise KeyProblem((*path, "protocol"), problem)


def _check_provider(section: ProviderSection, path: KeyPath) -> None:
    """Raise `KeyProblem` for an invalid address or credential of one provider."""
    try:
        if section.base_url:
            parse_origin(section.base_url)
    except ValueError as error:
        raise KeyProblem((*path, "base_url"), str(error)) from None
    for header, value in section.headers.items():
        if not _HEADER_NAME.fullmatch(header) or "\n" in value or "\r" in value:
            raise KeyProblem((*path, "headers", header), "not a valid header")
    if section.host is not None and section.protocol not in PROFILED_PROTOCOLS:
        expected = ", ".join(PROFILED_PROTOCOLS)
        raise KeyProblem((*path, "host"), f"only valid for {expected}, not {section.protocol}")
    if section.path is not None and not _URL_PATH.fullmatch(section.path):
        problem = f"invalid path {section.path!r}: start with '/' and percent-encode special characters"
        raise KeyProblem((*path, "path"), problem)
    _check_parsers(section, path)
    _check_network(section, path)
    if isinstance(section.api_key, str) and not section.api_key.isprintable():
        raise KeyProblem((*path, "api_key"), "contains characters that are not allowed in a header")
    if isinstance(section.api_key, KeyCommandSection) and not "".join(section.api_key.command[:1]):
        raise KeyProblem((*path, "api_key", "command"), 'expected a program and its arguments: ["PROGRAM", "ARGUMENT"]')


def _check_client_credentials(providers: Mapping[str, ProviderSection]) -> None:
    """Raise `KeyProblem` for a header of client credentials that is unusable, or that could reach another provider."""
    owners: dict[str, tuple[str, object]] = {}
    for name, section in providers.items():
        header, path = section.client_credential, ("providers", name, "client_credential")
        if header is None:
            continue
        if not _HEADER_NAME.fullmatch(header) or header in _RESERVED_HEADERS or header != header.lower():
            raise KeyProblem(path, f"{header!r} can't carry a key: use authorization, or a name such as x-{name}-key")
        if section.api_key is not None:
            raise KeyProblem(path, "can't be combined with api_key: remove one of them")
        if "authorization" in map(str.lower, section.headers):
            raise KeyProblem(path, f"providers.{name}.headers sets authorization already; remove one of them")
        has_origin = section.base_url and variable_name(section.base_url) is None
        origin = parse_origin(section.base_url) if has_origin else section.base_url
        address = (origin, section.host, section.region)
        owner, other = owners.setdefault(header, (name, address))
        if other != address:
            problem = (
                f"providers.{owner} has another address and takes the same header, so it would get these keys, too"
            )
            raise KeyProblem(path, f"{problem}: use another header, such as x-{name}-key")


def _check_network(section: ProviderSection, path: KeyPath) -> None:
    """Raise `KeyProblem` for an invalid proxy, or a file of certificates that can't be read."""
    if section.proxy not in (None, DIRECT) and variable_name(section.proxy) is None:
        try:
            parse_proxy(section.proxy)
        except ValueError as error:
            raise KeyProblem((*path, "proxy"), str(error)) from None
    if section.client_key is not None and section.client_cert is None:
        raise KeyProblem((*path, "client_key"), "needs client_cert")
    for name in ("ca_file", "client_cert"):
        if (file := getattr(section, name)) is None or variable_name(file) is not None:
            continue
        settings = NetworkSettings(**{name: file}, client_key=section.client_key if name == "client_cert" else None)
        try:
            settings.tls_context()
        except OSError as error:
            raise KeyProblem((*path, name), f"{file}: {error.strerror or error}") from None


def _check_address(config: Config, section: ProviderSection, path: KeyPath) -> None:
    """Raise `KeyProblem` for an unknown host, or a missing or invalid base URL, region or project."""
    if section.host is not None:
        _host_profile(config, section.host, section.protocol, (*path, "host"))
    try:
        locate_provider(section, HostTables(config.hosts))
    except InvalidAddress as error:
        key, _, problem = str(error).partition(": ")
        raise KeyProblem((*path, key), problem) from None


def locate_provider(section: ProviderSection, tables: HostTables) -> tuple[HostProfile | None, str]:
    """Return the profile of a provider's host, if the configuration decides it, and the base URL."""
    host, protocol = None, section.protocol
    if section.host is not None:
        host = tables.profile(section.host, protocol)
    elif section.base_url:
        origin, path = parse_origin(section.base_url), urlsplit(section.base_url).path
        host = tables.recognize(origin.host, origin.port, path, protocol)
    known = host or (recognize_url(section.base_url, protocol) if section.base_url else None)
    return host, resolve_base_url(known, section.base_url, section.region, section.project)


def _host_profile(config: Config, name: str, protocol: str, path: KeyPath) -> HostProfile:
    """Return the profile of a host by its name; raise `KeyProblem` if there is none or its table is invalid."""
    tables = HostTables(config.hosts)
    try:
        return tables.profile(name, protocol)
    except UnknownHost as error:
        hint = suggest(str(error), tables.names, f"expected one of {', '.join(tables.names)}")
        raise KeyProblem(path, f"unknown host {str(error)!r} ({hint})") from None
    except msgspec.ValidationError as error:
        table = config.hosts[name] | {"name": name}
        table.pop("extends", None)
        problems = find_problems(table, msgspec.inspect.type_info(HostProfile), ("hosts", name))
        problem, _, key = str(error).partition(" - at `$.")
        raise next(problems, KeyProblem(("hosts", name, *filter(None, [key.rstrip("`")])), problem)) from None


def _check_parsers(section: ProviderSection | RouteSection, path: KeyPath) -> None:
    """Raise `KeyProblem` for an unknown parser of calls or reasoning in text."""
    parsers = (
        ("tool_call_parser", section.tool_call_parser, "auto"),
        ("reasoning_parser", "auto", section.reasoning_parser),
    )
    for key, tool_calls, reasoning in parsers:
        try:
            check_parser_names(tool_calls or "auto", reasoning or "auto")
        except ValueError as error:
            raise KeyProblem((*path, key), str(error)) from None


def _check_model(info: ModelInfo, path: KeyPath) -> None:
    """Raise `KeyProblem` for facts about a model that can't be true."""
    for name in ("context", "output"):
        if (limit := getattr(info, name)) is not None and limit < 1:
            raise KeyProblem((*path, name), "must be greater than 0")
    for index, effort in enumerate(info.efforts or ()):
        if effort not in EFFORTS:
            problem = f"unknown effort {effort!r}; expected one of {', '.join(EFFORTS)}"
            raise KeyProblem((*path, "efforts", index), problem)
    if info.budget and (len(info.budget) != 2 or not 0 < info.budget[0] <= info.budget[1]):
        raise KeyProblem((*path, "budget"), "expected the least and the greatest budget, or an empty list")


def _check_routes(config: Config) -> None:
    """Raise `KeyProblem` for a route that names a missing provider or MCP server, or the name of an alias."""
    for index, route in enumerate(config.routes):
        path = ("routes", index)
        _check_parsers(route, path)
        _check_backends(route, path, config)
        if route.match in config.aliases:
            raise KeyProblem((*path, "match"), f"{route.match!r} is also an alias; rename one of them")
        for number, name in enumerate(route.tools):
            if name not in config.mcp.servers:
                raise KeyProblem((*path, "tools", number), _unknown_message("MCP server", name, config.mcp.servers))


def _unknown_message(noun: str, name: str, known: Mapping[str, Any]) -> str:
    """Return the message for a name that the configuration doesn't define, with the nearest ones."""
    hint = suggest(name, known)
    return f"unknown {noun} {name!r}{hint and f' ({hint})'}"


def _check_backends(route: RouteSection, path: KeyPath, config: Config) -> None:
    """Raise `KeyProblem` unless a route lists known providers in exactly one form, with valid settings."""
    location = format_key(path)
    forms = [name for name in ("backends", "providers", "provider") if getattr(route, name)]
    if not forms:
        raise KeyProblem(path, "no provider given", at_key=True)
    if len(forms) > 1:
        problem = f"{location}.{forms[0]} lists the backends already; remove one of them"
        raise KeyProblem((*path, forms[1]), problem, at_key=True)
    if route.backends and route.model is not None:
        raise KeyProblem((*path, "model"), f"set the model of each entry in {location}.backends instead", at_key=True)
    for number, backend in enumerate(route.backend_sections):
        key: KeyPath = (forms[0], number) if forms[0] != "provider" else ("provider",)
        provider: KeyPath = (*path, *key, "provider") if route.backends else (*path, *key)
        if backend.provider not in config.providers:
            raise KeyProblem(provider, _unknown_message("provider", backend.provider, config.providers))
    if route.balance == "weight" and not any(backend.weight for backend in route.backend_sections):
        raise KeyProblem((*path, "balance"), "no backend has a weight greater than 0")


def _check_runtime(config: Config) -> None:
    """Raise `KeyProblem` for invalid values in the sections that agents use."""
    if describe_unset(msgspec.structs.asdict(config.search)) is None:
        _check_search(config.search)
    for verdict, texts in config.policy.rules_by_verdict.items():
        for index, text in enumerate(texts):
            try:
                parse_rule(verdict, text)
            except PolicyError as error:
                raise KeyProblem(("policy", verdict, index), str(error)) from None
    _check_browser(config.browser)


def _check_search(search: SearchSection) -> None:
    """Raise `KeyProblem` for a search URL without the placeholders that it needs."""
    if search.url is not None and "{query}" not in search.url:
        raise KeyProblem(("search", "url"), "must contain {query}, the placeholder for the search words")
    if search.api_key is not None and "{key}" not in (search.url or ""):
        problem = "search.url has no {key} placeholder; add it, or pass the key in search.headers"
        raise KeyProblem(("search", "api_key"), problem)


def _check_browser(section: BrowserSection) -> None:
    """Raise `KeyProblem` for invalid hosts, actions or patterns in `[browser]`."""
    for name in ("hosts", "resources", "private"):
        _check_each(("browser", name), getattr(section, name), parse_allowed_host)
    for index, kind in enumerate(section.actions):
        if kind not in ACTION_KINDS:
            problem = f"unknown action {kind!r}; expected one of {', '.join(ACTION_KINDS)}"
            raise KeyProblem(("browser", "actions", index), problem)
    try:
        re.compile(section.sensitive or "")
    except re.error as error:
        raise KeyProblem(("browser", "sensitive"), f"invalid regular expression: {error}") from None


def _check_each(path: KeyPath, texts: tuple[str, ...], parse: Callable[[str], object]) -> None:
    """Raise `KeyProblem` for the first text of an array that can't be parsed."""
    for index, text in enumerate(texts):
        try:
            parse(text)
        except ValueError as error:
            raise KeyProblem((*path, index), str(error)) from None
