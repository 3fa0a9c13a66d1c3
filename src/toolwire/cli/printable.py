"""Text by others, for a terminal: nothing in it is obeyed.

What is read is shown without whatever steers a terminal. What a person decides on is spelled out instead, so that
nothing in it hides.
"""

import re

# CSI and OSC and their like, in seven bits or eight; a command that is not ended hides the rest of its line only.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ud800-\udfff]"
)


def shown(text: str) -> str:
    """Without escape sequences, control characters, and what turns the direction of writing around."""
    return _CONTROL.sub("", _SEQUENCE.sub("", text.replace("\r\n", "\n")))


def spelled(text: str) -> str:
    """All of it, with an escape for each character that can't be seen."""
    return "".join(one if one.isprintable() or one == "\n" else _escape(one) for one in text)


def in_one_line(text: str, width: int) -> str:
    """The beginning of a text."""
    line = " ".join(shown(text[: 20 * width]).split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def _escape(one: str) -> str:
    if one == "\t":
        return "\t"
    code = ord(one)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
