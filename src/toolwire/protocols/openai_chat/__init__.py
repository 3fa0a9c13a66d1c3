"""OpenAI Chat Completions."""

from toolwire.codec.interface import Codec
from toolwire.codec.surface import Endpoint, Surface
from toolwire.protocols.openai_chat.errors import decode_error, encode_error
from toolwire.protocols.openai_chat.fields import SHARED_FIELDS
from toolwire.protocols.openai_chat.hosts import is_separable
from toolwire.protocols.openai_chat.parts.citations import TEXT_AS_CONTENT
from toolwire.protocols.openai_chat.parts.content import STRING
from toolwire.protocols.openai_chat.request import WIRE_NAMES, decode_request, encode_request
from toolwire.protocols.openai_chat.response import decode_response, encode_response, peek_response
from toolwire.protocols.openai_chat.rules import check_request, repair_request
from toolwire.protocols.openai_chat.settings import MAX_TOKENS_ALIAS, SINGLE_STOP
from toolwire.protocols.openai_chat.stream_decoder import stream_decoder
from toolwire.protocols.openai_chat.stream_encoder import STREAM_END, frame_filter, stream_encoder
from toolwire.protocols.openai_chat.variant import CHAT
from toolwire.protocols.openai_chat.wire import FAMILY, SHARED_FAMILY
from toolwire.protocols.vendors.openai import candidate_logprobs, encode_model, encode_models, vendor_shared_extras

SHARED_WIRE_FORM = frozenset({MAX_TOKENS_ALIAS, TEXT_AS_CONTENT, SINGLE_STOP, STRING})

CODEC = Codec(
    name="openai-chat",
    families=(FAMILY, SHARED_FAMILY),
    wire_names=WIRE_NAMES,
    surface=Surface(endpoints=(Endpoint("/v1/chat/completions"),), key_header="authorization"),
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
    check_request=check_request,
    repair_request=repair_request,
    is_separable=is_separable,
    peek=peek_response,
    frame_filter=frame_filter,
    stream_end=STREAM_END,
    shared_fields=SHARED_FIELDS,
    shared_wire_forms=SHARED_WIRE_FORM,
    vendor_extras=vendor_shared_extras(FAMILY, FAMILY, CHAT.service_tiers, single_moderation=False),
    logprobs=candidate_logprobs(FAMILY),
    has_independent_messages=True,
)
