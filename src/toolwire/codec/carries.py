"""Carries: what a client's protocol has no place for, sealed into the field that its clients echo.

Text form `tw1.<key id>.<mac>.<payload>`, the last two in base64url. The MAC binds the payload to the tenant, so that a
carry of another tenant, a forged or an edited one is simply not a carry: it opens to None, and the caller reports a
missing seal. The first key signs, all keys verify, so that keys can be rotated.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence

import msgspec

from toolwire.canonical.content import Reasoning

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
        self._tenant = tenant.encode()

    def seal(self, carried: Carried) -> str:
        payload = msgspec.json.encode(carried)
        mac = self._mac(self._first, payload)
        return f"{_PREFIX}{self._first}.{_text(mac)}.{_text(payload)}"

    def open(self, text: str) -> Carried | None:
        """What was sealed; None if this is no carry of ours, or not one of this tenant."""
        if not is_carry(text):
            return None
        try:
            _, name, mac, payload_text = text.split(".")
            payload = _bytes(payload_text)
            if name not in self._keys or not hmac.compare_digest(self._mac(name, payload), _bytes(mac)):
                return None
            return msgspec.json.decode(payload, type=Carried)
        except (ValueError, msgspec.MsgspecError):
            return None

    def _mac(self, name: str, payload: bytes) -> bytes:
        message = len(self._tenant).to_bytes(8, "big") + self._tenant + payload
        return hmac.digest(self._keys[name], message, "sha256")[:_MAC_BYTES]


def is_carry(text: str) -> bool:
    return text.startswith(_PREFIX)


def key_id(key: bytes) -> str:
    return hashlib.blake2s(key, digest_size=6, person=b"twkeyid").hexdigest()


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
