"""HTTP/1.1 transport to upstreams, over TCP or TLS: connection pooling, size limits, timeouts and decompression.

1. A connection carries one request at a time. It returns to the pool only after its response was read to the end.
2. A request that was written is never written again: see `TransportError.sent`. A pooled connection is reused only if
   it has no unread input, such as the peer's close or bytes that belong to no response, and if it was idle for less
   time than the server announced in `Keep-Alive`.
3. Redirects are not followed: the prompt and the key go only to the configured origin.
4. `connect_timeout` limits how long connecting may take, `first_byte_timeout` how long the upstream may take to begin
   its response, and `read_timeout` how long it may send nothing. A reader that stops or is cancelled closes the
   connection.
"""

import asyncio
import errno
import os
import re
import select
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, NoReturn, Protocol, cast

import httptools

from toolwire.upstream.content_encoding import ContentDecoder, ContentEncodingError
from toolwire.upstream.network import NetworkSettings
from toolwire.upstream.provider import Origin
from toolwire.upstream.tunnel import connect_through_proxy, describe_failure

LIMIT_HEAD = 64 * 1024
_LIMIT_COPIED = 16 * 1024  # a larger body is written without joining it to the head
LIMIT_BUFFERED = 256 * 1024
LIMIT_DECODED = 64 * 1024 * 1024
_MAX_ANSWERS = 50  # that are recorded of one request
IDLE_SECONDS = 30.0
IDLE_MARGIN = 1.0
# They close the connection after a stream although they announce `Keep-Alive`: a request sent then would be lost.
_CLOSING_SERVERS = ("llama.cpp",)
IDLE_PER_ORIGIN = 256

_DESCRIPTOR_ERRNOS = (errno.EMFILE, errno.ENFILE)

Headers = Iterable[tuple[str, str]]
_UNSAFE = re.compile(r"[^\x21-\x7e]")
_KEEP_ALIVE_TIMEOUT = re.compile(r"\btimeout=(\d{1,9})", re.ASCII)


class TransportError(Exception):
    """The upstream could not be reached, or the connection failed."""

    def __init__(self, reason: str, *, sent: bool, timed_out: bool = False, exhausted: bool = False) -> None:
        super().__init__(reason)
        # Whether the upstream may have received the request.
        self.sent = sent
        self.timed_out = timed_out
        # Whether this process is out of file descriptors or connections, which is not the upstream's fault.
        self.exhausted = exhausted


class StreamConverter(Protocol):
    """Converts the bytes of a stream; both methods raise ValueError if they are invalid."""

    def feed(self, data: bytes) -> bytes:
        """Convert the next bytes."""

    def close(self) -> None:
        """Check that the stream is complete."""


Arrival = tuple[float, int]
"""Time on the monotonic clock, and size, of a chunk."""


class AnswerRecorder:
    """Records the bodies of a provider's answers to one request, up to a number of bytes in total."""

    def __init__(self, limit: int) -> None:
        self._bytes_left = limit
        self._answers: list[list[bytes]] = []
        self.arrivals: list[list[Arrival]] = []
        """Times and sizes of the chunks of each body."""

    @property
    def bodies(self) -> list[bytes]:
        """The recorded bodies: one for each attempt and each round."""
        return [b"".join(chunks) for chunks in self._answers]

    def start_answer(self) -> Callable[[bytes], None]:
        """Start another answer, and return the function that records its chunks."""
        chunks: list[bytes] = []
        arrivals: list[Arrival] = []
        if len(self._answers) < _MAX_ANSWERS:
            self._answers.append(chunks)
            self.arrivals.append(arrivals)

        def record(data: bytes) -> None:
            """Record a chunk, unless the limit is reached."""
            chunks.append(data[: self._bytes_left])
            self._bytes_left -= len(chunks[-1])
            arrivals.append((time.monotonic(), len(chunks[-1])))

        return record


