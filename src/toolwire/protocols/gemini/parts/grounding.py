"""Convert between `groundingMetadata` of a candidate and citations of its texts.

Gemini lists web pages and byte ranges beside the content; a canonical text holds its own citations.
"""

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Citation, Message, Part, Text
from toolwire.codec.wire.reader import JSON_ERRORS, decode_json, decode_members, escape_pointer
from toolwire.protocols.gemini.wire import FAMILY

_FIELD = "groundingMetadata"
_SUPPORT_FIELDS = ("segment", "groundingChunkIndices")
_OFFSET_FIELDS = ("segment/startIndex", "segment/endIndex")


# ---- decode


def decode_grounding(
    extras_and_form: dict[str, Any], messages: tuple[Message, ...], path: str, only_index: int | None = None
) -> tuple[dict[str, Any], tuple[Message, ...]]:
    """Turn grounding in web pages into citations of the texts.

    Return the candidate's remaining `extras` and `wire_form` arguments, and its messages with citations. With
    `only_index`, cite only the part at that index: in a stream the others have already been sent.
    """
    extras: dict[str, Raw] = dict((extras_and_form.get("extras") or {}).get(FAMILY, {}))
    raw = extras.get(_FIELD)
    if raw is None or bytes(raw)[:1] != b"{" or len(messages) != 1:
        return extras_and_form, messages
    try:
        metadata = decode_json(raw)
    except JSON_ERRORS:  # such as a number out of range; the raw value stays in the extras
        return extras_and_form, messages
    chunks, supports = metadata.get("groundingChunks"), metadata.get("groundingSupports")
    if not _is_web_grounding(chunks, supports):
        return extras_and_form, messages
    parts = list(messages[0].parts)
    unread: dict[str, Any] = {}
    cited_chunks: set[int] = set()
    for number, support in enumerate(supports):
        at = f"{_FIELD}/groundingSupports/{number}"
        if only_index is not None and _find_text(support["segment"], parts) != only_index:
            unread[at] = support
            continue
        cited_chunks.update(support["groundingChunkIndices"])
        if not _add_citation(support, chunks, parts, f"{path}/{at}"):
            return extras_and_form, messages
        unread |= _unread_support(support, parts, at)
    unread |= dict.fromkeys(_unread_chunks(chunks, cited_chunks), True)
    del extras[_FIELD]
    extras |= {f"{_FIELD}/{escape_pointer(name)}": value for name, value in decode_members(raw).items()}
    extras |= {pointer: Raw(msgspec.json.encode(value)) for pointer, value in unread.items()}
    form = (
        *extras_and_form.get("wire_form", ()),
        *(f"{FAMILY}:cited:{_FIELD}/{name}" for name in ("groundingChunks", "groundingSupports")),
    )
    grounded = {**extras_and_form, "extras": {**extras_and_form["extras"], FAMILY: extras}, "wire_form": form}
    return grounded, (replace(messages[0], parts=tuple(parts)),)


def _is_web_grounding(chunks: Any, supports: Any) -> bool:
    """Check that all chunks are web pages and all supports have the known shape."""
    if not isinstance(chunks, list) or not isinstance(supports, list) or not supports:
        return False
    if not all(isinstance(chunk, dict) and isinstance(chunk.get("web"), dict) for chunk in chunks):
        return False
    if not all(isinstance(chunk["web"].get("uri"), str) for chunk in chunks):
        return False
    return all(_is_web_support(support, len(chunks)) for support in supports)


def _is_web_support(support: Any, chunk_count: int) -> bool:
    """Check that a support has a segment with offsets, and refers to existing chunks."""
    segment = support.get("segment") if isinstance(support, dict) else None
    if not isinstance(segment, dict) or not isinstance(segment.get("endIndex"), int):
        return False
    if not all(isinstance(segment.get(name, 0), int) for name in ("startIndex", "partIndex")):
        return False
    indices = support.get("groundingChunkIndices")
    if not isinstance(indices, list) or not indices:
        return False
    return all(isinstance(index, int) and 0 <= index < chunk_count for index in indices)


def _unread_chunks(chunks: list[Any], cited_chunks: set[int]) -> list[str]:
    """Return pointers to chunks, or fields of chunks, that no citation represents."""
    pointers: list[str] = []
    for index, chunk in enumerate(chunks):
        at = f"{_FIELD}/groundingChunks/{index}"
        if index not in cited_chunks:
            pointers.append(at)
            continue
        pointers += [f"{at}/{escape_pointer(name)}" for name in chunk if name != "web"]
        pointers += [f"{at}/web/{escape_pointer(name)}" for name in chunk["web"] if name not in ("uri", "title")]
    return pointers


