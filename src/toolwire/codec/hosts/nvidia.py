"""NVIDIA NIM."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CHOICE, CONTENT, GENERIC, MESSAGES, NEWEST_MODELS, OUTPUT, TOOLS
from toolwire.codec.hosts.profile import (
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    HostProfile,
    ReasoningFacts,
    Recognition,
    ThinkingFacts,
    peer,
    reported,
    unverified,
)

PROFILE = HostProfile(
    name="nvidia",
    title="NVIDIA NIM",
    recognition=Recognition(hostnames=("integrate.api.nvidia.com",)),
    messages=replace(MESSAGES, user_after_tool=True, members=("role", "content", "name", "tool_calls", "tool_call_id")),
    content=CONTENT,
    reasoning=ReasoningFacts(fields=("reasoning_content",)),
    tools=TOOLS,
    choice=CHOICE,
    thinking=ThinkingFacts(efforts=()),
    output=OUTPUT,
    fields=FieldFacts(
        unknown="refused",
        refused=(*GENERIC.fields.refused, "user", "parallel_tool_calls", "enable_thinking"),
    ),
    errors=ErrorFacts(
        templates={
            "fields.unknown": ErrorTemplate(
                message="[{{'type': 'extra_forbidden', 'loc': ('body', '{name}'), 'msg': 'Extra inputs are not "
                "permitted', 'input': '{value}'}}]"
            )
        }
    ),
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages": reported("NousResearch/hermes-agent#20154", note="Mistral's models also reject user after tool"),
        "messages.members": unverified("unknown members of the body are rejected"),
        "content": peer("pi", note="assistant parts are mirrored in answers"),
        "reasoning": unverified(),
        "tools": unverified("as vLLM"),
        "choice": unverified("as vLLM"),
        "thinking": reported("can1357/oh-my-pi#2299", "Alishahryar1/free-claude-code#89", note="by model"),
        "output": unverified(),
        "fields": reported("sipeed/picoclaw#1019", "can1357/oh-my-pi#2299"),
        "errors": reported("sipeed/picoclaw#1019"),
    },
)
PROFILES = (PROFILE,)
