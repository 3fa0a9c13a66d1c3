"""Fallbacks for parts and settings that a target lacks: sent as text where possible, else reported."""

from collections.abc import Collection, Container, Iterator
from operator import attrgetter

from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import (
    ItemRef,
    Media,
    Message,
    OpaquePart,
    Reasoning,
    SettingChange,
    ToolCall,
    ToolResult,
)
from toolwire.canonical.errors import ApiError, Severity
from toolwire.canonical.request import Continuation, Request
from toolwire.canonical.response import Stop
from toolwire.canonical.tools import Sampling, Thinking
from toolwire.codec.encoding.hosted_tools import hosted_call_as_text
from toolwire.codec.encoding.media import ERROR_MARK, ERROR_MARK_FORM
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.interface import Codec
from toolwire.codec.losses import LossReport, SourcePath, WireNames, source_pointers
from toolwire.codec.wire.reader import decode_json

_FINISHED_STOPS = ("end_turn", "stop_sequence")
_ENCRYPTED_FIELD = b'"encrypted_content"'


def opaque_as_text(part: OpaquePart, path: SourcePath, plan: EncodingPlan) -> str | None:
    """Return the text that stands for a part only its own protocol has; None if it is dropped.

    Either way it is reported as a loss.
    """
    if part.gist and not plan.for_client:
        plan.report.approximated(path, "", f"{part.kind} has no equivalent in the target protocol: sent as text")
        return part.gist
    plan.report.dropped(path, "", f"{part.kind} has no equivalent in the target protocol")
    return None


LIMIT_READABLE_TEXT = 100_000


def readable_text(raw: Raw, fields: Container[str]) -> str | None:
    """Join the strings of a JSON value that people read, one per line and cut if too long; None if there are none.

    They stand in objects under one of the fields, for targets that can't use the value itself.
    """
    return "\n".join(readable_strings(decode_json(raw), fields))[:LIMIT_READABLE_TEXT] or None


def readable_strings(value: object, fields: Container[str], *, is_readable: bool = True) -> Iterator[str]:
    """Yield the strings of a JSON value that people read; `is_readable` tells whether it is one itself."""
    if isinstance(value, str):
        if is_readable and value:
            yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            # `data` is text only in a text document, elsewhere it is base64.
            is_text = name in fields or (name == "data" and value.get("type") == "text")
            yield from readable_strings(inner, fields, is_readable=is_text)
    elif isinstance(value, list):
        for inner in value:
            yield from readable_strings(inner, fields, is_readable=is_readable)


def report_stop(
    stop: Stop,
    path: SourcePath,
    word: str,
    report: LossReport,
    *,
    exact: Collection[str],
    finished: str,
    has_sequence: bool = False,
) -> None:
    """Report a stop reason that is sent as `word` and not among the `exact` ones, and the stop sequence if it is lost.

    `finished` is the target's word for a complete answer: a client that takes an unfinished one for complete behaves
    differently.
    """
    if stop.reason not in exact:
        severity: Severity = "error" if word == finished and stop.reason not in _FINISHED_STOPS else "info"
        report.approximated(path, "reason", f"{stop.raw or stop.reason} sent as {word}", severity=severity)
    if stop.sequence is not None and not has_sequence:
        report.dropped(path, "sequence")


def report_message_fields(message: Message, path: SourcePath, report: LossReport, *fields: str) -> None:
    """Report fields of a message that the target lacks; an id that is also that of a call in it is not lost."""
    if _optional_fields(message) == _NO_FIELDS:
        return
    if message.id is not None and any(isinstance(part, ToolCall) and part.id == message.id for part in message.parts):
        fields = tuple([field for field in fields if field != "id"])
    report.dropped_fields(path, message, *fields)


_optional_fields = attrgetter("name", "id", "status", "phase", "clear_at")
_NO_FIELDS = (None,) * 5


def report_continuation(request: Request, report: LossReport, id_reason: str = "stored by another provider") -> None:
    """Report references to stored state, for targets that store none."""
    if (continuation := request.continuation) is None:
        return
    if continuation.id is not None:
        report.dropped(("continuation",), "id", id_reason)
    if continuation.store:
        report.dropped(("continuation",), "store", "the target does not store responses")
    if continuation.background:
        report.dropped(("continuation",), "background")


