"""Shortcuts for decoding errors and streams with the codec of a protocol."""

import json
from typing import Any

from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import Event
from toolwire.canonical.fold import unfold
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS


def body_as_stream(body: Any, protocol: str) -> bytes:
    """Encode a response body as a stream of its protocol."""
    codec = PROTOCOLS[protocol]
    encoder = codec.stream_encoder(ResponseContext())
    events = list(unfold(codec.decode_response(json.dumps(body).encode(), ResponseContext())))
    return encoder.encode(events) + encoder.close()


def decode_error(protocol: str, status: int, body: bytes) -> ApiError:
    return PROTOCOLS[protocol].decode_error(body, status)


def decode_events(protocol: str, wire: bytes) -> list[Event]:
    decoder = PROTOCOLS[protocol].stream_decoder(ResponseContext())
    return [*decoder.feed(wire), *decoder.close()]
