"""A supervisor of worker processes: starts them, restarts those that die, and stops them together.

A worker that dies is restarted after a delay, which grows while replacements die early. The supervisor fails once no
worker is left and one of them keeps dying. SIGTERM and SIGINT let all workers finish the requests under way. SIGHUP
lets them reload the configuration.
Workers do the same when their supervisor is gone, however it ended.
"""

import contextlib
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from msgspec import Struct

from toolwire.gateway.server.reloading import find_terminals, is_closed

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_HANDLED_SIGNALS = {*STOP_SIGNALS, signal.SIGHUP, signal.SIGCHLD}


def reloads_on_hangup() -> bool:
    """Return whether SIGHUP reloads the configuration; under `nohup`, it is ignored."""
    return signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN


class RestartBackoff(Struct, frozen=True):
    """Delays between restarts of a worker, in seconds."""

    first_delay: float = 0.1
    max_delay: float = 30.0
    stable_after: float = 60.0
    """A worker that lived this long resets the count of early deaths."""
    max_early_deaths: int = 6

    def delay(self, early_deaths: int) -> float:
        """Return the delay before a restart, after this many early deaths in a row."""
        return min(self.max_delay, self.first_delay * 2.0 ** (early_deaths - 1))


class _Worker(Struct):
    """A worker slot; `pid` is 0 while no process runs."""

    number: int
    pid: int = 0
    started_at: float = 0.0
    early_deaths: int = 0
    """Processes in a row that died early."""
    restart_at: float = 0.0
    """When to start the next process, on the monotonic clock."""


class Supervisor:
    """Keeps `count` processes running `serve` until a signal stops them.

    `serve` receives its worker number and a file descriptor that reaches end of file when the supervisor exits.
    `close_listener` closes the supervisor's listener, so that clients are refused as soon as the workers stop.
    """

    def __init__(
        self,
        serve: Callable[[int, int], None],
        count: int,
        *,
        close_listener: Callable[[], None],
        log: Callable[[str], None],
        backoff: RestartBackoff | None = None,
        check_reload: Callable[[], bool] = lambda: False,
    ) -> None:
        """`check_reload` reads the configuration at SIGHUP, and returns whether the workers should reload it."""
        self._check_reload = check_reload
        self._terminals = find_terminals()
        self._serve = serve
        self._close_listener = close_listener
        self._log = log
        self._backoff = backoff or RestartBackoff()
        self._workers = [_Worker(number) for number in range(count)]
        self._stopping = False
        self._failed = False
        self._wakeup_reader, self._wakeup_writer = os.pipe()
        self._lifeline_reader, self._lifeline_writer = os.pipe()
        os.set_blocking(self._wakeup_reader, False)
        os.set_blocking(self._wakeup_writer, False)

    def run(self) -> int:
        """Supervise until all workers have stopped, and return the exit code."""
        signal.set_wakeup_fd(self._wakeup_writer, warn_on_full_buffer=False)
        hangup = (signal.SIGHUP,) if reloads_on_hangup() else ()
        for number in (*STOP_SIGNALS, *hangup, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)  # `set_wakeup_fd` writes the signal number to the pipe
        while not self._stopping or any(worker.pid for worker in self._workers):
            select.select([self._wakeup_reader], [], [], self._start_due_workers())
            received = self._read_signals()
            is_hangup = signal.SIGHUP in received
            if received & set(STOP_SIGNALS) or (is_hangup and is_closed(self._terminals)):
                self._stop_workers()
            elif is_hangup and not self._stopping and self._check_reload():
                self._signal_workers(signal.SIGHUP)
            self._reap_workers()
        return 1 if self._failed else 0

    def _read_signals(self) -> set[int]:
        """Return the signals received since the last call."""
        try:
            return set(os.read(self._wakeup_reader, 4096))
        except BlockingIOError:
            return set()

    def _start_due_workers(self) -> float | None:
        """Start workers whose delay is over, and return the seconds until the next one is due."""
        if self._stopping:
            return None
        now = time.monotonic()
        for worker in self._workers:
            if not worker.pid and worker.restart_at <= now:
                worker.pid, worker.started_at = self._fork_worker(worker.number), now
        waiting = [worker.restart_at - now for worker in self._workers if not worker.pid]
        return min(waiting, default=None)

    def _fork_worker(self, number: int) -> int:
        """Fork a worker; signals are blocked meanwhile, so that the child takes none with its parent's handlers."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED_SIGNALS)
        try:
            if (child := os.fork()) == 0:
                self._run_worker(number)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED_SIGNALS)
        return child

    def _run_worker(self, number: int) -> NoReturn:
        """Run `serve` in the child process, and exit."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for handled in _HANDLED_SIGNALS:
                if signal.getsignal(handled) is not signal.SIG_IGN:
                    signal.signal(handled, signal.SIG_DFL)
            for fd in (self._wakeup_reader, self._wakeup_writer, self._lifeline_writer):
                os.close(fd)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED_SIGNALS)
            self._serve(number, self._lifeline_reader)
            code = 0
        except BaseException:  # noqa: BLE001 - a child must never return into its parent's stack
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _reap_workers(self) -> None:
        """Collect the exit status of workers that ended."""
        for worker in self._workers:
            if not worker.pid:
                continue
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                self._handle_worker_exit(worker, os.waitstatus_to_exitcode(status))

    def _handle_worker_exit(self, worker: _Worker, code: int) -> None:
        """Schedule a restart with backoff, or give up if no worker can be kept alive."""
        pid, worker.pid = worker.pid, 0
        if self._stopping:
            self._failed = self._failed or (code != 0 and -code not in STOP_SIGNALS)
            return
        died_early = time.monotonic() - worker.started_at < self._backoff.stable_after
        worker.early_deaths = worker.early_deaths + 1 if died_early else 1
        outcome = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        if worker.early_deaths > self._backoff.max_early_deaths and not any(other.pid for other in self._workers):
            self._log(f"worker {worker.number} (process {pid}) {outcome}: workers keep dying, giving up")
            self._failed = self._stopping = True
            return
        delay = self._backoff.delay(worker.early_deaths)
        worker.restart_at = time.monotonic() + delay
        self._log(f"worker {worker.number} (process {pid}) {outcome}: restarting in {delay:g} s")

    def _stop_workers(self) -> None:
        """Close the listener and send SIGTERM to all workers."""
        self._stopping = True
        self._close_listener()
        self._signal_workers(signal.SIGTERM)

    def _signal_workers(self, number: signal.Signals) -> None:
        """Send a signal to all workers."""
        for worker in self._workers:
            if worker.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, number)
