"""OpenRouter: its Chat form as protocols `openai-chat` and `openrouter`, and `/messages`."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CHOICE
from toolwire.codec.hosts.openai import MODEL_REASONING
from toolwire.codec.hosts.profile import (
    ContentFacts,
    FieldFacts,
    HostProfile,
    MessageFacts,
    OutputFacts,
    ReasoningFacts,
    Recognition,
    ThinkingFacts,
    ToolFacts,
    documented,
    from_types,
    reported,
    unverified,
)

_DOCUMENTATION = documented("openrouter.ai/docs")
_RECOGNITION = Recognition(hostnames=("openrouter.ai", "*.openrouter.ai"))

PROFILE = HostProfile(
    name="openrouter",
    title="OpenRouter",
    recognition=_RECOGNITION,
    messages=MessageFacts(prefill=True),
    content=ContentFacts(
        media=("image", "audio", "document", "video"), document_urls=True, audio_formats=(), cache_control=True
    ),
    reasoning=ReasoningFacts(
        fields=("reasoning", "reasoning_details"),
        replay_field="reasoning",
        replay=tuple(replace(rule, turns="none", placeholder=None) for rule in MODEL_REASONING.replay),
        details=True,
    ),
    tools=ToolFacts(max_count=None, freeform=False, hosted=False, web_search=False, result_media=True),
    choice=CHOICE,
    thinking=ThinkingFacts(field="reasoning"),
    output=OutputFacts(stream_usage=False),
    fields=FieldFacts(
        ignored=(
            "moderation",
            "prompt_cache_retention",
            "safety_identifier",
            "store",
            "stream_options/include_obfuscation",
        ),
        unknown="ignored",
        user_pattern=r".{0,128}",
        top_k=True,
    ),
    sources={
        "messages": unverified("by upstream"),
        "content": from_types("openrouter"),
        "content.cache_control": _DOCUMENTATION,
        "reasoning": _DOCUMENTATION,
        "reasoning.replay": unverified("by the names of models"),
        "tools": from_types("openrouter"),
        "choice": from_types("openrouter"),
        "thinking": _DOCUMENTATION,
        "output": documented("openrouter.ai/docs", note="usage is always sent"),
        "fields": documented("openrouter.ai/docs", note="unknown members are ignored"),
        "fields.user_pattern": reported("ujisati/claude-code-provider-proxy#11"),
    },
)
EXTENDED = replace(PROFILE, protocol="openrouter", pass_through=True)
"""The profile of protocol `openrouter`, whose clients know it: their requests pass unchanged."""

ANTHROPIC = HostProfile(
    name="openrouter",
    title="OpenRouter",
    protocol="anthropic",
    recognition=_RECOGNITION,
    fields=FieldFacts(user_pattern=r".{0,128}"),
    sources={"fields": reported("ujisati/claude-code-provider-proxy#11", note="the Chat form")},
)
PROFILES = (PROFILE, EXTENDED, ANTHROPIC)
