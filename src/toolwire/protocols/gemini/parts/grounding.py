"""What an answer rests on: Gemini says it beside the candidate, in bytes of a part; canonically texts cite."""

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Citation, Message, Part, Text
from toolwire.codec.wire.extras import mark_extras_seen
from toolwire.codec.wire.reader import JSON_ERRORS, escape_pointer
from toolwire.protocols.gemini.wire import FAMILY

_FIELD = "groundingMetadata"
_OFFSET_FIELDS = ("segment/startIndex", "segment/endIndex")

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_json = msgspec.json.Decoder().decode


# ---- decode


def decode_grounding(
    extras_and_form: dict[str, Any], messages: tuple[Message, ...], path: str, only_index: int | None = None
) -> tuple[dict[str, Any], tuple[Message, ...]]:
    """What a candidate kept, and its messages with citations where they are grounded in pages of the web. `only`: the
    part that can still be told what it rests on."""
    own: dict[str, Raw] = dict((extras_and_form.get("extras") or {}).get(FAMILY, {}))
    raw = own.get(_FIELD)
    if raw is None or bytes(raw)[:1] != b"{" or len(messages) != 1:
        return extras_and_form, messages
    try:
        whole = _decode_json(raw)
    except JSON_ERRORS:  # a number that nobody can hold: it is kept as it is
        return extras_and_form, messages
    chunks, supports = whole.get("groundingChunks"), whole.get("groundingSupports")
    if not _is_web_grounding(chunks, supports):
        return extras_and_form, messages
    parts = list(messages[0].parts)
    unsaid: dict[str, Any] = {}
    cited: list[dict[str, Any]] = []
    for number, support in enumerate(supports):
        at = f"{_FIELD}/groundingSupports/{number}"
        if only_index is not None and _find_text(support["segment"], parts) != only_index:
            unsaid[at] = support
            continue
        cited.append(support)
        unsaid |= {
            f"{at}/{escape_pointer(name)}": value for name, value in support.items() if name not in _SUPPORT_FIELDS
        }
        if not _add_citation(support, chunks, parts, f"{path}/{at}"):
            return extras_and_form, messages
        unsaid |= _unread_support(support, parts, at)
    used = {index for support in cited for index in support.get("groundingChunkIndices", ())}
    for index, chunk in enumerate(chunks):
        at = f"{_FIELD}/groundingChunks/{index}"
        left = [f"{at}/{escape_pointer(name)}" for name in chunk if name != "web"] if index in used else [at]
        left += (
            [f"{at}/web/{escape_pointer(name)}" for name in chunk["web"] if name not in ("uri", "title")]
            if index in used
            else []
        )
        unsaid |= dict.fromkeys(left, True)
    del own[_FIELD]
    mark_extras_seen()
    own |= {f"{_FIELD}/{escape_pointer(name)}": value for name, value in _decode_members(raw).items()}
    own |= {place: Raw(msgspec.json.encode(value)) for place, value in unsaid.items()}
    form = (
        *extras_and_form.get("wire_form", ()),
        *(f"{FAMILY}:cited:{_FIELD}/{name}" for name in ("groundingChunks", "groundingSupports")),
    )
    found = {**extras_and_form, "extras": {**extras_and_form["extras"], FAMILY: own}, "wire_form": form}
    return found, (replace(messages[0], parts=tuple(parts)),)


_SUPPORT_FIELDS = ("segment", "groundingChunkIndices")


def _is_web_grounding(chunks: Any, supports: Any) -> bool:
    """Whether all of it is in the shape that is known, and about pages."""
    if not isinstance(chunks, list) or not isinstance(supports, list) or not supports:
        return False
    pages = all(isinstance(one, dict) and isinstance(one.get("web"), dict) for one in chunks)
    if not pages or not all(isinstance(one["web"].get("uri"), str) for one in chunks):
        return False
    for one in supports:
        segment = one.get("segment") if isinstance(one, dict) else None
        if not isinstance(segment, dict) or not isinstance(segment.get("endIndex"), int):
            return False
        if not all(isinstance(segment.get(name, 0), int) for name in ("startIndex", "partIndex")):
            return False
        indices = one.get("groundingChunkIndices")
        if not isinstance(indices, list) or not indices:
            return False
        if not all(isinstance(index, int) and 0 <= index < len(chunks) for index in indices):
            return False
    return True


