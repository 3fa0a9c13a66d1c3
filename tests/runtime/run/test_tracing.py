"""OpenTelemetry spans of a run."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.support.runtime.scripted_agent import ScriptedApprover, ScriptedModel, model_call, model_turn, text_turn
from toolwire import Agent, Policy, tool
from toolwire.canonical.response import Usage
from toolwire.runtime.run.events import RunEvent
from toolwire.runtime.run.tracing import RunTracer


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    span_exporter = InMemorySpanExporter()
    yield span_exporter
    span_exporter.shutdown()


@tool
def add(a: int, b: int) -> int:
    return a + b


def spans_of(exporter: InMemorySpanExporter, model: Any) -> dict[str, ReadableSpan]:
    exported_spans = spans_in(exporter, Agent(model, tools=[add], policy=Policy(allow=["add"])).stream("go"))
    return {span.name: span for span in exported_spans}


def spans_in(exporter: InMemorySpanExporter, events: Iterable[RunEvent]) -> Sequence[ReadableSpan]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    run_tracer = RunTracer(provider.get_tracer("test"), "adder")
    for event in events:
        run_tracer.on_event(event)
    run_tracer.close()
    return exporter.get_finished_spans()


def test_run_turns_and_calls_are_spans(exporter: InMemorySpanExporter) -> None:
    usage = Usage(input_tokens=7, output_tokens=3)
    spans = spans_of(
        exporter, ScriptedModel(model_turn(model_call("add", {"a": 1, "b": "x"}), usage=usage), text_turn("ok"))
    )
    assert set(spans) == {"invoke_agent adder", "chat played"}
    exporter.clear()
    spans = spans_of(
        exporter, ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 2}), usage=usage), text_turn("ok"))
    )
    run, done = spans["invoke_agent adder"], spans["execute_tool add"]
    assert len(exporter.get_finished_spans()) == 4
    assert all(one.parent == run.context for one in exporter.get_finished_spans() if one is not run)
    first = next(one for one in exporter.get_finished_spans() if one.name == "chat played")
    assert first.attributes is not None
    assert first.attributes["gen_ai.usage.input_tokens"] == 7
    assert first.attributes["gen_ai.response.finish_reasons"] == ("tool_use",)
    assert done.attributes is not None
    assert done.attributes["gen_ai.tool.call.id"] == "c1"
    assert run.attributes is not None
    assert run.attributes["toolwire.run.stopped"] == "finished"
    assert "1" not in str(done.attributes.get("gen_ai.tool.call.arguments", ""))


def test_recorded_turn_has_no_span(exporter: InMemorySpanExporter, tmp_path: Path) -> None:
    model = ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 2})), text_turn("ok"))
    agent = Agent(model, tools=[add], approver=ScriptedApprover("later", "yes"), journal=tmp_path / "runs.db")
    run = agent.run("go")
    spans = spans_in(exporter, agent.resume(run.id))
    assert [one.name for one in spans] == ["execute_tool add", "chat played", "invoke_agent adder"]


def test_failed_call_and_cancelled_run_set_error_type(exporter: InMemorySpanExporter) -> None:
    @tool
    def broken() -> None:
        raise ValueError("a secret detail")

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    run_tracer = RunTracer(provider.get_tracer("test"), "breaker")
    for event in Agent(
        ScriptedModel(model_turn(model_call("broken")), text_turn("ok")), tools=[broken], policy=Policy(allow=["*"])
    ).stream("go"):
        if type(event).__name__ == "RunEnded":
            break
        run_tracer.on_event(event)
    run_tracer.close()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    failed, cut = spans["execute_tool broken"], spans["invoke_agent breaker"]
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "crash"
    assert not failed.status.is_ok
    assert cut.attributes is not None
    assert cut.attributes["error.type"] == "cancelled"
    assert "secret detail" not in "".join(span.to_json() for span in exporter.get_finished_spans())
