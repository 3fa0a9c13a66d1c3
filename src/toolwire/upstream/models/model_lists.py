"""Providers' lists of models, requested over the network.

A list is requested when it is needed, and kept for some minutes. Lists of several providers are requested at the same
time, each with a short timeout, so a provider that is down does not affect the others. If a provider fails, its last
list stays in use, and the next request is sent after half a minute.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from msgspec import Struct
from msgspec.structs import replace

from toolwire.codec.models.info import ModelInfo
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.key_command import KeyCommand, KeyCommandError
from toolwire.upstream.models.catalog import LIMIT_RESPONSE
from toolwire.upstream.models.listings import list_path, read_list
from toolwire.upstream.provider import Origin, Provider
from toolwire.upstream.transport import Transport, TransportError, request_head

LIST_TIMEOUT = 3.0
"""Seconds that a list may take."""

LIST_TTL = 300.0
"""Seconds until a list is requested again."""

RETRY_AFTER = 30.0
"""Seconds until a provider that did not send its list is asked again."""


class ProviderModels(Struct, frozen=True, kw_only=True):
    """The models that a provider lists, or why they are unknown."""

    models: Mapping[str, ModelInfo] = {}
    error: str = ""
    is_usable: bool = True
    """Whether the provider is reachable and accepts the key, even if it has no list of models."""


class _CachedList(Struct, frozen=True):
    """A list, and when it must be asked for again."""

    models: ProviderModels
    expires_at: float


_Address = tuple[Origin, bytes, KeyCommand | None]


class ModelLists:
    """The lists of models of providers; those with the same address and key share one."""

    def __init__(self, transport: Transport, timeout: float = LIST_TIMEOUT) -> None:
        self._transport = transport
        self._timeout = timeout
        self._cached: dict[_Address, _CachedList] = {}
        self._pending: dict[_Address, asyncio.Task[ProviderModels]] = {}

    async def fetch_all(self, providers: Iterable[Provider]) -> dict[str, ProviderModels]:
        """Return the list of each provider, by the provider's name."""
        selected = list(providers)
        lists = await asyncio.gather(*(self.fetch(provider) for provider in selected))
        return {provider.name: models for provider, models in zip(selected, lists, strict=True)}

    async def fetch(self, provider: Provider) -> ProviderModels:
        """Return the list of a provider, from the cache if possible. Concurrent calls share one request."""
        if provider.unavailable_reason is not None:
            return ProviderModels(error=provider.unavailable_reason, is_usable=False)
        if provider.address is not None:
            return ProviderModels(error=f"{provider.profile(None).title} has no list of models here")
        if provider.client_credential is not None:
            return ProviderModels(error="it is reached only with credentials of clients")
        address = _cache_key(provider)
        cached = self._cached.get(address)
        if cached is not None and time.monotonic() < cached.expires_at:
            return cached.models
        if (task := self._pending.get(address)) is None:
            task = self._pending[address] = asyncio.create_task(self._ask(provider, address))
            task.add_done_callback(lambda _: self._pending.pop(address, None))
        return await asyncio.shield(task)

    def known_names(self, provider: Provider) -> Iterable[str]:
        """Return the names in the cached list, without sending a request."""
        if provider.address is not None:
            return ()
        cached = self._cached.get(_cache_key(provider))
        return () if cached is None else cached.models.models

    async def _ask(self, provider: Provider, address: _Address) -> ProviderModels:
        """Request the list of a provider, and cache the list or the failure."""
        answered, ttl = await self._request(provider), LIST_TTL
        if answered.error:
            previous, ttl = self._cached.get(address), RETRY_AFTER
            if previous is not None:
                answered = replace(previous.models, error=answered.error, is_usable=answered.is_usable)
        self._cached[address] = _CachedList(answered, time.monotonic() + ttl)
        return answered

    async def _request(self, provider: Provider) -> ProviderModels:
        """Request the list of a provider once."""
        connect_timeout = min(self._timeout, provider.connect_timeout)
        try:
            async with asyncio.timeout(self._timeout):
                origin, head = list_request(await provider.with_current_key())
                response = await self._transport.send(
                    origin, head, None, read_timeout=self._timeout, connect_timeout=connect_timeout
                )
                data = await response.read(LIMIT_RESPONSE)
        except (TransportError, KeyCommandError) as error:
            return ProviderModels(error=str(error), is_usable=False)
        except TimeoutError:
            return ProviderModels(error=f"no list of models within {self._timeout:g} seconds", is_usable=False)
        if response.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return ProviderModels(error=f"key rejected ({response.status})", is_usable=False)
        if response.status != 200:
            return ProviderModels(error=f"the list of models has status {response.status}")
        models = await asyncio.to_thread(read_list, provider.protocol, data)
        return ProviderModels(error="sent no list of models") if models is None else ProviderModels(models=models)


def _cache_key(provider: Provider) -> _Address:
    """Return the cache key of a provider's list. It stays the same when the command prints a new API key."""
    return (*list_request(provider), provider.key_command)


def list_request(provider: Provider) -> tuple[Origin, bytes]:
    """Return the origin, and the head of the request for a provider's list of models."""
    target = replace(provider, path=None).request_target(list_path(provider.protocol))
    headers = provider.request_headers(PROTOCOLS[provider.protocol].surface)
    return provider.origin, request_head(provider.origin, target, headers.items(), "GET")
