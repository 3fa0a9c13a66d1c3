"""Hosts that `toolwire.toml` adds or corrects."""

import re

import pytest

from toolwire.gateway.config import Config, ConfigError, build_providers, parse_config
from toolwire.upstream.provider import Provider

PROVIDER = '[providers.p]\nprotocol = "openai-chat"\nbase_url = "https://llm.company.example/v1"\n'


def config_with(hosts: str, provider: str = PROVIDER) -> Config:
    return parse_config(provider + hosts, {})


def provider_with(hosts: str, provider: str = PROVIDER) -> Provider:
    return build_providers(config_with(hosts, provider))["p"]


def test_host_extends_another_one() -> None:
    provider = provider_with(
        'host = "company"\n[hosts.company]\nextends = "deepseek"\n[hosts.company.tools]\nmax_count = 9'
    )
    profile = provider.profile("m")
    assert (profile.name, profile.tools.max_count, profile.output.stop_limit) == ("company", 9, 16)
    assert not profile.tools.freeform
    assert not profile.pass_through


def test_host_is_recognized_by_its_configured_address() -> None:
    table = '[hosts.company]\nextends = "groq"\n[hosts.company.recognition]\nhostnames = ["*.company.example"]'
    assert provider_with(table).profile("m").name == "company"
    other = PROVIDER.replace("llm.company.example", "api.groq.com")
    assert provider_with(table, other).profile("m").name == "groq"


def test_known_host_is_corrected() -> None:
    provider = PROVIDER.replace("llm.company.example", "api.mistral.ai")
    profile = provider_with("[hosts.mistral.output]\nstream_usage = true", provider).profile("m")
    assert profile.name == "mistral"
    assert profile.output.stream_usage
    assert profile.tools.id_limit == 9


def test_rules_are_tables_in_lists() -> None:
    table = '[hosts.company.thinking]\nefforts = [{ models = ["big-*"], words = ["low", "high"] }]'
    (rule,) = provider_with(f'host = "company"\n{table}').profile("m").thinking.efforts
    assert (rule.models, rule.words) == (("big-*",), ("low", "high"))


def test_table_of_one_protocol_leaves_the_others_alone() -> None:
    table = '[hosts.company]\nextends = "deepseek"\nprotocol = "anthropic"\n[hosts.company.tools]\nmax_count = 9'
    chat = provider_with(f'host = "company"\n{table}')
    assert chat.profile("m").tools.max_count == 128
    messages = provider_with(f'host = "company"\n{table}', PROVIDER.replace("openai-chat", "anthropic"))
    assert messages.profile("m").tools.max_count == 9


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[hosts.company]\nmax_count = 9", 'unknown key "max_count" in [hosts.company]'),
        (
            "[hosts.company.tools]\nmax_cuont = 9",
            'unknown key "max_cuont" in [hosts.company.tools] (did you mean "max_count"?)',
        ),
        ('[hosts.company.tools]\nmax_count = "many"', "hosts.company.tools.max_count: expected"),
        ('[hosts.company]\nextends = "nobody"', "hosts.company: unknown host 'nobody'"),
        ('[hosts.company]\nextends = ["groq"]', "hosts.company.extends: expected the name of a host"),
        ('[hosts.company]\nprotocol = "chat"', "hosts.company.protocol: expected one of openai-chat, "),
        ('[hosts.a]\nextends = "b"\n[hosts.b]\nextends = "a"', "hosts.a: unknown host"),
    ],
)
def test_invalid_tables_are_errors_that_name_the_key(table: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        config_with(table)
