"""Repair what Gemini clients are known to send although the provider rejects it."""

from msgspec.structs import replace

from toolwire.canonical.content import Message, Signature, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.codec.interface import Target
from toolwire.codec.losses import LossReport, WireNames
from toolwire.codec.models.gemini import signs_calls
from toolwire.protocols.gemini.parts.signatures import DUMMY_SIGNATURE
from toolwire.protocols.gemini.wire import FAMILY, ISSUER

_NAMES = ("thoughtSignature", "thought_signature")


def repair_request(request: Request, target: Target, _names: WireNames, report: LossReport) -> Request:
    """Sign calls of other models in the current turn with the placeholder, as the model rejects unsigned ones.

    Requests of other protocols are left to the encoder, which produces valid ones.
    """
    if request.origin != FAMILY or not signs_calls(target.model or request.model or ""):
        return request
    messages: list[Message] | None = None
    for number in range(len(request.messages) - 1, -1, -1):
        message = request.messages[number]
        if message.role == "user" and not all(type(part) is ToolResult for part in message.parts):
            break
        index = next((index for index, part in enumerate(message.parts) if type(part) is ToolCall), None)
        if message.role != "assistant" or index is None:
            continue
        call = message.parts[index]
        if not isinstance(call, ToolCall) or call.executor != "client" or _is_signed(call):
            continue
        messages = list(request.messages) if messages is None else messages
        signed = replace(call, signature=Signature(issuer=ISSUER, data=DUMMY_SIGNATURE, kind="signature"))
        messages[number] = replace(message, parts=(*message.parts[:index], signed, *message.parts[index + 1 :]))
        report.added(
            ("messages", number, "parts", index),
            "",
            f"/contents/{number}/parts/{index}/thoughtSignature",
            "the model requires signed calls; placeholder signature sent",
            severity="info",
        )
    return request if messages is None else replace(request, messages=tuple(messages))


def _is_signed(call: ToolCall) -> bool:
    """Return whether a call has a signature, or a placeholder that the client wrote."""
    return call.signature is not None or any(name in (call.extras or {}).get(FAMILY, {}) for name in _NAMES)
