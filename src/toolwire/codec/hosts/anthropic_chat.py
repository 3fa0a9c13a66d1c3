"""The Chat form of Anthropic's API, at `/v1/chat/completions`."""

from toolwire.codec.hosts.generic import MODES, OPENAI_FIELDS
from toolwire.codec.hosts.profile import (
    ChoiceFacts,
    ChoiceRule,
    ContentFacts,
    FieldFacts,
    FormatRule,
    HostProfile,
    MessageFacts,
    OutputFacts,
    Recognition,
    ThinkingFacts,
    ToolFacts,
    documented,
    unverified,
)

PROFILE = HostProfile(
    name="anthropic-chat",
    title="Anthropic (Chat form)",
    recognition=Recognition(hostnames=("api.anthropic.com",)),
    messages=MessageFacts(names=False, refusals=False),
    content=ContentFacts(media=("image",), cache_marks=False),
    tools=ToolFacts(max_count=None, freeform=False, hosted=False, strict="ignored", web_search=False),
    choice=ChoiceFacts(rules=(ChoiceRule(modes=MODES, thinking_modes=("auto", "none")),)),
    thinking=ThinkingFacts(efforts=()),
    output=OutputFacts(stop_limit=None, formats=(FormatRule(types=("text",)),)),
    fields=FieldFacts(
        ignored=(
            *OPENAI_FIELDS,
            "response_format",
            "seed",
            "logprobs",
            "top_logprobs",
            "frequency_penalty",
            "presence_penalty",
            "user",
            "reasoning_effort",
        ),
        max_temperature=1.0,
    ),
    sources={
        "messages": documented("docs.anthropic.com", note="system and developer messages are hoisted"),
        "content": documented("docs.anthropic.com"),
        "tools": documented("docs.anthropic.com"),
        "choice": documented("docs.anthropic.com", note="forced choices exclude thinking"),
        "thinking": documented("docs.anthropic.com"),
        "output": documented("docs.anthropic.com"),
        "fields": documented("docs.anthropic.com", note="n must be 1"),
        "errors": unverified(),
    },
)
PROFILES = (PROFILE,)
