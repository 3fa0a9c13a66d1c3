"""Decode and encode the entries of `reasoning_details` in streams, which arrive in fragments.

1. Fragments of an entry have its type and index. Their texts are concatenated; of signatures the last one counts.
2. `reasoning` repeats the texts of the entries in its chunk, so it is skipped if there are entries.
3. An entry ends when a part of another kind starts. Later fragments for it start a new entry.
4. The wire fields are also emitted as a `Notice`, for clients of this protocol, and joined at the end of the message.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from toolwire.canonical.content import OpaquePart, Part, Reasoning, ReasoningText, Signature, Text, ToolCall
from toolwire.canonical.events import Event, MessageStart, Notice, PartDelta, PartEnd, PartStart
from toolwire.canonical.fold import TextPieces
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.protocols.openai_chat.parts.details import (
    DETAILS_FIELD,
    DETAILS_FORM,
    DETAILS_POINTER,
    ENTRY_FORM,
    IMAGES,
    decode_entry,
    encode_entries,
    encode_image,
    entry_field,
    is_known_issuer,
    is_repeated_text,
    read_entries,
    represented_tokens,
)
from toolwire.protocols.openai_chat.parts.signed_reasoning import encode_signature
from toolwire.protocols.openai_chat.wire import FAMILY

_encode_json = msgspec.json.Encoder().encode
_MERGED_FIELDS = ("text", "summary", "data")
_TEXT_KINDS: dict[str, Any] = {"reasoning.text": "full", "reasoning.summary": "summary"}
_decode_fragments = msgspec.json.Decoder(list[dict[str, Any]]).decode


# ---- decode


class _OpenEntry:
    """An entry of `reasoning_details` and its fragments so far."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.index = -1  # of its part; -1 until it has text
        self._members: dict[str, Any] = {}
        self._texts: dict[str, TextPieces] = {}

    def merge(self, fragment: dict[str, Any]) -> None:
        """Add a fragment: texts are concatenated, other members replaced."""
        for name, value in fragment.items():
            if name in _MERGED_FIELDS and isinstance(value, str):
                self._texts.setdefault(name, TextPieces()).append(value)
                self._members[name] = ""
            elif value is not None or name not in self._members:
                self._members[name] = value

    def members(self) -> dict[str, Any]:
        """Return the members of the complete entry."""
        return self._members | {name: "".join(pieces) for name, pieces in self._texts.items()}


