"""Bodies and streams through two codecs, and what was lost on the way."""

import json
from typing import Any

from toolwire.canonical.fold import fold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.interface import Codec, Context, Route, Target
from toolwire.codec.kin import set_apart
from toolwire.protocols import PROTOCOLS
from toolwire.protocols.openrouter import CODEC

ROUTER = "openrouter"


def codec(name: str) -> Codec:
    return CODEC if name == ROUTER else PROTOCOLS[name]


def decoded(body: Any, source: str = ROUTER) -> Request:
    return codec(source).decode_request(json.dumps(body).encode(), Route())


def answered(body: Any, source: str = ROUTER) -> Response:
    return codec(source).decode_response(json.dumps(body).encode(), Context())


def request(body: Any, source: str, target: str, **options: Any) -> tuple[Any, dict[str, str]]:
    """The body in another protocol, and the kind of each loss by its path."""
    root = set_apart(decoded(body, source), codec(source), codec(target))
    made = codec(target).encode_request(root, Target(**options))
    losses = made.report.resolve(root, codec(source).names)
    return json.loads(made.to_bytes()), {loss.path: loss.kind for loss in losses}


def response(body: Any, source: str, target: str, context: Context | None = None) -> tuple[Any, dict[str, str]]:
    root = set_apart(answered(body, source), codec(source), codec(target))
    made = codec(target).encode_response(root, context or Context())
    losses = made.report.resolve(root, codec(source).names)
    return json.loads(made.to_bytes()), {loss.path: loss.kind for loss in losses}


def error(body: Any, source: str, target: str) -> Any:
    root = codec(source).decode_error(json.dumps(body).encode(), None)
    return json.loads(codec(target).encode_error(set_apart(root, codec(source), codec(target))).to_bytes())


def stream(wire: bytes, source: str, target: str) -> bytes:
    decoder, encoder = codec(source).stream_decoder(Context()), codec(target).stream_encoder(Context())
    events = [set_apart(event, codec(source), codec(target)) for event in decoder.feed(wire) + decoder.close()]
    return encoder.encode(events) + encoder.close()


def folded(wire: bytes, source: str = ROUTER) -> Response:
    decoder = codec(source).stream_decoder(Context())
    return fold(decoder.feed(wire) + decoder.close())


def sse(*frames: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in frames) + b"data: [DONE]\n\n"


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "gen-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def chunks(wire: bytes) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in wire.decode().split("\n") if line.startswith("data: {")]
    return [json.loads(line) for line in lines]
