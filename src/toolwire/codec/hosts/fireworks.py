"""Fireworks AI."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CHOICE, CONTENT, MESSAGES, NEWEST_MODELS, REASONING_CONTENT, TOOLS
from toolwire.codec.hosts.profile import (
    EffortRule,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    HostProfile,
    OutputFacts,
    Recognition,
    ThinkingFacts,
    ThinkingSwitch,
    reported,
    unverified,
)

_REASONING_MODELS = ("*gpt-oss*", "*deepseek*", "*glm*", "*kimi*", "*qwen3*", "*minimax*")

PROFILE = HostProfile(
    name="fireworks",
    title="Fireworks AI",
    recognition=Recognition(hostnames=("api.fireworks.ai",)),
    messages=MESSAGES,
    content=replace(CONTENT, string_roles=()),
    reasoning=REASONING_CONTENT,
    tools=TOOLS,
    choice=CHOICE,
    thinking=ThinkingFacts(
        efforts=(EffortRule(models=_REASONING_MODELS, words=("none", "low", "medium", "high")),),
        switch=ThinkingSwitch(field="thinking", models=()),
    ),
    output=OutputFacts(),
    fields=FieldFacts(
        unknown="refused",
        refused=(
            "moderation",
            "prompt_cache_options",
            "prompt_cache_retention",
            "safety_identifier",
            "store",
            "stream_options/include_obfuscation",
            "verbosity",
        ),
    ),
    errors=ErrorFacts(
        templates={
            "fields.unknown": ErrorTemplate(message="Extra inputs are not permitted, field: '{name}', value: {value}")
        }
    ),
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages": unverified("as unknown hosts"),
        "content": unverified("as unknown hosts"),
        "reasoning": reported("BerriAI/litellm#30844"),
        "tools": unverified("as unknown hosts"),
        "choice": unverified("as unknown hosts"),
        "thinking": reported("BerriAI/litellm#30844", note="thinking and reasoning_effort exclude each other"),
        "output": reported("BerriAI/litellm#30844"),
        "fields": reported(
            "FlowiseAI/Flowise#2866", "BerriAI/litellm#30844", note="metadata, prompt_cache_key are accepted"
        ),
        "errors": reported("FlowiseAI/Flowise#2866", note="2024"),
    },
)
PROFILES = (PROFILE,)
