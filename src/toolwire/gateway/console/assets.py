"""The page and its static files, read once from the package, and the headers that isolate it."""

import hashlib
import mimetypes
from functools import lru_cache
from importlib.resources import files

from msgspec import Struct

from toolwire.upstream.asgi import Header

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
SECURITY_HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
PAGE = "index.html"
_MEDIA_TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}


class Asset(Struct, frozen=True):
    """A static file."""

    body: bytes
    headers: tuple[Header, ...]
    etag: bytes


@lru_cache(maxsize=64)
def find_asset(name: str) -> Asset | None:
    """Return a static file by its name; None if there is none."""
    folder = files("toolwire.gateway.console") / "static"
    known = {entry.name: entry for entry in folder.iterdir() if entry.is_file()}
    if (entry := known.get(name)) is None:
        return None
    body = entry.read_bytes()
    suffix = name[name.rfind(".") :]
    media_type = "text/javascript; charset=utf-8" if suffix == ".js" else _MEDIA_TYPES.get(suffix)
    media_type = media_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
    etag = f'"{hashlib.blake2s(body, digest_size=12).hexdigest()}"'.encode()
    headers = ((b"content-type", media_type.encode()), (b"etag", etag), (b"cache-control", b"no-cache"))
    return Asset(body, (*headers, *SECURITY_HEADERS), etag)
