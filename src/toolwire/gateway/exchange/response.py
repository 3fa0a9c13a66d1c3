"""Translating an upstream's response for the client."""

from collections.abc import Callable

from msgspec.structs import replace

from toolwire.canonical.errors import Loss
from toolwire.canonical.events import Event, ResponseStart
from toolwire.canonical.response import Response
from toolwire.gateway.errors import redact_failed_event, transport_rejection
from toolwire.gateway.exchange.types import ClientRequest, UpstreamRequest
from toolwire.gateway.limits import StreamBudget
from toolwire.journal.redaction import Redactor
from toolwire.translation.body import adapt_response, raise_for_losses
from toolwire.translation.stream import StreamTranslator
from toolwire.upstream.transport import TransportError, UpstreamResponse


def response_translator(
    client_request: ClientRequest, upstream_request: UpstreamRequest, redactor: Redactor
) -> StreamTranslator:
    """Build the translator of a streamed response, with secrets redacted from its errors."""
    return StreamTranslator(
        upstream_request.codec,
        client_request.codec,
        upstream_request.context,
        transform=upstream_event_filter(client_request, upstream_request),
        on_response=upstream_request.on_complete,
        redact=lambda failed: redact_failed_event(failed, redactor),
    )


def upstream_event_filter(
    client_request: ClientRequest, upstream_request: UpstreamRequest
) -> Callable[[list[Event]], list[Event]] | None:
    """Return a function that merges the events of several rounds and sets the gateway's response id.

    None if neither is needed. A round is one upstream request of several that make up a response.
    """
    response_id = (
        None
        if upstream_request.pending_response is None or client_request.codec is upstream_request.codec
        else upstream_request.pending_response.id
    )
    if response_id is None and upstream_request.rounds is None:
        return None

    def transform(events: list[Event]) -> list[Event]:
        """Return the events of the merged response, with the gateway's id in the first one."""
        if response_id is not None and events and type(start := events[0]) is ResponseStart:
            events[0] = replace(start, id=response_id)
        return events if upstream_request.rounds is None else upstream_request.rounds.process(events)

    return transform


async def read_first_chunk(
    upstream_request: UpstreamRequest,
    upstream_response: UpstreamResponse,
    translator: StreamTranslator,
    budget: StreamBudget,
) -> tuple[bytes, bool]:
    """Translate a stream up to its first content or error; return the frames, and whether the stream is complete."""
    frames = b""
    try:
        # In a response of several rounds the gateway's own calls are no content, and a round's end is not the end.
        while not (translator.has_outcome or (translator.started and upstream_request.rounds is not None)):
            data = await upstream_response.next()
            budget.consume(data)
            if not data:
                frames += translator.close()
                upstream_response.close()
                return frames, True
            frames += translator.feed(data)
    except TransportError as error:
        raise transport_rejection(upstream_request.backend.provider, error) from None
    except BaseException:
        upstream_response.close()
        raise
    return frames, False


def encode_client_response(
    client_request: ClientRequest, upstream_request: UpstreamRequest, decoded_response: Response
) -> tuple[Response, bytes | None, list[Loss]]:
    """Encode a response for the client; return it as adapted, its body, and the losses.

    The body is None if that of the upstream can be passed through.
    """
    response = adapt_response(decoded_response, upstream_request.codec, client_request.codec, upstream_request.context)
    if (
        client_request.codec is upstream_request.codec
        and upstream_request.rounds is None
        and response is decoded_response
        and decoded_response.error is None
    ):
        return response, None, []
    encoding = client_request.codec.encode_response(response, upstream_request.context)
    losses = encoding.report.resolve(response, upstream_request.codec.wire_names) if encoding.report else []
    raise_for_losses(losses, client_request.codec.name, strict=False)
    return response, encoding.to_bytes(), losses
