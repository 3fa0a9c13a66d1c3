"""Host profiles: how a server that speaks a protocol departs from it.

A profile is data. The encoder asks it for requests of another protocol, and reports every step that it causes. A
request of the same protocol passes as the client wrote it.
"""

import re
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace


class HostProfile(Struct, frozen=True, kw_only=True):
    """What a host takes of its protocol, which is Chat Completions unless said; the defaults are the protocol's own."""

    name: str
    hostnames: tuple[str, ...] = ()  # patterns of the host name in a base URL
    string_content: bool = False  # texts of a message only as one string
    developer_role: bool = True  # the role `developer`
    late_system_messages: bool = True  # system messages after the leading run, and several of them
    user_after_tool: bool = True  # a user message right after a `tool` message
    message_names: bool = True  # `name` and `refusal` on messages
    null_content: bool = True  # `content: null` beside calls
    reasoning_content: bool = True  # where the model is known to want its reasoning back
    output_limit_field: str = "max_completion_tokens"  # the field of the output limit
    reasoning_effort: bool = True  # `reasoning_effort`; at Ollama, `think`
    effort_levels: bool = True  # at Ollama, words for `think` besides true and false
    cache_marks: bool = True  # `prompt_cache_breakpoint`
    freeform_tools: bool = True  # `custom` tools
    bare_functions: bool = True  # functions without `parameters`, and `strict: false`
    allowed_tools: bool = True  # a choice among some of the tools
    web_search: bool = True  # `web_search_options`
    stream_usage: bool = True  # `stream_options.include_usage`
    user_pattern: re.Pattern[str] | None = None  # legal values of `user`; others are sent as a digest
    unsupported_fields: tuple[str, ...] = ()  # other fields of the body, as pointers without the first slash
    stores_by_default: bool = False  # the host keeps answers unless `store` is false


OPENAI = HostProfile(name="openai", hostnames=("api.openai.com", "*.api.openai.com"), stores_by_default=True)
AZURE = replace(
    OPENAI,
    name="azure",
    hostnames=("*.openai.azure.com", "*.cognitiveservices.azure.com", "*.services.ai.azure.com"),
    stores_by_default=False,
)
GENERIC = HostProfile(
    name="generic",
    string_content=True,
    developer_role=False,
    late_system_messages=False,
    message_names=False,
    null_content=False,
    output_limit_field="max_tokens",
    reasoning_effort=False,
    cache_marks=False,
    freeform_tools=False,
    bare_functions=False,
    allowed_tools=False,
    web_search=False,
    user_pattern=re.compile(r"[A-Za-z0-9_-]{1,64}"),
    unsupported_fields=(
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
)
"""The form that every known host takes, for one that is not known."""

# 422 `extra_forbidden` for `user` and `stream_options.include_usage`, and code 3230 for a user message after a result.
# Usage comes in the last chunk anyway.
MISTRAL = replace(
    GENERIC,
    name="mistral",
    hostnames=("api.mistral.ai", "codestral.mistral.ai"),
    user_after_tool=False,
    reasoning_content=False,
    stream_usage=False,
    unsupported_fields=(*GENERIC.unsupported_fields, "user"),
)
# 400 `property 'reasoning_content' is unsupported`, whatever the model.
GROQ = replace(GENERIC, name="groq", hostnames=("api.groq.com",), reasoning_content=False)

COMPATIBLE = replace(OPENAI, name="compatible", hostnames=(), stores_by_default=False)
"""A host that is taken to accept its whole protocol."""

PROFILES = {one.name: one for one in (OPENAI, AZURE, GENERIC, MISTRAL, GROQ)}


# A proxy in front of OpenAI's own models, which refuse `max_tokens`.
_OPENAI_MODELS = re.compile(r"(?:openai/)?(?:gpt-\d|chatgpt-|o\d)")


def profile_for_host(hostname: str) -> HostProfile | None:
    """Return the profile of a host name, if it is known."""
    for profile in PROFILES.values():
        if any(fnmatchcase(hostname.lower(), pattern) for pattern in profile.hostnames):
            return profile
    return None


def default_profile(protocol: str, model: str) -> HostProfile:
    """Return the profile of a host that nothing is known of but its protocol and the name of the model."""
    return GENERIC if protocol == "openai-chat" and not _OPENAI_MODELS.match(model) else COMPATIBLE
