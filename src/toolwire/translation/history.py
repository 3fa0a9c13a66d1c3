"""Digests of a conversation, and restoration of what clients could not send back themselves.

A digest is the same for every form in which clients may resend a conversation. It ignores ids, cache marks, spelling,
reasoning and system text, and joins consecutive texts. It covers text, calls and results: a client that changes those
has a different conversation.

`restore_envelopes` puts the contents of envelopes back into a request to their issuer. An invalid envelope is
never sent on and invalidates all earlier signatures, since an issuer verifies its reasoning as one chain without gaps.
A signature of another issuer was never part of that chain, so only that one is removed. Envelopes are also removed
from requests to the client's own provider.
"""

import hashlib
import json
from collections.abc import Container, Iterable, Iterator, Sequence
from operator import is_
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
from toolwire.codec.losses import NO_EQUIVALENT, LossReport, SourcePath, WireNames, with_source_positions

_MAX_STATES = 8  # clients change only the last few messages that they sent before
_EMPTY_ASSISTANT_MESSAGE = Message(role="assistant", parts=())
_EMPTY_USER_MESSAGE = Message(role="user", parts=())


def digest_before(messages: Sequence[Message]) -> str:
    """Return a hex digest that identifies the conversation before a response to these messages."""
    return ConversationDigest().digest_before(messages)


def digests_before_turns(messages: Sequence[Message]) -> list[str]:
    """Return, for each message, the hex digest of the conversation before the turn that it belongs to."""
    state = _DigestState()
    return [state.add(message) for message in messages]


class _DigestState:
    """The digest of the first messages of a conversation."""

    def __init__(self, count: int = 0, role: str = "", before: str = "", digest: Any = None) -> None:
        self.count = count
        self._role = role  # of the last turn
        self._before = before  # the digest before that turn
        self._digest = digest or hashlib.blake2b(digest_size=16)

    def copy(self) -> "_DigestState":
        """Return a copy, to which further messages can be added."""
        return _DigestState(self.count, self._role, self._before, self._digest.copy())

    def add(self, message: Message) -> str:
        """Add the next message, and return the digest before its turn."""
        self.count += 1
        if message.role in ("user", "assistant"):
            if message.role != self._role:
                self._before, self._role = self._digest.hexdigest(), message.role
                self._digest.update(b"\0" + message.role.encode())
            for text in _digest_texts(message.parts):
                self._digest.update(text.encode(errors="surrogatepass"))
        return self._before


class ConversationDigest:
    """Computes the digests of a growing conversation, each from the messages that are new since the last one."""

    def __init__(self) -> None:
        self._known: tuple[Sequence[Message], Sequence[_DigestState]] = (), ()

    def digest_before(self, messages: Sequence[Message]) -> str:
        """Return a hex digest that identifies the conversation before a response to these messages."""
        known, states = self._known  # a single read, since another thread may replace the pair
        state = next(
            (
                state.copy()
                for state in reversed(states)
                if state.count <= len(messages) and all(map(is_, known[: state.count], messages))
            ),
            _DigestState(),
        )
        kept = [known_state for known_state in states if known_state.count <= state.count]
        for message in messages[state.count :]:
            state.add(message)
            if state.count > len(messages) - _MAX_STATES:
                kept.append(state.copy())
        self._known = messages, kept[-_MAX_STATES:]
        return state.copy().add(_EMPTY_ASSISTANT_MESSAGE)


def assistant_turns(messages: Sequence[Message]) -> list[tuple[int, int, str]]:
    """Return each uninterrupted assistant turn: index of its first message, index after its last, and digest.

    The hex digest covers the conversation up to the end of the turn.
    """
    turns: list[tuple[int, int, str]] = []
    first, end, interrupted = -1, -1, False
    for number, digest in enumerate(digests_before_turns((*messages, _EMPTY_USER_MESSAGE))):
        role = messages[number].role if number < len(messages) else "user"
        if role == "assistant":
            interrupted = interrupted or (first >= 0 and end != number)
            first, end = number if first < 0 else first, number + 1
        elif role == "user":
            if first >= 0 and not interrupted:
                turns.append((first, end, digest))
            first, interrupted = -1, False
    return turns


