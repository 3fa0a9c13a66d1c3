"""Gemini generateContent."""

from toolwire.codec.carries import Carriage
from toolwire.codec.interface import Codec
from toolwire.codec.surface import Endpoint, Surface
from toolwire.protocols.google import older_request

from .parts.signatures import DUMMY
from .request.body import NAMES, decode_request, encode_request
from .request.computer import SCREEN
from .request.counting import COUNTING
from .response.body import decode_response, encode_response
from .response.errors import decode_error, encode_error
from .response.models import encode_model, encode_models
from .rules.checks import check_request
from .stream.decoder import stream_decoder
from .stream.encoder import stream_encoder
from .wire import FAMILY, ISSUER

CODEC = Codec(
    name="gemini",
    families=(FAMILY,),
    names=NAMES,
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
        comments=False,  # google-genai takes them for broken JSON
        events_word=b"alt=sse",
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
    counting=COUNTING,
    alike=older_request(FAMILY),
    carriage=Carriage(issuer=ISSUER, kind="signature", on_calls=True, base64=True, blank=DUMMY),
    screen=SCREEN,
    stop_message="finishMessage",
    announced=False,
)
