"""Receiving the upstream's response to an exchange, and translating it for the client.

Until the first content or error has arrived, a response may be rejected, so that the next backend is tried.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import reduce
from operator import add
from typing import Generic

from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, DecodeError, Loss
from toolwire.canonical.events import Event, Notice, ResponseStart
from toolwire.canonical.fold import unfold
from toolwire.canonical.response import Response, Usage
from toolwire.gateway.errors import (
    RequestRejected,
    invalid_response_error,
    redact_error,
    redact_extras,
    redact_failed_event,
    transport_api_error,
    transport_rejection,
    with_default_status,
)
from toolwire.gateway.exchange.call_checks import has_calls
from toolwire.gateway.exchange.context_management import response_changes
from toolwire.gateway.exchange.exchange import BufferedResponse, Exchange
from toolwire.gateway.exchange.refusals import send_request
from toolwire.gateway.exchange.response_translator import Frames, ResponseTranslator
from toolwire.gateway.exchange.sender import UpstreamRequest, can_fail_over, classify_error, find_side_effect
from toolwire.gateway.limits import SMALL_BODY, StreamBudget, is_heavy_body
from toolwire.gateway.rounds.call_retry import CallRetryRounds
from toolwire.gateway.rounds.continuation import GatewayToolLoop, continuation_request, is_paused, merge_responses
from toolwire.gateway.state.background_jobs import BackgroundJob
from toolwire.gateway.state.signatures import DROPPING_CLIENTS, may_have_signatures
from toolwire.translation.body import body_bytes, raise_for_losses
from toolwire.translation.event_stream import EventTranslator
from toolwire.translation.pipeline import adapt_response
from toolwire.translation.stages.failures import find_defect, response_error
from toolwire.translation.stages.family import isolate_foreign_extras
from toolwire.translation.stages.tool_call_parsers.parser import body_may_change
from toolwire.translation.stages.tool_call_parsers.text_recovery import recover_text, report_recovered
from toolwire.translation.stream import StreamTranslator
from toolwire.upstream.transport import TransportError, UpstreamResponse


async def request_response(exchange: Exchange) -> "BufferedResponse | StreamingResponse[bytes]":
    """Send the prepared request to its backend, and return the response.

    `RequestRejected.failover` says whether the next backend may be tried.
    """
    upstream_request = exchange.upstream_request
    if (rounds := upstream_request.rounds) is not None:
        first_round = await rounds.prepare_first_round()
        if isinstance(first_round, Response):
            return await respond_locally(exchange, first_round)
        if first_round is not None:
            upstream_request.body = first_round
    try:
        upstream_response = await send_request(exchange)
        if exchange.is_streaming:
            return await _open_stream(exchange, upstream_response, _response_translator(exchange))
        return await _buffered_response(exchange, upstream_response)
    except RequestRejected as rejection:
        raise await _decide_failover(exchange, rejection) from None


async def request_raw_response(exchange: Exchange) -> BufferedResponse:
    """Send the prepared request to its backend, and return the body of the response as it is."""
    try:
        body = await _read_body(exchange, await send_request(exchange))
    except RequestRejected as rejection:
        raise await _decide_failover(exchange, rejection) from None
    return BufferedResponse(body, exchange.upstream_request.losses)


async def request_events(exchange: Exchange) -> "StreamingResponse[list[Event]]":
    """Send the prepared request to its backend, and return the response as a stream of canonical events."""
    upstream_request, redactor = exchange.upstream_request, exchange.services.redactor
    translator = EventTranslator(
        upstream_request.codec, upstream_request.context, lambda failed: redact_failed_event(failed, redactor)
    )
    try:
        upstream_response = await send_request(exchange)
        return await _open_stream(exchange, upstream_response, translator)
    except RequestRejected as rejection:
        raise await _decide_failover(exchange, rejection) from None


async def _decide_failover(exchange: Exchange, rejection: RequestRejected) -> RequestRejected:
    """Return the rejection, redacted and with failover decided; side effects are added to its message."""
    upstream_request, services = exchange.upstream_request, exchange.services
    error, effect = redact_error(rejection.error, services.redactor), None
    error = isolate_foreign_extras(error, upstream_request.codec, exchange.client_request.codec)
    if upstream_request.rounds is not None and upstream_request.rounds.has_effects:
        effect = "tools were run or part of the response was produced"
    elif rejection.attempt == "unknown":
        codec, body = upstream_request.codec, upstream_request.body
        effect = await services.body_executor.run(find_side_effect, codec, body, heavy=is_heavy_body(body))
    if effect is None:
        return RequestRejected(error, attempt=rejection.attempt, failover=can_fail_over(rejection))
    message = f"{error.message}; the request may have taken effect: {effect}"
    return RequestRejected(replace(error, message=message, wire_form=()), attempt=rejection.attempt)


async def respond_locally(exchange: Exchange, response: Response) -> "BufferedResponse | StreamingResponse[bytes]":
    """Encode a response that the gateway produced without an upstream."""
    if not exchange.is_streaming:
        return await _client_response(exchange, response, b"")
    translator = _response_translator(exchange)
    return StreamingResponse(exchange, None, translator, translator.translate_events(unfold(response)))


# ---- rounds


class UpstreamRounds:
    """The further upstream requests (rounds) that one response takes, within their limit."""

    def __init__(self, exchange: Exchange) -> None:
        upstream_request, limits = exchange.upstream_request, exchange.services.limits
        runs_tools = isinstance(upstream_request.rounds, GatewayToolLoop) and upstream_request.rounds.runs_tools
        self.left = limits.rounds if runs_tools else limits.pauses
        self.left += isinstance(upstream_request.rounds, CallRetryRounds)
        self._exchange = exchange
        self._last_body = upstream_request.body

    async def open_next(self) -> UpstreamResponse | None:
        """Send the next round of a stream and return its response; None if the client's response is complete."""
        upstream_request, services = self._exchange.upstream_request, self._exchange.services
        if (rounds := upstream_request.rounds) is None:
            return None
        if rounds.paused and self.left > 0:
            rounds.ready_events = await rounds.finish_round()
        if not rounds.paused or self.left == 0:
            return None
        self.left -= 1
        self._last_body = rounds.next_request(upstream_request.codec, self._last_body)
        try:
            return await services.sender.send(upstream_request, self._last_body)
        except RequestRejected as rejection:
            raise await _decide_failover(self._exchange, rejection) from None

    async def request(self, body: bytes) -> Response:
        """Send the body of a further round, and decode its complete response."""
        upstream_request, services = self._exchange.upstream_request, self._exchange.services
        upstream_response = await services.sender.send(upstream_request, body)
        response_body = await _read_body(self._exchange, upstream_response)
        heavy = is_heavy_body(response_body)
        decoded = await services.body_executor.run(_decode_response, upstream_request, response_body, heavy=heavy)
        return recover_text(decoded, upstream_request.context)


