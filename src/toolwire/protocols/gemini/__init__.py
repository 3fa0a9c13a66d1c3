"""Gemini generateContent."""

from toolwire.codec.envelope import EnvelopeField
from toolwire.codec.interface import Codec
from toolwire.codec.surface import Endpoint, Surface
from toolwire.protocols.gemini.errors import decode_error, encode_error
from toolwire.protocols.gemini.parts.signatures import DUMMY_SIGNATURE
from toolwire.protocols.gemini.repairs import repair_request
from toolwire.protocols.gemini.request import TOKEN_COUNT_API, WIRE_NAMES, decode_request, encode_request
from toolwire.protocols.gemini.response import decode_response, encode_model, encode_models, encode_response
from toolwire.protocols.gemini.rules import check_request
from toolwire.protocols.gemini.stream_decoder import stream_decoder
from toolwire.protocols.gemini.stream_encoder import stream_encoder
from toolwire.protocols.gemini.tools import COMPUTER_USE
from toolwire.protocols.gemini.wire import FAMILY, ISSUER
from toolwire.protocols.vendors.google.request import shared_gemini_extras

CODEC = Codec(
    name="gemini",
    families=(FAMILY,),
    wire_names=WIRE_NAMES,
    surface=Surface(
        # google-genai calls /v1 by default, most others /v1beta.
        endpoints=tuple(
            Endpoint(f"/{version}/models/{{model}}:{method}", stream, counts)
            for method, stream, counts in (
                ("generateContent", False, False),
                ("streamGenerateContent", True, False),
                ("countTokens", False, True),
            )
            for version in ("v1beta", "v1")
        ),
        key_header="x-goog-api-key",
        allows_comments=False,  # google-genai parses SSE comments as JSON and fails
        sse_query=b"alt=sse",
    ),
    decode_request=decode_request,
    encode_request=encode_request,
    system_member="systemInstruction",
    decode_response=decode_response,
    encode_response=encode_response,
    decode_error=decode_error,
    encode_error=encode_error,
    encode_models=encode_models,
    encode_model=encode_model,
    stream_decoder=stream_decoder,
    stream_encoder=stream_encoder,
    check_request=check_request,
    repair_request=repair_request,
    token_count=TOKEN_COUNT_API,
    vendor_extras=shared_gemini_extras(FAMILY),
    envelope_field=EnvelopeField(
        issuer=ISSUER, kind="signature", on_calls=True, base64=True, placeholder=DUMMY_SIGNATURE
    ),
    computer_use=COMPUTER_USE,
    stop_message_key="finishMessage",
    has_start_event=False,
)
