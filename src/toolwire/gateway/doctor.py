"""What would keep the gateway from working: who may ask it, its files, and whether each provider answers to its key."""

import asyncio
from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from toolwire.journal.files import DatabaseUnusable, inspect_database
from toolwire.journal.runs import SCHEMA as RUNS
from toolwire.journal.store import SCHEMA as JOURNAL
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Transport, TransportError, head_of

from .auth import is_loopback
from .config import Config, ServerSection, provider_of
from .discovery import VARIABLES, discover
from .recording import journal_path
from .state.opening import state_path
from .state.sqlite import SCHEMA as STATE

LIMIT_ANSWER = 16 * 1024 * 1024
_LISTS = {
    "anthropic": "/v1/models",
    "openai-chat": "/v1/models",
    "openai-responses": "/v1/models",
    "gemini": "/v1beta/models",
    "gemini-interactions": "/v1beta/models",
    "ollama": "/api/tags",
    "openrouter": "/api/v1/models",
}
# Their lists of models are public, so that an answer says nothing of the key.
_PUBLIC = ("openrouter", "ollama")


class Finding(Struct, frozen=True):
    """How one thing is; `advice`, what to do about it, if something is wrong."""

    about: str
    said: str
    advice: str = ""

    @property
    def fine(self) -> bool:
        return not self.advice

    def __str__(self) -> str:
        return f"{'ok' if self.fine else 'problem':8} {self.about}: {self.said}{self.advice and f'; {self.advice}'}"


async def diagnose(
    config: Config, variables: Mapping[str, str], environment: Mapping[str, str], seconds: float
) -> list[Finding]:
    """Look at everything. `variables`: which one of the environment each provider's key is configured to come from."""
    found = [check_server(config.server), *check_files(config, environment)]
    providers = {name: provider_of(name, section) for name, section in config.providers.items()}
    if not providers:
        providers, variables = discover(environment), VARIABLES
    if not providers:
        names = ", ".join(dict.fromkeys(VARIABLES.values()))
        found.append(Finding("providers", f"none, so that the embedded simulator answers (no {names})"))
    transport = Transport()
    try:
        checks = (_check(one, variables.get(one.name), transport, seconds) for one in providers.values())
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
                yield Finding(about, f"{path}: {trouble.why}", trouble.advice or "see who uses it, and whether it may")
            else:
                yield Finding(about, str(path))


async def _check(provider: Provider, variable: str | None, transport: Transport, seconds: float) -> Finding:
    """Ask for the list of models: it costs nothing."""
    key = "without a key" if provider.api_key is None else f"key from {variable or 'the configuration'}"
    about, where = provider.name, f"{provider.base_url}, {key}"
    address = replace(provider, path=None).address(_LISTS[provider.protocol])
    headers = provider.own_headers(PROTOCOLS[provider.protocol].surface)
    head = head_of(provider.origin, address, headers.items(), "GET")
    try:
        answer = await transport.send(provider.origin, head, None, silence=seconds, patience=seconds)
        status = answer.status
        await answer.read(LIMIT_ANSWER)
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
    unsure = " (its list of models is for anyone: the key was not tried)" if provider.protocol in _PUBLIC else ""
    return Finding(about, f"{where}: answers{unsure if provider.api_key else ''}")
