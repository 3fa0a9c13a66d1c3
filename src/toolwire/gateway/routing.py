"""Which provider answers a model's name, and under which name there.

1. The first `[[routes]]` whose pattern the name matches. Its first provider is asked for the route's `model`, or for
   the client's. A fallback is asked for the same name if its `models` match it, else for its own `default_model`.
2. `provider/model`.
3. A provider that knows the name: one of its `models` patterns matches.
4. The catch-all (`--model`), or the default model of the only provider there is.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from msgspec import Struct

from toolwire.canonical.errors import ToolwireError
from toolwire.codec.repeated import Repeated
from toolwire.upstream.provider import Provider

from .config import RouteSection

LIMIT_MODEL = 512
"""Characters of a model's name."""


class ModelTooLong(ToolwireError):
    """The model's name is longer than any provider's."""


class NoRoute(ToolwireError):
    """No provider is configured for this name."""


class NoModel(NoRoute):
    """The request names no model, and there is none for that."""


class Way(Struct, frozen=True):
    """One upstream to try, and the model's name there."""

    provider: Provider
    model: str | None


class Routed(Struct, frozen=True):
    """The upstreams to try, in order, and how."""

    ways: tuple[Way, ...]
    options: RouteSection = RouteSection()


class Router:
    def __init__(
        self, providers: Mapping[str, Provider], routes: tuple[RouteSection, ...] = (), catch_all: str | None = None
    ) -> None:
        self.providers = dict(providers)
        self.routes = routes
        self.catch_all = catch_all
        if catch_all is not None and self._named(catch_all) is None and self._knowing(catch_all) is None:
            raise NoRoute(self._unknown(catch_all))
        self._found: Repeated[str, Routed] = Repeated()

    def route(self, model: str | None) -> Routed:
        name = model or ""
        if (known := self._found.get(name)) is not None:
            return known
        if len(name) > LIMIT_MODEL:
            raise ModelTooLong(f"the name of the model has {len(name)} characters: at most {LIMIT_MODEL} are allowed")
        routed = self._route(name)
        self._found.keep(name, routed, size_of(name))
        return routed

    def _route(self, name: str) -> Routed:
        for section in self.routes:
            if fnmatchcase(name, section.match):
                model = section.model or name or None
                first, *others = [self.providers[one] for one in section.named]
                fallbacks = [Way(one, _model_at(one, model)) for one in others]
                return Routed((Way(first, model), *fallbacks), section)
        way = self._named(name) or self._knowing(name) or self._otherwise()
        if way is None and not name:
            raise NoModel(f"the request names no model: use {self._choices()}")
        if way is None:
            raise NoRoute(self._unknown(name))
        return Routed((way,))

    def _named(self, name: str) -> Way | None:
        prefix, slash, model = name.partition("/")
        provider = self.providers.get(prefix)
        return Way(provider, model) if slash and model and provider is not None else None

    def _knowing(self, name: str) -> Way | None:
        return next((Way(one, name) for one in self.providers.values() if _knows(one, name)), None)

    def _otherwise(self) -> Way | None:
        if self.catch_all is not None:
            return self._named(self.catch_all) or self._knowing(self.catch_all)
        origins = {provider.origin for provider in self.providers.values()}
        first = next(iter(self.providers.values()), None)
        if first is None or len(origins) > 1 or first.default_model is None:
            return None
        return Way(first, first.default_model)

    def _unknown(self, name: str) -> str:
        return f"no provider is configured for the model {name!r}: use {self._choices()}"

    def _choices(self) -> str:
        return ", ".join(f"{provider}/MODEL" for provider in self.providers) + ", or start with --model"


def size_of(*texts: str | None) -> int:
    """Return about how many bytes a cached entry takes that is made of these texts, and has them in its key."""
    return 500 + 8 * sum(len(text) for text in texts if text is not None)


def _knows(provider: Provider, model: str) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in provider.models)


def _model_at(fallback: Provider, model: str | None) -> str | None:
    """The model's name at a fallback: its own, unless it knows the one that the first provider is asked for."""
    return model if model is not None and _knows(fallback, model) else fallback.default_model or model
