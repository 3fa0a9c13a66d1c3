"""What a client's conversation says, as a digest: the same for every way in which its clients may repeat it.

Ids, marks, spelling, reasoning and system text are not in it, and texts in a row are one, since clients merge, mark,
renumber and leave them out. What was said, called and answered is: whoever changes that has another conversation.

What the carries of a request hold, put back where it stood.

A carry that can't be opened is never sent on. It takes all earlier seals with it: an issuer proves its reasoning as one
chain, and refuses one with a gap. At home, where the client's own provider reads the request, no carry is for it.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from toolwire.canonical.content import (
    Data,
    FileId,
    Inline,
    Media,
    Message,
    Part,
    PlainText,
    Reasoning,
    ReasoningText,
    Refusal,
    Signature,
    Text,
    ToolCall,
    ToolResult,
    Url,
)
from toolwire.canonical.node import Extras
from toolwire.canonical.request import Request
from toolwire.codec.envelope import EnvelopeKey, EnvelopePayload, is_envelope
from toolwire.codec.interface import Codec
from toolwire.codec.losses import LossReport, SourcePath, WireNames, with_source_positions

_EMPTY_ASSISTANT_MESSAGE = Message(role="assistant", parts=())
_EMPTY_USER_MESSAGE = Message(role="user", parts=())


def digest_before(messages: Sequence[Message]) -> str:
    """The digest of what an answer to these messages comes after."""
    return digests_before_turns((*messages, _EMPTY_ASSISTANT_MESSAGE))[-1]


def digests_before_turns(messages: Sequence[Message]) -> list[str]:
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
            for text in _digest_texts(message.parts):
                running.update(text.encode(errors="surrogatepass"))
        found.append(before)
    return found


def assistant_turns(messages: Sequence[Message]) -> list[tuple[int, int, str]]:
    """Each turn of an assistant that nothing parts: its first message, the one after its last, and the digest of all
    that was said up to there."""
    found: list[tuple[int, int, str]] = []
    first, after, parted = -1, -1, False
    for number, before in enumerate(digests_before_turns((*messages, _EMPTY_USER_MESSAGE))):
        role = messages[number].role if number < len(messages) else "user"
        if role == "assistant":
            parted = parted or (first >= 0 and after != number)
            first, after = number if first < 0 else first, number + 1
        elif role == "user":
            if first >= 0 and not parted:
                found.append((first, after, before))
            first, parted = -1, False
    return found


def _digest_texts(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        match part:
            case Text() | Refusal():
                yield part.text
            case Data():
                yield str(part.json, "utf-8")
            case ToolCall():
                yield f"\1{part.name}\1{_normalize_arguments(part.arguments)}\1"
            case ToolResult():
                yield "\2"
                yield from _digest_texts(part.content or ())
                yield "\2"
            case Media():
                yield f"\3{_source_text(part)}\3"
            case _:
                pass


def _source_text(part: Media) -> str:
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


def _normalize_arguments(arguments: str) -> str:
    """One spelling of the same arguments: clients read them and write them anew."""
    try:
        return json.dumps(json.loads(arguments, parse_float=_parse_number), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def _parse_number(text: str) -> Any:
    value = float(text)
    return int(value) if value.is_integer() else value


_Location = tuple[int, int]
_SIGNED_TYPES = frozenset({Reasoning, Text, ToolCall, Media})
_INVALID_ENVELOPE = "what proved it was not sealed here, or for something else"
_BROKEN_CHAIN = "a later proof is missing, without which this one is refused"


def has_envelopes(request: Request) -> bool:
    """Whether there is anything to restore: mostly not, and it is asked of every request."""
    for message in request.messages:
        if message.role == "assistant":
            for part in message.parts:
                if type(part) in _SIGNED_TYPES and (seal := part.signature) is not None and is_envelope(seal.data):  # type: ignore[union-attr]
                    return True
    return False


def restore_envelopes(
    request: Request, reader: Codec, envelope_key: EnvelopeKey | None, *, same_protocol: bool = False
) -> tuple[Request, LossReport]:
    """The request with what its carries hold, and what of it was lost, as trails into the request as it was."""
    report = LossReport()
    sealed = {
        (number, position): part.signature
        for number, message in enumerate(request.messages)
        for position, part in enumerate(message.parts)
        if isinstance(part, Reasoning | Text | ToolCall | Media) and part.signature is not None
    }
    if not any(is_envelope(seal.data) for seal in sealed.values()):
        return request, report
    restoring = _EnvelopeContents(request, reader, report, same_protocol=same_protocol)
    restoring.open(sealed, None if same_protocol else envelope_key)
    return restoring.restored_request(reader.wire_names), report


class _EnvelopeContents:
    def __init__(self, request: Request, reader: Codec, report: LossReport, *, same_protocol: bool) -> None:
        self._request = request
        self._report = report
        self._same_protocol = same_protocol
        self._envelope_field = reader.envelope_field
        self._payloads: dict[_Location, EnvelopePayload | None] = {}
        self._unsigned: set[_Location] = set()
        self._signatures: dict[_Location, Signature] = {}
        self._removed: set[_Location] = set()

    def open(self, signatures: dict[_Location, Signature], envelope_key: EnvelopeKey | None) -> None:
        messages = self._request.messages
        before = digests_before_turns(messages)
        gap: _Location | None = None
        receivers: dict[_Location, _Location] = {}
        for place, seal in signatures.items():
            if not is_envelope(seal.data):
                continue
            carried = None if envelope_key is None else envelope_key.open(seal.data, before[place[0]])
            if carried is not None and carried.signature is not None:
                if (receiver := self._signed_part(place, carried)) is None:
                    carried = None
                else:
                    receivers[place] = receiver
            self._payloads[place] = carried
            if carried is None:
                gap = place
        if gap is not None:
            self._unsigned = {place for place in signatures if place <= gap}
            for place in signatures:
                if place <= gap:
                    why = (
                        _INVALID_ENVELOPE
                        if place in self._payloads and self._payloads[place] is None
                        else _BROKEN_CHAIN
                    )
                    self._report.dropped((*_source_path(place), "signature"), "", why)
        for place, receiver in receivers.items():
            proven = self._payloads[place]
            if place not in self._unsigned and proven is not None and proven.signature is not None:
                self._signatures[receiver] = proven.signature

    def _signed_part(self, location: _Location, payload: EnvelopePayload) -> _Location | None:
        """The part whose proof a carry holds: the one that it stands on, or the next of its kind in the turn."""
        messages = self._request.messages
        if not isinstance(messages[location[0]].parts[location[1]], Reasoning):
            return location
        first = location[1] + 1
        for number in range(location[0], len(messages)):
            if messages[number].role == "user":
                return None
            for position in range(first, len(messages[number].parts)):
                part = messages[number].parts[position]
                if isinstance(part, ToolCall) and part.executor == "client":
                    return (number, position) if part.name == payload.call_name else None
                if isinstance(part, Text) and part.text and payload.call_name is None:
                    return (number, position)
            first = 0
        return None

    def restored_request(self, wire_names: WireNames) -> Request:
        request = self._request
        for place, carried in self._payloads.items():
            if carried is not None:
                self._remove_shown_reasoning(place, carried)
        touched = {number for number, _ in (*self._payloads, *self._unsigned, *self._signatures, *self._removed)}
        changed: list[Message | None] = []
        for number, message in enumerate(request.messages):
            changed.append(self._restore_message(number, message, wire_names) if number in touched else message)
        if None in changed:
            pins = with_source_positions(request, wire_names, "messages").messages
            changed = [None if one is None else replace(one, at=pin.at) for one, pin in zip(changed, pins, strict=True)]
        messages = [message for message in changed if message is not None]
        parts = [part for number in touched if (one := changed[number]) is not None for part in one.parts]
        plain = request.plain and not any(part.extras for part in parts)
        return replace(request, messages=tuple(messages), plain=plain)

    def _remove_shown_reasoning(self, location: _Location, payload: EnvelopePayload) -> None:
        """Take away the reasoning that a client's protocol showed beside the carry which holds it."""
        texts = [_reasoning_text(part) for part in payload.parts if isinstance(part, Reasoning)]
        number, position = location
        messages = self._request.messages
        while number >= 0 and messages[number].role == "assistant":
            for index in range(position - 1, -1, -1):
                part = messages[number].parts[index]
                if isinstance(part, Text):
                    continue
                if not isinstance(part, Reasoning) or part.signature is not None or part.extras:
                    return
                if (text := _reasoning_text(part)) and any(text in one for one in texts):
                    self._removed.add((number, index))
            number -= 1
            position = len(messages[number].parts)

    def _restore_message(self, number: int, message: Message, wire_names: WireNames) -> Message | None:
        """None for one that was nothing but a carry."""
        parts: list[Part] = []
        moved: list[tuple[Part, tuple[int, int]]] = []
        for position, part in enumerate(with_source_positions(message, wire_names).parts):
            place = (number, position)
            made = self._restore_part(place, part)
            carried = self._payloads.get(place)
            if carried is not None and carried.positions:
                moved += zip(made, carried.positions, strict=False)
                made = made[len(carried.positions) :]
            parts += made
        for one, after in moved:
            parts.insert(_insertion_index(parts, *after), one)
        if len(parts) == len(message.parts):
            # Nothing moved.
            parts = [replace(one, at=was.at) for one, was in zip(parts, message.parts, strict=True)]
        return replace(message, parts=tuple(parts)) if parts or not message.parts else None

    def _restore_part(self, location: _Location, part: Part) -> list[Part]:
        if location in self._removed:
            return []
        carried, lost = self._payloads.get(location), location in self._unsigned
        if location in self._payloads and isinstance(part, Reasoning):
            if carried is None:
                return [] if self._same_protocol else [replace(part, signature=None)]
            held = [self._put_in_place(one, part, drop_signature=lost) for one in carried.parts]
            return _with_client_extras(held, part, _source_path(location), self._report)
        if location in self._payloads and isinstance(part, Text | ToolCall):
            before = (
                [] if carried is None else [self._put_in_place(one, part, drop_signature=lost) for one in carried.parts]
            )
            own = replace(part, signature=self._signatures.get(location) or self._placeholder_signature(part, location))
            return [*before, own] if isinstance(part, ToolCall) or part.text or own.signature is not None else before
        if location in self._signatures and isinstance(part, Text | ToolCall):
            return [replace(part, signature=self._signatures[location])]
        if lost and isinstance(part, Reasoning | Text | ToolCall | Media):
            if self._same_protocol and isinstance(part, Reasoning):
                return []
            return [replace(part, signature=self._placeholder_signature(part, location))]
        return [part]

    def _put_in_place(self, part: Part, envelope_part: Part, *, drop_signature: bool) -> Part:
        """A part that was carried, in the place of what carried it."""
        if drop_signature and isinstance(part, Reasoning | Text):
            return replace(part, signature=None, at=envelope_part.at)
        return replace(part, at=envelope_part.at)

    def _placeholder_signature(self, part: Part, location: _Location) -> Signature | None:
        """In place of a proof that a call has lost, for its own provider, what it takes for none."""
        carriage = self._envelope_field
        if (
            not self._same_protocol
            or carriage is None
            or carriage.placeholder is None
            or not isinstance(part, ToolCall)
        ):
            return None
        self._report.added(
            (*_source_path(location), "signature"), "", "", "the call must have a proof: the check is skipped"
        )
        return Signature(issuer=carriage.issuer, data=carriage.placeholder, kind=carriage.kind)


