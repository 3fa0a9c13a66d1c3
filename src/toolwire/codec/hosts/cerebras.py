"""Cerebras."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CHAT_FIELDS, CHOICE, CONTENT, MESSAGES, NEWEST_MODELS, PLAIN_USER, TOOLS
from toolwire.codec.hosts.profile import (
    ChoiceFacts,
    EffortRule,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    HostProfile,
    OutputFacts,
    ReasoningFacts,
    Recognition,
    ThinkingFacts,
    from_types,
    peer,
    reported,
    unverified,
)

PROFILE = HostProfile(
    name="cerebras",
    title="Cerebras",
    recognition=Recognition(hostnames=("api.cerebras.ai",)),
    messages=replace(
        MESSAGES,
        late_system=True,
        members=("role", "content", "name", "tool_calls", "tool_call_id", "reasoning"),
    ),
    content=replace(CONTENT, string_roles=(), media=()),
    reasoning=ReasoningFacts(fields=("reasoning",), replay_field="reasoning"),
    tools=replace(TOOLS, strict="uniform"),
    choice=ChoiceFacts(rules=CHOICE.rules),
    thinking=ThinkingFacts(
        efforts=(
            EffortRule(models=("*gpt-oss*",), words=("low", "medium", "high")),
            EffortRule(models=("*glm*",), words=("none",)),
        ),
        default_on=("*gpt-oss*", "*glm*"),
    ),
    output=OutputFacts(),
    fields=FieldFacts(
        known=(
            *CHAT_FIELDS,
            "clear_thinking",
            "logprobs",
            "max_completion_tokens",
            "n",
            "prediction",
            "seed",
            "stream_options",
            "top_logprobs",
            "user",
        ),
        unknown="refused",
        refused=("stream_options/include_obfuscation",),
        user_pattern=PLAIN_USER,
    ),
    errors=ErrorFacts(
        body='{"message":"$message","type":"$type","param":"$param","code":"$code"}',
        code="wrong_api_format",
        templates={
            "messages.members": ErrorTemplate(
                message="messages.{index}.{role}.{name}: property 'messages.{index}.{role}.{name}' is unsupported"
            ),
            "fields.unknown": ErrorTemplate(message="body.{name}: property 'body.{name}' is unsupported", status=422),
            "tools.strict": ErrorTemplate(message="Tools with mixed values for 'strict' are not allowed.", status=422),
            "tools.refused_keywords": ErrorTemplate(message="Unsupported JSON schema fields: {names}"),
        },
    ),
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages": unverified("the role developer is not established"),
        "messages.members": reported("Kilo-Org/kilocode#10375", "CherryHQ/cherry-studio#16790"),
        "content": unverified("text only"),
        "reasoning": reported("proxysoul/Empryo#209", note="measured"),
        "tools": reported("RooCodeInc/Roo-Code#10334"),
        "choice": peer("pydantic-ai"),
        "thinking": reported("proxysoul/Empryo#209"),
        "output": from_types("cerebras-cloud-sdk"),
        "fields": reported("Gitlawb/openclaude#740", note="penalties, logit_bias, service_tier: pydantic-ai"),
        "fields.known": from_types("cerebras-cloud-sdk"),
        "errors": reported("Kilo-Org/kilocode#10375", "Gitlawb/openclaude#740", "RooCodeInc/Roo-Code#10334"),
    },
)
PROFILES = (PROFILE,)
