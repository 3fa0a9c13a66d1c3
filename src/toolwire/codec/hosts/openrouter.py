"""OpenRouter: its Chat form (protocol `openrouter` has its reasoning details), and `/messages`."""

from toolwire.codec.hosts.profile import (
    ContentFacts,
    FieldFacts,
    HostProfile,
    ReasoningFacts,
    Recognition,
    ToolFacts,
    documented,
    reported,
    unverified,
)

_RECOGNITION = Recognition(hostnames=("openrouter.ai", "*.openrouter.ai"))

PROFILE = HostProfile(
    name="openrouter",
    title="OpenRouter",
    recognition=_RECOGNITION,
    content=ContentFacts(cache_marks=False),
    reasoning=ReasoningFacts(fields=("reasoning", "reasoning_details"), replay_field="reasoning"),
    tools=ToolFacts(max_count=None, freeform=False, hosted=False, web_search=False),
    fields=FieldFacts(
        ignored=("metadata", "moderation", "prompt_cache_options", "safety_identifier", "store"),
        user_pattern=r".{0,128}",
    ),
    sources={
        "content": documented("openrouter.ai/docs", note="cache_control instead of prompt_cache_breakpoint"),
        "reasoning": documented("openrouter.ai/docs"),
        "tools": unverified("by upstream"),
        "fields": documented("openrouter.ai/docs", note="unknown members are ignored"),
        "fields.user_pattern": reported("ujisati/claude-code-provider-proxy#11"),
    },
)
ANTHROPIC = HostProfile(
    name="openrouter",
    title="OpenRouter",
    protocol="anthropic",
    recognition=_RECOGNITION,
    fields=FieldFacts(user_pattern=r".{0,128}"),
    sources={"fields": reported("ujisati/claude-code-provider-proxy#11", note="the Chat form")},
)
PROFILES = (PROFILE, ANTHROPIC)
