"""OpenTelemetry spans of a run: `invoke_agent` with child spans `chat` and `execute_tool`.

Spans hold no content; arguments and results are in the journal only.
"""

import time
from typing import TYPE_CHECKING

from toolwire.runtime.run.events import (
    CallEnded,
    CallRecord,
    CallStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TurnEnded,
    TurnStarted,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.util.types import AttributeValue

_NANOSECONDS_PER_SECOND = 1_000_000_000


class RunTracer:
    """Creates spans from the events of one run."""

    def __init__(self, tracer: "Tracer", agent: str) -> None:
        self._tracer = tracer
        self._agent = agent
        self._model = ""
        self._run_span: Span | None = None
        self._turn_span: Span | None = None
        self._call_spans: dict[str, Span] = {}

    def on_event(self, event: RunEvent) -> None:
        """Start or end the span that the event belongs to."""
        match event:
            case RunStarted():
                self._model = event.model
                self._run_span = self._start_span(
                    "invoke_agent",
                    self._agent,
                    {"gen_ai.conversation.id": event.run, "gen_ai.agent.name": self._agent},
                )
            case TurnStarted() if not event.recorded:
                self._turn_span = self._start_span("chat", self._model, {})
            case TurnEnded() if self._turn_span is not None:
                self._end_turn(self._turn_span, event)
                self._turn_span = None
            case CallStarted():
                self._call_spans[event.call_id] = self._start_span(
                    "execute_tool",
                    event.tool,
                    {"gen_ai.tool.name": event.tool, "gen_ai.tool.call.id": event.call_id},
                )
            case CallEnded():
                if (span := self._call_spans.pop(event.call_id, None)) is not None:
                    self._end_call(span, event.record)
            case RunEnded():
                self._end_run(event)
            case _:
                pass

    def close(self) -> None:
        """End the open spans as cancelled."""
        for span in (*self._call_spans.values(), self._turn_span, self._run_span):
            if span is not None:
                span.set_attribute("error.type", "cancelled")
                span.end()
        self._call_spans, self._turn_span, self._run_span = {}, None, None

    def _start_span(self, operation: str, name: str, extra_attributes: "dict[str, AttributeValue]") -> "Span":
        """Start a span under the span of the run."""
        from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415 - optional dependency

        attributes: dict[str, AttributeValue] = {"gen_ai.operation.name": operation} | extra_attributes
        if operation != "execute_tool" and self._model:
            attributes["gen_ai.request.model"] = self._model
        parent = None if self._run_span is None else set_span_in_context(self._run_span)
        kind = SpanKind.CLIENT if operation == "chat" else SpanKind.INTERNAL
        return self._tracer.start_span(
            f"{operation} {name}".strip(), parent, kind, attributes, start_time=_now_nanoseconds()
        )

    def _end_turn(self, span: "Span", event: TurnEnded) -> None:
        """End the span of a turn, with its stop reason and token counts."""
        usage = event.usage
        span.set_attribute("gen_ai.response.finish_reasons", [event.stop])
        if usage is not None and usage.input_tokens is not None:
            span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
        if usage is not None and usage.output_tokens is not None:
            span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)
        span.end()

    def _end_call(self, span: "Span", record: CallRecord) -> None:
        """End the span of a call, with its source, retries and error."""
        span.set_attribute("gen_ai.tool.type", "extension" if record.locus == "mcp" else "function")
        span.set_attribute("toolwire.tool.source", record.source)
        span.set_attribute("toolwire.tool.retries", record.retries)
        if record.error:
            _mark_failed(span, record.error)
        span.end(_now_nanoseconds())

    def _end_run(self, event: RunEnded) -> None:
        """End the span of the run, and of a turn that did not end."""
        span, self._run_span = self._run_span, None
        if self._turn_span is not None:
            _mark_failed(self._turn_span, event.stopped)
            self._turn_span.end()
            self._turn_span = None
        if span is None:
            return
        span.set_attribute("toolwire.run.stopped", event.stopped)
        span.set_attribute("toolwire.run.turns", event.turns)
        span.set_attribute("toolwire.run.calls", event.calls)
        if event.stopped == "failed":
            _mark_failed(span, event.stopped)
        span.end(_now_nanoseconds())


def _mark_failed(span: "Span", kind: str) -> None:
    """Set `error.type` and the error status on a span."""
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - optional dependency

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def _now_nanoseconds() -> int:
    """Return the current time in nanoseconds since the epoch."""
    return int(time.time() * _NANOSECONDS_PER_SECOND)
