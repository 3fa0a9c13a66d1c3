"""What the headers and the path of a request say: the route of its codec, strictness, and its protocol."""

import re
from functools import lru_cache

from toolwire.canonical.errors import ApiError
from toolwire.codec.interface import Codec, Route
from toolwire.codec.surface import Address
from toolwire.protocols import PROTOCOLS

from .incoming import Scope
from .refusal import Refused

_WORDS = re.compile(rb"[A-Za-z0-9_.,; =-]{1,4096}")
_LIMIT_REMEMBERED = 4096
_HEADERS = {
    name: ((codec.surface.version_header or "").encode(), (codec.surface.passed or "").encode())
    for name, codec in PROTOCOLS.items()
}


def route_of(codec: Codec, address: Address, headers: dict[bytes, bytes]) -> Route:
    """Return the model and the version that a request names outside its body, and the headers that are passed on."""
    version_name, passed_name = _HEADERS[codec.name]
    version, passed = headers.get(version_name, b""), headers.get(passed_name, b"")
    size = len(version) + len(passed) + (0 if address.model is None else len(address.model))
    return (_remembered if size <= _LIMIT_REMEMBERED else _said)(codec.name, address, version, passed)


def _said(protocol: str, address: Address, version: bytes, passed: bytes) -> Route:
    surface = PROTOCOLS[protocol].surface
    told = {
        name: words.decode("ascii")
        for name, words in ((surface.version_header, version), (surface.passed, passed))
        if name is not None and words and _WORDS.fullmatch(words)
    }
    version_told = told.get(surface.version_header or "")
    return Route(model=address.model, stream=address.stream, version=version_told, headers=tuple(told.items()))


_remembered = lru_cache(maxsize=256)(_said)


def is_strict(headers: dict[bytes, bytes]) -> bool:
    """Return whether the client wants a refusal where anything would be lost."""
    wanted = headers.get(b"toolwire-strict")
    if wanted is None:
        return False
    if wanted != b"refuse":  # whoever asks for it relies on it
        why = f"toolwire-strict: {wanted.decode('latin-1')!r} is not known: it is 'refuse' or not sent"
        raise Refused(ApiError(kind="invalid_request", message=why, status=400))
    return True


def speaker(scope: Scope, headers: dict[bytes, bytes]) -> str:
    """Return the protocol in which a request to an address that several share, or none has, is answered."""
    path = scope["path"]
    if b"anthropic-version" in headers:
        return "anthropic"
    if path.startswith("/v1beta/interactions"):
        return "gemini-interactions"
    google = b"x-goog-api-key" in headers or b"key=" in scope["query_string"]
    if google or path.startswith("/v1beta/"):
        return "gemini"
    if path.startswith("/api/v1/"):
        return "openrouter"
    if path.startswith("/api/"):
        return "ollama"
    if path.startswith("/v1/messages"):
        return "anthropic"
    return "openai-responses" if path.startswith("/v1/responses") else "openai-chat"
