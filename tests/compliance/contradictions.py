"""Tests of llm-comply that cannot pass, each with the wire fact that it contradicts. None counts as passed."""

FACTS: dict[tuple[str, str, str], str] = {
    ("openai-chat", "openai-chat", "chat-reasoning-summary"): (
        "The test sends `reasoning`, a field of the Responses API. OpenAI's Chat Completions has only "
        "`reasoning_effort`, and rejects unknown fields with 400. Requests of the same protocol pass through unchanged."
    ),
    ("google-interactions", "gemini", "interactions-thinking"): (
        "The test sends only `thinking_level` and expects a thought. `generateContent` returns thoughts only with "
        "`includeThoughts`, and signs calls, so a response of text alone has no thought to translate."
    ),
}
"""Wire facts by format, upstream and test."""
