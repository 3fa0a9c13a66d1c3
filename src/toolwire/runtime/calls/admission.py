"""What is to be done with a call: whether it can be run at all, and whether it may.

Having calls decided on: by what was decided before, or by asking a person, one question after the other.
"""

import asyncio
import json
from typing import Literal

import msgspec
from msgspec import Struct

from toolwire.canonical.content import ToolCall
from toolwire.journal.runs import decode_stored
from toolwire.runtime.calls.approval import Approval, ApprovalAnswer, ApprovalRequest, Approver
from toolwire.runtime.calls.validation import CallValidationError, is_truncated, read_arguments, unknown_tool_message
from toolwire.runtime.policy import Policy, Rule
from toolwire.runtime.run.state import PendingCall, RunState
from toolwire.runtime.run.step_log import StepLog
from toolwire.runtime.tool import CallDeferred, Tool, ToolCatalog, takes_direct_calls, takes_program_calls

Caller = Literal["direct", "code"]
_CALLER_HINTS: dict[Caller, str] = {
    "direct": "directly; nothing was run. Call it from code, with run_code",
    "code": "from code; nothing was run. Call it directly",
}


def admit_call(
    call: ToolCall, id: str, catalog: ToolCatalog, policy: Policy, *, repair: bool = False, caller: Caller = "direct"
) -> PendingCall:
    tool = catalog.tools.get(call.name)
    if tool is None:
        known = [name for name, one in catalog.tools.items() if _accepts_caller(one, caller)]
        return PendingCall(
            call=call, id=id, refusal=unknown_tool_message(call.name, known), refusal_kind="unknown_tool"
        )
    if not call.complete and (call.shape == "freeform" or is_truncated(call.arguments)):
        why = f"the arguments of {call.name} were cut off before their end; nothing was run"
        return PendingCall(call=call, id=id, tool=tool, refusal=why, refusal_kind="truncated")
    try:
        arguments, repairs = read_arguments(tool, call.arguments, repair=repair)
    except CallValidationError as invalid:
        return PendingCall(call=call, id=id, tool=tool, refusal=str(invalid), refusal_kind=invalid.kind)
    text = json.dumps(arguments, ensure_ascii=False) if repairs else call.arguments
    if not _accepts_caller(tool, caller):
        why = f"{call.name} may not be called {_CALLER_HINTS[caller]}"
        return PendingCall(call=call, id=id, tool=tool, validated_text=text, refusal=why, refusal_kind="denied")
    pending = PendingCall(
        call=call, id=id, tool=tool, validated_text=text, repairs=repairs, is_program_call=caller == "code"
    )
    apply_policy(pending, tool, policy)
    return pending


def apply_policy(pending: PendingCall, tool: Tool, policy: Policy) -> None:
    """Set what the policy says of the arguments as they are now."""
    arguments = pending.arguments
    decision = policy.decide(tool, arguments)
    pending.verdict, pending.verdict_reason = decision.verdict, decision.reason
    if pending.verdict != "deny" and (reason := tool.approval_reason(arguments)) is not None:
        pending.verdict, pending.verdict_reason = "ask", reason


def _accepts_caller(tool: Tool, caller: Caller) -> bool:
    return takes_direct_calls(tool) if caller == "direct" else takes_program_calls(tool)


class RecordedApproval(Struct, frozen=True):
    """An approval as it is kept. `always`: the tool need not ask again in this run, as long as its definition has this
    digest."""

    approval: Approval
    covers_run: bool = False
    definition_digest: str = ""


class ApprovalGate:
    """For one run."""

    def __init__(self, step_log: StepLog, approver: Approver) -> None:
        self._step_log = step_log
        self._approver = approver
        self._prompt_lock = asyncio.Lock()

    async def resolve(self, state: RunState, pending: PendingCall) -> None:
        """A call that stays undecided is one of which somebody will be asked later."""
        ask, name = state.approval_request(pending), f"approval/{state.turn}/{pending.id}"
        async with self._prompt_lock:  # what is said of one call can be meant for the next
            if (known := self._step_log.outcome(name)) is not None:
                decided: RecordedApproval | None = decode_stored(known, RecordedApproval, f"the step {name}")
            elif not ask.requires_human and _is_covered(state.rules, pending):
                pending.approval = Approval(answer="yes", digest=ask.digest, decided_by="always for this run")
                return
            else:
                decided = await self._request_approval(
                    name, ask, "" if pending.tool is None else pending.tool.definition_digest
                )
            if decided is None:
                return
            pending.approval = decided.approval
            rule = Rule("allow", pending.call.name, definition_digest=decided.definition_digest)
            if decided.covers_run and rule not in state.rules:
                state.rules += (rule,)
                self._step_log.finish(_rules_step(state), msgspec.json.encode(state.rules))

    async def _request_approval(
        self, step_name: str, request: ApprovalRequest, definition_digest: str
    ) -> RecordedApproval | None:
        self._step_log.begin(step_name, msgspec.json.encode(request))
        answer: ApprovalAnswer = await self._approver.approve(request)
        if answer == "later":
            return None
        said: Literal["yes", "no"] = "no" if answer == "no" else "yes"
        why = "" if self._approver.name != "nobody" else f"{request.reason}, and nobody is there to ask"
        approval = Approval(answer=said, digest=request.digest, decided_by=self._approver.name, reason=why)
        decided = RecordedApproval(approval, covers_run=answer == "always", definition_digest=definition_digest)
        self._step_log.finish(step_name, msgspec.json.encode(decided))
        return decided

    def restore_rules(self, state: RunState) -> None:
        """What was said of this turn for all of the run: of what a tool called, nobody is asked again."""
        if (known := self._step_log.outcome(_rules_step(state))) is not None:
            state.rules = decode_stored(known, tuple[Rule, ...], f"the step {_rules_step(state)}")


def defer_or_deny(state: RunState, outer: PendingCall, pending: PendingCall) -> None:
    """Somebody will be asked later: only a tool that can be taken up again can wait for that."""
    if outer.tool is not None and outer.tool.resumable:
        raise CallDeferred
    why = f"the answer is to come later, and {outer.call.name} can't wait for it"
    pending.approval = Approval(
        answer="no", digest=state.approval_request(pending).digest, decided_by="nobody", reason=why
    )


def _rules_step(state: RunState) -> str:
    return f"always/{state.turn}"


def _is_covered(rules: tuple[Rule, ...], pending: PendingCall) -> bool:
    tool = pending.tool
    return tool is not None and any(rule.verdict == "allow" and rule.matches(tool, {}) for rule in rules)
