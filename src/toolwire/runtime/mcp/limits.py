"""Limits on what an MCP server may send."""

import re

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Bytes of one message, or of one HTTP response that is not a stream."""

MAX_PAGES = 100
MAX_TOOLS = 2_000
MAX_SCHEMA_BYTES = 64 * 1024
"""Bytes of one tool's schemas, as JSON."""

MAX_SCHEMA_DEPTH = 64
MAX_SCHEMA_COST = 20_000
"""Nodes of a schema with references expanded, see `validation_cost`."""

MAX_DESCRIPTION_LENGTH = 8 * 1024
MAX_PARTS = 500
MAX_PROGRESS_NOTICES = 1_000
"""Progress notifications forwarded per call."""

MAX_INPUT_ROUNDS = 10
"""Rounds of questions per call."""

MAX_QUESTIONS = 20
"""Fields per form, and questions per round."""

MAX_QUESTION_LENGTH = 2_000

MAX_LOG_MESSAGES = 200
"""Log messages forwarded per call."""

MAX_LOG_LENGTH = 1_000
MAX_SAMPLING_LENGTH = 200_000
"""Characters of text, or of base64 data, in one sampling request."""

MAX_RESOURCES = 2_000
"""Resources and templates listed per server."""

# Invisible and bidirectional characters hide text from the user who approves it, but not from the model: C0 and C1
# controls except tab and newline, zero-width characters, bidirectional controls and Unicode tag characters.
_INVISIBLE_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)


def sanitize_text(text: str, limit: int) -> str:
    """Remove invisible characters, and truncate to `limit` characters."""
    visible = _INVISIBLE_CHARACTERS.sub("", text[: 4 * limit].replace("\r\n", "\n"))
    return visible if len(visible) <= limit else f"{visible[: limit - 1]}…"
