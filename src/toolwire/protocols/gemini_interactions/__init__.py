"""Gemini Interactions."""

from toolwire.codec.carries import Carriage
from toolwire.codec.interface import Codec
from toolwire.codec.surface import Endpoint, Surface
from toolwire.protocols.google import newer_request

from .request.body import NAMES, decode_request, encode_request
from .request.computer import SCREEN
from .response.body import decode_response, encode_response
from .response.errors import decode_error, encode_error
from .response.models import encode_model, encode_models
from .rules.checks import check_request
from .stream.decoder import stream_decoder
from .stream.encoder import stream_encoder
from .wire import FAMILY, ISSUER

CODEC = Codec(
    name="gemini-interactions",
    families=(FAMILY,),
    names=NAMES,
    surface=Surface(
        endpoints=(Endpoint("/v1beta/interactions"), Endpoint("/v1/interactions")),
        key_header="x-goog-api-key",
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
    cumulative=True,
    check_request=check_request,
    alike=newer_request(FAMILY),
    failing=True,
    carriage=Carriage(issuer=ISSUER, kind="signature", base64=True),
    screen=SCREEN,
)
