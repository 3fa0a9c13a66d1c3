"""The Chat form of Google's Gemini API, at `/v1beta/openai`."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CHOICE, CONTENT, TOOLS
from toolwire.codec.hosts.profile import (
    EffortRule,
    Errors,
    Fields,
    HostProfile,
    Messages,
    Output,
    Reasoning,
    Recognition,
    Thinking,
    Wording,
    documented,
    reported,
    unverified,
)

PROFILE = HostProfile(
    name="gemini",
    title="Gemini (Chat form)",
    recognition=Recognition(hostnames=("generativelanguage.googleapis.com",), paths=("*/openai", "*/openai/*")),
    messages=Messages(refusals=False, members=("role", "content", "name", "tool_calls", "tool_call_id")),
    content=replace(CONTENT, string_roles=(), null_with_calls=True, media=("image", "audio")),
    reasoning=Reasoning(fields=("extra_content",)),
    tools=replace(TOOLS, bare_functions=True),
    choice=CHOICE,
    thinking=Thinking(efforts=(EffortRule(words=("none", "minimal", "low", "medium", "high")),), default_on=("*",)),
    output=Output(),
    fields=Fields(
        known=(
            "model",
            "messages",
            "stream",
            "stream_options",
            "max_completion_tokens",
            "max_tokens",
            "n",
            "stop",
            "temperature",
            "top_p",
            "seed",
            "frequency_penalty",
            "presence_penalty",
            "logprobs",
            "top_logprobs",
            "response_format",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "reasoning_effort",
            "extra_body",
            "user",
            "modalities",
        ),
        unknown="refused",
        refused=("stream_options/include_obfuscation",),
        user_pattern=r"[A-Za-z0-9_-]{1,64}",
    ),
    errors=Errors(
        body='[{"error":{"code":"$status","message":"$message","status":"INVALID_ARGUMENT"}}]',
        wordings={
            "fields.unknown": Wording(
                message='Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
            ),
            "reasoning.echo": Wording(
                message="Function call is missing a thought_signature in functionCall parts. This is required for "
                "tools to work correctly, and missing thought_signature may lead to degraded model performance."
            ),
        },
    ),
    sources={
        "content.original_images": unverified("a value of OpenAI's newest models"),
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
