"""OpenAI's API, and servers that accept all of it."""

from msgspec.structs import replace

from toolwire.codec.hosts.profile import (
    ContentFacts,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    HostProfile,
    ReasoningFacts,
    Recognition,
    ReplayRule,
    documented,
    reported,
)

_CACHING = "developers.openai.com/api/docs/guides/prompt-caching"

MODEL_REASONING = ReasoningFacts(
    fields=("reasoning_content", "reasoning"),
    replay_field="reasoning_content",
    replay=(
        ReplayRule(models=("*kimi*", "*moonshot*"), turns="calls", placeholder=" "),
        ReplayRule(
            models=("*deepseek*", "*mimo*", "*glm-*", "*qwen*", "*qwq*", "*minimax*"), turns="calls", placeholder=""
        ),
    ),
)
"""Reasoning of models that must be sent back, by their names, for hosts that may serve any model."""

CONTENT = ContentFacts(cache_mark_models=("gpt-5.[6-9]*", "gpt-[6-9]*", "openai/gpt-5.[6-9]*", "openai/gpt-[6-9]*"))

OPENAI = HostProfile(
    name="openai",
    title="OpenAI",
    pass_through=True,
    content=CONTENT,
    reasoning=MODEL_REASONING,
    recognition=Recognition(hostnames=("api.openai.com", "*.api.openai.com")),
    fields=FieldFacts(unknown="refused", user_pattern=r".{0,64}", stores_by_default=True, cache_key=True),
    errors=ErrorFacts(
        templates={
            "fields.unknown": ErrorTemplate(message="Unrecognized request argument supplied: {name}"),
            "fields.user_pattern": ErrorTemplate(
                message="Invalid 'user': string too long. Expected a string with maximum length 64, but got a string "
                "with length {length} instead.",
                code="string_above_max_length",
            ),
            "output.limit_field": ErrorTemplate(
                message="Unsupported parameter: '{name}' is not supported with this model. Use '{expected}' instead.",
                code="unsupported_parameter",
            ),
        }
    ),
    sources={
        "content": documented(_CACHING, note="400 before GPT-5.6"),
        "fields.cache_key": documented(_CACHING),
        "reasoning": reported("earendil-works/pi#3636", "earendil-works/pi#4178", note="models of others at a proxy"),
        "fields.unknown": documented("platform.openai.com"),
        "fields.user_pattern": reported("maximhq/bifrost#1000"),
        "fields.stores_by_default": documented("platform.openai.com", note="the Responses API stores responses"),
        "errors": documented("platform.openai.com"),
    },
)
PROFILE = OPENAI
RESPONSES = replace(OPENAI, protocol="openai-responses", reasoning=ReasoningFacts())
PROFILES = (PROFILE, RESPONSES)
