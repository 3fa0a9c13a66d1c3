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
from toolwire.canonical.response import Usage
from toolwire.canonical.usage import added
from toolwire.journal.runs import decode_entry
from toolwire.journal.secrets import Redactor

from .apart import Apart, must_wait
from .approval import Person
from .events import CallEnded, CallProgressed, CallRecord, CallStarted, RunEvent
from .outputs import as_output, bounded, cut
from .state import Origin, Pending
from .steps import Steps
from .toolset import Arguments, Calling, Output, Postponed, Tool, ToolFault
from .validate import Invalid, check_output

Tell = Callable[[RunEvent], None]
Inner = Callable[[Pending, str, Arguments, str | None], Awaitable[Output]]
"""How a tool calls another one."""

_BACK_OFF = 0.2
_LIMIT = 40_000
_LONGEST_ARGUMENT = 2000
IN_DOUBT = (
    "in doubt: the run was interrupted while this call was being carried out. It may have taken effect or not; "
    "it was not run again. Find out before you repeat it."
)


class Intent(Struct, frozen=True, array_like=True):
    """What is about to be run. `resumable`: interrupted, it is taken up or run again, so that it is never in doubt."""

    tool: str
    arguments: str
    resumable: bool = False


class Outcome(Struct, frozen=True, kw_only=True):
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
        steps: Steps,
        person: Person,
        parallel: int,
        redactor: Redactor,
        tell: Tell,
        inner: Inner,
        recent: dict[str, deque[float]] | None = None,
        apart: Apart | None = None,
        tokens: int | None = None,
        origin: Origin = Origin(),  # noqa: B008 - it is frozen
    ) -> None:
        self._run = run
        self._steps = steps
        self._person = person
        self._redactor = redactor
        self._tell = tell
        self._inner = inner
        self._places = asyncio.Semaphore(max(1, parallel))
        self._recent = {} if recent is None else recent
        self._apart = apart or Apart()
        self._tokens = tokens
        self._origin = origin
        self._charged: dict[str, Usage | None] = {}

    async def carry_out(self, turn: str, batch: Sequence[Pending]) -> list[Outcome | None]:
        """All of a batch, in the order of the calls; None for one that waits for a person."""
        tasks: list[asyncio.Task[Outcome | None]] = []
        try:
            async with asyncio.TaskGroup() as group:
                for place, pending in enumerate(batch):
                    before = [tasks[other] for other in range(place) if must_wait(pending, batch[other])]
                    tasks.append(group.create_task(self._after(before, turn, pending)))
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _after(
        self, others: Sequence["asyncio.Task[Outcome | None]"], turn: str, pending: Pending
    ) -> Outcome | None:
        if others:
            await asyncio.wait(others)
        return await self.of_model(turn, pending)

    async def of_model(self, turn: str, pending: Pending) -> Outcome | None:
        """A call of the model's own. What it calls in turn takes no place: it would wait for its caller."""
        async with self._places:
            try:
                return await self.one(turn, pending)
            except Postponed:
                return None

    async def one(self, turn: str, pending: Pending) -> Outcome:
        """One call, from its decision to its outcome."""
        name = f"call/{turn}/{pending.id}"
        if (known := self._steps.outcome(name)) is not None:
            return decode_entry(known, Outcome, f"the step {name}")
        again = pending.tool is not None and _may_run_again(pending.tool)
        if self._steps.begun(name) is not None and not again:
            outcome = self._outcome(pending, _error(IN_DOUBT, "in_doubt"))
        elif (unrun := self._unrun(pending)) is not None:
            outcome = self._outcome(pending, unrun)
        else:
            intent = Intent(pending.call.name, pending.text, again)
            async with self._apart.kept(pending):
                self._steps.begin(name, msgspec.json.encode(intent))
                outcome = await self._run_tool(name, pending)
        self._steps.finish(name, msgspec.json.encode(outcome))
        self._tell(CallEnded(call_id=pending.id, status=outcome.result.status, record=outcome.record))
        return outcome

    def charge(self, outer: Pending, usage: Usage | None) -> None:
        """Count what a call within `outer` used as used by `outer`."""
        self._charged[outer.id] = added(self._charged.get(outer.id), usage)

    def _unrun(self, pending: Pending) -> Output | None:
        """What the model is told of a call that is not run; None if it is to be."""
        if pending.refused:
            return _error(pending.refused, pending.kind)
        if pending.output is not None:
            return pending.output
        if pending.verdict == "allow":
            return None
        approval, call = pending.approval, pending.call
        if (
            approval is not None
            and pending.verdict == "ask"
            and approval.covers(self._run, pending.id, call.name, pending.text)
        ):
            return None
        by = pending.by if approval is None or pending.verdict == "deny" else approval.why or f"{approval.by} said no"
        return _error(f"denied: {call.name} was not run ({by}). Do not try it again in another way.", "denied")

    async def _run_tool(self, name: str, pending: Pending) -> Outcome:
        tool = pending.tool
        if tool is None:
            raise AssertionError("a call without a tool is refused before it gets here")
        self._tell(CallStarted(call_id=pending.id, tool=tool.name))
        start, attempt = time.time(), 0
        while True:
            attempt += 1
            output = self._over_rate(tool) or await self._attempt(name, tool, pending, attempt)
            if output.kind not in _PASSING or not _repeatable(tool) or attempt > tool.retries:
                break
            await asyncio.sleep(_BACK_OFF * 2 ** (attempt - 1))
        return self._outcome(pending, output, start, attempt - 1)

    async def _attempt(self, name: str, tool: Tool, pending: Pending, attempt: int) -> Output:
        calling = Calling(
            run=self._run,
            id=pending.id,
            tool=tool.name,
            key=hashlib.sha256(msgspec.json.encode([self._run, name])).hexdigest()[:32],
            person=self._person,
            attempt=attempt,
            tokens=self._tokens,
            progress=lambda text: self._tell(CallProgressed(call_id=pending.id, text=self._redactor.text(text))),
            call=partial(self._called, pending),
        )
        try:
            async with asyncio.timeout(tool.timeout):
                output = as_output(await tool.run(pending.arguments, calling))
            if tool.output_schema is not None and not output.is_error:
                check_output(tool, output.structured)
        except TimeoutError:
            return _error(_timed_out(tool), "timeout")
        except ToolFault as fault:
            return _error(str(fault), fault.kind)
        except Invalid as invalid:
            return _error(str(invalid), invalid.kind)
        except Postponed:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tool does, the model can act on it
            return _error(f"{tool.name} failed: {type(error).__name__}: {error}", "crash")
        return output

    def _called(self, pending: Pending, name: str, arguments: Arguments, id: str | None = None, /) -> Awaitable[Output]:
        self._apart.calls(pending)
        return self._inner(pending, name, arguments, id)

    def _over_rate(self, tool: Tool) -> Output | None:
        if tool.rate is None:
            return None
        recent, now = self._recent.setdefault(tool.name, deque()), time.monotonic()
        while recent and recent[0] <= now - tool.rate.seconds:
            recent.popleft()
        if len(recent) < tool.rate.calls:
            recent.append(now)
            return None
        left = recent[0] + tool.rate.seconds - now
        limit = f"{tool.rate.calls} calls in {tool.rate.seconds:g} seconds"
        return _error(f"{tool.name} was not run: its limit is {limit}. Try again in {left:.0f} seconds.", "rate_limit")

    def _outcome(self, pending: Pending, output: Output, start: float | None = None, retries: int = 0) -> Outcome:
        call, tool = pending.call, pending.tool
        if pending.edited:
            output = replace(output, content=(_edited(pending), *output.content))
        made = bounded(output, _LIMIT if tool is None else tool.output_limit, self._redactor)
        status: Literal["ok", "error", "denied"] = "ok"
        if output.is_error:
            status = "denied" if output.kind == "denied" else "error"
        now = time.time()
        record = CallRecord(
            tool=call.name,
            call_id=pending.id,
            arguments=self._kept(pending.arguments),
            approval=_decided(pending),
            start=now if start is None else start,
            end=now,
            summary=made.summary,
            error=output.kind or ("tool" if output.is_error else ""),
            retries=retries,
            source="" if tool is None else tool.source,
            locus="local" if tool is None else tool.locus,
            truncated=made.truncated,
            redacted=made.redacted,
            repairs=pending.repairs,
            edited=pending.edited,
            response=self._origin.response,
            provider=self._origin.provider,
            version=self._origin.version,
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
        whole = pending.by_code and not made.truncated and not made.redacted
        usage = added(output.usage, self._charged.pop(pending.id, None))
        return Outcome(result=result, record=record, structured=output.structured if whole else None, usage=usage)

    def _kept(self, arguments: Any) -> Any:
        """Arguments in a record: without secrets, and the long ones shortened."""
        match arguments:
            case dict():
                return {name: self._kept(value) for name, value in arguments.items()}
            case list():
                return [self._kept(value) for value in arguments]
            case str():
                return cut(self._redactor.text(arguments), _LONGEST_ARGUMENT)
            case _:
                return arguments


_PASSING = frozenset({"timeout", "crash", "transient"})
"""What may be otherwise at the next try."""


def _repeatable(tool: Tool) -> bool:
    return tool.annotations.idempotent or tool.annotations.read_only


def _edited(pending: Pending) -> Text:
    """Tell the model what ran: its own turn still holds the arguments that it wrote."""
    return Text(text=f"[The arguments were changed before approval. It was called with {pending.text}]\n")


def _timed_out(tool: Tool) -> str:
    late = f"{tool.name} took longer than {tool.timeout:g} seconds"
    if tool.stoppable:
        return f"{late} and was stopped. Part of it may have taken effect."
    return (
        f"{late}, and it can't be stopped: it may still be running. It may have taken effect, or may yet do so. "
        "Find out before you repeat it."
    )


def _may_run_again(tool: Tool) -> bool:
    """Whether a call that was interrupted may be run once more: then nobody need find out whether it took effect."""
    return tool.resumable or _repeatable(tool)


def _error(text: str, kind: str) -> Output:
    return Output(content=(Text(text=text),), is_error=True, kind=kind)


def _decided(pending: Pending) -> str:
    if pending.refused:
        return f"refused: {pending.kind}"
    if pending.output is not None:
        return "answered by hand"
    if pending.approval is not None and pending.verdict != "deny":
        return f"{pending.approval.answer} by {pending.approval.by}"
    return f"{pending.verdict}: {pending.by}"
