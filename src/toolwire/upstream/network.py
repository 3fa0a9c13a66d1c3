"""Network settings of a provider: a proxy, additional certificate authorities and a client certificate.

The connection is a tunnel through the proxy (`CONNECT`, see `tunnel`), so the proxy sees the provider's host, but
nothing sent over TLS.
"""

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from msgspec import Struct

if TYPE_CHECKING:
    import ssl

DIRECT = "direct"
"""The value of `proxy` that connects to a provider directly and ignores the environment."""

_DEFAULT_PROXY_PORT = 80
_PROXY_VARIABLES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


class NetworkSettings(Struct, frozen=True):
    """The settings of a connection. Connections with different settings are never shared."""

    proxy: str | None = None
    """The URL of a proxy, optionally with user and password; None to connect directly."""
    ca_file: str | None = None
    """Certificate authorities to trust in addition to those of the system, in PEM form."""
    client_cert: str | None = None
    """The certificate chain that authenticates the client to the server, in PEM form."""
    client_key: str | None = None
    """The key of the certificate; None if it is in the same file."""

    def tls_context(self) -> "ssl.SSLContext":
        """Create the context of TLS connections; raise `OSError` if a file is missing or invalid."""
        import ssl  # noqa: PLC0415 - most commands connect to nothing

        context = ssl.create_default_context()
        if self.ca_file is not None:
            context.load_verify_locations(self.ca_file)
            # Since Python 3.13, the default context is strict: it rejects CAs without key usage, which companies use.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.client_cert is not None:
            context.load_cert_chain(self.client_cert, self.client_key)
        return context


class ProxyAddress(Struct, frozen=True):
    """The address of a proxy, and its `Proxy-Authorization` header, empty without one."""

    host: str
    port: int
    authorization: str = ""

    @property
    def authority(self) -> str:
        """Host and port as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_proxy(url: str) -> ProxyAddress:
    """Parse the URL of a proxy; raise `ValueError` if it can't be used."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http":
        raise ValueError(f"a proxy needs a URL with http://, not {parts.scheme}://")
    if not parts.hostname or not url.isprintable():
        raise ValueError("the URL of the proxy has no valid host")
    authorization = ""
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    return ProxyAddress(parts.hostname, parts.port or _DEFAULT_PROXY_PORT, authorization)


def find_proxy(scheme: str, host: str, environment: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment names for a host: `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY`.

    `NO_PROXY` lists hosts that are reached directly, with all names below them; `*` stands for all.
    """
    if not any(name in environment for name in _PROXY_VARIABLES):
        return None
    excluded = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    for entry in excluded.split(","):
        name = entry.strip().rpartition("://")[2].partition("/")[0].removeprefix("*.").lstrip(".").lower()
        name = name.partition(":")[0] if name.count(":") == 1 else name
        if name == "*" or (name and (host == name or host.endswith(f".{name}"))):
            return None
    for variable in (f"{scheme}_proxy", "all_proxy"):
        if url := environment.get(variable) or environment.get(variable.upper()):
            return url
    return None
