"""What other protocols say and a target has no words of its own for: told as text where that can be, else reported.

Settings that change within a conversation, for a target that has them only for the whole of it.
"""

from msgspec.structs import replace

from toolwire.canonical.content import OpaquePart, SettingChange, ToolCall, ToolResult
from toolwire.canonical.errors import ApiError
from toolwire.canonical.request import Continuation, Request
from toolwire.canonical.tools import Thinking
from toolwire.codec.encoding.hosted_tools import hosted_call_as_text
from toolwire.codec.encoding.media import ERROR_MARK, ERROR_MARK_FORM
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.interface import Codec
from toolwire.codec.losses import LossReport, SourcePath, WireNames, source_pointers

_ENCRYPTED_FIELD = b'"encrypted_content"'


def opaque_as_text(part: OpaquePart, path: SourcePath, plan: EncodingPlan) -> str | None:
    """What a part that only its own protocol has is told as, if a model may read it."""
    if part.gist and not plan.for_client:
        plan.report.approximated(path, "", f"only {part.protocol} has {part.kind}: its text is told")
        return part.gist
    plan.report.dropped(path, "", f"only {part.protocol} has {part.kind}")
    return None


def compaction_error(request: Request, wire_names: WireNames) -> ApiError | None:
    """Return why a request can go to its own provider only: a `compaction` in it is sealed.

    It stands for the conversation before it. Without it, the model would be asked about things that it never saw.
    """
    for index, message in enumerate(request.messages):
        for place, part in enumerate(message.parts):
            if (
                type(part) is OpaquePart
                and part.kind == "compaction"
                and not part.gist
                and _ENCRYPTED_FIELD in bytes(part.body)
            ):
                (at,) = source_pointers(request, ("messages", index, "parts", place), "", wire_names)
                why = f"{at}: this compaction can be read only by the {part.protocol} provider that made it"
                todo = "send the conversation itself in its place, or ask that provider's model"
                return ApiError(kind="invalid_request", message=f"{why}; {todo}", status=400)
    return None


def call_as_text(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> str | None:
    """A call that another provider ran itself: in a history told as text, in an answer nothing to act on."""
    if plan.for_client:
        plan.report.dropped(located_part.path, "", "a call that the provider ran itself")
        return None
    plan.report.approximated(located_part.path, "", "a call that another provider ran: told as text")
    return hosted_call_as_text(part)


def result_as_text(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> str | None:
    if plan.for_client:
        plan.report.dropped(located_part.path, "", "a result that the provider got itself")
        return None
    plan.report.approximated(located_part.path, "", "a result that another provider got: told as text")
    said = [one.gist if isinstance(one, OpaquePart) else getattr(one, "text", None) for one in part.content or ()]
    text = "\n".join(one for one in said if one) or "no readable content"
    return f"[{part.native or part.name}: {text if part.status == 'ok' else ERROR_MARK + text}]"


def call_name(part: ToolCall, plan: EncodingPlan) -> str:
    """In an answer the tools are the client's own, under the names that it gave them."""
    return part.name if plan.for_client and part.namespace is None else plan.tool_name(part.name, part.namespace)


def report_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan, cache_reason: str) -> None:
    """What a call says that a target with nothing but functions has no place for; `marks` is why it keeps none."""
    if part.native is not None:
        plan.report.approximated(located_part.path, "", f"{part.native} as a call of a function")
    if part.signature is not None:
        plan.report.dropped((*located_part.path, "signature"), "", "a seal goes only to its issuer")
    if part.asynchronous:
        plan.report.dropped(located_part.path, "asynchronous")
    _report_call_context(part, located_part, plan, cache_reason)


def report_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan, cache_reason: str) -> None:
    """The same of a result, where a failed one has a mark in its text."""
    if part.status != "ok" and ERROR_MARK_FORM not in part.wire_form:
        plan.report.approximated(
            located_part.path, "status", "the target has no flag for it: told by a mark in the text"
        )
    if part.native is not None and part.native != "custom":
        plan.report.approximated(located_part.path, "", f"{part.native} as the result of a function")
    _report_call_context(part, located_part, plan, cache_reason)


