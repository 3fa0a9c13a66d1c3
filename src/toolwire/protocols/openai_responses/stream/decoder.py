"""The Responses API's event stream, to canonical events. `stream_encoder` is the way back.

    created (queued)? in_progress  item*  (completed | incomplete | failed | error)
    item := output_item.added  (content_part.added  delta*  done  content_part.done)*  output_item.done

1. An item is a message, and its `output_index` the number of that message. Ids may change between events, or be
   missing: they are asked only where there is no index.
2. Messages, reasoning and calls with arguments open as they are announced. All other items come whole when they are
   done; what is told of them before is passed on as a `Notice`.
3. Every text is told once: what only `done`, or only the terminal event, brings is told then.
"""

import re
from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.events import (
    UNKNOWN,
    Event,
    PartDelta,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    Stopped,
    UsageReport,
)
from toolwire.codec.fields import BAD_JSON, Reader
from toolwire.codec.interface import Context, StreamDecoder
from toolwire.codec.kept import known
from toolwire.codec.sse import SseSplitter
from toolwire.protocols.openai_responses.parts.messages import ItemReader
from toolwire.protocols.openai_responses.response.body import decode_held, decode_stop, decode_usage, envelope
from toolwire.protocols.openai_responses.response.errors import decode_error, decode_failure
from toolwire.protocols.openai_responses.wire import (
    FAMILY,
    ErrorShape,
    ResponseShape,
    UsageShape,
)

from .frames import (
    AnyFrame,
    ArgumentsDelta,
    DeltaUnion,
    InputDelta,
    RefusalDelta,
    SummaryDelta,
    TextDelta,
    ThoughtDelta,
    open_frame,
    passed_on,
)
from .growth import WHOLE, Growth

_WORDS: dict[type, str] = {
    TextDelta: "output_text",
    RefusalDelta: "refusal",
    ThoughtDelta: "reasoning_text",
    SummaryDelta: "reasoning_summary_text",
    ArgumentsDelta: "arguments",
    InputDelta: "arguments",
}

# These open and close a response themselves; all others need it open.
_WHOLE = frozenset({ArgumentsDelta, InputDelta})
_OTHER = -2
# How an item grows that is told whole when it is done.
_OF_ITEMS = re.compile(
    r"response\.(web_search_call|file_search_call|code_interpreter_call|image_generation_call|mcp_call|mcp_list_tools"
    r"|shell_call|local_shell_call|apply_patch_call|computer_call|compaction|tool_search|program|reasoning|output)"
)
_STATES = ("created", "in_progress", "queued", "completed", "incomplete", "failed")
_ENVELOPE = frozenset(["error", *(f"response.{state}" for state in _STATES)])

_fast = msgspec.json.Decoder(DeltaUnion).decode
_read_response = Reader[ResponseShape](ResponseShape, FAMILY).read


