"""OpenAI Responses."""

from toolwire.codec.encoding.fallbacks import compaction_error
from toolwire.codec.envelope import EnvelopeField
from toolwire.codec.interface import Codec
from toolwire.codec.surface import Endpoint, Surface
from toolwire.protocols.openai_responses.computer import COMPUTER_USE
from toolwire.protocols.openai_responses.context_management import COMPACT_PATH, CONTEXT_MANAGEMENT
from toolwire.protocols.openai_responses.errors import decode_error, encode_error
from toolwire.protocols.openai_responses.request import (
    FAMILIES,
    SERVICE_TIERS,
    TOKEN_COUNT_API,
    WIRE_NAMES,
    decode_request,
    encode_request,
)
from toolwire.protocols.openai_responses.response import decode_response, encode_response
from toolwire.protocols.openai_responses.rules import check_request
from toolwire.protocols.openai_responses.stream_decoder import stream_decoder
from toolwire.protocols.openai_responses.stream_encoder import stream_encoder
from toolwire.protocols.openai_responses.wire import ECHO_FAMILY, FAMILY, ISSUER
from toolwire.protocols.vendors.openai import encode_model, encode_models, text_logprobs, vendor_shared_extras

CODEC = Codec(
    name="openai-responses",
    families=FAMILIES,
    wire_names=WIRE_NAMES,
    surface=Surface(
        endpoints=(
            Endpoint("/v1/responses"),
            Endpoint("/v1/responses/input_tokens", counts_tokens=True),
            Endpoint(COMPACT_PATH, compacts=True),
        ),
        key_header="authorization",
    ),
    decode_request=decode_request,
    encode_request=encode_request,
    has_cache_key=True,
    system_member="instructions",
    decode_response=decode_response,
    encode_response=encode_response,
    decode_error=decode_error,
    encode_error=encode_error,
    encode_models=encode_models,
    encode_model=encode_model,
    stream_decoder=stream_decoder,
    stream_encoder=stream_encoder,
    end_event_repeats_response=True,
    check_request=check_request,
    native_only_error=lambda request: compaction_error(request, WIRE_NAMES),
    token_count=TOKEN_COUNT_API,
    context_management=CONTEXT_MANAGEMENT,
    errors_in_body=True,
    mid_conversation_settings=True,
    envelope_field=EnvelopeField(issuer=ISSUER, kind="encrypted", binds_ids=True),
    vendor_extras=vendor_shared_extras(FAMILY, ECHO_FAMILY, SERVICE_TIERS, single_moderation=True),
    logprobs=text_logprobs(FAMILY),
    computer_use=COMPUTER_USE,
)
