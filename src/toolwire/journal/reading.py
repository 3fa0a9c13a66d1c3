"""What was said in a recorded exchange, in the canonical model."""

from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.fold import fold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.interface import Context
from toolwire.protocols import PROTOCOLS

from .records import Record


def request_of(record: Record) -> Request | None:
    """What the client asked; None if that is not known, or can't be read."""
    if record.bodies is None:
        return None
    try:
        return PROTOCOLS[record.client].decode_request(record.bodies.request, record.route)
    except ToolwireError:
        return None


def response_of(record: Record) -> Response | None:
    """What the client was answered, streamed or whole; None if that is not known, or was no answer."""
    request = request_of(record)
    if record.bodies is None or request is None or (record.status >= 300 and not record.streamed):
        return None
    codec, context, data = PROTOCOLS[record.client], Context(request=request), record.bodies.response
    try:
        if record.bodies.folded or not record.streamed:
            return codec.decode_response(data, context)
        decoder = codec.stream_decoder(context)
        return fold([*decoder.feed(data), *decoder.close()])
    except ToolwireError:
        return None


def answer_of(record: Record) -> bytes:
    """What the client was answered: a stream as the answer that it tells."""
    if record.bodies is None:
        return b""
    if record.bodies.folded or not record.streamed or (response := response_of(record)) is None:
        return record.bodies.response
    codec = PROTOCOLS[record.client]
    if response.error is not None and not response.candidates:
        return codec.encode_error(response.error).to_bytes()
    return codec.encode_response(response, Context(request=request_of(record))).to_bytes()
