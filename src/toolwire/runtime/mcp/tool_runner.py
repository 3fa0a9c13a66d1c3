"""A call from outside any conversation, under the same rules as a model's: validated, authorised, bounded, recorded."""

import itertools
import json
import secrets
import time
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Text, ToolCall
from toolwire.journal.redaction import Redactor
from toolwire.runtime.calls.admission import Caller, admit_call
from toolwire.runtime.calls.approval import Approval, Approver, NoApprover
from toolwire.runtime.calls.executor import Executor
from toolwire.runtime.calls.outputs import as_output
from toolwire.runtime.policy import Policy
from toolwire.runtime.run.events import CallProgressed, RunEvent
from toolwire.runtime.run.state import PendingCall, RunState
from toolwire.runtime.run.step_log import InMemoryStepLog, StepLog
from toolwire.runtime.tool import Arguments, Tool, ToolContext, ToolOutput
from toolwire.runtime.toolbox import Toolbox


class ToolRunner:
    """The one way to a tool of this toolbox. `steps` keeps what was done, under the name `run`; `tell` is told."""

    def __init__(
        self,
        toolbox: Toolbox,
        policy: Policy,
        *,
        redactor: Redactor | None = None,
        step_log: StepLog | None = None,
        on_event: Callable[[RunEvent], None] = lambda _: None,
    ) -> None:
        self._toolbox = toolbox
        self._policy = policy
        self._redactor = redactor or Redactor(())
        self._on_event = on_event
        self.step_log = step_log
        self.run_id = f"mcp_{time.strftime('%Y%m%d%H%M%S', time.gmtime())}_{secrets.token_hex(4)}"
        self.call_count = 0

    async def __call__(
        self, name: str, arguments: Arguments, /, *, approver: Approver, on_progress: Callable[[str], None]
    ) -> ToolOutput:
        self.call_count += 1
        return await self._run_call(_build_call(f"call_{self.call_count}", name, arguments), approver, on_progress)

    async def _run_call(
        self, call: ToolCall, approver: Approver, on_progress: Callable[[str], None], caller: Caller = "direct"
    ) -> ToolOutput:
        id = call.id or ""
        pending = admit_call(call, id, await self._toolbox.catalog(), self._policy, caller=caller)
        if pending.needs_approval:
            pending.approval = await self._request_approval(pending, approver)
        gave = list[ToolOutput]()
        if pending.tool is not None:
            pending.tool = _capture_output(pending.tool, gave)
        counts = itertools.count(1)

        def tell(event: RunEvent) -> None:
            self._on_event(event)
            if isinstance(event, CallProgressed) and event.call_id == id:
                on_progress(event.text)

        async def inner(outer: PendingCall, tool: str, given: Arguments, number: str | None) -> ToolOutput:
            return await self._run_call(
                _build_call(f"{outer.id}/{number or next(counts)}", tool, given), approver, on_progress, "code"
            )

        executor = Executor(
            run=self.run_id,
            step_log=InMemoryStepLog() if self.step_log is None else self.step_log,
            approver=approver,
            parallel=1,
            redactor=self._redactor,
            on_event=tell,
            call_nested=inner,
            recent_calls=self._toolbox.recent_calls,
            locks=self._toolbox.locks,
        )
        outcome = await executor.execute_model_call("1", pending)
        if outcome is None:
            return ToolOutput(content=(Text(text="it waits for an approval, and here nothing waits"),), is_error=True)
        result = outcome.result
        failed = result.status != "ok"
        return ToolOutput(
            content=result.content or (),
            is_error=failed,
            error_kind=outcome.record.error,
            structured=None if failed or not gave else self._redact_structured(gave[-1]),
        )

    async def _request_approval(self, pending: PendingCall, approver: Approver) -> Approval:
        ask = RunState(run=self.run_id).approval_request(pending)
        yes = await approver.approve(ask) in ("yes", "always")
        why = f"{pending.verdict_reason}, and nobody is there to ask" if isinstance(approver, NoApprover) else ""
        return Approval(answer="yes" if yes else "no", digest=ask.digest, decided_by=approver.name, reason=why)

    def _redact_structured(self, output: ToolOutput) -> object:
        """Structured content is bounded by the message that it came in; secrets are taken out of it as of text."""
        if output.structured is None:
            return None
        try:
            return msgspec.json.decode(self._redactor.redact_bytes(msgspec.json.encode(output.structured)))
        except msgspec.DecodeError:
            return None


def _build_call(id: str, name: str, arguments: Arguments) -> ToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id=id, name=name, arguments=text)


def _capture_output(tool: Tool, outputs: list[ToolOutput]) -> Tool:
    """The record of a call has no structured content: it is listened to where it comes from."""

    async def run(arguments: Arguments, calling: ToolContext) -> ToolOutput:
        outputs.append(as_output(await tool.run(arguments, calling)))
        return outputs[-1]

    return replace(tool, run=run)
