"""Groq: `api.groq.com`, Chat and Responses."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CHAT_FIELDS, CHOICE, MESSAGES, PLAIN_USER, TOOLS
from toolwire.codec.hosts.profile import (
    ContentFacts,
    EffortRule,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    FormatRule,
    HostProfile,
    LimitCap,
    OutputFacts,
    ReasoningFacts,
    Recognition,
    ThinkingFacts,
    ToolFacts,
    documented,
    from_types,
    peer,
    reported,
    unverified,
)

_HOSTNAMES = ("api.groq.com",)
_EFFORTS = (
    EffortRule(models=("*gpt-oss*",), words=("low", "medium", "high")),
    EffortRule(models=("*qwen3*", "*qwen-3*"), words=("none", "default")),
)

PROFILE = HostProfile(
    name="groq",
    title="Groq",
    recognition=Recognition(hostnames=_HOSTNAMES),
    messages=replace(
        MESSAGES,
        roles=("system", "developer", "user", "assistant", "tool"),
        late_system=True,
        members=("role", "content", "tool_calls", "tool_call_id", "reasoning"),
    ),
    content=ContentFacts(original_images=False, string_roles=("system",), media=("image",), cache_marks=False),
    reasoning=ReasoningFacts(fields=("reasoning",)),
    tools=replace(TOOLS, max_count=128, strict="accepted"),
    choice=CHOICE,
    thinking=ThinkingFacts(efforts=_EFFORTS, default_on=("*gpt-oss*", "*qwen3*")),
    output=OutputFacts(
        caps=(LimitCap(models=("*gemma*", "*llama-4*"), tokens=8192),),
        formats=(
            FormatRule(models=("*gpt-oss*", "*llama-4*", "*kimi-k2*"), with_tools=False),
            FormatRule(types=("text", "json_object"), with_tools=False),
        ),
    ),
    fields=FieldFacts(
        known=(
            *CHAT_FIELDS,
            "frequency_penalty",
            "presence_penalty",
            "max_completion_tokens",
            "n",
            "parallel_tool_calls",
            "reasoning_format",
            "include_reasoning",
            "seed",
            "service_tier",
            "stream_options",
            "user",
        ),
        unknown="refused",
        refused=("stream_options/include_obfuscation",),
        user_pattern=PLAIN_USER,
    ),
    errors=ErrorFacts(
        body='{"error":{"message":"$message","type":"$type","code":"$code"}}',
        templates={
            "fields.unknown": ErrorTemplate(message="property '{name}' is unsupported"),
            "messages.members": ErrorTemplate(
                message="'messages.{index}' : for 'role:{role}' the following must be satisfied[('messages.{index}' : "
                "property '{name}' is unsupported)]"
            ),
            "content.string_roles": ErrorTemplate(message="'messages.{index}.content' : value must be a string"),
            "tools.max_count": ErrorTemplate(message="'tools' : maximum number of items is {limit}"),
            "tools.freeform": ErrorTemplate(
                message="'tools.{index}.type' : value is not one of the allowed values ['function']"
            ),
            "thinking.efforts": ErrorTemplate(message="reasoning_effort must be one of {words}"),
            "context": ErrorTemplate(
                message="Please reduce the length of the messages or completion.", code="context_length_exceeded"
            ),
        },
    ),
    sources={
        "messages": documented(note="names are rejected"),
        "messages.members": reported("SimonSchubert/Kai#265", "janhq/jan#8136", "NousResearch/hermes-agent#11089"),
        "content.string_roles": reported("OpenHands#4643", note="2024; litellm sends lists today, a string is safe"),
        "content": peer("litellm"),
        "content.original_images": from_types("groq"),
        "reasoning": reported("vercel/ai#8057", "janhq/jan#8136", note="models without reasoning reject it"),
        "tools": from_types("groq"),
        "tools.max_count": reported("gsd-build/gsd-2#4376", "duolahypercho/codex-router#449"),
        "choice": from_types("groq"),
        "thinking": reported("earendil-works/pi#1745", "diegosouzapw/OmniRoute#3277"),
        "output": from_types("groq"),
        "output.caps": reported("khoj-ai/khoj#1275"),
        "output.formats": peer("litellm", note="not beside tools or streams"),
        "fields": documented(note="logprobs, logit_bias, top_logprobs, names, and n other than 1 are rejected"),
        "fields.user_pattern": unverified("limits are not established"),
        "fields.unknown": reported("fanenr/chatbot#21", note="2024"),
        "errors": reported("fanenr/chatbot#21", "janhq/jan#8136", "earendil-works/pi#1745"),
    },
)
RESPONSES = HostProfile(
    name="groq",
    title="Groq",
    protocol="openai-responses",
    recognition=Recognition(hostnames=_HOSTNAMES),
    tools=ToolFacts(freeform=False),
    thinking=ThinkingFacts(efforts=_EFFORTS, default_on=PROFILE.thinking.default_on),
    fields=FieldFacts(refused=("store", "previous_response_id", "include", "prompt_cache_key", "client_metadata")),
    sources={
        "tools": unverified("functions only, as the Chat form"),
        "thinking": reported("earendil-works/pi#1745", note="the Chat form"),
        "fields": documented(note="stateless"),
    },
)
PROFILES = (PROFILE, RESPONSES)
