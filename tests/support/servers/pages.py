"""A web server for fetch and search tests, with prepared pages."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

PageHandler = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


class PageServer:
    def __init__(self, pages: dict[str, bytes | PageHandler]) -> None:
        self.pages = pages
        self.request_heads = list[str]()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.request_heads.append(head)
            response = self.pages.get(head.split(" ")[1], b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            if isinstance(response, bytes):
                writer.write(response.replace(b"{port}", str(self.port).encode()))
                await writer.drain()
            else:
                await response(head, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def page_response(
    content: bytes, content_type: str = "text/html; charset=utf-8", status: str = "200 OK", **headers: str
) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + content


@asynccontextmanager
async def serve_pages(pages: dict[str, bytes | PageHandler]) -> AsyncIterator[PageServer]:
    page_server = PageServer(pages)
    server = await asyncio.start_server(page_server.serve, "127.0.0.1", 0)
    page_server.port = server.sockets[0].getsockname()[1]
    async with server:
        yield page_server
