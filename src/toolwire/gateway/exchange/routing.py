"""Routing of a model name to the backends that serve it. An alias is replaced by its model first.

The first of these that applies decides:

1. The first `[[routes]]` entry whose pattern matches. A backend with a `model` gets that. Otherwise, the first one gets
   the route's `model`, or the client's. A fallback gets the same name if its `models` match it, else its own
   `default_model`.
2. `provider/model`.
3. The provider one of whose `models` patterns matches.
4. The catch-all (`--model`), or the default model of the only provider, unless the name has the form of 2: then its
   prefix is a misspelled provider, and the request is an error.
"""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from toolwire.codec.envelope import issuer_id
from toolwire.codec.memo import BoundedMemo, estimate_entry_size
from toolwire.codec.models.names import base_model_name
from toolwire.codec.suggestions import suggest
from toolwire.gateway.config import RouteSection
from toolwire.gateway.errors import ModelNameTooLong, ModelNotSpecified, RouteNotFound
from toolwire.gateway.providers.known_providers import KEY_VARIABLES
from toolwire.upstream.provider import Provider

LIMIT_MODEL_NAME = 512
"""Maximum length of a model name, in characters."""


_MOST_CHOICES = 10
"""Names of routes and aliases that an error lists."""

_SET_DEFAULT = "set a default with --model, TOOLWIRE_MODEL or default_model"


class Backend(Struct, frozen=True):
    """A provider and the model's name there, with the settings of its entry in the route."""

    provider: Provider
    model: str | None
    weight: float = 1
    """Its share of the conversations, if the route balances by weight; 0 for a backend that is only a fallback."""
    timeout: float | None = None
    """Seconds until the response begins; None to use the provider's."""
    context: int | None = None
    """Tokens of prompt and response together; None to use the model catalog."""

    @property
    def name(self) -> str:
        """Return `provider/model`, or the provider's name if the client names the model."""
        return f"{self.provider.name}/{self.model}" if self.model else self.provider.name

    @property
    def signature_scope(self) -> tuple[str, str]:
        """Return the account and model whose signatures it accepts; the model is empty if it accepts any model's."""
        provider = self.provider
        is_bound = provider.profile(self.model).reasoning.signature_scope == "model"
        return provider.account or provider.name, base_model_name(self.model or "") if is_bound else ""

    @property
    def issuer(self) -> str:
        """Return the issuer id of the backend's signatures."""
        return issuer_id(*self.signature_scope)


class RouteMatch(Struct, frozen=True):
    """The backends of a request, in order of preference, and the options of the route."""

    backends: tuple[Backend, ...]
    options: RouteSection = RouteSection()
    is_default: bool = False
    """Whether no route, provider or pattern has the name, so that a default model answers."""


