"""Aliases of models (`[aliases]`): names that stand for other names."""

from collections.abc import Mapping

from msgspec.structs import replace

from toolwire.gateway.config.errors import KeyProblem
from toolwire.gateway.config.positions import KeyPath
from toolwire.gateway.config.sections import BackendSection, Config, RouteSection


def resolve_aliases(aliases: Mapping[str, str]) -> dict[str, str]:
    """Return the name that each alias finally stands for; raise `KeyProblem` for an alias of itself."""
    resolved: dict[str, str] = {}
    for alias in aliases:
        chain = [alias]
        while (name := aliases[chain[-1]]) in aliases and name not in chain:
            chain.append(name)
        if name in chain:
            raise KeyProblem(("aliases", alias), f"stands for itself: {' -> '.join([*chain, name][:10])}")
        if not alias or not name:
            raise KeyProblem(("aliases", alias), "an alias and its model must not be empty")
        resolved[alias] = name
    return resolved


def with_resolved_aliases(config: Config) -> Config:
    """Return the configuration with the final name of each alias, also where routes name models."""
    aliases = resolve_aliases(config.aliases)
    routes = list[RouteSection]()
    for index, route in enumerate(config.routes):
        backends = list[BackendSection]()
        for number, backend in enumerate(route.backend_sections):
            key: KeyPath = ("backends", number, "model") if route.backends else ("model",)
            name = backend.model if route.backends else route.model
            model = _provider_model(backend.provider, name, config, aliases, ("routes", index, *key))
            backends.append(replace(backend, model=model))
        if route.backends:
            routes.append(replace(route, backends=tuple(backends)))
        else:
            routes.append(replace(route, model=backends[0].model))
    return replace(config, aliases=aliases, routes=tuple(routes))


def _provider_model(
    provider: str, model: str | None, config: Config, aliases: Mapping[str, str], path: KeyPath
) -> str | None:
    """Return the provider's own name of a model. The given name may be an alias of that, or of `PROVIDER/MODEL`."""
    if model is None or model not in aliases:
        return model
    prefix, _, name = aliases[model].partition("/")
    if name and prefix != provider and prefix in config.providers:
        raise KeyProblem(path, f"the alias {model!r} stands for {aliases[model]!r}, which is not a model of {provider}")
    return name if name and prefix == provider else aliases[model]
