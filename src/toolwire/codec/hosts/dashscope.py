"""DashScope and Model Studio (Qwen): compatible mode, and the Messages form at `/apps/anthropic`."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import (
    CONTENT,
    LEADING_SYSTEM,
    MESSAGES,
    MODES,
    NEWEST_MODELS,
    OPENAI_FIELDS,
    OUTPUT,
    PLAIN_USER,
    REASONING_CONTENT,
    TOOLS,
    UNSIGNED,
)
from toolwire.codec.hosts.profile import (
    ChoiceFacts,
    ChoiceRule,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    HostProfile,
    LimitCap,
    Recognition,
    ThinkingFacts,
    ThinkingSwitch,
    documented,
    peer,
    reported,
    unverified,
)

_HOSTNAMES = ("dashscope*.aliyuncs.com", "*.dashscope.aliyuncs.com", "*.maas.aliyuncs.com")
_DEFAULT_ON = ("qwen3.5*", "qwen3.6*", "qwen3.7*", "qwen3.8*", "*thinking*")
_OPEN_WEIGHTS = ("qwen3-*b", "qwen3-*b-a*b", "qwen3-*b-*")

_CAPS = (
    LimitCap(models=("qwen-max", "qwq-plus*", "qwen-plus-2025-01-25", "qwen-turbo-2024-11-01"), tokens=8192),
    LimitCap(models=("qwen-plus-latest", "qwen-plus-2025-07-28", "qwen-plus-2025-09-11", "qwen-flash*"), tokens=32_768),
    LimitCap(models=("qwen-plus*", "qwen-turbo*", "qwen-coder*", "qwen3-30b-a3b"), tokens=16_384),
    LimitCap(models=("qwen3-vl-*",), tokens=32_768),
    LimitCap(models=("qwen3-coder-*", "qwen3-max*", "qwen3-next-*", "qwen3.5-*", "qwen3.7-*"), tokens=65_536),
    LimitCap(models=("qwen3.8-*",), tokens=131_072),
)

PROFILE = HostProfile(
    name="dashscope",
    title="DashScope and Model Studio (Qwen)",
    recognition=Recognition(hostnames=_HOSTNAMES),
    messages=MESSAGES,
    content=replace(CONTENT, string_roles=(), null_with_calls=True, media=("image", "audio")),
    reasoning=REASONING_CONTENT,
    tools=replace(TOOLS, max_count=None),
    choice=ChoiceFacts(rules=(ChoiceRule(modes=MODES, thinking_modes=("auto", "none")),)),
    thinking=ThinkingFacts(
        efforts=(),
        switch=ThinkingSwitch(field="enable_thinking", models=("qwen3*", "qwen-plus*", "qwen-turbo*", "qwen-flash*")),
        default_on=(*_DEFAULT_ON, *_OPEN_WEIGHTS),
        stream_only=_OPEN_WEIGHTS,
        budget_field="thinking_budget",
    ),
    output=replace(OUTPUT, caps=_CAPS),
    fields=FieldFacts(
        ignored=(*OPENAI_FIELDS, "frequency_penalty"),
        user_pattern=PLAIN_USER,
    ),
    errors=ErrorFacts(
        body='{"error":{"code":"$code","param":null,"message":"$message","type":"$type"},"id":"chatcmpl-1",'
        '"request_id":"1"}',
        code="invalid_parameter_error",
        templates={
            "messages.roles": ErrorTemplate(
                message="{role} is not one of ['system', 'assistant', 'user', 'tool', 'function'] - "
                "'messages.[{index}].role'"
            ),
            "choice.thinking_modes": ErrorTemplate(
                message="<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support being "
                "set to required or object in thinking mode"
            ),
            "thinking.stream_only": ErrorTemplate(
                message="parameter.enable_thinking must be set to false for non-streaming calls"
            ),
            "output.caps": ErrorTemplate(message="Range of max_tokens should be [1, {limit}]"),
            "tools.empty_list": ErrorTemplate(message="[] is too short - 'tools'"),
            "messages.late_system": ErrorTemplate(message="System message must be at the beginning."),
            "context": ErrorTemplate(message="Range of input length should be [1, {limit}]"),
        },
    ),
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages": reported("proma-ai/Proma#1496", "ChatLab/ChatLab#480"),
        "messages.late_system": reported("can1357/oh-my-pi#958", note="templates of Qwen 3.5 and later"),
        "messages.names": unverified(),
        "messages.refusals": unverified(),
        "content": peer("litellm", "vercel/ai"),
        "output.caps": peer("litellm", note="its model data; the wording is unverified"),
        "reasoning": documented(),
        "tools": unverified("no limit is known; empty lists are rejected"),
        "choice": reported("cloudwego/eino#994", "QwenLM/qwen-code#7659", "decolua/9router#551"),
        "thinking": documented(note="newer hosted models think by default: ChatLab/ChatLab#483"),
        "thinking.stream_only": reported("langchain4j/langchain4j#3974", "vybestack/llxprt-code#229"),
        "output": documented(),
        "fields": peer("vercel/ai", note="unknown members are ignored"),
        "errors": reported("proma-ai/Proma#1496", "cloudwego/eino#994", "langchain4j/langchain4j#3974"),
    },
)
ANTHROPIC = HostProfile(
    name="dashscope",
    title="DashScope and Model Studio (Qwen)",
    protocol="anthropic",
    recognition=Recognition(hostnames=_HOSTNAMES),
    messages=LEADING_SYSTEM,
    reasoning=UNSIGNED,
    choice=PROFILE.choice,
    thinking=ThinkingFacts(default_on=PROFILE.thinking.default_on),
    sources={
        "messages": reported("can1357/oh-my-pi#958", note="templates of Qwen 3.5 and later"),
        "reasoning": unverified("signatures are empty or absent"),
        "choice": reported("decolua/9router#551", note="Claude Code at the Chat form"),
        "thinking": reported("ChatLab/ChatLab#483"),
    },
)
PROFILES = (PROFILE, ANTHROPIC)