async def _complete_rounds(exchange: Exchange, response: Response) -> Response:
    """Continue a complete response that paused or called the gateway's tools, and return the merged one."""
    upstream_request = exchange.upstream_request
    if (rounds := upstream_request.rounds) is None:
        return response
    further = UpstreamRounds(exchange)
    if isinstance(rounds, GatewayToolLoop):
        return await rounds.complete_response(response, further.request, further.left)
    if isinstance(rounds, CallRetryRounds):
        return await rounds.complete_response(response, further.request, upstream_request, further.left)
    for _ in range(further.left):
        if not is_paused(response):
            break
        rounds.has_effects = True
        body = continuation_request(upstream_request.codec, upstream_request.body, response.candidates[0].messages)
        response = merge_responses(response, await further.request(body))
    return response


# ---- complete responses


async def _buffered_response(exchange: Exchange, upstream_response: UpstreamResponse) -> BufferedResponse:
    """Read a complete upstream response, continue paused rounds, and encode it for the client."""
    upstream_request, executor = exchange.upstream_request, exchange.services.body_executor
    body = await _read_body(exchange, upstream_response)
    heavy = len(body) > SMALL_BODY and is_heavy_body(body)
    context = upstream_request.context
    if context.text_recovery is not None and upstream_request.rounds is None and not body_may_change(body):
        context = upstream_request.context = replace(context, text_recovery=None)
    changes = response_changes(exchange)
    is_unchanged = context.text_recovery is None and context.mapping.is_empty and changes is None
    if exchange.has_same_protocol and upstream_request.rounds is None and is_unchanged:
        summary = (
            await executor.run_in_thread(_check_summary, exchange, body) if heavy else _check_summary(exchange, body)
        )
        if summary is not None:
            if upstream_request.checker is not None:
                upstream_request.checker.report_outcomes()
            return BufferedResponse(body, upstream_request.losses, summary)
    if heavy:
        decoded = await executor.run_in_thread(_decode_response, upstream_request, body)
    else:
        decoded = _decode_response(upstream_request, body)
    if upstream_request.rounds is not None:
        decoded = await _complete_rounds(exchange, recover_text(decoded, upstream_request.context))
    if changes is not None:
        decoded, body = changes.apply(decoded), b""
    return await _client_response(exchange, decoded, body)


