"""The model catalog for clients of each protocol, and the models of an Ollama server with their capabilities.

Installed models are read from `/api/tags`, their capabilities from `/api/show`.

Ollama rejects `think` with 400 for models without thinking, and a level such as `"high"` for most models with it. Only
the server knows which is which. It is asked once per model, on the first request that wants thinking. If the server
does not answer, the request is sent without `think`, and the model does as it does by default.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.codec.host_profiles import COMPATIBLE, HostProfile
from toolwire.codec.surface import ModelCard
from toolwire.gateway.exchange.routing import Router
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Transport, TransportError, request_head

# Ollama's clients derive the server's features from its version.
OLLAMA_VERSION = "0.13.0"

MODEL_LIST_PATHS = ("/v1/models", "/v1beta/models", "/api/v1/models", "/api/tags")
# OpenRouter's path of a single model is in the singular.
_MODEL_PATH_PREFIXES = ("/v1/models/", "/v1beta/models/", "/api/v1/model/")


class ShowRequest(Struct):
    """The body of `/api/show`; older clients send `name`."""

    model: str = ""
    name: str = ""


class ModelCatalog:
    """Lists all models with known names; looks up any model that a request could use."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._models = list_models(router)
        self._by_id = {model.id: model for model in self._models}

    def look_up(self, path: str, protocol: str, body: bytes) -> Any:
        """Return the catalog entry at this path in the protocol's form; None for other paths.

        Raises `RouteNotFound` for an unknown model.
        """
        codec = PROTOCOLS[protocol]
        if path in MODEL_LIST_PATHS:
            return codec.encode_models(self._models)
        if path == "/api/version":
            return {"version": OLLAMA_VERSION}
        if path == "/api/show":
            return codec.encode_model(self._model_card(_requested_model(body)))
        for prefix in _MODEL_PATH_PREFIXES:
            if path.startswith(prefix):
                return codec.encode_model(self._model_card(path.removeprefix(prefix)))
        return None

    def _model_card(self, name: str) -> ModelCard:
        """Return the card of a model: the listed one, or one for a name that routes somewhere."""
        if (listed := self._by_id.get(name)) is not None:
            return listed
        return ModelCard(name, self._router.route(name).backends[0].provider.name)


def _requested_model(body: bytes) -> str:
    """Return the model named in the body of `/api/show`; empty if it is invalid."""
    try:
        show_request = msgspec.json.decode(body, type=ShowRequest)
    except msgspec.MsgspecError:
        return ""
    return show_request.model or show_request.name


def list_models(router: Router) -> list[ModelCard]:
    """List every model name that routes somewhere; patterns are not names."""
    names: dict[str, str] = {}
    for section in router.routes:
        if not _is_pattern(section.match):
            names[section.match] = section.provider_names[0]
    for name, provider in router.providers.items():
        for model in _model_names(provider.models, provider.default_model):
            names[f"{name}/{model}"] = name
    return [ModelCard(id, owner) for id, owner in names.items()]


def _model_names(patterns: Iterable[str], default: str | None) -> Iterable[str]:
    """Return the default model and all patterns without wildcards, without duplicates."""
    names = [] if default is None else [default]
    return dict.fromkeys([*names, *(pattern for pattern in patterns if not _is_pattern(pattern))])


def _is_pattern(name: str) -> bool:
    """Return whether a name contains wildcards."""
    return any(wildcard in name for wildcard in "*?[")


LIMIT_TAGS_RESPONSE = 1024 * 1024


class OllamaModel(Struct):
    """One installed model."""

    name: str


class OllamaModels(Struct):
    """A response of `/api/tags`."""

    models: tuple[OllamaModel, ...] = ()


async def with_ollama_models(providers: Mapping[str, Provider], timeout: float = 2) -> dict[str, Provider]:
    """Return the providers with the installed models of each Ollama; the most recent model is its default."""
    transport = Transport()
    try:
        updated = await asyncio.gather(
            *(_with_installed_models(provider, transport, timeout) for provider in providers.values())
        )
    finally:
        transport.close()
    return dict(zip(providers, updated, strict=True))


