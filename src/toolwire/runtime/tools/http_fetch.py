"""HTTP fetching of pages, only from allowed addresses and within limits.

A host name is resolved once, all its addresses are checked, and the connection goes to a checked address: a DNS
answer that changes a moment later has no effect. Numeric addresses in any notation are resolved by the system's
resolver, so the address that is checked is the one that is connected to. Each redirect is checked in the same way.
"""

import asyncio
import codecs
import ipaddress
import re
import socket
import zlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import httpcore2
import httpx2

from toolwire.runtime.tool import ToolError
from toolwire.runtime.tools.html_markdown import convert_in_subprocess
from toolwire.runtime.tools.web_fetch import FetchedPage, FetchOptions, Resolver

_BLOCKED_NETWORKS = tuple(
    ipaddress.ip_network(block)
    for block in (
        "168.63.129.16/32",  # Azure's host services, at a public address
        "192.88.99.0/24",  # 6to4 relays
        "2002::/16",  # 6to4, which embeds IPv4
        "2001::/23",  # Teredo and other special uses
        "fec0::/10",  # site-local
        "::/8",  # embedded IPv4, such as 64:ff9b::/96 (NAT64)
    )
)


class AddressRefused(ToolError):
    """The host has an address that is not public."""

    def __init__(self, host: str, address: str) -> None:
        super().__init__(f"{host} is not allowed: {address} is not a public address", "address")


def is_public_address(address: str) -> bool:
    """Return whether an IP address is public and may be fetched from."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if any(ip.version == block.version and ip in block for block in _BLOCKED_NETWORKS):
        return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified)


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Return the IP addresses of a host, as the system resolves it."""
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


class PinnedNetwork(httpcore2.AsyncNetworkBackend):
    """A network backend that connects only to checked addresses. `exempt_hosts` may have any address."""

    def __init__(self, exempt_hosts: frozenset[str] = frozenset(), resolve: Resolver = resolve_host) -> None:
        self._exempt_hosts, self._resolve = exempt_hosts, resolve
        self._backend = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Resolve the host, check all its addresses, and connect to one of them."""
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise ToolError(f"can't resolve {host}: {error}", "address") from error
        if host not in self._exempt_hosts:
            for address in addresses:
                if not is_public_address(address):
                    raise AddressRefused(host, address)
        failure: Exception = ToolError(f"{host} has no address", "address")
        for address in addresses[:4]:
            try:
                return await self._backend.connect_tcp(address, port, timeout, local_address, socket_options)
            except httpcore2.ConnectError as error:
                failure = error
        raise failure

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Raise `ToolError`: only TCP is supported."""
        raise ToolError("Unix sockets are not supported", "address")

    async def sleep(self, seconds: float) -> None:
        """Wait, as httpcore requires of a backend."""
        await asyncio.sleep(seconds)


MAX_REDIRECTS = 5
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/javascript", "application/x-ndjson")
_TEXT_SUFFIXES = ("+json", "+xml")
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})


async def fetch_page(options: FetchOptions, url: str) -> FetchedPage:
    """Fetch a page as text, HTML converted to Markdown. Errors are returned in the page."""
    try:
        async with asyncio.timeout(options.seconds):
            final_url, content_type, content = await _get(options, url)
        text = content.decode(_charset(content_type, content), "replace")
        if content_type.startswith(("text/html", "application/xhtml+xml")):
            page = await convert_in_subprocess(text)
            return FetchedPage(url=final_url, title=page.title, text=page.text)
        return FetchedPage(url=final_url, text=text)
    except TimeoutError:
        return FetchedPage(url=url, error=f"timed out after {options.seconds:g} seconds")
    except ToolError as error:
        return FetchedPage(url=url, error=str(error))
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
        return FetchedPage(url=url, error=f"{type(error).__name__}: {error}".rstrip(": "))


async def _get(options: FetchOptions, url: str) -> tuple[str, str, bytes]:
    """Follow redirects, each checked like the first URL. Return the final URL, the content type and the content."""
    network = PinnedNetwork(options.exempt_hosts, options.resolve or resolve_host)
    location = _parse_url(url)
    async with httpcore2.AsyncConnectionPool(network_backend=network) as pool:
        for _ in range(MAX_REDIRECTS + 1):
            options.domains.check(str(location))
            async with pool.stream(
                "GET", str(location), headers=_HEADERS, extensions=_timeout_extensions(options)
            ) as response:
                headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
                if response.status in _REDIRECT_STATUSES and "location" in headers:
                    location = _parse_url(str(location.join(headers["location"])))
                    continue
                if response.status != 200:
                    raise ToolError(f"HTTP status {response.status}", "status")
                content_type = headers.get("content-type", "text/plain").lower()
                if not content_type.startswith(_TEXT_TYPES) and not content_type.partition(";")[0].strip().endswith(
                    _TEXT_SUFFIXES
                ):
                    raise ToolError(f"not text: {content_type}", "not_text")
                content_encoding = headers.get("content-encoding", "identity").strip().lower()
                return (
                    str(location),
                    content_type,
                    await _decompress(response.aiter_stream(), content_encoding, options.max_bytes),
                )
    raise ToolError(f"more than {MAX_REDIRECTS} redirects", "redirects")


# Uncompressed bodies can't be decompression bombs. Servers that compress anyway are decompressed with a limit.
_HEADERS: dict[bytes | str, bytes | str] = {
    "User-Agent": "toolwire",
    "Accept": "text/html, text/*;q=0.9, application/json;q=0.8, */*;q=0.1",
    "Accept-Encoding": "identity",
}


def _timeout_extensions(options: FetchOptions) -> dict[str, dict[str, float]]:
    """Return httpcore's request extensions that set all timeouts."""
    return {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), options.seconds)}


def _parse_url(url: str) -> httpx2.URL:
    """Parse a URL; raise `ToolError` if it may not be fetched."""
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise ToolError(f"invalid URL: {error}", "url") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ToolError(f"only http and https URLs can be fetched, not {url[:100]!r}", "url")
    if parsed.userinfo:
        raise ToolError("URLs with a user name are not allowed: they may hide the real host", "url")
    return parsed.copy_with(fragment=None)


async def _decompress(chunks: AsyncIterator[bytes], content_encoding: str, max_bytes: int) -> bytes:
    """Read the body, decompressed, up to `max_bytes`."""
    if content_encoding in ("gzip", "x-gzip", "deflate"):
        decompressor = zlib.decompressobj(wbits=47 if "gzip" in content_encoding else 15)
    elif content_encoding in ("", "identity"):
        decompressor = None
    else:
        raise ToolError(f"unsupported content-encoding {content_encoding!r}", "packed")
    content, received = bytearray(), 0
    async for chunk in chunks:
        received += len(chunk)
        try:
            # One byte over the limit is enough to detect it.
            content += chunk if decompressor is None else decompressor.decompress(chunk, max_bytes + 1 - len(content))
        except zlib.error as error:
            raise ToolError(f"invalid compressed data: {error}", "packed") from error
        if max(received, len(content)) > max_bytes:
            raise ToolError(f"longer than {max_bytes} bytes", "too_large")
    return bytes(content)


def _charset(content_type: str, content: bytes) -> str:
    """Return the charset of the content type or of an HTML meta tag; UTF-8 by default."""
    match = re.search(r"charset=[\"']?([\w-]+)", content_type) or re.search(
        r"<meta[^>]{0,200}charset=[\"']?([\w-]+)", content[:2048].decode("latin-1"), re.IGNORECASE
    )
    try:
        return codecs.lookup(match[1]).name if match else "utf-8"
    except LookupError:
        return "utf-8"
