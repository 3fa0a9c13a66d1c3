"""Tests of llm-comply that cannot pass, each with the wire fact that it contradicts. None counts as passed."""

FACTS: dict[tuple[str, str, str], str] = {
    ("openai-chat", "openai-chat", "chat-reasoning-summary"): (
        "It asks with `reasoning`, which is the Responses API's: OpenAI's Chat Completions has `reasoning_effort` "
        "alone, and refuses what it does not know with 400. To its own provider a request goes as it is."
    ),
    ("google-interactions", "gemini", "interactions-thinking"): (
        "It asks with `thinking_level` alone and wants a thought. `generateContent` shows thoughts only where "
        "`includeThoughts` asks for them, and signs calls: of an answer that is all text there is no thought to tell."
    ),
}
"""Wire facts by format, upstream and test."""
