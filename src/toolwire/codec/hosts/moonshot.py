"""Moonshot AI (Kimi): its Chat form, and the Messages form at `/anthropic` and `/coding`."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CONTENT, MESSAGES, NEWEST_MODELS, PLAIN_USER, TOOLS, UNSIGNED
from toolwire.codec.hosts.profile import (
    ChoiceFacts,
    ChoiceRule,
    EffortRule,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    HostProfile,
    ModelFields,
    OutputFacts,
    ReasoningFacts,
    Recognition,
    ReplayRule,
    ThinkingFacts,
    ThinkingSwitch,
    documented,
    peer,
    reported,
    unverified,
)

_HOSTNAMES = ("api.moonshot.ai", "api.moonshot.cn", "api.kimi.com")
_SWITCHABLE = ("kimi-k2.5*", "kimi-k2.6*")
_ALWAYS_THINKING = ("kimi-k2.7*", "kimi-k3*", "kimi-k2-thinking*")
_SAMPLING = ("temperature", "top_p", "n", "presence_penalty", "frequency_penalty")
_MODES = ("auto", "none", "required", "named")
_EFFORTS = (EffortRule(models=("kimi-k3*",), words=("low", "high", "max")),)

PROFILE = HostProfile(
    name="moonshot",
    title="Moonshot AI (Kimi)",
    recognition=Recognition(hostnames=_HOSTNAMES),
    messages=replace(MESSAGES, late_system=True),
    content=replace(
        CONTENT,
        image_models=("kimi-k2.5*", "kimi-k2.6*", "kimi-k2.7*", "kimi-k3*", "*vision*"),
        empty_assistant=False,
    ),
    reasoning=ReasoningFacts(
        fields=("reasoning_content",),
        replay_field="reasoning_content",
        replay=(ReplayRule(models=("moonshot-v1*",), turns="none"), ReplayRule(turns="calls", placeholder=" ")),
    ),
    tools=replace(TOOLS, name_pattern=r"[a-zA-Z][a-zA-Z0-9_-]*", schema="moonshot"),
    choice=ChoiceFacts(
        rules=(
            ChoiceRule(models=("kimi-k3*",), modes=("auto", "none", "required")),
            ChoiceRule(models=("moonshot-v1*",), modes=_MODES),
            ChoiceRule(modes=_MODES, thinking_modes=("auto", "none")),
        )
    ),
    thinking=ThinkingFacts(
        efforts=_EFFORTS,
        switch=ThinkingSwitch(field="thinking", models=_SWITCHABLE),
        default_on=(*_SWITCHABLE, *_ALWAYS_THINKING),
    ),
    output=OutputFacts(),
    fields=FieldFacts(
        ignored=(
            "metadata",
            "moderation",
            "prompt_cache_options",
            "prompt_cache_retention",
            "safety_identifier",
            "service_tier",
            "store",
            "stream_options/include_obfuscation",
            "verbosity",
        ),
        by_model=(ModelFields(models=("kimi-*",), fields=_SAMPLING),),
        user_pattern=PLAIN_USER,
    ),
    errors=ErrorFacts(
        body='{"error":{"message":"$message","type":"$type"}}',
        templates={
            "content.empty_assistant": ErrorTemplate(
                message="Invalid request: the message at position {index} with role 'assistant' must not be empty"
            ),
            "reasoning.replay": ErrorTemplate(
                message="thinking is enabled but reasoning_content is missing in assistant tool call message at index "
                "{index}"
            ),
            "choice.thinking_modes": ErrorTemplate(
                message="tool_choice '{choice}' is incompatible with thinking enabled"
            ),
            "fields.by_model": ErrorTemplate(message="invalid {name}: only {value} is allowed for this model"),
            "tools.schema": ErrorTemplate(
                message="tools.function.parameters is not a valid moonshot flavored json schema, details: "
                "<At path '{path}': {detail}>"
            ),
            "tools.bare_functions": ErrorTemplate(
                message='tools.function.parameters.type is required and must be "object"'
            ),
            "context": ErrorTemplate(message="Your request exceeded model token limit: {limit} (requested: {total})"),
        },
    ),
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages": unverified("roles, names and refusals are not established"),
        "content": peer("litellm", note="strings for models that see no images"),
        "content.null_with_calls": unverified("an empty text beside calls is accepted"),
        "content.empty_assistant": reported("AstrBotDevs/AstrBot#7200", "MoonshotAI/kimi-code#1985"),
        "reasoning": reported(
            "continuedev/continue#11600",
            "mastra-ai/mastra#12592",
            "anomalyco/opencode#10996",
            "earendil-works/pi#4178",
            note="an empty string counts as missing, one space is enough",
        ),
        "tools": unverified("128 tools, by the documentation"),
        "tools.name_pattern": reported("MoonshotAI/kimi-cli#2531"),
        "tools.schema": reported(
            "earendil-works/pi#4138",
            "MoonshotAI/kimi-code#1610",
            "MoonshotAI/kimi-cli#2061",
            "14790897/MiqroForge-Desktop#1165",
            note="api.moonshot.cn is more lenient than api.kimi.com",
        ),
        "tools.bare_functions": reported("MoonshotAI/kimi-cli#2531"),
        "choice": reported("AstrBotDevs/AstrBot#7805", "can1357/oh-my-pi#827", "UKGovernmentBEIS/inspect_ai#5152"),
        "thinking": peer("pydantic-ai", note="kimi-k3 rejects the effort none"),
        "output": documented(),
        "fields": unverified("unknown members are ignored"),
        "fields.by_model": reported("simstudioai/sim#5716"),
        "errors": reported("AstrBotDevs/AstrBot#7200", "continuedev/continue#11600", "earendil-works/pi#4138"),
    },
)
ANTHROPIC = HostProfile(
    name="moonshot",
    title="Moonshot AI (Kimi)",
    protocol="anthropic",
    recognition=Recognition(hostnames=_HOSTNAMES),
    reasoning=UNSIGNED,
    tools=replace(PROFILE.tools, freeform=True, bare_functions=True, max_count=None),
    choice=PROFILE.choice,
    thinking=replace(PROFILE.thinking, switch=None),
    sources={
        "reasoning": unverified("signatures are empty or absent"),
        "tools": reported("MoonshotAI/kimi-cli#2531", note="the Chat form"),
        "choice": reported("UKGovernmentBEIS/inspect_ai#5152", note="the Chat form"),
        "thinking": unverified("as the Chat form"),
    },
)
PROFILES = (PROFILE, ANTHROPIC)
