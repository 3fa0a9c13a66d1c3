"""What other protocols say and a target has no words of its own for: told as text where that can be, else reported."""

from toolwire.canonical.content import Foreign, ToolCall, ToolResult
from toolwire.canonical.errors import ApiError
from toolwire.canonical.request import Request

from .hosted import in_words
from .losses import Names, Trail, pointers
from .media import ERROR_MARK, MARKED
from .plan import Plan
from .turns import Placed

_SEALED = b'"encrypted_content"'


def gist_of(part: Foreign, trail: Trail, plan: Plan) -> str | None:
    """What a part that only its own protocol has is told as, if a model may read it."""
    if part.gist and not plan.answering:
        plan.report.approximated(trail, "", f"only {part.protocol} has {part.kind}: its text is told")
        return part.gist
    plan.report.dropped(trail, "", f"only {part.protocol} has {part.kind}")
    return None


def refuse_compaction(request: Request, names: Names) -> ApiError | None:
    """Return why a request can go to its own provider only: a `compaction` in it is sealed.

    It stands for the conversation before it. Without it, the model would be asked about things that it never saw.
    """
    for index, message in enumerate(request.messages):
        for place, part in enumerate(message.parts):
            if type(part) is Foreign and part.kind == "compaction" and not part.gist and _SEALED in bytes(part.body):
                (at,) = pointers(request, ("messages", index, "parts", place), "", names)
                why = f"{at}: this compaction can be read only by the {part.protocol} provider that made it"
                todo = "send the conversation itself in its place, or ask that provider's model"
                return ApiError(kind="invalid_request", message=f"{why}; {todo}", status=400)
    return None


def call_in_words(part: ToolCall, placed: Placed, plan: Plan) -> str | None:
    """A call that another provider ran itself: in a history told as text, in an answer nothing to act on."""
    if plan.answering:
        plan.report.dropped(placed.trail, "", "a call that the provider ran itself")
        return None
    plan.report.approximated(placed.trail, "", "a call that another provider ran: told as text")
    return in_words(part)


def result_in_words(part: ToolResult, placed: Placed, plan: Plan) -> str | None:
    if plan.answering:
        plan.report.dropped(placed.trail, "", "a result that the provider got itself")
        return None
    plan.report.approximated(placed.trail, "", "a result that another provider got: told as text")
    said = [one.gist if isinstance(one, Foreign) else getattr(one, "text", None) for one in part.content or ()]
    text = "\n".join(one for one in said if one) or "no readable content"
    return f"[{part.native or part.name}: {text if part.status == 'ok' else ERROR_MARK + text}]"


def call_name(part: ToolCall, plan: Plan) -> str:
    """In an answer the tools are the client's own, under the names that it gave them."""
    return part.name if plan.answering and part.namespace is None else plan.name(part.name, part.namespace)


def report_call(part: ToolCall, placed: Placed, plan: Plan, marks: str) -> None:
    """What a call says that a target with nothing but functions has no place for; `marks` is why it keeps none."""
    if part.native is not None:
        plan.report.approximated(placed.trail, "", f"{part.native} as a call of a function")
    if part.seal is not None:
        plan.report.dropped((*placed.trail, "seal"), "", "a seal goes only to its issuer")
    if part.asynchronous:
        plan.report.dropped(placed.trail, "asynchronous")
    _report_run(part, placed, plan, marks)


def report_result(part: ToolResult, placed: Placed, plan: Plan, marks: str) -> None:
    """The same of a result, where a failed one has a mark in its text."""
    if part.status != "ok" and MARKED not in part.form:
        plan.report.approximated(placed.trail, "status", "the target has no flag for it: told by a mark in the text")
    if part.native is not None and part.native != "custom":
        plan.report.approximated(placed.trail, "", f"{part.native} as the result of a function")
    _report_run(part, placed, plan, marks)


def _report_run(part: ToolCall | ToolResult, placed: Placed, plan: Plan, marks: str) -> None:
    if part.caller is not None and part.caller.kind != "direct":
        plan.report.dropped((*placed.trail, "caller"), "", "the target's programs can't call tools")
    if part.cache is not None:
        plan.report.dropped((*placed.trail, "cache"), "", marks)
    if part.toolset is not None:
        plan.report.dropped(placed.trail, "toolset")
