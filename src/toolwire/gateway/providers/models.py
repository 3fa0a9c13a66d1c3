"""The list of models for clients of each protocol: configured names, and those that the providers list."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.codec.models.info import UNKNOWN_MODEL, ModelInfo, merge_info
from toolwire.codec.surface import ModelCard
from toolwire.gateway.exchange.routing import Router, is_pattern, provider_models
from toolwire.gateway.keys.client_key import ClientKey
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.models.catalog import ModelCatalog
from toolwire.upstream.models.model_lists import ModelLists, ProviderModels
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Transport

# Ollama's clients derive the server's features from its version.
OLLAMA_VERSION = "0.13.0"

PROVIDERS_PATH = "/toolwire/providers/"
"""The prefix of the path that, with a model's name, lists its providers and whether they can be reached."""

MODEL_LIST_PATHS = ("/v1/models", "/v1beta/models", "/api/v1/models", "/api/tags")
# OpenRouter's path of a single model is in the singular.
_MODEL_PATH_PREFIXES = ("/v1/models/", "/v1beta/models/", "/api/v1/model/")


class ShowRequest(Struct):
    """The body of `/api/show`; older clients send `name`."""

    model: str = ""
    name: str = ""


class ListedModel(Struct, frozen=True, kw_only=True):
    """A name that requests can use, and the model that it leads to."""

    id: str
    provider: str
    model: str | None
    """The name at the provider; None if the provider gets the client's name."""
    info: ModelInfo = UNKNOWN_MODEL

    @property
    def target(self) -> str:
        """Return `provider/model`, or the provider's name if the provider gets the client's name."""
        return self.provider if self.model is None else f"{self.provider}/{self.model}"

    @property
    def card(self) -> ModelCard:
        """Return the entry of a list for clients."""
        return ModelCard(self.id, self.provider, context=self.info.context)


class ModelList:
    """Lists all models with known names; looks up any model that a request could use."""

    def __init__(self, router: Router, lists: ModelLists, catalog: ModelCatalog) -> None:
        self._router = router
        self._lists = lists
        self._catalog = catalog
        router.listed_names = lists.known_names

    async def look_up(self, path: str, protocol: str, body: bytes, key: ClientKey | None = None) -> Any:
        """Return the entry of the list at this path in the protocol's form; None for other paths.

        The list has only the models that the key may use. Raises `RouteNotFound` for an unknown model.
        """
        codec = PROTOCOLS[protocol]
        if path in MODEL_LIST_PATHS:
            listed = await self._lists.fetch_all(self._router.providers.values())
            models = list_models(self._router, self._catalog, listed)
            allowed = [model for model in models if key is None or key.allows(model.id, model.target)]
            return codec.encode_models([model.card for model in allowed])
        if path == "/api/version":
            return {"version": OLLAMA_VERSION}
        if path == "/api/ps":
            return {"models": []}  # the gateway keeps none in memory
        if path == "/api/show":
            return codec.encode_model(await self._model_card(_requested_model(body)))
        if path.startswith(PROVIDERS_PATH):
            return {"providers": await self._report_providers(path.removeprefix(PROVIDERS_PATH), key)}
        for prefix in _MODEL_PATH_PREFIXES:
            if path.startswith(prefix):
                return codec.encode_model(await self._model_card(path.removeprefix(prefix)))
        return None

    async def _report_providers(self, name: str, key: ClientKey | None) -> list[dict[str, str | None]]:
        """Return the providers of a model, each with the reason why requests can't reach it, if they can't."""
        route_match = self._router.route(name)
        backends = route_match.backends if key is None else key.restrict(name, route_match).backends
        providers = {backend.provider.name: backend.provider for backend in backends}
        listed = await self._lists.fetch_all(providers.values())
        return [
            {"name": name, "problem": None if models.is_usable else models.error} for name, models in listed.items()
        ]

    async def _model_card(self, name: str) -> ModelCard:
        """Return the card of a model that a request could use, after asking its provider."""
        backend = self._router.route(name).backends[0]
        info = (await self._catalog.ask(backend.provider, backend.model or "")).info
        return ModelCard(name, backend.provider.name, info.context, tool_calling=info.tools is not False)


def _requested_model(body: bytes) -> str:
    """Return the model named in the body of `/api/show`; empty if it is invalid."""
    try:
        show_request = msgspec.json.decode(body, type=ShowRequest)
    except msgspec.MsgspecError:
        return ""
    return show_request.model or show_request.name


def list_models(
    router: Router, catalog: ModelCatalog, listed: Mapping[str, ProviderModels] | None = None
) -> list[ListedModel]:
    """List every name that leads to a known model: those of routes, `provider/model`, those of patterns, aliases."""
    infos = {name: provider_list.models for name, provider_list in (listed or {}).items()}

    def list_model(id: str, provider: Provider, model: str) -> ListedModel:
        """Return the entry of a name, with the facts of its model."""
        known = infos.get(provider.name, {}).get(model, UNKNOWN_MODEL)
        info = merge_info(*catalog.sources(provider, model, known).values())
        return ListedModel(id=id, provider=provider.name, model=model, info=info)

    models: dict[str, ListedModel] = {}
    for section in router.routes:
        if not is_pattern(section.match):
            backend = router.build_backends(section, section.match)[0]
            model = None if backend.model == section.match else backend.model
            models.setdefault(section.match, ListedModel(id=section.match, provider=backend.provider.name, model=model))
    for provider in router.providers.values():
        for model in provider_models(provider, infos.get(provider.name, {})):
            for id in _names(router, provider, model):
                models.setdefault(id, list_model(id, provider, model))
    for alias in router.aliases:
        if (route_match := router.match(alias)) is not None:
            backend = route_match.backends[0]
            models[alias] = list_model(alias, backend.provider, backend.model or "")
    return list(models.values())


def _names(router: Router, provider: Provider, model: str) -> Iterator[str]:
    """Yield the names with which requests reach a model: with the provider's name, and alone."""
    for name in (f"{provider.name}/{model}", model):
        if (route_match := router.match(name)) is not None:
            backend = route_match.backends[0]
            if (backend.provider.name, backend.model) == (provider.name, model):
                yield name


async def with_ollama_models(providers: Mapping[str, Provider]) -> dict[str, Provider]:
    """Return the providers with the installed models of each Ollama; the most recent model is its default."""
    transport = Transport()
    try:
        lists = ModelLists(transport)
        updated = await asyncio.gather(*(_with_installed_models(provider, lists) for provider in providers.values()))
    finally:
        transport.close()
    return dict(zip(providers, updated, strict=True))


async def _with_installed_models(provider: Provider, lists: ModelLists) -> Provider:
    """Return a provider with its installed models, or unchanged if it is no Ollama or can't be reached."""
    if provider.protocol != "ollama":
        return provider
    # One that can't be reached may start later; `toolwire doctor` reports the problem.
    names = tuple((await lists.fetch(provider)).models)
    default = provider.default_model or next(iter(names), None)
    return replace(provider, models=(*provider.models, *names), default_model=default)
