"""A complete response goes through the same stages as a stream, with the same result."""

import json

import pytest
from msgspec.structs import replace

from tests.support.samples import recorded_bodies
from toolwire.canonical.content import Message, Text, ToolCall
from toolwire.canonical.fold import fold, unfold
from toolwire.canonical.node import Raw
from toolwire.canonical.response import Candidate, Response, Stop
from toolwire.codec.envelope import EnvelopeKey
from toolwire.codec.interface import OriginalTool, ResponseContext, ResponseMapping
from toolwire.protocols import PROTOCOLS
from toolwire.translation.pipeline import adapt_response, response_stages, run_stages
from toolwire.translation.stages.failures import find_defect, response_error
from toolwire.translation.stages.family import is_same_family
from toolwire.translation.stages.withheld import WithheldSignatures

PAIRS = [pair for pair in recorded_bodies.PAIRS if not is_same_family(PROTOCOLS[pair[0]], PROTOCOLS[pair[1]])]


def context(kind: str) -> ResponseContext:
    mapping = ResponseMapping(tools={"get_weather": OriginalTool("weather", "city")}, used_names={"get_weather"})
    match kind:
        case "mapping":
            return ResponseContext(mapping=mapping)
        case "envelopes":
            return ResponseContext(mapping=mapping, envelope_key=EnvelopeKey([bytes(32)]))
        case _:
            return ResponseContext(withheld=WithheldSignatures())


@pytest.mark.parametrize("kind", ["mapping", "envelopes", "withheld"])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_complete_response_equals_its_events(source: str, target: str, kind: str) -> None:
    reader, writer = PROTOCOLS[source], PROTOCOLS[target]
    changed = 0
    for name, body in recorded_bodies.fixture_responses(source).items():
        response = reader.decode_response(json.dumps(body).encode(), ResponseContext())
        if response_error(response) is not None or find_defect(response, reader) is not None:
            continue  # a stream ends with the error
        adapted = adapt_response(response, reader, writer, context(kind))
        events = run_stages(response_stages(reader, writer, context(kind)), list(unfold(response)))
        assert fold(events) == adapted, name
        changed += adapted is not response
    assert changed or kind == "withheld"


def test_plain_response_passes_no_stage() -> None:
    message = Message(role="assistant", parts=(Text(text="Hi"), ToolCall(id="1", name="f", arguments="{}")))
    response = Response(origin="anthropic", candidates=(Candidate(messages=(message,), stop=Stop(reason="end_turn")),))
    anthropic, chat = PROTOCOLS["anthropic"], PROTOCOLS["openai-chat"]
    assert adapt_response(response, anthropic, chat, ResponseContext()) is response


def test_incomplete_call_keeps_its_arguments() -> None:
    schema = Raw(b'{"type":"object","properties":{"a":{"type":"string"}}}')
    mapping = ResponseMapping(tools={"f": OriginalTool("g", parameters=schema)}, used_names={"f"})
    call = ToolCall(id="1", name="f", arguments='{"a":"b', complete=False)
    response = Response(origin="gemini", candidates=(Candidate(messages=(Message(role="assistant", parts=(call,)),)),))
    gemini = PROTOCOLS["gemini"]
    adapted = adapt_response(response, gemini, gemini, ResponseContext(mapping=mapping))
    assert adapted.candidates[0].messages[0].parts == (replace(call, name="g"),)
