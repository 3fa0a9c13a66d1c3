"""Compaction as the vendors do it: items and blocks that only their issuer accepts."""

import hashlib
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import OpaquePart
from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Usage
from toolwire.codec.context_management import Compact, Compaction, ContextManagementApi
from toolwire.codec.interface import Codec
from toolwire.translation.compaction import COMPACTION, kept_user_messages
from toolwire.upstream.simulator.response_builder import count_input_tokens
from toolwire.upstream.simulator.validation import ProviderRejection, SignatureKey

_SUMMARY = "A simulated model summarized {count} messages."


def check_compactions(request: Request, key: SignatureKey) -> None:
    """Reject compactions that the simulated provider did not write, or that were altered."""
    for number, message in enumerate(request.messages):
        for part in message.parts:
            if isinstance(part, OpaquePart) and part.kind == COMPACTION and not _is_authentic(part, key):
                raise ProviderRejection(_invalid_error(part, number))


def _is_authentic(part: OpaquePart, key: SignatureKey) -> bool:
    """Return whether the provider wrote a compaction; Anthropic's are signed, OpenAI's encrypted."""
    body: dict[str, Any] = msgspec.json.decode(part.body)
    if part.protocol != "anthropic":
        return key.is_valid(str(body.get("encrypted_content")))
    if body.get("encrypted_content") is not None:
        return False
    return "signature" not in body or key.is_valid(str(body["signature"]), str(body.get("content")))


def _invalid_error(part: OpaquePart, number: int) -> ApiError:
    """Return the provider's error for a compaction that it did not write."""
    if part.protocol == "anthropic":
        message = f"messages.{number}: Invalid `signature` in `compaction` block"
        return ApiError(kind="invalid_request", message=message, code="compaction_signature_invalid")
    message = f"The encrypted content of input[{number}] could not be verified."
    return ApiError(kind="invalid_request", message=message, code="invalid_encrypted_content")


def compact_on_demand(
    codec: Codec, request: Request, key: SignatureKey, *, compacts_only: bool, created: int
) -> Response | bytes | None:
    """Return the response to a request that only asks for a compaction; None for other requests.

    An endpoint that only compacts gets its response as bytes.
    """
    api = codec.context_management
    if api is None or not (compacts_only or _asks_for_summary(api, request)):
        return None
    compacted = request if compacts_only else api.without_plan(request)
    compaction = Compaction(
        summary="",
        usage=Usage(input_tokens=count_input_tokens(compacted), output_tokens=12),
        part=_write_compaction(codec, compacted, key),
    )
    if compacts_only and api.encode_compacted is not None:
        kept = tuple(kept_user_messages(compacted.messages))
        return api.encode_compacted(replace(compacted, messages=kept), compaction, created)
    return api.compaction_response(compaction, request.model or "")


def _asks_for_summary(api: ContextManagementApi, request: Request) -> bool:
    """Return whether a request only asks for a compaction; raise `ProviderRejection` for invalid context management."""
    if api.find_features(request) is None:
        return False
    try:
        edits = api.read_plan(request).edits
    except DecodeError as error:
        raise ProviderRejection(ApiError(kind="invalid_request", message=str(error))) from None
    return any(isinstance(edit, Compact) and edit.threshold is None for edit in edits)


def _write_compaction(codec: Codec, request: Request, key: SignatureKey) -> OpaquePart:
    """Return a compaction in the vendor's form, signed so that the simulator recognizes it."""
    summary = _SUMMARY.format(count=len(request.messages))
    nonce = hashlib.blake2s(msgspec.json.encode(request.messages), digest_size=12).hexdigest()
    if codec.name == "anthropic":
        signature = key.sign("anthropic", nonce, summary).data
        body = {"type": COMPACTION, "content": summary, "encrypted_content": None, "signature": signature}
        return OpaquePart(protocol=codec.name, kind=COMPACTION, body=Raw(msgspec.json.encode(body)))
    data = key.sign("openai", nonce).data
    body = {"type": COMPACTION, "id": f"cmp_{nonce}", "encrypted_content": data}
    return OpaquePart(protocol=codec.name, kind=COMPACTION, body=Raw(msgspec.json.encode(body)), at="")
