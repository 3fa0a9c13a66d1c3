"""Carrying out calls that may be run: at once where they don't touch each other, bounded, recorded, never twice.

1. An intent is written before a tool is started, an outcome after it ended. A call that was begun and has no outcome is
   in doubt: it is reported as such, and not run again, unless its tool is resumable, idempotent or only reads.
2. An approval counts for the call it was given for, and no other.
3. A tool's failure is a result for the model. Only a cancellation goes further.
"""

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
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
from toolwire.runtime.calls.resource_locks import ResourceLocks, has_conflict
from toolwire.runtime.calls.validation import CallValidationError, check_output
from toolwire.runtime.run.events import CallEnded, CallProgressed, CallRecord, CallStarted, RunEvent
from toolwire.runtime.run.state import PendingCall, ResponseIdentity
from toolwire.runtime.run.step_log import StepLog
from toolwire.runtime.tool import Arguments, CallDeferred, Tool, ToolContext, ToolError, ToolOutput

EventCallback = Callable[[RunEvent], None]
NestedCaller = Callable[[PendingCall, str, Arguments, str | None], Awaitable[ToolOutput]]
"""How a tool calls another one."""

_RETRY_DELAY = 0.2
_DEFAULT_OUTPUT_LIMIT = 40_000
_MAX_ARGUMENT_LENGTH = 2000
IN_DOUBT = (
    "in doubt: the run was interrupted while this call was being carried out. It may have taken effect or not; "
    "it was not run again. Find out before you repeat it."
)


class CallIntent(Struct, frozen=True, array_like=True):
    """What is about to be run. `resumable`: interrupted, it is taken up or run again, so that it is never in doubt."""

    tool: str
    arguments: str
    resumable: bool = False


class CallOutcome(Struct, frozen=True, kw_only=True):
    """What a call came to, as it is kept. `structured`: the same as data, for a program that asked. `usage`: tokens of
    other models that it and the calls within it took."""

    result: ToolResult
    record: CallRecord
    structured: Any = None
    usage: Usage | None = None


