"""Thought signatures: what proves a thought stands on a part, mostly on the first call that it led to."""

from base64 import b64encode, urlsafe_b64decode

from msgspec import UNSET
from msgspec.structs import replace

from toolwire.canonical.content import Reasoning, Seal, Text, ToolCall
from toolwire.codec.turns import Placed
from toolwire.protocols.gemini.wire import ISSUER, PartShape

HANDED_ON = "gemini:handed-on"
"""A thought of Google's whose proof stands on another part."""

_NONE = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
DUMMY = b64encode(_NONE[0].encode()).decode()
"""In place of a signature, where there is none: documented for histories of other models. It proves nothing."""

_URL_SAFE = str.maketrans("+/", "-_")
_LONGEST = 64
_DUMMIES = frozenset(text.encode() for text in _NONE)
_USUAL = frozenset((*_NONE, *(b64encode(text).decode() for text in _DUMMIES)))
_BEGINNINGS = frozenset(text[:4] for text in _USUAL)
"""The same in both alphabets: nearly all signatures are known by them to be none of these."""


def is_dummy(signature: object) -> bool:
    """As it is, or in base64: both are taken."""
    if not isinstance(signature, str) or len(signature) > _LONGEST:
        return False
    return signature in _USUAL or (signature[:4] in _BEGINNINGS and signature_bytes(signature) in _DUMMIES)


def signature_bytes(signature: str) -> bytes:
    """What a signature says, in whichever alphabet and with or without padding; as it is if it is no base64."""
    bare = signature.translate(_URL_SAFE).rstrip("=")
    try:
        return urlsafe_b64decode(bare + "=" * (-len(bare) % 4))
    except ValueError:
        return signature.encode(errors="surrogatepass")


def decode_seal(part: PartShape) -> Seal | None:
    if part.thought_signature is UNSET or is_dummy(part.thought_signature):
        return None
    return Seal(issuer=ISSUER, data=part.thought_signature, kind="signature")


def signed(places: list[Placed]) -> list[Placed]:
    """The parts of one turn with the proofs of Google's other protocols where this one has them: on the first call
    behind the thought, or that whose id it names; else on the next text. Each stands there once."""
    out = list(places)
    for index, placed in enumerate(places):
        thought = placed.part
        if not isinstance(thought, Reasoning) or thought.seal is None or thought.seal.issuer != ISSUER:
            continue
        target = _target(thought, index, out)
        if target is None:
            continue
        part = out[target].part
        if isinstance(part, ToolCall | Text) and part.seal is None:
            seal = replace(thought.seal, kind="signature")
            out[target] = Placed(replace(part, seal=seal), out[target].trail)
        elif isinstance(part, ToolCall | Text) and not _same(part.seal, thought.seal):
            continue
        out[index] = Placed(replace(thought, seal=None, form=(*thought.form, HANDED_ON)), placed.trail)
    return out


def _target(thought: Reasoning, index: int, places: list[Placed]) -> int | None:
    text = None
    first = None
    for number in range(index + 1, len(places)):
        part = places[number].part
        if isinstance(part, ToolCall) and part.executor == "client":
            if thought.id is not None and part.id == thought.id:
                return number
            first = number if first is None else first
        elif isinstance(part, Text) and part.text and text is None:
            text = number
        elif isinstance(part, Reasoning) and part.seal is not None and first is None:
            return None  # a later thought led to what comes
    return first if first is not None else text


def _same(one: Seal | None, other: Seal) -> bool:
    return one is not None and signature_bytes(one.data) == signature_bytes(other.data)
