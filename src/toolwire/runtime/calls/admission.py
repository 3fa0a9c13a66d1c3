"""Admission of tool calls: validate the arguments, apply the policy, and obtain approvals."""

import asyncio
import json
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from toolwire.canonical.content import ToolCall
from toolwire.journal.runs import decode_stored
from toolwire.runtime.calls.approval import NO_APPROVER, Approval, ApprovalAnswer, ApprovalRequest, Approver
from toolwire.runtime.calls.validation import CallValidationError, is_truncated, read_arguments, unknown_tool_message
from toolwire.runtime.policy import Policy, Rule
from toolwire.runtime.run.state import PendingCall, RunState
from toolwire.runtime.run.step_log import StepLog
from toolwire.runtime.tool import Arguments, CallDeferred, Tool, ToolCatalog, takes_direct_calls, takes_program_calls

Caller = Literal["direct", "code"]
_CALLER_HINTS: dict[Caller, str] = {
    "direct": "directly; nothing was run. Call it from code, with run_code",
    "code": "from code; nothing was run. Call it directly",
}


def admit_call(
    call: ToolCall, id: str, catalog: ToolCatalog, policy: Policy, *, repair: bool = False, caller: Caller = "direct"
) -> PendingCall:
    """Validate a call and apply the policy, or reject it with a message for the model.

    `repair` allows fixing almost valid arguments. `caller` is `direct` for the model itself, or a program that it
    wrote. A rejected call is returned too, with its rejection set.
    """
    tool = catalog.tools.get(call.name)
    if tool is None:
        available = [name for name, candidate in catalog.tools.items() if _accepts_caller(candidate, caller)]
        return PendingCall(
            call=call, id=id, rejection=unknown_tool_message(call.name, available), rejection_kind="unknown_tool"
        )
    if not call.complete and (call.shape == "freeform" or is_truncated(call.arguments)):
        message = f"the arguments of {call.name} were truncated; nothing was run"
        return PendingCall(call=call, id=id, tool=tool, rejection=message, rejection_kind="truncated")
    try:
        arguments, repairs = read_arguments(tool, call.arguments, repair=repair)
    except CallValidationError as invalid:
        return PendingCall(call=call, id=id, tool=tool, rejection=str(invalid), rejection_kind=invalid.kind)
    text = json.dumps(arguments, ensure_ascii=False) if repairs else call.arguments
    if not _accepts_caller(tool, caller):
        message = f"{call.name} may not be called {_CALLER_HINTS[caller]}"
        return PendingCall(call=call, id=id, tool=tool, validated_text=text, rejection=message, rejection_kind="denied")
    pending = PendingCall(
        call=call, id=id, tool=tool, validated_text=text, repairs=repairs, is_program_call=caller == "code"
    )
    _set_verdict(pending, tool, policy, pending.arguments if repairs else arguments)
    return pending


def apply_policy(pending: PendingCall, tool: Tool, policy: Policy) -> None:
    """Set on `pending` whether the policy allows, denies or asks about the call with its current arguments."""
    _set_verdict(pending, tool, policy, pending.arguments)


def _set_verdict(pending: PendingCall, tool: Tool, policy: Policy, arguments: Arguments) -> None:
    """Set the verdict on arguments that nothing else uses: the code of the tool may change them."""
    decision = policy.decide(tool, arguments)
    pending.verdict, pending.verdict_reason = decision.verdict, decision.reason
    if pending.verdict != "deny" and (reason := tool.approval_reason(arguments)) is not None:
        pending.verdict, pending.verdict_reason = "ask", reason


def _accepts_caller(tool: Tool, caller: Caller) -> bool:
    """Return True if the tool may be called by the model (`direct`) or by a program, as `caller` says."""
    return takes_direct_calls(tool) if caller == "direct" else takes_program_calls(tool)


class RecordedApproval(Struct, frozen=True):
    """An approval as recorded in the step log."""

    approval: Approval
    covers_run: bool = False
    """The answer was `always`: later calls of the tool in this run need no approval."""
    definition_digest: str = ""
    """Definition of the tool for which `covers_run` holds."""


