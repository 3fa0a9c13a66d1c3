"""Tests of llm-comply that cannot pass, each with the wire fact that it contradicts. None counts as passed."""

FACTS: dict[tuple[str, str, str], str] = {
    ("google-interactions", "gemini", "interactions-thinking"): (
        "The test sends only `thinking_level` and expects a thought. `generateContent` returns thoughts only with "
        "`includeThoughts`, and signs calls, so a response of text alone has no thought to translate."
    ),
}
"""Wire facts by format, upstream and test."""
