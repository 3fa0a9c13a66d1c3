"""Execute tool calls: limits, retries, records, and locks for calls that use the same resource.

Execute the calls of a turn: in parallel unless they share resources, with limits, and never twice.

1. The executor records an intent before a tool starts and an outcome after it ends. An interrupted call, with an intent
   but no outcome, is in doubt. It is not run again unless its tool is resumable, idempotent or read-only.
2. An approval covers exactly the call it was given for.
3. A tool failure becomes a result for the model. Only cancellation propagates.
"""

import asyncio
import hashlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Text, ToolResult
from toolwire.canonical.response import Usage, add_usage
from toolwire.journal.redaction import Redactor
from toolwire.journal.runs import decode_stored
from toolwire.runtime.calls.approval import Approver
from toolwire.runtime.calls.outputs import as_output, bound_output, truncate_middle
from toolwire.runtime.calls.validation import CallValidationError, check_output
from toolwire.runtime.model import Model
from toolwire.runtime.run.budget import Budget, ParentRun
from toolwire.runtime.run.events import CallEnded, CallLogged, CallProgressed, CallRecord, CallStarted, RunEvent
from toolwire.runtime.run.limits import RunLimits
from toolwire.runtime.run.state import PendingCall, ResponseIdentity
from toolwire.runtime.run.step_log import StepLog
from toolwire.runtime.tool import Arguments, CallDeferred, Tool, ToolContext, ToolError, ToolOutput


def has_conflict(second: PendingCall, first: PendingCall) -> bool:
    """Return True if two calls use a common resource, such as a file, and so must not run at the same time."""
    if second.tool is None or first.tool is None or second.rejection or first.rejection:
        return False
    second_uses, first_uses = second.tool.resources(second.arguments), first.tool.resources(first.arguments)
    return second_uses is None or first_uses is None or bool(second_uses & first_uses)


class _RunningCall:
    """A call that holds its resources, or waits for them."""

    def __init__(self, pending: PendingCall) -> None:
        self.pending = pending
        self.finished = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.has_nested_calls = False


class ResourceLocks:
    """Serializes calls that use the same resource, across the runs of an agent.

    A call that is calling other tools holds no lock, since its nested calls may need the same resource.
    """

    def __init__(self) -> None:
        self._running: dict[int, _RunningCall] = {}

    @asynccontextmanager
    async def hold(self, pending: PendingCall) -> AsyncIterator[None]:
        """Wait until no running call conflicts, then hold the call's resources."""
        running = _RunningCall(pending)
        while (conflict := self._conflicting_call(running)) is not None:
            await conflict.finished.wait()
        self._running[id(pending)] = running
        try:
            yield
        finally:
            del self._running[id(pending)]
            running.finished.set()

    def _conflicting_call(self, candidate: _RunningCall) -> _RunningCall | None:
        """Return a running call on the same event loop that uses a common resource; None if there is none."""
        for running in list(self._running.values()):
            if running.has_nested_calls or running.loop is not candidate.loop:
                continue
            if has_conflict(candidate.pending, running.pending):
                return running
        return None

    def mark_nested_call(self, pending: PendingCall) -> None:
        """Note that a running call is calling another tool, so that later calls do not wait for it."""
        self._running[id(pending)].has_nested_calls = True


EventCallback = Callable[[RunEvent], None]
NestedCaller = Callable[[PendingCall, str, Arguments, str | None], Awaitable[ToolOutput]]
"""Executes a nested call: the calling call, tool name, arguments and optional id."""

AfterToolCallback = Callable[[PendingCall, ToolOutput], Awaitable[ToolOutput]]
"""Returns the output of a call as the hooks leave it."""

_RETRY_DELAY = 0.2
_LOG = logging.getLogger("toolwire")
_DEFAULT_OUTPUT_LIMIT = 40_000
_MAX_ARGUMENT_LENGTH = 2000
IN_DOUBT = (
    "in doubt: the run was interrupted during this call, which may or may not have taken effect. "
    "It was not repeated. Check its effect before repeating it."
)


class CallIntent(Struct, frozen=True, array_like=True):
    """A call about to be executed, as recorded in the step log."""

    tool: str
    arguments: str
    resumable: bool = False
    """The call may be run again after an interruption, so it is never in doubt."""


class CallOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a call, as recorded in the step log."""

    result: ToolResult
    """The result for the model."""
    record: CallRecord
    """The record for events and journal."""
    structured: Any = None
    """The result as JSON data, for a program that made the call."""
    usage: Usage | None = None
    """Tokens used by models inside the tool and inside its nested calls."""


class Executor:
    """Executes the tool calls of one run."""

    def __init__(
        self,
        *,
        run: str,
        step_log: StepLog,
        approver: Approver,
        parallel: int,
        redactor: Redactor,
        on_event: EventCallback,
        call_nested: NestedCaller,
        recent_calls: dict[str, deque[float]] | None = None,
        locks: ResourceLocks | None = None,
        deps: Any = None,
        budget: Budget | None = None,
        after_tool: AfterToolCallback | None = None,
        model: Model | None = None,
        last_response: ResponseIdentity = ResponseIdentity(),  # noqa: B008 - immutable
    ) -> None:
        """Create an executor.

        `parallel` limits concurrent model calls, and `after_tool` runs the hooks after each call. `recent_calls` and
        `locks` are passed in to share rate limits and resource locks with other runs.
        """
        self._run = run
        self._step_log = step_log
        self._approver = approver
        self._redactor = redactor
        self._on_event = on_event
        self._call_nested = call_nested
        self._slots = asyncio.Semaphore(max(1, parallel))
        self._recent_calls = {} if recent_calls is None else recent_calls
        self._locks = locks or ResourceLocks()
        self._deps = deps
        self._after_tool = after_tool
        self._budget = budget or Budget(RunLimits())
        self._model = model
        self._last_response = last_response
        self._nested_usage: dict[str, Usage | None] = {}

    async def execute_batch(self, turn: str, batch: Sequence[PendingCall]) -> list[CallOutcome | None]:
        """Execute the calls of a turn, and return the outcomes in order; None for a call that waits for approval."""
        tasks: list[asyncio.Task[CallOutcome | None]] = []
        try:
            async with asyncio.TaskGroup() as group:
                for index, pending in enumerate(batch):
                    predecessors = [tasks[other] for other in range(index) if has_conflict(pending, batch[other])]
                    tasks.append(group.create_task(self._execute_after(predecessors, turn, pending)))
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _execute_after(
        self, predecessors: Sequence["asyncio.Task[CallOutcome | None]"], turn: str, pending: PendingCall
    ) -> CallOutcome | None:
        """Wait for conflicting earlier calls, then execute the call."""
        if predecessors:
            await asyncio.wait(predecessors)
        return await self.execute_model_call(turn, pending)

    async def execute_model_call(self, turn: str, pending: PendingCall) -> CallOutcome | None:
        """Execute a call made by the model, in one of the parallel slots.

        Nested calls take no slot: they would wait for their caller, which holds one.
        """
        async with self._slots:
            try:
                return await self.execute_call(turn, pending)
            except CallDeferred:
                return None

    async def execute_call(self, turn: str, pending: PendingCall) -> CallOutcome:
        """Execute one call as a step of the run, or return the outcome that an earlier process recorded."""
        name = f"call/{turn}/{pending.id}"
        if (stored := self._step_log.outcome(name)) is not None:
            return decode_stored(stored, CallOutcome, f"step {name}")
        resumable = pending.tool is not None and _may_run_again(pending.tool)
        if self._step_log.intent(name) is not None and not resumable:
            recorded = self._redact_arguments(pending.arguments)
            outcome = self._build_outcome(pending, _error_output(IN_DOUBT, "in_doubt"), recorded)
        elif (skipped := self._skip_result(pending)) is not None:
            outcome = self._build_outcome(pending, skipped, self._redact_arguments(pending.arguments))
        else:
            intent = CallIntent(pending.call.name, pending.arguments_text, resumable)
            async with self._locks.hold(pending):
                self._step_log.begin(name, msgspec.json.encode(intent))
                outcome = await self._run_tool(name, pending)
        self._step_log.finish(name, msgspec.json.encode(outcome))
        self._on_event(CallEnded(call_id=pending.id, status=outcome.result.status, record=outcome.record))
        return outcome

    def add_nested_usage(self, outer: PendingCall, usage: Usage | None) -> None:
        """Add the usage of a nested call to its calling call."""
        self._nested_usage[outer.id] = add_usage(self._nested_usage.get(outer.id), usage)

    def _skip_result(self, pending: PendingCall) -> ToolOutput | None:
        """Return the result of a call that must not run (rejected, answered by the user or denied); else None."""
        if pending.rejection:
            return _error_output(pending.rejection, pending.rejection_kind)
        if pending.output is not None:
            return pending.output
        if pending.verdict == "allow":
            return None
        approval, call = pending.approval, pending.call
        if (
            approval is not None
            and pending.verdict == "ask"
            and approval.covers(self._run, pending.id, call.name, pending.arguments_text)
        ):
            return None
        reason = (
            pending.verdict_reason
            if approval is None or pending.verdict == "deny"
            else approval.reason or f"denied by {approval.decided_by}"
        )
        return _error_output(
            f"denied: {call.name} was not run ({reason}). Do not try to do the same in another way.", "denied"
        )

    async def _run_tool(self, step_name: str, pending: PendingCall) -> CallOutcome:
        """Run the tool as step `step_name` of the run, and retry transient failures of repeatable tools."""
        tool = pending.tool
        if tool is None:
            raise AssertionError("calls without a tool are rejected earlier")
        self._on_event(CallStarted(call_id=pending.id, tool=tool.name))
        start, attempt = time.time(), 0
        arguments = pending.arguments
        recorded = self._redact_arguments(arguments)  # before the tool can change them
        while True:
            attempt += 1
            output = self._rate_limit_error(tool) or await self._attempt(
                step_name, tool, pending, arguments if attempt == 1 else pending.arguments, attempt
            )
            if output.error_kind not in _TRANSIENT or not _is_repeatable(tool) or attempt > tool.retries:
                break
            await asyncio.sleep(_RETRY_DELAY * 2 ** (attempt - 1))
        if self._after_tool is not None:
            output = await self._after_tool(pending, output)
        return self._build_outcome(pending, output, recorded, start, attempt - 1)

    async def _attempt(
        self, step_name: str, tool: Tool, pending: PendingCall, arguments: Arguments, attempt: int
    ) -> ToolOutput:
        """Run the tool once, and convert its failures to error outputs; `attempt` counts the tries."""
        context = ToolContext(
            run=self._run,
            id=pending.id,
            tool=tool.name,
            idempotency_key=hashlib.sha256(msgspec.json.encode([self._run, step_name])).hexdigest()[:32],
            approver=self._approver,
            deps=self._deps,
            attempt=attempt,
            remaining_tokens=self._budget.remaining_tokens,
            report_progress=lambda text: self._on_event(
                CallProgressed(call_id=pending.id, text=self._redactor.redact_text(text))
            ),
            report_log=lambda level, text: self._on_event(
                CallLogged(call_id=pending.id, level=level, text=self._redactor.redact_text(text))
            ),
            model=self._model,
            call=partial(self._start_nested_call, pending),
            parent_run=ParentRun(
                budget=self._budget, on_event=self._on_event, add_usage=partial(self.add_nested_usage, pending)
            ),
        )
        try:
            async with asyncio.timeout(tool.timeout):
                output = as_output(await tool.run(arguments, context))
            if tool.output_schema is not None and not output.is_error:
                check_output(tool, output.structured)
        except TimeoutError:
            return _error_output(_timeout_message(tool), "timeout")
        except (ToolError, CallValidationError) as error:
            return _error_output(str(error), error.kind)
        except CallDeferred:
            raise
        except Exception as error:  # noqa: BLE001 - any failure of a tool is a result for the model
            if tool.source == "python" and not (_is_repeatable(tool) and attempt <= tool.retries):
                _LOG.warning("tool %s failed; the model gets the error as its result", tool.name, exc_info=error)
            return _error_output(f"{tool.name} failed: {type(error).__name__}: {error}", "crash")
        return output

    def _start_nested_call(
        self, pending: PendingCall, name: str, arguments: Arguments, id: str | None = None, /
    ) -> Awaitable[ToolOutput]:
        """Call another tool on behalf of the running call, for `ToolContext`."""
        self._locks.mark_nested_call(pending)
        return self._call_nested(pending, name, arguments, id)

    def _rate_limit_error(self, tool: Tool) -> ToolOutput | None:
        """Return an error if the tool's rate limit is reached; else count the call and return None."""
        if tool.rate is None:
            return None
        recent, now = self._recent_calls.setdefault(tool.name, deque()), time.monotonic()
        while recent and recent[0] <= now - tool.rate.seconds:
            recent.popleft()
        if len(recent) < tool.rate.calls:
            recent.append(now)
            return None
        wait = recent[0] + tool.rate.seconds - now
        limit = f"{tool.rate.calls} calls in {tool.rate.seconds:g} seconds"
        return _error_output(
            f"{tool.name} was not run: its rate limit is {limit}. Try again in {wait:.0f} seconds.", "rate_limit"
        )

    def _build_outcome(
        self,
        pending: PendingCall,
        output: ToolOutput,
        redacted_arguments: Any,
        start: float | None = None,
        retries: int = 0,
    ) -> CallOutcome:
        """Build the result for the model and the record of a call. `start` is None if the tool was not run."""
        call, tool = pending.call, pending.tool
        if pending.edited:
            output = replace(output, content=(_edit_notice(pending), *output.content))
        bounded = bound_output(output, _DEFAULT_OUTPUT_LIMIT if tool is None else tool.output_limit, self._redactor)
        status: Literal["ok", "error", "denied"] = "ok"
        if output.is_error:
            status = "denied" if output.error_kind == "denied" else "error"
        now = time.time()
        record = CallRecord(
            tool=call.name,
            call_id=pending.id,
            arguments=redacted_arguments,
            approval=_approval_summary(pending),
            start=now if start is None else start,
            end=now,
            summary=bounded.summary,
            error=output.error_kind or ("tool" if output.is_error else ""),
            retries=retries,
            source="" if tool is None else tool.source,
            locus="local" if tool is None else tool.locus,
            truncated=bounded.truncated,
            redacted=bounded.redactions,
            repairs=pending.repairs,
            edited=pending.edited,
            hook_changes=pending.hook_changes,
            sources=output.sources,
            response=self._last_response.response_id,
            provider=self._last_response.requested_model,
            version=self._last_response.reported_model,
        )
        result = ToolResult(
            call_id=call.id,
            name=pending.requested_name or call.name,
            namespace=call.namespace,
            content=bounded.output.content,
            status=status,
            native=call.native or ("custom" if call.shape == "freeform" else None),
            caller=call.caller,
            screen=output.screen,
        )
        # Structured data is neither redacted nor truncated, so a program gets it only if the text needed neither.
        intact = pending.is_program_call and not bounded.truncated and not bounded.redactions
        usage = add_usage(output.usage, self._nested_usage.pop(pending.id, None))
        return CallOutcome(result=result, record=record, structured=output.structured if intact else None, usage=usage)

    def _redact_arguments(self, arguments: Any) -> Any:
        """Redact secrets and truncate long strings, for the call record."""
        match arguments:
            case dict():
                return {name: self._redact_arguments(value) for name, value in arguments.items()}
            case list():
                return [self._redact_arguments(value) for value in arguments]
            case str():
                return truncate_middle(self._redactor.redact_text(arguments), _MAX_ARGUMENT_LENGTH)
            case _:
                return arguments


