"""OpenAI Responses."""

from toolwire.codec.carries import Carriage
from toolwire.codec.interface import Codec
from toolwire.codec.surface import Endpoint, Surface
from toolwire.codec.telling import refuse_compaction
from toolwire.protocols.openai import alike, encode_model, encode_models, told_of_texts

from .parts.computer import SCREEN
from .request.body import FAMILIES, NAMES, TIERS, decode_request, encode_request
from .request.counting import COUNTING
from .response.body import decode_response, encode_response
from .response.errors import decode_error, encode_error
from .rules.checks import check_request
from .stream.decoder import stream_decoder
from .stream.encoder import stream_encoder
from .wire import ECHO, FAMILY, ISSUER

CODEC = Codec(
    name="openai-responses",
    families=FAMILIES,
    names=NAMES,
    surface=Surface(
        endpoints=(Endpoint("/v1/responses"), Endpoint("/v1/responses/input_tokens", counts=True)),
        key_header="authorization",
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
    demand=lambda request: refuse_compaction(request, NAMES),
    counting=COUNTING,
    failing=True,
    resets=True,
    carriage=Carriage(issuer=ISSUER, kind="encrypted"),
    alike=alike(FAMILY, ECHO, TIERS, single=True),
    probabilities=told_of_texts(FAMILY),
    screen=SCREEN,
)
