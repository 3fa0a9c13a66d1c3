"""Signatures of the simulated model's thinking, and call ids that it recognizes as its own.

Both are a nonce and a MAC. The nonce is a digest of the conversation, so that the same request gets the same bytes.
A signature also covers the thinking that it belongs to; a call id encodes whether thinking preceded the call.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode

from toolwire.canonical.content import Reasoning, ReasoningText, Signature

_DEFAULT_KEY = b"toolwire's simulated model: anyone may know this key"
# The first bytes of each vendor's signatures, which are EqQB..., gAAAA... and CiQB... in base64.
_SIGNATURE_PREFIXES = {"anthropic": b"\x12\xa4\x01", "openai": b"\x80\x00\x00\x00\x00\x00", "google": b"\x0a\x24\x01"}
_NONCE_BYTES = 12
_MAC_BYTES = 20
_ID_MAC_CHARS = 8


class SignatureKey:
    """The key that signs and verifies thinking and call ids."""

    def __init__(self, key: bytes = _DEFAULT_KEY) -> None:
        self._key = key

    def sign(self, issuer: str, nonce: str, bound_text: str = "") -> Signature:
        """Return a signature of the issuer's kind that covers `bound_text`."""
        seed = hashlib.blake2s(nonce.encode(), digest_size=_NONCE_BYTES).digest()
        data = (
            _SIGNATURE_PREFIXES.get(issuer, _SIGNATURE_PREFIXES["openai"])
            + seed
            + self._mac(seed, bound_text, _MAC_BYTES)
        )
        kind = "signature" if issuer in ("anthropic", "google") else "encrypted"
        return Signature(issuer=issuer, data=b64encode(data).decode(), kind=kind)  # type: ignore[arg-type]

    def is_valid(self, data: str, bound_text: str = "") -> bool:
        """Return whether a signature is ours, for this text or for thinking that was not shown.

        Some clients send it in URL-safe base64.
        """
        try:
            decoded = b64decode(data.translate(_URLSAFE_TO_STANDARD) + "=" * (-len(data) % 4), validate=True)
        except ValueError:
            return False
        seed, mac = decoded[-_MAC_BYTES - _NONCE_BYTES : -_MAC_BYTES], decoded[-_MAC_BYTES:]
        return any(hmac.compare_digest(self._mac(seed, text, _MAC_BYTES), mac) for text in (bound_text, ""))

    def make_call_id(self, prefix: str, nonce: str, number: int, *, after_thinking: bool) -> str:
        """Return a call id that encodes the nonce, and whether thinking preceded the call."""
        body = f"{nonce[:12]}{number:04x}"
        return f"{prefix}{body}{self._call_id_mac(body, after_thinking=after_thinking)}"

    def thinking_nonce(self, id: str) -> str | None:
        """Return the nonce in a call id if thinking preceded the call, else None."""
        body, mac = id[-16 - _ID_MAC_CHARS : -_ID_MAC_CHARS], id[-_ID_MAC_CHARS:]
        return (
            body[:12]
            if hmac.compare_digest(self._call_id_mac(body, after_thinking=True).encode(), mac.encode())
            else None
        )

    def _call_id_mac(self, body: str, *, after_thinking: bool) -> str:
        """Return the MAC of a call id, in hex."""
        return self._mac(body.encode(), "thought" if after_thinking else "", _ID_MAC_CHARS // 2).hex()

    def _mac(self, seed: bytes, text: str, size: int) -> bytes:
        return hmac.digest(self._key, seed + b"\0" + text.encode(errors="surrogatepass"), "sha256")[:size]


_URLSAFE_TO_STANDARD = str.maketrans("-_", "+/")


def visible_reasoning(part: Reasoning) -> str:
    """Return the visible text of a reasoning part."""
    return "".join(block.text for block in part.content if isinstance(block, ReasoningText))


def reasoning_item_id(nonce: str) -> str:
    """Return the id of the reasoning item in a response, derived from the nonce in its call ids."""
    return "rs_" + hashlib.blake2s(nonce[:12].encode(), digest_size=24).hexdigest()
