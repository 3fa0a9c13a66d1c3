"""Sensitive data in the schemas of a request.

Providers cache and log schemas in other places, and for longer, than messages. Property names, enum and const values,
defaults, examples and patterns should hold no credentials and no personal data.
"""

import re
from collections.abc import Iterator

import msgspec

from .check import Finding, Findings, Path, list_of, object_of, pointer, subschemas, words
from .credentials import find_credentials

_SCHEMA_KEYS = words(
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
    for at, schema in _schemas(body):
        for path, literal in _literals(schema):
            if (kind := _sensitive_kind(literal)) is not None:
                said = f"the schema holds {kind}; providers cache and log schemas apart from messages"
                yield Finding(f"{protocol}.schema-sensitive", pointer((*at, *path)), said, "warning")


def _schemas(body: object) -> Iterator[tuple[Path, object]]:
    """Yield every schema of a tool or a response format, in any protocol. The conversation holds none."""
    waiting: list[tuple[Path, object]] = [((), body)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, list):
            waiting += [((*path, index), item) for index, item in enumerate(value)]
        for key, item in object_of(value).items():
            if key in _SCHEMA_KEYS and isinstance(item, dict):
                yield (*path, key), item
            if not (path == () and key in _CONVERSATION_KEYS):
                waiting.append(((*path, key), item))


def _literals(schema: object) -> Iterator[tuple[Path, str]]:
    for path, part in subschemas(schema):
        for name in object_of(part.get("properties")):
            yield (*path, "properties", name), name
        for key in _LITERALS:
            if key in part:
                yield (*path, key), _text(part[key])
        for key in _LISTED_LITERALS:
            for index, item in enumerate(list_of(part.get(key))):
                yield (*path, key, index), _text(item)


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _sensitive_kind(literal: str) -> str | None:
    if find_credentials(literal.encode(errors="surrogatepass")):
        return "what looks like a credential"
    if _EMAIL.search(literal):
        return "an e-mail address"
    if any(_is_card_number(match[0]) for match in _CARD.finditer(literal)):
        return "what looks like a payment card number"
    return None


def _is_card_number(text: str) -> bool:
    """Whether the digits satisfy the Luhn checksum, as every payment card number does."""
    digits = [int(digit) for digit in text if digit.isdigit()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return len(set(digits)) > 1 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
