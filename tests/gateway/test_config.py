"""`toolwire.toml`: valid files are read, and errors name the key."""

from pathlib import Path

import pytest

from toolwire.gateway.config import ConfigError, build_providers, parse_config, read_config

BLUEPRINT = """
[server]
keys = ["env:TOOLWIRE_KEY"]

[providers.up]
protocol = "gemini"
base_url = "http://127.0.0.1:9101"
api_key = "env:UP_KEY"
timeout = 600

[[routes]]
match = "*"
provider = "up"
model = "gemini-3-pro"
"""
ENVIRONMENT = {"TOOLWIRE_KEY": "a-server-key", "UP_KEY": "an-upstream-key"}


def test_full_config_is_read_with_keys_from_the_environment() -> None:
    config = parse_config(BLUEPRINT, ENVIRONMENT)
    assert config.server.keys == ("a-server-key",)
    provider = build_providers(config)["up"]
    assert (provider.protocol, provider.api_key, provider.timeout) == ("gemini", "an-upstream-key", 600)
    route = config.routes[0]
    assert (route.match, [backend.provider for backend in route.backend_sections], route.model) == (
        "*",
        ["up"],
        "gemini-3-pro",
    )


UP = '[providers.up]\nprotocol = "gemini"\nbase_url = "http://127.0.0.1:1"\n'
BEDROCK = '[providers.x]\nprotocol = "anthropic"\nhost = "bedrock"\n'
VERTEX = '[providers.x]\nprotocol = "gemini"\nhost = "vertex"\n'
WRONG = [
    ("[server]\nprot = 1", '2:1: unknown key "prot" in [server] (did you mean "port"?)'),
    ("nonsense = 1", '1:1: unknown key "nonsense" at the top level'),
    (UP + "bse_url = 1", '4:1: unknown key "bse_url" in [providers.up] (did you mean "base_url"?)'),
    (
        UP + '[[routes]]\nprovider = "up"\nmach = "x"',
        '6:1: unknown key "mach" in [[routes]] (did you mean "match" or "cache"?)',
    ),
    ("[server]\nport = 'x'", "2:8: server.port: expected an integer from 0 to 65535, got a string"),
    ('[server]\nkeys = ["env:NOT_SET"]', "server.keys[0]: environment variable NOT_SET is not set"),
    ('[server]\nkeys = ["short"]', "server.keys[0]: must have at least 8 characters"),
    (
        '[providers.x]\nprotocol = "smtp"\nbase_url = "http://x"',
        "providers.x.protocol: unknown protocol 'smtp'; expected one of anthropic",
    ),
    ('[providers.x]\nprotocol = "gemini"\nbase_url = "x"', "providers.x.base_url: 'x' does not start with http"),
    (UP + '[[routes]]\nmatch = "a"', "routes[0]: no provider given"),
    (UP + '[[routes]]\nprovider = "down"', "5:12: routes[0].provider: unknown provider 'down'"),
    (
        UP + '[[routes]]\nbackends = [{provider = "down"}]',
        "5:25: routes[0].backends[0].provider: unknown provider 'down'",
    ),
    (
        UP + '[[routes]]\nprovider = "up"\nproviders = ["up"]',
        "routes[0].provider: routes[0].providers lists the backends already; remove one of them",
    ),
    (
        UP + '[[routes]]\nprovider = "up"\nbackends = [{provider = "up"}]',
        "routes[0].provider: routes[0].backends lists the backends already; remove one of them",
    ),
    (
        UP + '[[routes]]\nmodel = "m"\nbackends = [{provider = "up"}]',
        "routes[0].model: set the model of each entry in routes[0].backends instead",
    ),
    (
        UP + '[[routes]]\nbackends = [{provider = "up", modl = 1}]',
        '5:31: unknown key "modl" in [[routes.backends]] (did you mean "model"?)',
    ),
    (
        UP + '[[routes]]\nbackends = [{provider = "up", weight = -1}]',
        "5:40: routes[0].backends[0].weight: expected a number of at least 0, got -1",
    ),
    (
        UP + '[[routes]]\nbackends = [{provider = "up", timeout = 0}]',
        "5:41: routes[0].backends[0].timeout: expected a number greater than 0, got 0",
    ),
    (
        UP + '[[routes]]\nbackends = [{provider = "up", context = 0}]',
        "5:41: routes[0].backends[0].context: expected an integer of at least 1, got 0",
    ),
    (
        UP + '[[routes]]\nbalance = "weight"\nbackends = [{provider = "up", weight = 0}]',
        "routes[0].balance: no backend has a weight greater than 0",
    ),
    (
        UP + '[[routes]]\nprovider = "up"\nretry_invalid_calls = 2',
        "6:23: routes[0].retry_invalid_calls: expected an integer from 0 to 1, got 2",
    ),
    ("[limits]\nfailures = 0", "2:12: limits.failures: expected an integer of at least 1, got 0"),
    (UP + '[providers.up.headers]\n"a b" = "c"', '5:9: providers.up.headers."a b": not a valid header'),
    (UP + '[providers.up.headers]\nx = "a\\r\\nb: c"', "providers.up.headers.x: not a valid header"),
    ('[policy]\nallow = ["read_file", "run it"]', "policy.allow[1]: invalid rule 'run it'"),
    ('[policy]\nask = ["x(y)"]', "policy.ask[0]: invalid rule 'x(y)': expected ARG=PATTERN, got 'y'"),
    ('[policy]\ndeny = ["("]', "policy.deny[0]: invalid rule '('"),
    ('[policy]\nforbid = ["x"]', '2:1: unknown key "forbid" in [policy]'),
    ('[models."m"]\ncontxt = 1', '2:1: unknown key "contxt" in [models.m] (did you mean "context"?)'),
    ('[models."m"]\noutput = 0', "models.m.output: must be greater than 0"),
    ('[models."m"]\nefforts = ["low", "extreme"]', "models.m.efforts[1]: unknown effort 'extreme'"),
    ('[models."m"]\nbudget = [5]', "models.m.budget: expected the least and the greatest budget"),
    ('[models."m"]\nprices = { input = 1 }', '2:1: missing key "output" in [models.m.prices]'),
    (UP + "num_ctx = 0", "4:11: providers.up.num_ctx: expected an integer of at least 1, got 0"),
    ('[policy]\nallow = "x"', "2:9: policy.allow: expected an array, got a string"),
    ('[search]\nurl = "https://example.org"', "search.url: must contain {query}"),
    ('[search]\nurl = "https://e.org?q={query}"\napi_key = "k"', "search.api_key: search.url has no {key} placeholder"),
    ("[simulator]\npace = -1", "2:8: simulator.pace: expected a number of at least 0, got -1"),
    ("[tools]\nnetwork = 1", "2:11: tools.network: expected true or false, got an integer"),
    ("[server]\nx = = 1", "2:5: invalid value"),
    ('[providers.x]\nprotocol = "gemini"', "providers.x.base_url: required unless the host is a cloud platform"),
    (BEDROCK, "providers.x.region: required for the host bedrock"),
    (BEDROCK + 'region = "EU west"', "providers.x.region: invalid region 'EU west'"),
    (BEDROCK + 'region = "u:"', "providers.x.region: invalid region 'u:'"),
    (BEDROCK + 'region = "eu.example.com"', "providers.x.region: invalid region 'eu.example.com'"),
    (VERTEX + 'region = "global"', "providers.x.project: required for the host vertex"),
    (VERTEX + 'project = "p"', "providers.x.region: required for the host vertex"),
    (VERTEX + 'project = "a/b"\nregion = "eu"', "providers.x.project: invalid project 'a/b'"),
    (UP + 'region = "eu"', "providers.up.region: only cloud platforms have one; set host to bedrock or vertex"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_invalid_keys_are_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(text, ENVIRONMENT)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        (BEDROCK + 'region = "eu-central-1"', "https://bedrock-runtime.eu-central-1.amazonaws.com"),
        (BEDROCK + 'region = "cn-north-1"', "https://bedrock-runtime.cn-north-1.amazonaws.com.cn"),
        (BEDROCK + 'base_url = "http://proxy"', "http://proxy"),
        (VERTEX + 'project = "p"\nregion = "global"', "https://aiplatform.googleapis.com"),
        (VERTEX + 'project = "p"\nregion = "eu"', "https://aiplatform.eu.rep.googleapis.com"),
        (VERTEX + 'project = "p"\nregion = "us-east5"', "https://us-east5-aiplatform.googleapis.com"),
    ],
)
def test_base_url_of_a_cloud_platform_follows_from_the_region(text: str, url: str) -> None:
    provider = build_providers(parse_config(text, {}))["x"]
    assert provider.base_url == url
    assert provider.address is not None


def test_cloud_platforms_are_recognized_by_their_address() -> None:
    settings = 'protocol = "anthropic"\nbase_url = "https://us-east5-aiplatform.googleapis.com"\n'
    with pytest.raises(ConfigError, match=r"providers\.x\.region: required for the host vertex"):
        parse_config(f"[providers.x]\n{settings}", {})
    located = settings + 'region = "us-east5"\nproject = "p"'
    assert build_providers(parse_config(f"[providers.x]\n{located}", {}))["x"].address is not None
    plain = settings.replace("us-east5-aiplatform.googleapis.com", "bedrock-runtime.eu-west-1.amazonaws.com/anthropic")
    assert build_providers(parse_config(f"[providers.x]\n{plain}", {}))["x"].address is None


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_config(tmp_path / "toolwire.toml", {})
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_config(tmp_path / "bad.toml", {})
