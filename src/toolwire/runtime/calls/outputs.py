"""What a tool gave, as the model may have it: parts, bounded, without secrets."""

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Data, Inline, Media, Part, Text
from toolwire.journal.redaction import REDACTED, Redactor
from toolwire.runtime.tool import ToolOutput
from toolwire.runtime.tools.excerpt import media_part, sniff_media_type

_MAX_MEDIA_BYTES = 20 * 1024 * 1024
_SUMMARY_LENGTH = 200
_BYTES_TYPES = (bytes, bytearray, memoryview)
MAX_ITEMS = 10_000
"""As many items as are taken of an iterator, which may have no end."""
TRUNCATION_NOTE = f"[cut off after {MAX_ITEMS} items]"


def as_output(value: Any) -> ToolOutput:
    """Text stays text, parts stay parts, bytes are an image or text if they can be; anything else becomes JSON."""
    match value:
        case ToolOutput():
            return value
        case None:
            return ToolOutput(content=())
        case str():
            return ToolOutput(content=(Text(text=value),))
        case Text() | Media() | Data():
            return ToolOutput(content=(value,))
        case bytes() | bytearray() | memoryview():
            return ToolOutput(content=(_bytes_part(bytes(value)),))
        case list() | tuple() if value and all(isinstance(one, Text | Media | Data) for one in value):
            return ToolOutput(content=tuple(value))
        case _:
            found = JsonValue(value)
            text = json.dumps(found.data, ensure_ascii=False, allow_nan=False)
            return ToolOutput(content=(Text(text=text), *found.images), structured=found.data)


class JsonValue:
    """A Python value as JSON data. Models of pydantic, dataclasses and msgspec structs become objects at any depth, NaN
    and infinities null, iterators lists. Bytes become text, or a note of what they are; `images` holds the images."""

    def __init__(self, value: Any) -> None:
        self.images: list[Media] = []
        built = msgspec.to_builtins(value, enc_hook=_to_builtins, str_keys=True, builtin_types=_BYTES_TYPES)
        self.data = self._sanitize(built)

    def _sanitize(self, value: Any) -> Any:
        match value:
            case dict():
                return {name: self._sanitize(one) for name, one in value.items()}
            case list() | tuple():
                return [self._sanitize(one) for one in value]
            case float():
                return value if math.isfinite(value) else None
            case bytes() | bytearray() | memoryview():
                part = _bytes_part(bytes(value))
                if isinstance(part, Text):
                    return part.text
                self.images.append(part)
                return f"[{part.kind} {len(self.images)} of this result: {part.media_type}, {len(value)} bytes]"
            case _:
                return value


def _to_builtins(value: Any) -> Any:
    """Take apart a value that msgspec does not know."""
    if hasattr(value, "model_dump"):
        try:
            return value.model_dump(mode="json")
        except ValueError:  # bytes that are no text
            return value.model_dump()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return collect_items(value)
    return str(value)


def collect_items(items: Iterable[Any]) -> list[Any]:
    """Collect what an iterator yields, up to a bound that the list then names."""
    iterator = iter(items)
    found = list(islice(iterator, MAX_ITEMS))
    return [*found, TRUNCATION_NOTE] if next(iterator, found) is not found else found


def _bytes_part(data: bytes) -> Text | Media:
    if (kind := sniff_media_type(data[:16])) is not None:
        return media_part(data, kind, None)
    try:
        return Text(text=data.decode())
    except UnicodeDecodeError:
        return Text(text=f"[{len(data)} bytes of binary data]")


class BoundedOutput(Struct, frozen=True):
    """An output as it goes to the model, and what was done to it."""

    output: ToolOutput
    truncated: bool
    redactions: int
    summary: str


def bound_output(output: ToolOutput, limit: int, redactor: Redactor) -> BoundedOutput:
    """At most `limit` characters of text: its head and its tail, and how much is missing between them."""
    parts, redacted = list[Part](), 0
    for part in output.content:
        cleaned = _redact_part(part, redactor)
        redacted += _count_redactions(cleaned) - _count_redactions(part)
        parts.append(cleaned)
    whole = sum(len(part.text) for part in parts if isinstance(part, Text))
    truncated = whole > limit
    if truncated:
        parts = _truncate_texts(parts, limit)
    parts, dropped = _drop_excess_media(parts)
    made = replace(output, content=tuple(parts))
    return BoundedOutput(made, truncated or dropped, redacted, _summarize(parts))


def _redact_part(part: Part, redactor: Redactor) -> Part:
    match part:
        case Text():
            text = redactor.redact_text(part.text)
            return part if text == part.text else replace(part, text=text)
        case Data():
            return Text(text=redactor.redact_text(bytes(part.json).decode("utf-8", "replace")))
        case _:
            return part


def _count_redactions(part: Part) -> int:
    return part.text.count(REDACTED) if isinstance(part, Text) else 0


def _truncate_texts(parts: Sequence[Part], limit: int) -> list[Part]:
    """Each text keeps its share: the short ones all of it."""
    texts = [part for part in parts if isinstance(part, Text)]
    left, share = limit, dict[int, int]()
    for count, part in enumerate(sorted(texts, key=lambda one: len(one.text))):
        share[id(part)] = min(len(part.text), left // (len(texts) - count))
        left -= share[id(part)]
    return [
        replace(part, text=truncate_middle(part.text, share[id(part)])) if isinstance(part, Text) else part
        for part in parts
    ]


def truncate_middle(text: str, limit: int) -> str:
    """The head and the tail of a text, and what is missing between them."""
    if len(text) <= limit:
        return text
    head = limit - limit // 3
    tail = limit - head
    missing = len(text) - head - tail
    return f"{text[:head]}\n[... {missing} characters were cut here ...]\n{text[len(text) - tail :]}"


def _drop_excess_media(parts: Sequence[Part]) -> tuple[list[Part], bool]:
    kept, size, dropped = list[Part](), 0, False
    for part in parts:
        if isinstance(part, Media) and isinstance(part.source, Inline):
            size += len(part.source.data)
            if size > _MAX_MEDIA_BYTES:
                kept.append(Text(text=f"[{part.media_type or part.kind} left out: too large]"))
                dropped = True
                continue
        kept.append(part)
    return kept, dropped


def _summarize(parts: Sequence[Part]) -> str:
    said = " ".join(part.text if isinstance(part, Text) else f"[{type(part).__name__.lower()}]" for part in parts)
    return said if len(said) <= _SUMMARY_LENGTH else said[:_SUMMARY_LENGTH] + "..."


def image_part(data: bytes, media_type: str, name: str | None = None) -> Media:
    """A picture as a part."""
    return Media(kind="image", media_type=media_type, name=name, source=Inline(data=base64.b64encode(data).decode()))