def _check_summary(exchange: Exchange, body: bytes) -> Response | None:
    """Check the calls of a response that can pass through, and return its summary; None if it has to be decoded."""
    if may_have_signatures(body):
        return None  # they are recorded
    upstream_request = exchange.upstream_request
    summary = upstream_request.codec.peek(body)
    if summary is not None and exchange.request.tools and has_calls(summary):
        checker = exchange.call_checker()
        if checker.check_response(summary):
            return None
        upstream_request.checker = checker
        if exchange.client_request.codec.name in DROPPING_CLIENTS and (observer := exchange.signature_observer()):
            observer.observe_response(summary)
    return summary


async def _read_body(exchange: Exchange, upstream_response: UpstreamResponse) -> bytes:
    """Read a complete upstream body, within `limits.answer`."""
    upstream_request = exchange.upstream_request
    try:
        body = await upstream_response.read(exchange.services.limits.answer)
        return body_bytes(body, upstream_request.codec.name)
    except TransportError as error:
        raise transport_rejection(upstream_request.backend.provider, error) from None
    except DecodeError as error:
        raise _invalid_response(upstream_request, error) from None


def _decode_response(upstream_request: UpstreamRequest, body: bytes) -> Response:
    """Decode an upstream body; an invalid one rejects the request."""
    try:
        return upstream_request.codec.decode_response(body, upstream_request.context)
    except DecodeError as error:
        raise _invalid_response(upstream_request, error) from None


def _invalid_response(upstream_request: UpstreamRequest, error: DecodeError) -> RequestRejected:
    """Return the rejection of a request whose response can't be decoded."""
    return RequestRejected(invalid_response_error(upstream_request.backend.provider, error), attempt="unknown")


async def _client_response(exchange: Exchange, response: Response, body: bytes) -> BufferedResponse:
    """Encode a complete response for the client and store it if requested; raise if it failed."""
    response = _check_response(exchange, response)
    client_response, pending_response = response, exchange.pending_response
    if pending_response is not None and not exchange.has_same_protocol:
        client_response = replace(response, id=pending_response.id)
    if len(body) <= SMALL_BODY:
        adapted, data, losses = _encode_response(exchange, client_response, is_received=bool(body))
    else:
        executor = exchange.services.body_executor
        adapted, data, losses = await executor.run(
            _encode_response, exchange, client_response, heavy=is_heavy_body(body)
        )
    if exchange.upstream_request.checker is not None:
        exchange.upstream_request.checker.report_outcomes()
    if exchange.managed is not None:
        response = replace(response, usage=exchange.managed.total_usage(response.usage))
    if (observer := exchange.signature_observer()) is not None:
        observer.observe_response(adapted)
    if data is None:
        if pending_response is not None:
            pending_response.complete(body)
        return BufferedResponse(body, exchange.upstream_request.losses + losses, response)
    if exchange.stores_response:
        exchange.store_response(adapted)
    return BufferedResponse(data, exchange.upstream_request.losses + losses, response)


