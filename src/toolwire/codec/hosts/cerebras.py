"""Cerebras."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CHOICE, CONTENT, MESSAGES, TOOLS
from toolwire.codec.hosts.profile import (
    Choice,
    EffortRule,
    Errors,
    Fields,
    HostProfile,
    Output,
    Reasoning,
    Recognition,
    Thinking,
    Wording,
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
    reasoning=Reasoning(fields=("reasoning",), echo_field="reasoning"),
    tools=replace(TOOLS, strict="uniform"),
    choice=Choice(rules=CHOICE.rules),
    thinking=Thinking(
        efforts=(
            EffortRule(models=("*gpt-oss*",), words=("low", "medium", "high")),
            EffortRule(models=("*glm*",), words=("none",)),
        ),
        default_on=("*gpt-oss*", "*glm*"),
    ),
    output=Output(),
    fields=Fields(
        known=(
            "model",
            "messages",
            "clear_thinking",
            "logprobs",
            "max_completion_tokens",
            "max_tokens",
            "n",
            "prediction",
            "reasoning_effort",
            "response_format",
            "seed",
            "stop",
            "stream",
            "stream_options",
            "temperature",
            "tool_choice",
            "tools",
            "top_logprobs",
            "top_p",
            "user",
        ),
        unknown="refused",
        refused=("stream_options/include_obfuscation",),
        user_pattern=r"[A-Za-z0-9_-]{1,64}",
    ),
    errors=Errors(
        body='{"message":"$message","type":"$type","param":"$param","code":"$code"}',
        code="wrong_api_format",
        wordings={
            "messages.members": Wording(
                message="messages.{index}.{role}.{name}: property 'messages.{index}.{role}.{name}' is unsupported"
            ),
            "fields.unknown": Wording(message="body.{name}: property 'body.{name}' is unsupported", status=422),
            "tools.strict": Wording(message="Tools with mixed values for 'strict' are not allowed.", status=422),
            "tools.refused_keywords": Wording(message="Unsupported JSON schema fields: {names}"),
        },
    ),
    sources={
        "content.original_images": unverified("a value of OpenAI's newest models"),
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