_TRANSIENT = frozenset({"timeout", "crash", "transient"})
"""Error kinds that may succeed on retry."""


def _is_repeatable(tool: Tool) -> bool:
    """Return True if repeating a call of the tool does no harm."""
    return tool.annotations.idempotent or tool.annotations.read_only


def _edit_notice(pending: PendingCall) -> Text:
    """Build the note with the edited arguments: the model's turn still holds the original ones."""
    return Text(
        text=f"[The arguments were edited before approval. The tool was called with {pending.arguments_text}]\n"
    )


def _timeout_message(tool: Tool) -> str:
    """Build the message to the model for a call that timed out: whether it was stopped or may still run."""
    timeout = f"{tool.name} timed out after {tool.timeout:g} seconds"
    if tool.stoppable:
        return f"{timeout} and was stopped. Part of it may have taken effect."
    return (
        f"{timeout} but can't be stopped: it may still be running. It may have taken effect, or may still do so. "
        "Check its effect before repeating it."
    )


def _may_run_again(tool: Tool) -> bool:
    """Return True if an interrupted call of the tool may be run again."""
    return tool.resumable or _is_repeatable(tool)


def _error_output(text: str, kind: str) -> ToolOutput:
    """Build an error output with a text for the model and an error kind for the record."""
    return ToolOutput(content=(Text(text=text),), is_error=True, error_kind=kind)


def _approval_summary(pending: PendingCall) -> str:
    """Describe for the record how the call was allowed or denied, and by whom or by which rule."""
    if pending.rejection:
        return f"rejected: {pending.rejection_kind}"
    if pending.output is not None:
        return "answered by hand"
    if pending.approval is not None and pending.verdict != "deny":
        return pending.approval.summary
    return f"{pending.verdict}: {pending.verdict_reason}"
