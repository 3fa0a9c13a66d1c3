"""Checks of the model names of a valid configuration against the providers that it is used with.

`toolwire serve` refuses to start at the first problem; `toolwire doctor` and `toolwire config trust` report them all.
"""

import os
from collections.abc import Iterator, Mapping

from toolwire.gateway.config import Config, ConfigError, LoadedConfig
from toolwire.gateway.config.errors import KeyProblem
from toolwire.gateway.config.loading import MODEL_VARIABLE
from toolwire.gateway.errors import RouteNotFound
from toolwire.gateway.exchange.routing import Router
from toolwire.gateway.providers.discovery import configured_providers, simulated_providers
from toolwire.upstream.provider import Provider


def refuse_unusable(loaded: LoadedConfig, providers: Mapping[str, Provider], model: str | None) -> None:
    """Raise `ConfigError` for the first problem that keeps the gateway from starting."""
    for error in find_start_errors(loaded, providers, model):
        raise error


def find_start_errors(
    loaded: LoadedConfig, providers: Mapping[str, Provider], model: str | None
) -> Iterator[ConfigError]:
    """Yield each problem that keeps the gateway from starting; `model` is that of `--model` or its variable."""
    for problem in _check_default(loaded.config, providers, model):
        yield loaded.document.error(problem)


def require_default_model(loaded: LoadedConfig) -> LoadedConfig:
    """Return the configuration; raise `ConfigError` for a `default_model` of the files that no provider serves."""
    for problem in _check_default(loaded.config, configured_providers(loaded.config), None):
        raise loaded.document.error(problem)
    return loaded


def build_router(config: Config, providers: Mapping[str, Provider], model: str | None = None) -> Router:
    """Return the router of a gateway; the simulator's, which has no address outside of it, if there is no provider."""
    known = providers or simulated_providers("http://127.0.0.1:9")
    return Router(known, config.routes, model or config.default_model, config.aliases)


def describe_broken_aliases(router: Router) -> Iterator[str]:
    """Yield a note for each alias of a model that no provider serves."""
    for alias in router.aliases:
        try:
            router.route(alias)
        except RouteNotFound as error:
            yield str(error)


def _check_default(config: Config, providers: Mapping[str, Provider], model: str | None) -> Iterator[KeyProblem]:
    """Yield the problem of a default model that no provider serves."""
    try:
        build_router(config, providers, model)
    except RouteNotFound as error:
        if model is None:
            yield KeyProblem(("default_model",), str(error))
        else:
            source = MODEL_VARIABLE if os.environ.get(MODEL_VARIABLE) == model else "--model"
            yield KeyProblem((), f"{source}: {error}")