class ApprovalGate:
    """Obtains approvals for the calls of one run, one prompt at a time."""

    def __init__(self, step_log: StepLog, approver: Approver) -> None:
        self._step_log = step_log
        self._approver = approver
        self._prompt_lock = asyncio.Lock()

    async def resolve(self, state: RunState, pending: PendingCall) -> None:
        """Set `pending.approval` from the record, an earlier `always`, or the approver.

        The approval stays None if the approver answers `later`.
        """
        request, name = state.approval_request(pending), f"approval/{state.turn}/{pending.id}"
        async with self._prompt_lock:  # the answer `always` to one call may cover the next
            if (stored := self._step_log.outcome(name)) is not None:
                recorded: RecordedApproval | None = decode_stored(stored, RecordedApproval, f"step {name}")
            elif not request.requires_human and _is_covered(state.rules, pending):
                pending.approval = Approval(answer="yes", digest=request.digest, decided_by="always for this run")
                return
            else:
                recorded = await self._request_approval(
                    name, request, "" if pending.tool is None else pending.tool.definition_digest
                )
            if recorded is None:
                return
            pending.approval = recorded.approval
            rule = Rule("allow", pending.call.name, definition_digest=recorded.definition_digest)
            if recorded.covers_run and rule not in state.rules:
                state.rules += (rule,)
                self._step_log.finish(_rules_step(state), msgspec.json.encode(state.rules))

    async def _request_approval(
        self, step_name: str, request: ApprovalRequest, definition_digest: str
    ) -> RecordedApproval | None:
        """Ask the approver, and record the answer as step `step_name` of the run; None if the answer is `later`."""
        self._step_log.begin(step_name, msgspec.json.encode(request))
        answer: ApprovalAnswer = await self._approver.approve(request)
        if answer not in get_args(ApprovalAnswer):  # False and None are no approvals
            raise TypeError(
                f"{self._approver.name}.approve returned {answer!r}: return 'yes', 'no', 'always' or 'later'"
            )
        if answer == "later":
            return None
        decision: Literal["yes", "no"] = "no" if answer == "no" else "yes"
        reason = "" if self._approver.name != NO_APPROVER else f"{request.reason}, and no approver is available"
        approval = Approval(answer=decision, digest=request.digest, decided_by=self._approver.name, reason=reason)
        recorded = RecordedApproval(approval, covers_run=answer == "always", definition_digest=definition_digest)
        self._step_log.finish(step_name, msgspec.json.encode(recorded))
        return recorded

    def restore_rules(self, state: RunState) -> None:
        """Restore the `allow` rules that `always` answers added in the current turn, for a resumed run."""
        if (stored := self._step_log.outcome(_rules_step(state))) is not None:
            state.rules = decode_stored(stored, tuple[Rule, ...], f"step {_rules_step(state)}")


def defer_or_deny(state: RunState, outer: PendingCall, pending: PendingCall) -> None:
    """Handle a nested call (made by the tool `outer`) whose approval is postponed.

    A resumable outer tool is paused by raising `CallDeferred`. Otherwise the nested call is denied.
    """
    if outer.tool is not None and outer.tool.resumable:
        raise CallDeferred
    reason = f"approval was postponed, and {outer.call.name} can't wait for it"
    pending.approval = Approval(
        answer="no", digest=state.approval_request(pending).digest, decided_by=NO_APPROVER, reason=reason
    )


def _rules_step(state: RunState) -> str:
    """Return the name of the log entry (step) that records the rules added in this turn."""
    return f"always/{state.turn}"


def _is_covered(rules: tuple[Rule, ...], pending: PendingCall) -> bool:
    """Return True if an earlier `always` answer allows the call."""
    tool = pending.tool
    return tool is not None and any(rule.verdict == "allow" and rule.matches(tool, {}) for rule in rules)
