"""Read `context_management` and `compaction` of a request, and encode what was done: blocks, edits and usage."""

import hashlib
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Message, OpaquePart
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.events import CandidateEnd
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response, Stop, Usage
from toolwire.codec.context_management import (
    AppliedEdit,
    ClearThinking,
    ClearToolUses,
    Compact,
    Compaction,
    ContextManagementApi,
    ContextPlan,
    Edit,
)
from toolwire.codec.wire.extras import unset_to_none
from toolwire.protocols.anthropic.wire import FAMILY

S = TypeVar("S", bound=Struct)

_EDITS, _SUMMARIZE = "context_management", "compaction"
_EDITS_BETA, _THRESHOLD_BETA, _SUMMARIZE_BETA = (
    "context-management-2025-06-27",
    "compact-2026-01-12",
    "compact-2026-09-04",
)
_CLEAR_TOOLS, _CLEAR_THINKING, _COMPACT = "clear_tool_uses_20250919", "clear_thinking_20251015", "compact_20260112"
_LIMIT_EDITS = 16
_DEFAULT_TRIGGER = 150_000


class _Amount(Struct):
    """A trigger, or a number of things to keep or clear."""

    type: str
    value: int | UnsetType = UNSET


class _ClearToolsShape(Struct):
    """A `clear_tool_uses_20250919` edit."""

    trigger: _Amount | UnsetType | None = UNSET
    keep: _Amount | UnsetType | None = UNSET
    clear_at_least: _Amount | UnsetType | None = UNSET
    exclude_tools: list[str] | UnsetType | None = UNSET
    clear_tool_inputs: bool | list[str] | UnsetType | None = UNSET


class _ClearThinkingShape(Struct):
    """A `clear_thinking_20251015` edit."""

    keep: _Amount | str | UnsetType | None = UNSET


class _CompactShape(Struct):
    """A `compact_20260112` edit."""

    trigger: _Amount | UnsetType | None = UNSET
    instructions: str | UnsetType | None = UNSET
    pause_after_compaction: bool | UnsetType | None = UNSET


class _Typed(Struct):
    """Any object with a type."""

    type: str
    instructions: str | UnsetType | None = UNSET


class _EditsShape(Struct):
    """`context_management`."""

    edits: list[Raw] | UnsetType | None = UNSET


def find_features(request: Request) -> tuple[str, ...] | None:
    """Return the betas that a request for context management needs; None if it asks for none."""
    extras = (request.extras or {}).get(FAMILY, {})
    if _SUMMARIZE in extras and bytes(extras[_SUMMARIZE]) != b"null":
        return (_SUMMARIZE_BETA,)
    if (edits := extras.get(_EDITS)) is None or bytes(edits) == b"null":
        return None
    return (_EDITS_BETA, _THRESHOLD_BETA) if _COMPACT.encode() in bytes(edits) else (_EDITS_BETA,)


def read_plan(request: Request) -> ContextPlan:
    """Read the edits that a request asks for."""
    extras = (request.extras or {}).get(FAMILY, {})
    if (summarize := extras.get(_SUMMARIZE)) is not None and bytes(summarize) != b"null":
        return _read_summary_request(summarize, request)
    shape = _decode(extras.get(_EDITS, Raw(b"{}")), _EditsShape, _EDITS)
    edits = shape.edits or []
    if len(edits) > _LIMIT_EDITS:
        raise DecodeError(FAMILY, f"/{_EDITS}/edits", f"at most {_LIMIT_EDITS} edits", str(len(edits)))
    read = tuple([_read_edit(raw, f"{_EDITS}/edits/{index}") for index, raw in enumerate(edits)])
    return ContextPlan(edits=read, members=(_EDITS,))