class Decoder:
    def __init__(self, context: Context) -> None:
        self._splitter = SseSplitter()
        tools = None if context.request is None else context.request.tools
        self._growth = growth = Growth(ItemReader(tools, answer=True))
        self._started = False
        self._ended = False
        self._methods: dict[str, Callable[[AnyFrame, bytes], list[Event]]] = {
            "response.created": self._created,
            "response.in_progress": self._lifecycle,
            "response.queued": self._lifecycle,
            "response.completed": self._terminal,
            "response.incomplete": self._terminal,
            "response.failed": self._terminal,
            "response.output_item.added": growth.added,
            "response.output_item.done": growth.item_done,
            "response.content_part.added": growth.part_added,
            "response.content_part.done": growth.part_done,
            "response.output_text.delta": growth.odd_delta,
            "response.refusal.delta": growth.odd_delta,
            "response.reasoning_text.delta": growth.odd_delta,
            "response.reasoning_summary_text.delta": growth.odd_delta,
            "response.function_call_arguments.delta": growth.odd_delta,
            "response.custom_tool_call_input.delta": growth.odd_delta,
            "response.output_text.done": growth.text_done,
            "response.refusal.done": growth.text_done,
            "response.reasoning_text.done": growth.text_done,
            "response.reasoning_summary_text.done": growth.text_done,
            "response.output_text.annotation.added": growth.annotation,
            "response.reasoning_summary_part.added": _nothing,
            "response.reasoning_summary_part.done": _nothing,
            "response.function_call_arguments.done": growth.arguments_done,
            "response.custom_tool_call_input.done": growth.arguments_done,
            "error": self._error,
        }

    def feed(self, data: bytes) -> list[Event]:
        try:
            return self._read(self._splitter.feed(data))
        except ValueError as error:
            return self._fail(str(error))

    def close(self) -> list[Event]:
        events = self._read(self._splitter.close())
        return events if self._ended else events + self._fail("the stream ended before its answer did")

    def _fail(self, why: str) -> list[Event]:
        """The stream itself is at fault: nothing after this is read."""
        self._ended = True
        return [*self._begin(), ResponseFailed(error=ApiError(kind="server", message=why), broken=True)]

    def _read(self, frames: list[bytes]) -> list[Event]:
        events: list[Event] = []
        if self._ended:
            return events
        heard = self._growth.heard
        grown: int | None = None  # the part that the last delta made grow, and where it was told
        output = content = None
        for data in frames:
            try:
                shape = _fast(data)
            except BAD_JSON:
                events += self._read_open(data)
                if self._ended:
                    break
                grown = None
                continue
            kind = type(shape)
            place = shape.content_index if kind is TextDelta else WHOLE if kind in _WHOLE else _OTHER
            if grown is None or shape.output_index != output or place != content:
                output, content = shape.output_index, place
                grown = heard.get((output, content))
            if grown is not None:
                events.append(PartDelta(index=grown, text=shape.delta, plain=True))
            else:
                events += self._begin() + self._growth.delta(shape, _WORDS[kind], shape.delta)
        return events

    def _read_open(self, data: bytes) -> list[Event]:
        if data.strip() in (b"[DONE]", b""):
            return []
        try:
            if not data.isascii():
                data.decode()  # what stays raw is not looked into otherwise
            frame = open_frame(data)
            if not frame.type and frame.error is not UNSET:
                return self._error(frame, data)
            if frame.type in _ENVELOPE:
                return self._methods[frame.type](frame, data)
            method = self._methods.get(frame.type)
            if method is None:
                return [*self._begin(), passed_on(data, "frame" if _OF_ITEMS.match(frame.type) else UNKNOWN)]
            return self._begin() + method(frame, data)
        except (DecodeError, *BAD_JSON) as error:
            if b'"response.created"' in data[:200] or b'"response.in_progress"' in data[:200]:
                return []  # some proxies cut these long frames, and they say nothing that comes later would not
            return self._fail(str(error))

    # ---- the envelope

    def _begin(self) -> list[Event]:
        """A stream that starts in the middle still has a response."""
        if self._started:
            return []
        self._started = True
        return [ResponseStart(origin=FAMILY)]

    def _created(self, frame: AnyFrame, data: bytes) -> list[Event]:
        if self._started or frame.response is UNSET:
            return []
        self._started = True
        shape = _read_response(frame.response, "/response")
        kept = envelope(shape, begun=True)
        own = (kept["extras"] or {}).get(FAMILY)
        start = ResponseStart(
            origin=FAMILY,
            id=known(shape.id),
            model=known(shape.model),
            created=known(shape.created_at),
            status=known(shape.status),
            extras={FAMILY: own} if own else None,
            form=tuple([token for token in kept["form"] if ":told:" in token]),
        )
        return [start, passed_on(data, "created")]

    def _lifecycle(self, frame: AnyFrame, data: bytes) -> list[Event]:
        return self._created(frame, data) if not self._started else [passed_on(data)]

    def _terminal(self, frame: AnyFrame, data: bytes) -> list[Event]:
        raw = Raw(b"{}") if frame.response is UNSET else frame.response
        shape = _read_response(raw, "/response")
        events = self._begin() if self._started else self._created(frame, data)
        for number, item in enumerate(shape.output or []):
            if not self._growth.is_done(number):
                events += self._growth.finish(number, item, f"/response/output/{number}")
        events += self._growth.abandon()
        self._ended = True
        if self._growth.finals and not shape.output:
            shape.output = []  # null says only that the items were told already
        stop = decode_stop(shape, tuple(message for _, message in sorted(self._growth.finals.items())))
        if stop is not None:
            events.append(Stopped(stop=stop))
        if isinstance(shape.usage, UsageShape):
            events.append(UsageReport(usage=decode_usage(shape.usage, shape.tool_usage)))
        kept = envelope(shape)
        if isinstance(shape.error, ErrorShape):
            events.append(ResponseFailed(error=decode_failure(shape.error), status=known(shape.status), **kept))
        else:
            events.append(ResponseEnd(status=known(shape.status), continuation=decode_held(shape), **kept))
        return events

    def _error(self, frame: AnyFrame, data: bytes) -> list[Event]:
        events = self._begin()
        self._ended = True
        try:
            error = decode_error(data, None)
        except DecodeError:
            error = ApiError(kind="server", message=data.decode(errors="replace"))
        return [*events, ResponseFailed(error=error)]


def _nothing(frame: AnyFrame, data: bytes) -> list[Event]:
    """For events that say what others say too."""
    return []


def stream_decoder(context: Context) -> StreamDecoder:
    return Decoder(context)