class Router:
    """Finds the backends for model names."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        routes: tuple[RouteSection, ...] = (),
        catch_all: str | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        """Validate `catch_all`, which must lead to a provider: as a model, an alias or a route."""
        self.providers = dict(providers)
        self.routes = routes
        self.aliases = aliases or {}
        self.catch_all = catch_all = None if catch_all is None else self.aliases.get(catch_all, catch_all)
        self.listed_names: Callable[[Provider], Iterable[str]] = lambda _: ()
        """Returns the names in a provider's list of models as far as they are known, for suggestions."""

        if catch_all is not None and self.match(catch_all) is None:
            raise RouteNotFound(self.unknown_model_message(catch_all))
        self._matches: BoundedMemo[str, RouteMatch] = BoundedMemo()

        headers = [provider.client_credential for provider in self.providers.values()]
        self.credential_headers = frozenset(header for header in headers if header is not None)
        """Headers in which clients send their own keys for providers."""

    def route(self, model: str | None) -> RouteMatch:
        """Return the backends for a model name, from a cache if possible."""
        name = model or ""
        if (cached := self._matches.get(name)) is not None:
            return cached
        if len(name) > LIMIT_MODEL_NAME:
            raise ModelNameTooLong(f"the model name has {len(name)} characters, the limit is {LIMIT_MODEL_NAME}")
        route_match = self.match(name) or self._match_default(name)
        self._matches.put(name, route_match, estimate_entry_size(name))
        return route_match

    def match(self, name: str) -> RouteMatch | None:
        """Return the backends that a route, a provider or its patterns have for a name; None if none has it."""
        name = self.aliases.get(name, name)
        for section in self.routes:
            if fnmatchcase(name, section.match):
                return RouteMatch(self.build_backends(section, name or None), section)
        backend = self._by_name(name)
        return None if backend is None else RouteMatch((backend,))

    def _match_default(self, name: str) -> RouteMatch:
        """Return the default backend for a name that is unknown, unless the name has a provider's prefix."""
        model = self.aliases.get(name, name)
        default = None if self._has_prefix(model) else self._default()
        if default is not None:
            return replace(default, is_default=True)
        if not name:
            raise ModelNotSpecified(f"no model given: use {self._describe_choices()}; {_SET_DEFAULT}")
        alias = "" if model == name else f"the alias {name!r} leads to no provider: "
        raise RouteNotFound(f"{alias}{self.unknown_model_message(model)}")

    def _by_name(self, name: str) -> Backend | None:
        """Return the backend of `provider/model`, or of a provider's pattern; None if no provider has the name."""
        return self._by_provider_prefix(name) or self._by_known_model(name)

    def build_backends(self, section: RouteSection, name: str | None) -> tuple[Backend, ...]:
        """Return the backends of a route for a client's model name."""
        backends: list[Backend] = []
        for entry in section.backend_sections:
            provider, model = self.providers[entry.provider], section.model or name
            model = entry.model or (_fallback_model(provider, model) if backends else model)
            backends.append(Backend(provider, model, entry.weight, entry.timeout, entry.context))
        return tuple(backends)

    def _by_provider_prefix(self, name: str) -> Backend | None:
        """Return the backend that a name of the form `provider/model` means; None for other names."""
        prefix, slash, model = name.partition("/")
        provider = self.providers.get(prefix)
        return Backend(provider, model) if slash and model and provider is not None else None

    def _by_known_model(self, name: str) -> Backend | None:
        """Return a backend of the first provider whose `models` patterns match the name; None if there is none."""
        return next(
            (Backend(provider, name) for provider in self.providers.values() if _serves_model(provider, name)), None
        )

    def _default(self) -> RouteMatch | None:
        """Return the catch-all, or the default model of the only provider; None if neither exists."""
        if self.catch_all is not None:
            return self.match(self.catch_all)
        origins = {provider.origin for provider in self.providers.values()}
        first = next(iter(self.providers.values()), None)
        if first is None or len(origins) > 1 or first.default_model is None:
            return None
        return RouteMatch((Backend(first, first.default_model),))

    def _has_prefix(self, name: str) -> bool:
        """Return whether a name has the prefix of a provider, so that no default model replaces it."""
        return "/" in name or self._has_colon_prefix(name)

    def _has_colon_prefix(self, name: str) -> bool:
        """Return whether a name is the `provider:model` of other programs, not the `model:tag` of Ollama."""
        prefix, colon, _ = name.partition(":")
        return bool(colon) and (prefix in self.providers or prefix in KEY_VARIABLES)

    def unknown_model_message(self, name: str) -> str:
        """Return the error message for a model that no provider serves, with the nearest known names."""
        advice = f"use {self._describe_choices()}"
        if self.catch_all is None and not self._has_prefix(name):
            advice += f"; {_SET_DEFAULT}"
        return f"{self.describe_unknown_model(name)}: {advice}"

    def describe_unknown_model(self, name: str) -> str:
        """Return that no provider serves a model, with the nearest known names."""
        prefix, slash, _ = name.partition("/")
        if self._has_colon_prefix(name):
            problem, suggestion = f"unknown model {name!r}", f'did you mean "{name.replace(":", "/", 1)}"?'
        elif slash and prefix not in self.providers:
            problem, suggestion = f"unknown provider {prefix!r} in model {name!r}", suggest(prefix, self.providers)
            if prefix in KEY_VARIABLES:
                suggestion = f"set {KEY_VARIABLES[prefix]}, or configure the provider"
        else:
            problem, suggestion = f"unknown model {name!r}", suggest(name, self._known_names())
        return f"{problem}{suggestion and f' ({suggestion})'}"

    def _known_names(self) -> Iterable[str]:
        """Yield the names of aliases, routes and models, without those of patterns."""
        yield from (alias for alias in self.aliases if self.match(alias) is not None)
        for section in self.routes:
            if not is_pattern(section.match):
                yield section.match
        for provider in self.providers.values():
            for model in provider_models(provider, self.listed_names(provider)):
                yield f"{provider.name}/{model}" if self.match(model) is None else model

    def _describe_choices(self) -> str:
        """Return a list of the valid forms of model names, for an error message."""
        routes = (section.match for section in self.routes if not is_pattern(section.match))
        aliases = (alias for alias in self.aliases if self.match(alias) is not None)
        names = list(dict.fromkeys([*routes, *aliases]))
        shown = names[:_MOST_CHOICES] + (["..."] if len(names) > _MOST_CHOICES else [])
        providers = [f"{provider}/MODEL" for provider in self.providers]
        return ", ".join([*shown, *providers])


class FixedRouter(Router):
    """Routes every model name to the same backends."""

    def __init__(self, router: Router, match: RouteMatch) -> None:
        super().__init__(router.providers, router.routes, aliases=router.aliases)
        self._match = match

    def route(self, model: str | None) -> RouteMatch:
        """Return the fixed match, whatever the model."""
        return self._match


def provider_models(provider: Provider, listed: Iterable[str] = ()) -> Iterable[str]:
    """Return the names of a provider's models: the default, those configured without wildcards, and those listed."""
    default = () if provider.default_model is None else (provider.default_model,)
    names = (name for name in (*provider.models, *listed) if not is_pattern(name))
    return dict.fromkeys((*default, *names))


def is_pattern(name: str) -> bool:
    """Return whether a name contains wildcards."""
    return any(wildcard in name for wildcard in "*?[")


def _serves_model(provider: Provider, model: str) -> bool:
    """Return whether one of the provider's `models` patterns matches."""
    return any(fnmatchcase(model, pattern) for pattern in provider.models)


def _fallback_model(fallback: Provider, model: str | None) -> str | None:
    """Return the model to request from a fallback: the same if the fallback serves it, else its default."""
    return model if model is not None and _serves_model(fallback, model) else fallback.default_model or model