def _digest_texts(parts: Sequence[Part]) -> Iterator[str]:
    """Yield the texts of parts that count for the digest; reasoning and signatures do not."""
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
    """Return a text that identifies the content of a media part."""
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
    """Return the arguments as JSON in one spelling, since clients parse and rewrite them."""
    try:
        return _encode_arguments(_decode_arguments(arguments))
    except (ValueError, RecursionError):
        return arguments


def _parse_number(text: str) -> Any:
    """Parse a number; integral floats become integers."""
    value = float(text)
    return int(value) if value.is_integer() else value


_decode_arguments = json.JSONDecoder(parse_float=_parse_number).decode
_encode_arguments = json.JSONEncoder(sort_keys=True).encode

_Location = tuple[int, int]
_SIGNED_TYPES = frozenset({Reasoning, Text, ToolCall, Media, ToolResult})
_INVALID_ENVELOPE = "its envelope is invalid, or belongs to another conversation"
_FOREIGN = "another provider, account or model issued it"
_BROKEN_CHAIN = "a later signature is missing, without which the provider rejects this one"


def has_envelopes(request: Request) -> bool:
    """Return whether an assistant message of the request carries an envelope.

    An envelope is a signed container of the gateway, echoed by the client in place of a vendor's signature.
    """
    return any(map(is_envelope, signatures_in(request.messages)))


def signatures_in(messages: Sequence[Message]) -> list[str]:
    """Return the data of all signatures and envelopes in assistant messages."""
    return [
        part.signature.data  # type: ignore[union-attr]
        for message in messages
        if message.role == "assistant"
        for part in message.parts
        if type(part) in _SIGNED_TYPES and part.signature is not None  # type: ignore[union-attr]
    ]


def restore_envelopes(
    request: Request,
    reader: Codec,
    envelope_key: EnvelopeKey | None,
    *,
    same_protocol: bool = False,
    foreign: Container[str] = (),
    accepts_unsigned: bool = False,
) -> tuple[Request, LossReport]:
    """Open the envelopes that the client echoed, and put their contents back into the request.

    `foreign` has the data of signatures of other issuers, which are removed. A target of the same protocol that
    `accepts_unsigned` reasoning keeps its text. Returns the new request, and the losses of signatures that are not
    sent, located in the original request.
    """
    report = LossReport()
    signatures = {
        (number, position): part.signature
        for number, message in enumerate(request.messages)
        for position, part in enumerate(message.parts)
        if isinstance(part, Reasoning | Text | ToolCall | Media | ToolResult) and part.signature is not None
    }
    if not any(is_envelope(signature.data) or signature.data in foreign for signature in signatures.values()):
        return request, report
    contents = _EnvelopeContents(
        request, reader, report, same_protocol=same_protocol, accepts_unsigned=accepts_unsigned
    )
    contents.open(signatures, envelope_key, foreign)
    return contents.restored_request(reader.wire_names), report


