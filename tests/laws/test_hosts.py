"""Recorded requests of every protocol, encoded for every host, contain only what its profile says that it accepts."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

import toolwire as tw
from tests.support.samples import recorded_bodies
from tests.support.samples.repeats import repeated_recordings
from toolwire.codec.hosts.profile import HostProfile, matches_model, rule_for
from toolwire.codec.hosts.registry import all_profiles

MODELS = {
    "deepseek": "deepseek-v4-pro",
    "mistral": "devstral-medium-latest",
    "groq": "openai/gpt-oss-120b",
    "moonshot": "kimi-k2.6",
    "zai": "glm-5.2",
    "dashscope": "qwen3.5-plus",
    "xai": "grok-4.3",
    "cerebras": "gpt-oss-120b",
    "minimax": "MiniMax-M2",
    "ollama": "qwen3:8b",
}
KNOWN_HOSTS = [profile for profile in all_profiles() if not profile.pass_through]
CHAT_HOSTS = [profile for profile in KNOWN_HOSTS if profile.protocol == "openai-chat"]


def translations(source: str, profile: HostProfile) -> Iterator[tuple[str, Any, list[Any]]]:
    model = MODELS.get(profile.name, "m")
    requests = recorded_bodies.requests(source)
    repeats = repeated_recordings()
    turn = 0 if recorded_bodies.WHOLE_CORPUS else sum(profile.name.encode())
    for index, (name, body) in enumerate(requests.items()):
        one_in = 9 if name in repeats else 3
        if "#" in name and not recorded_bodies.WHOLE_CORPUS and (index + turn) % one_in:
            continue
        options = {**recorded_bodies.address_options(source, "request"), "model": model}
        try:
            translation = tw.translate(body, source, profile.protocol, host=profile.name, **options)
        except tw.LossyTranslationError:
            continue
        yield name, translation.value, translation.losses


@pytest.mark.parametrize("profile", KNOWN_HOSTS, ids=lambda profile: f"{profile.name}-{profile.protocol}")
def test_requests_are_encoded_and_their_losses_located(profile: HostProfile) -> None:
    count = 0
    for source in recorded_bodies.PROTOCOL_NAMES:
        for name, body, losses in translations(source, profile):
            count += 1
            assert isinstance(body, dict), name
            assert all(loss.reason for loss in losses)
            if source != profile.protocol:
                assert body.keys().isdisjoint(profile.fields.refused), name
    assert count


@pytest.mark.parametrize("profile", CHAT_HOSTS, ids=lambda profile: profile.name)
def test_chat_hosts_get_only_what_they_accept(profile: HostProfile) -> None:
    for source in recorded_bodies.PROTOCOL_NAMES:
        if source != "openai-chat":
            for name, body, _ in translations(source, profile):
                assert list(violations(body, profile)) == [], f"{source} {name}"


def violations(body: dict[str, Any], profile: HostProfile) -> Iterator[str]:
    """Yield what the host of a profile would reject in a Chat request of another protocol's client."""
    model = body["model"]
    if profile.fields.known and (unknown := body.keys() - {*profile.fields.known, "max_completion_tokens"}):
        yield f"members {unknown}"
    if (effort := body.get("reasoning_effort")) is not None:
        rule = rule_for(profile.thinking.efforts, model)
        if rule is None or effort not in rule.words:
            yield f"effort {effort}"
    if profile.tools.max_count is not None and len(body.get("tools", ())) > profile.tools.max_count:
        yield "too many tools"
    for tool in body.get("tools", ()):
        if tool["type"] != "function" or not re.fullmatch(profile.tools.name_pattern, tool["function"]["name"]):
            yield f"tool {tool}"
    yield from _message_violations(body["messages"], profile, model)


def _message_violations(messages: list[Any], profile: HostProfile, model: str) -> Iterator[str]:
    previous = ""
    for index, message in enumerate(messages):
        role, content = message["role"], message.get("content")
        if role not in profile.messages.roles:
            yield f"role {role}"
        if index and role == "system" and not profile.messages.late_system:
            yield "late system message"
        if previous == "tool" and role == "user" and not profile.messages.user_after_tool:
            yield "user after tool"
        types = {part["type"] for part in content} if isinstance(content, list) else set()
        if types == {"text"} and role in profile.content.string_roles:
            yield f"list of texts for {role}"
        if "image_url" in types and not matches_model(profile.content.image_models, model):
            yield "image"
        if content is None and not profile.content.null_with_calls:
            yield "null content"
        if profile.messages.members and (unknown := message.keys() - {*profile.messages.members}):
            yield f"message members {unknown}"
        for call in message.get("tool_calls", ()):
            if not re.fullmatch(profile.tools.id_pattern, call["id"]):
                yield f"id {call['id']}"
        if role == "assistant":
            rule = rule_for(profile.reasoning.replay, model)
            turns = "none" if rule is None else rule.turns
            is_due = turns == "all" or (turns == "calls" and message.get("tool_calls"))
            if is_due and profile.reasoning.replay_field not in message:
                yield "missing reasoning"
        previous = role
