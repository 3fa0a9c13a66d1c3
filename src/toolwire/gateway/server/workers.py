"""Worker processes: started, replaced when they die, and ended together.

A worker that dies is replaced after a pause, which grows for as long as replacements die young. The parent ends with a
failure once no worker lives and one of them could not be kept alive. SIGTERM, SIGINT and SIGHUP let all workers
finish what is under way. Workers do the same when their parent is gone, however it ended.
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

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_HANDLED_SIGNALS = {*STOP_SIGNALS, signal.SIGCHLD}


def stop_signals() -> list[signal.Signals]:
    """Return the signals that end the gateway. Under `nohup` SIGHUP is none of them."""
    return [one for one in STOP_SIGNALS if one is not signal.SIGHUP or signal.getsignal(one) is not signal.SIG_IGN]


class RestartBackoff(Struct, frozen=True):
    """When a worker is replaced, in seconds. One that lived for `stable` is not to blame for those before it."""

    first_delay: float = 0.1
    max_delay: float = 30.0
    stable_after: float = 60.0
    max_early_deaths: int = 6

    def delay(self, early_deaths: int) -> float:
        return min(self.max_delay, self.first_delay * 2.0 ** (early_deaths - 1))


class _Worker(Struct):
    """A place for a worker. `deaths`: how many in a row died young; `due`: when the next one is started."""

    number: int
    pid: int = 0
    started_at: float = 0.0
    early_deaths: int = 0
    restart_at: float = 0.0


class Supervisor:
    """Keeps `count` processes alive that call `serve`, until a signal ends them.

    `serve` gets the number of its worker and a descriptor that is at its end when the parent is. `close` lets go of
    the parent's listener, so that clients are refused at once and not when the last worker ends.
    """

    def __init__(
        self,
        serve: Callable[[int, int], None],
        count: int,
        *,
        close_listener: Callable[[], None],
        log: Callable[[str], None],
        backoff: RestartBackoff | None = None,
    ) -> None:
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
        """Return the exit code of the parent."""
        signal.set_wakeup_fd(self._wakeup_writer, warn_on_full_buffer=False)
        for number in (*stop_signals(), signal.SIGCHLD):
            signal.signal(number, lambda *_: None)  # its number is written to the pipe
        while not self._stopping or any(worker.pid for worker in self._workers):
            select.select([self._wakeup_reader], [], [], self._start_due_workers())
            if self._read_signals() & set(STOP_SIGNALS):
                self._stop_workers()
            self._reap_workers()
        return 1 if self._failed else 0

    def _read_signals(self) -> set[int]:
        try:
            return set(os.read(self._wakeup_reader, 4096))
        except BlockingIOError:
            return set()

    def _start_due_workers(self) -> float | None:
        """Start workers whose pause is over. Return the seconds until the next one is due."""
        if self._stopping:
            return None
        now = time.monotonic()
        for worker in self._workers:
            if not worker.pid and worker.restart_at <= now:
                worker.pid, worker.started_at = self._fork_worker(worker.number), now
        waiting = [worker.restart_at - now for worker in self._workers if not worker.pid]
        return min(waiting, default=None)

    def _fork_worker(self, number: int) -> int:
        """Start a process. Signals wait meanwhile: the child must not take one with its parent's handlers."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED_SIGNALS)
        try:
            if (child := os.fork()) == 0:
                self._run_worker(number)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED_SIGNALS)
        return child

    def _run_worker(self, number: int) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for watched in _HANDLED_SIGNALS:
                if signal.getsignal(watched) is not signal.SIG_IGN:
                    signal.signal(watched, signal.SIG_DFL)
            for descriptor in (self._wakeup_reader, self._wakeup_writer, self._lifeline_writer):
                os.close(descriptor)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED_SIGNALS)
            self._serve(number, self._lifeline_reader)
            code = 0
        except BaseException:  # noqa: BLE001 - a child never returns into the frames of its parent
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _reap_workers(self) -> None:
        for worker in self._workers:
            if not worker.pid:
                continue
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                self._handle_worker_exit(worker, os.waitstatus_to_exitcode(status))

    def _handle_worker_exit(self, worker: _Worker, code: int) -> None:
        pid, worker.pid = worker.pid, 0
        if self._stopping:
            self._failed = self._failed or (code != 0 and -code not in STOP_SIGNALS)
            return
        young = time.monotonic() - worker.started_at < self._backoff.stable_after
        worker.early_deaths = worker.early_deaths + 1 if young else 1
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        if worker.early_deaths > self._backoff.max_early_deaths and not any(one.pid for one in self._workers):
            self._log(f"worker {worker.number} (process {pid}) {how}: workers can't be kept alive, giving up")
            self._failed = self._stopping = True
            return
        pause = self._backoff.delay(worker.early_deaths)
        worker.restart_at = time.monotonic() + pause
        self._log(f"worker {worker.number} (process {pid}) {how}: another one starts in {pause:g} s")

    def _stop_workers(self) -> None:
        self._stopping = True
        self._close_listener()
        for worker in self._workers:
            if worker.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGTERM)
