"""Leases: who holds a run, for how long, and whether it is certain that a holder is gone.

A holder renews its leases from a thread of its own. A process number says nothing beyond its own PID namespace, so that
only the death of a process of the same system and namespace is certain; any other holder is believed until its lease
has run out.
"""

import contextlib
import os
import platform
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from .files import DatabaseUnusable, Schema, open_database

_BOOT = "/proc/sys/kernel/random/boot_id"
_NAMESPACE = "/proc/self/ns/pid"
_RENEW = "UPDATE runs SET until = ? WHERE id = ? AND token = ?"


class LeaseTerms(Struct, frozen=True):
    """`seconds` that a lease lasts, and between two renewals. `clock` is that of the day: other machines read it."""

    seconds: float = 30.0
    renewal: float = 5.0
    clock: Callable[[], float] = time.time

    def until(self) -> float:
        return self.clock() + self.seconds


class Holder(Struct, frozen=True):
    """A process. `boot` and `namespace` say where its number means anything; empty where the system does not tell."""

    process: int
    started: str = ""
    boot: str = ""
    namespace: str = ""
    host: str = ""

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def is_near(self) -> bool:
        """Whether its number can be looked up from here."""
        return bool(self.boot and self.namespace) and (self.boot, self.namespace) == (_boot(), _namespace())

    @property
    def is_gone(self) -> bool:
        """Whether it is certain that the process has ended. Numbers come again, moments of start do not."""
        return self.is_near and bool(self.started) and _started(self.process) != self.started

    def __str__(self) -> str:
        return f"process {self.process}" if self.is_near else f"process {self.process} on {self.host or 'a machine'}"


def this_process() -> Holder:
    number, host = os.getpid(), platform.node()
    try:
        seen = os.readlink("/proc/self")  # noqa: PTH115 - it leads to no file
    except OSError:
        seen = ""
    if seen != str(number):  # no /proc, or that of another namespace: numbers can't be looked up
        return Holder(number, host=host)
    return Holder(number, _started(number), _boot(), _namespace(), host)


def decode_holder(text: str | None) -> Holder | None:
    try:
        return None if text is None else msgspec.json.decode(text, type=Holder)
    except msgspec.MsgspecError:  # from before leases
        return None


def _boot() -> str:
    try:
        return Path(_BOOT).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink(_NAMESPACE)  # noqa: PTH115 - it leads to no file
    except OSError:
        return ""


def _started(process: int) -> str:
    """When a process started, in ticks since the system did; empty if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""


class Heartbeat:
    """Renews the leases of one process on the runs of one file, for as long as it holds any."""

    def __init__(self, path: Path, schema: Schema, terms: LeaseTerms) -> None:
        self._path = path
        self._schema = schema
        self._terms = terms
        self._lock = threading.Lock()
        self._tokens: dict[str, str] = {}
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, run: str, token: str) -> None:
        with self._lock:
            self._tokens[token] = run
            if self._thread is None or not self._thread.is_alive():  # a process that forked took none along
                self._thread = threading.Thread(target=self._beat, name="toolwire-leases", daemon=True)
                self._thread.start()

    def remove(self, token: str) -> None:
        with self._lock:
            self._tokens.pop(token, None)

    def close(self) -> None:
        self._closing.set()

    def _beat(self) -> None:
        while not self._closing.wait(self._terms.renewal):
            with self._lock:
                if not self._tokens:
                    self._thread = None
                    return
                held = [(self._terms.until(), run, token) for token, run in self._tokens.items()]
            # A renewal that fails is made up for by the next one: a lease outlasts several.
            with contextlib.suppress(sqlite3.Error, DatabaseUnusable):
                connection = open_database(self._path, self._schema, checked=True)
                with contextlib.closing(connection):
                    connection.executemany(_RENEW, held)
