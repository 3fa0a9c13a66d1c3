"""Hooks: functions that run before and after each model request and each tool call, and may change or deny it.

Hooks before a tool run before the policy and approvals, so that the user approves exactly the arguments that the tool
gets. Their outcome is a step of the run: a resumed run takes it, and does not call the hooks again.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Text, ToolCall
from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.options import OptionsMeta, require
from toolwire.journal.runs import decode_stored
from toolwire.runtime.calls.admission import apply_policy
from toolwire.runtime.calls.outputs import as_output
from toolwire.runtime.calls.validation import CallValidationError, read_arguments
from toolwire.runtime.policy import Policy
from toolwire.runtime.run.context import RunContext, resolve
from toolwire.runtime.run.state import PendingCall
from toolwire.runtime.run.step_log import StepLog
from toolwire.runtime.tool import Arguments, Locus, ToolOutput

T = TypeVar("T")


class Denied(ToolwireError):
    """Raised by a hook to deny a request, a response, a call or a result. The message is the reason."""


class ProposedCall(Struct, frozen=True, kw_only=True):
    """A tool call as hooks see it."""

    id: str
    """Id of the call."""
    tool: str
    """Name of the tool."""
    arguments: Arguments
    """The arguments. Changing them in place has no effect: return changed arguments from the hook."""
    locus: Locus = "local"
    """The place of execution. A call at the `provider` already runs, so hooks can't change it."""


class ModelTurn(Struct, frozen=True, kw_only=True):
    """A response of the model as hooks see it."""

    text: str
    """The text of the response."""
    calls: tuple[ToolCall, ...]
    """The calls that the model makes."""
    response: Response
    """The complete response."""


BeforeModel: TypeAlias = Callable[[RunContext[Any], Request], Request | Awaitable[Request | None] | None]
"""Returns a changed request, or None to leave it as it is."""
AfterModel: TypeAlias = Callable[[RunContext[Any], ModelTurn], Response | str | Awaitable[Response | str | None] | None]
"""Returns a changed response, a text that replaces the text of the response, or None."""
BeforeTool: TypeAlias = Callable[[RunContext[Any], ProposedCall], Arguments | Awaitable[Arguments | None] | None]
"""Returns changed arguments, or None."""
AfterTool: TypeAlias = Callable[[RunContext[Any], ProposedCall, ToolOutput], Any]
"""Returns another result (any value that a tool may return), or None."""


class Hooks(Struct, frozen=True, kw_only=True, metaclass=OptionsMeta):
    """Functions that run before and after each model request and each tool call of an agent.

    A hook is a function or coroutine function. It returns None to change nothing, or raises `Denied`.
    """

    before_model: BeforeModel | None = None
    after_model: AfterModel | None = None
    before_tool: BeforeTool | None = None
    after_tool: AfterTool | None = None

    def __post_init__(self) -> None:
        """Raise `TypeError` for a hook that is no function."""
        for name in self.__struct_fields__:
            hook = getattr(self, name)
            require(name, hook, "a function of the RunContext", valid=hook is None or callable(hook))


class RecordedHookOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of the hooks before a call, as recorded in the step log."""

    arguments: str | None = None
    """The changed arguments; None if no hook changed them."""
    denial: str = ""
    """The reason why a hook denied the call."""


class HookChain:
    """The hooks of an agent during one run. `before_*` hooks run in order, `after_*` hooks in reverse order."""

    def __init__(self, hooks: Sequence[Hooks], step_log: StepLog) -> None:
        self._hooks = hooks
        self._step_log = step_log

    async def before_model(self, context: RunContext[Any], request: Request) -> Request:
        """Return the request after the hooks have changed it; raise `Denied` if one denies it."""
        for hooks in self._hooks:
            if hooks.before_model is not None:
                changed: Request | None = await _resolve_optional(hooks.before_model(context, request))
                _check_result("before_model", changed, Request)
                request = request if changed is None else changed
        return request

    async def after_model(self, context: RunContext[Any], response: Response) -> Response:
        """Return the response after the hooks have changed it; raise `Denied` if one denies it."""
        for hooks in reversed(self._hooks):
            if hooks.after_model is not None:
                turn = _model_turn(response)
                changed: Response | str | None = await _resolve_optional(hooks.after_model(context, turn))
                _check_result("after_model", changed, Response, str)
                if changed is not None:
                    response = _replace_text(response, changed) if isinstance(changed, str) else changed
        return response

    async def before_tool(self, context: RunContext[Any], pending: PendingCall, policy: Policy) -> None:
        """Run the hooks before a valid call. If they change its arguments, the policy is applied to the new ones."""
        tool = pending.tool
        if tool is None or pending.rejection:
            return
        step = f"before_tool/{context.turn}/{pending.id}"
        stored = None if pending.edited else self._step_log.outcome(step)
        if stored is not None:
            outcome = decode_stored(stored, RecordedHookOutcome, f"step {step}")
        elif any(hooks.before_tool is not None for hooks in self._hooks):
            outcome = await self._run_before_tool(context, pending)
            if not pending.edited:
                self._step_log.finish(step, msgspec.json.encode(outcome))
        else:
            return
        if outcome.denial:
            pending.rejection, pending.rejection_kind = _denial_message(pending.call.name, outcome.denial), "denied"
            pending.verdict, pending.verdict_reason = "deny", outcome.denial
        if outcome.arguments is not None:
            pending.validated_text, pending.approval = outcome.arguments, None
            pending.hook_changes = ("arguments",)
            apply_policy(pending, tool, policy)

    async def _run_before_tool(self, context: RunContext[Any], pending: PendingCall) -> RecordedHookOutcome:
        """Call the hooks before a call, and return their outcome."""
        text, changed = pending.validated_text, None
        for hooks in self._hooks:
            if hooks.before_tool is None:
                continue
            call = _proposed_call(pending)
            try:
                arguments = await resolve(hooks.before_tool(context, call))
            except Denied as denial:
                pending.validated_text = text
                return RecordedHookOutcome(denial=str(denial))
            _check_result("before_tool", arguments, dict, str)
            if arguments is not None and arguments != pending.arguments:
                changed = pending.validated_text = _encode_arguments(pending, arguments)
        pending.validated_text = text
        return RecordedHookOutcome(arguments=changed)

    async def after_tool(self, context: RunContext[Any], pending: PendingCall, output: ToolOutput) -> ToolOutput:
        """Return the result of a call after the hooks have changed it."""
        for hooks in reversed(self._hooks):
            if hooks.after_tool is None:
                continue
            call = _proposed_call(pending)
            try:
                changed = await resolve(hooks.after_tool(context, call, output))
            except Denied as denial:
                text = f"the result of {pending.call.name} was withheld ({denial})"
                withheld = ToolOutput(content=(Text(text=text),), is_error=True, error_kind="withheld")
                return replace(withheld, usage=output.usage)
            if changed is not None:
                output = _merge_output(output, changed)
                pending.hook_changes = tuple(dict.fromkeys((*pending.hook_changes, "result")))
        return output

    async def observe_hosted_call(
        self, context: RunContext[Any], call: ProposedCall, output: ToolOutput | None
    ) -> list[str]:
        """Pass a call that the provider runs to the hooks, with its output if it has ended; return warnings.

        Hooks can't change or undo such a call. A hook that raises `Denied` stops the run.
        """
        results: list[Any] = []
        for hooks in self._hooks if output is None else reversed(self._hooks):
            if output is None and hooks.before_tool is not None:
                results.append(await resolve(hooks.before_tool(context, call)))
            elif output is not None and hooks.after_tool is not None:
                results.append(await resolve(hooks.after_tool(context, call, output)))
        subject = "the arguments" if output is None else "the result"
        warning = f"a hook changed {subject} of {call.tool}, which the provider runs itself: the change was ignored"
        return [warning] if any(result is not None for result in results) else []


def _check_result(hook: str, value: object, *kinds: type) -> None:
    """Raise `TypeError` if a hook returned neither None nor a value of these types."""
    if value is not None and not isinstance(value, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(
            f"the {hook} hook returned {value!r:.100}: return {names}, or None for no change; to deny, raise tw.Denied"
        )


def _proposed_call(pending: PendingCall) -> ProposedCall:
    """Return a call as hooks see it."""
    locus = "local" if pending.tool is None else pending.tool.locus
    return ProposedCall(id=pending.id, tool=pending.call.name, arguments=pending.arguments, locus=locus)


async def _resolve_optional(value: T | Awaitable[T | None] | None) -> T | None:
    """Return what a hook returned, awaited if it is awaitable."""
    return await value if inspect.isawaitable(value) else value


def _denial_message(tool: str, reason: str) -> str:
    """Return the message to the model about a call that a hook denied."""
    return f"denied: {tool} was not run ({reason}). Do not try to do the same in another way."


def _encode_arguments(pending: PendingCall, arguments: Arguments) -> str:
    """Return arguments from a hook as text, after validating them."""
    if pending.tool is None:
        raise AssertionError("hooks run for known tools only")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    try:
        read_arguments(pending.tool, text)
    except CallValidationError as error:
        raise ToolwireError(f"a hook before {pending.tool.name} returned invalid arguments: {error}") from None
    return text


def _merge_output(output: ToolOutput, changed: Any) -> ToolOutput:
    """Return the result of a hook in place of an output. A plain value keeps the status of the output."""
    if isinstance(changed, ToolOutput):
        return replace(changed, usage=output.usage)
    converted = as_output(changed)
    return replace(output, content=converted.content, structured=converted.structured)


def _model_turn(response: Response) -> ModelTurn:
    """Return a response as hooks see it."""
    parts = list(_parts(response))
    return ModelTurn(
        text="".join(part.text for part in parts if isinstance(part, Text)),
        calls=tuple(part for part in parts if isinstance(part, ToolCall)),
        response=response,
    )


def _parts(response: Response) -> Iterator[Part]:
    """Yield the parts of the first candidate."""
    for message in response.candidates[0].messages if response.candidates else ():
        yield from message.parts


def _replace_text(response: Response, text: str) -> Response:
    """Return the response with `text` in place of its texts."""
    if not response.candidates:
        return response
    candidate, replacement = response.candidates[0], [Text(text=text)]
    messages = list[Message]()
    for message in candidate.messages:
        parts = list[Part]()
        for part in message.parts:
            if isinstance(part, Text):
                parts += replacement
                replacement = []
            else:
                parts.append(part)
        messages.append(replace(message, parts=tuple(parts)))
    if replacement and messages:  # the response has no text
        messages[0] = replace(messages[0], parts=(*replacement, *messages[0].parts))
    return replace(response, candidates=(replace(candidate, messages=tuple(messages)), *response.candidates[1:]))
