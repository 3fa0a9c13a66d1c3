"""LM Studio: Chat and Responses."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CONTENT, GENERIC, MESSAGES, OUTPUT, TOOLS
from toolwire.codec.hosts.profile import (
    Choice,
    ChoiceRule,
    Errors,
    Fields,
    FormatRule,
    HostProfile,
    Messages,
    Output,
    Reasoning,
    Recognition,
    Thinking,
    Tools,
    Wording,
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
    reasoning=Reasoning(fields=("reasoning_content", "reasoning")),
    tools=replace(TOOLS, max_count=None),
    choice=Choice(rules=(ChoiceRule(modes=("auto", "none", "required")),)),
    thinking=Thinking(efforts=()),
    output=replace(OUTPUT, formats=_FORMATS),
    fields=Fields(ignored=GENERIC.fields.refused, user_pattern=GENERIC.fields.user_pattern),
    errors=Errors(
        body='{"error":"$message"}',
        wordings={
            "choice.modes": Wording(
                message="Invalid tool_choice type: 'object'. Supported string values: none, auto, required"
            ),
            "output.formats": Wording(message="'response_format.type' must be 'json_schema' or 'text'"),
            "messages.late_system": Wording(
                message="Error rendering prompt with jinja template: System message must be at the beginning."
            ),
            "context": Wording(
                message="The number of tokens to keep from the initial prompt is greater than the context length"
            ),
        },
    ),
    sources={
        "content.original_images": unverified("a value of OpenAI's newest models"),
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
    messages=Messages(late_system=False),
    tools=Tools(max_count=None, freeform=False, hosted=False),
    output=Output(formats=_FORMATS, format_required=True),
    errors=Errors(
        wordings={
            "output.format_required": Wording(message="Required", code="missing_required_parameter"),
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
    messages=Messages(late_system=False),
    reasoning=Reasoning(signatures=False),
    sources={"messages": unverified("templates decide"), "reasoning": peer("pi")},
)
PROFILES = (PROFILE, RESPONSES, ANTHROPIC)
