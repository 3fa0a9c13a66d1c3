"""A run as OpenTelemetry's spans: `invoke_agent`, and under it `chat` and `execute_tool`, from the events it tells.

What was said is in none of them: arguments and results are the journal's.
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
    """Takes the events of one run in order."""

    def __init__(self, tracer: "Tracer", agent: str) -> None:
        self._tracer = tracer
        self._agent = agent
        self._model = ""
        self._run_span: Span | None = None
        self._turn_span: Span | None = None
        self._call_spans: dict[str, Span] = {}

    def on_event(self, event: RunEvent) -> None:
        match event:
            case RunStarted():
                self._model = event.model
                named: dict[str, AttributeValue] = {
                    "gen_ai.conversation.id": event.run,
                    "gen_ai.agent.name": self._agent,
                }
                self._run_span = self._start_span("invoke_agent", self._agent, named)
            case TurnStarted() if not event.recorded:
                self._turn_span = self._start_span("chat", self._model, {})
            case TurnEnded() if self._turn_span is not None:
                used = event.usage
                self._turn_span.set_attribute("gen_ai.response.finish_reasons", [event.stop])
                if used is not None and used.input_tokens is not None:
                    self._turn_span.set_attribute("gen_ai.usage.input_tokens", used.input_tokens)
                if used is not None and used.output_tokens is not None:
                    self._turn_span.set_attribute("gen_ai.usage.output_tokens", used.output_tokens)
                self._turn_span.end()
                self._turn_span = None
            case CallStarted():
                called: dict[str, AttributeValue] = {"gen_ai.tool.name": event.tool}
                span = self._start_span("execute_tool", event.tool, called | {"gen_ai.tool.call.id": event.call_id})
                self._call_spans[event.call_id] = span
            case CallEnded():
                if (begun := self._call_spans.pop(event.call_id, None)) is not None:
                    self._end_call(begun, event.record)
            case RunEnded():
                self._end_run(event)
            case _:
                pass

    def close(self) -> None:
        """Nobody will tell how the rest ended."""
        for span in (*self._call_spans.values(), self._turn_span, self._run_span):
            if span is not None:
                span.set_attribute("error.type", "cancelled")
                span.end()
        self._call_spans, self._turn_span, self._run_span = {}, None, None

    def _start_span(self, operation: str, name: str, extra_attributes: "dict[str, AttributeValue]") -> "Span":
        from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415 - an extra

        attributes: dict[str, AttributeValue] = {"gen_ai.operation.name": operation} | extra_attributes
        if operation != "execute_tool" and self._model:
            attributes["gen_ai.request.model"] = self._model
        parent = None if self._run_span is None else set_span_in_context(self._run_span)
        kind = SpanKind.CLIENT if operation == "chat" else SpanKind.INTERNAL
        return self._tracer.start_span(
            f"{operation} {name}".strip(), parent, kind, attributes, start_time=_now_nanoseconds()
        )

    def _end_call(self, span: "Span", record: CallRecord) -> None:
        span.set_attribute("gen_ai.tool.type", "extension" if record.locus == "mcp" else "function")
        span.set_attribute("toolwire.tool.source", record.source)
        span.set_attribute("toolwire.tool.retries", record.retries)
        if record.error:
            _mark_failed(span, record.error)
        span.end(_now_nanoseconds())

    def _end_run(self, event: RunEnded) -> None:
        run, self._run_span = self._run_span, None
        if self._turn_span is not None:
            _mark_failed(self._turn_span, event.stopped)
            self._turn_span.end()
            self._turn_span = None
        if run is None:
            return
        run.set_attribute("toolwire.run.stopped", event.stopped)
        run.set_attribute("toolwire.run.turns", event.turns)
        run.set_attribute("toolwire.run.calls", event.calls)
        if event.stopped == "failed":
            _mark_failed(run, event.stopped)
        run.end(_now_nanoseconds())


def _mark_failed(span: "Span", kind: str) -> None:
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - an extra

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def _now_nanoseconds() -> int:
    return int(time.time() * _NANOSECONDS_PER_SECOND)
