"""Host profiles: deviations of a server from the protocol that it speaks.

A profile is plain data. Encoders consult it for requests translated from another protocol, and report every change that
it causes. Requests in the same protocol pass unchanged.
"""

import re
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace


class HostProfile(Struct, frozen=True, kw_only=True):
    """Features of the protocol that a host accepts. Defaults are those of OpenAI's Chat Completions."""

    name: str
    hostnames: tuple[str, ...] = ()  # patterns for the host name of a base URL
    string_content: bool = False  # accepts message text only as a single string
    developer_role: bool = True  # accepts the role `developer`
    late_system_messages: bool = True  # accepts system messages after the first, and later in the conversation
    user_after_tool: bool = True  # accepts a user message right after a `tool` message
    message_names: bool = True  # accepts `name` and `refusal` on messages
    null_content: bool = True  # accepts `content: null` beside tool calls
    reasoning_content: bool = True  # accepts `reasoning_content` for models that need their reasoning back
    output_limit_field: str = "max_completion_tokens"  # the field of the output limit
    reasoning_effort: bool = True  # accepts `reasoning_effort`; for Ollama, `think`
    cache_marks: bool = True  # accepts `prompt_cache_breakpoint`
    freeform_tools: bool = True  # accepts `custom` tools
    bare_functions: bool = True  # accepts functions without `parameters`, and `strict: false`
    allowed_tools: bool = True  # accepts a tool choice among some of the tools
    web_search: bool = True  # accepts `web_search_options`
    stream_usage: bool = True  # accepts `stream_options.include_usage`
    user_pattern: re.Pattern[str] | None = None  # legal values of `user`; other values are sent as a digest
    # further fields of the body that it rejects, as JSON pointers without the leading slash
    unsupported_fields: tuple[str, ...] = ()
    stores_by_default: bool = False  # stores responses unless `store` is false


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
"""The subset that every known host accepts, used for unknown hosts."""

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
"""A host that is assumed to accept the entire protocol."""

PROFILES = {profile.name: profile for profile in (OPENAI, AZURE, GENERIC, MISTRAL, GROQ)}


# OpenAI's own models behind a proxy: they reject `max_tokens`.
_OPENAI_MODELS = re.compile(r"(?:openai/)?(?:gpt-\d|chatgpt-|o\d)")


def profile_for_host(hostname: str) -> HostProfile | None:
    """Return the profile of a known host name, or None."""
    for profile in PROFILES.values():
        if any(fnmatchcase(hostname.lower(), pattern) for pattern in profile.hostnames):
            return profile
    return None


def default_profile(protocol: str, model: str) -> HostProfile:
    """Return the profile of an unknown host, by its protocol and the model's name."""
    return GENERIC if protocol == "openai-chat" and not _OPENAI_MODELS.match(model) else COMPATIBLE