class _EnvelopeContents:
    """The contents of a request's envelopes, and the changes that restore them."""

    def __init__(
        self, request: Request, reader: Codec, report: LossReport, *, same_protocol: bool, accepts_unsigned: bool
    ) -> None:
        self._request = request
        self._report = report
        self._same_protocol = same_protocol
        self._accepts_unsigned = accepts_unsigned
        self._envelope_field = reader.envelope_field
        self._payloads: dict[_Location, EnvelopePayload | None] = {}
        self._unsigned: set[_Location] = set()
        self._signatures: dict[_Location, Signature] = {}
        self._removed: set[_Location] = set()

    def open(
        self, signatures: dict[_Location, Signature], envelope_key: EnvelopeKey | None, foreign: Container[str]
    ) -> None:
        """Open the envelopes among these signatures, and find the part that each sealed signature belongs to."""
        digests = digests_before_turns(self._request.messages)
        gap: _Location | None = None
        owners: dict[_Location, _Location] = {}
        foreign_locations: list[_Location] = []
        for location, signature in signatures.items():
            if not is_envelope(signature.data):
                if signature.data in foreign:
                    foreign_locations.append(location)
                continue
            payload = None if envelope_key is None else envelope_key.open(signature.data, digests[location[0]])
            if payload is not None and (
                self._same_protocol or envelope_key is None or payload.issuer != envelope_key.issuer
            ):
                foreign_locations.append(location)
                self._payloads[location] = None
                continue
            if payload is not None and payload.signature is not None:
                if (owner := self._signed_part(location, payload)) is None:
                    payload = None
                else:
                    owners[location] = owner
            self._payloads[location] = payload
            if payload is None:
                gap = location
        for location in foreign_locations:
            self._drop_signature(location, _FOREIGN)
        if gap is not None:
            self._drop_signatures_until(gap, signatures)
        for location, owner in owners.items():
            payload = self._payloads[location]
            if location not in self._unsigned and payload is not None and payload.signature is not None:
                self._signatures[owner] = payload.signature

    def _drop_signatures_until(self, gap: _Location, signatures: dict[_Location, Signature]) -> None:
        """Drop all signatures up to an invalid envelope, since the vendor rejects a conversation that lacks one."""
        for location in signatures:
            if location <= gap and location not in self._unsigned:
                invalid = location in self._payloads and self._payloads[location] is None
                self._drop_signature(location, _INVALID_ENVELOPE if invalid else _BROKEN_CHAIN)

    def _drop_signature(self, location: _Location, reason: str) -> None:
        """Drop a signature, and report it."""
        self._unsigned.add(location)
        self._report.dropped((*_source_path(location), "signature"), "", reason)

    def _signed_part(self, location: _Location, payload: EnvelopePayload) -> _Location | None:
        """Return the location of the part whose signature an envelope holds; None if it is gone.

        That is the part with the envelope or, if that is an empty reasoning, the next call or text.
        """
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
        """Return the request with the contents of its envelopes in place."""
        request = self._request
        for location, payload in self._payloads.items():
            if payload is not None:
                self._remove_shown_reasoning(location, payload)
        touched = {number for number, _ in (*self._payloads, *self._unsigned, *self._signatures, *self._removed)}
        restored: list[Message | None] = []
        for number, message in enumerate(request.messages):
            restored.append(self._restore_message(number, message, wire_names) if number in touched else message)
        self._detach_items(restored)
        if None in restored:  # the remaining messages shift, so they need their source positions
            originals = with_source_positions(request, wire_names, "messages").messages
            pairs = zip(restored, originals, strict=True)
            messages = [replace(message, at=original.at) for message, original in pairs if message is not None]
        else:
            messages = [message for message in restored if message is not None]
        return replace(request, messages=tuple(messages))

    def _detach_items(self, restored: list[Message | None]) -> None:
        """Remove the ids of items whose reasoning item is not sent, if their own vendor would reject them.

        `restored` has None in place of the removed reasoning items.
        """
        if not self._same_protocol or self._envelope_field is None or not self._envelope_field.binds_ids:
            return
        is_detached = False
        for number, message in enumerate(restored):
            if message is None:
                is_detached = True
            elif message.role == "user" or any(isinstance(part, Reasoning) for part in message.parts):
                is_detached = False
            elif is_detached and message.id is not None:
                restored[number] = replace(message, id=None)
                self._report.dropped(("messages", number), "id", "the reasoning item that it refers to is not sent")

    def _remove_shown_reasoning(self, location: _Location, payload: EnvelopePayload) -> None:
        """Remove reasoning that the client's protocol showed beside its envelope."""
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
                if (text := _reasoning_text(part)) and any(text in sealed for sealed in texts):
                    self._removed.add((number, index))
            number -= 1
            position = len(messages[number].parts)

    def _restore_message(self, number: int, message: Message, wire_names: WireNames) -> Message | None:
        """Return the message with its envelopes restored; None if it only held an envelope."""
        parts: list[Part] = []
        moved: list[tuple[Part, tuple[int, int]]] = []
        for index, part in enumerate(with_source_positions(message, wire_names).parts):
            location = (number, index)
            restored = self._restore_part(location, part)
            payload = self._payloads.get(location)
            if payload is not None and payload.positions:
                moved += zip(restored, payload.positions, strict=False)
                restored = restored[len(payload.positions) :]
            parts += restored
        for part, position in moved:
            parts.insert(_insertion_index(parts, *position), part)
        if len(parts) == len(message.parts):
            # No part moved.
            parts = [replace(part, at=original.at) for part, original in zip(parts, message.parts, strict=True)]
        return replace(message, parts=tuple(parts)) if parts or not message.parts else None

    def _restore_part(self, location: _Location, part: Part) -> list[Part]:
        """Return the parts that replace a part: those sealed in its envelope, and the part with its own signature."""
        if location in self._removed:
            return []
        if location in self._payloads and isinstance(part, Reasoning):
            return self._restore_reasoning(location, part)
        if location in self._payloads and isinstance(part, Text | ToolCall):
            sealed = self._sealed_parts(location, part)
            signature = self._signatures.get(location) or self._placeholder_signature(part, location)
            if isinstance(part, Text) and not part.text and signature is None:
                return sealed
            return [*sealed, replace(part, signature=signature)]
        if location in self._signatures and isinstance(part, Text | ToolCall):
            return [replace(part, signature=self._signatures[location])]
        if location in self._unsigned and isinstance(part, Reasoning | Text | ToolCall | Media | ToolResult):
            if isinstance(part, Reasoning):
                return self._without_signature(part)
            if isinstance(part, Text) and not part.text:
                return []
            return [replace(part, signature=self._placeholder_signature(part, location))]
        return [part]

    def _restore_reasoning(self, location: _Location, part: Reasoning) -> list[Part]:
        """Return the parts sealed in the envelope of a reasoning part.

        If the envelope is invalid, return the reasoning without its signature.
        """
        if self._payloads[location] is None:
            return self._without_signature(part)
        sealed = self._sealed_parts(location, part)
        return _with_client_extras(sealed, part, _source_path(location), self._report)

    def _without_signature(self, part: Reasoning) -> list[Part]:
        """Return the reasoning without its signature, or nothing if its own vendor would reject that."""
        if not self._same_protocol:
            return [replace(part, signature=None)]
        if not self._accepts_unsigned or not part.content or part.signature is None:
            return []
        # Hosts that sign nothing may still require the member.
        is_member = part.signature.kind == "signature"
        return [replace(part, signature=replace(part.signature, data="") if is_member else None)]

    def _sealed_parts(self, location: _Location, envelope_part: Part) -> list[Part]:
        """Return the parts of an opened envelope, at the source position of the part that held it."""
        if (payload := self._payloads[location]) is None:
            return []
        drop_signature = location in self._unsigned
        return [self._put_in_place(part, envelope_part, drop_signature=drop_signature) for part in payload.parts]

    def _put_in_place(self, part: Part, envelope_part: Part, *, drop_signature: bool) -> Part:
        """Return a sealed part with the source position of the part that held its envelope."""
        if drop_signature and isinstance(part, Reasoning | Text):
            return replace(part, signature=None, at=envelope_part.at)
        return replace(part, at=envelope_part.at)

    def _placeholder_signature(self, part: Part, location: _Location) -> Signature | None:
        """Return the placeholder that the provider accepts for a call without a signature."""
        field = self._envelope_field
        if not self._same_protocol or field is None or field.placeholder is None or not isinstance(part, ToolCall):
            return None
        self._report.added(
            (*_source_path(location), "signature"),
            "",
            "",
            "the provider requires a signature: added a placeholder that skips the check",
        )
        return Signature(issuer=field.issuer, data=field.placeholder, kind=field.kind)


