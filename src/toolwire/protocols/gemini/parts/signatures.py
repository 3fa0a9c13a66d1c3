"""Thought signatures: they stand on a part, usually on the first call that a thought led to."""

from base64 import b64encode, urlsafe_b64decode

from msgspec import UNSET
from msgspec.structs import replace

from toolwire.canonical.content import Reasoning, Signature, Text, ToolCall
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.protocols.gemini.wire import ISSUER, PartShape

MOVED_SIGNATURE = "gemini:handed-on"
"""Marks a thought of Google's whose signature was moved to another part."""

_DUMMY_TEXTS = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
DUMMY_SIGNATURE = b64encode(_DUMMY_TEXTS[0].encode()).decode()
"""Placeholder that skips validation; Google documents it for histories of other models."""

_URL_SAFE = str.maketrans("+/", "-_")
_MAX_DUMMY_LENGTH = 64
_DUMMY_BYTES = frozenset(text.encode() for text in _DUMMY_TEXTS)
_KNOWN_DUMMIES = frozenset((*_DUMMY_TEXTS, *(b64encode(text).decode() for text in _DUMMY_BYTES)))
_DUMMY_PREFIXES = frozenset(text[:4] for text in _KNOWN_DUMMIES)
"""First characters of placeholders, equal in both alphabets; they rule out nearly all real signatures."""


def is_dummy(signature: object) -> bool:
    """Check for a placeholder signature, which skips validation; it may be text or base64."""
    if not isinstance(signature, str) or len(signature) > _MAX_DUMMY_LENGTH:
        return False
    return signature in _KNOWN_DUMMIES or (
        signature[:4] in _DUMMY_PREFIXES and signature_bytes(signature) in _DUMMY_BYTES
    )


def signature_bytes(signature: str) -> bytes:
    """Decode a signature in either base64 alphabet, with or without padding; other text as UTF-8."""
    unpadded = signature.translate(_URL_SAFE).rstrip("=")
    try:
        return urlsafe_b64decode(unpadded + "=" * (-len(unpadded) % 4))
    except ValueError:
        return signature.encode(errors="surrogatepass")


def decode_signature(part: PartShape) -> Signature | None:
    """Return the signature of a part; None for a placeholder."""
    if part.thought_signature is UNSET or is_dummy(part.thought_signature):
        return None
    return Signature(issuer=ISSUER, data=part.thought_signature, kind="signature")


def move_signatures(located_parts: list[LocatedPart]) -> list[LocatedPart]:
    """Move signatures of Google's thoughts to the parts where `generateContent` expects them.

    That is the call whose id the thought names, else the first call behind it, else the next text. Each signature is
    moved once.
    """
    moved = list(located_parts)
    for index, located_part in enumerate(located_parts):
        thought = located_part.part
        if type(thought) is not Reasoning or thought.signature is None or thought.signature.issuer != ISSUER:
            continue
        target = _signature_target(thought, index, moved)
        if target is None:
            continue
        part = moved[target].part
        if isinstance(part, ToolCall | Text) and part.signature is None:
            signature = replace(thought.signature, kind="signature")
            moved[target] = LocatedPart(replace(part, signature=signature), moved[target].path)
        elif isinstance(part, ToolCall | Text) and not _is_same_signature(part.signature, thought.signature):
            continue
        moved[index] = LocatedPart(
            replace(thought, signature=None, wire_form=(*thought.wire_form, MOVED_SIGNATURE)), located_part.path
        )
    return moved


def _signature_target(reasoning: Reasoning, index: int, located_parts: list[LocatedPart]) -> int | None:
    """Return the index of the part that takes the signature of the thought at `index`, or None."""
    text_index = None
    call_index = None
    for position in range(index + 1, len(located_parts)):
        part = located_parts[position].part
        if isinstance(part, ToolCall) and part.executor == "client":
            if reasoning.id is not None and part.id == reasoning.id:
                return position
            call_index = position if call_index is None else call_index
        elif isinstance(part, Text) and part.text and text_index is None:
            text_index = position
        elif isinstance(part, Reasoning) and part.signature is not None and call_index is None:
            return None  # the parts after a later thought belong to that thought
    return call_index if call_index is not None else text_index


def _is_same_signature(first: Signature | None, second: Signature) -> bool:
    """Compare two signatures by their decoded bytes."""
    return first is not None and signature_bytes(first.data) == signature_bytes(second.data)
