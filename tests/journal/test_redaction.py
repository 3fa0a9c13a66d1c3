"""Redaction of known secrets and of key-like text."""

import json
import time

import pytest

from toolwire.canonical.errors import Loss
from toolwire.codec.interface import Route
from toolwire.journal.records import Bodies, Record, encode_records
from toolwire.journal.redaction import REDACTED, Redactor, redact_credentials

SHAPED = [
    "sk-ant-api03-abcdefgh_1234",
    "sk-proj-0123456789",
    "AIzaSyA0123456789012345678901234567890",
    "Bearer abc.def-12345",
    "bearer abcdefgh12345",
    "gsk_0123456789abcdefghij",
    "xai-0123456789abcdefghij",
    "hf_0123456789abcdefghij",
    "ghp_0123456789abcdefghijklmnop",
    "github_pat_0123456789abcdefghijklmnop",
    "xoxb-0123456789-abcdef",
    "AKIAIOSFODNN7EXAMPLE",
    "ya29.0123456789abcdefghijklm",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdefghijklmnop",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIB\nAQAB\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("secret", SHAPED)
@pytest.mark.parametrize("before", ["", " ", "=", '"', "\n", "\t", "é"])
def test_key_like_text_is_redacted(secret: str, before: str) -> None:
    text = f"see{before}{secret}" if before else secret
    for data in (text.encode(), json.dumps({"a": text}).encode(), json.dumps({"a": text}, ensure_ascii=False).encode()):
        cleaned = redact_credentials(data)
        assert json.dumps(secret)[1:-1].encode() not in cleaned
        assert secret.encode() not in cleaned
        assert REDACTED.encode() in cleaned
    assert json.loads(redact_credentials(json.dumps({"a": text}).encode()))["a"].endswith(REDACTED)


@pytest.mark.parametrize(
    "text", ["a task-1234567890 in a desk-0123456789", "risk-averse", "sk-short", "the bearer of news", "eyJhbGc.eyJ"]
)
def test_ordinary_text_is_not_redacted(text: str) -> None:
    assert redact_credentials(text.encode()) == text.encode()


@pytest.mark.parametrize("secret", ["plain-secret", 'with"quote\\s', "pässwörter", "a/b c+d=e&f?g"])
def test_known_secret_is_redacted_in_every_encoding(secret: str) -> None:
    redactor = Redactor([secret])
    quoted = json.dumps({"key": secret, "n": 1})
    for text in (secret, quoted, json.dumps({"key": secret}, ensure_ascii=False), f"?key={_quoted(secret)}&a=1"):
        assert REDACTED in redactor.redact_text(f"({text})")
        assert secret not in redactor.redact_text(text)
    assert json.loads(redactor.redact_text(quoted)) == {"key": REDACTED, "n": 1}


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def test_placeholders_stay_and_secrets_may_share_a_prefix() -> None:
    assert Redactor(["any", "none", ""]).redact_text("any company has none") == "any company has none"
    assert Redactor(["secret-key", "secret-key-two"]).redact_text("secret-key-two") == REDACTED


def test_every_text_field_is_redacted() -> None:
    canary = "canary-of-a-key"
    record = Record(
        id="ex_1",
        at=1.0,
        toolwire="0",
        client="gemini",
        path=f"/v1beta/models/{canary}:generateContent",
        route=Route(model=canary),
        model=canary,
        error=f"refused: {canary}",
        losses=[
            Loss(severity="warning", direction="request", kind="dropped", path=f"/{canary}", reason=f"no {canary}")
        ],
    )
    redactor = Redactor([canary])
    assert canary.encode() in encode_records([record])
    assert canary.encode() not in encode_records([redactor.redact_record(record)])
    record.bodies = Bodies(request=canary.encode(), translated=canary.encode(), response=canary.encode())
    assert canary.encode() not in encode_records([redactor.redact_record(record)])


@pytest.mark.parametrize(
    "piece",
    [
        b"sk- gh eyJ bearer earer xox AKIA hf_ ",
        b"-eyJaaaaaaaaaaaa",
        b"-----BEGIN PRIVATE KEY-----",
        b"-----BEGIN AAAA",
        b"bearer  ",
    ],
)
def test_large_body_is_redacted_quickly(piece: bytes) -> None:
    body = piece * (1_000_000 // len(piece))
    began = time.process_time()
    assert redact_credentials(body) == body
    assert time.process_time() - began < 60  # of the processor; looked at again from each place, it would take hours
