"""How each provider's models differ: what their ids look like, when they think, and where they prove it."""

import re
from typing import Literal

from msgspec import Struct

from toolwire.canonical.request import Request

# Gemini 3 and later: they always think, and sign the first call of each step.
_SIGNING = re.compile(r"gemini-(?:[3-9]|\d\d)")
_UNNAMED = "openrouter"


class Dialect(Struct, frozen=True, kw_only=True):
    """`answer_id` and `call_id` are what ids begin with; None: it has none. `proof` is the part that carries the proof
    of thinking, `issuer` who gives it. `discreet`: thinking is shown only where that is asked for."""

    answer_id: str | None
    call_id: str | None
    issuer: str = ""
    proof: Literal["reasoning", "call"] | None = None
    discreet: bool = False
    models: tuple[str, ...]


DIALECTS: dict[str, Dialect] = {
    "anthropic": Dialect(
        answer_id="msg_01",
        call_id="toolu_",
        issuer="anthropic",
        proof="reasoning",
        models=("claude-opus-5-5", "claude-sonnet-5", "claude-haiku-4-5"),
    ),
    "openai-chat": Dialect(answer_id="chatcmpl-", call_id="call_", models=("gpt-6-astra", "gpt-5.4", "gpt-4.1")),
    "openai-responses": Dialect(
        answer_id="resp_",
        call_id="call_",
        issuer="openai",
        proof="reasoning",
        discreet=True,
        models=("gpt-6-astra", "gpt-5.4", "gpt-4.1"),
    ),
    "gemini": Dialect(
        answer_id="",
        call_id="",
        issuer="google",
        proof="call",
        discreet=True,
        models=("gemini-3-pro", "gemini-3.8-flash", "gemini-2.5-flash"),
    ),
    "gemini-interactions": Dialect(
        answer_id="v1_",
        call_id="",
        issuer="google",
        proof="reasoning",
        discreet=True,
        models=("gemini-3-pro", "gemini-3.8-flash", "gemini-2.5-flash"),
    ),
    "ollama": Dialect(answer_id=None, call_id=None, models=("qwen3:latest", "gpt-oss:20b")),
    "openrouter": Dialect(
        answer_id="gen-",
        call_id="call_",
        proof="reasoning",
        models=("anthropic/claude-opus-5.5", "openai/gpt-6-astra", "google/gemini-3-pro"),
    ),
}


def signs_calls(model: str | None) -> bool:
    return _SIGNING.search(model or "") is not None


def thinks(protocol: str, request: Request) -> bool:
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


def shows(protocol: str, request: Request) -> bool:
    """Whether thinking may be read."""
    visibility = None if request.thinking is None else request.thinking.visibility
    return visibility in ("summary", "full") if DIALECTS[protocol].discreet else visibility != "omitted"


def issuer_of(protocol: str, model: str | None) -> str:
    """Who proves the thinking of this model: through OpenRouter, whose model it is."""
    if protocol != "openrouter":
        return DIALECTS[protocol].issuer
    vendor = (model or "").lstrip("~").partition("/")[0]
    return vendor if vendor in ("anthropic", "openai", "google") else _UNNAMED


def call_prefix(protocol: str, model: str | None) -> str | None:
    """What ids of calls begin with. Gemini's models before 3 issue none; OpenRouter's are the upstream's own."""
    if protocol == "gemini" and not signs_calls(model):
        return None
    if protocol == "openrouter" and issuer_of(protocol, model) == "anthropic":
        return "toolu_"
    return DIALECTS[protocol].call_id
