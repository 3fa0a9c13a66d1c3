"""Translation of OpenRouter bodies and streams, with their losses."""

import json
from typing import Any

from toolwire.canonical.fold import fold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.interface import Codec, ResponseContext, Route, Target
from toolwire.protocols import PROTOCOLS
from toolwire.protocols.openrouter import CODEC
from toolwire.translation.stages.family import isolate_foreign_extras

OPENROUTER = "openrouter"


def get_codec(name: str) -> Codec:
    return CODEC if name == OPENROUTER else PROTOCOLS[name]


def decode_request_body(body: Any, source: str = OPENROUTER) -> Request:
    return get_codec(source).decode_request(json.dumps(body).encode(), Route())


def decode_response_body(body: Any, source: str = OPENROUTER) -> Response:
    return get_codec(source).decode_response(json.dumps(body).encode(), ResponseContext())


def translate_request(body: Any, source: str, target: str, **options: Any) -> tuple[Any, dict[str, str]]:
    """Return the translated body and the kind of each loss by path."""
    root = isolate_foreign_extras(decode_request_body(body, source), get_codec(source), get_codec(target))
    encoded = get_codec(target).encode_request(root, Target(**options))
    losses = encoded.report.resolve(root, get_codec(source).wire_names)
    return json.loads(encoded.to_bytes()), {loss.path: loss.kind for loss in losses}


def translate_response(
    body: Any, source: str, target: str, context: ResponseContext | None = None
) -> tuple[Any, dict[str, str]]:
    root = isolate_foreign_extras(decode_response_body(body, source), get_codec(source), get_codec(target))
    encoded = get_codec(target).encode_response(root, context or ResponseContext())
    losses = encoded.report.resolve(root, get_codec(source).wire_names)
    return json.loads(encoded.to_bytes()), {loss.path: loss.kind for loss in losses}


def translate_error(body: Any, source: str, target: str) -> Any:
    root = get_codec(source).decode_error(json.dumps(body).encode(), None)
    return json.loads(
        get_codec(target).encode_error(isolate_foreign_extras(root, get_codec(source), get_codec(target))).to_bytes()
    )


def translate_wire(wire: bytes, source: str, target: str) -> bytes:
    decoder, encoder = (
        get_codec(source).stream_decoder(ResponseContext()),
        get_codec(target).stream_encoder(ResponseContext()),
    )
    events = [
        isolate_foreign_extras(event, get_codec(source), get_codec(target))
        for event in decoder.feed(wire) + decoder.close()
    ]
    return encoder.encode(events) + encoder.close()


def fold_wire(wire: bytes, source: str = OPENROUTER) -> Response:
    decoder = get_codec(source).stream_decoder(ResponseContext())
    return fold(decoder.feed(wire) + decoder.close())


def sse_frames(*frames: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(frame).encode() for frame in frames) + b"data: [DONE]\n\n"


def chat_chunk_body(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "gen-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def read_chunks(wire: bytes) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in wire.decode().split("\n") if line.startswith("data: {")]
    return [json.loads(line) for line in lines]
