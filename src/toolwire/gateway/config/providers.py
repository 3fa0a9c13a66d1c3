"""The providers that a configuration defines, and the secrets in it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from toolwire.codec.env_references import describe_unset, variable_name
from toolwire.codec.hosts.custom import HostTables
from toolwire.gateway.config.checks import locate_provider
from toolwire.gateway.config.sections import Config, KeyCommandSection, ProviderSection
from toolwire.journal.redaction import Redactor
from toolwire.upstream.key_command import KeyCommand
from toolwire.upstream.provider import Provider

SECRET_NAME = re.compile("key|token|secret|password|credential", re.IGNORECASE)
"""Names of environment variables whose values are redacted; others hold common words."""


def build_providers(config: Config) -> dict[str, Provider]:
    """Build the configured providers, by name."""
    return {name: _build_provider(name, section, config.hosts) for name, section in config.providers.items()}


_UNKNOWN_URL = "http://base-url-not-set.invalid"
"""The base URL of a provider whose own one is in a variable that is not set."""


def _build_provider(name: str, section: ProviderSection, hosts: Mapping[str, dict[str, Any]]) -> Provider:
    """Build the provider that a section configures, without the settings whose variables are not set."""
    settings = msgspec.structs.asdict(section)
    if (reason := describe_unset(msgspec.to_builtins(section))) is None:
        host, base_url = locate_provider(section, HostTables(hosts))
        settings |= {"host": host, "base_url": base_url}
        if isinstance(key := section.api_key, KeyCommandSection):
            settings |= {"api_key": None, "key_command": KeyCommand(key.command, key.ttl, key.timeout)}
        return Provider(name=name, **settings)
    return Provider(
        name=name,
        protocol=section.protocol,
        base_url=_UNKNOWN_URL if variable_name(section.base_url) or not section.base_url else section.base_url,
        models=section.models,
        default_model=section.default_model,
        unavailable_reason=reason,
    )


def configured_secrets(config: Config, providers: Iterable[Provider]) -> Iterator[str]:
    """Yield every configured key, token and credential, for redaction."""
    return (secret for secret in _configured_secrets(config, providers) if variable_name(secret) is None)


def _configured_secrets(config: Config, providers: Iterable[Provider]) -> Iterator[str]:
    """Yield every value that may be a secret, or a reference to one that is not set."""
    yield from (*config.server.keys, *config.server.seal_keys)
    yield from (config.search.api_key or "", *config.search.headers.values())
    for server in config.mcp.servers.values():
        yield from (server.oauth.client_secret or "", server.oauth.private_key or "", *server.headers.values())
        yield from (value for name, value in server.env.items() if SECRET_NAME.search(name))
    for provider in providers:
        yield from (provider.api_key or "", *provider.headers.values(), *provider.query.values())
        yield urlsplit(provider.proxy or "").password or ""


def build_redactor(config: Config, providers: Iterable[Provider]) -> Redactor:
    """Build the redactor of all configured secrets, and of the keys that commands will print."""
    known = tuple(providers)
    redactor = Redactor(configured_secrets(config, known))
    for provider in known:
        if provider.key_command is not None:
            provider.key_command.observe(redactor.add_secret)
    return redactor
