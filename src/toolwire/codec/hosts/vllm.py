"""vLLM. Chat templates decide about roles, so the profile assumes the strict ones."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CHOICE, CONTENT, MESSAGES, NEWEST_MODELS, OPENAI_FIELDS, TOOLS, UNSIGNED
from toolwire.codec.hosts.profile import (
    EFFORTS,
    EffortRule,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    HostProfile,
    MessageFacts,
    OutputFacts,
    ReasoningFacts,
    ThinkingFacts,
    ToolFacts,
    read_in_source,
    reported,
    unverified,
)

PROFILE = HostProfile(
    name="vllm",
    title="vLLM",
    messages=MESSAGES,
    content=replace(CONTENT, string_roles=(), null_with_calls=True, media=("image", "audio")),
    reasoning=ReasoningFacts(fields=("reasoning", "reasoning_content"), replay_field="reasoning"),
    tools=replace(TOOLS, max_count=None, bare_functions=True),
    choice=CHOICE,
    thinking=ThinkingFacts(efforts=(EffortRule(words=EFFORTS),)),
    output=OutputFacts(stop_limit=None),
    fields=FieldFacts(ignored=(*OPENAI_FIELDS, "user")),
    errors=ErrorFacts(
        body='{"error":{"message":"$message","type":"$type","param":"$param","code":"$status"}}',
        type="BadRequestError",
        templates={
            "messages.roles": ErrorTemplate(message="Unexpected message role."),
            "messages.late_system": ErrorTemplate(message="System message must be at the beginning."),
            "tools.empty_list": ErrorTemplate(
                message="`tools` must not be an empty array. Either provide at least one tool or omit the field "
                "entirely."
            ),
            "choice.tools": ErrorTemplate(message="When using `tool_choice`, `tools` must be set."),
            "choice.parser": ErrorTemplate(
                message='"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            ),
            "output.stream_options": ErrorTemplate(message="Stream options can only be defined when `stream=True`."),
            "context": ErrorTemplate(
                message="This model's maximum context length is {limit} tokens. However, you requested {output} output "
                "tokens and your prompt contains {input} input tokens, for a total of {total} tokens."
            ),
        },
    ),
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages": reported(
            "ogx-ai/ogx#6069",
            "vllm-project/vllm#41114",
            "vllm-project/vllm#44505",
            note="Qwen's templates; others accept more",
        ),
        "messages.names": unverified("templates ignore them"),
        "messages.refusals": unverified("templates ignore them"),
        "content": read_in_source("vllm-project/vllm"),
        "reasoning": read_in_source("vllm-project/vllm", note="`reasoning_content` before 2026; both are read"),
        "tools": read_in_source("vllm-project/vllm"),
        "choice": read_in_source("vllm-project/vllm"),
        "thinking": read_in_source("vllm-project/vllm"),
        "output": read_in_source("vllm-project/vllm", note="before 0.6.4 max_tokens only"),
        "fields": read_in_source("vllm-project/vllm", note="ignored with a warning in the log; 400 before 0.6.4"),
        "errors": read_in_source("vllm-project/vllm"),
    },
)
RESPONSES = HostProfile(
    name="vllm",
    title="vLLM",
    protocol="openai-responses",
    messages=MessageFacts(roles=MESSAGES.roles, late_system=False),
    tools=ToolFacts(max_count=None, freeform=False),
    fields=FieldFacts(ignored=("prompt_cache_key",), refused=("store",)),
    sources={
        "messages": reported("vllm-project/vllm#41114", note="Qwen's templates"),
        "tools": unverified("functions only"),
        "fields": read_in_source("vllm-project/vllm", note="storage is off by default"),
    },
)
ANTHROPIC = HostProfile(
    name="vllm",
    title="vLLM",
    protocol="anthropic",
    reasoning=UNSIGNED,
    tools=ToolFacts(hosted=False),
    fields=FieldFacts(ignored=("thinking",)),
    sources={
        "reasoning": read_in_source("vllm-project/vllm"),
        "tools": unverified("it runs no tools of Anthropic"),
        "fields": read_in_source("vllm-project/vllm"),
    },
)
PROFILES = (PROFILE, RESPONSES, ANTHROPIC)
