"""A run as OpenTelemetry's spans: `invoke_agent`, and under it `chat` and `execute_tool`, from the events it tells.

What was said is in none of them: arguments and results are the journal's.
"""

import time
from typing import TYPE_CHECKING

from .events import CallEnded, CallRecord, CallStarted, RunEnded, RunEvent, RunStarted, TurnEnded, TurnStarted

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.util.types import AttributeValue

_NANO = 1_000_000_000


class RunSpans:
    """Takes the events of one run in order."""

    def __init__(self, tracer: "Tracer", agent: str) -> None:
        self._tracer = tracer
        self._agent = agent
        self._model = ""
        self._run: Span | None = None
        self._turn: Span | None = None
        self._calls: dict[str, Span] = {}

    def take(self, event: RunEvent) -> None:
        match event:
            case RunStarted():
                self._model = event.model
                named: dict[str, AttributeValue] = {
                    "gen_ai.conversation.id": event.run,
                    "gen_ai.agent.name": self._agent,
                }
                self._run = self._begin("invoke_agent", self._agent, named)
            case TurnStarted() if not event.recorded:
                self._turn = self._begin("chat", self._model, {})
            case TurnEnded() if self._turn is not None:
                used = event.usage
                self._turn.set_attribute("gen_ai.response.finish_reasons", [event.stop])
                if used is not None and used.input_tokens is not None:
                    self._turn.set_attribute("gen_ai.usage.input_tokens", used.input_tokens)
                if used is not None and used.output_tokens is not None:
                    self._turn.set_attribute("gen_ai.usage.output_tokens", used.output_tokens)
                self._turn.end()
                self._turn = None
            case CallStarted():
                called: dict[str, AttributeValue] = {"gen_ai.tool.name": event.tool}
                span = self._begin("execute_tool", event.tool, called | {"gen_ai.tool.call.id": event.call_id})
                self._calls[event.call_id] = span
            case CallEnded():
                if (begun := self._calls.pop(event.call_id, None)) is not None:
                    self._end_call(begun, event.record)
            case RunEnded():
                self._end_run(event)
            case _:
                pass

    def close(self) -> None:
        """Nobody will tell how the rest ended."""
        for span in (*self._calls.values(), self._turn, self._run):
            if span is not None:
                span.set_attribute("error.type", "cancelled")
                span.end()
        self._calls, self._turn, self._run = {}, None, None

    def _begin(self, operation: str, name: str, named: "dict[str, AttributeValue]") -> "Span":
        from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415 - an extra

        attributes: dict[str, AttributeValue] = {"gen_ai.operation.name": operation} | named
        if operation != "execute_tool" and self._model:
            attributes["gen_ai.request.model"] = self._model
        parent = None if self._run is None else set_span_in_context(self._run)
        kind = SpanKind.CLIENT if operation == "chat" else SpanKind.INTERNAL
        return self._tracer.start_span(f"{operation} {name}".strip(), parent, kind, attributes, start_time=_now())

    def _end_call(self, span: "Span", record: CallRecord) -> None:
        span.set_attribute("gen_ai.tool.type", "extension" if record.locus == "mcp" else "function")
        span.set_attribute("toolwire.tool.source", record.source)
        span.set_attribute("toolwire.tool.retries", record.retries)
        if record.error:
            _failed(span, record.error)
        span.end(_now())

    def _end_run(self, event: RunEnded) -> None:
        run, self._run = self._run, None
        if self._turn is not None:
            _failed(self._turn, event.stopped)
            self._turn.end()
            self._turn = None
        if run is None:
            return
        run.set_attribute("toolwire.run.stopped", event.stopped)
        run.set_attribute("toolwire.run.turns", event.turns)
        run.set_attribute("toolwire.run.calls", event.calls)
        if event.stopped == "failed":
            _failed(run, event.stopped)
        run.end(_now())


def _failed(span: "Span", kind: str) -> None:
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - an extra

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def _now() -> int:
    return int(time.time() * _NANO)