class _Tap:
    """Passes each converted chunk of a body on, and also to a function."""

    def __init__(self, converter: StreamConverter | None, record: Callable[[bytes], None]) -> None:
        self._converter = converter
        self._record = record

    def feed(self, data: bytes) -> bytes:
        """Convert the next bytes, and pass them on."""
        converted = data if self._converter is None else self._converter.feed(data)
        self._record(converted)
        return converted

    def close(self) -> None:
        """Check that the stream is complete."""
        if self._converter is not None:
            self._converter.close()


class UpstreamResponse:
    """The response of an upstream: status and headers at once, the body as it arrives."""

    def __init__(self, connection: "_Connection", pool: "Transport", read_timeout: float) -> None:
        self.status: int = connection.status
        self.headers: dict[str, str] = connection.headers
        self._connection = connection
        self._pool = pool
        self._read_timeout = read_timeout
        self._open = True
        self._converter: StreamConverter | None = None
        encoding = connection.headers.get("content-encoding")
        self._decoder = None if encoding is None else self._build_decoder(encoding)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the body as it arrives."""
        try:
            while data := await self.next():
                yield data
        finally:
            self.close()

    def convert(self, converter: StreamConverter) -> None:
        """Convert the rest of the body as it is read."""
        self._converter = converter

    def record(self, recorder: AnswerRecorder) -> None:
        """Record the rest of the body as it is read."""
        self._converter = _Tap(self._converter, recorder.start_answer())

    def next(self) -> Awaitable[bytes]:
        """Wait for the next chunk of the body; empty at its end."""
        return self._next_chunk() if self._converter is None else self._next_converted(self._converter)

    def _next_chunk(self) -> Awaitable[bytes]:
        """Wait for the next chunk of the body as the upstream sent it."""
        return self._connection.read(self._read_timeout) if self._decoder is None else self._next_decoded(self._decoder)

    async def _next_converted(self, converter: StreamConverter) -> bytes:
        """Wait for the next chunk that the converter returns."""
        try:
            while data := await self._next_chunk():
                if converted := converter.feed(data):
                    return converted
            converter.close()
        except ValueError as error:
            raise TransportError(f"{self._connection.origin.authority}: {error}", sent=True) from None
        return b""

    async def _next_decoded(self, decoder: ContentDecoder) -> bytes:
        """Wait for the next decoded chunk. Some servers compress although `identity` was requested."""
        try:
            while data := await self._connection.read(self._read_timeout):
                if decoded := decoder.feed(data, LIMIT_DECODED):
                    return decoded
            decoder.close()
        except ContentEncodingError as error:
            raise TransportError(f"{self._connection.origin.authority}: {error}", sent=True) from None
        return b""

    def _build_decoder(self, encoding: str) -> ContentDecoder:
        """Build the decoder for a `Content-Encoding` header."""
        try:
            return ContentDecoder(encoding)
        except ContentEncodingError as error:
            self.close()
            raise TransportError(f"{error}, which was not requested", sent=True) from None

    async def read(self, limit: int) -> bytes:
        """Read the complete body. Raises `TransportError` if it is longer than `limit` bytes."""
        chunks = []
        size = 0
        try:
            while data := await self.next():
                chunks.append(data)
                size += len(data)
                if size > limit:
                    raise TransportError(f"the response is longer than {limit} bytes", sent=True)
                if self._decoder is None and self._connection.is_fully_read:
                    break
        finally:
            self.close()
        return b"".join(chunks) if len(chunks) != 1 else chunks[0]

    def close(self) -> None:
        """Return the connection to the pool if the response was read to its end, else close it."""
        if self._open:
            self._open = False
            self._pool.release(self._connection)


class Transport:
    """A pool of connections to upstreams, optionally limited in number."""

    def __init__(self, max_connections: int | None = None) -> None:
        self._max_connections = max_connections
        self._open: set[_Connection] = set()
        self._idle: dict[Origin, list[_Connection]] = {}
        self._tls: dict[NetworkSettings, ssl.SSLContext] = {}
        self._closed = False

    async def send(
        self,
        origin: Origin,
        head: bytes,
        body: bytes | None,
        *,
        read_timeout: float = 600,
        connect_timeout: float = 10,
        first_byte_timeout: float | None = None,
    ) -> UpstreamResponse:
        """Send one request, with a head from `request_head`, and wait for the head of the response."""
        head += b"\r\n" if body is None else b"content-length: %d\r\n\r\n" % len(body)
        connection = self._take_idle(origin) or await self._connect(origin, connect_timeout)
        try:
            connection.send(head, body)
            await connection.wait_for_head(first_byte_timeout or read_timeout)
        except BaseException:
            connection.abort()
            raise
        return UpstreamResponse(connection, self, read_timeout)

    async def _connect(self, origin: Origin, timeout: float) -> "_Connection":
        """Open a connection to the origin within `timeout` seconds."""
        if self._closed:
            raise TransportError("upstream connections are closed: the gateway is stopping", sent=False)
        if self._max_connections is not None and len(self._open) >= self._max_connections and not self._drop_idle():
            raise TransportError(f"all {len(self._open)} upstream connections are in use", sent=False, exhausted=True)
        loop = asyncio.get_running_loop()
        connection = _Connection(origin, loop, self._open.discard)
        context = self._tls_context(origin) if origin.scheme == "https" else None
        self._open.add(connection)
        try:
            async with asyncio.timeout(timeout):
                if origin.network.proxy is not None:
                    await connect_through_proxy(origin, connection, context)
                else:
                    name = None if context is None else origin.host
                    await loop.create_connection(
                        lambda: connection, origin.host, origin.port, ssl=context, server_hostname=name
                    )
        except TimeoutError:
            reason = f"{origin.authority} did not accept a connection within {timeout:g} seconds"
            raise TransportError(reason, sent=False, timed_out=True) from None
        except OSError as error:
            reason = describe_failure(origin, error)
            exhausted = error.errno in _DESCRIPTOR_ERRNOS or _descriptors_exhausted()
            raise TransportError(reason, sent=False, exhausted=exhausted) from None
        finally:
            if not connection.is_usable:
                self._open.discard(connection)
        return connection

    def _tls_context(self, origin: Origin) -> ssl.SSLContext:
        """Return the TLS context for an origin, which is created once for its settings."""
        settings = origin.network
        if (context := self._tls.get(settings)) is None:
            if _descriptors_exhausted():  # the context would be created without certificates, and kept
                raise TransportError("out of file descriptors", sent=False, exhausted=True)
            try:
                context = self._tls[settings] = settings.tls_context()
            except OSError as error:
                reason = f"can't read ca_file, client_cert or client_key for {origin.authority}: "
                raise TransportError(f"{reason}{error.strerror or error}", sent=False) from None
        return context

    def _drop_idle(self) -> bool:
        """Close one idle connection. Return whether there was one."""
        for idle in self._idle.values():
            if idle:
                connection = idle.pop(0)
                self._open.discard(connection)
                connection.abort()
                return True
        return False

    def _take_idle(self, origin: Origin) -> "_Connection | None":
        """Take an idle connection to the origin from the pool, if there is a usable one."""
        idle = self._idle.get(origin)
        now = time.monotonic()
        while idle:
            connection = idle.pop()
            is_fresh = now - connection.idle_since < connection.idle_limit
            if connection.is_usable and is_fresh and not connection.has_unread_input:
                return connection
            connection.abort()
        return None

    def release(self, connection: "_Connection") -> None:
        """Return a connection to the pool, or close it if it can't be reused."""
        idle = self._idle.setdefault(connection.origin, [])
        if self._closed or not connection.is_reusable or len(idle) >= IDLE_PER_ORIGIN:
            connection.abort()
            return
        connection.idle_since = time.monotonic()
        idle.append(connection)

    def close(self) -> None:
        """Close all connections, also those in use, and open no more."""
        self._closed = True
        for connection in tuple(self._open):
            connection.abort()
        self._idle.clear()


