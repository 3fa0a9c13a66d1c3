"""Ids for calls and responses: legal ids pass unchanged, missing ones are derived, illegal ones are escaped.

Derived ids are stable (the same history gives the same ids) and recognizable, so that they are never sent to a protocol
without call ids.
"""

import hashlib
import re

import msgspec

from toolwire.canonical.request import Request

DERIVED_PREFIX = "call_tw"
ESCAPED_PREFIX = "twx_"
_DIGEST_PREFIX = "twh_"
_DERIVED_ID = re.compile(DERIVED_PREFIX + "[0-9a-f]{24}")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9-]")
_ESCAPED_CHARACTER = re.compile(r"_([0-9a-f]{1,6})_")


def derive_call_id(name: str, arguments: str, *indexes: int) -> str:
    """Derive an id for a call without one: a digest of the call and its position in the conversation."""
    text = "\0".join((name, arguments, *map(str, indexes)))
    return DERIVED_PREFIX + hashlib.blake2s(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()


def derive_response_id(request: Request | None) -> str:
    """Derive an id for a response without one: a digest of the conversation that it continues.

    Clients treat responses with the same id as pieces of one.
    """
    if request is None:
        return "tw"
    return hashlib.blake2s(msgspec.json.encode(request.messages), digest_size=12).hexdigest()


def is_derived_id(id: str) -> bool:
    """Return whether `derive_call_id` made an id; OpenAI's own ids may begin with `call_tw` as well."""
    return id.startswith(DERIVED_PREFIX) and _DERIVED_ID.fullmatch(id) is not None


def legal_id(id: str, pattern: re.Pattern[str], limit: int) -> str:
    """Return the id if the target accepts it, else an escaped form, or a digest if that is too long.

    An id that was escaped for another protocol is restored first.
    """
    id = original_id(id) or id
    if len(id) <= limit and pattern.fullmatch(id):
        return id
    if len(escaped := _escape_id(id)) <= limit:
        return escaped
    return _DIGEST_PREFIX + hashlib.blake2s(id.encode(errors="surrogatepass"), digest_size=12).hexdigest()


def _escape_id(id: str) -> str:
    """Escape characters that some target rejects."""
    return ESCAPED_PREFIX + _ILLEGAL.sub(lambda match: f"_{ord(match[0]):x}_", id)


def original_id(id: str) -> str | None:
    """Return the id before escaping; None if it was not escaped or only a digest is left."""
    if not id.startswith(ESCAPED_PREFIX):
        return None
    try:
        original = _ESCAPED_CHARACTER.sub(lambda match: chr(int(match[1], 16)), id[len(ESCAPED_PREFIX) :])
        original.encode()
    except ValueError:
        return None
    return original if _escape_id(original) == id else None
