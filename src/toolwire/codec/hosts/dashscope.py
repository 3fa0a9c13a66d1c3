"""DashScope and Model Studio (Qwen): compatible mode, and the Messages form at `/apps/anthropic`."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CONTENT, MESSAGES, OUTPUT, TOOLS
from toolwire.codec.hosts.profile import (
    Choice,
    ChoiceRule,
    Errors,
    Fields,
    HostProfile,
    Messages,
    Reasoning,
    Recognition,
    Thinking,
    ThinkingSwitch,
    Wording,
    documented,
    peer,
    reported,
    unverified,
)

_HOSTNAMES = ("dashscope*.aliyuncs.com", "*.dashscope.aliyuncs.com", "*.maas.aliyuncs.com")
_DEFAULT_ON = ("qwen3.5*", "qwen3.6*", "qwen3.7*", "qwen3.8*", "*thinking*")
_OPEN_WEIGHTS = ("qwen3-*b", "qwen3-*b-a*b", "qwen3-*b-*")

PROFILE = HostProfile(
    name="dashscope",
    title="DashScope and Model Studio (Qwen)",
    recognition=Recognition(hostnames=_HOSTNAMES),
    messages=MESSAGES,
    content=replace(CONTENT, string_roles=(), null_with_calls=True, media=("image", "audio")),
    reasoning=Reasoning(fields=("reasoning_content",), echo_field="reasoning_content"),
    tools=replace(TOOLS, max_count=None),
    choice=Choice(rules=(ChoiceRule(modes=("auto", "none", "required", "named"), thinking_modes=("auto", "none")),)),
    thinking=Thinking(
        efforts=(),
        switch=ThinkingSwitch(field="enable_thinking", models=("qwen3*", "qwen-plus*", "qwen-turbo*", "qwen-flash*")),
        default_on=(*_DEFAULT_ON, *_OPEN_WEIGHTS),
        stream_only=_OPEN_WEIGHTS,
        budget_field="thinking_budget",
    ),
    output=OUTPUT,
    fields=Fields(
        ignored=(
            "frequency_penalty",
            "metadata",
            "moderation",
            "prompt_cache_key",
            "prompt_cache_options",
            "prompt_cache_retention",
            "safety_identifier",
            "service_tier",
            "store",
            "stream_options/include_obfuscation",
            "verbosity",
        ),
        user_pattern=r"[A-Za-z0-9_-]{1,64}",
    ),
    errors=Errors(
        body='{"error":{"code":"$code","param":null,"message":"$message","type":"$type"},"id":"chatcmpl-1",'
        '"request_id":"1"}',
        code="invalid_parameter_error",
        wordings={
            "messages.roles": Wording(
                message="{role} is not one of ['system', 'assistant', 'user', 'tool', 'function'] - "
                "'messages.[{index}].role'"
            ),
            "choice.thinking_modes": Wording(
                message="<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support being "
                "set to required or object in thinking mode"
            ),
            "thinking.stream_only": Wording(
                message="parameter.enable_thinking must be set to false for non-streaming calls"
            ),
            "output.caps": Wording(message="Range of max_tokens should be [1, {limit}]"),
            "tools.empty_list": Wording(message="[] is too short - 'tools'"),
            "messages.late_system": Wording(message="System message must be at the beginning."),
            "context": Wording(message="Range of input length should be [1, {limit}]"),
        },
    ),
    sources={
        "content.original_images": unverified("a value of OpenAI's newest models"),
        "messages": reported("proma-ai/Proma#1496", "ChatLab/ChatLab#480"),
        "messages.late_system": reported("can1357/oh-my-pi#958", note="templates of Qwen 3.5 and later"),
        "messages.names": unverified(),
        "messages.refusals": unverified(),
        "content": peer("litellm", "vercel/ai"),
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
    messages=Messages(late_system=False),
    reasoning=Reasoning(signatures=False),
    choice=PROFILE.choice,
    thinking=Thinking(default_on=PROFILE.thinking.default_on),
    sources={
        "messages": reported("can1357/oh-my-pi#958", note="templates of Qwen 3.5 and later"),
        "reasoning": unverified("signatures are empty or absent"),
        "choice": reported("decolua/9router#551", note="Claude Code at the Chat form"),
        "thinking": reported("ChatLab/ChatLab#483"),
    },
)
PROFILES = (PROFILE, ANTHROPIC)
