"""Read `context_management` and `compaction_trigger` of a request, and encode compaction items and responses."""

import hashlib
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Message, OpaquePart
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.events import CandidateEnd
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response, Stop, Usage, add_usage
from toolwire.codec.context_management import (
    AppliedEdit,
    Compact,
    Compaction,
    ContextManagementApi,
    ContextPlan,
    Edit,
)
from toolwire.codec.interface import ResponseContext, Target
from toolwire.codec.wire.extras import unset_to_none
from toolwire.protocols.openai_responses.request import encode_request
from toolwire.protocols.openai_responses.response import encode_response
from toolwire.protocols.openai_responses.wire import FAMILY

COMPACT_PATH = "/v1/responses/compact"
_MEMBER, _TRIGGER, _ITEM = "context_management", "compaction_trigger", "compaction"
_DEFAULT_THRESHOLD = 150_000
_LIMIT_ENTRIES = 16
_FEATURES = ("compaction",)


class _Entry(Struct):
    """An entry of `context_management`."""

    type: str
    compact_threshold: int | UnsetType | None = UNSET


def find_features(request: Request) -> tuple[str, ...] | None:
    """Return the feature that a request for a compaction needs; None if it asks for none."""
    if _has_trigger(request):
        return _FEATURES
    entries = (request.extras or {}).get(FAMILY, {}).get(_MEMBER)
    return None if entries is None or bytes(entries) in (b"null", b"[]") else _FEATURES


def read_plan(request: Request) -> ContextPlan:
    """Read the compactions that a request asks for."""
    if _has_trigger(request):
        return ContextPlan(edits=(Compact(stops=True),), members=())
    raw = (request.extras or {}).get(FAMILY, {}).get(_MEMBER, Raw(b"[]"))
    try:
        entries = msgspec.json.decode(raw, type=list[_Entry])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(FAMILY, f"/{_MEMBER}", "a list of objects with a type", str(error)) from None
    if len(entries) > _LIMIT_ENTRIES:
        raise DecodeError(FAMILY, f"/{_MEMBER}", f"at most {_LIMIT_ENTRIES} entries", str(len(entries)))
    edits: list[Edit] = []
    for index, entry in enumerate(entries):
        if entry.type != "compaction":
            raise DecodeError(FAMILY, f"/{_MEMBER}/{index}/type", "compaction", repr(entry.type)[:100])
        threshold = unset_to_none(entry.compact_threshold)
        if threshold is not None and threshold < 1:
            path = f"/{_MEMBER}/{index}/compact_threshold"
            raise DecodeError(FAMILY, path, "a positive integer", str(threshold))
        edits.append(Compact(threshold=_DEFAULT_THRESHOLD if threshold is None else threshold))
    return ContextPlan(edits=tuple(edits), members=(_MEMBER,))


def _has_trigger(request: Request) -> bool:
    """Return whether the input ends with a `compaction_trigger`."""
    if not request.messages or len(parts := request.messages[-1].parts) != 1:
        return False
    return isinstance(part := parts[0], OpaquePart) and part.kind == _TRIGGER


def without_plan(request: Request) -> Request:
    """Return the request without what asks for a compaction."""
    messages = request.messages[:-1] if _has_trigger(request) else request.messages
    extras = dict(request.extras or {})
    members = {name: raw for name, raw in extras.pop(FAMILY, {}).items() if name != _MEMBER}
    return replace(request, messages=messages, extras={FAMILY: members, **extras} if members else extras or None)


# ---- responses


def encode_summary(summary: str, envelope: str | None) -> OpaquePart:
    """Encode a summary as a `compaction` item, which holds it in an envelope."""
    if envelope is None:
        raise ValueError("a compaction item needs an envelope")
    id = f"cmp_{hashlib.blake2s(envelope.encode(), digest_size=24).hexdigest()}"
    body = {"type": _ITEM, "id": id, "encrypted_content": envelope}
    return OpaquePart(protocol=FAMILY, kind=_ITEM, body=Raw(msgspec.json.encode(body)), at="")


class _ItemShape(Struct):
    """A `compaction` item."""

    encrypted_content: str | None = None


def read_summary(part: OpaquePart) -> tuple[str | None, str | None]:
    """Return the envelope of a `compaction` item, or None, and no text: the summary is in the envelope only."""
    try:
        return msgspec.json.decode(part.body, type=_ItemShape).encrypted_content, None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None, None


def compaction_response(compaction: Compaction, model: str) -> Response:
    """Return a response whose output is only the compaction."""
    message = Message(role="assistant", parts=(compaction.part,))
    candidate = Candidate(messages=(message,), stop=Stop(reason="end_turn"), at="")
    return Response(origin="", model=model, candidates=(candidate,), usage=compaction.usage)


def merge_usage(compaction: Compaction, usage: Usage) -> Usage:
    """Return the usage of the response with that of the compaction added."""
    return add_usage(compaction.usage, usage) or usage


def report_edits(end: CandidateEnd, edits: tuple[AppliedEdit, ...]) -> CandidateEnd:
    """Return the end of a response unchanged: this API has no edits to report."""
    return end


def encode_compacted(request: Request, compaction: Compaction, created: int) -> bytes:
    """Return the body of a response of `/v1/responses/compact`: the messages of a request, then the compaction."""
    kept = replace(request, tools=None, system=None, continuation=None)
    items = msgspec.json.decode(encode_request(kept, Target()).to_bytes()).get("input", [])
    response = Response(origin="", usage=compaction.usage)
    body = msgspec.json.decode(encode_response(response, ResponseContext(created=created)).to_bytes())
    digest = hashlib.blake2s(bytes(compaction.part.body), digest_size=24).hexdigest()
    output = [_output_message(item, f"{digest}{index:02x}") for index, item in enumerate(items)]
    compacted = {
        "id": f"resp_{digest}",
        "object": "response.compaction",
        "created_at": created,
        "output": [*output, compaction.part.body],
        "usage": body["usage"],
    }
    return msgspec.json.encode(compacted)


def _output_message(item: dict[str, Any], seed: str) -> dict[str, Any]:
    """Return a message item of the input as output: with an id, a status, and a list as content."""
    content = item.get("content")
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    return {"id": f"msg_{seed}", "status": "completed", **item, "type": "message", "content": parts}


CONTEXT_MANAGEMENT = ContextManagementApi(
    find_features=find_features,
    read_plan=read_plan,
    without_plan=without_plan,
    encode_summary=encode_summary,
    read_summary=read_summary,
    compaction_response=compaction_response,
    merge_usage=merge_usage,
    report_edits=report_edits,
    has_plain_summary=False,
    usage_includes_compaction=True,
    keeps_user_messages=True,
    compact_path=COMPACT_PATH,
    encode_compacted=encode_compacted,
)
