"""The models on offer, at the addresses where each protocol's clients look for them."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.codec.surface import ModelCard
from toolwire.gateway.exchange.routing import Router
from toolwire.protocols import PROTOCOLS

# What Ollama's clients ask for to learn what the server can do.
OLLAMA_VERSION = "0.13.0"

MODEL_LIST_PATHS = ("/v1/models", "/v1beta/models", "/api/v1/models", "/api/tags")
# OpenRouter's address of a single model is in the singular.
_MODEL_PATH_PREFIXES = ("/v1/models/", "/v1beta/models/", "/api/v1/model/")


class ShowRequest(Struct):
    """What `/api/show` is asked; older clients say `name`."""

    model: str = ""
    name: str = ""


class ModelCatalog:
    """Lists hold the names that are known; a single one is found if it leads somewhere, as it would in a request."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._models = list_models(router)
        self._by_id = {model.id: model for model in self._models}

    def look_up(self, path: str, protocol: str, body: bytes) -> Any:
        """What is at a path, in a protocol's own shape; None if there is nothing. NoRoute for a model nobody has."""
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
        if (known := self._by_id.get(name)) is not None:
            return known
        return ModelCard(name, self._router.route(name).backends[0].provider.name)


def _requested_model(body: bytes) -> str:
    try:
        shown = msgspec.json.decode(body, type=ShowRequest)
    except msgspec.MsgspecError:
        return ""
    return shown.model or shown.name


def list_models(router: Router) -> list[ModelCard]:
    """Every name that is known to lead somewhere: patterns are not names."""
    names: dict[str, str] = {}
    for section in router.routes:
        if not _is_pattern(section.match):
            names[section.match] = section.provider_names[0]
    for name, provider in router.providers.items():
        for model in _model_names(provider.models, provider.default_model):
            names[f"{name}/{model}"] = name
    return [ModelCard(id, owner) for id, owner in names.items()]


def _model_names(patterns: Iterable[str], default: str | None) -> Iterable[str]:
    known = [] if default is None else [default]
    return dict.fromkeys([*known, *(one for one in patterns if not _is_pattern(one))])


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")
