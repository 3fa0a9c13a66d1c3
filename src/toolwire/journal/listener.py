"""Announcements of PostgreSQL (LISTEN and NOTIFY) for waiting coroutines."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from toolwire.journal.postgres import PostgresConnection, PostgresSchema
from toolwire.journal.sqlite_files import DatabaseUnusable

_WAIT_TIMEOUT = 5.0  # seconds after which a follower looks again, in case an announcement was lost
_UNCONNECTED_TIMEOUT = 1.0  # the same while the server can't be reached
_READ_TIMEOUT = 0.5  # seconds between looks at whether the thread should stop


class PostgresListener:
    """A thread that receives announcements and sets the events of those who wait for them; started by the first."""

    def __init__(self, url: str, schema: PostgresSchema, listen: str, timeout: float) -> None:
        """`listen` is the statement that subscribes to a channel."""
        self._url = url
        self._schema = schema
        self._listen_statement = listen
        self._timeout = timeout
        self._lock = threading.Lock()
        self._events: dict[str, dict[asyncio.Event, asyncio.AbstractEventLoop]] = {}
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._is_connected = False

    @contextmanager
    def watch(self, topic: str) -> Iterator[Callable[[], Awaitable[None]]]:
        """Return a function that waits for an announcement since it was called last, for five seconds at most."""
        announced = asyncio.Event()

        async def wait() -> None:
            """Wait for an announcement since the last call."""
            with suppress(TimeoutError):
                async with asyncio.timeout(_WAIT_TIMEOUT if self._is_connected else _UNCONNECTED_TIMEOUT):
                    await announced.wait()
            announced.clear()

        self._add(topic, announced)
        try:
            yield wait
        finally:
            self._remove(topic, announced)

    def _add(self, topic: str, event: asyncio.Event) -> None:
        """Set an event of the running loop whenever rows of this topic are announced."""
        with self._lock:
            self._events.setdefault(topic, {})[event] = asyncio.get_running_loop()
            if self._thread is None:
                self._thread = threading.Thread(target=self._listen, name="toolwire-listener", daemon=True)
                self._thread.start()

    def _remove(self, topic: str, event: asyncio.Event) -> None:
        """Stop setting an event."""
        with self._lock:
            events = self._events[topic]
            del events[event]
            if not events:
                del self._events[topic]

    def close(self) -> None:
        """Stop the thread."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(4 * _READ_TIMEOUT)

    def _listen(self) -> None:
        """Receive announcements until closed, as the body of the thread."""
        connection = PostgresConnection(self._url, self._schema, timeout=self._timeout)
        while not self._closing.is_set():
            try:
                connection.execute(self._listen_statement)
                self._is_connected = True
                for topic in list(self._events):  # announcements before this one were not received
                    self._set_events(topic)
                while not self._closing.is_set():
                    for topic in connection.receive_notifications(_READ_TIMEOUT):
                        self._set_events(topic)
            except DatabaseUnusable:
                self._is_connected = False
                self._closing.wait(_UNCONNECTED_TIMEOUT)
        connection.close()

    def _set_events(self, topic: str) -> None:
        """Set the events of a topic."""
        with self._lock:
            events = list(self._events.get(topic, {}).items())
        for event, loop in events:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(event.set)
