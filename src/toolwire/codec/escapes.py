"""Visible escapes of characters that would control a terminal."""


def escape_controls(text: str) -> str:
    """Replace each unprintable character with a visible escape."""
    return "".join(char if char.isprintable() or char == "\n" else _escape_character(char) for char in text)


def _escape_character(character: str) -> str:
    r"""Return the visible escape of a character, such as `\x1b`; a tab stays as it is."""
    if character == "\t":
        return "\t"
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