def request_head(origin: Origin, target: str, headers: Headers, method: str = "POST") -> bytes:
    """Encode the head of a request without `Content-Length`, which `Transport.send` adds."""
    if _UNSAFE.search(target):
        raise ValueError("a request target contains white space, control characters or non-ASCII characters")
    lines = [f"{method} {target} HTTP/1.1", f"host: {origin.authority}", "accept-encoding: identity"]
    lines += [f"{name}: {value}" for name, value in headers]
    if any("\n" in line or "\r" in line for line in lines):
        raise ValueError("a header contains a line break")
    return "\r\n".join([*lines, ""]).encode("latin-1")


def _descriptors_exhausted() -> bool:
    """Return True if this process can open no more files, by trying to duplicate a descriptor.

    It is needed after a failed name lookup: which error it raises depends on the system's resolver modules.
    """
    try:
        os.close(os.dup(2))
    except OSError as error:
        return error.errno in _DESCRIPTOR_ERRNOS
    return False


class _Connection(asyncio.Protocol):
    """A connection, and the response that is being read from it."""

    def __init__(
        self, origin: Origin, loop: asyncio.AbstractEventLoop, on_lost: "Callable[[_Connection], None]"
    ) -> None:
        self.origin = origin
        self._on_lost = on_lost
        self.idle_since = 0.0
        self._loop = loop
        self.status = 0
        self.headers: dict[str, str] = {}
        self._transport: asyncio.Transport | None = None
        self._poll = select.poll()
        self._parser: Any = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._waiting_since = self._read_timeout = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._overhead = 0  # bytes received since the last packet that had a part of the body
        self._request_sent = self._head_complete = self._complete = self._keep_alive = self._lost = self._paused = False
        self._failure: TransportError | None = None

    # ---- used by the pool and by responses

    @property
    def is_usable(self) -> bool:
        """Return whether the connection is open."""
        return not self._lost and self._transport is not None and not self._transport.is_closing()

    @property
    def has_unread_input(self) -> bool:
        """Return whether the socket has data, or the end of the stream, that was not read yet."""
        return bool(self._poll.poll(0))

    @property
    def is_fully_read(self) -> bool:
        """Return whether the response was read to its end."""
        return self._complete and not self._chunks

    @property
    def idle_limit(self) -> float:
        """Return the seconds that the connection may be idle: less than the server announced in `Keep-Alive`.

        A server that closes the connection just when a request arrives would leave its outcome unknown.
        """
        announced = _KEEP_ALIVE_TIMEOUT.search(self.headers.get("keep-alive", ""))
        return IDLE_SECONDS if announced is None else min(IDLE_SECONDS, int(announced[1]) - IDLE_MARGIN)

    @property
    def is_reusable(self) -> bool:
        """Return whether the connection can carry another request."""
        return self._keep_alive and self.is_fully_read and self.is_usable and not self._closes_after_stream

    @property
    def _closes_after_stream(self) -> bool:
        """Return whether the server closes the connection after this response without announcing it."""
        return self.headers.get("server") in _CLOSING_SERVERS and "transfer-encoding" in self.headers

    def send(self, head: bytes, body: bytes | None) -> None:
        """Write a request and reset the state of the response."""
        self.status, self.headers = 0, {}
        self._head_complete = self._complete = self._keep_alive = False
        self._request_sent = True
        self._overhead = self._buffered = 0
        self._chunks, self._failure = [], None
        if self._transport is None or self._lost:
            raise TransportError("the connection was closed", sent=False)
        # Write at the end of the event loop's iteration, so that many requests do not delay each other.
        if body and len(body) > _LIMIT_COPIED:
            self._loop.call_soon(self._transport.writelines, (head, body))
        else:
            self._loop.call_soon(self._transport.write, head + body if body else head)

    async def wait_for_head(self, read_timeout: float) -> None:
        """Wait until the head of the response is complete."""
        while not self._head_complete:
            await self._wait_for_data(read_timeout)

    async def read(self, read_timeout: float) -> bytes:
        """Wait for the next part of the body, and return all that has arrived; empty at its end."""
        while not self._chunks:
            if self._complete:
                return b""
            await self._wait_for_data(read_timeout)
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._buffered = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    def abort(self) -> None:
        """Close the connection at once, if it was made."""
        if self._transport is not None:
            self._transport.abort()

    def _wait_for_data(self, read_timeout: float) -> "asyncio.Future[None]":
        """Return a future that is done when data arrives or the connection fails."""
        if self._failure is not None:
            raise self._failure
        if self._lost:
            reason = f"{self.origin.authority} closed the connection before the response was complete"
            raise TransportError(reason, sent=True)
        self._waiter = self._loop.create_future()
        self._waiting_since = time.monotonic()
        if self._timer is None or read_timeout < self._read_timeout:
            self._set_timer(read_timeout)
        self._read_timeout = read_timeout
        return self._waiter

    def _set_timer(self, seconds: float) -> None:
        """Replace the timer, so that the read timeout is checked after `seconds`."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._check_timeout)

    def _check_timeout(self) -> None:
        """Fail if nothing arrived within the read timeout. One timer serves all waits of a connection."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if (remaining := self._waiting_since + self._read_timeout - time.monotonic()) > 0:
            self._set_timer(remaining)
            return
        reason = f"{self.origin.authority} sent nothing for {self._read_timeout:g} seconds"
        self._failure = TransportError(reason, sent=True, timed_out=True)
        self._wake()

    def _wake(self) -> None:
        """Complete the future that a reader waits for, if any."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, and register its socket for `has_unread_input`."""
        self._transport = cast("asyncio.Transport", transport)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, and stop reading while too much of the body is buffered."""
        if not self._request_sent or self._complete:
            self.abort()  # data without a request
            return
        before = self._buffered
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"{self.origin.authority} sent invalid HTTP: {error}")
        after = self._buffered
        if after == before:
            self._count_overhead(len(data))
        else:
            self._overhead = 0
            if after > LIMIT_BUFFERED and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()
        self._wake()

    def _count_overhead(self, size: int) -> None:
        """Count bytes received without any body (headers, trailers, 1xx responses), and fail beyond the limit."""
        self._overhead += size
        if self._overhead > LIMIT_HEAD and not self._complete:
            self._fail(f"{self.origin.authority} sent more than {LIMIT_HEAD} bytes of headers")

    def _fail(self, reason: str) -> None:
        """Record the failure and close the connection."""
        if self._failure is None:
            self._failure = TransportError(reason, sent=True)
        self.abort()

    def eof_received(self) -> bool:
        """End a body that has no declared length, and return False so that asyncio closes the connection."""
        # Without a length, the end of the connection is the end of the body (RFC 9112, section 6.3).
        if self._head_complete and "content-length" not in self.headers and "transfer-encoding" not in self.headers:
            self._complete = True
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Leave the pool, stop the timer, and wake the reader."""
        self._lost = True
        self._on_lost(self)
        self._parser = None
        if self._timer is not None:
            self._timer.cancel()
        self._wake()

    # ---- callbacks of the parser

    def on_message_begin(self) -> None:
        """Reject a second response to the same request."""
        if self._complete:
            self._reject("sent a response without a request")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header of the response; repeated ones are joined by commas, and trailers are ignored."""
        if self._head_complete:
            return  # a trailer
        key, text, headers = name.decode("latin-1").lower(), value.decode("latin-1"), self.headers
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """Check status and transfer encoding of the response, and skip 1xx responses."""
        status = self._parser.get_status_code()
        if status < 100 or status == 101:
            self._reject(f"sent the unexpected status {status:03}")
        if status < 200:  # an informational response: the final one follows
            self.headers = {}
            return
        if self.headers.get("transfer-encoding", "chunked").lower() != "chunked":
            self._reject("sent a transfer-encoding other than chunked")
        self.status = status
        self._head_complete = True

    def _reject(self, reason: str) -> NoReturn:
        """Fail, and stop the parser: the rest of the packet is invalid too."""
        self._fail(f"{self.origin.authority} {reason}")
        raise ValueError(reason)

    def on_body(self, data: bytes) -> None:
        """Buffer a piece of the body."""
        self._chunks.append(data)
        self._buffered += len(data)

    def on_message_complete(self) -> None:
        """Note that the response is complete, and whether the connection stays open."""
        if self._head_complete:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()
