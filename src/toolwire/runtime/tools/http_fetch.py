"""Which addresses may be fetched from, and a network that connects to nothing else.

A name is resolved once, every address that it has is judged, and the connection goes to the very address that was
judged: a name that answers differently a moment later changes nothing. Numbers in any spelling are resolved by the
system's own resolver, so what is judged is what would be connected to.

Fetching one page: every place on the way to it is judged, and what it takes is bounded.
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
        "168.63.129.16/32",  # Azure's host, by a public address
        "192.88.99.0/24",  # relays of 6to4
        "2002::/16",  # IPv4 in 6to4
        "2001::/23",  # Teredo and other special uses
        "fec0::/10",
        "::/8",  # IPv4 in its several disguises, 64:ff9b::/96 among them
    )
)


class AddressRefused(ToolError):
    def __init__(self, host: str, address: str) -> None:
        super().__init__(f"{host} is not fetched: {address} is no public address", "address")


def is_public_address(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if any(found.version == block.version and found in block for block in _BLOCKED_NETWORKS):
        return False
    return found.is_global and not (found.is_multicast or found.is_reserved or found.is_unspecified)


async def resolve_host(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


class PinnedNetwork(httpcore2.AsyncNetworkBackend):
    """`exempt` are names of hosts that may have any address."""

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
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise ToolError(f"{host} can't be found: {error}", "address") from error
        if host not in self._exempt_hosts:
            for address in found:
                if not is_public_address(address):
                    raise AddressRefused(host, address)
        failed: Exception = ToolError(f"{host} has no address", "address")
        for address in found[:4]:
            try:
                return await self._backend.connect_tcp(address, port, timeout, local_address, socket_options)
            except httpcore2.ConnectError as error:
                failed = error
        raise failed

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        raise ToolError("only addresses are fetched from", "address")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


MAX_REDIRECTS = 5
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/javascript", "application/x-ndjson")
_TEXT_SUFFIXES = ("+json", "+xml")
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})


async def fetch_page(options: FetchOptions, url: str) -> FetchedPage:
    try:
        async with asyncio.timeout(options.seconds):
            final, kind, content = await _get(options, url)
        text = content.decode(_charset(kind, content), "replace")
        if kind.startswith(("text/html", "application/xhtml+xml")):
            page = await convert_in_subprocess(text)
            return FetchedPage(url=final, title=page.title, text=page.text)
        return FetchedPage(url=final, text=text)
    except TimeoutError:
        return FetchedPage(url=url, error=f"it took longer than {options.seconds:g} seconds")
    except ToolError as fault:
        return FetchedPage(url=url, error=str(fault))
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
        return FetchedPage(url=url, error=f"{type(error).__name__}: {error}".rstrip(": "))


async def _get(options: FetchOptions, url: str) -> tuple[str, str, bytes]:
    """Where it was found in the end, what it is, and its bytes. Every place on the way is judged as the first."""
    network = PinnedNetwork(options.exempt_hosts, options.resolve or resolve_host)
    place = _parse_url(url)
    async with httpcore2.AsyncConnectionPool(network_backend=network) as pool:
        for _ in range(MAX_REDIRECTS + 1):
            async with pool.stream(
                "GET", str(place), headers=_HEADERS, extensions=_timeout_extensions(options)
            ) as response:
                headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
                if response.status in _REDIRECT_STATUSES and "location" in headers:
                    place = _parse_url(str(place.join(headers["location"])))
                    continue
                if response.status != 200:
                    raise ToolError(f"HTTP status {response.status}", "status")
                kind = headers.get("content-type", "text/plain").lower()
                if not kind.startswith(_TEXT_TYPES) and not kind.partition(";")[0].strip().endswith(_TEXT_SUFFIXES):
                    raise ToolError(f"it is {kind}, which is no text", "not_text")
                packed = headers.get("content-encoding", "identity").strip().lower()
                return str(place), kind, await _decompress(response.aiter_stream(), packed, options.max_bytes)
    raise ToolError(f"it is redirected more than {MAX_REDIRECTS} times", "redirects")


# What is not packed can't be a bomb; who packs it all the same is unpacked with care.
_HEADERS: dict[bytes | str, bytes | str] = {
    "User-Agent": "toolwire",
    "Accept": "text/html, text/*;q=0.9, application/json;q=0.8, */*;q=0.1",
    "Accept-Encoding": "identity",
}


def _timeout_extensions(options: FetchOptions) -> dict[str, dict[str, float]]:
    return {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), options.seconds)}


def _parse_url(url: str) -> httpx2.URL:
    try:
        place = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise ToolError(f"the URL can't be read: {error}", "url") from error
    if place.scheme not in ("http", "https") or not place.host:
        raise ToolError(f"only http and https are fetched, not {url[:100]!r}", "url")
    if place.userinfo:
        raise ToolError("a URL with a user name in it is not fetched: it may hide the real host", "url")
    return place.copy_with(fragment=None)


async def _decompress(chunks: AsyncIterator[bytes], content_encoding: str, max_bytes: int) -> bytes:
    if content_encoding in ("gzip", "x-gzip", "deflate"):
        unpack = zlib.decompressobj(wbits=47 if "gzip" in content_encoding else 15)
    elif content_encoding in ("", "identity"):
        unpack = None
    else:
        raise ToolError(f"it is packed as {content_encoding}, which was not asked for", "packed")
    found, taken = bytearray(), 0
    async for piece in chunks:
        taken += len(piece)
        try:
            # One byte over the limit is enough to know.
            found += piece if unpack is None else unpack.decompress(piece, max_bytes + 1 - len(found))
        except zlib.error as error:
            raise ToolError(f"it can't be unpacked: {error}", "packed") from error
        if max(taken, len(found)) > max_bytes:
            raise ToolError(f"it has more than {max_bytes} bytes", "too_large")
    return bytes(found)


def _charset(content_type: str, content: bytes) -> str:
    said = re.search(r"charset=[\"']?([\w-]+)", content_type) or re.search(
        r"<meta[^>]{0,200}charset=[\"']?([\w-]+)", content[:2048].decode("latin-1"), re.IGNORECASE
    )
    try:
        return codecs.lookup(said[1]).name if said else "utf-8"
    except LookupError:
        return "utf-8"
