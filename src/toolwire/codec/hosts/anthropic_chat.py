"""The Chat form of Anthropic's API, at `/v1/chat/completions`."""

from toolwire.codec.hosts.generic import MODES
from toolwire.codec.hosts.profile import (
    Choice,
    ChoiceRule,
    Content,
    Fields,
    FormatRule,
    HostProfile,
    Messages,
    Output,
    Recognition,
    Thinking,
    Tools,
    documented,
    unverified,
)

PROFILE = HostProfile(
    name="anthropic-chat",
    title="Anthropic (Chat form)",
    recognition=Recognition(hostnames=("api.anthropic.com",)),
    messages=Messages(names=False, refusals=False),
    content=Content(media=("image",), cache_marks=False),
    tools=Tools(max_count=None, freeform=False, hosted=False, strict="ignored", web_search=False),
    choice=Choice(rules=(ChoiceRule(modes=MODES, thinking_modes=("auto", "none")),)),
    thinking=Thinking(efforts=()),
    output=Output(stop_limit=None, formats=(FormatRule(types=("text",)),)),
    fields=Fields(
        ignored=(
            "response_format",
            "seed",
            "logprobs",
            "top_logprobs",
            "frequency_penalty",
            "presence_penalty",
            "user",
            "store",
            "metadata",
            "service_tier",
            "reasoning_effort",
            "verbosity",
            "prompt_cache_key",
            "prompt_cache_options",
            "prompt_cache_retention",
            "safety_identifier",
            "moderation",
            "stream_options/include_obfuscation",
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
