"""Anthropic's event stream from canonical events. The grammar is told in stream_decoder."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import OpaquePart, Part, Reasoning, Refusal, Text, ToolCall
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import (
    CandidateEnd,
    Event,
    MessageStart,
    Notice,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    UsageReport,
)
from toolwire.canonical.fold import TextPieces
from toolwire.canonical.response import Stop, Usage
from toolwire.codec.encoding.hosted_tools import is_mcp_part
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.sequencer import PartSequencer
from toolwire.codec.encoding.tools import WRAPPED_INPUT_END, wrap_freeform_input
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.framing import encode_sse_frame
from toolwire.codec.interface import ResponseContext, StreamEncoder, Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.extras import as_dict, restore_extras
from toolwire.codec.wire.reader import tag_of
from toolwire.protocols.anthropic.errors import encode_error
from toolwire.protocols.anthropic.parts.calls import wrap_invalid_arguments
from toolwire.protocols.anthropic.parts.content import encode_citation, encode_foreign_citation, encode_parts
from toolwire.protocols.anthropic.request import ID_AND_NAME_RULES
from toolwire.protocols.anthropic.response import (
    add_required_fields,
    encode_stop,
    encode_usage,
    message_id,
    report_usage,
)
from toolwire.protocols.anthropic.wire import FAMILY

_encode_json = msgspec.json.Encoder().encode
_DELTA_HEAD = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":'
_DELTA_KINDS: dict[type, bytes] = {
    Text: b'"text_delta","text":',
    ToolCall: b'"input_json_delta","partial_json":',
    Reasoning: b'"thinking_delta","thinking":',
}
_DELTA_FIELDS = ("stop_details", "container")


class Encoder:
    def __init__(self, context: ResponseContext) -> None:
        self.report = LossReport()
        self._context = context
        self._plan = EncodingPlan(ID_AND_NAME_RULES, self.report, Target(), same_protocol=True, for_client=True)
        self._sequencer = PartSequencer()
        self._block_index = -1
        self._block_indices: dict[tuple[int, int], int] = {}
        self._heads: dict[int, bytes] = {}
        self._ended = False
        self._candidate_end: CandidateEnd | None = None
        self._usage: Usage | None = None
        self._has_calls = False
        self._open_reasoning: dict[tuple[int, int], Reasoning] = {}
        self._paragraphs: dict[int, tuple[str | None, int]] = {}
        self._paths: dict[tuple[int, int], SourcePath] = {}
        self._part_counts: dict[int, int] = {}
        self._citation_counts: dict[tuple[int, int], int] = {}
        self._freeform_calls: set[int] = set()
        self._unstarted_arguments: dict[int, str] = {}
        self._pending_parts: dict[tuple[int, int], tuple[Part, list[str]]] = {}
        # What stands before the text of each delta of a part that is open; there is one candidate only.
        self._fast_heads: dict[int, bytes] = {}

    @property
    def failure(self) -> ApiError | None:
        return self._sequencer.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        out: list[bytes] = []
        speaking = self._fast_heads
        for event in events:
            if type(event) is PartDelta and event.plain and event.candidate == 0 and event.index in speaking:
                out.append(speaking[event.index] + _encode_json(event.text) + b"}}\n\n")
            else:
                out.append(self._encode(event))
        return b"".join(out)

    def _encode(self, event: Event) -> bytes:
        """One event; of another protocol with what waited for it, one part after the other."""
        methods = self._HANDLERS
        if type(event) is ResponseStart:
            self._plan.same_protocol = event.origin == FAMILY
        if self._plan.same_protocol:
            return methods[type(event)](self, event) if type(event) in methods else b""
        ordered = self._sequencer.order(event)
        return b"".join([methods[type(one)](self, one) for one in ordered if type(one) in methods])

    def close(self) -> bytes:
        return b"" if self._ended else self._close_incomplete()

    def _close_incomplete(self) -> bytes:
        waiting = self.encode(list(self._sequencer.close()))
        if self._ended:
            return waiting
        error = ApiError(kind="server", message="the upstream ended before its answer did")
        return waiting + self._fail_response(ResponseFailed(error=error))

    def _start_response(self, event: ResponseStart) -> bytes:
        self._plan.same_protocol = event.origin == FAMILY
        plan = self._plan
        message: dict[str, Any] = {}
        if event.id is not None or not plan.same_protocol:
            message["id"] = event.id or "" if plan.same_protocol else message_id(event.id, self._context)
        if "anthropic:absent:type" not in event.wire_form:
            message["type"] = "message"
        if "anthropic:absent:role" not in event.wire_form:
            message["role"] = "assistant"
        if event.model is not None or not plan.same_protocol:
            message["model"] = event.model or ""
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
        trail = ("candidates", event.candidate, "messages", event.message)
        for field in ("id", "status", "phase") if not self._plan.same_protocol else ():
            if getattr(event, field) is not None:
                self.report.dropped(trail, field)
        return b""

    def _part_start(self, event: PartStart) -> bytes:
        if event.candidate != 0:
            self.report.dropped(("candidates", event.candidate), "", "the target has one answer only")
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
            self._open_reasoning[key] = part  # a block is only started if there is something in it
            return b""
        if isinstance(part, Reasoning) and not self._plan.same_protocol and part.hidden == "omitted":
            # Claude Code reads a signature only from a delta, as Anthropic sends it.
            self._open_reasoning[key] = part
            return self._encode_thinking(PartDelta(index=event.index, signature=part.signature), key)
        block = self._encode_block(event, self._paths[key])
        if block is None:
            return b""
        body = restore_extras({"index": self._open_block(key, part), "content_block": block}, event, FAMILY)
        started = _frame(b"content_block_start", body)
        if isinstance(part, ToolCall) and not self._plan.same_protocol:
            self._has_calls = True
            return started + self._encode_call_start(part, event.index)
        self._fast_heads[event.index] = self._heads[self._block_index]
        return started

    def _open_block(self, key: tuple[int, int], part: Part) -> int:
        self._block_index += 1
        self._block_indices[key] = self._block_index
        self._heads[self._block_index] = _DELTA_HEAD % self._block_index + _DELTA_KINDS.get(
            type(part), _DELTA_KINDS[Text]
        )
        return self._block_index

    def _encode_hosted_use(self, event: PartEnd) -> bytes:
        """What another provider ran, once it is known: blocks that are whole at once."""
        part, pieces = self._pending_parts.pop((event.candidate, event.index))
        part = part if event.final is None else event.final
        if isinstance(part, ToolCall) and not part.arguments:
            part = replace(part, arguments="".join(pieces))
        out = b""
        placed = LocatedPart(part, self._paths[event.candidate, event.index])
        for block in encode_parts([placed], self._plan, self._block_index + 1):
            self._block_index += 1
            out += _frame(b"content_block_start", {"index": self._block_index, "content_block": block})
            out += _frame(b"content_block_stop", {"index": self._block_index})
        return out

    def _encode_block(self, event: PartStart, path: SourcePath) -> Any:
        """The block as it starts: empty where deltas will fill it."""
        part, plan = event.part, self._plan
        if not plan.same_protocol:
            if isinstance(part, Text):
                if part.signature is not None:
                    self.report.dropped((*path, "signature"), "", "a seal goes only to its issuer")
                return {"type": "text", "text": part.text}
            if isinstance(part, Refusal):
                self.report.approximated(path, "", "a refusal is told as text")
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

    def _encode_call_start(self, part: ToolCall, part_index: int) -> bytes:
        """What a call starts with; the text of a free-text one is told as a string in an object."""
        index = self._block_index
        if part.shape == "freeform":
            self._freeform_calls.add(index)
            return self._encode_delta(index, wrap_freeform_input(part.arguments)[: -len(WRAPPED_INPUT_END)])
        self._unstarted_arguments[index] = ""
        return self._encode_arguments(index, part_index, part.arguments)

    def _encode_arguments(self, index: int, part_index: int, text: str) -> bytes:
        """Arguments that have not begun to be an object: clients read them as JSON while they grow, and fail on any
        other text."""
        self._unstarted_arguments[index] = text = self._unstarted_arguments[index] + text
        if not text.lstrip().startswith("{"):
            return b""
        del self._unstarted_arguments[index]
        self._fast_heads[part_index] = self._heads[index]
        return self._encode_delta(index, text)

    def _encode_delta(self, index: int, text: str) -> bytes:
        return b"%b%b}}\n\n" % (self._heads[index], _encode_json(text))

    def _part_delta(self, event: PartDelta) -> bytes:
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
            return self._encode_arguments(index, event.index, text)
        if index in self._freeform_calls:
            text = msgspec.json.encode(text)[1:-1].decode()
        return self._encode_delta(index, text)

    def _encode_thinking(self, event: PartDelta, key: tuple[int, int]) -> bytes:
        """Another protocol's thought: several texts of one are paragraphs here."""
        own = event.signature is not None and event.signature.issuer == FAMILY
        if event.signature is not None and not own:
            self._open_reasoning[key] = replace(self._open_reasoning[key], signature=event.signature)
        if not own and not event.text:
            return b""
        started = b""
        if key not in self._block_indices:
            block = {"type": "thinking", "thinking": "", "signature": ""}
            body = {"index": self._open_block(key, self._open_reasoning[key]), "content_block": block}
            started = _frame(b"content_block_start", body)
        index, paragraph = self._block_indices[key], (event.kind, event.block)
        if event.signature is not None and own:
            return started + b'%b"signature_delta","signature":%b}}\n\n' % (
                _DELTA_HEAD % index,
                _encode_json(event.signature.data),
            )
        later = self._paragraphs.setdefault(index, paragraph) != paragraph
        self._paragraphs[index] = paragraph
        return started + b"%b%b}}\n\n" % (
            self._heads[index],
            _encode_json("\n\n" + event.text if later else event.text),
        )

    def _encode_other_delta(self, event: PartDelta, index: int) -> bytes:
        if event.extras and self._plan.same_protocol:
            return self._encode_delta_with_extras(event, index)
        if event.wire_form:
            return b""
        head = _DELTA_HEAD % index
        if event.signature is not None:
            if event.signature.issuer != FAMILY:
                return b""
            return b'%b"signature_delta","signature":%b}}\n\n' % (head, _encode_json(event.signature.data))
        if event.annotation is not None:
            if not self._plan.same_protocol:
                key = (event.candidate, event.index)
                self._citation_counts[key] = count = self._citation_counts.get(key, -1) + 1
                place = f"/content/{index}/citations/{count}"
                cited = encode_foreign_citation(
                    event.annotation, (*self._paths[key], "annotations", count), place, self._plan
                )
                return (
                    b"" if cited is None else b'%b"citations_delta","citation":%b}}\n\n' % (head, _encode_json(cited))
                )
            return b'%b"citations_delta","citation":%b}}\n\n' % (
                head,
                _encode_json(encode_citation(event.annotation)),
            )
        return b"%b%b}}\n\n" % (self._heads[index], _encode_json(event.text))

    def _encode_delta_with_extras(self, event: PartDelta, index: int) -> bytes:
        plain = self._part_delta(replace(event, extras=None))
        body = msgspec.json.decode(plain.partition(b"\ndata: ")[2], type=dict[str, Any])
        del body["type"]
        return _frame(b"content_block_delta", restore_extras(body, event, FAMILY))

    def _report_reasoning(self, event: PartEnd) -> None:
        part = self._open_reasoning.pop((event.candidate, event.index), None)
        if part is not None and isinstance(event.final, Reasoning):
            part = event.final
        if part is not None and part.signature is not None and part.signature.issuer != FAMILY:
            self._plan.report_unsealed_signature(part, self._paths[event.candidate, event.index])

    def _part_end(self, event: PartEnd) -> bytes:
        self._report_reasoning(event)
        index = self._block_indices.pop((event.candidate, event.index), None)
        if index is None:
            return self._encode_hosted_use(event) if (event.candidate, event.index) in self._pending_parts else b""
        self._fast_heads.pop(event.index, None)
        ending = b""
        if index in self._freeform_calls:
            ending = self._encode_delta(index, WRAPPED_INPUT_END)
        elif (text := self._unstarted_arguments.pop(index, "")).strip() not in ("", "null"):
            ending = self._encode_delta(index, wrap_invalid_arguments(text).decode())
        return ending + _frame(b"content_block_stop", restore_extras({"index": index}, event, FAMILY))

    def _end_candidate(self, event: CandidateEnd) -> bytes:
        if event.candidate == 0:
            self._candidate_end = event
        return b""

    def _report_usage(self, event: UsageReport) -> bytes:
        self._usage = event.usage
        return self._message_delta(event) if self._plan.same_protocol else b""

    def _message_delta(self, event: UsageReport | None) -> bytes:
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
            if node is not None and node.extras:
                for name, value in node.extras.get(FAMILY, {}).items():
                    (delta if name in _DELTA_FIELDS else body).setdefault(name, value)
            for token in node.wire_form if node is not None else ():
                if token.startswith("anthropic:null:"):
                    name = token.removeprefix("anthropic:null:")
                    (body if name == "context_management" else delta).setdefault(name, None)
        self._candidate_end = None
        return _frame(b"message_delta", body)

    def _select_counts(self, counts: dict[str, Any], usage: Usage | None) -> dict[str, Any]:
        """At home only the counts that the frame had."""
        for token in usage.wire_form if usage is not None else ():
            if token.startswith("anthropic:explicit:"):
                names = token.removeprefix("anthropic:explicit:").split(",")
                return {name: counts.get(name) for name in names if name}
        return counts

    def _notice(self, event: Notice) -> bytes:
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
        self._ended = True
        closing = self._message_delta(None) if self._candidate_end is not None or not self._plan.same_protocol else b""
        return closing + _frame(b"message_stop", restore_extras({}, event, FAMILY))

    def _fail_response(self, event: ResponseFailed) -> bytes:
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
        UsageReport: _report_usage,
        Notice: _notice,
        ResponseEnd: _end_response,
        ResponseFailed: _fail_response,
    }


def _frame(kind: bytes, body: dict[str, Any]) -> bytes:
    return encode_sse_frame(msgspec.json.encode({"type": kind.decode(), **body}), kind)


def stream_encoder(context: ResponseContext) -> StreamEncoder:
    return Encoder(context)


def _is_mcp_call(part: Part) -> bool:
    """Whether a tool of an MCP server was called: it is told whole."""
    return is_mcp_part(part) or (isinstance(part, OpaquePart) and bool(part.called))