def _read_summary_request(raw: Raw, request: Request) -> ContextPlan:
    """Read `compaction`, which turns the request into a summary request."""
    shape = _decode(raw, _Typed, _SUMMARIZE)
    if shape.type != "summarize":
        raise DecodeError(FAMILY, f"/{_SUMMARIZE}/type", "summarize", repr(shape.type))
    forced = request.tool_choice is not None and request.tool_choice.mode in ("required", "named")
    conflicts = {
        _EDITS: _EDITS in (request.extras or {}).get(FAMILY, {}),
        "stop_sequences": request.sampling is not None and bool(request.sampling.stop),
        "output_config/format": request.output is not None and request.output.kind is not None,
        "tool_choice": forced,
    }
    for name, is_set in conflicts.items():
        if is_set:
            raise DecodeError(FAMILY, f"/{name}", "no such setting in a compaction request", "one")
    instructions = (unset_to_none(shape.instructions) or "").strip() or None
    edit = Compact(instructions=instructions, replaces_prompt=True, stops=True)
    return ContextPlan(edits=(edit,), members=(_SUMMARIZE,))


def _read_edit(raw: Raw, path: str) -> Edit:
    """Read one edit."""
    match _decode(raw, _Typed, path).type:
        case "clear_tool_uses_20250919":
            return _read_clear_tools(_decode(raw, _ClearToolsShape, path), path)
        case "clear_thinking_20251015":
            return _read_clear_thinking(_decode(raw, _ClearThinkingShape, path), path)
        case "compact_20260112":
            shape = _decode(raw, _CompactShape, path)
            trigger = unset_to_none(shape.trigger)
            return Compact(
                threshold=_amount(trigger, _DEFAULT_TRIGGER, f"{path}/trigger", "input_tokens", least=1),
                instructions=(unset_to_none(shape.instructions) or "").strip() or None,
                stops=shape.pause_after_compaction is True,
            )
        case kind:
            expected = f"one of {_CLEAR_TOOLS}, {_CLEAR_THINKING}, {_COMPACT}"
            raise DecodeError(FAMILY, f"/{path}/type", expected, repr(kind)[:100])


def _read_clear_thinking(shape: _ClearThinkingShape, path: str) -> ClearThinking:
    """Read a `clear_thinking_20251015` edit."""
    keep = shape.keep
    if isinstance(keep, str):
        if keep != "all":
            raise DecodeError(FAMILY, f"/{path}/keep", "all or a number of thinking_turns", repr(keep)[:100])
        return ClearThinking(keep=None)
    if isinstance(keep, _Amount) and keep.type == "all":
        return ClearThinking(keep=None)
    amount = keep if isinstance(keep, _Amount) else None
    return ClearThinking(keep=_amount(amount, 1, f"{path}/keep", "thinking_turns", least=1))


def _read_clear_tools(shape: _ClearToolsShape, path: str) -> ClearToolUses:
    """Read a `clear_tool_uses_20250919` edit."""
    trigger, default = unset_to_none(shape.trigger), ClearToolUses()
    by_uses = trigger is not None and trigger.type == "tool_uses"
    arguments = unset_to_none(shape.clear_tool_inputs)
    return ClearToolUses(
        unit="tool_uses" if by_uses else "input_tokens",
        threshold=_amount(
            trigger, default.threshold, f"{path}/trigger", "tool_uses" if by_uses else "input_tokens", least=1
        ),
        keep=_amount(unset_to_none(shape.keep), default.keep, f"{path}/keep", "tool_uses"),
        least_tokens=_amount(unset_to_none(shape.clear_at_least), 0, f"{path}/clear_at_least", "input_tokens"),
        excluded_tools=frozenset(unset_to_none(shape.exclude_tools) or ()),
        arguments=frozenset(arguments) if isinstance(arguments, list) else bool(arguments),
    )


def _amount(amount: _Amount | None, default: int, path: str, kind: str, *, least: int = 0) -> int:
    """Return the value of an amount of this kind."""
    if amount is None:
        return default
    if amount.type != kind:
        raise DecodeError(FAMILY, f"/{path}/type", kind, repr(amount.type)[:100])
    if amount.value is UNSET or amount.value < least:
        raise DecodeError(
            FAMILY, f"/{path}/value", f"an integer of at least {least}", repr(unset_to_none(amount.value))
        )
    return amount.value


