"""Providers found in the environment, for those who have no configuration file."""

from collections.abc import Mapping

from toolwire.upstream.provider import Provider

_FOUND = (
    # variable, name, protocol, base URL, names it knows, default model
    ("ANTHROPIC_API_KEY", "anthropic", "anthropic", "https://api.anthropic.com", ("claude-*",), "claude-sonnet-4-5"),
    (
        "OPENAI_API_KEY",
        "openai",
        "openai-responses",
        "https://api.openai.com",
        ("gpt-*", "o[1-9]*", "chatgpt-*", "codex-*"),
        "gpt-5.5",
    ),
    ("OPENAI_API_KEY", "openai-chat", "openai-chat", "https://api.openai.com", (), "gpt-5.5"),
    (
        "GEMINI_API_KEY",
        "gemini",
        "gemini",
        "https://generativelanguage.googleapis.com",
        ("gemini-*", "gemma-*"),
        "gemini-3.1-pro-preview",
    ),
    (
        "GEMINI_API_KEY",
        "gemini-interactions",
        "gemini-interactions",
        "https://generativelanguage.googleapis.com",
        (),
        "gemini-3.1-pro-preview",
    ),
    (
        "OPENROUTER_API_KEY",
        "openrouter",
        "openrouter",
        "https://openrouter.ai",
        ("*/*",),
        "openrouter/auto",
    ),
)

# Where each of them is found.
VARIABLES = {name: variable for variable, name, *_ in _FOUND} | {"ollama": "OLLAMA_HOST"}


def discover(environment: Mapping[str, str]) -> dict[str, Provider]:
    """A provider for each key there is, and for Ollama if its host is named."""
    found = {
        name: Provider(name=name, protocol=protocol, base_url=url, api_key=key, models=models, default_model=default)
        for variable, name, protocol, url, models, default in _FOUND
        if (key := environment.get(variable))
    }
    if host := environment.get("OLLAMA_HOST"):
        found["ollama"] = Provider(name="ollama", protocol="ollama", base_url=_url(host), models=("*:*",))
    return found


def _url(host: str) -> str:
    """Ollama's own variable may lack scheme and port."""
    url = host if "://" in host else f"http://{host}"
    authority = url.partition("://")[2]
    return url if ":" in authority.rpartition("]")[2] else f"{url.rstrip('/')}:11434"


def simulated(base_url: str) -> dict[str, Provider]:
    """Every provider there could be, answered by the embedded simulator."""
    found = {
        name: Provider(name=name, protocol=protocol, base_url=base_url, models=models, default_model="simulated")
        for _, name, protocol, _, models, _ in _FOUND
    }
    found["ollama"] = Provider(
        name="ollama", protocol="ollama", base_url=base_url, models=("*:*",), default_model="simulated"
    )
    return found
