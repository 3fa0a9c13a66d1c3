"""Which addresses may be fetched from, and a network that connects to nothing else.

A name is resolved once, every address that it has is judged, and the connection goes to the very address that was
judged: a name that answers differently a moment later changes nothing. Numbers in any spelling are resolved by the
system's own resolver, so what is judged is what would be connected to.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from typing import Any

import httpcore2

from toolwire.runtime.toolset import ToolFault

from .web_fetch import Resolve

_NOT_FOR_US = tuple(
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


class AddressRefused(ToolFault):
    def __init__(self, host: str, address: str) -> None:
        super().__init__(f"{host} is not fetched: {address} is no public address", "address")


def is_public(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if any(found.version == block.version and found in block for block in _NOT_FOR_US):
        return False
    return found.is_global and not (found.is_multicast or found.is_reserved or found.is_unspecified)


async def resolve(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


class PinnedNetwork(httpcore2.AsyncNetworkBackend):
    """`exempt` are names of hosts that may have any address."""

    def __init__(self, exempt: frozenset[str] = frozenset(), resolve: Resolve = resolve) -> None:
        self._exempt, self._resolve = exempt, resolve
        self._below = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface has it
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise ToolFault(f"{host} can't be found: {error}", "address") from error
        if host not in self._exempt:
            for address in found:
                if not is_public(address):
                    raise AddressRefused(host, address)
        failed: Exception = ToolFault(f"{host} has no address", "address")
        for address in found[:4]:
            try:
                return await self._below.connect_tcp(address, port, timeout, local_address, socket_options)
            except httpcore2.ConnectError as error:
                failed = error
        raise failed

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        raise ToolFault("only addresses are fetched from", "address")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