def _source_path(location: _Location) -> SourcePath:
    """Return the source path of the part at a location."""
    return ("messages", location[0], "parts", location[1])


def _insertion_index(parts: list[Part], calls: int, characters: int) -> int:
    """Return the index in `parts` after this many calls, and this many characters of text since the last of them."""
    seen_calls = seen_characters = 0
    for index, part in enumerate(parts):
        if isinstance(part, ToolCall) and part.executor == "client":
            if seen_calls == calls:
                return index
            seen_calls, seen_characters = seen_calls + 1, 0
        elif isinstance(part, Text) and part.text:
            if seen_calls == calls and seen_characters >= characters:
                return index
            seen_characters += len(part.text)
    return len(parts)


def _reasoning_text(part: Reasoning) -> str:
    """Return the text of a reasoning without whitespace."""
    return "".join("".join(block.text.split()) for block in part.content if isinstance(block, ReasoningText))


def _with_client_extras(parts: list[Part], envelope_part: Part, path: SourcePath, report: LossReport) -> list[Part]:
    """Return restored parts with the extras (unknown fields) that the client added to the part with the envelope.

    They are kept so that they are reported.
    """
    if not envelope_part.extras:
        return parts
    if not parts:
        for fields in envelope_part.extras.values():
            for key in fields:
                report.dropped(path, "//" + key, NO_EQUIVALENT)
        return parts
    extras: Extras = {family: dict(fields) for family, fields in (parts[0].extras or {}).items()}
    for family, fields in envelope_part.extras.items():
        extras.setdefault(family, {}).update(fields)
    return [replace(parts[0], extras=extras), *parts[1:]]


