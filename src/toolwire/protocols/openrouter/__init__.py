"""OpenRouter chat: Chat's codec with the host profile `openrouter`, and the fields that OpenRouter adds."""

from toolwire.codec.envelope import EnvelopeField
from toolwire.codec.interface import Codec
from toolwire.codec.surface import Endpoint, Surface
from toolwire.protocols.openai_chat import SHARED_WIRE_FORM
from toolwire.protocols.openai_chat.parts.details import DEFAULT_ISSUER
from toolwire.protocols.openai_chat.request import WIRE_NAMES
from toolwire.protocols.openai_chat.stream_encoder import STREAM_END
from toolwire.protocols.openai_chat.wire import FAMILY, SHARED_FAMILY
from toolwire.protocols.openrouter.errors import decode_error, encode_error
from toolwire.protocols.openrouter.request import decode_request, encode_request
from toolwire.protocols.openrouter.response import decode_response, encode_model, encode_models, encode_response
from toolwire.protocols.openrouter.rules import SHARED_FIELDS, check_request
from toolwire.protocols.openrouter.stream_encoder import stream_decoder, stream_encoder
from toolwire.protocols.openrouter.tools import OPENROUTER
from toolwire.protocols.vendors.openai import candidate_logprobs

CODEC = Codec(
    name=OPENROUTER.protocol,
    families=(FAMILY, SHARED_FAMILY),
    wire_names=WIRE_NAMES,
    surface=Surface(endpoints=(Endpoint(OPENROUTER.path),), key_header="authorization"),
    decode_request=decode_request,
    encode_request=encode_request,
    has_cache_key=True,
    decode_response=decode_response,
    encode_response=encode_response,
    decode_error=decode_error,
    encode_error=encode_error,
    encode_models=encode_models,
    encode_model=encode_model,
    stream_decoder=stream_decoder,
    stream_encoder=stream_encoder,
    stream_end=STREAM_END,
    check_request=check_request,
    errors_in_body=True,
    envelope_field=EnvelopeField(issuer=DEFAULT_ISSUER, kind="encrypted", reasoning_first=True),
    shared_fields=SHARED_FIELDS,
    shared_wire_forms=SHARED_WIRE_FORM,
    logprobs=candidate_logprobs(FAMILY),
)
