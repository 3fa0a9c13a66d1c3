"""Tunnels through proxies: `CONNECT` of HTTP/1.1."""

import asyncio
import os
import re
import ssl
from typing import cast

from toolwire.upstream.network import ProxyAddress, parse_proxy
from toolwire.upstream.provider import Origin

_LIMIT_HEAD = 16 * 1024


class _Tunnel(asyncio.Protocol):
    """Requests a tunnel from a proxy, and reads the head of its response."""

    def __init__(self, request: bytes, loop: asyncio.AbstractEventLoop) -> None:
        self._request = request
        self._head = b""
        self.status_line: asyncio.Future[str] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Read up to the end of the head. A server sends nothing before it gets a request."""
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if end and not rest:
            self._finish(head.partition(b"\r\n")[0].decode("latin-1"))
        elif end or len(self._head) > _LIMIT_HEAD:
            self._finish("")

    def connection_lost(self, error: Exception | None) -> None:
        """End the wait."""
        self._finish("")

    def _finish(self, status_line: str) -> None:
        """Set the first line of the response, unless it is already set."""
        if not self.status_line.done():
            self.status_line.set_result(status_line)


class TunnelRefused(OSError):
    """The proxy did not open a tunnel."""


async def _open_tunnel(proxy: ProxyAddress, host: str, port: int) -> asyncio.Transport:
    """Return a connection to a host through a proxy; raise `OSError` if it can't be opened."""
    loop = asyncio.get_running_loop()
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    head = f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n"
    if proxy.authorization:
        head += f"proxy-authorization: {proxy.authorization}\r\n"
    transport, tunnel = await loop.create_connection(
        lambda: _Tunnel(f"{head}\r\n".encode("latin-1"), loop), proxy.host, proxy.port
    )
    try:
        version, _, status = (await tunnel.status_line).partition(" ")
    except BaseException:
        transport.abort()
        raise
    if not version.startswith("HTTP/") or not status.startswith("2"):
        transport.abort()
        raise TunnelRefused(f"the proxy answered {status[:100]!r}" if status else "the proxy sent no valid answer")
    return transport


async def connect_through_proxy(origin: Origin, protocol: asyncio.Protocol, context: ssl.SSLContext | None) -> None:
    """Connect a protocol to an origin through its proxy, with TLS if there is a context."""
    tunnel = await _open_tunnel(parse_proxy(origin.network.proxy or ""), origin.host, origin.port)
    try:
        if context is None:
            tunnel.set_protocol(protocol)
        else:
            start_tls = asyncio.get_running_loop().start_tls
            encrypted = await start_tls(tunnel, protocol, context, server_hostname=origin.host)
            tunnel = cast("asyncio.Transport", encrypted)  # None only after a time-out of its own
    except BaseException:
        tunnel.abort()
        raise
    protocol.connection_made(tunnel)


def describe_failure(origin: Origin, error: OSError) -> str:
    """Describe why a connection failed, and what may help."""
    target = origin.authority
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = "set ca_file if it was issued by an authority of your own"
        return f"can't connect to {target}: its certificate is not trusted ({error.verify_message}); {advice}"
    if origin.network.proxy is not None:
        target += f" through the proxy {parse_proxy(origin.network.proxy).authority}"
    return f"can't connect to {target}: {describe_os_error(error)}"


def describe_os_error(error: OSError) -> str:
    """Return the operating system's text for an error, such as `connection refused`.

    asyncio replaces it with a text of its own, or with a list of texts if a name has several addresses.
    """
    numbers = {error.errno} if error.errno else set(map(int, re.findall(r"\[Errno (\d+)\] Connect call", str(error))))
    if len(numbers) != 1 or "Connect call failed" not in str(error):
        return error.strerror or str(error)
    return os.strerror(numbers.pop()).lower()