def _check_response(exchange: Exchange, response: Response) -> Response:
    """Return the response with any error redacted; raise if it has to be sent as an error response."""
    client, upstream, redactor = (
        exchange.client_request.codec,
        exchange.upstream_request.codec,
        exchange.services.redactor,
    )
    if response.error is not None:
        response = replace(
            response, error=redact_error(response.error, redactor), extras=redact_extras(response.extras, redactor)
        )
    if client is not upstream and (defect := find_defect(response, upstream)) is not None:
        raise RequestRejected(with_default_status(defect), attempt="unknown")
    allows_error = client is upstream or client.errors_in_body
    error = response.error if allows_error else response_error(response)
    if error is not None and not (allows_error and response.candidates):
        raise RequestRejected(error, attempt=classify_error(error, started=bool(response.candidates)))
    return response


def _encode_response(
    exchange: Exchange, decoded: Response, *, is_received: bool = True
) -> tuple[Response, bytes | None, list[Loss]]:
    """Encode a response for the client; return it as adapted, its body, and the losses.

    The body is None if the upstream's body can be passed through, which requires `is_received`.
    """
    client, upstream_request = exchange.client_request.codec, exchange.upstream_request
    upstream, context = upstream_request.codec, upstream_request.context
    response = adapt_response(decoded, upstream, client, context)
    faults = None
    if exchange.request.tools and has_calls(response):
        checker = upstream_request.checker = exchange.call_checker()
        faults = checker.check_response(response)
    can_pass_through = client is upstream and upstream_request.rounds is None and is_received
    if can_pass_through and response is decoded and decoded.error is None:
        return response, None, faults.resolve(response, upstream.wire_names) if faults else []
    encoding = client.encode_response(response, context)
    if faults:
        encoding.report.include(faults)
    if context.text_recovery is not None:
        report_recovered(response, encoding.report)
    losses = encoding.report.resolve(response, upstream.wire_names) if encoding.report else []
    raise_for_losses(losses, client.name, strict=False)
    return response, encoding.to_bytes(), losses


# ---- streams


async def _open_stream(
    exchange: Exchange, upstream_response: UpstreamResponse, translator: ResponseTranslator[Frames]
) -> "StreamingResponse[Frames]":
    """Read an upstream stream up to its first content or error, and return it; until then it may fail over."""
    upstream_request = exchange.upstream_request
    content_type = upstream_response.headers.get("content-type", "")
    if content_type.startswith("application/json") and upstream_request.codec.name != "gemini":
        return await _stream_from_body(exchange, upstream_response, translator)
    budget = StreamBudget(upstream_request.backend.provider, exchange.services.limits.stream)
    reading = _read_first_chunk(upstream_request, upstream_response, translator, budget)
    backend = upstream_request.backend
    if (timeout := backend.timeout or backend.provider.first_byte_timeout) is not None:
        reading = _read_within(timeout, reading, upstream_request)
    first_chunk, is_complete = await reading
    if translator.error is not None and not translator.has_content:
        upstream_response.close()
        attempt = "unknown" if translator.started else classify_error(translator.error)
        raise RequestRejected(with_default_status(translator.error), attempt=attempt)
    return StreamingResponse(
        exchange, None if is_complete else upstream_response, translator, first_chunk, budget=budget
    )


async def _stream_from_body(
    exchange: Exchange, upstream_response: UpstreamResponse, translator: ResponseTranslator[Frames]
) -> "StreamingResponse[Frames]":
    """Stream the JSON body that a provider sent although a stream was requested."""
    upstream_request = exchange.upstream_request
    body = await _read_body(exchange, upstream_response)
    executor, heavy = exchange.services.body_executor, is_heavy_body(body)
    response = await executor.run(_decode_response, upstream_request, body, heavy=heavy)
    if response.error is not None and not response.candidates:
        raise RequestRejected(response.error, attempt=classify_error(response.error))
    if isinstance(upstream_request.rounds, GatewayToolLoop | CallRetryRounds):
        response = await _complete_rounds(exchange, response)
    events = unfold(response)
    return StreamingResponse(exchange, None, translator, translator.translate_events(events))


