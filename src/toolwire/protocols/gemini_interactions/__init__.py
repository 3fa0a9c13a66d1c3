"""Gemini Interactions."""

from toolwire.codec.envelope import EnvelopeField
from toolwire.codec.interface import Codec
from toolwire.codec.surface import Endpoint, Surface
from toolwire.protocols.gemini_interactions.errors import decode_error, encode_error
from toolwire.protocols.gemini_interactions.request import WIRE_NAMES, decode_request, encode_request
from toolwire.protocols.gemini_interactions.response import (
    decode_response,
    encode_model,
    encode_models,
    encode_response,
)
from toolwire.protocols.gemini_interactions.rules import check_request
from toolwire.protocols.gemini_interactions.stream_decoder import stream_decoder
from toolwire.protocols.gemini_interactions.stream_encoder import stream_encoder
from toolwire.protocols.gemini_interactions.tools import COMPUTER_USE
from toolwire.protocols.gemini_interactions.wire import FAMILY, ISSUER
from toolwire.protocols.vendors.google.request import shared_interactions_extras

CODEC = Codec(
    name="gemini-interactions",
    families=(FAMILY,),
    wire_names=WIRE_NAMES,
    surface=Surface(
        endpoints=(Endpoint("/v1beta/interactions"), Endpoint("/v1/interactions")),
        key_header="x-goog-api-key",
    ),
    decode_request=decode_request,
    encode_request=encode_request,
    system_member="system_instruction",
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
    vendor_extras=shared_interactions_extras(FAMILY),
    errors_in_body=True,
    envelope_field=EnvelopeField(issuer=ISSUER, kind="signature", base64=True),
    computer_use=COMPUTER_USE,
)