def _report_call_context(
    part: ToolCall | ToolResult, located_part: LocatedPart, plan: EncodingPlan, cache_reason: str
) -> None:
    if part.caller is not None and part.caller.kind != "direct":
        plan.report.dropped((*located_part.path, "caller"), "", "the target's programs can't call tools")
    if part.cache is not None:
        plan.report.dropped((*located_part.path, "cache"), "", cache_reason)
    if part.toolset is not None:
        plan.report.dropped(located_part.path, "toolset")


_OVERRIDDEN = "canonical:overruled"
"""In the form of a setting: what the request itself said does not hold any more."""

_FROM_CHANGE = "canonical:changed"
"""In the form of an output: it is that of a change."""


def apply_setting_changes(request: Request, reader: Codec, writer: Codec) -> Request:
    """The request with the settings that its last changes leave in force: they are for the answer to come."""
    if reader is writer or writer.mid_conversation_settings:
        return request
    for number, message in enumerate(request.messages):
        if message.role in ("system", "developer"):
            for index, part in enumerate(message.parts):
                if isinstance(part, SettingChange):
                    request = _apply_change(request, part, ("messages", number, "parts", index), reader)
    return request


def _apply_change(request: Request, part: SettingChange, path: SourcePath, reader: Codec) -> Request:
    (place,) = source_pointers(request, path, "", reader.wire_names)
    thinking, output = request.thinking, request.output
    if part.thinking is not None and part.thinking.effort is not None:
        if thinking is None:
            thinking = replace(part.thinking, at=place, extras=None)
        else:
            form = thinking.wire_form if thinking.effort is None else (*thinking.wire_form, _OVERRIDDEN)
            thinking = replace(thinking, effort=part.thinking.effort, wire_form=form)
    if part.output is not None and output is None:
        output = replace(part.output, at=place, extras=None, wire_form=(*part.output.wire_form, _FROM_CHANGE))
    return replace(request, thinking=thinking, output=output)


def disable_storage(request: Request) -> Request:
    """Return a request of a protocol that stores nothing, for a host that stores unless `store` is false."""
    state = request.continuation or Continuation()
    return request if state.store is not None else replace(request, continuation=replace(state, store=False))


NO_THINKING_VISIBILITY = "the target has no word for how much of its thinking is shown"


def report_thinking_visibility(thinking: Thinking, report: LossReport, path: SourcePath = ("thinking",)) -> None:
    """For a target that shows summaries of its thinking, or none of it."""
    if thinking.visibility == "full":
        report.approximated(path, "visibility", "the target shows summaries only")
    if thinking.summary is not None:
        report.approximated(path, "summary", f"a summary, but the target decides how {thinking.summary} it is")


def report_unsent_thinking(thinking: Thinking, plan: EncodingPlan, reason: str) -> None:
    """Report that nothing is said of thinking."""
    for field in ("enabled", "effort", "budget_tokens", "visibility"):
        if getattr(thinking, field) is not None:
            plan.report.dropped(("thinking",), field, reason)


def report_setting_change(part: SettingChange, path: SourcePath, plan: EncodingPlan) -> None:
    """Of a change, what `settled` has told and what it has not."""
    report, request = plan.report, plan.request
    told = "told for the whole conversation: the target changes no settings within it"
    thinks = part.thinking is not None and part.thinking.effort is not None
    output = None if request is None else request.output
    answers = part.output is not None and output is not None and _FROM_CHANGE in output.wire_form
    if not thinks and not answers:
        report.dropped(path, "", "the target can't change settings within a conversation")
        return
    report.approximated(path, "", told)
    if request is not None and request.thinking is not None and _OVERRIDDEN in request.thinking.wire_form:
        report.approximated(("thinking",), "effort", "changed within the conversation: the last change is told")
