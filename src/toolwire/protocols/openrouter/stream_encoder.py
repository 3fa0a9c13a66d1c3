"""Streams of OpenRouter: Chat's chunks, with `reasoning_details` and error chunks.

Chat's encoder writes the chunks. Fields that it does not know are passed as notices, whose extras it adds to a chunk.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import ToolCall
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import (
    CandidateEnd,
    Event,
    Notice,
    PartDelta,
    PartDeltas,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    UsageReport,
)
from toolwire.canonical.response import Stop
from toolwire.codec.encoding.tools import WRAPPED_INPUT_END, wrap_freeform_input
from toolwire.codec.interface import ResponseContext, StreamDecoder, StreamEncoder
from toolwire.protocols.openai_chat.errors import ERROR_FORM
from toolwire.protocols.openai_chat.parts.details import DETAILS_FIELD, IMAGES
from toolwire.protocols.openai_chat.stream_decoder import Decoder
from toolwire.protocols.openai_chat.stream_details import DetailsEncoder
from toolwire.protocols.openai_chat.stream_encoder import STREAM_END
from toolwire.protocols.openai_chat.stream_encoder import stream_encoder as chat_encoder
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.openrouter.errors import as_openrouter_error, report_error
from toolwire.protocols.openrouter.response import freeform_tool_names, with_hosted_counts
from toolwire.protocols.openrouter.tools import OPENROUTER

_NOTICE_PARTS = (f"/{DETAILS_FIELD}/", f"/{IMAGES}/")
_encode_json = msgspec.json.Encoder().encode


class Encoder:
    """The stream encoder of OpenRouter, on top of Chat's."""

    def __init__(self, context: ResponseContext) -> None:
        # OpenRouter always sends usage.
        request = None if context.request is None else replace(context.request, include_usage=True)
        self._chat = chat_encoder(replace(context, request=request))
        self.report = self._chat.report
        self._created = context.created
        self._same_protocol = False
        self._ended = False
        self._start: ResponseStart | None = None
        self._details = DetailsEncoder(self.report)
        self._freeform_names = freeform_tool_names(context)
        self._wrapped_calls: set[tuple[int, int]] = set()
        self._has_notices = False  # notices of a Chat server hold its `reasoning_details` and images
        self._unsent_parts: set[tuple[int, int]] = set()  # which repeat those

    @property
    def failure(self) -> ApiError | None:
        """The error that ended the stream, if any."""
        return self._chat.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        """Encode events; a finished stream ends with `[DONE]`."""
        out = self._chat.encode(self._adapt_events(events))
        return out + STREAM_END if self._ended and out and not out.endswith(STREAM_END) else out

    def close(self) -> bytes:
        """End the stream; a failure is sent if the response is incomplete."""
        if self._ended:
            return self._chat.close()
        error = ApiError(kind="server", message="the upstream ended before the response was complete")
        return self.encode([ResponseFailed(error=error)])

    def _adapt_events(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events as Chat's encoder must receive them to write OpenRouter's stream."""
        for event in events:
            match event:
                case PartDeltas() if event.kind is None and not self._wrapped_calls:
                    yield event
                case PartDeltas():
                    yield from self._adapt_events(event.single_deltas())
                case ResponseStart():
                    self._start, self._same_protocol = event, event.origin == OPENROUTER.protocol
                    self._has_notices = event.origin == FAMILY
                    yield replace(event, origin=FAMILY if self._same_protocol else "")
                case ResponseEnd():
                    self._ended = self.failure is None
                    yield event
                case ResponseFailed():
                    self._ended = True
                    yield self._encode_failure(event)
                case _ if self._same_protocol:
                    yield event
                case PartStart() | PartDelta() | PartEnd() if self._has_notices and self._repeats_notice(event):
                    continue
                case _:
                    for adapted in self._adapt_foreign(event):
                        yield from self._details.adapt(adapted)

    def _repeats_notice(self, event: PartStart | PartDelta | PartEnd) -> bool:
        """Tell whether an event belongs to a part that repeats a notice."""
        key = (event.candidate, event.index)
        if isinstance(event, PartStart) and (event.part.at or "").startswith(_NOTICE_PARTS):
            self._unsent_parts.add(key)
        return key in self._unsent_parts

    def _adapt_foreign(self, event: Event) -> Iterator[Event]:
        """Yield the events that stand for another protocol's event: calls as functions, stop reasons, counts."""
        match event:
            case PartStart() | PartDelta() | PartEnd():
                yield from self._wrap_freeform_call(event)
            case UsageReport():
                yield replace(event, usage=with_hosted_counts(event.usage))
            case CandidateEnd(stop=Stop(raw=str(raw))) if "native_finish_reason" not in (event.extras or {}).get(
                FAMILY, {}
            ):
                extras = {"native_finish_reason": Raw(_encode_json(raw))}
                yield Notice(kind=f"choice:{event.candidate}", extras={FAMILY: extras})
                yield event
            case _:
                yield event

    def _wrap_freeform_call(self, event: PartStart | PartDelta | PartEnd) -> Iterator[Event]:
        """Yield the event of a free-text call as one of a function, unless the client declared a free-text tool."""
        key = (event.candidate, event.index)
        if isinstance(event, PartStart):
            part = event.part
            if isinstance(part, ToolCall) and part.shape == "freeform" and part.name not in self._freeform_names:
                self._wrapped_calls.add(key)
                arguments = wrap_freeform_input(part.arguments)[: -len(WRAPPED_INPUT_END)]
                event = replace(event, part=replace(part, shape="json", arguments=arguments))
        elif key in self._wrapped_calls and isinstance(event, PartDelta):
            event = replace(event, text=_encode_json(event.text)[1:-1].decode())
        elif key in self._wrapped_calls:
            self._wrapped_calls.remove(key)
            yield PartDelta(index=event.index, candidate=event.candidate, text=WRAPPED_INPUT_END)
            event = replace(event, final=None)
        yield event

    def _encode_failure(self, event: ResponseFailed) -> ResponseFailed:
        """Return the failure with the fields of a chunk in its error's extras: OpenRouter sends errors in chunks."""
        error = as_openrouter_error(event.error)
        if ERROR_FORM not in event.error.wire_form:
            report_error(event.error, ("error",), self.report)
        start = self._start
        if start is None:
            if ERROR_FORM in event.error.wire_form:
                return replace(event, error=error)
            start = ResponseStart(origin="")
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": "error"}
        chunk: dict[str, Any] = {
            "id": start.id or "",
            "object": "chat.completion.chunk",
            "created": int(start.created or self._created),
            "model": start.model or "",
            "choices": [choice],
        }
        chunk_extras = {
            **(error.extras or {}).get(FAMILY, {}),
            **{name: Raw(_encode_json(value)) for name, value in chunk.items()},
        }
        return replace(event, error=replace(error, extras={**(error.extras or {}), FAMILY: chunk_extras}))


def stream_decoder(context: ResponseContext) -> StreamDecoder:
    """Return a decoder for one response stream."""
    return Decoder(OPENROUTER.protocol)


def stream_encoder(context: ResponseContext) -> StreamEncoder:
    """Return an encoder for one response stream."""
    return Encoder(context)
