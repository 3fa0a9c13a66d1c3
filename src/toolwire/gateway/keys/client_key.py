"""A client's key, as `[keys.NAME]` configures it: its secret, the models that it may use, and when it expires."""

import hashlib
import secrets
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError
from toolwire.gateway.config import KeySection
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.exchange.routing import RouteMatch

SECRET_PREFIX = "sk-tw-"  # noqa: S105 - not a secret; with it, redaction recognizes one
_SECRET_BYTES = 32


def create_secret() -> str:
    """Return a new random secret."""
    return SECRET_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def hash_secret(secret: str) -> str:
    """Return the hash of a secret for the configuration. A random secret needs no salt and no slow hash."""
    return f"sha256:{hashlib.sha256(secret.encode()).hexdigest()}"


class ClientKey(Struct, frozen=True):
    """A key by its name, with its section of the configuration."""

    name: str
    section: KeySection

    @property
    def tenant(self) -> str:
        """The owner of the data stored for this key; it stays the same when the secret changes."""
        return hashlib.blake2s(f"key {self.name}".encode(), digest_size=8).hexdigest()

    def is_expired(self, today: date | None = None) -> bool:
        """Return whether the key has expired; it is valid up to the end of its last day (UTC)."""
        expires = self.section.expires
        return expires is not None and (today or datetime.now(UTC).date()) > expires

    def check_expiry(self) -> None:
        """Raise `RequestRejected` if the key has expired."""
        if self.is_expired():
            message = f"the key {self.name!r} expired on {self.section.expires}"
            raise RequestRejected(ApiError(kind="authentication", message=message, status=401))

    def allows(self, *names: str) -> bool:
        """Return whether the key may use a model that has one of these names; without patterns, it may use all."""
        patterns = self.section.models
        return not patterns or any(fnmatchcase(name, pattern) for name in names for pattern in patterns)

    def restrict(self, requested: str | None, match: RouteMatch) -> RouteMatch:
        """Return the match with the backends that the key may use; raise `RequestRejected` if there are none.

        A pattern of `keys.NAME.models` allows the name that the client requests, and then all backends of its route,
        or a backend as `provider/model`.
        """
        if self.allows(requested or ""):
            return match
        allowed = tuple([backend for backend in match.backends if self.allows(backend.name)])
        if not allowed:
            patterns = ", ".join(self.section.models)
            message = f"the key {self.name!r} may not use the model {requested!r}; it may use {patterns}"
            raise RequestRejected(ApiError(kind="permission", message=message, status=403))
        return match if len(allowed) == len(match.backends) else replace(match, backends=allowed)
