"""Web sites on loopback that record their requests."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec import Struct, field


class SitePage(Struct):
    body: str | bytes = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0


class Site:
    def __init__(self, host: str, port: int, pages: dict[str, str | SitePage]) -> None:
        self.host = host
        self.port = port
        self.pages = pages
        self.requests: list[str] = []

    @property
    def root(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}"


@contextmanager
def serve_site(pages: dict[str, str | SitePage], host: str = "127.0.0.1") -> Iterator[Site]:
    """Serve pages by path, ignoring the query."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            site.requests.append(f"{self.command} {self.path}")
            page = site.pages.get(self.path.partition("?")[0], SitePage("nothing here", status=404))
            answer = page if isinstance(page, SitePage) else SitePage(page)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            time.sleep(answer.delay)
            body = answer.body.encode() if isinstance(answer.body, str) else answer.body
            self.send_response(answer.status)
            headers = {"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store", **answer.headers}
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  the name that the library asks for

        def log_message(self, *_: Any) -> None:
            pass

        def handle(self) -> None:
            with suppress(ConnectionError):  # the browser had enough
                super().handle()

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    site = Site(host, server.server_address[1], pages)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()


class PortTrap:
    """A port that must not receive any TCP or UDP traffic."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections: list[str] = []


@contextmanager
def trap_port(host: str = "127.0.0.1") -> Iterator[PortTrap]:
    with socket.create_server((host, 0)) as stream, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        port = stream.getsockname()[1]
        datagrams.bind((host, port))
        stream.settimeout(0.1)
        datagrams.settimeout(0.1)
        caught = PortTrap(port)
        stop = threading.Event()

        def watch_stream() -> None:
            while not stop.is_set():
                try:
                    connection, _ = stream.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.settimeout(1)
                    try:
                        caught.connections.append("tcp " + connection.recv(100).decode("latin-1").partition("\r")[0])
                    except OSError:
                        caught.connections.append("tcp")

        def watch_datagrams() -> None:
            while not stop.is_set():
                try:
                    datagrams.recvfrom(2000)
                except TimeoutError:
                    continue
                caught.connections.append("udp")

        threads = [threading.Thread(target=watch) for watch in (watch_stream, watch_datagrams)]
        for thread in threads:
            thread.start()
        try:
            yield caught
        finally:
            stop.set()
            for thread in threads:
                thread.join()