class DetailsAssembler:
    """Assemble the `reasoning_details` of one choice; `next_index` returns the index of a new part."""

    def __init__(self, candidate: int, next_index: Callable[[], int]) -> None:
        self._candidate = candidate
        self._next_index = next_index
        self._open: dict[tuple[Any, int | None], _OpenEntry] = {}  # by type and index
        self._entries: list[dict[str, Any]] = []  # members of all entries, in order of their first fragments
        self._parts: list[Reasoning | OpaquePart] = []
        self._plain_texts: dict[str, TextPieces] = {}  # skipped reasoning text by its field

    def add(self, raw: Raw, plain_texts: dict[str, str], events: list[Event]) -> bool:
        """Append the events of the fragments in one chunk to `events`; return False if they are not valid.

        `plain_texts` is the reasoning text of the chunk, by its field.
        """
        if not read_entries(raw):
            return False
        for fragment in _decode_fragments(raw):
            self._add_fragment(fragment, events)
        extras = {f"delta/{DETAILS_FIELD}": raw}
        for name, text in plain_texts.items():
            extras[f"delta/{name}"] = Raw(msgspec.json.encode(text))
            self._plain_texts.setdefault(name, TextPieces()).append(text)
        events.append(Notice(kind=f"choice:{self._candidate}", extras={FAMILY: extras}))
        return True

    def _add_fragment(self, fragment: dict[str, Any], events: list[Event]) -> None:
        """Merge a fragment into its entry and append its events."""
        kind, index = fragment["type"], fragment.get("index")
        key = (kind, index if isinstance(index, int) else None)
        if (entry := self._open.get(key)) is None:
            entry = self._open[key] = _OpenEntry(len(self._entries))
            self._entries.append({})
        entry.merge(fragment)
        text = fragment.get(kind.removeprefix("reasoning.")) if kind in _TEXT_KINDS else None
        if not isinstance(text, str) or not text:
            return
        if entry.index < 0:
            entry.index = self._next_index()
            part = Reasoning(wire_form=(DETAILS_FORM, ENTRY_FORM), at=f"{DETAILS_POINTER}{entry.position}")
            events.append(PartStart(index=entry.index, part=part, candidate=self._candidate))
        events.append(PartDelta(index=entry.index, text=text, candidate=self._candidate, kind=_TEXT_KINDS[kind]))

    def end(self, events: list[Event]) -> None:
        """Append the ends of all open entries to `events`."""
        for entry in self._open.values():
            members = self._entries[entry.position] = entry.members()
            (shape,) = read_entries(Raw(msgspec.json.encode([members])))
            final = decode_entry(shape, entry.position)
            self._parts.append(final)
            if entry.index < 0:
                entry.index = self._next_index()
                events.append(PartStart(index=entry.index, part=final, candidate=self._candidate))
            elif isinstance(final, Reasoning) and final.signature is not None:
                events.append(PartDelta(index=entry.index, candidate=self._candidate, signature=final.signature))
            events.append(PartEnd(index=entry.index, candidate=self._candidate, final=final))
        self._open.clear()

    def merged_fields(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the fields of the complete message, and wire-form tokens for those that parts represent."""
        fields: dict[str, Any] = {DETAILS_FIELD: self._entries}
        wire_form = represented_tokens(DETAILS_FIELD)
        for name, pieces in self._plain_texts.items():
            text = fields[name] = "".join(pieces)
            wire_form += represented_tokens(name) if is_repeated_text(text, self._parts) else ()
        return fields, wire_form


# ---- encode


class _OpenReasoning(Struct):
    """A reasoning that has started and not ended."""

    path: SourcePath
    id: str | None
    signature: Signature | None
    first_index: int  # of its entries
    texts: list[tuple[str, int, TextPieces]] = field(default_factory=list)  # kind, block and pieces of each entry


class DetailsEncoder:
    """Turn reasoning, signatures and images of another protocol into notices with `reasoning_details` and `images`.

    Chat's encoder writes the extras of a notice into a chunk.
    """

    def __init__(self, report: LossReport) -> None:
        self._report = report
        self._open_reasoning: dict[tuple[int, int], _OpenReasoning] = {}
        self._call_ids: dict[tuple[int, int], str | None] = {}
        self._signed_parts: set[tuple[int, int]] = set()
        self._message_ids: dict[tuple[int, int], str | None] = {}
        self._part_counts: dict[tuple[int, int], int] = {}
        self._entry_counts: dict[int, int] = {}
        self._image_counts: dict[int, int] = {}
        self._started_reasoning: set[int] = set()

    def adapt(self, event: Event) -> Iterator[Event]:
        """Yield the events for Chat's encoder that stand for an event."""
        match event:
            case MessageStart():
                self._message_ids[event.candidate, event.message] = event.id
                yield event
            case PartStart():
                yield from self._part_start(event)
            case PartDelta():
                yield from self._part_delta(event)
            case PartEnd():
                yield from self._part_end(event)
            case _:
                yield event

    def _part_start(self, event: PartStart) -> Iterator[Event]:
        """Yield the events for Chat's encoder that start a part.

        Reasoning, images and signatures, which Chat has no fields for, become notices.
        """
        message = (event.candidate, event.message)
        position = self._part_counts[message] = self._part_counts.get(message, -1) + 1
        key = (event.candidate, event.index)
        part: Part = event.part
        if isinstance(part, Reasoning):
            yield from self._start_reasoning(event, part, position)
            return
        if (image := encode_image(part, self._image_counts.get(event.candidate, 0))) is not None:
            self._image_counts[event.candidate] = image["index"] + 1
            yield _delta_notice(event.candidate, **{IMAGES: [image]})
            return
        if isinstance(part, Text) or (isinstance(part, ToolCall) and part.executor == "client"):
            self._call_ids[key] = part.id if isinstance(part, ToolCall) else None
            if part.signature is not None and is_known_issuer(part.signature):
                yield self._encode_signature(key, part.signature)
                part = replace(part, signature=None)
        yield event if part is event.part else replace(event, part=part)

    def _start_reasoning(self, event: PartStart, part: Reasoning, position: int) -> Iterator[Event]:
        """Yield the events that start reasoning, with the texts that it starts with."""
        key = (event.candidate, event.index)
        path = ("candidates", event.candidate, "messages", event.message, "parts", position)
        id = part.id if part.id is not None else self._message_ids.get((event.candidate, event.message))
        first_index = self._entry_counts.get(event.candidate, 0)
        reasoning = self._open_reasoning[key] = _OpenReasoning(path, id, part.signature, first_index)
        yield replace(event, part=replace(part, content=(), signature=None, id=None))
        for block in part.content:
            if isinstance(block, ReasoningText) and block.text:
                yield self._encode_text(key, block.kind, len(reasoning.texts), block.text)

    def _part_delta(self, event: PartDelta) -> Iterator[Event]:
        """Yield the events for Chat's encoder that stand for a delta."""
        key = (event.candidate, event.index)
        if (reasoning := self._open_reasoning.get(key)) is None:
            if event.signature is not None and key in self._call_ids and is_known_issuer(event.signature):
                yield self._encode_signature(key, event.signature)
                event = replace(event, signature=None)
            yield event
            return
        if event.signature is not None:
            reasoning.signature = event.signature
        if event.text:
            yield self._encode_text(key, event.kind or "full", event.block, event.text)
        if event.extras:
            yield Notice(kind=f"choice:{event.candidate}", extras=event.extras)

    def _encode_text(self, key: tuple[int, int], kind: str, block: int, text: str) -> Notice:
        """Return a notice with a piece of reasoning text, in `reasoning_details` and in `reasoning`."""
        candidate, reasoning = key[0], self._open_reasoning[key]
        plain_text = text
        if not reasoning.texts or reasoning.texts[-1][:2] != (kind, block):
            reasoning.texts.append((kind, block, TextPieces()))
            plain_text = "\n\n" + text if candidate in self._started_reasoning else text
        reasoning.texts[-1][2].append(text)
        self._started_reasoning.add(candidate)
        index = reasoning.first_index + len(reasoning.texts) - 1
        self._entry_counts[candidate] = max(self._entry_counts.get(candidate, 0), index + 1)
        name = entry_field(kind)
        entry = {"type": f"reasoning.{name}", name: text, "index": index}
        return _delta_notice(candidate, reasoning=plain_text, **{DETAILS_FIELD: [entry]})

    def _part_end(self, event: PartEnd) -> Iterator[Event]:
        """Yield the events for Chat's encoder that end a part."""
        key = (event.candidate, event.index)
        final = event.final
        if (reasoning := self._open_reasoning.pop(key, None)) is None:
            if isinstance(final, ToolCall | Text) and key in self._call_ids and _is_usable_signature(final.signature):
                if key not in self._signed_parts and final.signature is not None:
                    yield self._encode_signature(key, final.signature)
                event = replace(event, final=replace(final, signature=None))
            yield event
            return
        if isinstance(final, Reasoning):
            reasoning.signature = final.signature if final.signature is not None else reasoning.signature
            reasoning.id = final.id if final.id is not None else reasoning.id
        yield from self._encode_reasoning_signature(reasoning, event.candidate)
        yield replace(event, final=None)

    def _encode_reasoning_signature(self, reasoning: _OpenReasoning, candidate: int) -> Iterator[Event]:
        """Yield a notice with the signature of completed reasoning, if it has a usable one."""
        if reasoning.signature is None:
            return
        if not is_known_issuer(reasoning.signature):
            self._report.dropped(
                (*reasoning.path, "signature"), "", "no envelope key to preserve the signature of another issuer"
            )
            return
        texts = tuple(
            ReasoningText(kind="summary" if kind == "summary" else "full", text="".join(pieces))
            for kind, _, pieces in reasoning.texts
        )
        signed = Reasoning(content=texts, signature=reasoning.signature, id=reasoning.id)
        entry = encode_entries(signed, reasoning.id, reasoning.first_index)[-1]
        # The text has been sent. A signature belongs to the entry of the text that it signs.
        if entry.pop("text", None) is not None:
            entry["index"] = reasoning.first_index + len(texts) - 1
        self._entry_counts[candidate] = max(self._entry_counts.get(candidate, 0), entry["index"] + 1)
        yield _delta_notice(candidate, **{DETAILS_FIELD: [entry]})

    def _encode_signature(self, key: tuple[int, int], signature: Signature) -> Notice:
        """Return a notice that adds the signature of a text or call to `reasoning_details`.

        Chat's encoder writes the extras of a notice into a chunk. `key` is the candidate and the part index.
        """
        index = self._entry_counts.get(key[0], 0)
        self._entry_counts[key[0]] = index + 1
        self._signed_parts.add(key)
        return _delta_notice(key[0], **{DETAILS_FIELD: encode_signature(signature, self._call_ids[key], index)})


def _is_usable_signature(signature: Signature | None) -> bool:
    """Return whether there is a signature that `reasoning_details` can hold."""
    return signature is not None and is_known_issuer(signature)


def _delta_notice(candidate: int, **delta: Any) -> Notice:
    """Return a notice whose extras Chat's encoder writes into the delta of a chunk."""
    extras = {f"delta/{name}": Raw(_encode_json(value)) for name, value in delta.items()}
    return Notice(kind=f"choice:{candidate}", extras={FAMILY: extras})
