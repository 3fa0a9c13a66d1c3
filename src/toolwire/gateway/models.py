"""The models on offer, at the addresses where each protocol's clients look for them."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.codec.surface import ModelCard
from toolwire.protocols import PROTOCOLS

from .routing import Router

# What Ollama's clients ask for to learn what the server can do.
OLLAMA_VERSION = "0.13.0"

_LISTS = ("/v1/models", "/v1beta/models", "/api/v1/models", "/api/tags")
# OpenRouter's address of a single model is in the singular.
_SINGLES = ("/v1/models/", "/v1beta/models/", "/api/v1/model/")


class Shown(Struct):
    """What `/api/show` is asked; older clients say `name`."""

    model: str = ""
    name: str = ""


class Catalogue:
    def __init__(self, models: Sequence[ModelCard]) -> None:
        self._models = list(models)
        self._by_id = {model.id: model for model in models}

    def look_up(self, path: str, protocol: str, body: bytes) -> Any:
        """What is at a path, in a protocol's own shape; None if there is nothing."""
        codec = PROTOCOLS[protocol]
        if path in _LISTS:
            return codec.encode_models(self._models)
        if path == "/api/version":
            return {"version": OLLAMA_VERSION}
        if path == "/api/show":
            found = self._by_id.get(_asked(body))
            return None if found is None else codec.encode_model(found)
        for prefix in _SINGLES:
            if path.startswith(prefix):
                found = self._by_id.get(path.removeprefix(prefix))
                return None if found is None else codec.encode_model(found)
        return None


def _asked(body: bytes) -> str:
    try:
        shown = msgspec.json.decode(body, type=Shown)
    except msgspec.MsgspecError:
        return ""
    return shown.model or shown.name


def models_of(router: Router) -> list[ModelCard]:
    """Every name that is known to lead somewhere: patterns are not names."""
    names: dict[str, str] = {}
    for section in router.routes:
        if not _is_pattern(section.match):
            names[section.match] = section.named[0]
    for name, provider in router.providers.items():
        for model in _names(provider.models, provider.default_model):
            names[f"{name}/{model}"] = name
    return [ModelCard(id, owner) for id, owner in names.items()]


def _names(patterns: Iterable[str], default: str | None) -> Iterable[str]:
    known = [] if default is None else [default]
    return dict.fromkeys([*known, *(one for one in patterns if not _is_pattern(one))])


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")
