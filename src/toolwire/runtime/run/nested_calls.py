"""Calls that tools make, such as those of a program, with the same policy, hooks and approvals as the model's."""

from collections.abc import Callable
from typing import Any

import msgspec

from toolwire.canonical.content import ToolCall
from toolwire.runtime.calls.admission import ApprovalGate, admit_call, defer_or_deny
from toolwire.runtime.calls.executor import Executor
from toolwire.runtime.policy import Policy
from toolwire.runtime.run.context import RunContext
from toolwire.runtime.run.events import RunEvent
from toolwire.runtime.run.hooks import HookChain
from toolwire.runtime.run.state import PendingCall, RunState, call_proposed
from toolwire.runtime.tool import Arguments, ToolCatalog, ToolOutput


class NestedCalls:
    """Executes the calls that tools make during one turn."""

    executor: Executor
    """Set after the executor is created, which needs `call`."""

    def __init__(
        self,
        state: RunState,
        context: RunContext[Any],
        *,
        catalog: ToolCatalog,
        policy: Policy,
        hooks: HookChain,
        gate: ApprovalGate,
        on_event: Callable[[RunEvent], None],
    ) -> None:
        self._state = state
        self._context = context
        self._catalog = catalog
        self._policy = policy
        self._hooks = hooks
        self._gate = gate
        self._on_event = on_event
        self._counts: dict[str, int] = {}

    async def call(self, outer: PendingCall, name: str, arguments: Arguments, id: str | None) -> ToolOutput:
        """Admit, approve and execute a call that the tool `outer` makes."""
        self._counts[outer.id] = self._counts.get(outer.id, 0) + 1
        call_id = f"{outer.id}/{id or self._counts[outer.id]}"
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        call = ToolCall(id=call_id, name=name, arguments=text)
        # Rules added during the run do not apply: a resumed run has them before decisions that preceded them.
        pending = admit_call(call, call_id, self._catalog, self._policy, caller="code")
        await self._hooks.before_tool(self._context, pending, self._policy)
        self._on_event(call_proposed(pending))
        if pending.needs_approval:
            await self._gate.resolve(self._state, pending)
        if pending.needs_approval:
            defer_or_deny(self._state, outer, pending)
        outcome = await self.executor.execute_call(str(self._state.turn), pending)
        self.executor.add_nested_usage(outer, outcome.usage)
        return ToolOutput(
            content=outcome.result.content or (),
            is_error=outcome.result.status != "ok",
            error_kind=outcome.record.error,
            structured=outcome.structured,
        )
