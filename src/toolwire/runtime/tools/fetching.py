"""Fetching one page: every place on the way to it is judged, and what it takes is bounded."""

import asyncio
import codecs
import re
import zlib
from collections.abc import AsyncIterator

import httpcore2
import httpx2

from toolwire.runtime.toolset import ToolFault

from .addresses import PinnedNetwork, resolve
from .page import as_page
from .web_fetch import Fetched, Fetching

MOST_REDIRECTS = 5
_TEXTS = ("text/", "application/json", "application/xml", "application/javascript", "application/x-ndjson")
_TEXT_ENDINGS = ("+json", "+xml")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


async def fetched(fetching: Fetching, url: str) -> Fetched:
    try:
        async with asyncio.timeout(fetching.seconds):
            final, kind, content = await _got(fetching, url)
        text = content.decode(_charset(kind, content), "replace")
        if kind.startswith(("text/html", "application/xhtml+xml")):
            page = await as_page(text)
            return Fetched(url=final, title=page.title, text=page.text)
        return Fetched(url=final, text=text)
    except TimeoutError:
        return Fetched(url=url, fault=f"it took longer than {fetching.seconds:g} seconds")
    except ToolFault as fault:
        return Fetched(url=url, fault=str(fault))
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
        return Fetched(url=url, fault=f"{type(error).__name__}: {error}".rstrip(": "))


async def _got(fetching: Fetching, url: str) -> tuple[str, str, bytes]:
    """Where it was found in the end, what it is, and its bytes. Every place on the way is judged as the first."""
    context = httpcore2.default_ssl_context()
    if fetching.certificates is not None:
        context.load_verify_locations(fetching.certificates)
    network = PinnedNetwork(fetching.exempt, fetching.resolve or resolve)
    place = _checked(url)
    async with httpcore2.AsyncConnectionPool(ssl_context=context, network_backend=network) as pool:
        for _ in range(MOST_REDIRECTS + 1):
            async with pool.stream("GET", str(place), headers=_HEADERS, extensions=_patience(fetching)) as response:
                headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
                if response.status in _REDIRECTS and "location" in headers:
                    place = _checked(str(place.join(headers["location"])))
                    continue
                if response.status != 200:
                    raise ToolFault(f"HTTP status {response.status}", "status")
                kind = headers.get("content-type", "text/plain").lower()
                if not kind.startswith(_TEXTS) and not kind.partition(";")[0].strip().endswith(_TEXT_ENDINGS):
                    raise ToolFault(f"it is {kind}, which is no text", "not_text")
                packed = headers.get("content-encoding", "identity").strip().lower()
                return str(place), kind, await _unpacked(response.aiter_stream(), packed, fetching.most)
    raise ToolFault(f"it is redirected more than {MOST_REDIRECTS} times", "redirects")


# What is not packed can't be a bomb; who packs it all the same is unpacked with care.
_HEADERS: dict[bytes | str, bytes | str] = {
    "User-Agent": "toolwire",
    "Accept": "text/html, text/*;q=0.9, application/json;q=0.8, */*;q=0.1",
    "Accept-Encoding": "identity",
}


def _patience(fetching: Fetching) -> dict[str, dict[str, float]]:
    return {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), fetching.seconds)}


def _checked(url: str) -> httpx2.URL:
    try:
        place = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise ToolFault(f"the URL can't be read: {error}", "url") from error
    if place.scheme not in ("http", "https") or not place.host:
        raise ToolFault(f"only http and https are fetched, not {url[:100]!r}", "url")
    if place.userinfo:
        raise ToolFault("a URL with a user name in it is not fetched: it may hide the real host", "url")
    return place.copy_with(fragment=None)


async def _unpacked(pieces: AsyncIterator[bytes], packing: str, most: int) -> bytes:
    if packing in ("gzip", "x-gzip", "deflate"):
        unpack = zlib.decompressobj(wbits=47 if "gzip" in packing else 15)
    elif packing in ("", "identity"):
        unpack = None
    else:
        raise ToolFault(f"it is packed as {packing}, which was not asked for", "packed")
    found, taken = bytearray(), 0
    async for piece in pieces:
        taken += len(piece)
        try:
            # One byte over the limit is enough to know.
            found += piece if unpack is None else unpack.decompress(piece, most + 1 - len(found))
        except zlib.error as error:
            raise ToolFault(f"it can't be unpacked: {error}", "packed") from error
        if max(taken, len(found)) > most:
            raise ToolFault(f"it has more than {most} bytes", "too_large")
    return bytes(found)


def _charset(kind: str, content: bytes) -> str:
    said = re.search(r"charset=[\"']?([\w-]+)", kind) or re.search(
        r"<meta[^>]{0,200}charset=[\"']?([\w-]+)", content[:2048].decode("latin-1"), re.IGNORECASE
    )
    try:
        return codecs.lookup(said[1]).name if said else "utf-8"
    except LookupError:
        return "utf-8"
