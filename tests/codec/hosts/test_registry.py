"""Host profiles: recognition by address, and facts that say how they are known."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec
import pytest
from msgspec.structs import fields

from tests.support.assertions import non_empty
from toolwire.codec.hosts.profile import Facts, HostProfile, matches_model, rule_for
from toolwire.codec.hosts.registry import (
    HOST_NAMES,
    PROFILED_PROTOCOLS,
    all_profiles,
    default_profile,
    host_profiles,
    profile_named,
    recognize_host,
)

_GROUPS = [
    field.name for field in fields(HostProfile) if isinstance(field.default, Facts) and field.name != "recognition"
]


@pytest.mark.parametrize(
    ("base_url", "protocol", "name"),
    [
        ("https://api.openai.com/v1", "openai-chat", "openai"),
        ("https://EU.api.openai.com/v1", "openai-responses", "openai"),
        ("https://mine.openai.azure.com/openai/v1", "openai-chat", "azure"),
        ("https://api.deepseek.com", "openai-chat", "deepseek"),
        ("https://api.deepseek.com/anthropic", "anthropic", "deepseek"),
        ("https://api.deepseek.com", "gemini", None),
        ("https://api.deepseek.com.evil.example", "openai-chat", None),
        ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "openai-chat", "dashscope"),
        ("https://coding-intl.dashscope.aliyuncs.com/v1", "openai-chat", "dashscope"),
        ("https://api.kimi.com/coding/", "anthropic", "moonshot"),
        ("http://127.0.0.1:11434/v1", "openai-chat", "ollama"),
        ("http://127.0.0.1:11434", "ollama", "ollama"),
        ("http://localhost:1234/v1", "openai-chat", "lmstudio"),
        ("http://localhost:8000/v1", "openai-chat", None),
        ("https://generativelanguage.googleapis.com/v1beta/openai/", "openai-chat", "gemini"),
        ("https://generativelanguage.googleapis.com/v1beta", "openai-chat", None),
        ("https://api.anthropic.com/v1", "openai-chat", "anthropic-chat"),
        ("https://api.anthropic.com", "anthropic", None),
        ("https://api.business.githubcopilot.com", "openai-responses", "copilot"),
    ],
)
def test_host_is_recognized_by_name_port_and_path(base_url: str, protocol: str, name: str | None) -> None:
    parts = urlsplit(base_url)
    profile = recognize_host(parts.hostname or "", parts.port or 443, parts.path, protocol)
    assert (profile and profile.name) == name


def test_unknown_hosts_get_the_form_that_all_accept() -> None:
    assert default_profile("openai-chat", "qwen3").name == "generic"
    assert default_profile("openai-chat", "openai/gpt-5").name == "compatible"
    assert default_profile("anthropic", "qwen3").name == "compatible"


def test_protocol_of_a_host_without_facts_is_assumed_to_be_complete() -> None:
    profile = profile_named("mistral", "openai-responses")
    assert (profile.name, profile.protocol, profile.pass_through) == ("mistral", "openai-responses", True)
    assert profile_named("mistral", "openai-responses") is profile
    with pytest.raises(KeyError):
        host_profiles("nobody")


def test_names_and_protocols_of_profiles_are_consistent() -> None:
    for name in non_empty(HOST_NAMES):
        for profile in non_empty(host_profiles(name).values()):
            assert profile.name == name
            assert profile.title
            assert profile.protocol in PROFILED_PROTOCOLS


def _changed_facts(profile: HostProfile) -> Iterator[str]:
    for group in _GROUPS:
        facts = getattr(profile, group)
        default = type(facts)()
        for field in fields(facts):
            if getattr(facts, field.name) != getattr(default, field.name):
                yield f"{group}.{field.name}"


@pytest.mark.parametrize("profile", all_profiles(), ids=lambda profile: f"{profile.name}-{profile.protocol}")
def test_every_deviation_names_its_source(profile: HostProfile) -> None:
    for fact in _changed_facts(profile):
        group = fact.partition(".")[0]
        assert fact in profile.sources or group in profile.sources, fact
    for fact, source in profile.sources.items():
        group, _, name = fact.partition(".")
        assert group in _GROUPS
        assert not name or hasattr(getattr(profile, group), name)
        if source.kind in ("reported", "peer"):
            assert source.references, fact


@pytest.mark.parametrize("profile", all_profiles(), ids=lambda profile: f"{profile.name}-{profile.protocol}")
def test_profiles_are_plain_data(profile: HostProfile) -> None:
    encoded = msgspec.json.encode(profile)
    assert msgspec.json.encode(msgspec.json.decode(encoded, type=HostProfile)) == encoded
    for pattern in (profile.tools.name_pattern, profile.tools.id_pattern, profile.fields.user_pattern or ""):
        re.compile(pattern)
    msgspec.json.decode(profile.errors.body)
    assert profile.output.limit_field in profile.output.limit_fields


def test_first_matching_rule_decides_for_a_model() -> None:
    efforts = profile_named("groq").thinking.efforts
    gpt, qwen = rule_for(efforts, "openai/gpt-oss-120b"), rule_for(efforts, "Qwen/Qwen3-32B")
    assert gpt is not None
    assert qwen is not None
    assert gpt.words == ("low", "medium", "high")
    assert qwen.words == ("none", "default")
    assert rule_for(efforts, "llama-3.3-70b-versatile") is None
    assert matches_model(("*",), "anything")
