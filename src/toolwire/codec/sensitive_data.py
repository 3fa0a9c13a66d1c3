"""Credentials and personal data, recognized by their shape.

Each credential pattern is searched for by its prefix, which in a large body is many times faster than a pattern that
may match anywhere. `check_schemas` searches the schemas of a request: providers cache and log them apart from messages,
and for longer. Schemas should hold no credentials and no personal data.
"""

import re
from collections.abc import Iterator

import msgspec

from toolwire.codec.validation import (
    Finding,
    Findings,
    JsonPath,
    json_pointer,
    list_of,
    object_of,
    subschemas,
    word_set,
)

# A word boundary that also holds after JSON escapes such as `\n` and `\u00e9`, which end in a letter.
_WORD_START = rb"(?:(?<![A-Za-z0-9_])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4}))"
_TOKEN_CHARACTER = rb"[A-Za-z0-9_-]"
_CREDENTIAL_PATTERNS: tuple[tuple[bytes, int, re.Pattern[bytes]], ...] = tuple(
    (prefix, back, re.compile(_WORD_START + pattern))
    for prefix, back, pattern in (
        (b"sk-", 0, rb"sk-" + _TOKEN_CHARACTER + rb"{8,}"),
        (b"AIza", 0, rb"AIza" + _TOKEN_CHARACTER + rb"{20,}"),
        (b"earer ", 1, rb"[Bb]earer\s+[A-Za-z0-9._~+/=-]{8,}"),
        (b"gsk_", 0, rb"gsk_" + _TOKEN_CHARACTER + rb"{16,}"),
        (b"xai-", 0, rb"xai-" + _TOKEN_CHARACTER + rb"{16,}"),
        (b"hf_", 0, rb"hf_[A-Za-z0-9]{16,}"),
        (b"gh", 0, rb"gh[pousr]_[A-Za-z0-9]{20,}"),
        (b"github_pat_", 0, rb"github_pat_" + _TOKEN_CHARACTER + rb"{20,}"),
        (b"xox", 0, rb"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
        (b"AKIA", 0, rb"AKIA[0-9A-Z]{16}"),
        (b"ya29.", 0, rb"ya29\." + _TOKEN_CHARACTER + rb"{20,}"),
        (
            b"eyJ",
            0,
            rb"eyJ"
            + _TOKEN_CHARACTER
            + rb"{10,2000}\.eyJ"
            + _TOKEN_CHARACTER
            + rb"{10,8000}\."
            + _TOKEN_CHARACTER
            + rb"{10,}",
        ),
        (
            b"-----BEGIN ",
            0,
            rb"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----(?:[^\"-]|-(?!-)){0,8000}-----END [A-Z ]{0,20}PRIVATE KEY-----",
        ),
    )
)


def find_credentials(data: bytes) -> list[tuple[int, int]]:
    """Return the byte spans (start, end) of everything that looks like a credential, in order; they may overlap."""
    spans: list[tuple[int, int]] = []
    for prefix, back, pattern in _CREDENTIAL_PATTERNS:
        if data.find(prefix) >= 0:  # `in` is slow: it tries the prefix as an integer first, and formats an error
            spans += _find_spans(data, prefix, back, pattern)
    return sorted(spans)


def _find_spans(data: bytes, prefix: bytes, offset: int, pattern: re.Pattern[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the byte spans of one pattern, matched `offset` bytes before each occurrence of its prefix."""
    at = data.find(prefix)
    while at >= 0:
        match = pattern.match(data, max(0, at - offset))
        if match is not None:
            yield match.span()
        at = data.find(prefix, at + 1 if match is None else match.end())


_SCHEMA_KEYS = word_set(
    "parameters parametersJsonSchema parameters_json_schema input_schema inputSchema schema output_schema format "
    "responseSchema responseJsonSchema _responseJsonSchema response_schema response_json_schema"
)
_CONVERSATION_KEYS = frozenset({"messages", "input", "contents", "system", "instructions", "systemInstruction"})
_LITERALS = ("const", "default", "example", "pattern")
_LISTED_LITERALS = ("enum", "examples")
# RFC 2606 reserves these names for examples.
_EMAIL = re.compile(
    r"\b[\w.+-]{1,64}@(?!(?:[\w-]+\.)*(?:example(?:\.\w+)?|test|invalid|localhost)\b)[\w-]+(?:\.[\w-]+)+"
)
_CARD = re.compile(r"(?<![\w.-])(?:\d[ -]?){12,18}\d(?![\w.-])")


def check_schemas(body: object, protocol: str) -> Findings:
    """Warn about credentials, e-mail addresses and payment card numbers in the schemas of a request."""
    for at, schema in _find_schemas(body):
        for path, literal in _find_literals(schema):
            if (kind := _sensitive_kind(literal)) is not None:
                message = f"the schema holds {kind}; providers cache and log schemas apart from messages"
                yield Finding(f"{protocol}.schema-sensitive", json_pointer((*at, *path)), message, "warning")


def _find_schemas(body: object) -> Iterator[tuple[JsonPath, object]]:
    """Yield every schema of a tool or a response format, in any protocol, with its path.

    The conversation itself holds no schemas.
    """
    stack: list[tuple[JsonPath, object]] = [((), body)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, list):
            stack += [((*path, index), item) for index, item in enumerate(value)]
        for key, item in object_of(value).items():
            if key in _SCHEMA_KEYS and isinstance(item, dict):
                yield (*path, key), item
            if not (path == () and key in _CONVERSATION_KEYS):
                stack.append(((*path, key), item))


def _find_literals(schema: object) -> Iterator[tuple[JsonPath, str]]:
    """Yield the property names and literal values of a schema, with their paths."""
    for path, part in subschemas(schema):
        for name in object_of(part.get("properties")):
            yield (*path, "properties", name), name
        for key in _LITERALS:
            if key in part:
                yield (*path, key), _literal_text(part[key])
        for key in _LISTED_LITERALS:
            for index, item in enumerate(list_of(part.get(key))):
                yield (*path, key, index), _literal_text(item)


def _literal_text(value: object) -> str:
    """Return a literal of a schema as text to search: a string itself, any other value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _sensitive_kind(literal: str) -> str | None:
    """Return the kind of sensitive data that a literal holds, as a noun for the message; None if there is none."""
    if find_credentials(literal.encode(errors="surrogatepass")):
        return "what looks like a credential"
    if _EMAIL.search(literal):
        return "an e-mail address"
    if any(is_card_number(match[0]) for match in _CARD.finditer(literal)):
        return "what looks like a payment card number"
    return None


def is_card_number(text: str) -> bool:
    """Return whether the digits satisfy the Luhn checksum, as every payment card number does."""
    digits = [int(digit) for digit in text if digit.isdigit()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return len(digits) >= 13 and len(set(digits)) > 1 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
