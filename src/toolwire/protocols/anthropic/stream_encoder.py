"""Encode canonical events as Anthropic's SSE stream; `stream_decoder` describes its grammar."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Citation, OpaquePart, Part, Reasoning, Refusal, Text, ToolCall
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import (
    CandidateEnd,
    Event,
    MessageStart,
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
from toolwire.canonical.fold import TextPieces
from toolwire.canonical.response import Stop, Usage
from toolwire.codec.encoding.arguments import wrap_invalid_arguments
from toolwire.codec.encoding.hosted_tools import is_mcp_part
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.sequencer import PartSequencer
from toolwire.codec.encoding.tools import WRAPPED_INPUT_END, wrap_freeform_input
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.fast_path import encode_events, encode_frames
from toolwire.codec.framing import encode_sse_frame
from toolwire.codec.interface import ResponseContext, StreamEncoder, Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.extras import as_dict, restore_extras
from toolwire.codec.wire.reader import tag_of
from toolwire.protocols.anthropic.errors import encode_error
from toolwire.protocols.anthropic.parts.content import encode_citation, encode_foreign_citation, encode_parts
from toolwire.protocols.anthropic.request import ID_AND_NAME_RULES
from toolwire.protocols.anthropic.response import (
    add_required_fields,
    encode_message_head,
    encode_stop,
    encode_usage,
    report_usage,
)
from toolwire.protocols.anthropic.wire import FAMILY

_encode_json = msgspec.json.Encoder().encode
_DELTA_HEAD = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":'
_DELTA_TAIL = b"}}\n\n"
_DELTA_KINDS: dict[type, bytes] = {
    Text: b'"text_delta","text":',
    ToolCall: b'"input_json_delta","partial_json":',
    Reasoning: b'"thinking_delta","thinking":',
}
_DELTA_FIELDS = ("stop_details", "container")
_NULL_FORM = "anthropic:null:"


class Encoder:
    """Encode the events of one response for an Anthropic client."""

    def __init__(self, context: ResponseContext) -> None:
        self.report = LossReport()
        self._context = context
        self._plan = EncodingPlan(ID_AND_NAME_RULES, self.report, Target(), same_protocol=True, for_client=True)
        self._sequencer = PartSequencer()
        # Keys are (candidate, part index) or, for one number, the index of the block.
        self._block_index = -1  # of the last block
        self._block_indices: dict[tuple[int, int], int] = {}  # open blocks
        self._heads: dict[int, bytes] = {}  # bytes before the text of each delta
        self._ended = False
        self._candidate_end: CandidateEnd | None = None
        self._usage: Usage | None = None
        self._has_calls = False
        self._open_reasoning: dict[tuple[int, int], Reasoning] = {}  # of other protocols
        self._paragraphs: dict[int, tuple[str | None, int]] = {}  # kind and block of the last reasoning text
        self._paths: dict[tuple[int, int], SourcePath] = {}
        self._part_counts: dict[int, int] = {}  # by message
        self._citation_counts: dict[tuple[int, int], int] = {}
        self._freeform_calls: set[int] = set()
        self._unstarted_arguments: dict[int, str] = {}  # text before the object of arguments starts
        self._pending_parts: dict[tuple[int, int], tuple[Part, list[str]]] = {}  # sent once they are complete

    @property
    def failure(self) -> ApiError | None:
        """The error by which the reordering of interleaved parts failed, if any."""
        return self._sequencer.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        """Encode events as SSE frames."""
        return encode_events(events, self._encode, self._encode_together)

    def _encode_together(self, event: PartDeltas) -> bytes | None:
        """Encode text deltas of an open block on the fast path; None if there is none, or their text has to change."""
        key = (event.candidate, event.index)
        index = self._block_indices.get(key)
        if (
            index is None
            or index in self._unstarted_arguments
            or index in self._freeform_calls
            or (key in self._open_reasoning and self._paragraphs.get(index) != (event.kind, event.block))
        ):
            return None
        return encode_frames(self._heads[index], event.texts, _DELTA_TAIL)

    def _encode(self, event: Event) -> bytes:
        """Encode one event, with any held-back events that it makes ready, as frames.

        Anthropic blocks cannot interleave. If the provider speaks another protocol, events of a part are therefore held
        back until the parts before it have ended.
        """
        handlers = self._HANDLERS
        if type(event) is ResponseStart:
            self._plan.same_protocol = event.origin == FAMILY
        if self._plan.same_protocol:
            return handlers[type(event)](self, event) if type(event) in handlers else b""
        ordered = self._sequencer.order(event)
        return b"".join([handlers[type(ready)](self, ready) for ready in ordered if type(ready) in handlers])

    def close(self) -> bytes:
        """End the stream, with an error if the response is incomplete."""
        return b"" if self._ended else self._close_incomplete()

    def _close_incomplete(self) -> bytes:
        """Return the frames of held-back events and the error frame of an incomplete response."""
        buffered = self.encode(list(self._sequencer.close()))
        if self._ended:
            return buffered
        error = ApiError(kind="server", message="the upstream ended before the response was complete")
        return buffered + self._fail_response(ResponseFailed(error=error))

    def _start_response(self, event: ResponseStart) -> bytes:
        """Encode `message_start`."""
        self._plan.same_protocol = event.origin == FAMILY
        plan = self._plan
        message = encode_message_head(event, self._context, plan)
        message["content"] = []
        encode_stop(None, message, plan)
        if event.usage is not None or not plan.same_protocol:
            message["usage"] = encode_usage(event.usage or Usage(), plan)
        self._usage = event.usage
        if event.created is not None and not plan.same_protocol:
            self.report.dropped((), "created")
        restore_extras(message, event, FAMILY)
        if not plan.same_protocol:
            add_required_fields(message)
            if event.extras:
                self.report.report_foreign_extras(event, (FAMILY,))
        return _frame(b"message_start", {"message": message})

    def _message_start(self, event: MessageStart) -> bytes:
        """Report as losses the message fields that Anthropic lacks; return no bytes."""
        path = ("candidates", event.candidate, "messages", event.message)
        for field in ("id", "status", "phase") if not self._plan.same_protocol else ():
            if getattr(event, field) is not None:
                self.report.dropped(path, field)
        return b""

    def _part_start(self, event: PartStart) -> bytes:
        """Encode `content_block_start`; return no bytes if the block can only be sent later or not at all."""
        if event.candidate != 0:
            self.report.dropped(("candidates", event.candidate), "", "the target returns a single candidate")
            return b""
        key = (event.candidate, event.index)
        position = self._part_counts.get(event.message, 0)
        self._part_counts[event.message] = position + 1
        self._paths[key] = ("candidates", 0, "messages", event.message, "parts", position)
        part = event.part
        if not self._plan.same_protocol and (getattr(part, "use", None) is not None or _is_mcp_call(part)):
            self._pending_parts[key] = (part, TextPieces())
            return b""
        if (
            isinstance(part, Reasoning)
            and not self._plan.same_protocol
            and (part.signature is None or part.signature.issuer != FAMILY)
        ):
            self._open_reasoning[key] = part  # the block starts with its first text
            return b""
        if isinstance(part, Reasoning) and not self._plan.same_protocol and part.hidden == "omitted":
            # Claude Code reads a signature only from a signature_delta.
            self._open_reasoning[key] = part
            return self._encode_thinking(PartDelta(index=event.index, signature=part.signature), key)
        block = self._encode_block(event, self._paths[key])
        if block is None:
            return b""
        body = restore_extras({"index": self._open_block(key, part), "content_block": block}, event, FAMILY)
        frame = _frame(b"content_block_start", body)
        if isinstance(part, ToolCall) and not self._plan.same_protocol:
            self._has_calls = True
            return frame + self._encode_call_start(part)
        return frame

    def _open_block(self, key: tuple[int, int], part: Part) -> int:
        """Assign the next block index and store the constant bytes before the text of its deltas; return the index."""
        self._block_index += 1
        self._block_indices[key] = self._block_index
        self._heads[self._block_index] = _DELTA_HEAD % self._block_index + _DELTA_KINDS.get(
            type(part), _DELTA_KINDS[Text]
        )
        return self._block_index

    def _encode_hosted_use(self, event: PartEnd) -> bytes:
        """Encode another provider's completed hosted call or result as complete blocks."""
        part, pieces = self._pending_parts.pop((event.candidate, event.index))
        part = part if event.final is None else event.final
        if isinstance(part, ToolCall) and not part.arguments:
            part = replace(part, arguments="".join(pieces))
        frames = b""
        located_part = LocatedPart(part, self._paths[event.candidate, event.index])
        for block in encode_parts([located_part], self._plan, self._block_index + 1):
            self._block_index += 1
            frames += _frame(b"content_block_start", {"index": self._block_index, "content_block": block})
            frames += _frame(b"content_block_stop", {"index": self._block_index})
        return frames

    def _encode_block(self, event: PartStart, path: SourcePath) -> Any:
        """Encode the block of a started part, without the content that deltas will add."""
        part, plan = event.part, self._plan
        if not plan.same_protocol:
            if isinstance(part, Text):
                if part.signature is not None:
                    self.report.dropped((*path, "signature"), "", "signatures are only valid for their issuer")
                return {"type": "text", "text": part.text}
            if isinstance(part, Refusal):
                self.report.approximated(path, "", "refusal sent as text")
                return {"type": "text", "text": part.text}
        if isinstance(part, ToolCall):
            part = replace(part, arguments="{}" if not plan.same_protocol else part.arguments or "{}", shape="json")
        blocks = encode_parts([LocatedPart(part, path)], plan)
        if not blocks:
            return None
        block = blocks[0]
        if plan.same_protocol and "anthropic:absent:input" in part.wire_form:
            block = block if isinstance(block, dict) else as_dict(block)
            block.pop("input", None)
        return block

    def _encode_call_start(self, part: ToolCall) -> bytes:
        """Encode the arguments that a call starts with; free-form input becomes a string in an object."""
        index = self._block_index
        if part.shape == "freeform":
            self._freeform_calls.add(index)
            return self._encode_delta(index, wrap_freeform_input(part.arguments)[: -len(WRAPPED_INPUT_END)])
        self._unstarted_arguments[index] = ""
        return self._encode_arguments(index, part.arguments)

    def _encode_arguments(self, index: int, text: str) -> bytes:
        """Encode arguments, buffering them until an object starts: clients fail on other partial JSON."""
        self._unstarted_arguments[index] = text = self._unstarted_arguments[index] + text
        if not text.lstrip().startswith("{"):
            return b""
        del self._unstarted_arguments[index]
        return self._encode_delta(index, text)

    def _encode_delta(self, index: int, text: str) -> bytes:
        """Encode a text, input or thinking delta of a block."""
        return b"%b%b}}\n\n" % (self._heads[index], _encode_json(text))

    def _part_delta(self, event: PartDelta) -> bytes:
        """Encode one delta."""
        key = (event.candidate, event.index)
        if key in self._open_reasoning:
            return self._encode_thinking(event, key)
        index = self._block_indices.get(key)
        if index is None:
            if key in self._pending_parts:
                self._pending_parts[key][1].append(event.text)
            return b""
        if event.extras or event.wire_form or event.signature is not None or event.annotation is not None:
            return self._encode_other_delta(event, index)
        text = event.text
        if index in self._unstarted_arguments:
            return self._encode_arguments(index, text)
        if index in self._freeform_calls:
            text = msgspec.json.encode(text)[1:-1].decode()
        return self._encode_delta(index, text)

    def _encode_thinking(self, event: PartDelta, key: tuple[int, int]) -> bytes:
        """Encode another protocol's reasoning; several texts of one part become paragraphs."""
        is_native = event.signature is not None and event.signature.issuer == FAMILY
        if event.signature is not None and not is_native:
            self._open_reasoning[key] = replace(self._open_reasoning[key], signature=event.signature)
        if not is_native and not event.text:
            return b""
        start = b""
        if key not in self._block_indices:
            block = {"type": "thinking", "thinking": "", "signature": ""}
            body = {"index": self._open_block(key, self._open_reasoning[key]), "content_block": block}
            start = _frame(b"content_block_start", body)
        index, paragraph = self._block_indices[key], (event.kind, event.block)
        if is_native:
            return start + self._encode_signature(event, index)
        is_later = self._paragraphs.setdefault(index, paragraph) != paragraph
        self._paragraphs[index] = paragraph
        return start + self._encode_delta(index, "\n\n" + event.text if is_later else event.text)

    def _encode_other_delta(self, event: PartDelta, index: int) -> bytes:
        """Encode a delta with extras (fields without canonical counterpart), a signature or a citation."""
        if event.extras and self._plan.same_protocol:
            return self._encode_delta_with_extras(event, index)
        if event.wire_form:
            return b""
        if event.signature is not None:
            return self._encode_signature(event, index)
        if event.annotation is not None:
            return self._encode_citation(event, event.annotation, index)
        return b"%b%b}}\n\n" % (self._heads[index], _encode_json(event.text))

    def _encode_signature(self, event: PartDelta, index: int) -> bytes:
        """Encode a `signature_delta`; return no bytes unless Anthropic issued the signature."""
        if event.signature is None or event.signature.issuer != FAMILY:
            return b""
        return b'%b"signature_delta","signature":%b}}\n\n' % (_DELTA_HEAD % index, _encode_json(event.signature.data))

    def _encode_citation(self, event: PartDelta, citation: Citation, index: int) -> bytes:
        """Encode a `citations_delta`; return no bytes for a citation without an equivalent."""
        if self._plan.same_protocol:
            encoded = encode_citation(citation)
        else:
            key = (event.candidate, event.index)
            self._citation_counts[key] = count = self._citation_counts.get(key, -1) + 1
            pointer = f"/content/{index}/citations/{count}"
            encoded = encode_foreign_citation(citation, (*self._paths[key], "annotations", count), pointer, self._plan)
        if encoded is None:
            return b""
        return b'%b"citations_delta","citation":%b}}\n\n' % (_DELTA_HEAD % index, _encode_json(encoded))

    def _encode_delta_with_extras(self, event: PartDelta, index: int) -> bytes:
        """Encode a delta together with its extras: fields that only Anthropic clients know."""
        frame = self._part_delta(replace(event, extras=None))
        body = msgspec.json.decode(frame.partition(b"\ndata: ")[2], type=dict[str, Any])
        del body["type"]
        return _frame(b"content_block_delta", restore_extras(body, event, FAMILY))

    def _report_reasoning(self, event: PartEnd) -> None:
        """Report as a loss a reasoning signature that Anthropic did not issue and no envelope preserves."""
        part = self._open_reasoning.pop((event.candidate, event.index), None)
        if part is not None and isinstance(event.final, Reasoning):
            part = event.final
        if part is not None and part.signature is not None and part.signature.issuer != FAMILY:
            self._plan.report_unsealed_signature(part, self._paths[event.candidate, event.index])

    def _part_end(self, event: PartEnd) -> bytes:
        """Encode the end of a block, after arguments that are still buffered."""
        self._report_reasoning(event)
        index = self._block_indices.pop((event.candidate, event.index), None)
        if index is None:
            return self._encode_hosted_use(event) if (event.candidate, event.index) in self._pending_parts else b""
        last_delta = b""
        if index in self._freeform_calls:
            last_delta = self._encode_delta(index, WRAPPED_INPUT_END)
        elif (text := self._unstarted_arguments.pop(index, "")).strip() not in ("", "null"):
            last_delta = self._encode_delta(index, str(wrap_invalid_arguments(text), "utf-8"))
        return last_delta + _frame(b"content_block_stop", restore_extras({"index": index}, event, FAMILY))

    def _end_candidate(self, event: CandidateEnd) -> bytes:
        """Store the stop reason for `message_delta`; return no bytes."""
        if event.candidate == 0:
            self._candidate_end = event
        return b""

    def _store_usage(self, event: UsageReport) -> bytes:
        """Store the usage; return `message_delta` at once if the provider is Anthropic, else no bytes."""
        self._usage = event.usage
        return self._message_delta(event) if self._plan.same_protocol else b""

    def _message_delta(self, event: UsageReport | None) -> bytes:
        """Encode `message_delta` with stop reason and usage."""
        delta: dict[str, Any] = {}
        body: dict[str, Any] = {"delta": delta}
        stop = None if self._candidate_end is None else self._candidate_end.stop
        if stop is None and not self._plan.same_protocol:
            stop = Stop(reason="tool_use" if self._has_calls else "end_turn")
        encode_stop(stop, delta, self._plan, has_calls=self._has_calls)
        usage = self._usage if event is None else event.usage
        if usage is not None and not self._plan.same_protocol:
            report_usage(usage, self._plan.report)
        if usage is not None or not self._plan.same_protocol:
            body["usage"] = self._select_counts(encode_usage(usage or Usage(), self._plan), usage)
        for node in (self._candidate_end, event):
            if node is not None:
                _restore_delta_extras(node, body, delta)
        self._candidate_end = None
        return _frame(b"message_delta", body)

    def _select_counts(self, counts: dict[str, Any], usage: Usage | None) -> dict[str, Any]:
        """Return only those counts that the frame of the Anthropic provider had."""
        for token in usage.wire_form if usage is not None else ():
            if token.startswith("anthropic:explicit:"):
                names = token.removeprefix("anthropic:explicit:").split(",")
                return {name: counts.get(name) for name in names if name}
        return counts

    def _notice(self, event: Notice) -> bytes:
        """Encode a ping, or restore a frame of unknown type from the Anthropic provider."""
        if event.kind == "ping":
            return _frame(b"ping", {})
        if (
            self._plan.same_protocol
            and event.extras
            and (body := event.extras.get(FAMILY, {}).get("frame")) is not None
        ):
            return encode_sse_frame(bytes(body), (tag_of(body) or "").encode())
        return b""

    def _end_response(self, event: ResponseEnd) -> bytes:
        """Encode `message_stop`."""
        self._ended = True
        last_delta = (
            self._message_delta(None) if self._candidate_end is not None or not self._plan.same_protocol else b""
        )
        return last_delta + _frame(b"message_stop", restore_extras({}, event, FAMILY))

    def _fail_response(self, event: ResponseFailed) -> bytes:
        """Encode an `error` frame."""
        self._ended = True
        body = encode_error(event.error).body
        return encode_sse_frame(msgspec.json.encode(body), b"error")

    _HANDLERS: ClassVar[dict[type, Callable[..., bytes]]] = {
        ResponseStart: _start_response,
        MessageStart: _message_start,
        PartStart: _part_start,
        PartDelta: _part_delta,
        PartEnd: _part_end,
        CandidateEnd: _end_candidate,
        UsageReport: _store_usage,
        Notice: _notice,
        ResponseEnd: _end_response,
        ResponseFailed: _fail_response,
    }


def _restore_delta_extras(node: CandidateEnd | UsageReport, body: dict[str, Any], delta: dict[str, Any]) -> None:
    """Restore extras and nulls of a `message_delta` frame into its body and its `delta`."""
    if node.extras:
        for name, value in node.extras.get(FAMILY, {}).items():
            (delta if name in _DELTA_FIELDS else body).setdefault(name, value)
    for token in node.wire_form:
        if token.startswith(_NULL_FORM):
            name = token.removeprefix(_NULL_FORM)
            (body if name == "context_management" else delta).setdefault(name, None)


def _frame(kind: bytes, body: dict[str, Any]) -> bytes:
    """Encode one SSE frame with this event type and JSON body."""
    return encode_sse_frame(msgspec.json.encode({"type": kind.decode(), **body}), kind)


def stream_encoder(context: ResponseContext) -> StreamEncoder:
    """Return an encoder for one response."""
    return Encoder(context)


def _is_mcp_call(part: Part) -> bool:
    """Tell whether the part is a call of an MCP server's tool, which is sent once it is complete."""
    return is_mcp_part(part) or (isinstance(part, OpaquePart) and bool(part.called))
