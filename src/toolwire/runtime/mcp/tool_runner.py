"""Run tool calls outside a conversation, with the same validation, policy, limits and records as a model's calls."""

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
from toolwire.runtime.run.events import CallLogged, CallProgressed, RunEvent
from toolwire.runtime.run.state import PendingCall, RunState
from toolwire.runtime.run.step_log import InMemoryStepLog, StepLog
from toolwire.runtime.tool import Arguments, Tool, ToolContext, ToolOutput
from toolwire.runtime.toolbox import Toolbox


class ToolRunner:
    """Runs the tools of a toolbox for MCP clients and the command line.

    Calls are recorded in `step_log`, if one is given, under the run id `run_id`.
    """

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
        self,
        name: str,
        arguments: Arguments,
        /,
        *,
        approver: Approver,
        on_progress: Callable[[str], None],
        on_log: Callable[[str, str], None] = lambda _level, _text: None,
    ) -> ToolOutput:
        """Run one call. Failures of the caller or the tool are returned as outputs with `is_error`.

        `on_log` receives the level and the text of messages that the tool logs.
        """
        self.call_count += 1
        call = _build_call(f"call_{self.call_count}", name, arguments)

        def forward_event(event: RunEvent) -> None:
            """Pass an event on, and report progress and logs to the client."""
            self._on_event(event)
            match event:
                case CallProgressed():
                    on_progress(event.text)
                case CallLogged():
                    on_log(event.level, event.text)
                case _:
                    pass

        return await self._run_call(call, approver, forward_event)

    async def _run_call(
        self, call: ToolCall, approver: Approver, on_event: Callable[[RunEvent], None], caller: Caller = "direct"
    ) -> ToolOutput:
        """Admit, approve and execute one call, and its nested calls in the same way."""
        id = call.id or ""
        pending = admit_call(call, id, await self._toolbox.catalog(), self._policy, caller=caller)
        if pending.needs_approval:
            pending.approval = await self._request_approval(pending, approver)
        outputs = list[ToolOutput]()
        if pending.tool is not None:
            pending.tool = _capture_output(pending.tool, outputs)
        numbers = itertools.count(1)

        async def call_nested(outer: PendingCall, tool: str, arguments: Arguments, id: str | None) -> ToolOutput:
            """Run a call that the tool `outer` makes, under the same policy and approver."""
            nested = _build_call(f"{outer.id}/{id or next(numbers)}", tool, arguments)
            return await self._run_call(nested, approver, on_event, "code")

        executor = Executor(
            run=self.run_id,
            step_log=InMemoryStepLog() if self.step_log is None else self.step_log,
            approver=approver,
            parallel=1,
            redactor=self._redactor,
            on_event=on_event,
            call_nested=call_nested,
            recent_calls=self._toolbox.recent_calls,
            locks=self._toolbox.locks,
        )
        outcome = await executor.execute_model_call("1", pending)
        if outcome is None:
            message = "a nested call needs approval, and this call can't wait for it"
            return ToolOutput(content=(Text(text=message),), is_error=True)
        result = outcome.result
        is_error = result.status != "ok"
        return ToolOutput(
            content=result.content or (),
            is_error=is_error,
            error_kind=outcome.record.error,
            structured=None if is_error or not outputs else self._redact_structured(outputs[-1]),
        )

    async def _request_approval(self, pending: PendingCall, approver: Approver) -> Approval:
        """Ask the approver about one call; `later` counts as a denial."""
        request = RunState(run=self.run_id).approval_request(pending)
        approved = await approver.approve(request) in ("yes", "always")
        reason = f"{pending.verdict_reason}, and no approver is available" if isinstance(approver, NoApprover) else ""
        return Approval(
            answer="yes" if approved else "no", digest=request.digest, decided_by=approver.name, reason=reason
        )

    def _redact_structured(self, output: ToolOutput) -> object:
        """Return the structured output without secrets; None if there is none."""
        if output.structured is None:
            return None
        try:
            return msgspec.json.decode(self._redactor.redact_bytes(msgspec.json.encode(output.structured)))
        except msgspec.DecodeError:
            return None


def _build_call(id: str, name: str, arguments: Arguments) -> ToolCall:
    """Build a tool call from parsed arguments or text."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id=id, name=name, arguments=text)


def _capture_output(tool: Tool, outputs: list[ToolOutput]) -> Tool:
    """Return the tool with its outputs appended to `outputs`, since call outcomes omit structured content."""

    async def run(arguments: Arguments, context: ToolContext) -> ToolOutput:
        """Run the original tool, and keep its output."""
        outputs.append(as_output(await tool.run(arguments, context)))
        return outputs[-1]

    return replace(tool, run=run)