def _find_text(segment: dict[str, Any], parts: list[Part]) -> int | None:
    """Return the index of the text part that a segment quotes, or of the part that it names; None without one."""
    start, end, quote = segment.get("startIndex", 0), segment["endIndex"], segment.get("text")
    texts = [index for index, part in enumerate(parts) if isinstance(part, Text)]
    for index in texts:
        part = parts[index]
        if (
            isinstance(part, Text)
            and quote is not None
            and part.text.encode(errors="surrogatepass")[start:end] == str(quote).encode(errors="surrogatepass")
        ):
            return index
    part_index = segment.get("partIndex", 0)
    return part_index if part_index in texts else texts[0] if texts else None


def _add_citation(support: dict[str, Any], chunks: list[Any], parts: list[Part], at: str) -> bool:
    """Add the citations of one support to the text in `parts`; return False if no text matches."""
    segment = support["segment"]
    text_index = _find_text(segment, parts)
    text = None if text_index is None else parts[text_index]
    if text_index is None or not isinstance(text, Text):
        return False
    data = text.text.encode(errors="surrogatepass")
    start, end = (
        len(data[:index].decode(errors="ignore")) for index in (segment.get("startIndex", 0), segment["endIndex"])
    )
    name_tokens = [f"{FAMILY}:name:end={_OFFSET_FIELDS[1]}"]
    name_tokens.append(f"{FAMILY}:name:start={_OFFSET_FIELDS[0] if 'startIndex' in segment else 'segment'}")
    citations = [
        Citation(
            url=chunks[index]["web"]["uri"],
            title=title if isinstance(title := chunks[index]["web"].get("title"), str) else None,
            start=start,
            end=end,
            at="/" + at,
            wire_form=tuple(name_tokens),
        )
        for index in support["groundingChunkIndices"]
    ]
    parts[text_index] = replace(text, annotations=(*(text.annotations or ()), *citations))
    return True


def _unread_support(support: dict[str, Any], parts: list[Part], at: str) -> dict[str, Any]:
    """Return extras for the fields of a support that its citations do not represent."""
    unread = {f"{at}/{escape_pointer(name)}": value for name, value in support.items() if name not in _SUPPORT_FIELDS}
    segment = support["segment"]
    text_index = _find_text(segment, parts)
    text = None if text_index is None else parts[text_index]
    quoted = (
        text.text.encode(errors="surrogatepass")[segment.get("startIndex", 0) : segment["endIndex"]]
        if isinstance(text, Text)
        else b""
    )
    offsets = ("startIndex", "endIndex", *(("partIndex",) if segment.get("partIndex", 0) == text_index else ()))
    fields = {name: value for name, value in segment.items() if name not in offsets}
    if str(fields.get("text", "")).encode(errors="surrogatepass") == quoted:
        fields.pop("text", None)
    return unread | {f"{at}/segment/{escape_pointer(name)}": value for name, value in fields.items()}


# ---- encode


def encode_grounding(texts: list[tuple[int, Text]]) -> dict[str, Any] | None:
    """Build grounding metadata from the citations of texts, each given with its part index; None if there are none."""
    chunks: list[dict[str, Any]] = []
    supports: list[dict[str, Any]] = []
    for part_index, text in texts:
        for citation in text.annotations or ():
            if citation.url is None:
                continue
            page: dict[str, Any] = {
                "web": {"uri": citation.url, **({} if citation.title is None else {"title": citation.title})}
            }
            if page not in chunks:
                chunks.append(page)
            start, end = citation.start or 0, len(text.text) if citation.end is None else citation.end
            segment: dict[str, Any] = {
                "startIndex": _byte_offset(start, text.text),
                "endIndex": _byte_offset(end, text.text),
                "text": text.text[start:end],
            }
            if part_index:
                segment["partIndex"] = part_index
            supports.append({"segment": segment, "groundingChunkIndices": [chunks.index(page)]})
    return {"groundingChunks": chunks, "groundingSupports": supports} if supports else None


def _byte_offset(index: int, text: str) -> int:
    """Convert a character offset to a byte offset; offsets outside the text stay outside."""
    return len(text[: max(index, 0)].encode(errors="surrogatepass")) + max(index - len(text), min(index, 0))
