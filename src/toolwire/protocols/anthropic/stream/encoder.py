"""Anthropic's event stream from canonical events. The grammar is told in stream_decoder."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Foreign, Part, Reasoning, Refusal, Text, ToolCall
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import (
    Event,
    MessageStart,
    Notice,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    Stopped,
    UsageReport,
)
from toolwire.canonical.response import Stop, Usage
from toolwire.canonical.text_pieces import TextPieces
from toolwire.codec.connectors import is_connected
from toolwire.codec.fields import tag_of
from toolwire.codec.interface import Context, StreamEncoder, Target
from toolwire.codec.kept import as_object, restore
from toolwire.codec.losses import Report, Trail
from toolwire.codec.plan import Plan
from toolwire.codec.sequence import Sequence
from toolwire.codec.sse import frame
from toolwire.codec.tools import LOWERED_END, lower_input
from toolwire.codec.turns import Placed
from toolwire.protocols.anthropic.parts.calls import unreadable
from toolwire.protocols.anthropic.parts.citations import cite, encode_citation
from toolwire.protocols.anthropic.parts.content import encode_parts
from toolwire.protocols.anthropic.request.body import RULES
from toolwire.protocols.anthropic.response.body import (
    complete,
    encode_stop,
    encode_usage,
    message_id,
    report_usage,
)
from toolwire.protocols.anthropic.response.errors import encode_error
from toolwire.protocols.anthropic.wire import (
    FAMILY,
)

_text = msgspec.json.Encoder().encode
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":'
_DELTAS: dict[type, bytes] = {
    Text: b'"text_delta","text":',
    ToolCall: b'"input_json_delta","partial_json":',
    Reasoning: b'"thinking_delta","thinking":',
}
_IN_DELTA = ("stop_details", "container")


class Encoder:
    def __init__(self, context: Context) -> None:
        self.report = Report()
        self._context = context
        self._plan = Plan(RULES, self.report, Target(), home=True, answering=True)
        self._sequence = Sequence()
        self._index = -1
        self._parts: dict[tuple[int, int], int] = {}
        self._heads: dict[int, bytes] = {}
        self._ended = False
        self._stopped: Stopped | None = None
        self._usage: Usage | None = None
        self._calls = False
        self._thoughts: dict[tuple[int, int], Reasoning] = {}
        self._paragraphs: dict[int, tuple[str | None, int]] = {}
        self._trails: dict[tuple[int, int], Trail] = {}
        self._counts: dict[int, int] = {}
        self._notes: dict[tuple[int, int], int] = {}
        self._lowered: set[int] = set()
        self._unopened: dict[int, str] = {}
        self._held: dict[tuple[int, int], tuple[Part, list[str]]] = {}
        # What stands before the text of each delta of a part that is open; there is one candidate only.
        self._speaking: dict[int, bytes] = {}

    @property
    def failure(self) -> ApiError | None:
        return self._sequence.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        out: list[bytes] = []
        speaking = self._speaking
        for event in events:
            if type(event) is PartDelta and event.plain and event.candidate == 0 and event.index in speaking:
                out.append(speaking[event.index] + _text(event.text) + b"}}\n\n")
            else:
                out.append(self._encode(event))
        return b"".join(out)

    def _encode(self, event: Event) -> bytes:
        """One event; of another protocol with what waited for it, one part after the other."""
        methods = self._METHODS
        if type(event) is ResponseStart:
            self._plan.home = event.origin == FAMILY
        if self._plan.home:
            return methods[type(event)](self, event) if type(event) in methods else b""
        ordered = self._sequence.order(event)
        return b"".join([methods[type(one)](self, one) for one in ordered if type(one) in methods])

    def close(self) -> bytes:
        return b"" if self._ended else self._cut()

    def _cut(self) -> bytes:
        waiting = self.encode(list(self._sequence.close()))
        if self._ended:
            return waiting
        error = ApiError(kind="server", message="the upstream ended before its answer did")
        return waiting + self._fail(ResponseFailed(error=error))

    def _start(self, event: ResponseStart) -> bytes:
        self._plan.home = event.origin == FAMILY
        plan = self._plan
        message: dict[str, Any] = {}
        if event.id is not None or not plan.home:
            message["id"] = event.id or "" if plan.home else message_id(event.id, self._context)
        if "anthropic:absent:type" not in event.form:
            message["type"] = "message"
        if "anthropic:absent:role" not in event.form:
            message["role"] = "assistant"
        if event.model is not None or not plan.home:
            message["model"] = event.model or ""
        message["content"] = []
        encode_stop(None, message, plan)
        if event.usage is not None or not plan.home:
            message["usage"] = encode_usage(event.usage or Usage(), plan)
        self._usage = event.usage
        if event.created is not None and not plan.home:
            self.report.dropped((), "created")
        restore(message, event, FAMILY)
        if not plan.home:
            complete(message)
            if event.extras:
                self.report.unclaimed(event, (FAMILY,))
        return _frame(b"message_start", {"message": message})

    def _message_start(self, event: MessageStart) -> bytes:
        trail = ("candidates", event.candidate, "messages", event.message)
        for field in ("id", "status", "phase") if not self._plan.home else ():
            if getattr(event, field) is not None:
                self.report.dropped(trail, field)
        return b""

    def _part_start(self, event: PartStart) -> bytes:
        if event.candidate != 0:
            self.report.dropped(("candidates", event.candidate), "", "the target has one answer only")
            return b""
        key = (event.candidate, event.index)
        position = self._counts.get(event.message, 0)
        self._counts[event.message] = position + 1
        self._trails[key] = ("candidates", 0, "messages", event.message, "parts", position)
        part = event.part
        if not self._plan.home and (getattr(part, "use", None) is not None or _is_called(part)):
            self._held[key] = (part, TextPieces())
            return b""
        if isinstance(part, Reasoning) and not self._plan.home and (part.seal is None or part.seal.issuer != FAMILY):
            self._thoughts[key] = part  # a block is only started if there is something in it
            return b""
        if isinstance(part, Reasoning) and not self._plan.home and part.hidden == "omitted":
            # Claude Code reads a signature only from a delta, as Anthropic sends it.
            self._thoughts[key] = part
            return self._think(PartDelta(index=event.index, seal=part.seal), key)
        block = self._block(event, self._trails[key])
        if block is None:
            return b""
        body = restore({"index": self._open(key, part), "content_block": block}, event, FAMILY)
        started = _frame(b"content_block_start", body)
        if isinstance(part, ToolCall) and not self._plan.home:
            self._calls = True
            return started + self._call_start(part, event.index)
        self._speaking[event.index] = self._heads[self._index]
        return started

    def _open(self, key: tuple[int, int], part: Part) -> int:
        self._index += 1
        self._parts[key] = self._index
        self._heads[self._index] = _DELTA % self._index + _DELTAS.get(type(part), _DELTAS[Text])
        return self._index

    def _used(self, event: PartEnd) -> bytes:
        """What another provider ran, once it is known: blocks that are whole at once."""
        part, pieces = self._held.pop((event.candidate, event.index))
        part = part if event.final is None else event.final
        if isinstance(part, ToolCall) and not part.arguments:
            part = replace(part, arguments="".join(pieces))
        out = b""
        placed = Placed(part, self._trails[event.candidate, event.index])
        for block in encode_parts([placed], self._plan, self._index + 1):
            self._index += 1
            out += _frame(b"content_block_start", {"index": self._index, "content_block": block})
            out += _frame(b"content_block_stop", {"index": self._index})
        return out

    def _block(self, event: PartStart, trail: Trail) -> Any:
        """The block as it starts: empty where deltas will fill it."""
        part, plan = event.part, self._plan
        if not plan.home:
            if isinstance(part, Text):
                if part.seal is not None:
                    self.report.dropped((*trail, "seal"), "", "a seal goes only to its issuer")
                return {"type": "text", "text": part.text}
            if isinstance(part, Refusal):
                self.report.approximated(trail, "", "a refusal is told as text")
                return {"type": "text", "text": part.text}
        if isinstance(part, ToolCall):
            part = replace(part, arguments="{}" if not plan.home else part.arguments or "{}", shape="json")
        blocks = encode_parts([Placed(part, trail)], plan)
        if not blocks:
            return None
        block = blocks[0]
        if plan.home and "anthropic:absent:input" in part.form:
            block = block if isinstance(block, dict) else as_object(block)
            block.pop("input", None)
        return block

    def _call_start(self, part: ToolCall, number: int) -> bytes:
        """What a call starts with; the text of a free-text one is told as a string in an object."""
        index = self._index
        if part.shape == "freeform":
            self._lowered.add(index)
            return self._told(index, lower_input(part.arguments)[: -len(LOWERED_END)])
        self._unopened[index] = ""
        return self._argue(index, number, part.arguments)

    def _argue(self, index: int, number: int, text: str) -> bytes:
        """Arguments that have not begun to be an object: clients read them as JSON while they grow, and fail on any
        other text."""
        self._unopened[index] = text = self._unopened[index] + text
        if not text.lstrip().startswith("{"):
            return b""
        del self._unopened[index]
        self._speaking[number] = self._heads[index]
        return self._told(index, text)

    def _told(self, index: int, text: str) -> bytes:
        return b"%b%b}}\n\n" % (self._heads[index], _text(text))

    def _delta(self, event: PartDelta) -> bytes:
        key = (event.candidate, event.index)
        if key in self._thoughts:
            return self._think(event, key)
        index = self._parts.get(key)
        if index is None:
            if key in self._held:
                self._held[key][1].append(event.text)
            return b""
        if event.extras or event.form or event.seal is not None or event.annotation is not None:
            return self._rare_delta(event, index)
        text = event.text
        if index in self._unopened:
            return self._argue(index, event.index, text)
        if index in self._lowered:
            text = msgspec.json.encode(text)[1:-1].decode()
        return self._told(index, text)

    def _think(self, event: PartDelta, key: tuple[int, int]) -> bytes:
        """Another protocol's thought: several texts of one are paragraphs here."""
        own = event.seal is not None and event.seal.issuer == FAMILY
        if event.seal is not None and not own:
            self._thoughts[key] = replace(self._thoughts[key], seal=event.seal)
        if not own and not event.text:
            return b""
        started = b""
        if key not in self._parts:
            block = {"type": "thinking", "thinking": "", "signature": ""}
            body = {"index": self._open(key, self._thoughts[key]), "content_block": block}
            started = _frame(b"content_block_start", body)
        index, paragraph = self._parts[key], (event.kind, event.block)
        if event.seal is not None and own:
            return started + b'%b"signature_delta","signature":%b}}\n\n' % (_DELTA % index, _text(event.seal.data))
        later = self._paragraphs.setdefault(index, paragraph) != paragraph
        self._paragraphs[index] = paragraph
        return started + b"%b%b}}\n\n" % (self._heads[index], _text("\n\n" + event.text if later else event.text))

    def _rare_delta(self, event: PartDelta, index: int) -> bytes:
        if event.extras and self._plan.home:
            return self._delta_with_extras(event, index)
        if event.form:
            return b""
        head = _DELTA % index
        if event.seal is not None:
            if event.seal.issuer != FAMILY:
                return b""
            return b'%b"signature_delta","signature":%b}}\n\n' % (head, _text(event.seal.data))
        if event.annotation is not None:
            if not self._plan.home:
                key = (event.candidate, event.index)
                self._notes[key] = count = self._notes.get(key, -1) + 1
                place = f"/content/{index}/citations/{count}"
                cited = cite(event.annotation, (*self._trails[key], "annotations", count), place, self._plan)
                return b"" if cited is None else b'%b"citations_delta","citation":%b}}\n\n' % (head, _text(cited))
            return b'%b"citations_delta","citation":%b}}\n\n' % (
                head,
                _text(encode_citation(event.annotation)),
            )
        return b"%b%b}}\n\n" % (self._heads[index], _text(event.text))

    def _delta_with_extras(self, event: PartDelta, index: int) -> bytes:
        plain = self._delta(replace(event, extras=None))
        body = msgspec.json.decode(plain.partition(b"\ndata: ")[2], type=dict[str, Any])
        del body["type"]
        return _frame(b"content_block_delta", restore(body, event, FAMILY))

    def _report_thought(self, event: PartEnd) -> None:
        part = self._thoughts.pop((event.candidate, event.index), None)
        if part is not None and isinstance(event.final, Reasoning):
            part = event.final
        if part is not None and part.seal is not None and part.seal.issuer != FAMILY:
            self._plan.unproved(part, self._trails[event.candidate, event.index])

    def _part_end(self, event: PartEnd) -> bytes:
        self._report_thought(event)
        index = self._parts.pop((event.candidate, event.index), None)
        if index is None:
            return self._used(event) if (event.candidate, event.index) in self._held else b""
        self._speaking.pop(event.index, None)
        ending = b""
        if index in self._lowered:
            ending = self._told(index, LOWERED_END)
        elif (text := self._unopened.pop(index, "")).strip() not in ("", "null"):
            ending = self._told(index, unreadable(text).decode())
        return ending + _frame(b"content_block_stop", restore({"index": index}, event, FAMILY))

    def _stop(self, event: Stopped) -> bytes:
        if event.candidate == 0:
            self._stopped = event
        return b""

    def _report_usage(self, event: UsageReport) -> bytes:
        self._usage = event.usage
        return self._message_delta(event) if self._plan.home else b""

    def _message_delta(self, event: UsageReport | None) -> bytes:
        delta: dict[str, Any] = {}
        body: dict[str, Any] = {"delta": delta}
        stop = None if self._stopped is None else self._stopped.stop
        if stop is None and not self._plan.home:
            stop = Stop(reason="tool_use" if self._calls else "end_turn")
        encode_stop(stop, delta, self._plan, calls=self._calls)
        usage = self._usage if event is None else event.usage
        if usage is not None and not self._plan.home:
            report_usage(usage, self._plan.report)
        if usage is not None or not self._plan.home:
            body["usage"] = self._said(encode_usage(usage or Usage(), self._plan), usage)
        for node in (self._stopped, event):
            if node is not None and node.extras:
                for name, value in node.extras.get(FAMILY, {}).items():
                    (delta if name in _IN_DELTA else body).setdefault(name, value)
            for token in node.form if node is not None else ():
                if token.startswith("anthropic:null:"):
                    name = token.removeprefix("anthropic:null:")
                    (body if name == "context_management" else delta).setdefault(name, None)
        self._stopped = None
        return _frame(b"message_delta", body)

    def _said(self, whole: dict[str, Any], usage: Usage | None) -> dict[str, Any]:
        """At home only the counts that the frame had."""
        for token in usage.form if usage is not None else ():
            if token.startswith("anthropic:said:"):
                names = token.removeprefix("anthropic:said:").split(",")
                return {name: whole.get(name) for name in names if name}
        return whole

    def _notice(self, event: Notice) -> bytes:
        if event.kind == "ping":
            return _frame(b"ping", {})
        if self._plan.home and event.extras and (body := event.extras.get(FAMILY, {}).get("frame")) is not None:
            return frame(bytes(body), (tag_of(body) or "").encode())
        return b""

    def _end(self, event: ResponseEnd) -> bytes:
        self._ended = True
        closing = self._message_delta(None) if self._stopped is not None or not self._plan.home else b""
        return closing + _frame(b"message_stop", restore({}, event, FAMILY))

    def _fail(self, event: ResponseFailed) -> bytes:
        self._ended = True
        body = encode_error(event.error).body
        return frame(msgspec.json.encode(body), b"error")

    _METHODS: ClassVar[dict[type, Callable[..., bytes]]] = {
        ResponseStart: _start,
        MessageStart: _message_start,
        PartStart: _part_start,
        PartDelta: _delta,
        PartEnd: _part_end,
        Stopped: _stop,
        UsageReport: _report_usage,
        Notice: _notice,
        ResponseEnd: _end,
        ResponseFailed: _fail,
    }


def _frame(kind: bytes, body: dict[str, Any]) -> bytes:
    return frame(msgspec.json.encode({"type": kind.decode(), **body}), kind)


def stream_encoder(context: Context) -> StreamEncoder:
    return Encoder(context)


def _is_called(part: Part) -> bool:
    """Whether a tool of an MCP server was called: it is told whole."""
    return is_connected(part) or (isinstance(part, Foreign) and bool(part.called))