def _find_text(segment: dict[str, Any], parts: list[Part]) -> int | None:
    """The text that a segment is of: of the part that it names, or the one where its words stand."""
    start, end, said = segment.get("startIndex", 0), segment["endIndex"], segment.get("text")
    texts = [index for index, part in enumerate(parts) if isinstance(part, Text)]
    for index in texts:
        part = parts[index]
        if (
            isinstance(part, Text)
            and said is not None
            and part.text.encode(errors="surrogatepass")[start:end] == str(said).encode(errors="surrogatepass")
        ):
            return index
    named = segment.get("partIndex", 0)
    return named if named in texts else texts[0] if texts else None


def _add_citation(support: dict[str, Any], chunks: list[Any], parts: list[Part], at: str) -> bool:
    segment = support["segment"]
    place = _find_text(segment, parts)
    text = None if place is None else parts[place]
    if place is None or not isinstance(text, Text):
        return False
    data = text.text.encode(errors="surrogatepass")
    start, end = (
        len(data[:index].decode(errors="ignore")) for index in (segment.get("startIndex", 0), segment["endIndex"])
    )
    names = [f"{FAMILY}:name:end={_OFFSET_FIELDS[1]}"]
    names.append(f"{FAMILY}:name:start={_OFFSET_FIELDS[0] if 'startIndex' in segment else 'segment'}")
    notes = [
        Citation(
            url=chunks[index]["web"]["uri"],
            title=title if isinstance(title := chunks[index]["web"].get("title"), str) else None,
            start=start,
            end=end,
            at="/" + at,
            wire_form=tuple(names),
        )
        for index in support["groundingChunkIndices"]
    ]
    parts[place] = replace(text, annotations=(*(text.annotations or ()), *notes))
    return True


def _unread_support(support: dict[str, Any], parts: list[Part], at: str) -> dict[str, Any]:
    """What a segment says beyond its place in the text."""
    segment = support["segment"]
    place = _find_text(segment, parts)
    text = None if place is None else parts[place]
    said = (
        text.text.encode(errors="surrogatepass")[segment.get("startIndex", 0) : segment["endIndex"]]
        if isinstance(text, Text)
        else b""
    )
    plain = ("startIndex", "endIndex", *(("partIndex",) if segment.get("partIndex", 0) == place else ()))
    left = {name: value for name, value in segment.items() if name not in plain}
    if str(left.get("text", "")).encode(errors="surrogatepass") == said:
        left.pop("text", None)
    return {f"{at}/segment/{escape_pointer(name)}": value for name, value in left.items()}


# ---- encode


def encode_grounding(texts: list[tuple[int, Text]]) -> dict[str, Any] | None:
    """The metadata that says what the citations of another protocol's texts say; each comes with its part's number."""
    chunks: list[dict[str, Any]] = []
    supports: list[dict[str, Any]] = []
    for number, text in texts:
        for note in text.annotations or ():
            if note.url is None:
                continue
            page: dict[str, Any] = {"web": {"uri": note.url, **({} if note.title is None else {"title": note.title})}}
            if page not in chunks:
                chunks.append(page)
            start, end = note.start or 0, len(text.text) if note.end is None else note.end
            segment: dict[str, Any] = {
                "startIndex": _byte_offset(start, text.text),
                "endIndex": _byte_offset(end, text.text),
                "text": text.text[start:end],
            }
            if number:
                segment["partIndex"] = number
            supports.append({"segment": segment, "groundingChunkIndices": [chunks.index(page)]})
    return {"groundingChunks": chunks, "groundingSupports": supports} if supports else None


def _byte_offset(index: int, text: str) -> int:
    """The place as bytes count it; one beyond the text stays beyond it."""
    return len(text[: max(index, 0)].encode(errors="surrogatepass")) + max(index - len(text), min(index, 0))
