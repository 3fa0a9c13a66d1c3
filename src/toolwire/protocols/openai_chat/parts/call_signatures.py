"""Decode and encode the signature of a tool call, which Gemini's Chat form has in `extra_content`.

    {"id": "..", "function": {..}, "extra_content": {"google": {"thought_signature": ".."}}}

Gemini 3 rejects calls of a turn without the signature of its first call.
"""

from typing import Any

import msgspec
from msgspec import Raw

from toolwire.canonical.content import Signature, ToolCall
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.hosts.profile import rule_for
from toolwire.codec.losses import SourcePath
from toolwire.codec.wire.extras import insert_at_pointer
from toolwire.protocols.openai_chat.wire import FAMILY

SIGNATURE_FIELD = "extra_content"
SIGNATURE_POINTER = f"{SIGNATURE_FIELD}/google/thought_signature"
SIGNED_CALL = f"{FAMILY}:canonical:{SIGNATURE_FIELD}"
"""Wire form of a call whose signature represents its `extra_content`."""

_ISSUER = "google"
_decode_content = msgspec.json.Decoder(dict[str, dict[str, Any]]).decode


def decode_signature(extras: dict[str, Raw]) -> Signature | None:
    """Return the signature among the extras of a call; None if there is none, or if it is not alone."""
    if (raw := extras.get(SIGNATURE_FIELD)) is None:
        return None
    try:
        content = _decode_content(raw)
    except msgspec.DecodeError:
        return None
    match content:
        case {"google": {"thought_signature": str(data), **others}, **vendors} if data and not others and not vendors:
            return Signature(issuer=_ISSUER, data=data, kind="signature", at=f"/{SIGNATURE_POINTER}")
        case _:
            return None


def with_signature(collected: dict[str, Any]) -> dict[str, Any]:
    """Return the collected `extras` and `wire_form` arguments of a call with its signature, if the extras hold one."""
    fields = (collected.get("extras") or {}).get(FAMILY)
    signature = None if fields is None else decode_signature(fields)
    if signature is None:
        return collected
    return {**collected, "signature": signature, "wire_form": (*(collected.get("wire_form") or ()), SIGNED_CALL)}


def accepts_signature(part: ToolCall, plan: EncodingPlan) -> bool:
    """Tell whether the signature of another protocol's call is sent with it."""
    if plan.for_client or plan.target.host.reasoning.call_signature is None:
        return False
    return part.signature is not None and part.signature.issuer == _ISSUER


def sign_call(body: dict[str, Any], part: ToolCall, plan: EncodingPlan) -> None:
    """Write the signature of a call into its `body`, where the host has a member for it."""
    pointer = plan.target.host.reasoning.call_signature
    if part.signature is not None and pointer is not None:
        insert_at_pointer(body, pointer, part.signature.data)


def add_required_signature(calls: list[Any], path: SourcePath, plan: EncodingPlan) -> None:
    """Add the host's placeholder to the first call of a message, if the model requires a signature there."""
    facts = plan.target.host.reasoning
    rule = None if facts.call_signature is None else rule_for(facts.replay, plan.target.model or "")
    if rule is None or rule.placeholder is None or facts.call_signature is None or not calls:
        return
    if not isinstance(first := calls[0], dict) or facts.call_signature.partition("/")[0] in first:
        return
    insert_at_pointer(first, facts.call_signature, rule.placeholder)
    pointer = f"/messages/{plan.output_index}/tool_calls/0/{facts.call_signature}"
    reason = f"{plan.target.host.name} requires signed calls; placeholder sent"
    plan.report.added(path, "", pointer, reason, severity="info")
