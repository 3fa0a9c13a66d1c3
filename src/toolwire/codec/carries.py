"""Carries: what a client's protocol has no place for, sealed into the field that its clients echo.

Text form `tw1.<key id>.<mac>.<payload>`, the last two in base64url. The MAC binds the payload to the tenant, the realm
and model that issued what is carried, and a digest of the conversation before it, so that a carry of another tenant, a
forged, moved or edited one is simply not a carry: it opens to None, and the caller reports a missing seal. The first
key signs, all keys verify, so that keys can be rotated.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Part, Reasoning
from toolwire.canonical.node import Extras
from toolwire.canonical.request import Request

from .losses import Trail

_PREFIX = "tw1."
_MAC_BYTES = 16


class Carried(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one carry holds: a part of another issuer, whole, and the call id that it stands before."""

    reasoning: Reasoning | None = None
    call_id: str | None = None


class Carrier:
    def __init__(self, keys: Sequence[bytes], tenant: str = "") -> None:
        if not keys:
            raise ValueError("a carrier needs at least one key")
        self._keys = {key_id(key): key for key in keys}
        self._first = key_id(keys[0])
        self._tenant = tenant

    def seal(self, carried: Carried, *, realm: str = "", model: str = "", prefix: str = "") -> str:
        payload = msgspec.json.encode(carried)
        mac = self._mac(self._first, payload, realm, model, prefix)
        return f"{_PREFIX}{self._first}.{_text(mac)}.{_text(payload)}"

    def open(self, text: str, *, realm: str = "", model: str = "", prefix: str = "") -> Carried | None:
        """What was sealed; None if this is no carry of ours, or one of another tenant, realm, model or prefix."""
        if not is_carry(text):
            return None
        try:
            _, name, mac, payload_text = text.split(".")
            payload = _bytes(payload_text)
            if name not in self._keys:
                return None
            if not hmac.compare_digest(self._mac(name, payload, realm, model, prefix), _bytes(mac)):
                return None
            return msgspec.json.decode(payload, type=Carried)
        except (ValueError, msgspec.MsgspecError):
            return None

    def _mac(self, name: str, payload: bytes, *bound: str) -> bytes:
        # Each length stands before its text, so that no two bindings make the same message.
        texts = [text.encode(errors="surrogatepass") for text in (self._tenant, *bound)]
        message = b"".join(len(text).to_bytes(8, "big") + text for text in texts) + payload
        return hmac.digest(self._keys[name], message, "sha256")[:_MAC_BYTES]


def is_carry(text: str) -> bool:
    return text.startswith(_PREFIX)


def key_id(key: bytes) -> str:
    return hashlib.blake2s(key, digest_size=6, person=b"twkeyid").hexdigest()


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _text(data) != text:
        raise ValueError("not the one spelling of these bytes")  # base64 readers skip what they don't know
    return data


# ---- restoring them in a request


def restore_carries(request: Request, carrier: Carrier | None) -> tuple[Request, list[Trail]]:
    """The request with the reasoning that its carries hold, and the trails of the parts that lost their seal.

    A carry that can't be opened is never sent on. It takes all earlier seals with it: an issuer proves its reasoning as
    one chain, and refuses one with a gap.
    """
    sealed = [
        (number, position, part, part.seal.data)
        for number, message in enumerate(request.messages)
        for position, part in enumerate(message.parts)
        if isinstance(part, Reasoning) and part.seal is not None
    ]
    if not any(is_carry(data) for *_, data in sealed):
        return request, []
    restored = [_restored(part, data, carrier) for *_, part, data in sealed]
    gap = max((index for index, part in enumerate(restored) if part is None), default=-1)
    lost: list[Trail] = []
    changed: dict[tuple[int, int], Part] = {}
    for index, (number, position, part, _) in enumerate(sealed):
        found = restored[index] or part
        if index <= gap:
            lost.append(("messages", number, "parts", position))
            found = replace(found, seal=None)
        changed[number, position] = found
    return _with_parts(request, changed), lost


def _restored(part: Reasoning, data: str, carrier: Carrier | None) -> Reasoning | None:
    """What was carried, in the place of what carried it; None if it can't be opened."""
    if not is_carry(data):
        return part
    carried = None if carrier is None else carrier.open(data)
    if carried is None or carried.reasoning is None:
        return None
    # What a client added to the carrying block is still to be reported.
    extras: Extras = {family: dict(kept) for family, kept in (carried.reasoning.extras or {}).items()}
    for family, kept in (part.extras or {}).items():
        extras.setdefault(family, {}).update(kept)
    return replace(carried.reasoning, at=part.at, extras=extras or None)


def _with_parts(request: Request, changed: dict[tuple[int, int], Part]) -> Request:
    messages = list(request.messages)
    for number in {number for number, _ in changed}:
        parts = enumerate(messages[number].parts)
        there = tuple(changed.get((number, position), part) for position, part in parts)
        messages[number] = replace(messages[number], parts=there)
    plain = request.plain and not any(part.extras for part in changed.values())
    return replace(request, messages=tuple(messages), plain=plain)
