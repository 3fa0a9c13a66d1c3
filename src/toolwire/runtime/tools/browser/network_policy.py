"""The network policy of a browser: the hosts, addresses and schemes that it may open.

An address that is not on the public internet is refused, whatever name resolves to it, unless it is allowed
explicitly: as an IP address or `localhost` in `hosts`, or by a name in `private_hosts`. A name in `hosts` is not
enough, because its owner decides where it resolves to, and can change that at any time.
"""

import ipaddress
from fnmatch import fnmatchcase
from functools import cache
from urllib.parse import urlsplit

from msgspec import Struct

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# Networks that some Python versions consider global: reserved ranges, relays to any IPv4 address, and Azure's
# internal services.
BLOCKED_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in (
        "168.63.129.16/32",
        "192.0.0.0/24",
        "192.88.99.0/24",
        "64:ff9b:1::/48",
        "2001::/23",
        "2002::/16",
        "3fff::/20",
        "5f00::/16",
    )
)
NAT64_NETWORK = ipaddress.ip_network("64:ff9b::/96")
DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class ActionRefused(Exception):
    """The action is not allowed; the message says why."""


def is_public(address: IPAddress) -> bool:
    """Return whether an address is on the public internet."""
    if isinstance(address, ipaddress.IPv6Address):
        embedded = address.ipv4_mapped
        if embedded is None and address in NAT64_NETWORK:
            embedded = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if embedded is not None:
            return is_public(embedded)
        if address.is_site_local:
            return False
    return (
        address.is_global and not address.is_multicast and not any(address in network for network in BLOCKED_NETWORKS)
    )


def parse_ip(host: str) -> IPAddress | None:
    """Parse an IP address; None if it is a name."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def normalize_host(host: str) -> str:
    """Return the canonical spelling of a host: lower case, no final dot, IDNA-encoded."""
    address = parse_ip(host)
    if address is not None:
        return str(address)
    host = host.rstrip(".").lower()
    try:
        return host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        return host


class AllowedHost(Struct, frozen=True):
    """An entry of an allowlist: `example.com`, `*.example.com`, `10.0.0.5:8080`, `[::1]:80` or `*`."""

    host: str
    port: int | None

    def matches(self, host: str, port: int) -> bool:
        """Return True if the entry covers this host and port."""
        return (self.port is None or self.port == port) and fnmatchcase(host, self.host)

    @property
    def allows_private(self) -> bool:
        """Return whether the entry is explicit enough to allow a private address."""
        return parse_ip(self.host) is not None or self.host == "localhost"


@cache
def parse_allowed_host(text: str) -> AllowedHost:
    """Parse an entry of an allowlist."""
    if "/" in text or "@" in text or not text:
        raise ValueError(f"invalid host {text!r}: expected a name, optionally with * and a port")
    host, separator, port = text.rpartition(":")
    if parse_ip(text) is not None or not separator:
        return AllowedHost(normalize_host(text), None)
    if not port.isdigit():
        raise ValueError(f"invalid host {text!r}: the port {port!r} is not a number")
    return AllowedHost(normalize_host(host), int(port))


class NetworkPolicy(Struct, frozen=True, kw_only=True):
    """The hosts that a browser may reach."""

    # Hosts of pages.
    hosts: tuple[str, ...] = ("*",)
    # Further hosts that pages may load resources from.
    resource_hosts: tuple[str, ...] = ()
    # Names that may resolve to private addresses.
    private_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise for an invalid entry of an allowlist."""
        for text in (*self.hosts, *self.resource_hosts, *self.private_hosts):
            parse_allowed_host(text)

    def navigation_refusal(self, url: str) -> str | None:
        """Return why a page may not be opened; None if it may."""
        try:
            host, port = parse_host_port(url, ("http", "https"))
        except ActionRefused as refusal:
            return str(refusal)
        if not _matches_any(self.hosts, host, port):
            return f"{host}:{port} is not an allowed host"
        address = parse_ip(host)
        return None if address is None else self.address_refusal(host, port, address)

    def request_refusal(self, host: str, port: int) -> str | None:
        """Return why nothing may be requested from a host; None if it may. Addresses are not checked."""
        host = normalize_host(host)
        if _matches_any(self.hosts, host, port) or _matches_any(self.resource_hosts, host, port):
            return None
        return f"{host}:{port} is not an allowed host for resources"

    def address_refusal(self, host: str, port: int, address: IPAddress) -> str | None:
        """Return why a connection to a resolved address may not be made; None if it may."""
        host = normalize_host(host)
        if is_public(address) or (self.allows_private(host, port) and (host != "localhost" or address.is_loopback)):
            return None
        return f"{host} resolves to {address}, which is not on the public internet"

    def allows_private(self, host: str, port: int) -> bool:
        """Return whether the rules allow this host even if its address is private."""
        host = normalize_host(host)
        entries = [parse_allowed_host(text) for text in (*self.hosts, *self.resource_hosts)]
        return _matches_any(self.private_hosts, host, port) or any(
            entry.allows_private and entry.matches(host, port) for entry in entries
        )


def _matches_any(allowed_hosts: tuple[str, ...], host: str, port: int) -> bool:
    """Return True if an entry of the allowlist covers this host and port."""
    return any(parse_allowed_host(text).matches(host, port) for text in allowed_hosts)


def parse_host_port(url: str, schemes: tuple[str, ...]) -> tuple[str, int]:
    """Return host and port of a URL, or raise `ActionRefused`."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ActionRefused("invalid URL") from None
    if parts.scheme not in schemes:
        scheme = f"{parts.scheme}:" if parts.scheme else "a URL without a scheme"
        raise ActionRefused(f"only {' and '.join(schemes)} URLs can be opened, not {scheme}")
    if not host:
        raise ActionRefused("the URL has no host")
    return normalize_host(host), port or DEFAULT_PORTS[parts.scheme]
