"""A provider's key from a command, such as `gcloud auth print-access-token`, for keys that expire.

The command runs without a shell, in a thread, and never twice at a time: requests that need the key wait for the same
run. Before the key's time is over, a request starts the next run and goes on with the key at hand. What the command
prints is a secret, so that no error quotes it.
"""

import asyncio
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import PurePath
from typing import IO, cast

LIMIT_KEY = 16 * 1024
"""Bytes that a command may print."""

RENEWAL_SHARE = 0.8
"""The share of its `ttl` after which a key is renewed, while requests still use it."""

MIN_INTERVAL = 5.0
"""Seconds until a command that failed, or whose key was rejected, runs again."""


class KeyCommandError(Exception):
    """A command that did not print a key. The message does not contain its output."""


class KeyCommand:
    """The command that prints a provider's key, and the key that it printed last."""

    def __init__(self, command: tuple[str, ...], ttl: float = 300.0, timeout: float = 30.0) -> None:
        """`ttl` is how many seconds a key is used, `timeout` how many the command may take."""
        self._command = command
        self._ttl = ttl
        self._timeout = timeout
        self._lock = threading.Lock()
        self._key: str | None = None
        self._printed_at = 0.0
        self._run: Future[str] | None = None
        self._failure: tuple[float, str] | None = None
        self._observers: list[Callable[[str], None]] = []

    @property
    def program(self) -> str:
        """The name of the program, for messages: arguments may be secret."""
        return PurePath(self._command[0]).name

    def observe(self, on_key: Callable[[str], None]) -> None:
        """Call `on_key` with every key before it is used, in the thread of the command."""
        with self._lock:
            self._observers.append(on_key)
            if self._key is not None:
                on_key(self._key)

    async def current_key(self) -> str:
        """Return the key, running the command if no valid one is known; raise `KeyCommandError` if it fails."""
        with self._lock:
            age = time.monotonic() - self._printed_at
            if self._key is not None and age < self._ttl:
                if age >= self._ttl * RENEWAL_SHARE:
                    self._start()
                return self._key
            run = self._start()
        return await _wait_for(run)

    async def replace_key(self, rejected: str | None) -> str | None:
        """Return a new key in place of the rejected one; None if the command prints the same key again."""
        with self._lock:
            if self._key is not None and self._key != rejected:
                return self._key
            if self._run is None and time.monotonic() - self._printed_at < MIN_INTERVAL:
                return None
            run = self._start()
        key = await _wait_for(run)
        return None if key == rejected else key

    def _start(self) -> "Future[str]":
        """Return the current run, or start one unless the last has just failed. The caller holds the lock."""
        if self._run is not None:
            return self._run
        run: Future[str] = Future()
        run.set_running_or_notify_cancel()  # a request that is cancelled must not cancel it for the others
        if self._failure is not None and time.monotonic() - self._failure[0] < MIN_INTERVAL:
            run.set_exception(KeyCommandError(self._failure[1]))
            return run
        self._run = run
        try:
            threading.Thread(target=self._execute, args=(run,), name="toolwire-key", daemon=True).start()
        except RuntimeError as error:
            self._end(run, None, f"can't start a thread: {error}")
        return run

    def _execute(self, run: "Future[str]") -> None:
        """Run the command in a thread, and publish the key or the failure."""
        key, problem = None, ""
        try:
            key = _read_key(_read_output(self._command, self._timeout))
        except KeyCommandError as error:
            problem = str(error)
        except OSError as error:
            problem = f"can't be started: {error.strerror or error}"
        with self._lock:
            self._end(run, key, f"the command {self.program!r} for its key {problem}")

    def _end(self, run: "Future[str]", key: str | None, problem: str) -> None:
        """Store the key or the failure, and wake the requests that wait for it. The caller holds the lock."""
        self._run = None
        if key is None:
            self._failure = (time.monotonic(), problem)
            run.set_exception(KeyCommandError(problem))
            return
        for on_key in self._observers:
            on_key(key)
        self._key, self._printed_at, self._failure = key, time.monotonic(), None
        run.set_result(key)


async def _wait_for(run: "Future[str]") -> str:
    """Wait for a run of the command, and return its key; raise a new error, since several requests may wait."""
    try:
        return await asyncio.wrap_future(run)
    except KeyCommandError as error:
        raise KeyCommandError(str(error)) from None


def _read_key(output: bytes) -> str:
    """Return the key in the output of a command; raise `KeyCommandError` if it can't be sent in a header."""
    key = output.strip()
    if not key:
        raise KeyCommandError("printed nothing")
    if not all(0x20 < byte < 0x7F for byte in key):
        raise KeyCommandError("printed more than one word, or characters that are not allowed in a header")
    return key.decode("ascii")


def _read_output(command: tuple[str, ...], timeout: float) -> bytes:
    """Run a command, and return what it prints to stdout; raise `KeyCommandError` if it fails."""
    deadline = time.monotonic() + timeout
    with subprocess.Popen(  # noqa: S603 - a command of the user, without a shell
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            output = _read_until(process, deadline)
            status = process.wait(max(0.0, deadline - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired):
            raise KeyCommandError(f"took more than {timeout:g} seconds") from None
        finally:
            with suppress(ProcessLookupError):  # also what it left running in the background
                os.killpg(process.pid, signal.SIGKILL)
    if status < 0:
        raise KeyCommandError(f"was ended by signal {-status}")
    if status:
        raise KeyCommandError(f"failed with exit status {status}")
    return output


def _read_until(process: "subprocess.Popen[bytes]", deadline: float) -> bytes:
    """Read the output of a process to its end; raise `TimeoutError` at the deadline."""
    pipe, output = cast("IO[bytes]", process.stdout).fileno(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while (seconds := deadline - time.monotonic()) > 0 and selector.select(seconds):
            data = os.read(pipe, LIMIT_KEY)
            if not data:
                return output
            output += data
            if len(output) > LIMIT_KEY:
                raise KeyCommandError(f"printed more than {LIMIT_KEY // 1024} KB")
    raise TimeoutError
