"""LM Studio: Chat and Responses."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import (
    CONTENT,
    GENERIC,
    LEADING_SYSTEM,
    MESSAGES,
    NEWEST_MODELS,
    OUTPUT,
    TOOLS,
    UNSIGNED,
)
from toolwire.codec.hosts.profile import (
    ChoiceFacts,
    ChoiceRule,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    FormatRule,
    HostProfile,
    OutputFacts,
    ReasoningFacts,
    Recognition,
    ThinkingFacts,
    ToolFacts,
    peer,
    reported,
    unverified,
)

_RECOGNITION = Recognition(ports=(1234,))
_FORMATS = (FormatRule(types=("text", "json_schema")),)

PROFILE = HostProfile(
    name="lmstudio",
    title="LM Studio",
    recognition=_RECOGNITION,
    messages=MESSAGES,
    content=CONTENT,
    reasoning=ReasoningFacts(fields=("reasoning_content", "reasoning")),
    tools=replace(TOOLS, max_count=None),
    choice=ChoiceFacts(rules=(ChoiceRule(modes=("auto", "none", "required")),)),
    thinking=ThinkingFacts(efforts=()),
    output=replace(OUTPUT, formats=_FORMATS),
    fields=FieldFacts(ignored=GENERIC.fields.refused, user_pattern=GENERIC.fields.user_pattern),
    errors=ErrorFacts(
        body='{"error":"$message"}',
        templates={
            "choice.modes": ErrorTemplate(
                message="Invalid tool_choice type: 'object'. Supported string values: none, auto, required"
            ),
            "output.formats": ErrorTemplate(message="'response_format.type' must be 'json_schema' or 'text'"),
            "messages.late_system": ErrorTemplate(
                message="Error rendering prompt with jinja template: System message must be at the beginning."
            ),
            "context": ErrorTemplate(
                message="The number of tokens to keep from the initial prompt is greater than the context length"
            ),
        },
    ),
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages": unverified("templates decide"),
        "content": unverified(),
        "reasoning": unverified("by version"),
        "tools": unverified("no limit is known"),
        "choice": reported("lmstudio-ai/lmstudio-bug-tracker#670", "alibaba/page-agent#367"),
        "thinking": unverified("by model"),
        "output.formats": reported("lmstudio-ai/lmstudio-bug-tracker#189", "LoadShine/tada#16", "lfnovo/esperanto#46"),
        "output": unverified(),
        "fields": unverified("unknown members are ignored"),
        "errors": reported("lmstudio-ai/lmstudio-bug-tracker#670", note="the context error: pi"),
    },
)
RESPONSES = HostProfile(
    name="lmstudio",
    title="LM Studio",
    protocol="openai-responses",
    recognition=_RECOGNITION,
    messages=LEADING_SYSTEM,
    tools=ToolFacts(max_count=None, freeform=False, hosted=False),
    output=OutputFacts(formats=_FORMATS, format_required=True),
    errors=ErrorFacts(
        templates={
            "output.format_required": ErrorTemplate(message="Required", code="missing_required_parameter"),
        }
    ),
    sources={
        "messages": unverified("templates decide"),
        "tools": unverified("functions only"),
        "output": reported("lmstudio-ai/lmstudio-bug-tracker#1576", "lmstudio-ai/lmstudio-bug-tracker#2403"),
        "errors": reported("lmstudio-ai/lmstudio-bug-tracker#1576"),
    },
)
ANTHROPIC = HostProfile(
    name="lmstudio",
    title="LM Studio",
    protocol="anthropic",
    recognition=_RECOGNITION,
    messages=LEADING_SYSTEM,
    reasoning=UNSIGNED,
    tools=ToolFacts(hosted=False),
    sources={
        "messages": unverified("templates decide"),
        "reasoning": peer("pi"),
        "tools": unverified("it runs no tools of Anthropic"),
    },
)
PROFILES = (PROFILE, RESPONSES, ANTHROPIC)
