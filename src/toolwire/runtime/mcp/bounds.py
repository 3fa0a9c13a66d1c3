"""How much of a server is put up with: nothing that it says may cost more than this."""

import re

MESSAGE = 16 * 1024 * 1024
"""Bytes of one message, or of one HTTP answer that is not a stream."""

PAGES = 100
TOOLS = 2_000
SCHEMA = 64 * 1024
"""Bytes of one tool's schemas, as JSON."""

DEPTH = 64
WEIGHT = 20_000
"""Places of a schema, with every reference followed."""

DESCRIPTION = 8 * 1024
PARTS = 500
ROUNDS = 10
QUESTIONS = 20
"""Fields of a form, and questions of one round."""

QUESTION = 2_000

# What can't be seen, or turns the reading direction, hides text from who approves it and not from the model:
# C0 and C1 controls but for tab and newline, zero-width signs, bidirectional controls, and Unicode's tag characters.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)


def readable(text: str, limit: int) -> str:
    """The text as a person sees it, and no longer than that."""
    seen = _UNSEEN.sub("", text[: 4 * limit].replace("\r\n", "\n"))
    return seen if len(seen) <= limit else f"{seen[: limit - 1]}…"
