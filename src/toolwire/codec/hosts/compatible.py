"""Unknown servers that are assumed to accept their entire protocol."""

from msgspec.structs import replace

from toolwire.codec.hosts.openai import CONTENT, MODEL_REASONING
from toolwire.codec.hosts.profile import FieldFacts, HostProfile, unverified

COMPATIBLE = HostProfile(
    name="compatible",
    title="Servers that accept the entire protocol",
    pass_through=True,
    content=CONTENT,
    reasoning=MODEL_REASONING,
    fields=FieldFacts(user_pattern=r".{0,64}"),
    sources={
        "content": unverified("as OpenAI's API"),
        "reasoning": unverified("by the names of models"),
        "fields": unverified("as OpenAI's API"),
    },
)
INTERACTIONS = replace(COMPATIBLE, fields=replace(COMPATIBLE.fields, stores_by_default=True))
"""Google's Interactions API stores interactions unless `store` is false."""

PROFILE = COMPATIBLE
PROFILES = (PROFILE,)