def _response_translator(exchange: Exchange) -> StreamTranslator:
    """Build the translator of a streamed response, with secrets redacted from its errors, and its calls checked."""
    upstream_request, redactor = exchange.upstream_request, exchange.services.redactor
    checker = upstream_request.checker = exchange.call_checker() if exchange.request.tools else None
    observers = [observer.observe for observer in (checker, exchange.signature_observer()) if observer is not None]
    return StreamTranslator(
        upstream_request.codec,
        exchange.client_request.codec,
        upstream_request.context,
        transform=_event_filter(exchange),
        collects_response=exchange.stores_response,
        redact=lambda failed: redact_failed_event(failed, redactor),
        observe=observers,
    )


def _event_filter(exchange: Exchange) -> Callable[[list[Event]], list[Event]] | None:
    """Return a function that merges the events of several rounds, adds a compaction and sets the gateway's response id.

    Return None if nothing has to change. A round is one upstream request of several that make up a response.
    """
    rounds, managed, pending_response = (
        exchange.upstream_request.rounds,
        response_changes(exchange),
        exchange.pending_response,
    )
    response_id = None if pending_response is None or exchange.has_same_protocol else pending_response.id
    if rounds is None and managed is None and response_id is None:
        return None

    def transform(events: list[Event]) -> list[Event]:
        """Return the events of the client's response."""
        if response_id is not None and events and type(start := events[0]) is ResponseStart:
            events[0] = replace(start, id=response_id)
        events = events if rounds is None else rounds.process(events)
        return events if managed is None else managed.process(events)

    return transform


async def _read_within(
    timeout: float, reading: Awaitable[tuple[Frames, bool]], upstream_request: UpstreamRequest
) -> tuple[Frames, bool]:
    """Read the first content of a stream within `timeout` seconds, whatever pings arrive before it."""
    try:
        async with asyncio.timeout(timeout):
            return await reading
    except TimeoutError:
        reason = f"sent no content for {timeout:g} seconds"
        error = TransportError(reason, sent=True, timed_out=True)
        raise transport_rejection(upstream_request.backend.provider, error) from None


async def _read_first_chunk(
    upstream_request: UpstreamRequest,
    upstream_response: UpstreamResponse,
    translator: ResponseTranslator[Frames],
    budget: StreamBudget,
) -> tuple[Frames, bool]:
    """Translate a stream up to its first content or error; return the frames, and whether the stream is complete."""
    chunks: list[Frames] = []
    try:
        while data := await upstream_response.next():
            budget.consume(data)
            chunks.append(translator.feed(data))
            # In a response of several rounds the gateway's own calls are no content, and a round's end is not the end.
            if translator.has_outcome or (translator.started and upstream_request.rounds is not None):
                return reduce(add, chunks), False
        chunks.append(translator.close())
    except TransportError as error:
        raise transport_rejection(upstream_request.backend.provider, error) from None
    except BaseException:
        upstream_response.close()
        raise
    upstream_response.close()
    return reduce(add, chunks), True


