"""Keys with which every request is refused, named before the first one."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from toolwire.cli import main
from toolwire.gateway.config import parse_config
from toolwire.gateway.keys import key_check
from toolwire.gateway.keys.key_check import find_refused_keys
from toolwire.upstream.models import price_data

MODELS_ADVICE = "use a name of [[routes]] or PROVIDER/MODEL"
HASH = f'hash = "sha256:{"0" * 64}"'
PROVIDER = '[providers.up]\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9"\n'
MORE = '[[routes]]\nmatch = "fast"\nprovider = "up"\n[aliases]\n"team/small" = "up/m"\n'


def problems(settings: str, more: str = "") -> list[str]:
    config = parse_config(f"{PROVIDER}{MORE}{more}[keys.alice]\n{HASH}\n{settings}\n", {})
    return [str(found) for found in find_refused_keys(config, config.providers)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("expires = 2020-01-31", ["keys.alice.expires: the key expired on 2020-01-31; set a later day"]),
        ("expires = 2999-01-31", []),
        (
            'models = ["upp/gpt-5*", "up/x", "u*/x", "*", "gpt-5", "fast", "team/small"]',
            [f"keys.alice.models: 'upp/gpt-5*' matches no route, no alias and no provider; {MODELS_ADVICE}"],
        ),
    ],
)
def test_key_that_allows_nothing_is_named(settings: str, expected: list[str]) -> None:
    assert problems(settings) == expected


def test_missing_prices_are_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = "dollars_per_month = 50"
    assert problems(limit) == []
    for module in (key_check, price_data):
        monkeypatch.setattr(module, "has_extra", lambda _: False)
    (problem,) = problems(limit)
    assert problem.startswith("keys.alice: a limit in dollars refuses models whose price is unknown")
    assert "the price list needs the extra `prices`: " in problem
    assert "install" in problem
    assert 'or set `prices` in [models."PROVIDER/MODEL"]' in problem
    assert problems(f'{limit}\nunpriced = "allow"') == []
    assert problems(limit, '[models."up/m"]\nprices = {input = 1, output = 2}\n') == []


def test_doctor_names_keys_that_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(f"{PROVIDER}[keys.alice]\n{HASH}\nexpires = 2020-01-31\n", encoding="utf-8")
    result = CliRunner().invoke(main, ["doctor", "--config", str(file)], env={"XDG_STATE_HOME": str(tmp_path)})
    assert result.exit_code == 1
    assert "problem  keys.alice.expires: the key expired on 2020-01-31; set a later day\n" in result.output
