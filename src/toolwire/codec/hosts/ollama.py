"""Ollama: its Chat form (`/v1`), its native `/api/chat`, and `/v1/messages`."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import (
    CONTENT,
    LEADING_SYSTEM,
    MESSAGES,
    NEWEST_MODELS,
    OUTPUT,
    ROLES,
    TOOLS,
    UNSIGNED,
)
from toolwire.codec.hosts.profile import (
    ChoiceFacts,
    ChoiceRule,
    EffortRule,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    FormatRule,
    HostProfile,
    OutputFacts,
    ReasoningFacts,
    Recognition,
    ThinkingFacts,
    ThinkingSwitch,
    ToolFacts,
    read_in_source,
    reported,
    unverified,
)

_RECOGNITION = Recognition(hostnames=("ollama.com", "*.ollama.com"), ports=(11434,))
_LEVELS = ("none", "low", "medium", "high", "max")
_THINKING_MODELS = ("*gpt-oss*",)

PROFILE = HostProfile(
    name="ollama",
    title="Ollama",
    recognition=_RECOGNITION,
    messages=MESSAGES,
    content=replace(CONTENT, string_roles=ROLES, image_urls=False),
    reasoning=ReasoningFacts(fields=("reasoning",), replay_field="reasoning"),
    tools=replace(TOOLS, max_count=None, bare_functions=True),
    choice=ChoiceFacts(rules=(ChoiceRule(modes=("auto",)),)),
    thinking=ThinkingFacts(efforts=(EffortRule(models=_THINKING_MODELS, words=_LEVELS),)),
    output=replace(OUTPUT, stop_limit=None),
    fields=FieldFacts(
        known=(
            "model",
            "messages",
            "stream",
            "stream_options",
            "max_tokens",
            "seed",
            "stop",
            "temperature",
            "frequency_penalty",
            "presence_penalty",
            "top_p",
            "response_format",
            "tools",
            "reasoning",
            "reasoning_effort",
            "logprobs",
            "top_logprobs",
        ),
        unknown="ignored",
        ignored=("stream_options/include_obfuscation",),
    ),
    errors=ErrorFacts(
        body='{"error":{"message":"$message","type":"$type","param":null,"code":null}}',
        templates={
            "thinking.efforts": ErrorTemplate(message='"{model}" does not support thinking'),
            "thinking.words": ErrorTemplate(message='think value "{word}" is not supported for this model'),
            "tools": ErrorTemplate(message='"{model}" does not support tools'),
            "content.null": ErrorTemplate(message="invalid message content type: <nil>"),
            "content.image_urls": ErrorTemplate(
                message="image URLs are not currently supported, please use base64 encoded data instead"
            ),
            "tools.arguments": ErrorTemplate(message="invalid tool call arguments"),
            "messages.late_system": ErrorTemplate(message="system message must be at the beginning", status=500),
        },
    ),
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages": reported("ollama/ollama#17774", note="templates decide"),
        "content": read_in_source("ollama/ollama", note="a list becomes one message per part"),
        "reasoning": read_in_source("ollama/ollama"),
        "tools": read_in_source("ollama/ollama"),
        "choice": read_in_source("ollama/ollama", note="tool_choice is ignored"),
        "thinking": reported(
            "musistudio/claude-code-router#972",
            "openclaw/openclaw#67958",
            note="400 where the model can't think; /api/show lists capabilities",
        ),
        "output": read_in_source("ollama/ollama", note="max_completion_tokens is ignored"),
        "fields": read_in_source("ollama/ollama"),
        "errors": read_in_source("ollama/ollama"),
    },
)
NATIVE = HostProfile(
    name="ollama",
    title="Ollama",
    protocol="ollama",
    recognition=_RECOGNITION,
    pass_through=True,
    thinking=ThinkingFacts(efforts=(EffortRule(words=_LEVELS),), switch=ThinkingSwitch(field="think")),
    tools=replace(TOOLS, max_count=None, bare_functions=True),
    output=OutputFacts(formats=(FormatRule(with_tools=False),)),
    fields=FieldFacts(unknown="ignored"),
    errors=ErrorFacts(
        body='{"error":"$message"}',
        templates={
            "thinking.efforts": ErrorTemplate(message='"{model}" does not support thinking'),
            "thinking.words": ErrorTemplate(message='think value "{word}" is not supported for this model'),
            "tools": ErrorTemplate(message='"{model}" does not support tools'),
        },
    ),
    sources={
        "output": unverified("the grammar of `format` excludes tool calls"),
        "thinking": reported("charmbracelet/crush#2623", note="levels for gpt-oss only; /api/show tells"),
        "tools": read_in_source("ollama/ollama"),
        "fields": read_in_source("ollama/ollama"),
        "errors": read_in_source("ollama/ollama"),
    },
)
ANTHROPIC = HostProfile(
    name="ollama",
    title="Ollama",
    protocol="anthropic",
    recognition=_RECOGNITION,
    messages=LEADING_SYSTEM,
    reasoning=UNSIGNED,
    tools=ToolFacts(hosted=False),
    errors=ErrorFacts(
        templates={"messages.late_system": ErrorTemplate(message="system message must be at the beginning", status=500)}
    ),
    sources={
        "messages": reported("ollama/ollama#17774", note="Claude Code 2.1.232 with qwen3.8"),
        "reasoning": unverified("not signed"),
        "tools": unverified("it runs no tools of Anthropic"),
        "errors": reported("ollama/ollama#17774"),
    },
)
PROFILES = (PROFILE, NATIVE, ANTHROPIC)
