"""Volcengine Ark (Doubao)."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CONTENT, GENERIC, REASONING_CONTENT
from toolwire.codec.hosts.profile import (
    FieldFacts,
    Recognition,
    ThinkingFacts,
    ThinkingSwitch,
    peer,
    reported,
    unverified,
)

PROFILE = replace(
    GENERIC,
    name="volcengine",
    title="Volcengine Ark (Doubao)",
    pass_through=False,
    recognition=Recognition(hostnames=("ark.*.volces.com",)),
    content=replace(CONTENT, string_roles=()),
    reasoning=REASONING_CONTENT,
    thinking=ThinkingFacts(efforts=(), switch=ThinkingSwitch(field="thinking", models=("doubao-*",))),
    fields=FieldFacts(ignored=GENERIC.fields.refused, user_pattern=r".{6,128}"),
    sources={
        "thinking": peer("litellm", note="newer models also take reasoning_effort"),
        "fields": unverified("as unknown hosts"),
        "fields.user_pattern": reported("looplj/axonhub#1669"),
        "content": unverified("as unknown hosts, with parts"),
        "reasoning": peer("litellm"),
        "messages": unverified("as unknown hosts"),
        "tools": unverified("as unknown hosts"),
        "choice": unverified("as unknown hosts"),
        "output": unverified("as unknown hosts"),
    },
)
PROFILES = (PROFILE,)
