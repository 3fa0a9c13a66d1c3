"""`toolwire models`: list the models that the configured providers have."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolwire.cli.inputs import BadInput, config_option, report_bad_input

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolwire.codec.models.info import ModelInfo
    from toolwire.gateway.config import Config
    from toolwire.gateway.providers.models import ListedModel

_LONGEST_NAME = 48


@click.command("models", short_help="List the models of the providers.")
@click.argument("provider", required=False, metavar="[PROVIDER]")
@config_option
@click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=5, metavar="SECONDS", help="Per provider. Default: 5."
)
@click.option("--json", "as_json", is_flag=True, help="Print the models as JSON.")
def command(provider: str | None, config_path: Path | None, timeout: float, *, as_json: bool) -> None:
    """List the models that requests can name, of all providers or of PROVIDER.

    The providers are asked for their lists, all at the same time. One that does not answer is named on stderr, and
    listed with its configured models only. A star marks models that need no provider in front. Context windows are
    what the providers state, or what is known of the name; prices are in dollars per million tokens, and need
    `toolwire[prices]`. Exit code 1: no provider sent a list.

    \b
    Example:
      toolwire models
      toolwire models anthropic --json
    """
    with report_bad_input():
        import asyncio

        from toolwire.gateway.config import load_config

        config = load_config(config_path).config
        models, errors = asyncio.run(_fetch_models(config, provider, timeout))
    for name, error in errors.items():
        click.echo(f"{name}: {error}", err=True)
    if as_json:
        _print_json(models)
    else:
        _print_table(models)
    if errors and not any(model.provider not in errors for model in models):
        raise SystemExit(1)


async def _fetch_models(
    config: "Config", name: str | None, timeout: float
) -> "tuple[list[ListedModel], dict[str, str]]":
    """Return the models of a provider or of all, and why the lists of some are missing."""
    from toolwire.codec.suggestions import unknown_name
    from toolwire.gateway.exchange.routing import Router
    from toolwire.gateway.providers.discovery import configured_providers, simulated_providers
    from toolwire.gateway.providers.models import list_models
    from toolwire.upstream.models.catalog import ModelCatalog
    from toolwire.upstream.models.model_lists import ModelLists
    from toolwire.upstream.transport import Transport

    providers = configured_providers(config)
    if not providers:
        click.echo(
            "no provider is configured: the built-in simulator answers (`toolwire doctor` has details)", err=True
        )
        # The simulator runs only in a gateway, and serves any name.
        return list_models(Router(simulated_providers("http://127.0.0.1:9")), ModelCatalog(Transport())), {}
    if name is not None and name not in providers:
        raise BadInput(unknown_name("provider", name, providers))
    selected = [provider for provider in providers.values() if name in (None, provider.name)]
    transport = Transport()
    try:
        lists = await ModelLists(transport, timeout).fetch_all(selected)
    finally:
        transport.close()
    router = Router(providers, config.routes, aliases=config.aliases)
    models = list_models(router, ModelCatalog(transport, config.models), lists)
    return (
        [model for model in models if name in (None, model.provider)],
        {provider: answered.error for provider, answered in lists.items() if answered.error},
    )


def _describe(model: "ListedModel") -> "ModelInfo":
    """Return what is known about a model, with packaged prices where the provider states none."""
    from toolwire.codec.models.info import merge_info
    from toolwire.upstream.models.price_data import packaged_model

    return merge_info(model.info, packaged_model(model.model or model.id, model.provider))


def _print_json(models: "Sequence[ListedModel]") -> None:
    """Print one object for each name, with the facts that are known."""
    import msgspec

    entries: list[dict[str, Any]] = [
        {"id": model.id, "provider": model.provider, "model": model.model, **msgspec.to_builtins(_describe(model))}
        for model in models
    ]
    click.echo(msgspec.json.format(msgspec.json.encode({"models": entries}), indent=2).decode())


def _print_table(models: "Sequence[ListedModel]") -> None:
    """Print one line for each model, and for each route with a name."""
    ids = {model.id for model in models}
    rows = [("MODEL", "CONTEXT", "$/M IN", "$/M OUT")]
    for model in models:
        if model.id == model.model and f"{model.provider}/{model.model}" in ids:
            continue  # the star of `provider/model` says so
        info = _describe(model)
        prices = ("", "") if info.prices is None else (f"{info.prices.input:g}", f"{info.prices.output:g}")
        rows.append((_format_name(model, ids), _format_tokens(info.context), *prices))
    if len(rows) == 1:
        click.echo("no models")
        return
    width = min(max(len(name) for name, *_ in rows), _LONGEST_NAME)
    for name, *facts in rows:
        click.echo(f"{name:{width}} {' '.join(f'{fact:>9}' for fact in facts)}".rstrip())
    if any(name.endswith(" *") for name, *_ in rows):
        click.echo("\n* also without the provider in front")


def _format_name(model: "ListedModel", ids: set[str]) -> str:
    """Return a model's name, with a star if it needs no provider, or with the model that a route leads to."""
    if model.id == f"{model.provider}/{model.model}":
        return f"{model.id} *" if model.model in ids else model.id
    target = model.provider if model.model is None else f"{model.provider}/{model.model}"
    return model.id if model.id == model.model else f"{model.id} -> {target}"


def _format_tokens(tokens: int | None) -> str:
    """Return a number of tokens as 8K, 200K or 1M; empty if it is unknown."""
    if tokens is None:
        return ""
    if tokens >= 999_000:
        return f"{tokens / 1_000_000:.1f}".removesuffix(".0") + "M"
    return f"{tokens / 1000:.0f}K" if tokens >= 1000 else str(tokens)
