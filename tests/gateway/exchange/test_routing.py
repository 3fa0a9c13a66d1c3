"""Which provider answers a name."""

import pytest

from toolwire.gateway.config import RouteSection
from toolwire.gateway.errors import ModelNotSpecified, RouteNotFound, to_api_error
from toolwire.gateway.exchange.routing import Router
from toolwire.gateway.providers.catalog import list_models
from toolwire.gateway.providers.discovery import discover_providers, simulated_providers
from toolwire.upstream.provider import Provider


def provider(name: str, url: str = "http://127.0.0.1:1", **more: object) -> Provider:
    return Provider(name=name, protocol="openai-chat", base_url=url, **more)  # type: ignore[arg-type]


A, B = provider("a"), provider("b", "http://127.0.0.1:2", models=("b-*",), default_model="b-1")


def said(router: Router, model: str | None) -> list[tuple[str, str | None]]:
    return [(way.provider.name, way.model) for way in router.route(model).backends]


def test_the_first_matching_route_wins() -> None:
    routes = (
        RouteSection(match="claude-*", providers=("a", "b"), model="x"),
        RouteSection(match="claude-3*", provider="b"),
        RouteSection(match="*", provider="b"),
    )
    router = Router({"a": A, "b": B}, routes)
    assert said(router, "claude-3-opus") == [("a", "x"), ("b", "b-1")]
    assert said(router, "anything") == [("b", "anything")]
    assert said(router, None) == [("b", None)]
    assert router.route("claude-3-opus").options is routes[0]


def test_fallback_receives_its_default_model() -> None:
    """A fallback gets its `default_model` unless its `models` list the name; with neither it is a replica."""
    plain = provider("c", "http://127.0.0.1:3")
    providers = {"a": A, "b": B, "c": plain}
    router = Router(providers, (RouteSection(providers=("a", "b", "c")),))
    assert said(router, "gpt-5") == [("a", "gpt-5"), ("b", "b-1"), ("c", "gpt-5")]
    assert said(router, "b-7") == [("a", "b-7"), ("b", "b-7"), ("c", "b-7")]
    assert said(router, None) == [("a", None), ("b", "b-1"), ("c", None)]
    named = Router(providers, (RouteSection(providers=("b", "a"), model="x"),))
    assert said(named, "gpt-5") == [("b", "x"), ("a", "x")]


def test_without_a_route_a_name_says_its_provider_or_is_known_or_falls_to_the_catch_all() -> None:
    router = Router({"a": A, "b": B}, catch_all="a/fallback")
    assert said(router, "a/m/with/slashes") == [("a", "m/with/slashes")]
    assert said(router, "b-7") == [("b", "b-7")]
    assert said(router, "unknown") == [("a", "fallback")]
    assert said(router, None) == [("a", "fallback")]


def test_an_unknown_name_goes_to_the_only_providers_default() -> None:
    assert said(Router({"b": B}), "unknown") == [("b", "b-1")]
    with pytest.raises(RouteNotFound, match="use a/MODEL, b/MODEL"):
        Router({"a": A, "b": B}).route("unknown")
    with pytest.raises(RouteNotFound, match="'unknown'"):
        Router({"a": A}).route("unknown")


def test_a_request_without_a_model_is_a_mistake_of_the_request() -> None:
    with pytest.raises(ModelNotSpecified, match="names no model: use a/MODEL") as found:
        Router({"a": A}).route(None)
    assert to_api_error(found.value).status == 400


def test_a_catch_all_that_leads_nowhere_is_refused_at_the_start() -> None:
    with pytest.raises(RouteNotFound, match="'nobody/x'"):
        Router({"a": A}, catch_all="nobody/x")


def test_providers_are_found_by_their_usual_variables() -> None:
    found = discover_providers({"OPENAI_API_KEY": "sk-1", "OLLAMA_HOST": "box", "PATH": "/bin"})
    assert {name: (one.protocol, one.base_url, one.api_key) for name, one in found.items()} == {
        "openai": ("openai-responses", "https://api.openai.com", "sk-1"),
        "openai-chat": ("openai-chat", "https://api.openai.com", "sk-1"),
        "ollama": ("ollama", "http://box:11434", None),
    }
    assert discover_providers({"ANTHROPIC_API_KEY": ""}) == {}
    assert discover_providers({"OLLAMA_HOST": "http://[::1]:1"})["ollama"].base_url == "http://[::1]:1"


def test_with_one_key_any_name_works_and_the_others_say_which() -> None:
    router = Router(discover_providers({"OPENAI_API_KEY": "k"}))
    assert said(router, "claude-sonnet-4-5") == [("openai", "gpt-5.5")]
    assert said(router, "openai-chat/gpt-4o") == [("openai-chat", "gpt-4o")]
    both = Router(discover_providers({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}))
    assert said(both, "claude-sonnet-4-5") == [("anthropic", "claude-sonnet-4-5")]
    with pytest.raises(RouteNotFound):
        both.route("llama")


def test_the_simulator_stands_for_every_provider() -> None:
    router = Router(simulated_providers("http://127.0.0.1:9"))
    assert {said(router, name)[0][0] for name in ("claude-x", "gpt-5", "gemini-3", "a/b", "q:7b")} == {
        "anthropic",
        "openai",
        "gemini",
        "openrouter",
        "ollama",
    }
    assert said(router, "whatever") == [("anthropic", "simulated")]
    assert "ollama/simulated" in [card.id for card in list_models(router)]


def test_patterns_are_not_offered_as_models() -> None:
    routes = (RouteSection(match="fast", provider="a", model="x"), RouteSection(match="gpt-*", provider="b"))
    assert [card.id for card in list_models(Router({"a": A, "b": B}, routes))] == ["fast", "b/b-1"]
