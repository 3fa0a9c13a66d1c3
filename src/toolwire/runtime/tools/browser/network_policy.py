"""Where a browser may go: which addresses, names and schemes.

An address that is not on the public internet is refused, whatever name led to it, unless it was named: by its number or
as `localhost` among the hosts, or by a name that `private` lists. A name among the hosts alone does not open it: who
owns a name decides where it points, and can change that at any moment.
"""

import ipaddress
from fnmatch import fnmatchcase
from functools import cache
from urllib.parse import urlsplit

from msgspec import Struct

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# What `is_global` takes for public, in some Pythons: reserved ranges, relays that lead to any IPv4 address, and
# where a cloud (Azure) answers its own machines.
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
    """What was asked for is not allowed; the message says what and why."""


def is_public(address: IPAddress) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped
        if inner is None and address in NAT64_NETWORK:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not any(address in closed for closed in BLOCKED_NETWORKS)


def parse_ip(host: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def normalize_host(host: str) -> str:
    """One spelling for each host: a final dot, capitals and other alphabets make no second one."""
    address = parse_ip(host)
    if address is not None:
        return str(address)
    host = host.rstrip(".").lower()
    try:
        return host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        return host


class AllowedHost(Struct, frozen=True):
    """`example.com`, `*.example.com`, `10.0.0.5:8080`, `[::1]:80`, `*`."""

    host: str
    port: int | None

    def matches(self, host: str, port: int) -> bool:
        return (self.port is None or self.port == port) and fnmatchcase(host, self.host)

    @property
    def allows_private(self) -> bool:
        return parse_ip(self.host) is not None or self.host == "localhost"


@cache
def parse_allowed_host(text: str) -> AllowedHost:
    if "/" in text or "@" in text or not text:
        raise ValueError(f"an allowed host is a name, perhaps with * and a port, not {text!r}")
    host, separator, port = text.rpartition(":")
    if parse_ip(text) is not None or not separator:
        return AllowedHost(normalize_host(text), None)
    if not port.isdigit():
        raise ValueError(f"the port of an allowed host is a number, not {port!r} in {text!r}")
    return AllowedHost(normalize_host(host), int(port))


class NetworkPolicy(Struct, frozen=True, kw_only=True):
    """`hosts`: where a page may be opened. `resources`: where pages may load from, too. `private`: names that may point
    to private addresses."""

    hosts: tuple[str, ...] = ("*",)
    resource_hosts: tuple[str, ...] = ()
    private_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for text in (*self.hosts, *self.resource_hosts, *self.private_hosts):
            parse_allowed_host(text)

    def navigation_refusal(self, url: str) -> str | None:
        """Why a page may not be opened there, or `None`."""
        try:
            host, port = parse_host_port(url, ("http", "https"))
        except ActionRefused as refused:
            return str(refused)
        if not _matches_any(self.hosts, host, port):
            return f"{host}:{port} is not among the hosts that may be opened"
        address = parse_ip(host)
        return None if address is None else self.address_refusal(host, port, address)

    def request_refusal(self, host: str, port: int) -> str | None:
        """Why nothing may be asked of that host, or `None`; where its name leads is not looked at."""
        host = normalize_host(host)
        if _matches_any(self.hosts, host, port) or _matches_any(self.resource_hosts, host, port):
            return None
        return f"{host}:{port} is not among the hosts that pages may load from"

    def address_refusal(self, host: str, port: int, address: IPAddress) -> str | None:
        """Why a connection to where the name led may not be made, or `None`."""
        host = normalize_host(host)
        if is_public(address) or (self.allows_private(host, port) and (host != "localhost" or address.is_loopback)):
            return None
        return f"{host} is at {address}, which is not on the public internet"

    def allows_private(self, host: str, port: int) -> bool:
        """Whether a host is named in a way that opens what is not on the public internet."""
        host = normalize_host(host)
        entries = [parse_allowed_host(text) for text in (*self.hosts, *self.resource_hosts)]
        return _matches_any(self.private_hosts, host, port) or any(
            one.allows_private and one.matches(host, port) for one in entries
        )


def _matches_any(allowed_hosts: tuple[str, ...], host: str, port: int) -> bool:
    return any(parse_allowed_host(text).matches(host, port) for text in allowed_hosts)


def parse_host_port(url: str, schemes: tuple[str, ...]) -> tuple[str, int]:
    """The host and port of an address of the web."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ActionRefused("this is not the address of a page") from None
    if parts.scheme not in schemes:
        raise ActionRefused(
            f"only {' and '.join(schemes)} addresses can be opened, not {parts.scheme or 'one without'}:"
        )
    if not host:
        raise ActionRefused("the address names no host")
    return normalize_host(host), port or DEFAULT_PORTS[parts.scheme]
