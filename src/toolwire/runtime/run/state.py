"""The state of a run, and normalization of the calls of a turn.

The state of a run: its messages, pending calls and approvals.

`Agent.step` returns the state before any call of the turn is executed. The caller can then approve, deny or answer the
pending calls.
"""

import asyncio
import json
from collections.abc import Collection, Generator, Iterable
from typing import TYPE_CHECKING, Any, TypeGuard

from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, ToolCall
from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.response import Usage
from toolwire.runtime.calls.approval import Approval, ApprovalRequest
from toolwire.runtime.calls.outputs import as_output
from toolwire.runtime.calls.validation import CallValidationError, parse_input, read_arguments
from toolwire.runtime.policy import NO_RULE, Rule, Verdict, suggest_rules
from toolwire.runtime.run.events import CallProposed, RunEnded, StopCause
from toolwire.runtime.tool import Arguments, Tool, ToolOutput

# OpenAI models sometimes call this internal tool, with function names prefixed by `functions.`
_WRAPPER_NAMES = frozenset({"multi_tool_use.parallel", "multi_tool_use_parallel", "parallel"})


def unwrap_batched_calls(messages: tuple[Message, ...], tool_names: Collection[str]) -> tuple[Message, ...]:
    """Replace each batch wrapper, one call that contains several, by the calls inside it.

    A malformed wrapper stays, and is later rejected as an unknown tool.
    """
    return _assign_unique_ids(tuple(_unwrap_message(message, tool_names) for message in messages))


