"""Credentials, recognized by their shape: API keys, tokens, private keys.

Each shape is searched for by its prefix. In a large body that is many times faster than a pattern that may match
anywhere.
"""

import re
from collections.abc import Iterator

# Not in the middle of a word; `\n` and `\u00e9` in JSON end in a letter, and are none.
_FREE = rb"(?:(?<![A-Za-z0-9_])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4}))"
_TOKEN = rb"[A-Za-z0-9_-]"
_SHAPES: tuple[tuple[bytes, int, re.Pattern[bytes]], ...] = tuple(
    (prefix, back, re.compile(_FREE + pattern))
    for prefix, back, pattern in (
        (b"sk-", 0, rb"sk-" + _TOKEN + rb"{8,}"),
        (b"AIza", 0, rb"AIza" + _TOKEN + rb"{20,}"),
        (b"earer ", 1, rb"[Bb]earer\s+[A-Za-z0-9._~+/=-]{8,}"),
        (b"gsk_", 0, rb"gsk_" + _TOKEN + rb"{16,}"),
        (b"xai-", 0, rb"xai-" + _TOKEN + rb"{16,}"),
        (b"hf_", 0, rb"hf_[A-Za-z0-9]{16,}"),
        (b"gh", 0, rb"gh[pousr]_[A-Za-z0-9]{20,}"),
        (b"github_pat_", 0, rb"github_pat_" + _TOKEN + rb"{20,}"),
        (b"xox", 0, rb"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
        (b"AKIA", 0, rb"AKIA[0-9A-Z]{16}"),
        (b"ya29.", 0, rb"ya29\." + _TOKEN + rb"{20,}"),
        (b"eyJ", 0, rb"eyJ" + _TOKEN + rb"{10,2000}\.eyJ" + _TOKEN + rb"{10,8000}\." + _TOKEN + rb"{10,}"),
        (
            b"-----BEGIN ",
            0,
            rb"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----(?:[^\"-]|-(?!-)){0,8000}-----END [A-Z ]{0,20}PRIVATE KEY-----",
        ),
    )
)


def find_credentials(data: bytes) -> list[tuple[int, int]]:
    """Return the start and end of everything that looks like a credential, in order; spans may overlap."""
    return sorted(span for prefix, back, pattern in _SHAPES for span in _spans(data, prefix, back, pattern))


def _spans(data: bytes, prefix: bytes, back: int, pattern: re.Pattern[bytes]) -> Iterator[tuple[int, int]]:
    at = data.find(prefix)
    while at >= 0:
        match = pattern.match(data, max(0, at - back))
        if match is not None:
            yield match.span()
        at = data.find(prefix, at + 1 if match is None else match.end())
