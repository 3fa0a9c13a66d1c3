"""Authentication: API keys in any protocol's header, and protection of loopback servers from browser pages."""

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import parse_qs

from msgspec import Struct

_LIMIT_HOST = 300  # a name of 253 characters, brackets and a port
_LIMIT_ALLOWED_HOSTS = 256
_LOCAL_NAMES = {"localhost", "127.0.0.1", "::1"}


class Principal(Struct, frozen=True):
    """The caller of a request; data stored for one key is never shown to another."""

    tenant: str
    """A digest of the key; empty for the anonymous caller of a server without keys."""
    is_admin: bool = False
    """Whether the console shows this caller the exchanges of all keys."""


ANONYMOUS = Principal("")


class Authenticator:
    """Checks API keys; without any, checks that a request was made on and for this machine."""

    def __init__(
        self, keys: Iterable[str], hosts: Iterable[str] = (), origins: Iterable[str] = (), key_share: float = 1.0
    ) -> None:
        self._keys = tuple(key.encode() for key in keys)
        self._principals = tuple(Principal(hashlib.blake2s(key, digest_size=8).hexdigest()) for key in self._keys)
        self._hosts = _LOCAL_NAMES | {host.lower() for host in hosts}
        self._origins = frozenset(origins)
        self._allowed_hosts = set[bytes]()  # values of `Host` that passed the check
        self._key_share = key_share

    @property
    def requires_key(self) -> bool:
        """Return whether callers need a key."""
        return bool(self._keys)

    def find_principal(self, tenant: str) -> Principal | None:
        """Return the caller with this digest of a key; None if no key has it."""
        return next((principal for principal in self._principals if principal.tenant == tenant), None)

    def key_quota(self, limit: int) -> int:
        """Return how many of `limit` uses one key may hold; a single key may hold all."""
        return limit if len(self._keys) < 2 else max(1, int(limit * self._key_share))

    def authenticate(self, headers: dict[bytes, bytes], query: bytes) -> Principal | None:
        """Return the caller, or None if a key is required and none of those presented is valid."""
        if not self._keys:
            return ANONYMOUS
        presented = _presented_keys(headers, query)
        principal: Principal | None = None
        for key, candidate in zip(self._keys, self._principals, strict=True):  # constant time: compare all of them
            for presented_key in presented:
                if hmac.compare_digest(presented_key, key):
                    principal = candidate
        return principal

    def rejection_reason(self, headers: dict[bytes, bytes]) -> str | None:
        """Return why a request must be rejected by its Origin or Host header, or None.

        A web page could otherwise reach a loopback server from a browser (DNS rebinding).
        """
        origin, host_header = headers.get(b"origin"), headers.get(b"host", b"")
        if origin is None and host_header in self._allowed_hosts:
            return None
        if origin is not None:
            origin_text = origin.decode("latin-1")
            if origin_text not in self._origins and _host_of(origin_text.partition("://")[2]) not in _LOCAL_NAMES:
                return f"origin {origin_text!r} is not allowed"
        host = host_header.decode("latin-1")
        name = _host_of(host)
        if host and not name:
            return f"invalid host {host!r}"
        if not self._keys and name not in self._hosts:
            return f"host {host!r} is not allowed"
        if len(self._allowed_hosts) < _LIMIT_ALLOWED_HOSTS and len(host_header) <= _LIMIT_HOST:
            self._allowed_hosts.add(host_header)
        return None


def _presented_keys(headers: dict[bytes, bytes], query: bytes) -> list[bytes]:
    """Return the keys in all supported headers and in the `key` query parameter."""
    keys = [headers[name] for name in (b"x-api-key", b"x-goog-api-key", b"api-key") if name in headers]
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        keys.append(token.strip())
    if b"key=" in query:
        keys += [key.encode() for key in parse_qs(query.decode("latin-1")).get("key", ())]
    return keys


def _host_of(authority: str) -> str:
    """Return the lower-case host of `host:port`; empty if it is invalid."""
    return _parse_host(authority) if len(authority) <= _LIMIT_HOST else ""


@lru_cache(maxsize=256)
def _parse_host(authority: str) -> str:
    """Return the host of `host:port` or `[ipv6]:port`; empty if it is invalid."""
    if any(character in authority for character in "/?#@\\ "):
        return ""
    if authority.startswith("["):
        host, bracket, _ = authority[1:].partition("]")
        return host.lower() if bracket else ""
    return authority.partition(":")[0].lower()


def is_loopback(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
