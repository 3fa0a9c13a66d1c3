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

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_WATCHED = {*ENDING, signal.SIGCHLD}


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end the gateway. Under `nohup` SIGHUP is none of them."""
    return [one for one in ENDING if one is not signal.SIGHUP or signal.getsignal(one) is not signal.SIG_IGN]


class Pace(Struct, frozen=True):
    """When a worker is replaced, in seconds. One that lived for `stable` is not to blame for those before it."""

    first: float = 0.1
    longest: float = 30.0
    stable: float = 60.0
    tries: int = 6

    def pause(self, deaths: int) -> float:
        return min(self.longest, self.first * 2.0 ** (deaths - 1))


class _Worker(Struct):
    """A place for a worker. `deaths`: how many in a row died young; `due`: when the next one is started."""

    number: int
    pid: int = 0
    started: float = 0.0
    deaths: int = 0
    due: float = 0.0


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
        close: Callable[[], None],
        say: Callable[[str], None],
        pace: Pace | None = None,
    ) -> None:
        self._serve = serve
        self._close = close
        self._say = say
        self._pace = pace or Pace()
        self._workers = [_Worker(number) for number in range(count)]
        self._stopping = False
        self._failed = False
        self._woken, self._waker = os.pipe()
        self._alive, self._lifeline = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)

    def run(self) -> int:
        """Return the exit code of the parent."""
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (*ending_signals(), signal.SIGCHLD):
            signal.signal(number, lambda *_: None)  # its number is written to the pipe
        while not self._stopping or any(worker.pid for worker in self._workers):
            select.select([self._woken], [], [], self._start_due())
            if self._received() & set(ENDING):
                self._stop()
            self._reap()
        return 1 if self._failed else 0

    def _received(self) -> set[int]:
        try:
            return set(os.read(self._woken, 4096))
        except BlockingIOError:
            return set()

    def _start_due(self) -> float | None:
        """Start workers whose pause is over. Return the seconds until the next one is due."""
        if self._stopping:
            return None
        now = time.monotonic()
        for worker in self._workers:
            if not worker.pid and worker.due <= now:
                worker.pid, worker.started = self._fork(worker.number), now
        waiting = [worker.due - now for worker in self._workers if not worker.pid]
        return min(waiting, default=None)

    def _fork(self, number: int) -> int:
        """Start a process. Signals wait meanwhile: the child must not take one with its parent's handlers."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        try:
            if (child := os.fork()) == 0:
                self._become_worker(number)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        return child

    def _become_worker(self, number: int) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for watched in _WATCHED:
                if signal.getsignal(watched) is not signal.SIG_IGN:
                    signal.signal(watched, signal.SIG_DFL)
            for descriptor in (self._woken, self._waker, self._lifeline):
                os.close(descriptor)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
            self._serve(number, self._alive)
            code = 0
        except BaseException:  # noqa: BLE001 - a child never returns into the frames of its parent
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        for worker in self._workers:
            if not worker.pid:
                continue
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                self._bury(worker, os.waitstatus_to_exitcode(status))

    def _bury(self, worker: _Worker, code: int) -> None:
        pid, worker.pid = worker.pid, 0
        if self._stopping:
            self._failed = self._failed or (code != 0 and -code not in ENDING)
            return
        young = time.monotonic() - worker.started < self._pace.stable
        worker.deaths = worker.deaths + 1 if young else 1
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        if worker.deaths > self._pace.tries and not any(one.pid for one in self._workers):
            self._say(f"worker {worker.number} (process {pid}) {how}: workers can't be kept alive, giving up")
            self._failed = self._stopping = True
            return
        pause = self._pace.pause(worker.deaths)
        worker.due = time.monotonic() + pause
        self._say(f"worker {worker.number} (process {pid}) {how}: another one starts in {pause:g} s")

    def _stop(self) -> None:
        self._stopping = True
        self._close()
        for worker in self._workers:
            if worker.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGTERM)
