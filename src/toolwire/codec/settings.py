"""Settings that change within a conversation, for a target that has them only for the whole of it."""

from msgspec.structs import replace

from toolwire.canonical.content import SettingChange
from toolwire.canonical.request import Continuation, Request
from toolwire.canonical.tools import Thinking

from .interface import Codec
from .losses import Report, Trail, pointers
from .plan import Plan

_OVERRULED = "canonical:overruled"
"""In the form of a setting: what the request itself said does not hold any more."""

_CHANGED = "canonical:changed"
"""In the form of an output: it is that of a change."""


def settled(request: Request, reader: Codec, writer: Codec) -> Request:
    """The request with the settings that its last changes leave in force: they are for the answer to come."""
    if reader is writer or writer.resets:
        return request
    for number, message in enumerate(request.messages):
        if message.role in ("system", "developer"):
            for index, part in enumerate(message.parts):
                if isinstance(part, SettingChange):
                    request = _changed(request, part, ("messages", number, "parts", index), reader)
    return request


def _changed(request: Request, part: SettingChange, trail: Trail, reader: Codec) -> Request:
    (place,) = pointers(request, trail, "", reader.names)
    thinking, output = request.thinking, request.output
    if part.thinking is not None and part.thinking.effort is not None:
        if thinking is None:
            thinking = replace(part.thinking, at=place, extras=None)
        else:
            form = thinking.form if thinking.effort is None else (*thinking.form, _OVERRULED)
            thinking = replace(thinking, effort=part.thinking.effort, form=form)
    if part.output is not None and output is None:
        output = replace(part.output, at=place, extras=None, form=(*part.output.form, _CHANGED))
    return replace(request, thinking=thinking, output=output)


def unstored(request: Request) -> Request:
    """Return a request of a protocol that stores nothing, for a host that stores unless `store` is false."""
    state = request.continuation or Continuation()
    return request if state.store is not None else replace(request, continuation=replace(state, store=False))


NEVER_SAID = "the target has no word for how much of its thinking is shown"


def report_shown(thinking: Thinking, report: Report, trail: Trail = ("thinking",)) -> None:
    """For a target that shows summaries of its thinking, or none of it."""
    if thinking.visibility == "full":
        report.approximated(trail, "visibility", "the target shows summaries only")
    if thinking.summary is not None:
        report.approximated(trail, "summary", f"a summary, but the target decides how {thinking.summary} it is")


def report_unsent(thinking: Thinking, plan: Plan, why: str) -> None:
    """Report that nothing is said of thinking."""
    for field in ("enabled", "effort", "budget_tokens", "visibility"):
        if getattr(thinking, field) is not None:
            plan.report.dropped(("thinking",), field, why)


def report_setting(part: SettingChange, trail: Trail, plan: Plan) -> None:
    """Of a change, what `settled` has told and what it has not."""
    report, request = plan.report, plan.request
    told = "told for the whole conversation: the target changes no settings within it"
    thinks = part.thinking is not None and part.thinking.effort is not None
    output = None if request is None else request.output
    answers = part.output is not None and output is not None and _CHANGED in output.form
    if not thinks and not answers:
        report.dropped(trail, "", "the target can't change settings within a conversation")
        return
    report.approximated(trail, "", told)
    if request is not None and request.thinking is not None and _OVERRULED in request.thinking.form:
        report.approximated(("thinking",), "effort", "changed within the conversation: the last change is told")
