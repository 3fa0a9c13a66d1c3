"""The list of models for clients of each protocol, and the models installed on an Ollama server (`/api/tags`)."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.codec.surface import ModelCard
from toolwire.gateway.errors import RouteNotFound
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


class ModelList:
    """Lists all models with known names; looks up any model that a request could use."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._models = list_models(router)
        self._by_id = {model.id: model for model in self._models}

    def look_up(self, path: str, protocol: str, body: bytes) -> Any:
        """Return the entry of the list at this path in the protocol's form; None for other paths.

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
            names[section.match] = section.backend_sections[0].provider
    for name, provider in router.providers.items():
        for model in _model_names(provider.models, provider.default_model):
            names[f"{name}/{model}"] = name
    for alias in router.aliases:
        with contextlib.suppress(RouteNotFound):
            names[alias] = router.route(alias).backends[0].provider.name
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


def installed_models(listing: bytes) -> tuple[str, ...]:
    """Return the names in a response of `/api/tags`; none if it can't be read."""
    try:
        return tuple(tag.name for tag in msgspec.json.decode(listing, type=OllamaModels).models)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()


_TIMEOUT = 2.0  # seconds to wait for an Ollama, which may not run


async def with_ollama_models(providers: Mapping[str, Provider]) -> dict[str, Provider]:
    """Return the providers with the installed models of each Ollama; the most recent model is its default."""
    transport = Transport()
    try:
        updated = await asyncio.gather(
            *(_with_installed_models(provider, transport) for provider in providers.values())
        )
    finally:
        transport.close()
    return dict(zip(providers, updated, strict=True))


async def _with_installed_models(provider: Provider, transport: Transport) -> Provider:
    """Return a provider with its installed models, or unchanged if it is no Ollama or can't be reached."""
    if provider.protocol != "ollama":
        return provider
    headers = provider.request_headers(PROTOCOLS["ollama"].surface).items()
    head = request_head(provider.origin, replace(provider, path=None).request_target("/api/tags"), headers, "GET")
    try:
        response = await transport.send(provider.origin, head, None, read_timeout=_TIMEOUT, connect_timeout=_TIMEOUT)
        names = installed_models(await response.read(LIMIT_TAGS_RESPONSE))
    except TransportError:
        return provider  # it may start later; `toolwire doctor` reports the problem
    default = provider.default_model or next(iter(names), None)
    return replace(provider, models=(*provider.models, *names), default_model=default)
