"""Convert tool results to content parts, redact secrets and enforce size limits."""

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
"""Maximum items collected from an iterator, which may be infinite."""
TRUNCATION_NOTE = f"[truncated after {MAX_ITEMS} items]"


def as_output(value: Any) -> ToolOutput:
    """Convert the return value of a tool function to a `ToolOutput`.

    Text and parts stay as they are, bytes become an image or text where possible, other values become JSON.
    """
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
        case list() | tuple() if value and all(isinstance(item, Text | Media | Data) for item in value):
            return ToolOutput(content=tuple(value))
        case _:
            json_value = JsonValue(value)
            text = json.dumps(json_value.data, ensure_ascii=False, allow_nan=False)
            return ToolOutput(content=(Text(text=text), *json_value.images), structured=json_value.data)


class JsonValue:
    """A Python value converted to JSON data, with the images found in it.

    Pydantic models, dataclasses and msgspec structs become objects at any depth, iterators become lists, NaN and
    infinities become null. Bytes become text, or a placeholder for an image or binary data.
    """

    def __init__(self, value: Any) -> None:
        self.images: list[Media] = []
        built = msgspec.to_builtins(value, enc_hook=_to_builtins, str_keys=True, builtin_types=_BYTES_TYPES)
        self.data = self._sanitize(built)

    def _sanitize(self, value: Any) -> Any:
        """Return the value with NaN, infinities and bytes replaced by JSON values, and collect its images."""
        match value:
            case dict():
                return {name: self._sanitize(member) for name, member in value.items()}
            case list() | tuple():
                return [self._sanitize(item) for item in value]
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
    """Convert a value that msgspec does not support to one that it does (msgspec's `enc_hook`)."""
    if hasattr(value, "model_dump"):
        try:
            return value.model_dump(mode="json")
        except ValueError:  # bytes that are not UTF-8
            return value.model_dump()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return collect_items(value)
    return str(value)


def collect_items(items: Iterable[Any]) -> list[Any]:
    """Collect the items of an iterable, up to `MAX_ITEMS` and then `TRUNCATION_NOTE`."""
    iterator = iter(items)
    collected = list(islice(iterator, MAX_ITEMS))
    return [*collected, TRUNCATION_NOTE] if next(iterator, collected) is not collected else collected


def _bytes_part(data: bytes) -> Text | Media:
    """Convert bytes to an image or other media part, to text, or to a placeholder."""
    if (media_type := sniff_media_type(data[:16])) is not None:
        return media_part(data, media_type, None)
    try:
        return Text(text=data.decode())
    except UnicodeDecodeError:
        return Text(text=f"[{len(data)} bytes of binary data]")


class BoundedOutput(Struct, frozen=True):
    """An output as sent to the model, after redaction and truncation."""

    output: ToolOutput
    truncated: bool
    redactions: int
    """Number of secrets redacted."""
    summary: str
    """The beginning of the content, for the call record."""


def bound_output(output: ToolOutput, limit: int, redactor: Redactor) -> BoundedOutput:
    """Redact secrets, and truncate text to `limit` characters by cutting out the middle."""
    parts, redactions = list[Part](), 0
    for part in output.content:
        redacted = _redact_part(part, redactor)
        redactions += _count_redactions(redacted) - _count_redactions(part)
        parts.append(redacted)
    truncated = sum(len(part.text) for part in parts if isinstance(part, Text)) > limit
    if truncated:
        parts = _truncate_texts(parts, limit)
    parts, dropped = _drop_excess_media(parts)
    return BoundedOutput(replace(output, content=tuple(parts)), truncated or dropped, redactions, _summarize(parts))


def _redact_part(part: Part, redactor: Redactor) -> Part:
    """Redact secrets in a text or data part; a data part becomes text."""
    match part:
        case Text():
            text = redactor.redact_text(part.text)
            return part if text == part.text else replace(part, text=text)
        case Data():
            return Text(text=redactor.redact_text(bytes(part.json).decode("utf-8", "replace")))
        case _:
            return part


def _count_redactions(part: Part) -> int:
    """Count the secrets that were replaced in a text part."""
    return part.text.count(REDACTED) if isinstance(part, Text) else 0


def _truncate_texts(parts: Sequence[Part], limit: int) -> list[Part]:
    """Truncate the text parts so that together they have at most `limit` characters.

    The limit is divided evenly, and what short texts leave over goes to the longer ones.
    """
    texts = [part for part in parts if isinstance(part, Text)]
    remaining, shares = limit, dict[int, int]()
    for count, part in enumerate(sorted(texts, key=lambda text_part: len(text_part.text))):
        shares[id(part)] = min(len(part.text), remaining // (len(texts) - count))
        remaining -= shares[id(part)]
    return [
        replace(part, text=truncate_middle(part.text, shares[id(part)])) if isinstance(part, Text) else part
        for part in parts
    ]


def truncate_middle(text: str, limit: int) -> str:
    """Cut out the middle of a long text, and note how many characters are missing."""
    if len(text) <= limit:
        return text
    head = limit - limit // 3
    tail = limit - head
    missing = len(text) - head - tail
    return f"{text[:head]}\n[... {missing} characters truncated ...]\n{text[len(text) - tail :]}"


def _drop_excess_media(parts: Sequence[Part]) -> tuple[list[Part], bool]:
    """Replace inline media beyond the total size limit by a note; also return True if there were any."""
    bounded, size, dropped = list[Part](), 0, False
    for part in parts:
        if isinstance(part, Media) and isinstance(part.source, Inline):
            size += len(part.source.data)
            if size > _MAX_MEDIA_BYTES:
                bounded.append(Text(text=f"[{part.media_type or part.kind} omitted: too large]"))
                dropped = True
                continue
        bounded.append(part)
    return bounded, dropped


def _summarize(parts: Sequence[Part]) -> str:
    """Return the beginning of the text as a summary, with the type name for other parts."""
    text = " ".join(part.text if isinstance(part, Text) else f"[{type(part).__name__.lower()}]" for part in parts)
    return text if len(text) <= _SUMMARY_LENGTH else text[:_SUMMARY_LENGTH] + "..."
