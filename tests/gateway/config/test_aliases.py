"""Aliases of models."""

import pytest

from toolwire.gateway.config import Config, ConfigError, build_providers, parse_config
from toolwire.gateway.exchange.routing import Router
from toolwire.gateway.providers.models import list_models
from toolwire.upstream.models.catalog import ModelCatalog
from toolwire.upstream.transport import Transport

PROVIDERS = "".join(
    f'[providers.{name}]\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:{port}"\n'
    for name, port in (("a", 1), ("b", 2))
)


def parse(text: str) -> Config:
    return parse_config(text + PROVIDERS, {})


def router(config: Config, catch_all: str | None = None) -> Router:
    return Router(build_providers(config), config.routes, catch_all or config.default_model, config.aliases)


def names(router: Router, model: str | None) -> list[str]:
    return [backend.name for backend in router.route(model).backends]


def test_alias_stands_for_its_model_in_requests_and_defaults() -> None:
    config = parse('default_model = "quick"\n[aliases]\nfast = "a/small"\nquick = "fast"\n"claude-x" = "b/large"\n')
    assert config.aliases == {"fast": "a/small", "quick": "a/small", "claude-x": "b/large"}
    for model, backend in (("fast", "a/small"), ("quick", "a/small"), ("claude-x", "b/large"), (None, "a/small")):
        assert names(router(config), model) == [backend]
    assert names(router(config, "claude-x"), "unknown") == ["b/large"]


def test_alias_can_name_a_route_and_routes_can_name_aliases() -> None:
    config = parse(
        '[aliases]\nteam = "shared"\nfast = "a/small"\nname = "bare"\n'
        '[[routes]]\nmatch = "shared"\n'
        'backends = [{ provider = "a", model = "fast" }, { provider = "b", model = "name" }]\n'
        '[[routes]]\nmatch = "one"\nprovider = "a"\nmodel = "fast"\n'
    )
    assert names(router(config), "team") == ["a/small", "b/bare"]
    assert names(router(config), "one") == ["a/small"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[aliases]\na = "b"\nb = "a"\n', "2:5: aliases.a: stands for itself: a -> b -> a"),
        ('[aliases]\na = "a"\n', "2:5: aliases.a: stands for itself: a -> a"),
        ('[aliases]\nx = "a"\na = "b"\nb = "a"\n', "2:5: aliases.x: stands for itself: x -> a -> b -> a"),
        ('[aliases]\na = ""\n', "2:5: aliases.a: an alias and its model must not be empty"),
        (
            '[aliases]\nx = "b/m"\n[[routes]]\nprovider = "a"\nmodel = "x"\n',
            "5:9: routes[0].model: the alias 'x' stands for 'b/m', which is not a model of a",
        ),
        (
            '[aliases]\nx = "b/m"\n[[routes]]\nmatch = "x"\nprovider = "a"\n',
            "4:9: routes[0].match: 'x' is also an alias; rename one of them",
        ),
    ],
)
def test_invalid_aliases_are_errors(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert str(error.value) == f"toolwire.toml:{message}"


def test_aliases_are_listed_unless_nothing_serves_them() -> None:
    config = parse('[aliases]\nfast = "a/small"\nlost = "nobody/x"\n')
    models = list_models(router(config), ModelCatalog(Transport()))
    assert [(model.id, model.provider, model.model) for model in models] == [("fast", "a", "small")]
