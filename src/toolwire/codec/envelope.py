"""Envelopes: signed payloads in a field that clients echo, for data that the client's protocol cannot represent.

The text form is `tw1.<key id>.<mac>.<payload>`, the last two in base64url. Where a field allows only base64, the text
is base64-encoded once more. The HMAC binds the payload to the tenant and to a digest of the preceding conversation. An
envelope that was forged, moved, edited, or made for another tenant opens to None, and the caller reports a missing
signature. The payload names its issuer, a digest of the realm (account) and model that the contents are valid for: the
caller sends them to no other. The first key signs and all keys verify, so that keys can be rotated.
"""

import hashlib
import hmac
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Part, Signature

_PREFIX = "tw1."
_PREFIX_BASE64 = "dHcxL"
_MAC_BYTES = 16


class EnvelopePayload(msgspec.Struct, frozen=True, omit_defaults=True):
    """The contents of one envelope: parts of another issuer, and the signature of a part that cannot hold one."""

    parts: tuple[Part, ...] = ()
    # for each part, calls of the response before it, and characters since the last of them; empty: in place
    positions: tuple[tuple[int, int], ...] = ()
    # belongs to the part that carries the envelope, or, if it stands alone, to the next text or call
    signature: Signature | None = None
    call_name: str | None = None  # the next call of this name owns the signature
    issuer: str = ""  # see `issuer_id`; set when the envelope is sealed


class EnvelopeField(msgspec.Struct, frozen=True, kw_only=True):
    """The field of a protocol in which its clients echo an envelope."""

    issuer: str
    kind: Literal["signature", "encrypted"]
    on_calls: bool = False  # echoed with tool calls, for clients that drop reasoning
    reasoning_first: bool = False  # the protocol puts reasoning before everything else
    base64: bool = False  # the field only allows base64
    binds_ids: bool = False  # items with an id are only valid after the reasoning that preceded them
    placeholder: str | None = None  # a value that the provider accepts for calls that never had a signature

    def encode(self, envelope: str) -> Signature:
        """Return the envelope as a signature in the form that this protocol's clients echo."""
        data = b64encode(envelope.encode()).decode() if self.base64 else envelope
        return Signature(issuer=self.issuer, data=data, kind=self.kind)


class EnvelopeKey:
    """Seals the envelopes of one tenant and one issuer, and opens those of the tenant."""

    def __init__(self, keys: Sequence[bytes], tenant: str = "", *, realm: str = "", model: str = "") -> None:
        given: Any = keys
        if not isinstance(given, Sequence) or not all(isinstance(key, bytes) for key in given):
            raise TypeError("the keys of an envelope key must be a list of bytes")
        if not keys:
            raise ValueError("an envelope key needs at least one secret")
        self._keys = {key_id(key): key for key in keys}
        self._signing_key_id = key_id(keys[0])
        self._tenant = tenant
        self.issuer = issuer_id(realm, model)

    def seal(self, contents: EnvelopePayload, history_digest: str = "") -> str:
        """Sign a payload, bound to the conversation before it (`history_digest`), and return the envelope as text."""
        payload = msgspec.json.encode(replace(contents, issuer=self.issuer))
        mac = self._mac(self._signing_key_id, payload, history_digest)
        return f"{_PREFIX}{self._signing_key_id}.{_encode_base64url(mac)}.{_encode_base64url(payload)}"

    def open(self, text: str, history_digest: str = "") -> EnvelopePayload | None:
        """Verify an envelope and return its payload, whoever issued it.

        Returns None if it is not an envelope, or if it was made for another tenant or conversation.
        """
        if not is_envelope(text):
            return None
        try:
            _, key_name, mac, payload_text = _decode_outer_base64(text).split(".")
            payload = _decode_base64url(payload_text)
            if key_name not in self._keys:
                return None
            if not hmac.compare_digest(self._mac(key_name, payload, history_digest), _decode_base64url(mac)):
                return None
            return msgspec.json.decode(payload, type=EnvelopePayload)
        except (ValueError, msgspec.MsgspecError):
            return None

    def _mac(self, key_name: str, payload: bytes, history_digest: str) -> bytes:
        """Return the HMAC over the payload, the tenant and the conversation that it is bound to."""
        # Length prefixes keep two different bindings from producing the same message.
        texts = [text.encode(errors="surrogatepass") for text in (self._tenant, history_digest)]
        message = b"".join(len(text).to_bytes(8, "big") + text for text in texts) + payload
        return hmac.digest(self._keys[key_name], message, "sha256")[:_MAC_BYTES]


def issuer_id(realm: str, model: str) -> str:
    """Return the issuer id of an account (`realm`) and a model."""
    return hashlib.blake2s(f"{len(realm)}:{realm}{model}".encode(errors="surrogatepass"), digest_size=8).hexdigest()


def is_envelope(text: str) -> bool:
    """Return whether a text looks like a toolwire envelope, plain or in base64 of either alphabet."""
    return text.startswith(_PREFIX) or (
        text.startswith(_PREFIX_BASE64) and _decode_outer_base64(text).startswith(_PREFIX)
    )


def _decode_outer_base64(text: str) -> str:
    """Return the envelope without the base64 layer that some protocols add; empty if the text is no envelope."""
    if text.startswith(_PREFIX):
        return text
    try:
        return _decode_base64url(text.rstrip("=").translate(_URL_SAFE_ALPHABET)).decode()
    except ValueError:
        return ""


_URL_SAFE_ALPHABET = str.maketrans("+/", "-_")


def key_id(key: bytes) -> str:
    """Return the public id of a signing key, by which an envelope names it."""
    return hashlib.blake2s(key, digest_size=6, person=b"twkeyid").hexdigest()


def _encode_base64url(data: bytes) -> str:
    """Encode bytes as base64url without padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode_base64url(text: str) -> bytes:
    """Decode base64url without padding; any other spelling of the same bytes is an error."""
    data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _encode_base64url(data) != text:
        raise ValueError("not canonical base64url")  # the decoder skips unknown characters
    return data
