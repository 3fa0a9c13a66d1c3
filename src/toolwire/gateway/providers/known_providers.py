"""The providers that an API key in the environment enables."""

KNOWN_PROVIDERS = (
    # variable, name, protocol, base URL, model patterns, default model
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

KEY_VARIABLES = {name: variable for variable, name, *_ in KNOWN_PROVIDERS} | {"ollama": "OLLAMA_HOST"}
"""The environment variable that enables each provider."""
