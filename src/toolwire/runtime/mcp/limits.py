"""How much of a server is put up with: nothing that it says may cost more than this."""

import re

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Bytes of one message, or of one HTTP answer that is not a stream."""

MAX_PAGES = 100
MAX_TOOLS = 2_000
MAX_SCHEMA_BYTES = 64 * 1024
"""Bytes of one tool's schemas, as JSON."""

MAX_SCHEMA_DEPTH = 64
MAX_SCHEMA_COST = 20_000
"""Places of a schema, with every reference followed."""

MAX_DESCRIPTION_LENGTH = 8 * 1024
MAX_PARTS = 500
MAX_PROGRESS_NOTICES = 1_000
"""Notices of one call that are passed on."""

MAX_INPUT_ROUNDS = 10
"""How often a call may ask."""

MAX_QUESTIONS = 20
"""Fields of a form, and questions of one round."""

MAX_QUESTION_LENGTH = 2_000

# What can't be seen, or turns the reading direction, hides text from who approves it and not from the model:
# C0 and C1 controls but for tab and newline, zero-width signs, bidirectional controls, and Unicode's tag characters.
_INVISIBLE_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)


def sanitize_text(text: str, limit: int) -> str:
    """The text as a person sees it, and no longer than that."""
    seen = _INVISIBLE_CHARACTERS.sub("", text[: 4 * limit].replace("\r\n", "\n"))
    return seen if len(seen) <= limit else f"{seen[: limit - 1]}…"
