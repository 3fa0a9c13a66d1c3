"""What a client's conversation says, as a digest: the same for every way in which its clients may repeat it.

Ids, marks, spelling, reasoning and system text are not in it, and texts in a row are one, since clients merge, mark,
renumber and leave them out. What was said, called and answered is: whoever changes that has another conversation.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from toolwire.canonical.content import (
    Data,
    FileId,
    Inline,
    Media,
    Message,
    Part,
    PlainText,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Url,
)

_NOBODY = Message(role="assistant", parts=())
_SOMEBODY = Message(role="user", parts=())


def prefix(messages: Sequence[Message]) -> str:
    """The digest of what an answer to these messages comes after."""
    return prefixes((*messages, _NOBODY))[-1]


def prefixes(messages: Sequence[Message]) -> list[str]:
    """For each message the digest of what is before the turn that it belongs to."""
    running = hashlib.blake2b(digest_size=16)
    speaking = before = ""
    found: list[str] = []
    for message in messages:
        if message.role in ("user", "assistant"):
            if message.role != speaking:
                before = running.hexdigest()
                speaking = message.role
                running.update(b"\0" + speaking.encode())
            for text in _said(message.parts):
                running.update(text.encode(errors="surrogatepass"))
        found.append(before)
    return found


def spoken(messages: Sequence[Message]) -> list[tuple[int, int, str]]:
    """Each turn of an assistant that nothing parts: its first message, the one after its last, and the digest of all
    that was said up to there."""
    found: list[tuple[int, int, str]] = []
    first, after, parted = -1, -1, False
    for number, before in enumerate(prefixes((*messages, _SOMEBODY))):
        role = messages[number].role if number < len(messages) else "user"
        if role == "assistant":
            parted = parted or (first >= 0 and after != number)
            first, after = number if first < 0 else first, number + 1
        elif role == "user":
            if first >= 0 and not parted:
                found.append((first, after, before))
            first, parted = -1, False
    return found


def _said(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        match part:
            case Text() | Refusal():
                yield part.text
            case Data():
                yield str(part.json, "utf-8")
            case ToolCall():
                yield f"\1{part.name}\1{_same(part.arguments)}\1"
            case ToolResult():
                yield "\2"
                yield from _said(part.content or ())
                yield "\2"
            case Media():
                yield f"\3{_source(part)}\3"
            case _:
                pass


def _source(part: Media) -> str:
    match part.source:
        case Inline() as source:
            return source.data
        case Url() as source:
            return source.url
        case FileId() as source:
            return source.id
        case PlainText() as source:
            return source.text
        case _:
            return part.kind


def _same(arguments: str) -> str:
    """One spelling of the same arguments: clients read them and write them anew."""
    try:
        return json.dumps(json.loads(arguments, parse_float=_number), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def _number(text: str) -> Any:
    value = float(text)
    return int(value) if value.is_integer() else value
