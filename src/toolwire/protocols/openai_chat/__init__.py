"""OpenAI Chat Completions."""

from toolwire.codec.interface import Codec
from toolwire.codec.surface import Endpoint, Surface
from toolwire.protocols.openai import alike, encode_model, encode_models, told_of_candidates

from .parts.citations import NOTED
from .parts.content import STRING
from .request.body import NAMES, TIERS, decode_request, encode_request
from .request.settings import ALIAS, ONE_STOP
from .response.body import decode_response, encode_response, glance
from .response.errors import decode_error, encode_error
from .rules.checks import check_request
from .rules.repairs import repair_request
from .rules.vocabulary import KNOWN
from .stream.choiceless import CLOSING, frame_filter
from .stream.decoder import stream_decoder
from .stream.encoder import stream_encoder
from .wire import FAMILY, SHARED

SPELLING = frozenset({ALIAS, NOTED, ONE_STOP, STRING})

CODEC = Codec(
    name="openai-chat",
    families=(FAMILY, SHARED),
    names=NAMES,
    surface=Surface(endpoints=(Endpoint("/v1/chat/completions"),), key_header="authorization"),
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
    repair_request=repair_request,
    glance=glance,
    frame_filter=frame_filter,
    closing=CLOSING,
    known=KNOWN,
    spelling=SPELLING,
    alike=alike(FAMILY, FAMILY, TIERS, single=False),
    probabilities=told_of_candidates(FAMILY),
)
