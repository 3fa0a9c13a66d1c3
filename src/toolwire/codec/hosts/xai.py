"""xAI (Grok): Chat, Responses and Messages at `api.x.ai`."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CHOICE, CONTENT, MESSAGES, NEWEST_MODELS, OPENAI_FIELDS, PLAIN_USER, TOOLS
from toolwire.codec.hosts.profile import (
    EffortRule,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    HostProfile,
    ModelFields,
    OutputFacts,
    ReasoningFacts,
    Recognition,
    ThinkingFacts,
    ToolFacts,
    documented,
    peer,
    reported,
    unverified,
)

_HOSTNAMES = ("api.x.ai", "*.api.x.ai")
_EFFORTS = (
    EffortRule(models=("grok-4.6*",), words=("low", "medium", "high", "xhigh")),
    EffortRule(models=("grok-4.5*",), words=("low", "medium", "high")),
    EffortRule(models=("grok-4.3*",), words=("none", "low", "medium", "high")),
    EffortRule(models=("grok-3-mini*",), words=("low", "high")),
    EffortRule(models=("grok-4.20-multi-agent*",), words=("low", "medium", "high")),
)
_PENALTIES = ("presence_penalty", "frequency_penalty")

PROFILE = HostProfile(
    name="xai",
    title="xAI (Grok)",
    recognition=Recognition(hostnames=_HOSTNAMES),
    messages=replace(MESSAGES, late_system=True),
    content=replace(CONTENT, string_roles=("tool",), empty_assistant=False),
    reasoning=ReasoningFacts(fields=("reasoning_content",)),
    tools=replace(TOOLS, max_count=200, strict="accepted"),
    choice=CHOICE,
    thinking=ThinkingFacts(efforts=_EFFORTS, default_on=("grok-3-mini*", "grok-4*")),
    output=OutputFacts(),
    fields=FieldFacts(
        ignored=OPENAI_FIELDS,
        by_model=(ModelFields(models=("grok-3-mini*", "grok-4*", "grok-code*"), fields=(*_PENALTIES, "stop")),),
        user_pattern=PLAIN_USER,
    ),
    errors=ErrorFacts(
        body='{"code":"$code","error":"$message"}',
        code="Client specified an invalid argument",
        templates={
            "thinking.efforts": ErrorTemplate(message="Model {model} does not support parameter reasoningEffort."),
            "fields.by_model": ErrorTemplate(message="Model {model} does not support parameter {name}."),
            "content.null_with_calls": ErrorTemplate(
                message="Invalid request content: Each message must have at least one content element."
            ),
            "content.empty_assistant": ErrorTemplate(
                message="An empty message was provided. Every message needs at least one non-empty content element."
            ),
            "tools.max_count": ErrorTemplate(
                message="Maximum tools limit reached. {count} tools have been provided but the maximum is {limit}."
            ),
            "context": ErrorTemplate(
                message="This model's maximum prompt length is {limit} but the request contains {input} tokens"
            ),
        },
    ),
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages": unverified("the role developer is not established"),
        "messages.names": reported("BerriAI/litellm#9720", note="2025"),
        "content.string_roles": peer("litellm", note="tool results are text"),
        "content": unverified(),
        "content.null_with_calls": reported("langchain-ai/langchain#34140", "AstrBotDevs/AstrBot#6447"),
        "content.empty_assistant": reported("langbot-app/LangBot#1205", note="2025"),
        "reasoning": documented(),
        "tools": reported("anomalyco/opencode#28911"),
        "tools.strict": peer("vercel/ai", note="litellm drops it"),
        "choice": documented(),
        "thinking": reported(
            "NousResearch/hermes-agent#23435", "BerriAI/litellm#16265", note="measured in May 2026; some names redirect"
        ),
        "output": documented(),
        "fields": unverified("unknown members are ignored"),
        "fields.by_model": reported("miaoxworld/NativeTavern#83", "open-webui/open-webui#21266", note="also for 0"),
        "errors": reported("BerriAI/litellm#16265", "anomalyco/opencode#28911", "langchain-ai/langchain#34140"),
    },
)
RESPONSES = HostProfile(
    name="xai",
    title="xAI (Grok)",
    protocol="openai-responses",
    recognition=Recognition(hostnames=_HOSTNAMES),
    tools=ToolFacts(max_count=200, freeform=False),
    thinking=ThinkingFacts(efforts=_EFFORTS, default_on=PROFILE.thinking.default_on),
    fields=FieldFacts(refused=("instructions", "metadata")),
    errors=PROFILE.errors,
    sources={
        "tools": reported("anomalyco/opencode#28911"),
        "tools.freeform": unverified("nothing reliable on custom tools"),
        "thinking": reported("NousResearch/hermes-agent#23435"),
        "fields": peer("litellm", note="refused or unsupported"),
        "errors": reported("BerriAI/litellm#16265"),
    },
)
PROFILES = (PROFILE, RESPONSES)