def reinsert_turn(messages: Sequence[Message], turn: tuple[int, int], original: Sequence[Message]) -> list[Message]:
    """Return the conversation with the assistant turn between two indexes replaced by its stored original.

    Extras (unknown fields) that the client added are kept, to be reported. Results refer to the calls by their original
    ids.
    """
    first, end = turn
    repeated = messages[first:end]
    calls, original_calls = _client_calls(repeated), _client_calls(original)
    client_extras = [node.extras for message in repeated for node in (message, *message.parts) if node.extras]
    restored = [
        replace(message, at=repeated[0].at, parts=tuple([replace(part, at="") for part in message.parts]))
        for message in original
    ]
    restored[0] = replace(restored[0], extras=_merge_extras([restored[0].extras or {}, *client_extras]))
    following = list(messages[end:])
    ids = {call.id: original_call.id for call, original_call in zip(calls, original_calls, strict=False) if call.id}
    calls_without_id = [
        original_call for call, original_call in zip(calls, original_calls, strict=False) if not call.id
    ]
    for number, message in enumerate(following):
        if message.role == "assistant":
            break
        parts = tuple([_with_original_call_id(part, ids, calls_without_id) for part in message.parts])
        following[number] = replace(message, parts=parts)
    return [*messages[:first], *restored, *following]


def _client_calls(messages: Iterable[Message]) -> list[ToolCall]:
    """Return the calls that the client must answer."""
    parts = [part for message in messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolCall) and part.executor == "client"]


def _with_original_call_id(part: Part, ids: dict[str, str | None], calls_without_id: list[ToolCall]) -> Part:
    """Return a tool result with the original id of its call; other parts are unchanged."""
    if not isinstance(part, ToolResult):
        return part
    if part.call_id:
        return replace(part, call_id=ids.get(part.call_id, part.call_id))
    if not calls_without_id:
        return part
    call = next((candidate for candidate in calls_without_id if candidate.name == part.name), calls_without_id[0])
    calls_without_id.remove(call)
    return replace(part, call_id=call.id)


def _merge_extras(all_extras: Iterable[Extras]) -> Extras | None:
    """Merge the extras (wire fields without a canonical counterpart) of several nodes; earlier ones win."""
    merged: Extras = {}
    for extras in all_extras:
        for family, fields in extras.items():
            merged[family] = {**fields, **merged.get(family, {})}
    return merged or None