def _source_path(location: _Location) -> SourcePath:
    return ("messages", location[0], "parts", location[1])


def _insertion_index(parts: list[Part], calls: int, characters: int) -> int:
    """The place after so many calls, so many characters since, and what was put there before."""
    called = said = 0
    for index, part in enumerate(parts):
        if isinstance(part, ToolCall) and part.executor == "client":
            if called == calls:
                return index
            called, said = called + 1, 0
        elif isinstance(part, Text) and part.text:
            if called == calls and said >= characters:
                return index
            said += len(part.text)
    return len(parts)


def _reasoning_text(part: Reasoning) -> str:
    return "".join("".join(one.text.split()) for one in part.content if isinstance(one, ReasoningText))


def _with_client_extras(parts: list[Part], envelope_part: Part, path: SourcePath, report: LossReport) -> list[Part]:
    """What a client added to the carrying block is still to be reported."""
    if not envelope_part.extras:
        return parts
    if not parts:
        for kept in envelope_part.extras.values():
            for key in kept:
                report.dropped(path, "//" + key, "a field that only its own protocol has")
        return parts
    extras: Extras = {family: dict(kept) for family, kept in (parts[0].extras or {}).items()}
    for family, kept in envelope_part.extras.items():
        extras.setdefault(family, {}).update(kept)
    return [replace(parts[0], extras=extras), *parts[1:]]


