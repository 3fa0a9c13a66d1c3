"""The prompt of a run, and the conversation before it, as a program writes them."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from toolwire.canonical.content import Media, Message, Text
from toolwire.runtime.tools.excerpt import media_part, sniff_media_type

Prompt: TypeAlias = str | Sequence[str | bytes | Text | Media]
"""A text, or a list of texts and of images or PDF files."""


def prompt_message(prompt: Prompt) -> Message:
    """Return the user message of a prompt; raise `TypeError` for what is no prompt."""
    parts: Any = prompt
    if isinstance(parts, str):
        return Message(role="user", parts=(Text(text=parts),))
    if not isinstance(parts, Sequence) or isinstance(parts, bytes):
        raise TypeError(f"a prompt is a text, or a list of texts and images, not {_describe(prompt)}")
    return Message(role="user", parts=tuple(_prompt_part(part) for part in parts))


def check_history(history: Any) -> None:
    """Raise `TypeError` unless the history consists of messages."""
    if not isinstance(history, Sequence) or not all(isinstance(message, Message) for message in history):
        raise TypeError(f"history is a list of messages, such as the `messages` of a run, not {_describe(history)}")


def _prompt_part(part: Any) -> Text | Media:
    """Return one part of a prompt."""
    match part:
        case Text() | Media():
            return part
        case str():
            return Text(text=part)
        case bytes():
            media_type = sniff_media_type(part[:16])
            if media_type is None:
                raise TypeError("bytes in a prompt must be a PNG, JPEG, GIF or WebP image, or a PDF file")
            return media_part(part, media_type, None)
        case _:
            raise TypeError(
                f"a part of a prompt is a text, the bytes of an image, or a tw.Media, not {_describe(part)}; "
                "earlier messages go to `history`"
            )


def _describe(value: object) -> str:
    """Return a short description of a value."""
    return f"{type(value).__name__}: {str(value)[:80]!r}" if value is not None else "None"
