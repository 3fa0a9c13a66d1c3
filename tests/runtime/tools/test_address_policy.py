"""The addresses that may be fetched from."""

import asyncio

import pytest

from toolwire.runtime.tool import ToolError
from toolwire.runtime.tools.http_fetch import AddressRefused, PinnedNetwork, is_public_address, resolve_host

PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "100.100.100.200",
    "169.254.169.254",
    "168.63.129.16",
    "192.0.0.170",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_not_public(address: str) -> None:
    assert not is_public_address(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:1.1.1.1"])
def test_public_addresses_are_public(address: str) -> None:
    assert is_public_address(address)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.1", "127.0.1", "0"),
        *("::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "localhost", "localhost."),
    ],
)
def test_every_notation_of_a_private_address_is_refused(host: str) -> None:
    with pytest.raises(ToolError):
        asyncio.run(PinnedNetwork().connect_tcp(host, 80))


@pytest.mark.parametrize("spelling", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1"])
def test_numeric_hosts_are_checked_as_the_system_resolves_them(spelling: str) -> None:
    assert asyncio.run(resolve_host(spelling, 80)) == ["127.0.0.1"]


def test_one_private_address_refuses_the_host() -> None:
    async def both(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "10.0.0.1"]

    with pytest.raises(AddressRefused, match=r"10\.0\.0\.1 is not a public address"):
        asyncio.run(PinnedNetwork(resolve=both).connect_tcp("example.org", 80))


def test_host_is_resolved_once_and_pinned() -> None:
    lookups = list[str]()

    async def changing(host: str, port: int) -> list[str]:
        lookups.append(host)
        return ["127.0.0.1"]

    async def connected() -> str:
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            network = PinnedNetwork(frozenset({"no-such-name.invalid"}), changing)
            stream = await network.connect_tcp("no-such-name.invalid", port)
            peer = stream.get_extra_info("server_addr")
            await stream.aclose()
            return str(peer[0])

    assert asyncio.run(connected()) == "127.0.0.1"
    assert lookups == ["no-such-name.invalid"]


def test_unix_socket_is_refused() -> None:
    with pytest.raises(ToolError):
        asyncio.run(PinnedNetwork().connect_unix_socket("/var/run/docker.sock"))
