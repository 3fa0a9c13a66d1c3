"""Carries: what a client's protocol has no place for, sealed into the field that its clients echo.

Text form `tw1.<key id>.<mac>.<payload>`, the last two in base64url; where only base64 is legal, all of it once more in
base64. The MAC binds the payload to the tenant, the realm and model that issued what is carried, and a digest of the
conversation before it, so that a carry of another tenant or upstream, a forged, moved or edited one is simply not a
carry: it opens to None, and the caller reports a missing seal. The first key signs, all keys verify, so that keys can
be rotated.
"""

import hashlib
import hmac
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Literal

import msgspec

from toolwire.canonical.content import Part, Signature

_PREFIX = "tw1."
_PREFIX_BASE64 = "dHcxL"
_MAC_BYTES = 16


class EnvelopePayload(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one carry holds: parts of another issuer, whole, that stood in its place; and the proof of a part that has
    no place for one. That part is the one that the carry stands on; for a carry that stands alone the next text, or the
    next call of that name. `after` tells where each part stood, if not there: after so many calls of the answer, and so
    many characters since."""

    parts: tuple[Part, ...] = ()
    positions: tuple[tuple[int, int], ...] = ()
    signature: Signature | None = None
    call_name: str | None = None


class EnvelopeField(msgspec.Struct, frozen=True, kw_only=True):
    """The field of a protocol that its clients echo: a proof of reasoning, or one of calls where they drop reasoning.

    `first`: reasoning stands before all that is said, wherever it stood. `blank` is what its provider takes for a proof
    that a call never had.
    """

    issuer: str
    kind: Literal["signature", "encrypted"]
    on_calls: bool = False
    reasoning_first: bool = False
    base64: bool = False
    placeholder: str | None = None

    def encode(self, envelope: str) -> Signature:
        data = b64encode(envelope.encode()).decode() if self.base64 else envelope
        return Signature(issuer=self.issuer, data=data, kind=self.kind)


class EnvelopeKey:
    """Seals and opens carries of one tenant for one upstream."""

    def __init__(self, keys: Sequence[bytes], tenant: str = "", *, realm: str = "", model: str = "") -> None:
        if not keys:
            raise ValueError("a carrier needs at least one key")
        self._keys = {key_id(key): key for key in keys}
        self._signing_key_id = key_id(keys[0])
        self._binding = (tenant, realm, model)

    def seal(self, contents: EnvelopePayload, history_digest: str = "") -> str:
        payload = msgspec.json.encode(contents)
        mac = self._mac(self._signing_key_id, payload, history_digest)
        return f"{_PREFIX}{self._signing_key_id}.{_encode_base64url(mac)}.{_encode_base64url(payload)}"

    def open(self, text: str, history_digest: str = "") -> EnvelopePayload | None:
        """What was sealed; None if this is no carry of ours, or one of another tenant, realm, model or prefix."""
        if not is_envelope(text):
            return None
        try:
            _, name, mac, payload_text = _decode_outer_base64(text).split(".")
            payload = _decode_base64url(payload_text)
            if name not in self._keys:
                return None
            if not hmac.compare_digest(self._mac(name, payload, history_digest), _decode_base64url(mac)):
                return None
            return msgspec.json.decode(payload, type=EnvelopePayload)
        except (ValueError, msgspec.MsgspecError):
            return None

    def _mac(self, key_name: str, payload: bytes, history_digest: str) -> bytes:
        # Each length stands before its text, so that no two bindings make the same message.
        texts = [text.encode(errors="surrogatepass") for text in (*self._binding, history_digest)]
        message = b"".join(len(text).to_bytes(8, "big") + text for text in texts) + payload
        return hmac.digest(self._keys[key_name], message, "sha256")[:_MAC_BYTES]


def is_envelope(text: str) -> bool:
    """Whether it has the form of one, also in base64 of either alphabet."""
    return text.startswith(_PREFIX) or (
        text.startswith(_PREFIX_BASE64) and _decode_outer_base64(text).startswith(_PREFIX)
    )


def _decode_outer_base64(text: str) -> str:
    if text.startswith(_PREFIX):
        return text
    try:
        return _decode_base64url(text.rstrip("=").translate(_URL_SAFE_ALPHABET)).decode()
    except ValueError:
        return ""


_URL_SAFE_ALPHABET = str.maketrans("+/", "-_")


def key_id(key: bytes) -> str:
    return hashlib.blake2s(key, digest_size=6, person=b"twkeyid").hexdigest()


def _encode_base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode_base64url(text: str) -> bytes:
    data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _encode_base64url(data) != text:
        raise ValueError("not the one spelling of these bytes")  # base64 readers skip what they don't know
    return data
