"""The server of llama.cpp: Chat, Responses and Messages."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CONTENT, MESSAGES, TOOLS
from toolwire.codec.hosts.profile import (
    EFFORTS,
    Choice,
    ChoiceRule,
    Content,
    EffortRule,
    Errors,
    Fields,
    FormatRule,
    HostProfile,
    Messages,
    Output,
    Reasoning,
    Thinking,
    Tools,
    Wording,
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
    reasoning=Reasoning(fields=("reasoning_content",), echo_field="reasoning_content"),
    tools=replace(TOOLS, max_count=None, bare_functions=True),
    choice=Choice(rules=(ChoiceRule(modes=("auto", "none", "required")),)),
    thinking=Thinking(efforts=(EffortRule(words=EFFORTS),)),
    output=Output(stop_limit=None, formats=(FormatRule(with_tools=False),)),
    fields=Fields(ignored=VLLM.fields.ignored),
    errors=Errors(
        body='{"error":{"code":"$status","message":"$message","type":"$type"}}',
        wordings={
            "messages.late_system": Wording(
                message="System message must be at the beginning.", status=500, type="server_error"
            ),
            "content.media": Wording(message="unsupported content[].type"),
            "content.image_models": Wording(
                message="image input is not supported - hint: if this is unexpected, you may need to provide the "
                "mmproj",
                status=500,
                type="server_error",
            ),
            "messages.content": Wording(message="All non-assistant messages must contain 'content'"),
            "choice.modes": Wording(message="Invalid tool_choice: {choice}"),
            "tools.freeform": Wording(message="Unsupported tool type: {type}"),
            "output.formats": Wording(
                message='response_format type must be one of "text" or "json_object", but got: {type}'
            ),
            "context": Wording(
                message="request ({input} tokens) exceeds the available context size ({limit} tokens), try increasing "
                "it",
                type="exceed_context_size_error",
            ),
        },
    ),
    sources={
        "content.original_images": unverified("a value of OpenAI's newest models"),
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
    messages=Messages(late_system=False),
    content=Content(media=()),
    reasoning=Reasoning(fields=("content",), signatures=False),
    tools=Tools(max_count=None, freeform=False, hosted=False),
    choice=PROFILE.choice,
    fields=Fields(refused=("previous_response_id",), ignored=("store", "include", "prompt_cache_key")),
    errors=Errors(
        wordings={
            "reasoning.signatures": Wording(message="item['content'] is not an array"),
            "tools.freeform": Wording(message="Cannot determine type of 'item'"),
            "content.media": Wording(message="Output of tool call should be 'Input text'"),
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
    messages=Messages(late_system=False),
    reasoning=Reasoning(signatures=False),
    tools=Tools(max_count=None, hosted=False),
    sources={
        "messages": reported("ggml-org/llama.cpp#27367", note="Qwen's templates"),
        "reasoning": read_in_source("ggml-org/llama.cpp"),
        "tools": unverified("functions only"),
    },
)
PROFILES = (PROFILE, RESPONSES, ANTHROPIC)
