"""Sign-in to the console: the viewer of a page, its session cookie, and its CSRF token.

Without server keys, all users of this machine see everything, because they may use the gateway. With keys, a session
holds the signed digest of a key, so that every worker can check it; it ends when the key is changed or removed.
"""

import hashlib
import hmac
import time
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from msgspec import Struct

from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.server.auth import ANONYMOUS, Authenticator, Principal
from toolwire.upstream.asgi import AsgiRequest

COOKIE = "toolwire_console"
TOKEN_HEADER = "toolwire-console-token"  # noqa: S105 - the name of a header
SESSION_SECONDS = 12 * 3600


class Viewer(Struct, frozen=True):
    """The person in front of a page."""

    principal: Principal
    is_admin: bool
    """Whether the viewer may see the exchanges of all keys, and the status of the gateway."""
    expires_at: float | None = None
    """In seconds since the epoch; None if there is no session to expire."""

    def may_see(self, tenant: str) -> bool:
        """Return whether the viewer may see an exchange of this tenant."""
        return self.is_admin or (bool(tenant) and tenant == self.principal.tenant)

    def is_expired(self) -> bool:
        """Return whether the session has ended, or its key has expired."""
        key = self.principal.key
        return (self.expires_at is not None and time.time() >= self.expires_at) or (
            key is not None and key.is_expired()
        )


class Sessions:
    """Issues and checks the sessions of one gateway; `secret` is shared by its workers."""

    def __init__(self, authenticator: Authenticator, secret: bytes) -> None:
        self._authenticator = authenticator
        self._secret = secret

    @property
    def needs_key(self) -> bool:
        """Return whether viewers must sign in."""
        return self._authenticator.requires_key

    def viewer(self, request: AsgiRequest) -> Viewer | None:
        """Return the viewer of a request; None if it must sign in first."""
        if not self.needs_key:
            return Viewer(ANONYMOUS, is_admin=True)
        content, _, signature = _session_cookie(request).rpartition(".")
        expiry, _, tenant = content.partition(".")
        principal = self._authenticator.find_principal(tenant)
        if principal is None or not hmac.compare_digest(signature.encode(), self._sign_session(content, principal)):
            return None
        if time.time() >= int(expiry):
            return None
        return Viewer(principal, principal.is_admin, float(expiry))

    def sign_in(self, key: str, *, is_secure: bool) -> str | None:
        """Return the cookie of a new session for a key; None if the key is not valid."""
        headers = {b"authorization": b"Bearer " + key.encode("utf-8", "replace")}
        try:
            principal = self._authenticator.authenticate(headers, b"")
        except RequestRejected:  # the key has expired
            return None
        if principal is None:
            return None
        content = f"{int(time.time()) + SESSION_SECONDS}.{principal.tenant}"
        signature = self._sign_session(content, principal).decode()
        return _cookie(f"{content}.{signature}", SESSION_SECONDS, is_secure=is_secure)

    def sign_out(self, *, is_secure: bool) -> str:
        """Return the cookie that ends a session."""
        return _cookie("", 0, is_secure=is_secure)

    def token(self, viewer: Viewer) -> str:
        """Return the CSRF token, which requests that act must carry."""
        return self._sign(f"token {viewer.principal.tenant} {viewer.expires_at}")

    def has_token(self, request: AsgiRequest, viewer: Viewer) -> bool:
        """Return whether a request carries the viewer's token."""
        presented = request.headers.get(TOKEN_HEADER.encode(), b"")
        return hmac.compare_digest(presented, self.token(viewer).encode())

    def _sign_session(self, content: str, principal: Principal) -> bytes:
        """Sign a session. The signature is no longer valid once the secret of its key changes."""
        secret_hash = "" if principal.key is None else principal.key.section.hash
        return self._sign(f"session {content} {secret_hash}").encode()

    def _sign(self, content: str) -> str:
        """Return the signature of a text."""
        return hmac.new(self._secret, content.encode(), hashlib.sha256).hexdigest()


def _session_cookie(request: AsgiRequest) -> str:
    """Return the value of the session cookie; empty if there is none."""
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load(request.header("cookie"))
    except CookieError:
        return ""
    morsel = cookies.get(COOKIE)
    return "" if morsel is None else morsel.value


def _cookie(value: str, seconds: int, *, is_secure: bool) -> str:
    """Return a `Set-Cookie` header."""
    secure = "; Secure" if is_secure else ""
    return f"{COOKIE}={value}; Path=/console; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


def is_same_site(request: AsgiRequest, *, acts: bool) -> bool:
    """Return whether a request comes from the console's own page, as far as the browser states that.

    Reading is possible without these headers, as from a command line; acting needs the token as well.
    """
    fetch_site = request.header("sec-fetch-site")
    if fetch_site and fetch_site != "same-origin" and (acts or fetch_site != "none"):
        return False
    origin = request.header("origin")
    return not origin or urlsplit(origin).netloc == request.header("host")


def is_https(request: AsgiRequest) -> bool:
    """Return whether the page was loaded over TLS, which a proxy in front of the gateway ends."""
    return request.header("origin").startswith("https://")
