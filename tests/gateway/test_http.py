"""The server's side of a connection: what is written together arrives in order, and none of it is lost at the end."""

import asyncio

import pytest

from tests.gateway.running import in_front_of, running
from toolwire.gateway.http import Joining
from toolwire.upstream.provider import Origin


class Writing(asyncio.Protocol):
    """Writes in one turn of the loop, then closes at once or not at all."""

    def __init__(self, *, closes: bool) -> None:
        self._closes = closes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        joining = Joining(transport, asyncio.get_running_loop())
        for piece in (b"one ", b"two ", b"three"):
            joining.write(piece)
        if self._closes:
            joining.close()
            joining.write(b" and too late")


@pytest.mark.parametrize("closes", [True, False])
def test_pieces_arrive_in_order_and_before_the_end(closes: bool) -> None:
    async def work() -> None:
        server = await asyncio.get_running_loop().create_server(lambda: Writing(closes=closes), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            assert await reader.readexactly(13) == b"one two three"
            if closes:
                assert await reader.read() == b""
            writer.close()

    asyncio.run(asyncio.wait_for(work(), 10))


def test_requests_in_a_row_on_one_connection_are_answered_in_order() -> None:
    async def work() -> None:
        async with running(in_front_of(Origin("http", "127.0.0.1", 9))) as place:
            reader, writer = await asyncio.open_connection(place.origin.host, place.origin.port)
            asked = b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n"
            writer.write(asked % b"/healthz" + asked % b"/nowhere" + asked % b"/healthz")
            heads = [await reader.readuntil(b"\r\n\r\n")]
            for _ in range(2):
                length = int(heads[-1].partition(b"content-length: ")[2].partition(b"\r")[0])
                await reader.readexactly(length)
                heads.append(await reader.readuntil(b"\r\n\r\n"))
            assert [head.split()[1] for head in heads] == [b"200", b"404", b"200"]
            writer.close()

    asyncio.run(asyncio.wait_for(work(), 10))
