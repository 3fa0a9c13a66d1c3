"""Hand-offs: tools through which an agent moves the conversation to another agent."""

import re
from collections.abc import Sequence

from toolwire.runtime.calls.executor import CallOutcome
from toolwire.runtime.run.state import PendingCall, RunState
from toolwire.runtime.tool import DIRECT_CALLER, Annotations, Arguments, Tool, ToolContext

_NOT_IN_NAMES = re.compile(r"\W+")


def handoff_tool(agent: str, description: str) -> Tool:
    """Return the tool `transfer_to_AGENT`."""

    async def accept(_: Arguments, __: ToolContext) -> str:
        """Confirm the hand-off. The loop moves the conversation when the calls of the turn have ended."""
        return f"The conversation continues with {agent}."

    what = f" {description}" if description else ""
    return Tool(
        name=f"transfer_to_{_NOT_IN_NAMES.sub('_', agent)}",
        description=f"Move the conversation to the agent {agent}, which answers the user.{what}",
        parameters={"type": "object", "properties": {}, "additionalProperties": False},
        annotations=Annotations(read_only=True, idempotent=True),
        allowed_callers=(DIRECT_CALLER,),
        source=f"handoff:{agent}",
        handoff=agent,
        run=accept,
    )


def check_handoff(state: RunState, pending: PendingCall, limit: int) -> None:
    """Deny a hand-off beyond the limit, or after another one in `state.pending`, the earlier calls of the turn."""
    if pending.tool is None or not pending.tool.handoff or pending.rejection:
        return
    if state.handoffs >= limit:
        pending.rejection = f"denied: the limit of {limit} hand-offs was reached. Answer the user yourself."
    elif any(_is_handoff(earlier) for earlier in state.pending):
        pending.rejection = "denied: the conversation can move to one agent only, that of the first hand-off."
    if pending.rejection:
        pending.rejection_kind, pending.verdict = "denied", "deny"


def handoff_target(
    state: RunState, calls: Sequence[PendingCall], outcomes: Sequence[CallOutcome | None] | None
) -> str | None:
    """Return the agent that the conversation moves to after the calls of a turn; None if it stays."""
    if outcomes is None or state.stopped is not None:
        return None
    for pending, outcome in zip(calls, outcomes, strict=True):
        if _is_handoff(pending) and outcome is not None and outcome.result.status == "ok" and pending.output is None:
            return None if pending.tool is None else pending.tool.handoff
    return None


def _is_handoff(pending: PendingCall) -> bool:
    """Return True for a hand-off that was not denied."""
    return pending.tool is not None and bool(pending.tool.handoff) and not pending.rejection
