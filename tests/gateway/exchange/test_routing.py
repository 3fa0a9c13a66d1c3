"""Routing of model names to providers."""

import re

import pytest

from toolwire.codec.models.info import UNKNOWN_MODEL
from toolwire.gateway.config import RouteSection
from toolwire.gateway.errors import ModelNotSpecified, RouteNotFound, to_api_error
from toolwire.gateway.exchange.routing import Router
from toolwire.gateway.providers.discovery import discover_providers, simulated_providers
from toolwire.gateway.providers.models import list_models
from toolwire.upstream.models.catalog import ModelCatalog
from toolwire.upstream.models.model_lists import ProviderModels
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Transport


def provider(name: str, url: str = "http://127.0.0.1:1", **more: object) -> Provider:
    return Provider(name=name, protocol="openai-chat", base_url=url, **more)  # type: ignore[arg-type]


A, B = provider("a"), provider("b", "http://127.0.0.1:2", models=("b-*",), default_model="b-1")


def routed(router: Router, model: str | None) -> list[tuple[str, str | None]]:
    return [(backend.provider.name, backend.model) for backend in router.route(model).backends]


def listed(router: Router, **models: tuple[str, ...]) -> list[str]:
    lists = {name: ProviderModels(models=dict.fromkeys(names, UNKNOWN_MODEL)) for name, names in models.items()}
    return [model.id for model in list_models(router, ModelCatalog(Transport()), lists)]


def test_first_matching_route_wins() -> None:
    routes = (
        RouteSection(match="claude-*", providers=("a", "b"), model="x"),
        RouteSection(match="claude-3*", provider="b"),
        RouteSection(match="*", provider="b"),
    )
    router = Router({"a": A, "b": B}, routes)
    assert routed(router, "claude-3-opus") == [("a", "x"), ("b", "b-1")]
    assert routed(router, "anything") == [("b", "anything")]
    assert routed(router, None) == [("b", None)]
    assert router.route("claude-3-opus").options is routes[0]


def test_fallback_gets_its_own_model() -> None:
    """Its `default_model`, unless its `models` match; with neither it is a replica of the first."""
    plain = provider("c", "http://127.0.0.1:3")
    providers = {"a": A, "b": B, "c": plain}
    router = Router(providers, (RouteSection(providers=("a", "b", "c")),))
    assert routed(router, "gpt-5") == [("a", "gpt-5"), ("b", "b-1"), ("c", "gpt-5")]
    assert routed(router, "b-7") == [("a", "b-7"), ("b", "b-7"), ("c", "b-7")]
    assert routed(router, None) == [("a", None), ("b", "b-1"), ("c", None)]
    router_with_model = Router(providers, (RouteSection(providers=("b", "a"), model="x"),))
    assert routed(router_with_model, "gpt-5") == [("b", "x"), ("a", "x")]


def test_model_is_routed_by_prefix_then_pattern_then_catch_all() -> None:
    router = Router({"a": A, "b": B}, catch_all="a/fallback")
    assert routed(router, "a/m/with/slashes") == [("a", "m/with/slashes")]
    assert routed(router, "b-7") == [("b", "b-7")]
    assert routed(router, "unknown") == [("a", "fallback")]
    assert routed(router, None) == [("a", "fallback")]


def test_unknown_model_goes_to_the_only_providers_default() -> None:
    assert routed(Router({"b": B}), "unknown") == [("b", "b-1")]
    with pytest.raises(RouteNotFound, match="use a/MODEL, b/MODEL"):
        Router({"a": A, "b": B}).route("unknown")
    with pytest.raises(RouteNotFound, match="'unknown'"):
        Router({"a": A}).route("unknown")


def test_request_without_a_model_is_a_client_error() -> None:
    with pytest.raises(ModelNotSpecified, match="no model given: use a/MODEL") as caught:
        Router({"a": A}).route(None)
    assert to_api_error(caught.value).status == 400


def test_unknown_catch_all_is_refused_at_startup() -> None:
    with pytest.raises(RouteNotFound, match="'nobody/x'"):
        Router({"a": A}, catch_all="nobody/x")
    with pytest.raises(RouteNotFound, match="unknown provider 'foo' in model 'foo/bar'"):
        Router(simulated_providers("http://127.0.0.1:9"), catch_all="foo/bar")


@pytest.mark.parametrize(
    "router",
    [
        Router({"openai": provider("openai", default_model="x")}),
        Router({"openai": A}, catch_all="openai/x"),
        Router(simulated_providers("http://127.0.0.1:9")),
    ],
    ids=["default_model", "--model", "simulator"],
)
def test_misspelled_provider_is_never_answered_by_a_default(router: Router) -> None:
    with pytest.raises(RouteNotFound) as caught:
        router.route("opnai/gpt-5")
    assert str(caught.value).startswith("unknown provider 'opnai' in model 'opnai/gpt-5' (did you mean \"openai\"")
    assert to_api_error(caught.value).status == 404
    assert router.route("opnai-gpt-5").is_default


