"""Where a run stands: what was said, what the model asked for, and what was decided about it.

`step` gives a state before anything is executed. What was asked for can then be approved, denied, or answered by hand.
"""

import json
from collections.abc import Generator, Iterable
from typing import Any

from msgspec import Struct, field

from toolwire.canonical.content import Message, ToolCall
from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.response import Usage
from toolwire.runtime.calls.approval import Approval, ApprovalRequest
from toolwire.runtime.calls.batched_calls import unique_id
from toolwire.runtime.calls.outputs import as_output
from toolwire.runtime.calls.validation import CallValidationError, parse_input, read_arguments
from toolwire.runtime.policy import NO_RULE, Rule, Verdict, suggest_rules
from toolwire.runtime.run.events import StopCause
from toolwire.runtime.tool import Arguments, Tool, ToolOutput


class ResponseIdentity(Struct, frozen=True):
    """The answer that calls came in: its id, the model as it was asked for, and what the model calls itself."""

    response_id: str = ""
    requested_model: str = ""
    reported_model: str = ""


class PendingCall(Struct, kw_only=True):
    """A call that the model asked for. `refused`: why it can't be run, whoever allows it; `output`: it was answered by
    hand, or is not to be run. `by_code`: a program wants it, and can use data. `input` is the exact text of the
    arguments that run, None if there are no valid ones: the model's own, repaired, or `edited` by who approved them."""

    call: ToolCall
    id: str
    validated_text: str | None = None
    edited: bool = False
    repairs: tuple[str, ...] = ()
    tool: Tool | None = None
    verdict: Verdict = "deny"
    verdict_reason: str = ""
    refusal: str = ""
    refusal_kind: str = ""
    approval: Approval | None = None
    output: ToolOutput | None = None
    is_program_call: bool = False

    @property
    def arguments(self) -> Arguments:
        """The arguments that run, read from `input` anew: changing what is returned here changes nothing."""
        return None if self.validated_text is None or self.tool is None else parse_input(self.tool, self.validated_text)

    @property
    def arguments_text(self) -> str:
        """The text that an approval is bound to."""
        return self.call.arguments if self.validated_text is None else self.validated_text

    @property
    def needs_approval(self) -> bool:
        return self.verdict == "ask" and self.approval is None and self.output is None


def with_unique_ids(turn: int, calls: Iterable[ToolCall]) -> list[tuple[str, ToolCall]]:
    """Calls by ids that no other one of their turn has: some providers give none."""
    found: dict[str, ToolCall] = {}
    for place, call in enumerate(calls):
        found[unique_id(call.id or f"call_{turn}_{place}", place, found)] = call
    return list(found.items())


class RunState(Struct, kw_only=True):
    """`rules` are those that a person added on the way; `stopped` is None while it can go on. `recent` are digests of
    the last turns' calls, by which a run that goes in circles is seen."""

    run: str
    messages: tuple[Message, ...] = ()
    turn: int = 0
    pending: list[PendingCall] = field(default_factory=list)
    text: str = ""
    usage: Usage | None = None
    call_count: int = 0
    rules: tuple[Rule, ...] = ()
    stopped: StopCause | None = None
    reason: str = ""
    recent_call_digests: tuple[bytes, ...] = ()
    last_response: ResponseIdentity = ResponseIdentity()
    started_at: float = 0.0
    task: Any = None

    def __await__(self) -> Generator[Any, None, "RunState"]:
        """In asynchronous code a state is ready when it was awaited."""
        working, self.task = self.task, None
        if working is not None:
            yield from working.__await__()
        return self

    @property
    def approval_requests(self) -> list[ApprovalRequest]:
        """What a person still has to decide."""
        return [self.approval_request(one) for one in self.pending if one.needs_approval]

    def approval_request(self, pending: PendingCall) -> ApprovalRequest:
        call, tool = pending.call, pending.tool
        preview, allow, in_person = None, tuple[str, ...](), False
        if tool is not None:
            preview, in_person = tool.preview(pending.arguments), tool.requires_human(pending.arguments)
            allow = suggest_rules(tool, pending.arguments) if pending.verdict_reason == NO_RULE else ()
        return ApprovalRequest(
            run=self.run,
            call_id=pending.id,
            tool=call.name,
            arguments=pending.arguments_text,
            reason=pending.verdict_reason,
            preview=preview,
            suggested_rules=allow,
            requires_human=in_person,
        )

    def approve(self, call_id: str, decided_by: str = "caller", *, arguments: Arguments = None) -> None:
        """Allow one call, as it stands now or with other `arguments`. The model is told which ones ran."""
        pending = self._pending_call(call_id)
        if arguments is not None:
            self._edit_arguments(pending, arguments)
        pending.approval = Approval(answer="yes", digest=self.approval_request(pending).digest, decided_by=decided_by)

    def _edit_arguments(self, pending: PendingCall, arguments: Arguments) -> None:
        if pending.tool is None:
            raise ToolwireError(f"{pending.call.name} is no tool of this agent: no arguments can be given to it")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        try:
            read_arguments(pending.tool, text)
        except CallValidationError as invalid:
            raise ToolwireError(str(invalid)) from None
        pending.validated_text, pending.edited, pending.repairs = text, True, ()
        pending.refusal = pending.refusal_kind = ""

    def deny(self, call_id: str, reason: str = "", decided_by: str = "caller") -> None:
        pending = self._pending_call(call_id)
        pending.approval = Approval(
            answer="no", digest=self.approval_request(pending).digest, decided_by=decided_by, reason=reason
        )

    def answer(self, call_id: str, output: Any, *, is_error: bool = False) -> None:
        """Take a call over: this is its result, and nothing is run."""
        given = as_output(output)
        self._pending_call(call_id).output = ToolOutput(
            content=given.content, structured=given.structured, is_error=is_error or given.is_error
        )

    def _pending_call(self, call_id: str) -> PendingCall:
        for one in self.pending:
            if one.id == call_id:
                return one
        known = ", ".join(one.id for one in self.pending) or "none"
        raise ToolwireError(f"no call {call_id!r} is waiting; those that are: {known}")
