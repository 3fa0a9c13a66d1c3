"""Tests of llm-comply that cannot pass, each with the wire fact that it contradicts. None counts as passed."""

FACTS: dict[tuple[str, str, str], str] = {
    ("openai-chat", "openai-chat", "chat-reasoning-summary"): (
        "The test sends `reasoning`, which belongs to the Responses API. OpenAI's Chat Completions only has `reasoning_effort` "
        "and rejects unknown fields with 400. The gateway passes requests of the same protocol through."
    ),
    ("google-interactions", "gemini", "interactions-thinking"): (
        "The test sends only `thinking_level` and expects a thought. `generateContent` returns thoughts only with "
        "`includeThoughts`, and signs calls: a response of text alone has no thought."
    ),
}
"""Wire facts by format, upstream and test."""
