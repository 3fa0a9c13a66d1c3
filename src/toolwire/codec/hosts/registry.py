"""The registry of host profiles: by name, by base URL and by protocol and model.

Modules of hosts are imported when they are first needed.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module

from msgspec.structs import replace

from toolwire.codec.hosts.compatible import COMPATIBLE, INTERACTIONS
from toolwire.codec.hosts.generic import GENERIC
from toolwire.codec.hosts.profile import HostProfile

HOST_NAMES = (
    "openai",
    "azure",
    "deepseek",
    "mistral",
    "groq",
    "moonshot",
    "zai",
    "dashscope",
    "xai",
    "vllm",
    "sglang",
    "llamacpp",
    "lmstudio",
    "ollama",
    "copilot",
    "openrouter",
    "together",
    "fireworks",
    "cerebras",
    "nvidia",
    "minimax",
    "volcengine",
    "gemini",
    "anthropic-chat",
    "bedrock",
    "vertex",
    "generic",
    "compatible",
)
"""Names of all hosts. Recognition tries them in this order."""

CHAT = "openai-chat"
PROFILED_PROTOCOLS = (CHAT, "openai-responses", "anthropic", "gemini", "ollama", "openrouter")
"""Protocols whose hosts differ."""

# OpenAI's models behind a proxy: they reject `max_tokens`.
_OPENAI_MODELS = re.compile(r"(?:openai/)?(?:gpt-\d|chatgpt-|o\d)")


@cache
def host_profiles(name: str) -> Mapping[str, HostProfile]:
    """Return the profiles of a host by protocol. Raises KeyError for an unknown name."""
    if name not in HOST_NAMES:
        raise KeyError(name)
    module = import_module(f"toolwire.codec.hosts.{name.replace('-', '_')}")
    profiles: Iterable[HostProfile] = module.PROFILES
    return {profile.protocol: profile for profile in profiles}


@cache
def profile_named(name: str, protocol: str = CHAT) -> HostProfile:
    """Return the profile of a host for a protocol. Raises KeyError for an unknown name.

    If nothing is known about this protocol of the host, it is assumed to accept all of it.
    """
    profiles = host_profiles(name)
    if protocol in profiles:
        return profiles[protocol]
    if protocol == CHAT or name in ("generic", "compatible"):
        return next(iter(profiles.values()))
    return replace(COMPATIBLE, name=name, title=next(iter(profiles.values())).title, protocol=protocol)


def recognize_host(
    hostname: str, port: int, path: str, protocol: str = CHAT, profiles: Iterable[HostProfile] | None = None
) -> HostProfile | None:
    """Return the profile for the parts of a base URL and a protocol; None if the host is unknown.

    `profiles` replace the built-in ones.
    """
    hostname, path = hostname.lower(), path.rstrip("/")
    for profile in all_profiles() if profiles is None else profiles:
        if profile.protocol == protocol and _recognizes(profile, hostname, port, path):
            return profile
    return None


def _recognizes(profile: HostProfile, hostname: str, port: int, path: str) -> bool:
    """Return whether the parts of a base URL match the patterns of a profile."""
    patterns = profile.recognition
    if port not in patterns.ports and not any(fnmatchcase(hostname, pattern) for pattern in patterns.hostnames):
        return False
    return not patterns.paths or any(fnmatchcase(path, pattern) for pattern in patterns.paths)


@cache
def all_profiles() -> tuple[HostProfile, ...]:
    """Return all built-in profiles, in the order in which recognition tries them."""
    return tuple(profile for name in HOST_NAMES for profile in host_profiles(name).values())


def default_profile(protocol: str, model: str) -> HostProfile:
    """Return the profile of an unknown host, by its protocol and the model's name."""
    if protocol == "gemini-interactions":
        return INTERACTIONS
    return GENERIC if protocol == CHAT and not _OPENAI_MODELS.match(model) else COMPATIBLE
