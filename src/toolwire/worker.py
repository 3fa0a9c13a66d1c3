"""Workers: processes that execute the runs of queues, and take over those of workers that died.

A worker takes a lease on a run and continues it from its last step. A call that was in progress when the previous
worker died is in doubt, and not repeated. On SIGTERM, a worker finishes the current turns; others continue its runs.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from toolwire.agent import Agent
from toolwire.journal.runs import RunStore, TakenRun, decode_stored
from toolwire.journal.store import JournalError
from toolwire.runtime.calls.approval import Approver
from toolwire.runtime.calls.decisions import StoredApprover
from toolwire.runtime.run.events import CallEnded, RunEnded, StopCause
from toolwire.runtime.run.settings import RunMetadata

MAX_ATTEMPTS = 5
"""Maximum number of workers that may end during the same step of a run before the run fails."""
_RETRY_INTERVAL = 1.0  # seconds after which a failing store is tried again

OpenAgent = Callable[[RunMetadata, Approver], AbstractAsyncContextManager[Agent[Any, Any]]]
"""Opens the agent of a run, until its end. The approver decides if the agent has none of its own."""


class Worker:
    """Executes the runs of queues, several at a time."""

    def __init__(
        self,
        runs: RunStore,
        open_agent: OpenAgent,
        queues: Sequence[str],
        *,
        log: Callable[[str], None],
        concurrency: int = 4,
        grace: float = 30.0,
    ) -> None:
        """`grace` is the time in seconds that turns in progress get to finish when the worker stops."""
        self._runs = runs
        self._open_agent = open_agent
        self._queues = tuple(queues)
        self._log = log
        self._concurrency = concurrency
        self._grace = grace
        self._stopping = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], TakenRun] = {}
        self._reported_error = ""

    def stop(self) -> None:
        """Take no more runs, and leave those in progress to other workers after their current turn."""
        self._stopping.set()
        for taken in self._tasks.values():
            taken.lease.is_pausing = True

    async def serve(self) -> None:
        """Take and execute runs until `stop`."""
        with self._runs.watch_queues() as changed:
            while not self._stopping.is_set():
                await self._report_errors(self._take_runs)
                await self._report_errors(self._cancel_runs)
                waits = [asyncio.ensure_future(changed()), asyncio.ensure_future(self._stopping.wait())]
                await asyncio.wait([*waits, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
                for wait in waits:
                    wait.cancel()
        await self._leave_runs()

    async def drain(self) -> None:
        """Execute runs until none is available and none is in progress."""
        await self._take_runs()
        while self._tasks:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            await self._take_runs()

    async def _report_errors(self, work: Callable[[], Awaitable[None]]) -> None:
        """Await work on the store; log a failure once, and wait before the next attempt."""
        try:
            await work()
            self._reported_error = ""
        except JournalError as error:
            if str(error) != self._reported_error:
                self._reported_error = str(error)
                self._log(f"the store of runs is unavailable: {error}")
            await asyncio.sleep(_RETRY_INTERVAL)

    async def _take_runs(self) -> None:
        """Take runs while there is room."""
        while len(self._tasks) < self._concurrency and not self._stopping.is_set():
            taken = await asyncio.to_thread(self._runs.take_next, self._queues)
            if taken is None:
                return
            taken.lease.is_pausing = self._stopping.is_set()
            task = asyncio.create_task(self._execute(taken))
            self._tasks[task] = taken
            task.add_done_callback(self._tasks.pop)

    async def _cancel_runs(self) -> None:
        """Cancel the tasks of runs that were cancelled or lost."""
        for task, taken in list(self._tasks.items()):
            if await asyncio.to_thread(taken.lease.is_cancelled):
                task.cancel()

    async def _leave_runs(self) -> None:
        """Leave the runs in progress to other workers: after the current turn, or after the grace period."""
        if self._tasks:
            self._log(f"stopping: {len(self._tasks)} runs finish their turn, for {self._grace:g} s at most")
            await asyncio.wait(self._tasks, timeout=self._grace)
        for task, taken in list(self._tasks.items()):
            with contextlib.suppress(JournalError):
                taken.lease.release()  # so that the end of the task does not end the run
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _execute(self, taken: TakenRun) -> None:
        """Execute a run to its end, or until it waits for an approval."""
        run = taken.run
        try:
            if run.cancelled_at is not None:
                self._end(taken, "cancelled", "cancelled by `toolwire runs cancel`")
            elif taken.attempts > MAX_ATTEMPTS:
                self._end(taken, "failed", f"{MAX_ATTEMPTS} workers ended during the same step")
            else:
                await self._follow(taken)
        except JournalError as error:
            self._log(f"{run.id}: left: {error}")
            with contextlib.suppress(JournalError):
                taken.lease.release()
        except asyncio.CancelledError:
            self._log(f"{run.id}: stopped")
        except Exception as error:  # noqa: BLE001 - one run must not end the worker
            with contextlib.suppress(JournalError):
                self._end(taken, "failed", f"{type(error).__name__}: {error}")

    async def _follow(self, taken: TakenRun) -> None:
        """Execute a run, and log its progress."""
        run, approver = taken.run, StoredApprover(taken.lease)
        metadata = decode_stored(run.metadata, RunMetadata, f"the run {run.id}")
        self._log(f"{run.id}: {metadata.agent}, {'taken' if taken.attempts <= 1 else 'taken again'}")
        async with self._open_agent(metadata, approver) as agent:
            stopped: StopCause = "finished"
            async for event in agent.continue_taken(taken, approver):
                if isinstance(event, CallEnded):
                    self._log(f"{run.id}: {event.record.tool}: {event.record.error or event.status}")
                elif isinstance(event, RunEnded):
                    stopped = event.stopped
                    self._log(f"{run.id}: {event.stopped}{f' ({event.reason})' if event.reason else ''}")
        if stopped == "waiting" and approver.has_new_decision:
            self._runs.requeue(run.id)

    def _end(self, taken: TakenRun, stopped: StopCause, reason: str) -> None:
        """End a run without executing it."""
        taken.lease.end(msgspec.json.encode(RunEnded(run=taken.run.id, stopped=stopped, reason=reason)))
        self._log(f"{taken.run.id}: {stopped} ({reason})")
