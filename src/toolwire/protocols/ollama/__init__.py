"""Ollama chat."""

from toolwire.codec.interface import Codec
from toolwire.codec.surface import Endpoint, Surface
from toolwire.protocols.ollama.errors import decode_error, encode_error
from toolwire.protocols.ollama.request import WIRE_NAMES, decode_request, encode_request
from toolwire.protocols.ollama.response import decode_response, encode_model, encode_models, encode_response
from toolwire.protocols.ollama.rules import check_request
from toolwire.protocols.ollama.stream_decoder import stream_decoder
from toolwire.protocols.ollama.stream_encoder import stream_encoder
from toolwire.protocols.ollama.wire import CONSTRAINT_FAMILY, FAMILY

CODEC = Codec(
    name="ollama",
    has_start_event=False,
    families=(FAMILY, CONSTRAINT_FAMILY),
    wire_names=WIRE_NAMES,
    surface=Surface(
        endpoints=(Endpoint("/api/chat"),),
        key_header="authorization",
        stream_type="application/x-ndjson",
        allows_comments=False,
    ),
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=decode_response,
    encode_response=encode_response,
    decode_error=decode_error,
    encode_error=encode_error,
    encode_models=encode_models,
    encode_model=encode_model,
    stream_decoder=stream_decoder,
    stream_encoder=stream_encoder,
    check_request=check_request,
)