class StreamingResponse(Generic[Frames]):
    """A streamed response: yields whole frames, or events, as they are ready, and always ends the stream properly."""

    def __init__(
        self,
        exchange: Exchange,
        upstream_response: UpstreamResponse | None,
        translator: ResponseTranslator[Frames],
        first_chunk: Frames,
        *,
        budget: StreamBudget | None = None,
    ) -> None:
        self.job: BackgroundJob | None = None
        self.on_end: Callable[[ApiError | None], None] | None = None
        """Learns that the stream has ended, and the error that ended it early."""

        self._upstream_request = exchange.upstream_request
        self._exchange = exchange
        self._translator: ResponseTranslator[Frames] = translator
        self._upstream_response = upstream_response
        self._first_chunk: Frames = first_chunk
        self._rounds = None if exchange.upstream_request.rounds is None else UpstreamRounds(exchange)
        self._storage_losses: list[Loss] = []
        self._budget = budget or StreamBudget(exchange.upstream_request.backend.provider, 0)

    @property
    def request_losses(self) -> list[Loss]:
        """Return the losses of the request, which are known before the stream starts."""
        return self._upstream_request.losses

    @property
    def losses(self) -> list[Loss]:
        """Return all losses known so far."""
        checker, response_losses = self._upstream_request.checker, self._translator.losses
        broken_calls = [] if checker is None else checker.losses
        if broken_calls and response_losses:  # the encoder may have reported the same arguments
            paths = {loss.path for loss in response_losses}
            broken_calls = [loss for loss in broken_calls if loss.path not in paths]
        return self._upstream_request.losses + response_losses + self._storage_losses + broken_calls

    @property
    def usage(self) -> Usage | None:
        """Return the tokens used so far."""
        managed, usage = self._exchange.managed, self._translator.usage
        return usage if managed is None else managed.total_usage(usage)

    @property
    def summary(self) -> Response:
        """Return the response so far without its content: ids, stop reasons and usage."""
        return self._translator.summary

    @property
    def is_complete(self) -> bool:
        """Return whether the upstream's response has been read to its end."""
        return self._upstream_response is None

    @property
    def error(self) -> ApiError | None:
        """Return the error that ended the stream early, if any."""
        return self._translator.error

    async def events(self: "StreamingResponse[list[Event]]") -> AsyncGenerator[Event, None]:
        """Yield the canonical events of a response that was requested as such."""
        async with aclosing(self._translated_chunks()) as chunks:
            async for events in chunks:
                for event in events:
                    yield event

    def chunks(self) -> AsyncGenerator[Frames, None]:
        """Yield the client's frames; if the response is stored, the last frame waits for that."""
        exchange = self._exchange
        is_stored = exchange.stores_response or exchange.waits_for_state
        return self._stored_chunks() if is_stored else self._translated_chunks()

    async def _stored_chunks(self) -> AsyncGenerator[Frames, None]:
        """Yield the frames; the last one waits until the response is stored."""
        pending_response, is_stored = self._exchange.pending_response, False
        async with aclosing(self._translated_chunks()) as chunks:
            async for data in chunks:
                if not is_stored and (response := self._translator.response) is not None:
                    self._exchange.store_response(response)
                    is_stored = True
                if pending_response is not None and (loss := await pending_response.flush()) is not None:
                    self._storage_losses.append(loss)
                await self._exchange.flush_state()
                yield data

    async def _translated_chunks(self) -> AsyncGenerator[Frames, None]:
        """Yield the frames of all rounds, and an error event if one fails."""
        if self._upstream_response is None:
            if self._first_chunk:
                yield self._first_chunk
            return
        translator, rounds = self._translator, self._upstream_request.rounds
        try:
            if self._first_chunk:
                yield self._first_chunk
            while True:
                while translator.error is None and (data := await self._upstream_response.next()):
                    self._budget.consume(data)
                    if frames := translator.feed(data):
                        yield frames
                yield translator.flush_decoder()
                self._upstream_response.close()
                next_response = None
                if self._rounds is not None and translator.error is None:
                    next_response = await self._rounds.open_next()
                if rounds is not None and rounds.ready_events:
                    injected = translator.inject(*rounds.ready_events)
                    rounds.ready_events = []
                    yield injected
                if next_response is None:
                    break
                self._upstream_response = next_response
                translator.continue_with_new_stream()
            if rounds is not None and rounds.paused:
                yield translator.inject(*rounds.stop())
            if self.on_end is not None:
                self.on_end(translator.error)
            yield translator.end()
        except TransportError as error:
            failure = transport_api_error(self._upstream_request.backend.provider, error)
            if self.on_end is not None:
                self.on_end(failure)
            yield translator.fail(failure)
        except RequestRejected as rejection:
            yield translator.fail(rejection.error)
        finally:
            self._upstream_response.close()

    def close(self) -> None:
        """Close the upstream response; no more frames are read."""
        if self._upstream_response is not None:
            self._upstream_response.close()

    def ping_frame(self) -> Frames:
        """Encode a ping to send while the upstream is silent."""
        return self._translator.inject(Notice(kind="ping"))