def reinsert_turn(messages: Sequence[Message], turn: tuple[int, int], original: Sequence[Message]) -> list[Message]:
    """The conversation with a turn as it was said. What the client itself added to it is still to be reported, and its
    results answer the calls under the ids that these had."""
    first, after = turn
    repeated = messages[first:after]
    calls, said = _client_calls(repeated), _client_calls(original)
    added = [node.extras for message in repeated for node in (message, *message.parts) if node.extras]
    back = [
        replace(message, at=repeated[0].at, parts=tuple([replace(one, at="") for one in message.parts]))
        for message in original
    ]
    back[0] = replace(back[0], extras=_merge_extras([back[0].extras or {}, *added]))
    following = list(messages[after:])
    ids = {call.id: issued.id for call, issued in zip(calls, said, strict=False) if call.id}
    nameless = [issued for call, issued in zip(calls, said, strict=False) if not call.id]
    for number, message in enumerate(following):
        if message.role == "assistant":
            break
        parts = tuple([_with_original_call_id(part, ids, nameless) for part in message.parts])
        following[number] = replace(message, parts=parts)
    return [*messages[:first], *back, *following]


def _client_calls(messages: Iterable[Message]) -> list[ToolCall]:
    parts = [part for message in messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolCall) and part.executor == "client"]


def _with_original_call_id(part: Part, ids: dict[str, str | None], calls_without_id: list[ToolCall]) -> Part:
    if not isinstance(part, ToolResult):
        return part
    if part.call_id:
        return replace(part, call_id=ids.get(part.call_id, part.call_id))
    if not calls_without_id:
        return part
    call = next((one for one in calls_without_id if one.name == part.name), calls_without_id[0])
    calls_without_id.remove(call)
    return replace(part, call_id=call.id)


def _merge_extras(all_extras: Iterable[Extras]) -> Extras | None:
    joined: Extras = {}
    for extras in all_extras:
        for family, kept in extras.items():
            joined[family] = {**kept, **joined.get(family, {})}
    return joined or None
