"""Names and pairs of the protocols under test."""

ANTHROPIC, CHAT, RESPONSES = "anthropic", "openai-chat", "openai-responses"
GEMINI, INTERACTIONS, OLLAMA, OPENROUTER = "gemini", "gemini-interactions", "ollama", "openrouter"
CORE_PROTOCOLS = (ANTHROPIC, CHAT, RESPONSES)
CORE_PAIRS = [(source, target) for source in CORE_PROTOCOLS for target in CORE_PROTOCOLS if source != target]
ALL_PROTOCOLS = (*CORE_PROTOCOLS, GEMINI, INTERACTIONS, OLLAMA, OPENROUTER)
ALL_PAIRS = [(source, target) for source in ALL_PROTOCOLS for target in ALL_PROTOCOLS if source != target]
ROUTE_MODELS = {GEMINI: "gemini-2.5-flash"}
"""The model of protocols that put it in the URL instead of the body."""