def _decode(raw: Raw, kind: type[S], path: str) -> S:
    """Decode a JSON object; errors name its location."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(FAMILY, f"/{path}", "a valid object", str(error)) from None


def without_plan(request: Request) -> Request:
    """Return the request without the members that ask for context management."""
    extras = dict(request.extras or {})
    members = {name: raw for name, raw in extras.pop(FAMILY, {}).items() if name not in (_EDITS, _SUMMARIZE)}
    return replace(request, extras={FAMILY: members, **extras} if members else extras or None)


# ---- responses


def encode_summary(summary: str, envelope: str | None) -> OpaquePart:
    """Encode a summary as a `compaction` block. The envelope marks it as the gateway's own."""
    body = {"type": "compaction", "content": summary, "encrypted_content": envelope}
    return OpaquePart(protocol=FAMILY, kind="compaction", body=Raw(msgspec.json.encode(body)), gist=summary)


class _BlockShape(Struct):
    """A `compaction` block."""

    content: str | None = None
    encrypted_content: str | None = None


def read_summary(part: OpaquePart) -> tuple[str | None, str | None]:
    """Return the envelope and the text of a `compaction` block, each None if it is missing."""
    try:
        shape = msgspec.json.decode(part.body, type=_BlockShape)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None, None
    return shape.encrypted_content, shape.content or None


def compaction_response(compaction: Compaction, model: str) -> Response:
    """Return a response that holds only the compaction."""
    message = Message(role="assistant", parts=(compaction.part,), at="")
    stop = Stop(reason="paused", raw="compaction")
    nothing = Usage(input_tokens=0, output_tokens=0, cache_read=0, cache_write=0)
    usage = merge_usage(compaction, nothing, is_only=True)
    id = f"msg_{hashlib.blake2s(bytes(compaction.part.body), digest_size=12).hexdigest()}"
    nulls = {FAMILY: {"stop_sequence": Raw(b"null")}}
    candidate = Candidate(messages=(message,), stop=stop, extras=nulls, at="")
    return Response(origin=FAMILY, id=id, model=model, candidates=(candidate,), usage=usage)


def merge_usage(compaction: Compaction, usage: Usage, *, is_only: bool = False) -> Usage:
    """Return the usage with its iterations; the tokens of the compaction are listed there only."""
    iterations = [_iteration("compaction", compaction.usage)]
    if not is_only:
        iterations.append(_iteration("message", usage))
    extras = usage.extras or {}
    own = {**extras.get(FAMILY, {}), "iterations": Raw(msgspec.json.encode(iterations))}
    return replace(usage, extras={**extras, FAMILY: own})


def _iteration(kind: str, usage: Usage) -> dict[str, str | int]:
    """Return one entry of `iterations`."""
    read, write = usage.cache_read or 0, usage.cache_write or 0
    return {
        "type": kind,
        "input_tokens": max(0, (usage.input_tokens or 0) - read - write),
        "output_tokens": usage.output_tokens or 0,
        "cache_creation_input_tokens": write,
        "cache_read_input_tokens": read,
    }


def report_edits(end: CandidateEnd, edits: tuple[AppliedEdit, ...]) -> CandidateEnd:
    """Return the end of a response with `context_management.applied_edits`."""
    applied = [_applied_edit(edit) for edit in edits]
    extras = end.extras or {}
    own = {**extras.get(FAMILY, {}), _EDITS: Raw(msgspec.json.encode({"applied_edits": applied}))}
    return replace(end, extras={**extras, FAMILY: own})


def _applied_edit(applied: AppliedEdit) -> dict[str, str | int]:
    """Encode one applied edit."""
    if isinstance(applied.edit, ClearToolUses):
        return {
            "type": _CLEAR_TOOLS,
            "cleared_tool_uses": applied.cleared,
            "cleared_input_tokens": applied.tokens,
        }
    return {
        "type": _CLEAR_THINKING,
        "cleared_thinking_turns": applied.cleared,
        "cleared_input_tokens": applied.tokens,
    }


CONTEXT_MANAGEMENT = ContextManagementApi(
    find_features=find_features,
    read_plan=read_plan,
    without_plan=without_plan,
    encode_summary=encode_summary,
    read_summary=read_summary,
    compaction_response=compaction_response,
    merge_usage=merge_usage,
    report_edits=report_edits,
    has_plain_summary=True,
    usage_includes_compaction=False,
    keeps_user_messages=False,
)