def test_error_advises_a_default_only_where_one_would_answer() -> None:
    router = Router({"a": A, "b": B})
    with pytest.raises(RouteNotFound, match="unknown model 'm': use a/MODEL, b/MODEL; set a default with --model"):
        router.route("m")
    for name in ("c/m", "openai:m"):
        with pytest.raises(RouteNotFound, match=r"use a/MODEL, b/MODEL$"):
            router.route(name)
    with pytest.raises(RouteNotFound, match=r"unknown model 'typo': use a/MODEL$"):
        Router({"a": A}, catch_all="typo")


def test_error_for_an_alias_names_it_but_does_not_advise_to_use_it() -> None:
    router = Router({"a": A, "b": B}, aliases={"fast": "opnai/m", "good": "a/m"})
    with pytest.raises(RouteNotFound) as caught:
        router.route("fast")
    problem = "the alias 'fast' leads to no provider: unknown provider 'opnai' in model 'opnai/m'"
    assert str(caught.value) == f"{problem}: use good, a/MODEL, b/MODEL"


def test_default_may_be_a_route() -> None:
    route = RouteSection(match="fast", providers=("a", "b"), model="m")
    found = Router({"a": A, "b": B}, (route,), catch_all="fast").route("unknown")
    assert ([backend.name for backend in found.backends], found.is_default) == (["a/m", "b/b-1"], True)


def test_error_suggests_names_that_the_providers_listed() -> None:
    router = Router({"a": A, "b": B}, (RouteSection(match="fast", provider="a"),))
    router.listed_names = lambda provider: ("gpt-5", "gpt-4.1") if provider is A else ("b-big", "b-small")
    for typo, meant in (("gtp-5", "a/gpt-5"), ("b_smal", "b-small"), ("fsat", "fast")):
        with pytest.raises(RouteNotFound, match=f'did you mean "{meant}"'):
            router.route(typo)
    with pytest.raises(RouteNotFound, match=r"unknown model 'a/': use fast, a/MODEL, b/MODEL$"):
        router.route("a/")


def test_error_lists_the_first_names_of_routes_and_aliases() -> None:
    routes = tuple(RouteSection(match=f"r{number}", provider="a") for number in range(8))
    aliases = {f"x{number}": "a/m" for number in range(4)}
    router = Router({"a": A}, (*routes, RouteSection(match="q-*", provider="a")), aliases=aliases)
    names = [*(f"r{number}" for number in range(8)), "x0", "x1", "..."]
    with pytest.raises(RouteNotFound, match=re.escape(f"use {', '.join(names)}, a/MODEL; set a default")):
        router.route("b-m")


def test_listed_names_are_those_that_lead_to_the_model() -> None:
    router = Router({"a": A, "b": B})
    assert listed(router, a=("m", "b-2"), b=("b-2", "other")) == [
        "a/m",
        "a/b-2",
        "b/b-1",
        "b-1",
        "b/b-2",
        "b-2",
        "b/other",
    ]
    everything = Router({"a": A, "b": B}, (RouteSection(match="b-*", provider="b"), RouteSection(provider="a")))
    # The route gets every other name, with the prefix in it.
    assert listed(everything, a=("m",), b=("b-2",)) == ["m", "b-1", "b-2"]
    fixed = Router({"a": A}, (RouteSection(provider="a", model="m"),))
    assert listed(fixed, a=("m", "n")) == ["a/m", "m"]


def test_providers_are_discovered_by_their_key_variables() -> None:
    caught = discover_providers({"OPENAI_API_KEY": "sk-1", "OLLAMA_HOST": "box", "PATH": "/bin"})
    assert {name: (one.protocol, one.base_url, one.api_key) for name, one in caught.items()} == {
        "openai": ("openai-responses", "https://api.openai.com", "sk-1"),
        "openai-chat": ("openai-chat", "https://api.openai.com", "sk-1"),
        "ollama": ("ollama", "http://box:11434", None),
    }
    assert discover_providers({"ANTHROPIC_API_KEY": ""}) == {}
    assert discover_providers({"OLLAMA_HOST": "http://[::1]:1"})["ollama"].base_url == "http://[::1]:1"


def test_with_one_key_any_model_name_works() -> None:
    router = Router(discover_providers({"OPENAI_API_KEY": "k"}))
    assert routed(router, "claude-sonnet-4-5") == [("openai", "gpt-5.5")]
    assert routed(router, "openai-chat/gpt-4o") == [("openai-chat", "gpt-4o")]
    two_provider_router = Router(discover_providers({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}))
    assert routed(two_provider_router, "claude-sonnet-4-5") == [("anthropic", "claude-sonnet-4-5")]
    with pytest.raises(RouteNotFound):
        two_provider_router.route("llama")


def test_simulator_replaces_every_provider() -> None:
    router = Router(simulated_providers("http://127.0.0.1:9"))
    assert {routed(router, name)[0][0] for name in ("claude-x", "gpt-5", "gemini-3", "openrouter/x", "q:7b")} == {
        "anthropic",
        "openai",
        "gemini",
        "openrouter",
        "ollama",
    }
    assert routed(router, "whatever") == [("anthropic", "simulated")]
    assert "ollama/simulated" in listed(router)


def test_patterns_are_not_listed_as_models() -> None:
    routes = (RouteSection(match="fast", provider="a", model="x"), RouteSection(match="gpt-*", provider="b"))
    assert listed(Router({"a": A, "b": B}, routes)) == ["fast", "b/b-1", "b-1"]
