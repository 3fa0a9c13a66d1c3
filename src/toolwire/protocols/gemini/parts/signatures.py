"""Thought signatures: what proves a thought stands on a part, mostly on the first call that it led to."""

from base64 import b64encode, urlsafe_b64decode

from msgspec import UNSET
from msgspec.structs import replace

from toolwire.canonical.content import Reasoning, Signature, Text, ToolCall
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.protocols.gemini.wire import ISSUER, PartShape

MOVED_SIGNATURE = "gemini:handed-on"
"""A thought of Google's whose proof stands on another part."""

_DUMMY_TEXTS = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
DUMMY_SIGNATURE = b64encode(_DUMMY_TEXTS[0].encode()).decode()
"""In place of a signature, where there is none: documented for histories of other models. It proves nothing."""

_URL_SAFE = str.maketrans("+/", "-_")
_MAX_DUMMY_LENGTH = 64
_DUMMY_BYTES = frozenset(text.encode() for text in _DUMMY_TEXTS)
_KNOWN_DUMMIES = frozenset((*_DUMMY_TEXTS, *(b64encode(text).decode() for text in _DUMMY_BYTES)))
_DUMMY_PREFIXES = frozenset(text[:4] for text in _KNOWN_DUMMIES)
"""The same in both alphabets: nearly all signatures are known by them to be none of these."""


def is_dummy(signature: object) -> bool:
    """As it is, or in base64: both are taken."""
    if not isinstance(signature, str) or len(signature) > _MAX_DUMMY_LENGTH:
        return False
    return signature in _KNOWN_DUMMIES or (
        signature[:4] in _DUMMY_PREFIXES and signature_bytes(signature) in _DUMMY_BYTES
    )


def signature_bytes(signature: str) -> bytes:
    """What a signature says, in whichever alphabet and with or without padding; as it is if it is no base64."""
    bare = signature.translate(_URL_SAFE).rstrip("=")
    try:
        return urlsafe_b64decode(bare + "=" * (-len(bare) % 4))
    except ValueError:
        return signature.encode(errors="surrogatepass")


def decode_signature(part: PartShape) -> Signature | None:
    if part.thought_signature is UNSET or is_dummy(part.thought_signature):
        return None
    return Signature(issuer=ISSUER, data=part.thought_signature, kind="signature")


def move_signatures(located_parts: list[LocatedPart]) -> list[LocatedPart]:
    """The parts of one turn with the proofs of Google's other protocols where this one has them: on the first call
    behind the thought, or that whose id it names; else on the next text. Each stands there once."""
    out = list(located_parts)
    for index, placed in enumerate(located_parts):
        thought = placed.part
        if not isinstance(thought, Reasoning) or thought.signature is None or thought.signature.issuer != ISSUER:
            continue
        target = _signature_target(thought, index, out)
        if target is None:
            continue
        part = out[target].part
        if isinstance(part, ToolCall | Text) and part.signature is None:
            seal = replace(thought.signature, kind="signature")
            out[target] = LocatedPart(replace(part, signature=seal), out[target].path)
        elif isinstance(part, ToolCall | Text) and not _is_same_signature(part.signature, thought.signature):
            continue
        out[index] = LocatedPart(
            replace(thought, signature=None, wire_form=(*thought.wire_form, MOVED_SIGNATURE)), placed.path
        )
    return out


def _signature_target(reasoning: Reasoning, index: int, located_parts: list[LocatedPart]) -> int | None:
    text = None
    first = None
    for number in range(index + 1, len(located_parts)):
        part = located_parts[number].part
        if isinstance(part, ToolCall) and part.executor == "client":
            if reasoning.id is not None and part.id == reasoning.id:
                return number
            first = number if first is None else first
        elif isinstance(part, Text) and part.text and text is None:
            text = number
        elif isinstance(part, Reasoning) and part.signature is not None and first is None:
            return None  # a later thought led to what comes
    return first if first is not None else text


def _is_same_signature(first: Signature | None, second: Signature) -> bool:
    return first is not None and signature_bytes(first.data) == signature_bytes(second.data)