async def _with_installed_models(provider: Provider, transport: Transport, timeout: float) -> Provider:
    """Return a provider with its installed models, or unchanged if it is no Ollama or can't be reached."""
    if provider.protocol != "ollama":
        return provider
    headers = provider.request_headers(PROTOCOLS["ollama"].surface).items()
    head = request_head(provider.origin, replace(provider, path=None).request_target("/api/tags"), headers, "GET")
    try:
        response = await transport.send(provider.origin, head, None, read_timeout=timeout, connect_timeout=timeout)
        tags = msgspec.json.decode(await response.read(LIMIT_TAGS_RESPONSE), type=OllamaModels)
    except (TransportError, msgspec.MsgspecError):
        return provider  # it may start later; `toolwire doctor` reports the problem
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
    """The model's `details` in a response of `/api/show`."""

    family: str = ""


class ShowResponse(Struct, frozen=True):
    """The used part of a response of `/api/show`; servers before 0.6.4 list no capabilities."""

    capabilities: tuple[str, ...] = ()
    details: ModelDetails = ModelDetails()


class OllamaCapabilities:
    """Host profiles of Ollama's models, fetched when first needed and cached."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._profiles: dict[tuple[str, str], HostProfile] = {}
        self._default_profiles: dict[tuple[str, str], HostProfile] = {}

    async def profile_for(self, provider: Provider, model: str | None, request: Request) -> HostProfile:
        """Return the host profile (supported features) for a request to a model.

        The server is asked only if a client of another protocol wants thinking.
        """
        if provider.protocol != "ollama" or request.origin == "ollama" or request.thinking is None or model is None:
            return self.cached_profile(provider, model)
        if (cached := self._profiles.get((provider.name, model))) is not None:
            return cached
        details = await self._fetch_model(provider, model) if len(model) <= LIMIT_CACHED_NAME else None
        if details is None:
            return _NO_THINKING_PROFILE
        profile = _NO_THINKING_PROFILE
        if "thinking" in details.capabilities:
            profile = _LEVELS_PROFILE if details.details.family == "gptoss" else _THINKING_PROFILE
        if len(self._profiles) >= LIMIT_CACHED_MODELS:
            self._profiles.clear()
        self._profiles[provider.name, model] = profile
        return profile

    def cached_profile(self, provider: Provider, model: str | None) -> HostProfile:
        """Return the cached host profile of a model, or the provider's default, without asking the server."""
        key = (provider.name, model or "")
        cached = self._profiles.get(key) if self._profiles else None
        return cached or self._default_profiles.get(key) or self._default_profile(provider, model)

    def _default_profile(self, provider: Provider, model: str | None) -> HostProfile:
        """Return the provider's own host profile for a model, and cache it."""
        profile = provider.profile(model)
        if len(self._default_profiles) < LIMIT_CACHED_MODELS and len(model or "") <= LIMIT_CACHED_NAME:
            self._default_profiles[provider.name, model or ""] = profile
        return profile

    async def _fetch_model(self, provider: Provider, model: str) -> ShowResponse | None:
        """Fetch the details of a model; None if the server does not provide them."""
        headers = {"content-type": "application/json"} | provider.request_headers(PROTOCOLS["ollama"].surface)
        head = request_head(provider.origin, replace(provider, path=None).request_target("/api/show"), headers.items())
        body = msgspec.json.encode({"model": model})
        try:
            async with asyncio.timeout(SHOW_TIMEOUT):
                response = await self._transport.send(
                    provider.origin, head, body, read_timeout=SHOW_TIMEOUT, connect_timeout=provider.connect_timeout
                )
                data = await response.read(LIMIT_SHOW_RESPONSE)
            return msgspec.json.decode(data, type=ShowResponse) if response.status == 200 else None
        except (TransportError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
