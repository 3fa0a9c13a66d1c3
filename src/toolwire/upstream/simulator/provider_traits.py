"""How each provider's models differ: what their ids look like, when they think, and where they prove it."""

import re
from typing import Literal

from msgspec import Struct

from toolwire.canonical.request import Request

# Gemini 3 and later: they always think, and sign the first call of each step.
_SIGNING_MODELS = re.compile(r"gemini-(?:[3-9]|\d\d)")
_UNKNOWN_ISSUER = "openrouter"


class ProviderTraits(Struct, frozen=True, kw_only=True):
    """`answer_id` and `call_id` are what ids begin with; None: it has none. `proof` is the part that carries the proof
    of thinking, `issuer` who gives it. `discreet`: thinking is shown only where that is asked for."""

    response_id_prefix: str | None
    call_id_prefix: str | None
    issuer: str = ""
    signed_part: Literal["reasoning", "call"] | None = None
    hides_thinking: bool = False
    models: tuple[str, ...]


PROVIDER_TRAITS: dict[str, ProviderTraits] = {
    "anthropic": ProviderTraits(
        response_id_prefix="msg_01",
        call_id_prefix="toolu_",
        issuer="anthropic",
        signed_part="reasoning",
        models=("claude-opus-5-5", "claude-sonnet-5", "claude-haiku-4-5"),
    ),
    "openai-chat": ProviderTraits(
        response_id_prefix="chatcmpl-", call_id_prefix="call_", models=("gpt-6-astra", "gpt-5.4", "gpt-4.1")
    ),
    "openai-responses": ProviderTraits(
        response_id_prefix="resp_",
        call_id_prefix="call_",
        issuer="openai",
        signed_part="reasoning",
        hides_thinking=True,
        models=("gpt-6-astra", "gpt-5.4", "gpt-4.1"),
    ),
    "gemini": ProviderTraits(
        response_id_prefix="",
        call_id_prefix="",
        issuer="google",
        signed_part="call",
        hides_thinking=True,
        models=("gemini-3-pro", "gemini-3.8-flash", "gemini-2.5-flash"),
    ),
    "gemini-interactions": ProviderTraits(
        response_id_prefix="v1_",
        call_id_prefix="",
        issuer="google",
        signed_part="reasoning",
        hides_thinking=True,
        models=("gemini-3-pro", "gemini-3.8-flash", "gemini-2.5-flash"),
    ),
    "ollama": ProviderTraits(response_id_prefix=None, call_id_prefix=None, models=("qwen3:latest", "gpt-oss:20b")),
    "openrouter": ProviderTraits(
        response_id_prefix="gen-",
        call_id_prefix="call_",
        signed_part="reasoning",
        models=("anthropic/claude-opus-5.5", "openai/gpt-6-astra", "google/gemini-3-pro"),
    ),
}


def signs_calls(model: str | None) -> bool:
    return _SIGNING_MODELS.search(model or "") is not None


def is_thinking_enabled(protocol: str, request: Request) -> bool:
    """Whether thinking is on, as this protocol turns it on."""
    if protocol.startswith("gemini") and signs_calls(request.model):
        return True
    asked = request.thinking
    if asked is None:
        return False
    if asked.enabled is not None:
        return asked.enabled
    # Anthropic's effort alone is about the answer.
    return protocol != "anthropic" and asked.effort != "none"


def is_thinking_visible(protocol: str, request: Request) -> bool:
    """Whether thinking may be read."""
    visibility = None if request.thinking is None else request.thinking.visibility
    return visibility in ("summary", "full") if PROVIDER_TRAITS[protocol].hides_thinking else visibility != "omitted"


def signature_issuer(protocol: str, model: str | None) -> str:
    """Who proves the thinking of this model: through OpenRouter, whose model it is."""
    if protocol != "openrouter":
        return PROVIDER_TRAITS[protocol].issuer
    vendor = (model or "").lstrip("~").partition("/")[0]
    return vendor if vendor in ("anthropic", "openai", "google") else _UNKNOWN_ISSUER


def call_id_prefix(protocol: str, model: str | None) -> str | None:
    """What ids of calls begin with. Gemini's models before 3 issue none; OpenRouter's are the upstream's own."""
    if protocol == "gemini" and not signs_calls(model):
        return None
    if protocol == "openrouter" and signature_issuer(protocol, model) == "anthropic":
        return "toolu_"
    return PROVIDER_TRAITS[protocol].call_id_prefix
