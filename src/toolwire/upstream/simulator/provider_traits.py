"""Differences between the providers' models: ids, thinking and signatures."""

from typing import Literal

from msgspec import Struct

from toolwire.canonical.request import Request
from toolwire.codec.models.gemini import signs_calls

# Gemini 3 and later always think, and sign the first call of each step.
_UNKNOWN_ISSUER = "openrouter"


class ProviderTraits(Struct, frozen=True, kw_only=True):
    """The ids, signatures and models of one provider."""

    # The beginning of ids; None if the provider issues none.
    response_id_prefix: str | None
    call_id_prefix: str | None
    # The vendor that signs thinking.
    issuer: str = ""
    # The part that carries the signature.
    signed_part: Literal["reasoning", "call"] | None = None
    # Whether thinking is shown only on request.
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


def is_thinking_enabled(protocol: str, request: Request) -> bool:
    """Return whether the request enables thinking in this protocol."""
    if protocol.startswith("gemini") and signs_calls(request.model or ""):
        return True
    thinking = request.thinking
    if thinking is None:
        return False
    if thinking.enabled is not None:
        return thinking.enabled
    # Anthropic's `effort` alone does not enable thinking.
    return protocol != "anthropic" and thinking.effort != "none"


def is_thinking_visible(protocol: str, request: Request) -> bool:
    """Return whether the response shows the text of the thinking."""
    visibility = None if request.thinking is None else request.thinking.visibility
    return visibility in ("summary", "full") if PROVIDER_TRAITS[protocol].hides_thinking else visibility != "omitted"


def signature_issuer(protocol: str, model: str | None) -> str:
    """Return the name of the vendor that signs the model's thinking; for OpenRouter, the model's own vendor."""
    if protocol != "openrouter":
        return PROVIDER_TRAITS[protocol].issuer
    vendor = (model or "").lstrip("~").partition("/")[0]
    return vendor if vendor in ("anthropic", "openai", "google") else _UNKNOWN_ISSUER


def call_id_prefix(protocol: str, model: str | None) -> str | None:
    """Return the prefix of call ids. Gemini models before 3 issue none; OpenRouter passes the upstream's."""
    if protocol == "gemini" and not signs_calls(model or ""):
        return None
    if protocol == "openrouter" and signature_issuer(protocol, model) == "anthropic":
        return "toolu_"
    return PROVIDER_TRAITS[protocol].call_id_prefix
