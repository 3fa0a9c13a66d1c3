"""What an Ollama has: only it knows which models were pulled, so that it is asked once, at the start.

Capabilities of Ollama's models, as `/api/show` lists them.

Ollama refuses `think` for a model that can't think, with 400, and a level such as `"high"` for most that can. Which is
which only the server knows. A model is asked about once, by the first request that wants thinking of it. If the server
does not tell, the request goes without `think`: the model then does as it does by default.
"""

import asyncio
from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.codec.host_profiles import COMPATIBLE, HostProfile
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Transport, TransportError, request_head

LIMIT_TAGS_RESPONSE = 1024 * 1024


class OllamaModel(Struct):
    name: str


class OllamaModels(Struct):
    models: tuple[OllamaModel, ...] = ()


async def with_ollama_models(providers: Mapping[str, Provider], timeout: float = 2) -> dict[str, Provider]:
    """The providers, each Ollama with its models; the first, which is the latest, answers names that nobody knows."""
    transport = Transport()
    try:
        found = await asyncio.gather(*(_with_installed_models(one, transport, timeout) for one in providers.values()))
    finally:
        transport.close()
    return dict(zip(providers, found, strict=True))


async def _with_installed_models(provider: Provider, transport: Transport, timeout: float) -> Provider:
    if provider.protocol != "ollama":
        return provider
    headers = provider.request_headers(PROTOCOLS["ollama"].surface).items()
    head = request_head(provider.origin, replace(provider, path=None).request_target("/api/tags"), headers, "GET")
    try:
        answer = await transport.send(provider.origin, head, None, read_timeout=timeout, connect_timeout=timeout)
        tags = msgspec.json.decode(await answer.read(LIMIT_TAGS_RESPONSE), type=OllamaModels)
    except (TransportError, msgspec.MsgspecError):
        return provider  # `toolwire doctor` says what is wrong; it may well come up later
    names = tuple(tag.name for tag in tags.models)
    default = provider.default_model or next(iter(names), None)
    return replace(provider, models=(*provider.models, *names), default_model=default)


SHOW_TIMEOUT = 10.0
LIMIT_SHOW_RESPONSE = 8 * 1024 * 1024
LIMIT_CACHED_MODELS = 1024
LIMIT_CACHED_NAME = 256

_THINKING_PROFILE = replace(COMPATIBLE, name="ollama", effort_levels=False)
_LEVELS_PROFILE = replace(_THINKING_PROFILE, effort_levels=True)
_NO_THINKING_PROFILE = replace(_THINKING_PROFILE, reasoning_effort=False)


class ModelDetails(Struct, frozen=True):
    family: str = ""


class ShowResponse(Struct, frozen=True):
    """The part of an answer of `/api/show` that is used here. Servers before 0.6.4 list no capabilities."""

    capabilities: tuple[str, ...] = ()
    details: ModelDetails = ModelDetails()


class OllamaCapabilities:
    """`profile` is what a model takes; it asks the server if it has to, `known` does not."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._profiles: dict[tuple[str, str], HostProfile] = {}

    async def profile_for(self, provider: Provider, model: str | None, request: Request) -> HostProfile:
        """Return the profile for a request; the server is asked if the request wants thinking in another protocol."""
        if provider.protocol != "ollama" or request.origin == "ollama" or request.thinking is None or model is None:
            return self.cached_profile(provider, model)
        if (known := self._profiles.get((provider.name, model))) is not None:
            return known
        shown = await self._fetch_model(provider, model) if len(model) <= LIMIT_CACHED_NAME else None
        if shown is None:
            return _NO_THINKING_PROFILE
        found = _NO_THINKING_PROFILE
        if "thinking" in shown.capabilities:
            found = _LEVELS_PROFILE if shown.details.family == "gptoss" else _THINKING_PROFILE
        if len(self._profiles) >= LIMIT_CACHED_MODELS:
            self._profiles.clear()
        self._profiles[provider.name, model] = found
        return found

    def cached_profile(self, provider: Provider, model: str | None) -> HostProfile:
        known = self._profiles.get((provider.name, model or "")) if self._profiles else None
        return known or provider.profile(model)

    async def _fetch_model(self, provider: Provider, model: str) -> ShowResponse | None:
        """Ask for a model; None if the server does not tell."""
        headers = {"content-type": "application/json"} | provider.request_headers(PROTOCOLS["ollama"].surface)
        head = request_head(provider.origin, replace(provider, path=None).request_target("/api/show"), headers.items())
        body = msgspec.json.encode({"model": model})
        try:
            async with asyncio.timeout(SHOW_TIMEOUT):
                answer = await self._transport.send(
                    provider.origin, head, body, read_timeout=SHOW_TIMEOUT, connect_timeout=provider.connect_timeout
                )
                data = await answer.read(LIMIT_SHOW_RESPONSE)
            return msgspec.json.decode(data, type=ShowResponse) if answer.status == 200 else None
        except (TransportError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
