"""What would keep the gateway from working: who may ask it, its files, and whether each provider answers to its key."""

import asyncio
from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from toolwire.gateway.config import Config, ServerSection, build_provider, journal_path
from toolwire.gateway.providers.discovery import KEY_VARIABLES, discover_providers
from toolwire.gateway.server.auth import is_loopback
from toolwire.gateway.state.store import STATE_SCHEMA as STATE
from toolwire.gateway.state.store import state_path
from toolwire.journal.runs import SCHEMA as RUNS
from toolwire.journal.sqlite_files import DatabaseUnusable, inspect_database
from toolwire.journal.store import SCHEMA as JOURNAL
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Transport, TransportError, request_head

LIMIT_RESPONSE = 16 * 1024 * 1024
_MODEL_LIST_PATHS = {
    "anthropic": "/v1/models",
    "openai-chat": "/v1/models",
    "openai-responses": "/v1/models",
    "gemini": "/v1beta/models",
    "gemini-interactions": "/v1beta/models",
    "ollama": "/api/tags",
    "openrouter": "/api/v1/models",
}
# Their lists of models are public, so that an answer says nothing of the key.
_PUBLIC_MODEL_LISTS = ("openrouter", "ollama")


class Finding(Struct, frozen=True):
    """How one thing is; `advice`, what to do about it, if something is wrong."""

    subject: str
    detail: str
    advice: str = ""

    @property
    def is_ok(self) -> bool:
        return not self.advice

    def __str__(self) -> str:
        return (
            f"{'ok' if self.is_ok else 'problem':8} {self.subject}: {self.detail}{self.advice and f'; {self.advice}'}"
        )


async def diagnose(
    config: Config, variables: Mapping[str, str], environment: Mapping[str, str], timeout: float
) -> list[Finding]:
    """Look at everything. `variables`: which one of the environment each provider's key is configured to come from."""
    found = [check_server(config.server), *check_files(config, environment)]
    providers = {name: build_provider(name, section) for name, section in config.providers.items()}
    if not providers:
        providers, variables = discover_providers(environment), KEY_VARIABLES
    if not providers:
        names = ", ".join(dict.fromkeys(KEY_VARIABLES.values()))
        found.append(Finding("providers", f"none, so that the embedded simulator answers (no {names})"))
    transport = Transport()
    try:
        checks = (_check_provider(one, variables.get(one.name), transport, timeout) for one in providers.values())
        return found + await asyncio.gather(*checks)
    finally:
        transport.close()


def check_server(server: ServerSection) -> Finding:
    if server.keys:
        return Finding("server", f"{server.host}:{server.port}, for {len(server.keys)} keys")
    if is_loopback(server.host):
        return Finding("server", f"{server.host}:{server.port}, for this machine only, without a key")
    said = f"{server.host} can be reached from outside, and there are no keys"
    return Finding("server", said, "set server.keys, or listen on 127.0.0.1")


def check_files(config: Config, environment: Mapping[str, str]) -> Iterator[Finding]:
    """The files of state, journal and runs, as far as they are there: the others are made when they are needed."""
    journal = journal_path(config, environment)
    files = [
        ("state", state_path(config.state, environment), STATE),
        ("journal", journal, JOURNAL),
        ("runs", journal.with_name("runs.db"), RUNS),
    ]
    for about, path, schema in files:
        if path.is_file():
            try:
                inspect_database(path, schema)
            except DatabaseUnusable as trouble:
                yield Finding(
                    about, f"{path}: {trouble.reason}", trouble.advice or "see who uses it, and whether it may"
                )
            else:
                yield Finding(about, str(path))


async def _check_provider(provider: Provider, variable: str | None, transport: Transport, timeout: float) -> Finding:
    """Ask for the list of models: it costs nothing."""
    key = "without a key" if provider.api_key is None else f"key from {variable or 'the configuration'}"
    about, where = provider.name, f"{provider.base_url}, {key}"
    address = replace(provider, path=None).request_target(_MODEL_LIST_PATHS[provider.protocol])
    headers = provider.request_headers(PROTOCOLS[provider.protocol].surface)
    head = request_head(provider.origin, address, headers.items(), "GET")
    try:
        answer = await transport.send(provider.origin, head, None, read_timeout=timeout, connect_timeout=timeout)
        status = answer.status
        await answer.read(LIMIT_RESPONSE)
    except TransportError as error:
        return Finding(about, f"{where}: {error}", "see whether base_url is right and the network lets it through")
    if status in (401, 403):
        named = f"providers.{about}.api_key" if variable is None else variable
        return Finding(about, f"{where}: refused the key ({status})", f"set {named} to a key that is valid there")
    if status in (404, 405):
        return Finding(about, f"{where}: answers, and has no list of models")
    if status >= 300:
        advice = "a redirect is not followed: set base_url to where it leads" if status < 400 else "try again later"
        return Finding(about, f"{where}: answered {status}", advice)
    unsure = (
        " (its list of models is for anyone: the key was not tried)" if provider.protocol in _PUBLIC_MODEL_LISTS else ""
    )
    return Finding(about, f"{where}: answers{unsure if provider.api_key else ''}")
