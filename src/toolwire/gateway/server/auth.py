"""Who may ask: keys in any protocol's own header, and who a request to a loopback server may come from."""

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import parse_qs

from msgspec import Struct

_LIMIT_HOST = 300  # a name of 253 characters, a port, and signs
_LOCAL_NAMES = {"localhost", "127.0.0.1", "::1"}


class Principal(Struct, frozen=True):
    """Whose request it is: things made for one key are never shown to another."""

    tenant: str


ANONYMOUS = Principal("")


class Authenticator:
    """Checks keys, if there are any; without keys, that the request was meant for this machine by this machine."""

    def __init__(
        self, keys: Iterable[str], hosts: Iterable[str] = (), origins: Iterable[str] = (), key_share: float = 1.0
    ) -> None:
        self._keys = tuple(key.encode() for key in keys)
        self._principals = tuple(Principal(hashlib.blake2s(key, digest_size=8).hexdigest()) for key in self._keys)
        self._hosts = _LOCAL_NAMES | {host.lower() for host in hosts}
        self._origins = frozenset(origins)
        self._key_share = key_share

    def key_quota(self, limit: int) -> int:
        """Return how many of `limit` places one key may hold: all of them where there is no other key."""
        return limit if len(self._keys) < 2 else max(1, int(limit * self._key_share))

    def authenticate(self, headers: dict[bytes, bytes], query: bytes) -> Principal | None:
        """The caller; None if a key is wanted and there is no right one."""
        if not self._keys:
            return ANONYMOUS
        offered = _presented_keys(headers, query)
        found: Principal | None = None
        for key, caller in zip(self._keys, self._principals, strict=True):  # all of them: time tells nothing
            for one in offered:
                if hmac.compare_digest(one, key):
                    found = caller
        return found

    def rejection_reason(self, headers: dict[bytes, bytes]) -> str | None:
        """Why a request is not for this server to answer: a page in a browser asks under another name or origin."""
        if (origin := headers.get(b"origin")) is not None:
            text = origin.decode("latin-1")
            if text not in self._origins and _host_of(text.partition("://")[2]) not in _LOCAL_NAMES:
                return f"the origin {text!r} is not allowed"
        host = headers.get(b"host", b"").decode("latin-1")
        name = _host_of(host)
        if host and not name:
            return f"the host {host!r} is none"
        if self._keys:
            return None
        if name not in self._hosts:
            return f"the host {host!r} is not allowed"
        return None


def _presented_keys(headers: dict[bytes, bytes], query: bytes) -> list[bytes]:
    found = [headers[name] for name in (b"x-api-key", b"x-goog-api-key", b"api-key") if name in headers]
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        found.append(token.strip())
    if b"key=" in query:
        found += [one.encode() for one in parse_qs(query.decode("latin-1")).get("key", ())]
    return found


def _host_of(authority: str) -> str:
    """The host of `host:port`; empty if it is none."""
    return _parse_host(authority) if len(authority) <= _LIMIT_HOST else ""


@lru_cache(maxsize=256)
def _parse_host(authority: str) -> str:
    if any(sign in authority for sign in "/?#@\\ "):
        return ""
    if authority.startswith("["):
        host, closed, _ = authority[1:].partition("]")
        return host.lower() if closed else ""
    return authority.partition(":")[0].lower()


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