class Executor:
    """For one run. `parallel` calls go on at once; `tell` is told what happens as it happens; `recent` is when tools
    were run and `apart` what runs now, where that is to be known beyond this run."""

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
        remaining_tokens: int | None = None,
        last_response: ResponseIdentity = ResponseIdentity(),  # noqa: B008 - it is frozen
    ) -> None:
        self._run = run
        self._step_log = step_log
        self._approver = approver
        self._redactor = redactor
        self._on_event = on_event
        self._call_nested = call_nested
        self._slots = asyncio.Semaphore(max(1, parallel))
        self._recent_calls = {} if recent_calls is None else recent_calls
        self._locks = locks or ResourceLocks()
        self._remaining_tokens = remaining_tokens
        self._last_response = last_response
        self._nested_usage: dict[str, Usage | None] = {}

    async def execute_batch(self, turn: str, batch: Sequence[PendingCall]) -> list[CallOutcome | None]:
        """All of a batch, in the order of the calls; None for one that waits for a person."""
        tasks: list[asyncio.Task[CallOutcome | None]] = []
        try:
            async with asyncio.TaskGroup() as group:
                for place, pending in enumerate(batch):
                    before = [tasks[other] for other in range(place) if has_conflict(pending, batch[other])]
                    tasks.append(group.create_task(self._execute_after(before, turn, pending)))
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _execute_after(
        self, predecessors: Sequence["asyncio.Task[CallOutcome | None]"], turn: str, pending: PendingCall
    ) -> CallOutcome | None:
        if predecessors:
            await asyncio.wait(predecessors)
        return await self.execute_model_call(turn, pending)

    async def execute_model_call(self, turn: str, pending: PendingCall) -> CallOutcome | None:
        """A call of the model's own. What it calls in turn takes no place: it would wait for its caller."""
        async with self._slots:
            try:
                return await self.execute_call(turn, pending)
            except CallDeferred:
                return None

    async def execute_call(self, turn: str, pending: PendingCall) -> CallOutcome:
        """One call, from its decision to its outcome."""
        name = f"call/{turn}/{pending.id}"
        if (known := self._step_log.outcome(name)) is not None:
            return decode_stored(known, CallOutcome, f"the step {name}")
        again = pending.tool is not None and _may_run_again(pending.tool)
        if self._step_log.intent(name) is not None and not again:
            outcome = self._build_outcome(pending, _error_output(IN_DOUBT, "in_doubt"))
        elif (unrun := self._skip_result(pending)) is not None:
            outcome = self._build_outcome(pending, unrun)
        else:
            intent = CallIntent(pending.call.name, pending.arguments_text, again)
            async with self._locks.hold(pending):
                self._step_log.begin(name, msgspec.json.encode(intent))
                outcome = await self._run_tool(name, pending)
        self._step_log.finish(name, msgspec.json.encode(outcome))
        self._on_event(CallEnded(call_id=pending.id, status=outcome.result.status, record=outcome.record))
        return outcome

    def add_nested_usage(self, outer: PendingCall, usage: Usage | None) -> None:
        """Count what a call within `outer` used as used by `outer`."""
        self._nested_usage[outer.id] = add_usage(self._nested_usage.get(outer.id), usage)

    def _skip_result(self, pending: PendingCall) -> ToolOutput | None:
        """What the model is told of a call that is not run; None if it is to be."""
        if pending.refusal:
            return _error_output(pending.refusal, pending.refusal_kind)
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
        by = (
            pending.verdict_reason
            if approval is None or pending.verdict == "deny"
            else approval.reason or f"{approval.decided_by} said no"
        )
        return _error_output(f"denied: {call.name} was not run ({by}). Do not try it again in another way.", "denied")

    async def _run_tool(self, step_name: str, pending: PendingCall) -> CallOutcome:
        tool = pending.tool
        if tool is None:
            raise AssertionError("a call without a tool is refused before it gets here")
        self._on_event(CallStarted(call_id=pending.id, tool=tool.name))
        start, attempt = time.time(), 0
        while True:
            attempt += 1
            output = self._rate_limit_error(tool) or await self._attempt(step_name, tool, pending, attempt)
            if output.error_kind not in _TRANSIENT or not _is_repeatable(tool) or attempt > tool.retries:
                break
            await asyncio.sleep(_RETRY_DELAY * 2 ** (attempt - 1))
        return self._build_outcome(pending, output, start, attempt - 1)

    async def _attempt(self, step_name: str, tool: Tool, pending: PendingCall, attempt: int) -> ToolOutput:
        calling = ToolContext(
            run=self._run,
            id=pending.id,
            tool=tool.name,
            idempotency_key=hashlib.sha256(msgspec.json.encode([self._run, step_name])).hexdigest()[:32],
            approver=self._approver,
            attempt=attempt,
            remaining_tokens=self._remaining_tokens,
            report_progress=lambda text: self._on_event(
                CallProgressed(call_id=pending.id, text=self._redactor.redact_text(text))
            ),
            call=partial(self._start_nested_call, pending),
        )
        try:
            async with asyncio.timeout(tool.timeout):
                output = as_output(await tool.run(pending.arguments, calling))
            if tool.output_schema is not None and not output.is_error:
                check_output(tool, output.structured)
        except TimeoutError:
            return _error_output(_timeout_message(tool), "timeout")
        except ToolError as fault:
            return _error_output(str(fault), fault.kind)
        except CallValidationError as invalid:
            return _error_output(str(invalid), invalid.kind)
        except CallDeferred:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tool does, the model can act on it
            return _error_output(f"{tool.name} failed: {type(error).__name__}: {error}", "crash")
        return output

    def _start_nested_call(
        self, pending: PendingCall, name: str, arguments: Arguments, id: str | None = None, /
    ) -> Awaitable[ToolOutput]:
        self._locks.mark_nested_call(pending)
        return self._call_nested(pending, name, arguments, id)

    def _rate_limit_error(self, tool: Tool) -> ToolOutput | None:
        if tool.rate is None:
            return None
        recent, now = self._recent_calls.setdefault(tool.name, deque()), time.monotonic()
        while recent and recent[0] <= now - tool.rate.seconds:
            recent.popleft()
        if len(recent) < tool.rate.calls:
            recent.append(now)
            return None
        left = recent[0] + tool.rate.seconds - now
        limit = f"{tool.rate.calls} calls in {tool.rate.seconds:g} seconds"
        return _error_output(
            f"{tool.name} was not run: its limit is {limit}. Try again in {left:.0f} seconds.", "rate_limit"
        )

    def _build_outcome(
        self, pending: PendingCall, output: ToolOutput, start: float | None = None, retries: int = 0
    ) -> CallOutcome:
        call, tool = pending.call, pending.tool
        if pending.edited:
            output = replace(output, content=(_edit_notice(pending), *output.content))
        made = bound_output(output, _DEFAULT_OUTPUT_LIMIT if tool is None else tool.output_limit, self._redactor)
        status: Literal["ok", "error", "denied"] = "ok"
        if output.is_error:
            status = "denied" if output.error_kind == "denied" else "error"
        now = time.time()
        record = CallRecord(
            tool=call.name,
            call_id=pending.id,
            arguments=self._redact_arguments(pending.arguments),
            approval=_approval_summary(pending),
            start=now if start is None else start,
            end=now,
            summary=made.summary,
            error=output.error_kind or ("tool" if output.is_error else ""),
            retries=retries,
            source="" if tool is None else tool.source,
            locus="local" if tool is None else tool.locus,
            truncated=made.truncated,
            redacted=made.redactions,
            repairs=pending.repairs,
            edited=pending.edited,
            response=self._last_response.response_id,
            provider=self._last_response.requested_model,
            version=self._last_response.reported_model,
        )
        result = ToolResult(
            call_id=call.id,
            name=call.name,
            namespace=call.namespace,
            content=made.output.content,
            status=status,
            native="custom" if call.shape == "freeform" else call.native,
            caller=call.caller,
            screen=output.screen,
        )
        whole = pending.is_program_call and not made.truncated and not made.redactions
        usage = add_usage(output.usage, self._nested_usage.pop(pending.id, None))
        return CallOutcome(result=result, record=record, structured=output.structured if whole else None, usage=usage)

    def _redact_arguments(self, arguments: Any) -> Any:
        """Arguments in a record: without secrets, and the long ones shortened."""
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
"""What may be otherwise at the next try."""


