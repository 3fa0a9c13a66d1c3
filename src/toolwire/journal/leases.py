"""Leases on runs: their terms, the processes that hold them, and the thread that renews them.

A pid identifies a process only within one boot and PID namespace. So only a holder in the same boot and namespace can
be detected as dead; any other holder keeps its lease until it expires.
"""

import contextlib
import os
import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.journal.store import JournalError

_BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"
_PID_NAMESPACE_PATH = "/proc/self/ns/pid"


class LeaseTerms(Struct, frozen=True):
    """The duration of leases, in seconds."""

    seconds: float = 30.0
    """Time until a lease expires."""
    renewal_interval: float = 5.0
    clock: Callable[[], float] | None = None
    """The clock that all holders compare with, in seconds since the epoch. Default: the clock of the database."""


class LeaseHolder(Struct, frozen=True):
    """The process that holds a lease. Fields are empty where the system does not provide them."""

    pid: int
    start_ticks: str = ""
    """Start of the process in clock ticks since boot, since pids are reused."""
    boot_id: str = ""
    pid_namespace: str = ""
    host: str = ""

    def encode(self) -> str:
        """Encode the holder as JSON text, as it is stored with the lease."""
        return msgspec.json.encode(self).decode()

    @property
    def is_local(self) -> bool:
        """True if the pid is meaningful here: same boot and PID namespace."""
        return bool(self.boot_id and self.pid_namespace) and (self.boot_id, self.pid_namespace) == (
            _boot_id(),
            _pid_namespace(),
        )

    @property
    def is_dead(self) -> bool:
        """True if the process has certainly ended."""
        return self.is_local and bool(self.start_ticks) and _process_start(self.pid) != self.start_ticks

    def __str__(self) -> str:
        """Name the process for messages, with its host if it runs elsewhere."""
        return f"process {self.pid}" if self.is_local else f"process {self.pid} on {self.host or 'a machine'}"


def current_holder() -> LeaseHolder:
    """Return this process as a lease holder."""
    pid, host = os.getpid(), platform.node()
    try:
        proc_pid = os.readlink("/proc/self")  # noqa: PTH115 - the target is a pid, not a path
    except OSError:
        proc_pid = ""
    if proc_pid != str(pid):  # no /proc, or that of another PID namespace: pids can't be looked up
        return LeaseHolder(pid, host=host)
    return LeaseHolder(pid, _process_start(pid), _boot_id(), _pid_namespace(), host)


def decode_holder(text: str | None) -> LeaseHolder | None:
    """Decode a stored lease holder; None if there is none or it is not readable."""
    try:
        return None if text is None else msgspec.json.decode(text, type=LeaseHolder)
    except msgspec.MsgspecError:
        return None


def _boot_id() -> str:
    """Return the id that Linux gives this boot of the machine; empty on other systems."""
    try:
        return Path(_BOOT_ID_PATH).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    """Return the name of this process's PID namespace; empty if the system has none."""
    try:
        return os.readlink(_PID_NAMESPACE_PATH)  # noqa: PTH115 - the target is an id, not a path
    except OSError:
        return ""


def _process_start(pid: int) -> str:
    """Return when a process started, as text in clock ticks since boot; empty if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""


class LeaseHeartbeat:
    """A thread that renews this process's leases on the runs of one database, while it holds any.

    `renew` writes the new expiry of leases; a renewal that fails does no harm, because a lease outlasts several.
    """

    def __init__(self, renew: Callable[[Sequence[Mapping[str, Any]]], None], terms: LeaseTerms) -> None:
        self._renew = renew
        self._terms = terms
        self._lock = threading.Lock()
        self._tokens: dict[str, str] = {}
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, run: str, token: str) -> None:
        """Renew the lease of a run from now on; `token` proves that this process holds it."""
        with self._lock:
            self._tokens[token] = run
            if self._thread is None or not self._thread.is_alive():  # threads do not survive a fork
                self._thread = threading.Thread(target=self._renew_leases, name="toolwire-leases", daemon=True)
                self._thread.start()

    def remove(self, token: str) -> None:
        """Stop renewing the lease with this token."""
        with self._lock:
            self._tokens.pop(token, None)

    def close(self) -> None:
        """Signal the thread to stop renewing leases, without waiting for it."""
        self._closing.set()

    def _renew_leases(self) -> None:
        """Renew all held leases at each interval, until closed or none is left, as the body of the thread."""
        while not self._closing.wait(self._terms.renewal_interval):
            with self._lock:
                if not self._tokens:
                    self._thread = None
                    return
                renewals = [{"run": run, "token": token} for token, run in self._tokens.items()]
            with contextlib.suppress(JournalError):
                self._renew(renewals)
