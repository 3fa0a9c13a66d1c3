"""Together AI. Little is known about refusals, so the form for unknown hosts is used."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CONTENT, GENERIC
from toolwire.codec.hosts.profile import FieldFacts, ReasoningFacts, Recognition, documented, unverified

PROFILE = replace(
    GENERIC,
    name="together",
    title="Together AI",
    pass_through=False,
    recognition=Recognition(hostnames=("api.together.xyz", "api.together.ai")),
    content=replace(CONTENT, string_roles=()),
    reasoning=ReasoningFacts(fields=("reasoning",)),
    fields=FieldFacts(ignored=GENERIC.fields.refused, user_pattern=GENERIC.fields.user_pattern),
    sources={
        "reasoning": documented(),
        "content": unverified("as unknown hosts, with parts"),
        "messages": unverified("as unknown hosts"),
        "tools": unverified("as unknown hosts"),
        "choice": unverified("as unknown hosts"),
        "thinking": unverified("as unknown hosts"),
        "output": unverified("as unknown hosts"),
        "fields": unverified("as unknown hosts"),
    },
)
PROFILES = (PROFILE,)
