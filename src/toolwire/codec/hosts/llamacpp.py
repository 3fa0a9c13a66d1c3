"""The server of llama.cpp: Chat, Responses and Messages."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import (
    CONTENT,
    LEADING_SYSTEM,
    MESSAGES,
    NEWEST_MODELS,
    REASONING_CONTENT,
    TOOLS,
    UNSIGNED,
)
from toolwire.codec.hosts.profile import (
    EFFORTS,
    ChoiceFacts,
    ChoiceRule,
    ContentFacts,
    EffortRule,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    FormatRule,
    HostProfile,
    OutputFacts,
    ReasoningFacts,
    ThinkingFacts,
    ToolFacts,
    read_in_source,
    reported,
    unverified,
)
from toolwire.codec.hosts.vllm import PROFILE as VLLM

PROFILE = HostProfile(
    name="llamacpp",
    title="llama.cpp",
    messages=replace(MESSAGES, roles=("system", "developer", "user", "assistant", "tool")),
    content=replace(CONTENT, string_roles=(), null_with_calls=True, media=("image", "audio")),
    reasoning=REASONING_CONTENT,
    tools=replace(TOOLS, max_count=None, bare_functions=True),
    choice=ChoiceFacts(rules=(ChoiceRule(modes=("auto", "none", "required")),)),
    thinking=ThinkingFacts(efforts=(EffortRule(words=EFFORTS),)),
    output=OutputFacts(stop_limit=None, formats=(FormatRule(with_tools=False),)),
    fields=FieldFacts(ignored=VLLM.fields.ignored),
    errors=ErrorFacts(
        body='{"error":{"code":"$status","message":"$message","type":"$type"}}',
        templates={
            "messages.late_system": ErrorTemplate(
                message="System message must be at the beginning.", status=500, type="server_error"
            ),
            "content.media": ErrorTemplate(message="unsupported content[].type"),
            "content.image_models": ErrorTemplate(
                message="image input is not supported - hint: if this is unexpected, you may need to provide the "
                "mmproj",
                status=500,
                type="server_error",
            ),
            "messages.content": ErrorTemplate(message="All non-assistant messages must contain 'content'"),
            "choice.modes": ErrorTemplate(message="Invalid tool_choice: {choice}"),
            "tools.freeform": ErrorTemplate(message="Unsupported tool type: {type}"),
            "output.formats": ErrorTemplate(
                message='response_format type must be one of "text" or "json_object", but got: {type}'
            ),
            "context": ErrorTemplate(
                message="request ({input} tokens) exceeds the available context size ({limit} tokens), try increasing "
                "it",
                type="exceed_context_size_error",
            ),
        },
    ),
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages": read_in_source("ggml-org/llama.cpp#20215", note="developer is mapped to system"),
        "messages.late_system": reported("ggml-org/llama.cpp#27367", "QwenLM/Qwen3.8#244", note="Qwen's templates"),
        "content": read_in_source("ggml-org/llama.cpp"),
        "reasoning": read_in_source("ggml-org/llama.cpp"),
        "tools": read_in_source("ggml-org/llama.cpp"),
        "choice": read_in_source("ggml-org/llama.cpp", note="a named choice silently counts as auto"),
        "thinking": read_in_source("ggml-org/llama.cpp", note="passed to the template"),
        "output": read_in_source("ggml-org/llama.cpp"),
        "fields": read_in_source("ggml-org/llama.cpp"),
        "errors": read_in_source("ggml-org/llama.cpp"),
    },
)
RESPONSES = HostProfile(
    name="llamacpp",
    title="llama.cpp",
    protocol="openai-responses",
    messages=LEADING_SYSTEM,
    content=ContentFacts(media=()),
    reasoning=ReasoningFacts(fields=("content",), signatures=False),
    tools=ToolFacts(max_count=None, freeform=False, hosted=False),
    choice=PROFILE.choice,
    fields=FieldFacts(refused=("previous_response_id",), ignored=("store", "include", "prompt_cache_key")),
    errors=ErrorFacts(
        templates={
            "reasoning.signatures": ErrorTemplate(message="item['content'] is not an array"),
            "tools.freeform": ErrorTemplate(message="Cannot determine type of 'item'"),
            "content.media": ErrorTemplate(message="Output of tool call should be 'Input text'"),
        }
    ),
    sources={
        "messages": reported("ggml-org/llama.cpp#27367", note="Qwen's templates"),
        "content": read_in_source("ggml-org/llama.cpp", note="results are text only; the Chat form takes pictures"),
        "reasoning": read_in_source("ggml-org/llama.cpp", note="reasoning items need their content"),
        "tools": read_in_source("ggml-org/llama.cpp", note="custom_tool_call items are unknown"),
        "choice": read_in_source("ggml-org/llama.cpp"),
        "fields": read_in_source("ggml-org/llama.cpp"),
        "errors": read_in_source("ggml-org/llama.cpp"),
    },
)
ANTHROPIC = HostProfile(
    name="llamacpp",
    title="llama.cpp",
    protocol="anthropic",
    messages=LEADING_SYSTEM,
    reasoning=UNSIGNED,
    tools=ToolFacts(max_count=None, hosted=False),
    sources={
        "messages": reported("ggml-org/llama.cpp#27367", note="Qwen's templates"),
        "reasoning": read_in_source("ggml-org/llama.cpp"),
        "tools": unverified("functions only"),
    },
)
PROFILES = (PROFILE, RESPONSES, ANTHROPIC)
