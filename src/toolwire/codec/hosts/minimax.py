"""MiniMax: Chat, and the Messages form at `/anthropic`."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import (
    CHOICE,
    CONTENT,
    GENERIC,
    LEADING_SYSTEM,
    MESSAGES,
    NEWEST_MODELS,
    TOOLS,
    UNSIGNED,
)
from toolwire.codec.hosts.profile import (
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    HostProfile,
    OutputFacts,
    ReasoningFacts,
    Recognition,
    ThinkingFacts,
    peer,
    reported,
    unverified,
)

_HOSTNAMES = ("api.minimax.io", "api.minimaxi.com")
_ERRORS = ErrorFacts(
    body='{"type":"error","error":{"type":"$type","message":"$message","http_code":"$status"},"request_id":"1"}',
    type="bad_request_error",
    templates={
        "messages.late_system": ErrorTemplate(
            message="invalid params, chat content has invalid message role: system (2013)"
        ),
        "messages.roles": ErrorTemplate(message="invalid params, chat content has invalid message role: {role} (2013)"),
        "messages.several_system": ErrorTemplate(message="invalid params, invalid chat setting (2013)"),
        "tools.bare_functions": ErrorTemplate(message="invalid params, function parameters is empty (2013)"),
        "tools.arguments": ErrorTemplate(
            message="invalid params, invalid function arguments json string, tool_call_id: {id} (2013)"
        ),
        "messages.results": ErrorTemplate(message="invalid params, tool result's tool id({id}) not found (2013)"),
        "context": ErrorTemplate(message="invalid params, context window exceeds limit (2013)"),
    },
)

PROFILE = HostProfile(
    name="minimax",
    title="MiniMax",
    recognition=Recognition(hostnames=_HOSTNAMES),
    messages=MESSAGES,
    content=replace(CONTENT, string_roles=()),
    reasoning=ReasoningFacts(fields=("content", "reasoning_details")),
    tools=TOOLS,
    choice=CHOICE,
    thinking=ThinkingFacts(efforts=(), default_on=("*",)),
    output=OutputFacts(),
    fields=FieldFacts(ignored=GENERIC.fields.refused, user_pattern=GENERIC.fields.user_pattern),
    errors=_ERRORS,
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages": reported("oh-my-pi#955", "CodexPlusPlus#267", "LobsterAI#123"),
        "content": unverified(),
        "reasoning": reported("MiniMax-AI/MiniMax-M2#76", note="<think> in the content, or reasoning_details"),
        "tools": reported("QwenLM/qwen-code#11834", "QwenLM/qwen-code#11905"),
        "choice": unverified(),
        "thinking": unverified("thinks always"),
        "output": unverified(),
        "fields": unverified("unknown members are ignored"),
        "errors": reported("QwenLM/qwen-code#11834", "HKUDS/nanobot#2373", "MiniMax-AI/MiniMax-M2#76"),
    },
)
ANTHROPIC = HostProfile(
    name="minimax",
    title="MiniMax",
    protocol="anthropic",
    recognition=Recognition(hostnames=_HOSTNAMES),
    messages=LEADING_SYSTEM,
    reasoning=UNSIGNED,
    errors=_ERRORS,
    sources={
        "messages": reported("codexu/note-gen#918", note="Claude Code"),
        "reasoning": unverified("signatures are empty or absent"),
        "content": peer("litellm", note="cache_control is accepted"),
        "errors": reported("codexu/note-gen#918"),
    },
)
PROFILES = (PROFILE, ANTHROPIC)
