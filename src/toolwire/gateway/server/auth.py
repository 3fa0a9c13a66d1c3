"""Authentication: API keys in any protocol's header, and protection of loopback servers from browser pages."""

import hashlib
import hmac
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import parse_qs

from msgspec import Struct

from toolwire.canonical.errors import ApiError
from toolwire.codec.interface import Codec
from toolwire.gateway.config import Config, ConfigError
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.keys.client_key import ClientKey, hash_secret
from toolwire.upstream.provider import is_loopback

_LIMIT_HOST = 300  # a name of 253 characters, brackets and a port
_LIMIT_ALLOWED_HOSTS = 256
_LOCAL_NAMES = {"localhost", "127.0.0.1", "::1"}
# The variable from which the clients of a protocol read their key. Anthropic's is the one that is sent as a bearer
# token: Claude Code hides a message that contains "x-api-key", and asks the user to log in.
_KEY_VARIABLES = {
    "anthropic": "ANTHROPIC_AUTH_TOKEN",
    "openai-chat": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "gemini-interactions": "GEMINI_API_KEY",
    "ollama": "OLLAMA_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
}


class Principal(Struct, frozen=True):
    """The caller of a request; data stored for one key is never shown to another."""

    tenant: str
    """A digest of the key; empty for the anonymous caller of a server without keys."""
    is_admin: bool = False
    """Whether the caller may see the data of all keys."""
    key: ClientKey | None = None
    """The key of `[keys]`; None for one of `server.keys`, which has no limits."""


ANONYMOUS = Principal("", is_admin=True)


def secret_tenant(key: bytes) -> str:
    """Return the owner of the data stored for a key of `server.keys`, which has no name."""
    return hashlib.blake2s(key, digest_size=8).hexdigest()


class Authenticator:
    """Checks API keys; without any, checks that a request was made on and for this machine."""

    def __init__(
        self,
        keys: Iterable[str],
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        key_share: float = 1.0,
        client_keys: Iterable[ClientKey] = (),
    ) -> None:
        """`keys` are secrets without rules, `client_keys` those that are known by their hash."""
        self._keys = tuple(key.encode() for key in keys)
        self._client_keys = {
            key.section.hash: Principal(key.tenant, is_admin=key.section.admin, key=key) for key in client_keys
        }
        self._principals = tuple(Principal(secret_tenant(key)) for key in self._keys)
        self._hosts = _LOCAL_NAMES | {host.lower() for host in hosts}
        self._origins = frozenset(origins)
        self._allowed_hosts = set[bytes]()  # values of `Host` that passed the check
        self._key_share = key_share

    @property
    def requires_key(self) -> bool:
        """Return whether callers need a key."""
        return bool(self._keys or self._client_keys)

    def find_principal(self, tenant: str) -> Principal | None:
        """Return the caller with this digest of a key; None if no key has it, or it has expired."""
        principals = (*self._principals, *self._client_keys.values())
        principal = next((one for one in principals if one.tenant == tenant), None)
        if principal is not None and principal.key is not None and principal.key.is_expired():
            return None
        return principal

    def key_names(self) -> dict[str, str]:
        """Return the names of the keys in `[keys]` by tenant."""
        return {one.tenant: one.key.name for one in self._client_keys.values() if one.key is not None}

    def key_quota(self, limit: int) -> int:
        """Return how many of `limit` uses one key may hold; a single key may hold all."""
        return limit if len(self._keys) + len(self._client_keys) < 2 else max(1, int(limit * self._key_share))

    def authenticate(self, headers: dict[bytes, bytes], query: bytes) -> Principal | None:
        """Return the caller, or None if a key is required and none of those presented is valid.

        Raise `RequestRejected` for a key that has expired.
        """
        if not self.requires_key:
            return ANONYMOUS
        presented = _presented_keys(headers, query)
        principal = self._find_client_key(presented)
        for key, candidate in zip(self._keys, self._principals, strict=True):  # constant time: compare all of them
            for presented_key in presented:
                if hmac.compare_digest(presented_key, key):
                    principal = candidate
        return principal

    def is_gateway_key(self, secret: bytes) -> bool:
        """Return whether a secret is a key of this gateway, valid or expired, which is never sent to a provider."""
        matches = [hmac.compare_digest(secret, key) for key in self._keys]  # constant time: compare all of them
        return any(matches) or hash_secret(secret.decode("latin-1")) in self._client_keys

    def _find_client_key(self, presented: list[bytes]) -> Principal | None:
        """Return the caller with one of these secrets; None if their hashes are unknown."""
        for secret in presented if self._client_keys else ():
            principal = self._client_keys.get(hash_secret(secret.decode("latin-1")))
            if principal is not None and principal.key is not None:
                principal.key.check_expiry()
                return principal
        return None

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
        if not self.requires_key and name not in self._hosts:
            return f"host {host!r} is not allowed"
        if len(self._allowed_hosts) < _LIMIT_ALLOWED_HOSTS and len(host_header) <= _LIMIT_HOST:
            self._allowed_hosts.add(host_header)
        return None


def build_authenticator(config: Config, host: str) -> Authenticator:
    """Build the authenticator of a server on this host; one that other machines can reach needs keys."""
    server = config.server
    if not config.requires_key and not is_loopback(host):
        advice = "set server.keys or [keys.NAME], or listen on 127.0.0.1"
        raise ConfigError(f"{host} is reachable from other machines: {advice}")
    client_keys = [ClientKey(name, section) for name, section in config.keys.items()]
    return Authenticator(server.keys, server.hosts, server.origins, config.limits.key_share, client_keys)


def key_rejection(codec: Codec, headers: dict[bytes, bytes], query: bytes) -> RequestRejected:
    """Return the error for a caller without a valid key, with the header in which clients of the protocol send it."""
    problem = "invalid" if any(_presented_keys(headers, query)) else "missing"
    header = "authorization: Bearer KEY" if codec.name == "anthropic" else ": ".join(codec.surface.auth_header("KEY"))
    variable = f" ({_KEY_VARIABLES[codec.name]})" if codec.name in _KEY_VARIABLES else ""
    message = (
        f"{problem} API key: this gateway needs one of its own keys, not a provider's, in the header `{header}`"
        f"{variable}; its operator creates one with `toolwire keys create NAME`"
    )
    return RequestRejected(ApiError(kind="authentication", message=message, status=401))


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
