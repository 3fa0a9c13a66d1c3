"""Canonical responses, encoded by a scripted upstream and decoded from the gateway's reply."""

import json
from typing import Any

from tests.support.codecs import decode_events
from tests.support.gateway.in_process import RunningGateway
from tests.support.sdk.streams import fold_body
from tests.support.sdk.validation import accept_response
from tests.support.servers.http_responses import SSE_HEAD, http_response, transfer_chunk
from toolwire.canonical.content import Message, ToolCall
from toolwire.canonical.fold import ResponseAccumulator, unfold
from toolwire.canonical.response import Candidate, Response, Stop, Usage
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS


def canonical_response(*parts: Any, reason: Any = "tool_use") -> Response:
    usage = Usage(input_tokens=10, output_tokens=5, total=15)
    message = Message(role="assistant", parts=parts)
    return Response(
        origin="",
        id="r",
        model="m",
        candidates=(Candidate(messages=(message,), stop=Stop(reason=reason)),),
        usage=usage,
    )


def canonical_call(name: str, id: str = "call_1", **arguments: Any) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=json.dumps(arguments))


def encode_http_response(protocol: str, response: Response, *, stream: bool) -> bytes:
    """Encode a response as the HTTP response of an upstream."""
    codec, context = PROTOCOLS[protocol], ResponseContext(created=1)
    if not stream:
        return http_response("200 OK", codec.encode_response(response, context).to_bytes())
    encoder = codec.stream_encoder(context)
    data = encoder.encode(list(unfold(response))) + encoder.close()
    head = SSE_HEAD.replace(b"text/event-stream", b"application/x-ndjson") if protocol == "ollama" else SSE_HEAD
    return head + transfer_chunk(data) + b"0\r\n\r\n"


async def post_and_decode(
    gateway: RunningGateway, client: str, path: str, body: bytes, *, stream: bool
) -> tuple[Any, Response]:
    """Post a request to the gateway; return the raw response body and its canonical form."""
    reply = await gateway.post(path, body)
    data = await reply.read(1_000_000)
    assert reply.status == 200, data
    codec = PROTOCOLS[client]
    if stream:
        accumulator = ResponseAccumulator()
        for event in decode_events(client, data):
            accumulator.add(event)
        response = accumulator.response()
    else:
        response = codec.decode_response(data, ResponseContext())
    # The body as the official SDK would read it.
    response_body = fold_body(client, data) if stream else json.loads(data)
    assert accept_response(client, response_body) is None
    return response_body, response