def _is_repeatable(tool: Tool) -> bool:
    return tool.annotations.idempotent or tool.annotations.read_only


def _edit_notice(pending: PendingCall) -> Text:
    """Tell the model what ran: its own turn still holds the arguments that it wrote."""
    return Text(text=f"[The arguments were changed before approval. It was called with {pending.arguments_text}]\n")


def _timeout_message(tool: Tool) -> str:
    late = f"{tool.name} took longer than {tool.timeout:g} seconds"
    if tool.stoppable:
        return f"{late} and was stopped. Part of it may have taken effect."
    return (
        f"{late}, and it can't be stopped: it may still be running. It may have taken effect, or may yet do so. "
        "Find out before you repeat it."
    )


def _may_run_again(tool: Tool) -> bool:
    """Whether a call that was interrupted may be run once more: then nobody need find out whether it took effect."""
    return tool.resumable or _is_repeatable(tool)


def _error_output(text: str, kind: str) -> ToolOutput:
    return ToolOutput(content=(Text(text=text),), is_error=True, error_kind=kind)


def _approval_summary(pending: PendingCall) -> str:
    if pending.refusal:
        return f"refused: {pending.refusal_kind}"
    if pending.output is not None:
        return "answered by hand"
    if pending.approval is not None and pending.verdict != "deny":
        return f"{pending.approval.answer} by {pending.approval.decided_by}"
    return f"{pending.verdict}: {pending.verdict_reason}"
