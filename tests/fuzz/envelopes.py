"""Envelopes as clients return them: one that was changed opens to nothing, in both forms."""

from base64 import b64encode

from tests.fuzz.engine import Target
from toolwire.canonical.content import Signature, Text
from toolwire.codec.envelope import EnvelopeKey, EnvelopePayload, is_envelope

_KEY = EnvelopeKey([b"k" * 32], "tenant", realm="realm", model="model")
_PAYLOAD = EnvelopePayload(
    parts=(Text("some text"),), positions=((1, 2),), signature=Signature(issuer="google", data="c2ln", kind="signature")
)
_SEALED = _KEY.seal(_PAYLOAD, "digest").encode()
_OPENED = _KEY.open(_SEALED.decode(), "digest")  # the payload, with its issuer
_SEEDS = [_SEALED, b64encode(_SEALED)]
_TOKENS = (
    b"tw1.",
    b"dHcxL",
    b".",
    b"=",
    b"+",
    b"/",
    b"-",
    b"_",
    b"A",
    b"\n",
    b"\xc3\xa9",
    b"\xff",
    b"." * 5,
    b"A" * 100,
)


def _check(data: bytes) -> None:
    if data in _SEEDS:
        assert _OPENED is not None
        assert _OPENED.parts == _PAYLOAD.parts
        assert _KEY.open(data.decode(), "digest") == _OPENED
    for text in (data.decode(errors="replace"), b64encode(data).decode()):
        opened = _KEY.open(text, "digest")
        assert opened is None or (opened == _OPENED and is_envelope(text))
        assert _KEY.open(text, "another conversation") is None


TARGETS = [Target("envelopes", lambda: _SEEDS, _check, _TOKENS)]
