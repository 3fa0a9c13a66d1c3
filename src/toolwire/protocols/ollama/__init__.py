"""Ollama's native chat."""

from toolwire.codec.interface import Codec
from toolwire.codec.surface import Endpoint, Surface

from .request.body import NAMES, decode_request, encode_request
from .response.body import decode_response, encode_response
from .response.errors import decode_error, encode_error
from .response.models import encode_model, encode_models
from .rules.checks import check_request
from .stream.decoder import stream_decoder
from .stream.encoder import stream_encoder
from .wire import FAMILY, GUARDED

CODEC = Codec(
    name="ollama",
    announced=False,
    families=(FAMILY, GUARDED),
    names=NAMES,
    surface=Surface(
        endpoints=(Endpoint("/api/chat"),),
        key_header="authorization",
        stream_type="application/x-ndjson",
        comments=False,
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
