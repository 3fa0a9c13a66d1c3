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

from toolwire.codec.wire.memo import BoundedMemo
from toolwire.gateway.config import RouteSection
from toolwire.gateway.errors import ModelNameTooLong, ModelNotSpecified, RouteNotFound
from toolwire.upstream.provider import Provider

LIMIT_MODEL_NAME = 512
"""Characters of a model's name."""


class Backend(Struct, frozen=True):
    """One upstream to try, and the model's name there."""

    provider: Provider
    model: str | None


class RouteMatch(Struct, frozen=True):
    """The upstreams to try, in order, and how."""

    backends: tuple[Backend, ...]
    options: RouteSection = RouteSection()


class Router:
    def __init__(
        self, providers: Mapping[str, Provider], routes: tuple[RouteSection, ...] = (), catch_all: str | None = None
    ) -> None:
        self.providers = dict(providers)
        self.routes = routes
        self.catch_all = catch_all
        if (
            catch_all is not None
            and self._by_provider_prefix(catch_all) is None
            and self._by_known_model(catch_all) is None
        ):
            raise RouteNotFound(self._unknown_model_message(catch_all))
        self._matches: BoundedMemo[str, RouteMatch] = BoundedMemo()

    def route(self, model: str | None) -> RouteMatch:
        name = model or ""
        if (known := self._matches.get(name)) is not None:
            return known
        if len(name) > LIMIT_MODEL_NAME:
            raise ModelNameTooLong(
                f"the name of the model has {len(name)} characters: at most {LIMIT_MODEL_NAME} are allowed"
            )
        routed = self._match_route(name)
        self._matches.put(name, routed, estimate_entry_size(name))
        return routed

    def _match_route(self, name: str) -> RouteMatch:
        for section in self.routes:
            if fnmatchcase(name, section.match):
                model = section.model or name or None
                first, *others = [self.providers[one] for one in section.provider_names]
                fallbacks = [Backend(one, _fallback_model(one, model)) for one in others]
                return RouteMatch((Backend(first, model), *fallbacks), section)
        way = self._by_provider_prefix(name) or self._by_known_model(name) or self._default()
        if way is None and not name:
            raise ModelNotSpecified(f"the request names no model: use {self._describe_choices()}")
        if way is None:
            raise RouteNotFound(self._unknown_model_message(name))
        return RouteMatch((way,))

    def _by_provider_prefix(self, name: str) -> Backend | None:
        prefix, slash, model = name.partition("/")
        provider = self.providers.get(prefix)
        return Backend(provider, model) if slash and model and provider is not None else None

    def _by_known_model(self, name: str) -> Backend | None:
        return next((Backend(one, name) for one in self.providers.values() if _serves_model(one, name)), None)

    def _default(self) -> Backend | None:
        if self.catch_all is not None:
            return self._by_provider_prefix(self.catch_all) or self._by_known_model(self.catch_all)
        origins = {provider.origin for provider in self.providers.values()}
        first = next(iter(self.providers.values()), None)
        if first is None or len(origins) > 1 or first.default_model is None:
            return None
        return Backend(first, first.default_model)

    def _unknown_model_message(self, name: str) -> str:
        return f"no provider is configured for the model {name!r}: use {self._describe_choices()}"

    def _describe_choices(self) -> str:
        return ", ".join(f"{provider}/MODEL" for provider in self.providers) + ", or start with --model"


def estimate_entry_size(*texts: str | None) -> int:
    """Return about how many bytes a cached entry takes that is made of these texts, and has them in its key."""
    return 500 + 8 * sum(len(text) for text in texts if text is not None)


def _serves_model(provider: Provider, model: str) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in provider.models)


def _fallback_model(fallback: Provider, model: str | None) -> str | None:
    """The model's name at a fallback: its own, unless it knows the one that the first provider is asked for."""
    return model if model is not None and _serves_model(fallback, model) else fallback.default_model or model