def report_reasoning(part: Reasoning, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """Report fields of reasoning that a target with plain text lacks."""
    for index, block in enumerate(part.content):
        if isinstance(block, Media):
            plan.report.dropped((*located_part.path, "content", index), "", "thinking of the target is text only")
    if part.signature is not None:
        plan.report.dropped((*located_part.path, "signature"), "", "signatures are only valid for their issuer")
    if part.id is not None:
        plan.report.dropped(located_part.path, "id")


def report_flattened_document(part: Media, path: SourcePath, plan: EncodingPlan) -> None:
    """Report that the nested parts of a document are sent as separate parts."""
    plan.report.approximated(path, "source", "document content sent as separate parts")
    plan.report.dropped_fields(path, part, "name", "cache")


def report_item_reference(part: ItemRef, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """Report the loss of a reference to an item that another provider stores."""
    plan.report.dropped(located_part.path, "id", "stored by another provider")


def compaction_error(request: Request, wire_names: WireNames) -> ApiError | None:
    """Return an error if a request contains an encrypted `compaction`, which only its own provider can read.

    It replaces the conversation before it. Without it, the model would be asked about messages that it never saw.
    """
    if not _has_opaque_parts(request):
        return None
    for index, message in enumerate(request.messages):
        for position, part in enumerate(message.parts):
            if (
                isinstance(part, OpaquePart)
                and part.kind == "compaction"
                and not part.gist
                and _ENCRYPTED_FIELD in bytes(part.body)
            ):
                (pointer,) = source_pointers(request, ("messages", index, "parts", position), "", wire_names)
                problem = f"{pointer}: only the {part.protocol} provider that created this compaction can read it"
                advice = "send the conversation instead, or use a model of that provider"
                return ApiError(kind="invalid_request", message=f"{problem}; {advice}", status=400)
    return None


def _has_opaque_parts(request: Request) -> bool:
    """Return whether a part of the request is one that only its own protocol has."""
    for message in request.messages:  # without `enumerate`, which would double the cost for a long history
        for part in message.parts:
            if type(part) is OpaquePart:
                return True
    return False


_role = attrgetter("role")
_INSTRUCTION_ROLES = frozenset({"system", "developer"})


def call_as_text(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> str | None:
    """Return another provider's hosted call as text for the model; None in a response, where it is dropped."""
    if plan.for_client:
        plan.report.dropped(located_part.path, "", "a call that the provider already ran")
        return None
    plan.report.approximated(located_part.path, "", "server-side call of another provider, sent as text")
    return hosted_call_as_text(part)


def result_as_text(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> str | None:
    """Return the result of another provider's hosted tool as text; None in a response, where it is dropped."""
    if plan.for_client:
        plan.report.dropped(located_part.path, "", "the result of a call that the provider already ran")
        return None
    plan.report.approximated(located_part.path, "", "server-side result of another provider, sent as text")
    texts = [
        inner.gist if isinstance(inner, OpaquePart) else getattr(inner, "text", None) for inner in part.content or ()
    ]
    text = "\n".join(text for text in texts if text) or "no readable content"
    return f"[{part.native or part.name}: {text if part.status == 'ok' else ERROR_MARK + text}]"


def call_name(part: ToolCall, plan: EncodingPlan) -> str:
    """Return the target's name of a called tool; in a response, the client's own name."""
    return part.name if plan.for_client and part.namespace is None else plan.tool_name(part.name, part.namespace)


def report_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan, cache_reason: str) -> None:
    """Report fields of a call that a target with plain functions lacks."""
    if part.native is not None:
        plan.report.approximated(located_part.path, "", f"{part.native} sent as a function call")
    if part.signature is not None:
        plan.report.dropped((*located_part.path, "signature"), "", "signatures are only valid for their issuer")
    if part.asynchronous:
        plan.report.dropped(located_part.path, "asynchronous")
    _report_call_context(part, located_part, plan, cache_reason)


def report_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan, cache_reason: str) -> None:
    """Report fields of a result that a target with plain functions lacks."""
    if part.status != "ok" and ERROR_MARK_FORM not in part.wire_form:
        plan.report.approximated(located_part.path, "status", "the target has no error flag: marked in the text")
    if part.native is not None and part.native != "custom":
        plan.report.approximated(located_part.path, "", f"{part.native} sent as a function result")
    _report_call_context(part, located_part, plan, cache_reason)


def _report_call_context(
    part: ToolCall | ToolResult, located_part: LocatedPart, plan: EncodingPlan, cache_reason: str
) -> None:
    """Report caller, cache mark and toolset of a call or result."""
    if part.caller is not None and part.caller.kind != "direct":
        plan.report.dropped((*located_part.path, "caller"), "", "the target has no programs that call tools")
    if part.cache is not None:
        plan.report.dropped((*located_part.path, "cache"), "", cache_reason)
    if part.toolset is not None:
        plan.report.dropped(located_part.path, "toolset")


_OVERRIDDEN = "canonical:overruled"
"""`wire_form` token of a setting whose value in the request was replaced by a later change."""

_FROM_CHANGE = "canonical:changed"
"""`wire_form` token of an output format that comes from a change within the conversation."""


def apply_setting_changes(request: Request, reader: Codec, writer: Codec) -> Request:
    """Move mid-conversation changes of settings to the request, for targets that allow no such changes.

    The last change wins.
    """
    if reader is writer or writer.mid_conversation_settings:
        return request
    if _INSTRUCTION_ROLES.isdisjoint(map(_role, request.messages)):
        return request
    for number, message in enumerate(request.messages):
        if message.role in _INSTRUCTION_ROLES:
            for index, part in enumerate(message.parts):
                if isinstance(part, SettingChange):
                    request = _apply_change(request, part, ("messages", number, "parts", index), reader)
    return request


def _apply_change(request: Request, part: SettingChange, path: SourcePath, reader: Codec) -> Request:
    """Return the request with the settings of one mid-conversation change."""
    (pointer,) = source_pointers(request, path, "", reader.wire_names)
    thinking, output = request.thinking, request.output
    if part.thinking is not None and part.thinking.effort is not None:
        if thinking is None:
            thinking = replace(part.thinking, at=pointer, extras=None)
        else:
            wire_form = thinking.wire_form if thinking.effort is None else (*thinking.wire_form, _OVERRIDDEN)
            thinking = replace(thinking, effort=part.thinking.effort, wire_form=wire_form)
    if part.output is not None and output is None:
        output = replace(part.output, at=pointer, extras=None, wire_form=(*part.output.wire_form, _FROM_CHANGE))
    return replace(request, thinking=thinking, output=output)


def disable_storage(request: Request) -> Request:
    """Return the request with `store` false, unless it sets `store` itself.

    For clients whose protocol never stores responses, at a host that stores them by default.
    """
    state = request.continuation or Continuation()
    return request if state.store is not None else replace(request, continuation=replace(state, store=False))


def fit_output_limit(limit: int, plan: EncodingPlan, least: int = 0, least_reason: str = "") -> int:
    """Return an output limit that target and model accept: another protocol's is raised or lowered."""
    if limit < least and not plan.same_protocol:
        plan.report.approximated(("sampling",), "max_tokens", least_reason)
        limit = least
    greatest = plan.model_info.output
    if plan.same_protocol or greatest is None or limit <= greatest:
        return limit
    plan.report.approximated(("sampling",), "max_tokens", f"the model's limit is {greatest}")
    return greatest


def report_sampling(sampling: Sampling, report: LossReport, *names: str) -> None:
    """Report sampling settings that the target lacks; a single candidate needs no setting."""
    for name in names:
        value = getattr(sampling, name)
        if value is not None and value != () and not (name == "n" and value == 1):
            report.dropped(("sampling",), name)


NO_THINKING = "the model does not think"
NO_THINKING_VISIBILITY = "the target has no setting for visible thinking"


MAX_TEMPERATURE = 2
"""The greatest temperature of OpenAI's and Google's models."""


def fit_temperature(temperature: float, plan: EncodingPlan) -> float:
    """Return the temperature within the target's range; a change is reported."""
    if plan.same_protocol or temperature <= MAX_TEMPERATURE:
        return temperature
    plan.report.approximated(("sampling",), "temperature", f"the target's temperature is at most {MAX_TEMPERATURE}")
    return MAX_TEMPERATURE


def report_thinking_visibility(thinking: Thinking, report: LossReport, path: SourcePath = ("thinking",)) -> None:
    """Report visibility settings at a target that shows summaries of its thinking, or none."""
    if thinking.visibility == "full":
        report.approximated(path, "visibility", "the target shows summaries only")
    if thinking.summary is not None:
        report.approximated(path, "summary", "the target decides the length of summaries")


def report_unsent_thinking(
    thinking: Thinking, plan: EncodingPlan, reason: str, path: SourcePath = ("thinking",)
) -> None:
    """Report thinking settings that are not sent."""
    plan.report.dropped_fields(path, thinking, "enabled", "effort", "budget_tokens", "visibility", reason=reason)


def report_setting_change(part: SettingChange, path: SourcePath, plan: EncodingPlan) -> None:
    """Report a mid-conversation change of settings, which the target applies from the start or not at all."""
    report, request = plan.report, plan.request
    reason = "applied to the entire conversation: the target cannot change settings within it"
    sets_thinking = part.thinking is not None and part.thinking.effort is not None
    output = None if request is None else request.output
    sets_output = part.output is not None and output is not None and _FROM_CHANGE in output.wire_form
    if not sets_thinking and not sets_output:
        report.dropped(path, "", "the target cannot change settings within a conversation")
        return
    report.approximated(path, "", reason)
    if request is not None and request.thinking is not None and _OVERRIDDEN in request.thinking.wire_form:
        report.approximated(("thinking",), "effort", "replaced by a later change in the conversation")
