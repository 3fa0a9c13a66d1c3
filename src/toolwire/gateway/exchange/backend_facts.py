"""Facts about the model of a backend, for the encoder of a request."""

from typing import Any, TypedDict

import msgspec

from toolwire.canonical.request import Request
from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.models.info import ModelInfo
from toolwire.codec.token_count import measure_json, tokens_for_size
from toolwire.gateway.config import RouteSection
from toolwire.gateway.exchange.exchange import ExchangeServices
from toolwire.gateway.exchange.routing import Backend
from toolwire.gateway.providers.context_size import may_exceed_default
from toolwire.upstream.models.catalog import CatalogEntry
from toolwire.upstream.provider import ContextSize

# Hosts that reject an output limit above the model's, and state that limit in their list.
_HOSTS_WITH_LIMITS = ("groq",)


class BackendFacts(TypedDict):
    """The fields of a `Target` that depend on the backend's model and host."""

    host: HostProfile
    version: str | None
    model_info: ModelInfo
    context_tokens: int | None


async def look_up_backend(
    services: ExchangeServices,
    backend: Backend,
    options: RouteSection,
    request: Request,
    *,
    body_size: int | None = None,
    heavy: bool = False,
) -> BackendFacts:
    """Return the facts about a backend's model; the provider is asked if the request depends on its answer.

    `body_size` is the size of the client's body, if that contains the entire request. A `heavy` request is measured in
    a thread.
    """
    provider, model = backend.provider, backend.model or request.model
    if request.origin == provider.protocol or not model:
        return known_backend(services, backend, request)
    setting: ContextSize = "off"
    if provider.protocol == "ollama":
        setting = options.num_ctx or provider.num_ctx or "auto"
        if setting == "auto" and body_size is not None and not may_exceed_default(body_size):
            setting = "off"
    entry = services.catalog.look_up(provider, model)
    if _depends_on_provider(entry, request, setting):
        entry = await services.catalog.ask(provider, model)
    facts = _backend_facts(entry)
    if setting != "off":
        tokens = await services.body_executor.run(estimate_prompt, request, heavy=heavy) if setting == "auto" else 0
        limit = None if request.sampling is None else request.sampling.max_tokens
        facts["context_tokens"] = services.context_sizes.choose(
            provider, model, entry, setting, prompt_tokens=tokens, max_tokens=limit
        )
    return facts


def known_backend(services: ExchangeServices, backend: Backend, request: Request) -> BackendFacts:
    """Return the facts that are known about a backend's model, without asking the provider."""
    return _backend_facts(services.catalog.look_up(backend.provider, backend.model or request.model))


def _backend_facts(entry: CatalogEntry) -> BackendFacts:
    """Return the facts of a catalog entry."""
    return BackendFacts(host=entry.host, version=entry.version, model_info=entry.info, context_tokens=None)


def _depends_on_provider(entry: CatalogEntry, request: Request, setting: ContextSize) -> bool:
    """Return whether a request depends on a fact that only the provider knows."""
    info = entry.info
    if entry.host.name == "ollama":
        return (setting != "off" and info.context is None) or (request.thinking is not None and info.thinking is None)
    has_limit = request.sampling is not None and request.sampling.max_tokens is not None
    return has_limit and info.output is None and entry.host.name in _HOSTS_WITH_LIMITS


def estimate_prompt(request: Request) -> int:
    """Estimate the tokens of a request's prompt."""
    parts: tuple[Any, ...] = (request.system, request.messages, request.tools)
    return tokens_for_size(*measure_json(msgspec.json.encode(parts)), has_tools=bool(request.tools))
