"""A limit for the duration of each test, after which the process shows the stacks of all threads and ends.

pytest's `faulthandler_timeout` does the same with a new thread for each test. A timer of the system costs one call, and
its signal is handled without the interpreter, which a hanging test may hold.
"""

import faulthandler
import signal
from collections.abc import Generator

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

LIMIT_SECONDS = 600


class Watchdog:
    """A pytest plugin that ends the process if a test exceeds the limit; xdist goes on with another worker."""

    def __init__(self, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._limit_seconds = limit_seconds

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        stderr = session.config.stash[fault_handler_stderr_fd_key]  # where output is not captured
        faulthandler.register(signal.SIGALRM, file=stderr, all_threads=True, chain=True)

    def pytest_sessionfinish(self) -> None:
        faulthandler.unregister(signal.SIGALRM)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        signal.setitimer(signal.ITIMER_REAL, self._limit_seconds)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def pytest_enter_pdb(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
