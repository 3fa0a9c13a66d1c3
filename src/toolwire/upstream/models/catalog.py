"""The model catalog: the facts that hold for a model of a provider.

The sources, in this order, are `[models."NAME"]` of the configuration, the provider's list, and the model's name. Only
the provider has to be asked over the network. It is asked once per model, when a request first depends on a fact that
only the provider knows, and the request waits only a short time. Without an answer, the request is sent without that
fact, and the provider is not asked again for a minute.
"""

import asyncio
import time
from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.codec.hosts.ollama import NATIVE
from toolwire.codec.hosts.profile import HostProfile, ThinkingFacts
from toolwire.codec.memo import BoundedMemo, estimate_entry_size
from toolwire.codec.models.info import UNKNOWN_MODEL, ModelInfo, merge_info
from toolwire.codec.models.names import named_model
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.key_command import KeyCommandError
from toolwire.upstream.models.listings import LIMIT_NAME, model_path, preset_context, read_entry
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Transport, TransportError, request_head

ASK_TIMEOUT = 3.0
"""Seconds that a request waits for the provider's answer."""

RETRY_AFTER = 60.0
"""Seconds until a provider that did not answer is asked again."""

LIMIT_RESPONSE = 8 * 1024 * 1024
# An Ollama model that may not support thinking gets no `think`: the server would reject it.
_OLLAMA_PROFILE = replace(NATIVE, thinking=ThinkingFacts(efforts=()))


class CatalogEntry(Struct, frozen=True, kw_only=True):
    """Everything known about a model of a provider."""

    info: ModelInfo
    host: HostProfile
    version: str | None = None  # of the API, as sent in the protocol's version header
    preset_context: int | None = None  # the context size that an Ollama model sets itself
    asked_at: float | None = None  # when the provider was asked; None if it was not
    is_answered: bool = False


class ModelCatalog:
    """Facts about models, by provider and model name."""

    def __init__(self, transport: Transport, configured: Mapping[str, ModelInfo] | None = None) -> None:
        """Create a catalog; `configured` holds the user's facts by name pattern, and the first that matches wins."""
        self._transport = transport
        self._configured = dict(configured or {})
        self._entries: BoundedMemo[tuple[str, str], CatalogEntry] = BoundedMemo()
        self._pending: dict[tuple[str, str], asyncio.Task[CatalogEntry]] = {}

    def look_up(self, provider: Provider, model: str | None) -> CatalogEntry:
        """Return what is known about a model, without asking the provider."""
        key = (provider.name, model or "")
        if (entry := self._entries.get(key)) is None:
            entry = self._entry(provider, model or "")
            self._entries.put(key, entry, estimate_entry_size(*key))
        return entry

    async def ask(self, provider: Provider, model: str) -> CatalogEntry:
        """Return what is known about a model, after asking the provider unless it was asked before.

        Concurrent requests for a model share one query.
        """
        key, entry = (provider.name, model), self.look_up(provider, model)
        if not _may_ask(entry) or len(model) > LIMIT_NAME:
            return entry
        if (task := self._pending.get(key)) is None:
            task = self._pending[key] = asyncio.create_task(self._ask(provider, model, entry))
            task.add_done_callback(lambda _: self._pending.pop(key, None))
        return await asyncio.shield(task)

    def sources(self, provider: Provider, model: str, listed: ModelInfo = UNKNOWN_MODEL) -> dict[str, ModelInfo]:
        """Return the facts of each source, in order of precedence."""
        return {
            "configuration": self._configured_info(provider, model),
            "provider": listed,
            "model name": named_model(provider.protocol, model),
        }

    async def _ask(self, provider: Provider, model: str, entry: CatalogEntry) -> CatalogEntry:
        """Ask the provider, and store the answer or the failure."""
        data = await fetch_entry(self._transport, provider, model, ASK_TIMEOUT)
        asked = replace(entry, asked_at=time.monotonic(), is_answered=data is not None)
        if data is not None:
            listed = read_entry(provider.protocol, data)
            asked = replace(
                asked,
                info=merge_info(*self.sources(provider, model, listed).values()),
                preset_context=preset_context(data) if provider.protocol == "ollama" else None,
            )
        self._entries.put((provider.name, model), asked, estimate_entry_size(provider.name, model))
        return asked

    def _entry(self, provider: Provider, model: str) -> CatalogEntry:
        """Return the entry of a model from all sources but the provider."""
        surface = PROTOCOLS[provider.protocol].surface
        # Cloud platforms have versions of their own, which accept what the protocol's default version does.
        headers = dict(surface.headers)
        if surface.version_header is not None:
            headers |= provider.request_headers(surface)
        return CatalogEntry(
            info=merge_info(*self.sources(provider, model).values()),
            host=self._host_profile(provider, model),
            version=headers.get(surface.version_header or ""),
        )

    def _host_profile(self, provider: Provider, model: str | None) -> HostProfile:
        """Return the profile of a provider's host for a model."""
        is_default = provider.protocol == "ollama" and provider.host is None
        return _OLLAMA_PROFILE if is_default else provider.profile(model)

    def _configured_info(self, provider: Provider, model: str) -> ModelInfo:
        """Return the user's facts: those of the first pattern that matches `provider/model` or the model alone."""
        names = (f"{provider.name}/{model}", model)
        for pattern, info in self._configured.items():
            if any(fnmatchcase(name, pattern) for name in names):
                return info
        return UNKNOWN_MODEL


def _may_ask(entry: CatalogEntry) -> bool:
    """Return whether the provider has not been asked, or failed to answer some time ago."""
    if entry.asked_at is None:
        return True
    return not entry.is_answered and time.monotonic() - entry.asked_at >= RETRY_AFTER


async def fetch_entry(transport: Transport, provider: Provider, model: str, timeout: float) -> bytes | None:
    """Fetch the model's entry in the provider's list; None if the provider does not answer with one."""
    protocol = provider.protocol
    if (path := model_path(protocol, model)) is None or provider.address is not None:
        return None
    target = replace(provider, path=None).request_target(path)
    method, body, connect_timeout = "GET", None, min(timeout, provider.connect_timeout)
    if protocol == "ollama":
        method, body = "POST", msgspec.json.encode({"model": model})
    try:
        async with asyncio.timeout(timeout):
            headers = (await provider.with_current_key()).request_headers(PROTOCOLS[protocol].surface)
            if body is not None:
                headers = {"content-type": "application/json"} | headers
            head = request_head(provider.origin, target, headers.items(), method)
            response = await transport.send(
                provider.origin,
                head,
                body,
                read_timeout=timeout,
                connect_timeout=connect_timeout,
            )
            data = await response.read(LIMIT_RESPONSE)
    except (TransportError, KeyCommandError, TimeoutError):
        return None
    return data if response.status == 200 else None
