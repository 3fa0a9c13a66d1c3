"""OpenRouter's dialect of Chat Completions: only what it adds. The rest is `openai_chat`, whose family it is of."""

from toolwire.codec.carries import Carriage
from toolwire.codec.interface import Codec
from toolwire.codec.surface import Endpoint, Surface
from toolwire.protocols.openai import told_of_candidates
from toolwire.protocols.openai_chat import SPELLING
from toolwire.protocols.openai_chat.stream.choiceless import CLOSING
from toolwire.protocols.openai_chat.wire import FAMILY, SHARED

from .parts.details import UNNAMED
from .request.body import NAMES, decode_request, encode_request
from .response.body import decode_response, encode_response
from .response.errors import decode_error, encode_error
from .response.models import encode_model, encode_models
from .rules.checks import check_request
from .rules.vocabulary import KNOWN
from .stream.decoder import stream_decoder
from .stream.encoder import stream_encoder

CODEC = Codec(
    name="openrouter",
    families=(FAMILY, SHARED),
    names=NAMES,
    surface=Surface(endpoints=(Endpoint("/api/v1/chat/completions"),), key_header="authorization"),
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
    closing=CLOSING,
    check_request=check_request,
    failing=True,
    carriage=Carriage(issuer=UNNAMED, kind="encrypted", first=True),
    known=KNOWN,
    spelling=SPELLING,
    probabilities=told_of_candidates(FAMILY),
)
