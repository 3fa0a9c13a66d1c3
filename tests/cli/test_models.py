"""`toolwire models`, against simulated providers on loopback."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.servers.asgi import serve_app
from toolwire.cli import main
from toolwire.gateway.providers.known_providers import KEY_VARIABLES
from toolwire.upstream.simulator.app import Simulator

ROUTE = '[[routes]]\nmatch = "fast"\nbackends = [{provider = "anthropic", model = "claude-haiku-4-5"}]\n'


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The configuration of two providers that list their models, and one that is down."""
    path = tmp_path_factory.mktemp("models") / "toolwire.toml"
    with serve_app(Simulator()) as url:
        path.write_text(
            f'[providers.anthropic]\nprotocol = "anthropic"\nbase_url = "{url}"\nmodels = ["claude-*"]\n'
            f'[providers.router]\nprotocol = "openrouter"\nbase_url = "{url}"\n'
            '[providers.down]\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9"\ndefault_model = "gpt-4.1"\n'
            + ROUTE
        )
        yield path


def models(*arguments: str) -> Result:
    return CliRunner().invoke(
        main, ["models", "--timeout", "120", *arguments], env=dict.fromkeys(KEY_VARIABLES.values())
    )


def test_models_of_all_providers_are_listed(config: Path) -> None:
    result = models("--config", str(config))
    assert result.exit_code == 0, result.output
    rows = {line.split("  ")[0]: line.split() for line in result.stdout.splitlines()}
    assert rows["anthropic/claude-haiku-4-5"][1:3] == ["*", "200K"]
    assert rows["fast -> anthropic/claude-haiku-4-5"][3] == "200K"
    assert {"router/openai/gpt-6-astra", "down/gpt-4.1"} <= set(rows)
    assert result.stderr.startswith("down: can't connect to 127.0.0.1:9")
    assert result.stderr.endswith("* also without the provider in front\n")
    assert all(len(line) <= 80 and line == line.rstrip() for line in result.stdout.splitlines())


def test_models_are_listed_as_json(config: Path) -> None:
    found = json.loads(models("anthropic", "--config", str(config), "--json").stdout)["models"]
    by_id = {model["id"]: model for model in found}
    assert {model["provider"] for model in found} == {"anthropic"}
    assert by_id["anthropic/claude-haiku-4-5"]["context"] == by_id["claude-haiku-4-5"]["context"] == 200_000
    assert by_id["fast"]["model"] == "claude-haiku-4-5"


def test_providers_that_fail_alike_are_named_together(tmp_path: Path) -> None:
    path = tmp_path / "toolwire.toml"
    provider = '[providers.{}]\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9"\n'
    path.write_text(provider.format("one") + provider.format("two"))
    assert models("--config", str(path)).stderr.count(": can't connect to 127.0.0.1:9") == 1


def test_failures_have_exit_codes(config: Path) -> None:
    assert models("down", "--config", str(config)).exit_code == 1
    unknown = models("anthropc", "--config", str(config))
    assert unknown.exit_code == 2
    assert "unknown provider 'anthropc' (did you mean \"anthropic\"?)" in unknown.stderr


def test_without_providers_the_simulator_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = models()
    assert result.exit_code == 0
    assert "openai/simulated" in result.stdout
    assert "simulator" in result.stderr


def test_provider_that_the_simulator_lacks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    unknown = models("opnai")
    assert unknown.exit_code == 2
    assert "unknown provider 'opnai' (did you mean \"openai\"" in unknown.stderr
    assert models("openai").stdout.split() == ["openai/simulated"]
