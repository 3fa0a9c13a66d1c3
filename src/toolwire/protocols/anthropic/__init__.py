"""Anthropic Messages."""

from toolwire.codec.carries import Carriage
from toolwire.codec.interface import Codec
from toolwire.codec.surface import Endpoint, Surface
from toolwire.codec.telling import refuse_compaction

from .request.body import NAMES, decode_request, encode_request
from .request.computer import SCREEN
from .request.counting import COUNTING
from .response.body import decode_response, encode_response, glance
from .response.errors import decode_error, demand, encode_error
from .response.models import encode_model, encode_models
from .rules.checks import check_request
from .rules.repairs import repair_request
from .stream.decoder import stream_decoder
from .stream.encoder import stream_encoder
from .wire import FAMILY

CODEC = Codec(
    name="anthropic",
    families=(FAMILY,),
    names=NAMES,
    surface=Surface(
        endpoints=(Endpoint("/v1/messages"), Endpoint("/v1/messages/count_tokens", counts=True)),
        key_header="x-api-key",
        headers=(("anthropic-version", "2023-06-01"),),
        version_header="anthropic-version",
        passed="anthropic-beta",
        statuses={"overloaded": 529},
        pauses=True,
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
    closing=b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    check_request=check_request,
    repair_request=repair_request,
    demand=lambda request: demand(request) or refuse_compaction(request, NAMES),
    glance=glance,
    counting=COUNTING,
    carriage=Carriage(issuer=FAMILY, kind="signature"),
    screen=SCREEN,
)
