"""The model catalog, at the paths and in the form that each protocol's clients expect."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.codec.surface import ModelCard
from toolwire.gateway.exchange.routing import Router
from toolwire.protocols import PROTOCOLS

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
