"""The stages between decoder and encoder, chosen by protocols and context, for streams and complete responses alike."""

from collections.abc import Sequence
from typing import Protocol

from toolwire.canonical.events import Event
from toolwire.canonical.fold import fold, unfold
from toolwire.canonical.response import Response
from toolwire.codec.encoding.computer import CANONICAL_ADAPTER
from toolwire.codec.interface import Codec, ResponseContext
from toolwire.translation.stages.call_ids import CallIdStage
from toolwire.translation.stages.computer import ComputerStage
from toolwire.translation.stages.envelopes import EnvelopeStage, has_signatures
from toolwire.translation.stages.failures import FailureStage
from toolwire.translation.stages.family import FamilyStage, isolate_foreign_extras, share_extras
from toolwire.translation.stages.logprobs import logprobs_stage
from toolwire.translation.stages.restore_calls import CallRestoreStage
from toolwire.translation.stages.tool_call_parsers.text_recovery import recover_text


class Stage(Protocol):
    """One transformation of the events of one response."""

    def applies(self, response: Response) -> bool:
        """Return whether the stage may change this complete response; cheap, since most stages change few."""

    def process(self, events: list[Event]) -> list[Event]:
        """Return the next events, transformed; the same list if nothing changes."""


def response_stages(
    reader: Codec, writer: Codec | None, context: ResponseContext, *, may_have_signatures: bool = True
) -> list[Stage]:
    """Return new stages for one response, in order: those that the protocols and the context need.

    `writer` is None for the runtime, which takes canonical events. A complete response tells whether it has signatures;
    without any, the stage for envelopes is left out, which costs the most to create.
    """
    # Calls of another protocol, and those recovered from text, may lack an id that the client needs.
    may_lack_ids = reader is not writer or context.text_recovery is not None
    if not may_lack_ids and context.mapping.is_empty:
        return []
    stages: list[Stage] = [] if writer is None else _extras_stages(reader, writer)
    if may_lack_ids:
        stages.append(CallIdStage(context))
    if writer is not None and reader is not writer:
        stages.append(FailureStage(reader))
    stages += _tool_stages(reader, writer, context)
    if writer is not None and reader is not writer:
        stages += _signature_stages(reader, writer, context, may_have_signatures=may_have_signatures)
    return stages


def _extras_stages(reader: Codec, writer: Codec) -> list[Stage]:
    """Return the stages that map fields which two protocols share: extras of their family, and logprobs."""
    stages: list[Stage] = [FamilyStage(reader, writer)] if share_extras(reader, writer) else []
    logprobs = logprobs_stage(reader.logprobs, writer.logprobs)
    return stages if logprobs is None else [*stages, logprobs]


def _tool_stages(reader: Codec, writer: Codec | None, context: ResponseContext) -> list[Stage]:
    """Return the stages that undo the changes which the request's encoder made to the client's tools."""
    mapping, adapter = context.mapping, CANONICAL_ADAPTER if writer is None else writer.computer_use
    stages: list[Stage] = []
    if mapping.computer_use is not None and adapter is not None:
        stages.append(ComputerStage(mapping.computer_use, adapter, reader.wire_names))
    if mapping.tools or mapping.integer_schemas is not None:
        stages.append(CallRestoreStage(mapping))
    return stages


def _signature_stages(
    reader: Codec, writer: Codec, context: ResponseContext, *, may_have_signatures: bool
) -> list[Stage]:
    """Return the stage that withholds signatures from the client, or puts them in envelopes."""
    if context.withheld is not None:
        return [context.withheld]
    if may_have_signatures and context.envelope_key is not None and writer.envelope_field is not None:
        return [EnvelopeStage(writer, reader.wire_names, context)]
    return []


def run_stages(stages: Sequence[Stage], events: list[Event]) -> list[Event]:
    """Return the events after all stages."""
    for stage in stages:
        events = stage.process(events)
    return events


def adapt_response(response: Response, reader: Codec, writer: Codec | None, context: ResponseContext) -> Response:
    """Return a complete response after all stages that change it; the same object if none does."""
    response = recover_text(response, context)
    if writer is not None:
        response = isolate_foreign_extras(response, reader, writer)
    stages = response_stages(reader, writer, context, may_have_signatures=has_signatures(response))
    stages = [stage for stage in stages if stage.applies(response)]
    return fold(run_stages(stages, list(unfold(response, deltas=False)))) if stages else response
