"""Anthropic Messages."""

from toolwire.codec.encoding.fallbacks import compaction_error
from toolwire.codec.envelope import EnvelopeField
from toolwire.codec.interface import Codec
from toolwire.codec.surface import Endpoint, Surface
from toolwire.protocols.anthropic.computer import COMPUTER_USE
from toolwire.protocols.anthropic.context_management import CONTEXT_MANAGEMENT
from toolwire.protocols.anthropic.errors import decode_error, encode_error, native_only_error
from toolwire.protocols.anthropic.parts.messages import is_separable
from toolwire.protocols.anthropic.repairs import repair_request
from toolwire.protocols.anthropic.request import (
    TOKEN_COUNT_API,
    WIRE_NAMES,
    decode_request,
    encode_request,
    remove_billing_header,
)
from toolwire.protocols.anthropic.response import (
    decode_response,
    encode_model,
    encode_models,
    encode_response,
    peek_response,
)
from toolwire.protocols.anthropic.rules import check_request
from toolwire.protocols.anthropic.stream_decoder import stream_decoder
from toolwire.protocols.anthropic.stream_encoder import stream_encoder
from toolwire.protocols.anthropic.wire import FAMILY

CODEC = Codec(
    name="anthropic",
    families=(FAMILY,),
    wire_names=WIRE_NAMES,
    surface=Surface(
        endpoints=(Endpoint("/v1/messages"), Endpoint("/v1/messages/count_tokens", counts_tokens=True)),
        key_header="x-api-key",
        headers=(("anthropic-version", "2023-06-01"),),
        version_header="anthropic-version",
        passthrough_header="anthropic-beta",
        statuses={"overloaded": 529},
        can_pause=True,
    ),
    decode_request=decode_request,
    encode_request=encode_request,
    system_member="system",
    is_separable=is_separable,
    remove_client_metadata=remove_billing_header,
    caches_by_marks=True,
    decode_response=decode_response,
    encode_response=encode_response,
    decode_error=decode_error,
    encode_error=encode_error,
    encode_models=encode_models,
    encode_model=encode_model,
    stream_decoder=stream_decoder,
    stream_encoder=stream_encoder,
    stream_end=b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    check_request=check_request,
    repair_request=repair_request,
    native_only_error=lambda request: native_only_error(request) or compaction_error(request, WIRE_NAMES),
    peek=peek_response,
    token_count=TOKEN_COUNT_API,
    context_management=CONTEXT_MANAGEMENT,
    envelope_field=EnvelopeField(issuer=FAMILY, kind="signature"),
    computer_use=COMPUTER_USE,
    has_independent_messages=True,
)
