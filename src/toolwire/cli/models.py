"""`toolwire models`: list the models that the configured providers have."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolwire.cli.inputs import BadInput, NumberOption, config_option, report_bad_input
from toolwire.cli.output.terminal import Column, Table, json_option, print_json, print_line, show_progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolwire.codec.models.info import ModelInfo
    from toolwire.gateway.config import Config
    from toolwire.gateway.providers.models import ListedModel


@click.command("models", short_help="List the models of the providers.")
@click.argument("provider", required=False, metavar="[PROVIDER]")
@config_option
@click.option(
    "--timeout",
    cls=NumberOption,
    type=click.FloatRange(min=0.1),
    default=5,
    metavar="SECONDS",
    help="Per provider. Default: 5.",
)
@json_option("Print all names as JSON, with all facts that are known.")
def command(provider: str | None, config_path: Path | None, timeout: float, *, as_json: bool) -> None:
    """List the models that requests can name, of all providers or of PROVIDER.

    The providers are asked for their lists, all at the same time. One that does not answer is named on stderr, and
    listed with its configured models only. A star marks models that need no provider in front. Context windows are
    what the providers state, or what is known of the name; prices are in dollars per million tokens, and need
    `toolwire[prices]`. Exit code 1: no provider sent a list.

    \b
    Examples:
      toolwire models
      toolwire models anthropic --json
    """
    with report_bad_input():
        import asyncio

        from toolwire.gateway.config import load_config

        config = load_config(config_path).config
        with show_progress("asking the providers for their models"):
            models, errors = asyncio.run(_fetch_models(config, provider, timeout))
    for error in dict.fromkeys(errors.values()):
        names = ", ".join(name for name, reason in errors.items() if reason == error)
        print_line((f"{names}: {error}", "warning"), err=True)
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

    configured = configured_providers(config)
    # The simulator runs only in a gateway, and serves any name.
    providers = configured or simulated_providers("http://127.0.0.1:9")
    if not configured:
        note = "no provider is configured: the built-in simulator answers (`toolwire doctor` has details)"
        print_line(note, err=True)
    if name is not None and name not in providers:
        raise BadInput(unknown_name("provider", name, providers))
    selected = [provider for provider in providers.values() if name in (None, provider.name)]
    transport = Transport()
    try:
        lists = await ModelLists(transport, timeout).fetch_all(selected) if configured else {}
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
    print_json({"models": entries})


def _print_table(models: "Sequence[ListedModel]") -> None:
    """Print one line for each model, and for each route with a name."""
    ids = {model.id for model in models}
    rows: list[tuple[str, ...]] = []
    for model in models:
        if model.id == model.model and f"{model.provider}/{model.model}" in ids:
            continue  # the star of `provider/model` says so
        info = _describe(model)
        prices = ("", "") if info.prices is None else (f"{info.prices.input:g}", f"{info.prices.output:g}")
        is_short = model.id == f"{model.provider}/{model.model}" and model.model in ids
        rows.append((_format_name(model), "*" if is_short else "", _format_tokens(info.context), *prices))
    if not rows:
        print_line("no models", err=True)
        return
    numbers = [Column(title, align_right=True) for title in ("context", "$/M in", "$/M out")]
    Table(Column("model", is_flexible=True), Column(""), *numbers).print_rows(rows)
    if any(star for _, star, *_ in rows):
        print_line(("* also without the provider in front", "muted"), err=True)


def _format_name(model: "ListedModel") -> str:
    """Return a model's name, and for a route with a name the model that it leads to."""
    if model.id in (model.model, f"{model.provider}/{model.model}"):
        return model.id
    return f"{model.id} -> {model.provider if model.model is None else f'{model.provider}/{model.model}'}"


def _format_tokens(tokens: int | None) -> str:
    """Return a number of tokens as 8K, 200K or 1M; empty if it is unknown."""
    if tokens is None:
        return ""
    if tokens >= 999_000:
        return f"{tokens / 1_000_000:.1f}".removesuffix(".0") + "M"
    return f"{tokens / 1000:.0f}K" if tokens >= 1000 else str(tokens)
