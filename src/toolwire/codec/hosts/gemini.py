"""The Chat form of Google's Gemini API, at `/v1beta/openai`."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CHAT_FIELDS, CHOICE, CONTENT, NEWEST_MODELS, PLAIN_USER, TOOLS
from toolwire.codec.hosts.profile import (
    EffortRule,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    HostProfile,
    MessageFacts,
    OutputFacts,
    ReasoningFacts,
    Recognition,
    ReplayRule,
    ThinkingFacts,
    documented,
    reported,
    unverified,
)

PROFILE = HostProfile(
    name="gemini",
    title="Gemini (Chat form)",
    recognition=Recognition(hostnames=("generativelanguage.googleapis.com",), paths=("*/openai", "*/openai/*")),
    messages=MessageFacts(refusals=False, members=("role", "content", "name", "tool_calls", "tool_call_id")),
    content=replace(CONTENT, string_roles=(), null_with_calls=True, media=("image", "audio")),
    reasoning=ReasoningFacts(
        fields=("extra_content",),
        replay=(
            ReplayRule(
                models=("*gemini-3*", "*gemini-[4-9]*"), turns="calls", placeholder="skip_thought_signature_validator"
            ),
        ),
        call_signature="extra_content/google/thought_signature",
    ),
    tools=replace(TOOLS, bare_functions=True),
    choice=CHOICE,
    thinking=ThinkingFacts(
        efforts=(EffortRule(words=("none", "minimal", "low", "medium", "high")),), default_on=("*",)
    ),
    output=OutputFacts(),
    fields=FieldFacts(
        known=(
            *CHAT_FIELDS,
            "stream_options",
            "max_completion_tokens",
            "n",
            "seed",
            "frequency_penalty",
            "presence_penalty",
            "logprobs",
            "top_logprobs",
            "parallel_tool_calls",
            "extra_body",
            "user",
            "modalities",
        ),
        unknown="refused",
        refused=("stream_options/include_obfuscation",),
        user_pattern=PLAIN_USER,
    ),
    errors=ErrorFacts(
        body='[{"error":{"code":"$status","message":"$message","status":"INVALID_ARGUMENT"}}]',
        templates={
            "fields.unknown": ErrorTemplate(
                message='Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
            ),
            "reasoning.replay": ErrorTemplate(
                message="Function call is missing a thought_signature in functionCall parts. This is required for "
                "tools to work correctly, and missing thought_signature may lead to degraded model performance."
            ),
        },
    ),
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages": unverified(),
        "content": documented("ai.google.dev"),
        "reasoning": reported("OpenChatCut#6", "opensquilla#225", note="signatures in extra_content are required"),
        "tools": unverified("128 tools"),
        "choice": documented("ai.google.dev"),
        "thinking": documented("ai.google.dev"),
        "output": documented("ai.google.dev"),
        "fields": unverified("unknown names are rejected"),
        "errors": reported("OpenChatCut#6", note="the body is a list"),
    },
)
PROFILES = (PROFILE,)