def _assign_unique_ids(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Make call ids unique within a turn: some servers repeat ids, and Anthropic rejects such turns."""
    calls = [part for message in messages for part in message.parts if is_client_call(part) and part.id]
    if len({call.id for call in calls}) == len(calls):
        return messages
    used_ids, index = set[str](), -1
    renumbered = list[Message]()
    for message in messages:
        parts = list[Part]()
        for part in message.parts:
            if is_client_call(part):
                index += 1
                if part.id:
                    id = unique_id(part.id, index, used_ids)
                    part = part if id == part.id else replace(part, id=id, extras=None, wire_form=())  # noqa: PLW2901
                    used_ids.add(id)
            parts.append(part)
        renumbered.append(replace(message, parts=tuple(parts)))
    return tuple(renumbered)


def is_client_call(part: Part) -> TypeGuard[ToolCall]:
    """Return True for a call that the runtime executes, rather than the provider."""
    return isinstance(part, ToolCall) and part.executor == "client"


def unique_id(id: str, index: int, used_ids: Collection[str]) -> str:
    """Return the id, with the call's index in the turn appended if it is already used."""
    while id in used_ids:
        id = f"{id}_{index}"
    return id


def _unwrap_message(message: Message, tool_names: Collection[str]) -> Message:
    """Return the message with batch wrappers replaced by the calls inside them."""
    if not any(_is_wrapper(part, tool_names) for part in message.parts):
        return message
    return replace(message, parts=tuple(call for part in message.parts for call in _unwrap_part(part, tool_names)))


def _is_wrapper(part: Part, tool_names: Collection[str]) -> bool:
    """Return True for a complete call of a batch tool such as `multi_tool_use.parallel`.

    A tool of that name that the agent defines itself is an ordinary tool.
    """
    return isinstance(part, ToolCall) and part.name in _WRAPPER_NAMES and part.name not in tool_names and part.complete


def _unwrap_part(part: Part, tool_names: Collection[str]) -> list[Part]:
    """Return the calls inside a wrapper, or the part itself if it is no wrapper or malformed."""
    if not isinstance(part, ToolCall) or not _is_wrapper(part, tool_names):
        return [part]
    try:
        uses = json.loads(part.arguments)["tool_uses"]
        return [_build_call(part, use, index) for index, use in enumerate(uses)] or [part]
    except (ValueError, TypeError, KeyError, RecursionError):
        return [part]


def _build_call(wrapper: ToolCall, use: Any, index: int) -> ToolCall:
    """Build the call at `index` of a wrapper from its entry (`use`) in `tool_uses`."""
    name = str(use["recipient_name"]).removeprefix("functions.")
    arguments = json.dumps(use.get("parameters", {}), ensure_ascii=False)
    id = wrapper.id if index == 0 or wrapper.id is None else f"{wrapper.id}_{index}"
    return replace(
        wrapper,
        id=id,
        name=name,
        arguments=arguments,
        extras=None,
        wire_form=(),
        signature=wrapper.signature if index == 0 else None,
    )


class ResponseIdentity(Struct, frozen=True):
    """Identifies the response that made a turn's calls."""

    response_id: str = ""
    requested_model: str = ""
    reported_model: str = ""
    """Model as reported by the provider."""


class PendingCall(Struct, kw_only=True):
    """A call that has no result yet, with its validation, verdict and approval."""

    call: ToolCall
    id: str
    """Id that is unique in the turn; the model may have sent none."""
    requested_name: str | None = None
    """Name by which the model called the tool, if that is the name of a vendor's tool in its place."""
    validated_text: str | None = None
    """Exact text of the arguments to run with, possibly repaired or edited; None if they are invalid."""
    edited: bool = False
    """The approver changed the arguments."""
    hook_changes: tuple[str, ...] = ()
    """The parts of the call that hooks changed: `arguments`, `result`."""
    repairs: tuple[str, ...] = ()
    tool: Tool | None = None
    verdict: Verdict = "deny"
    verdict_reason: str = ""
    rejection: str = ""
    """Message for the model if the call can't run, whatever the approval."""
    rejection_kind: str = ""
    approval: Approval | None = None
    output: ToolOutput | None = None
    """A result given by the caller; the tool is not run."""
    is_program_call: bool = False
    """A program made the call and receives structured output."""

    @property
    def arguments(self) -> Arguments:
        """Arguments parsed from `validated_text` on each access, so that changing them has no effect."""
        return None if self.validated_text is None or self.tool is None else parse_input(self.tool, self.validated_text)

    @property
    def arguments_text(self) -> str:
        """Argument text that an approval is bound to."""
        return self.call.arguments if self.validated_text is None else self.validated_text

    @property
    def needs_approval(self) -> bool:
        """True until the user approves, denies or answers a call that the policy asks about."""
        return self.verdict == "ask" and self.approval is None and self.output is None


def with_unique_ids(turn: int, calls: Iterable[ToolCall]) -> list[tuple[str, ToolCall]]:
    """Pair calls with ids that are unique in the turn; some providers send none."""
    calls_by_id: dict[str, ToolCall] = {}
    for index, call in enumerate(calls):
        calls_by_id[unique_id(call.id or f"call_{turn}_{index}", index, calls_by_id)] = call
    return list(calls_by_id.items())


class RunState(Struct, kw_only=True):
    """The state of a run between its turns."""

    run: str
    """Id of the run."""
    messages: tuple[Message, ...] = ()
    turn: int = 0
    """Number of the current turn."""
    pending: list[PendingCall] = field(default_factory=list)
    text: str = ""
    """Text of the last response."""
    text_before: str = ""
    """Text of earlier responses that the last one continues."""
    continuations: int = 0
    """Responses that were continued after the model's output limit."""
    output: Any = None
    """The answer as a value of the agent's output type."""
    output_errors: int = 0
    """Answers that did not match the output type."""
    usage: Usage | None = None
    call_count: int = 0
    agent: str = ""
    """Name of the agent that has the conversation."""
    handoffs: int = 0
    """Moves of the conversation to another agent."""
    rules: tuple[Rule, ...] = ()
    """Rules that the user added during the run, by answering `always`."""
    stopped: StopCause | None = None
    """Why the run stopped; None while it can continue."""
    reason: str = ""
    """Details of `stopped`."""
    recent_call_digests: tuple[bytes, ...] = ()
    """Digests of the calls of recent turns, to detect repetition."""
    last_response: ResponseIdentity = ResponseIdentity()
    started_at: float = 0.0
    deps: Any = None
    """Dependencies of a run that is executed in single steps."""

    def __await__(self) -> Generator[Any, None, "RunState"]:
        """Return the state, for `await agent.step(...)` in asynchronous code."""
        yield from ()
        return self

    @property
    def approval_requests(self) -> list[ApprovalRequest]:
        """Requests for the calls that still need approval."""
        return [self.approval_request(pending) for pending in self.pending if pending.needs_approval]

    def approval_request(self, pending: PendingCall) -> ApprovalRequest:
        """Build the approval request for a call."""
        call, tool = pending.call, pending.tool
        preview, suggested_rules, requires_human = None, tuple[str, ...](), False
        if tool is not None:
            preview, requires_human = tool.preview(pending.arguments), tool.requires_human(pending.arguments)
            suggested_rules = suggest_rules(tool, pending.arguments) if pending.verdict_reason == NO_RULE else ()
        return ApprovalRequest(
            run=self.run,
            call_id=pending.id,
            tool=call.name,
            arguments=pending.arguments_text,
            reason=pending.verdict_reason,
            preview=preview,
            suggested_rules=suggested_rules,
            requires_human=requires_human,
        )

    def approve(self, call_id: str, decided_by: str = "caller", *, arguments: Arguments = None) -> None:
        """Approve one call, with its current arguments or with edited ones; the model is informed of an edit."""
        pending = self._pending_call(call_id)
        if arguments is not None:
            self._edit_arguments(pending, arguments)
        pending.approval = Approval(answer="yes", digest=self.approval_request(pending).digest, decided_by=decided_by)

    def _edit_arguments(self, pending: PendingCall, arguments: Arguments) -> None:
        """Replace the arguments of a call after validating them."""
        if pending.tool is None:
            raise ToolwireError(f"can't edit arguments: unknown tool {pending.call.name!r}")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        try:
            read_arguments(pending.tool, text)
        except CallValidationError as error:
            raise ToolwireError(str(error)) from None
        pending.validated_text, pending.edited, pending.repairs = text, True, ()
        pending.rejection = pending.rejection_kind = ""

    def deny(self, call_id: str, reason: str = "", decided_by: str = "caller") -> None:
        """Deny one call; the model sees the reason."""
        pending = self._pending_call(call_id)
        pending.approval = Approval(
            answer="no", digest=self.approval_request(pending).digest, decided_by=decided_by, reason=reason
        )

    def answer(self, call_id: str, output: Any, *, is_error: bool = False) -> None:
        """Supply the result of a call instead of running its tool."""
        result = as_output(output)
        self._pending_call(call_id).output = ToolOutput(
            content=result.content, structured=result.structured, is_error=is_error or result.is_error
        )

    def _pending_call(self, call_id: str) -> PendingCall:
        """Return the pending call with this id, or raise."""
        for pending in self.pending:
            if pending.id == call_id:
                return pending
        pending_ids = ", ".join(pending.id for pending in self.pending) or "none"
        raise ToolwireError(f"no pending call {call_id!r}; pending calls: {pending_ids}")


class UnfinishedStep:
    """A step in asynchronous code, to await; its result is the state."""

    def __init__(self, state: RunState, task: "asyncio.Future[None]") -> None:
        self._state = state
        self._task = task

    def __await__(self) -> Generator[Any, None, RunState]:
        """Wait for the end of the step, and return the state."""
        yield from self._task.__await__()
        return self._state

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise `ToolwireError` for an attribute: without `await`, it would be that of before the step."""
            if hasattr(self._state, name) and not name.startswith("_"):
                raise ToolwireError("the step has not ended; await it first")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def run_ended(state: RunState) -> RunEnded:
    """Build the event that ends a run."""
    return RunEnded(
        run=state.run,
        stopped=state.stopped or "finished",
        reason=state.reason,
        text=state.text,
        usage=state.usage,
        turns=state.turn,
        calls=state.call_count,
    )


def call_proposed(pending: PendingCall) -> CallProposed:
    """Build the event for a call that the model or a program requests."""
    call = pending.call
    if pending.rejection:
        return CallProposed(call_id=pending.id, tool=call.name, arguments=call.arguments, rejected=pending.rejection)
    return CallProposed(
        call_id=pending.id,
        tool=call.name,
        arguments=pending.arguments_text if pending.hook_changes else call.arguments,
        verdict=pending.verdict,
        by=pending.verdict_reason,
    )
