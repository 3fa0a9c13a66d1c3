"""Canonical events, to OpenRouter's chunks: Chat's, with proofs of reasoning, and errors that are chunks, too.

Chat's encoder writes them. What it has no field for is given to it as notices, whose extras it writes into a chunk.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from toolwire.canonical.content import Part, Reasoning, ReasoningText, Seal, Text, ToolCall
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
from toolwire.canonical.response import Stop
from toolwire.canonical.text_pieces import TextPieces
from toolwire.codec.interface import Context, StreamEncoder
from toolwire.codec.losses import Trail
from toolwire.codec.tools import LOWERED_END, lower_input
from toolwire.protocols.openai_chat.response.errors import OWN
from toolwire.protocols.openai_chat.stream.encoder import stream_encoder as chat_encoder
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.openrouter.parts.details import FIELD, can_prove, encode_entries, field_of, is_run
from toolwire.protocols.openrouter.parts.images import DRAWN, IMAGES, encode_image
from toolwire.protocols.openrouter.parts.messages import encode_proof
from toolwire.protocols.openrouter.request.body import PROTOCOL
from toolwire.protocols.openrouter.response.body import counted, free_text_tools
from toolwire.protocols.openrouter.response.errors import as_own, report_error

_raw = msgspec.json.Encoder().encode
_DONE = b"data: [DONE]\n\n"


class _Thought(Struct):
    """A reasoning that is being told: the texts of its entries so far, and its proof."""

    trail: Trail
    id: str | None
    seal: Seal | None
    first: int
    texts: list[tuple[str, int, TextPieces]] = field(default_factory=list)


class Encoder:
    def __init__(self, context: Context) -> None:
        asked = context.request
        # Usage is always sent, whatever was asked.
        always = None if asked is None else replace(asked, include_usage=True)
        self._chat = chat_encoder(replace(context, request=always))
        self.report = self._chat.report
        self._created = context.created
        self._home = False
        self._ended = False
        self._start: ResponseStart | None = None
        self._thoughts: dict[tuple[int, int], _Thought] = {}
        self._calls: dict[tuple[int, int], str | None] = {}
        self._free = free_text_tools(context)
        self._lowered: set[tuple[int, int]] = set()
        self._proved: set[tuple[int, int]] = set()
        self._names: dict[tuple[int, int], str | None] = {}
        self._positions: dict[tuple[int, int], int] = {}
        self._entries: dict[int, int] = {}
        self._images: dict[int, int] = {}
        self._spoken: set[int] = set()

    @property
    def failure(self) -> ApiError | None:
        return self._chat.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        out = self._chat.encode(self._shown(events))
        return out + _DONE if self._ended and out and not out.endswith(_DONE) else out

    def close(self) -> bytes:
        if self._ended:
            return self._chat.close()
        error = ApiError(kind="server", message="the upstream ended before its answer did")
        return self.encode([ResponseFailed(error=error)])

    def _shown(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            match event:
                case PartDelta(plain=True) if not self._lowered:
                    yield event
                case ResponseStart():
                    self._start, self._home = event, event.origin == PROTOCOL
                    yield replace(event, origin=FAMILY if self._home else "")
                case ResponseEnd():
                    self._ended = self.failure is None
                    yield event
                case ResponseFailed():
                    self._ended = True
                    yield self._failure(event)
                case PartStart() if self._home and (DRAWN in event.part.form or is_run(event.part)):
                    continue  # it was told by the extras that it is of
                case PartDelta(seal=Seal()) if self._home:
                    yield replace(event, seal=None)
                case _ if self._home:
                    yield event
                case _:
                    yield from self._other(event)

    def _other(self, event: Event) -> Iterator[Event]:
        """An event of another protocol, and the notices for what Chat has no place for."""
        match event:
            case MessageStart():
                self._names[event.candidate, event.message] = event.id
                yield event
            case PartStart():
                yield from self._part_start(event)
            case PartDelta():
                yield from self._delta(event)
            case PartEnd():
                yield from self._part_end(event)
            case UsageReport():
                yield replace(event, usage=counted(event.usage))
            case Stopped(stop=Stop(raw=str(raw))) if "native_finish_reason" not in (event.extras or {}).get(FAMILY, {}):
                news = {"native_finish_reason": Raw(_raw(raw))}
                yield Notice(kind=f"choice:{event.candidate}", extras={FAMILY: news})
                yield event
            case _:
                yield event

    # ---- reasoning

    def _part_start(self, event: PartStart) -> Iterator[Event]:
        message = (event.candidate, event.message)
        position = self._positions[message] = self._positions.get(message, -1) + 1
        key = (event.candidate, event.index)
        part: Part = event.part
        if isinstance(part, Reasoning):
            trail: Trail = ("candidates", event.candidate, "messages", event.message, "parts", position)
            id = part.id if part.id is not None else self._names.get(message)
            first = self._entries.get(event.candidate, 0)
            self._thoughts[key] = _Thought(trail, id, part.seal, first)
            yield replace(event, part=replace(part, content=(), seal=None, id=None))
            for block in part.content:
                if isinstance(block, ReasoningText) and block.text:
                    yield self._say(key, block.kind, len(self._thoughts[key].texts), block.text)
            return
        if (image := encode_image(part, self._images.get(event.candidate, 0))) is not None:
            self._images[event.candidate] = image["index"] + 1
            yield _news(event.candidate, **{IMAGES: [image]})
            return
        if isinstance(part, ToolCall) and part.shape == "freeform" and part.name not in self._free:
            self._lowered.add(key)
            head = lower_input(part.arguments)[: -len(LOWERED_END)]
            part = replace(part, shape="json", arguments=head)
        if isinstance(part, Text) or (isinstance(part, ToolCall) and part.executor == "client"):
            self._calls[key] = part.id if isinstance(part, ToolCall) else None
            if part.seal is not None and can_prove(part.seal):
                yield self._prove(key, part.seal)
                part = replace(part, seal=None)
        yield event if part is event.part else replace(event, part=part)

    def _delta(self, event: PartDelta) -> Iterator[Event]:
        key = (event.candidate, event.index)
        if key in self._lowered:
            event = replace(event, text=_raw(event.text)[1:-1].decode(), plain=False)
        if (thought := self._thoughts.get(key)) is None:
            if event.seal is not None and key in self._calls and can_prove(event.seal):
                yield self._prove(key, event.seal)
                event = replace(event, seal=None)
            yield event
            return
        if event.seal is not None:
            thought.seal = event.seal
        if event.text:
            yield self._say(key, event.kind or "full", event.block, event.text)
        if event.extras:
            yield Notice(kind=f"choice:{event.candidate}", extras=event.extras)

    def _say(self, key: tuple[int, int], kind: str, block: int, text: str) -> Notice:
        """A piece of text: of the entry that it belongs to, and as plain text."""
        candidate, thought = key[0], self._thoughts[key]
        plain = text
        if not thought.texts or thought.texts[-1][:2] != (kind, block):
            thought.texts.append((kind, block, TextPieces()))
            plain = "\n\n" + text if candidate in self._spoken else text
        thought.texts[-1][2].append(text)
        self._spoken.add(candidate)
        index = thought.first + len(thought.texts) - 1
        self._entries[candidate] = max(self._entries.get(candidate, 0), index + 1)
        name = field_of(kind)
        entry = {"type": f"reasoning.{name}", name: text, "index": index}
        return _news(candidate, reasoning=plain, **{FIELD: [entry]})

    def _part_end(self, event: PartEnd) -> Iterator[Event]:
        key = (event.candidate, event.index)
        final = event.final
        if key in self._lowered:
            self._lowered.remove(key)
            yield PartDelta(index=event.index, candidate=event.candidate, text=LOWERED_END)
            event, final = replace(event, final=None), None
        if (thought := self._thoughts.pop(key, None)) is None:
            if isinstance(final, ToolCall | Text) and key in self._calls and _provable(final.seal):
                if key not in self._proved and final.seal is not None:
                    yield self._prove(key, final.seal)
                event = replace(event, final=replace(final, seal=None))
            yield event
            return
        if isinstance(final, Reasoning):
            thought.seal = final.seal if final.seal is not None else thought.seal
            thought.id = final.id if final.id is not None else thought.id
        yield from self._proof(thought, event.candidate)
        yield replace(event, final=None)

    def _proof(self, thought: _Thought, candidate: int) -> Iterator[Event]:
        if thought.seal is None:
            return
        if not can_prove(thought.seal):
            self.report.dropped((*thought.trail, "seal"), "", "there is no key to seal another issuer's proof with")
            return
        texts = tuple(
            ReasoningText(kind="summary" if kind == "summary" else "full", text="".join(pieces))
            for kind, _, pieces in thought.texts
        )
        whole = Reasoning(content=texts, seal=thought.seal, id=thought.id)
        proof = encode_entries(whole, thought.id, thought.first)[-1]
        # Its text was told already. A signature goes to the entry of the text that it signs.
        if proof.pop("text", None) is not None:
            proof["index"] = thought.first + len(texts) - 1
        self._entries[candidate] = max(self._entries.get(candidate, 0), proof["index"] + 1)
        yield _news(candidate, **{FIELD: [proof]})

    def _prove(self, key: tuple[int, int], seal: Seal) -> Notice:
        index = self._entries.get(key[0], 0)
        self._entries[key[0]] = index + 1
        self._proved.add(key)
        return _news(key[0], **{FIELD: encode_proof(seal, self._calls[key], index)})

    # ---- errors

    def _failure(self, event: ResponseFailed) -> ResponseFailed:
        """An error within a stream stands in a chunk like any other."""
        error = as_own(event.error)
        if OWN not in event.error.form:
            report_error(event.error, ("error",), self.report)
        start = self._start
        if start is None:
            if OWN in event.error.form:
                return replace(event, error=error)
            start = ResponseStart(origin="")
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": "error"}
        chunk: dict[str, Any] = {
            "id": start.id or "",
            "object": "chat.completion.chunk",
            "created": int(start.created or self._created),
            "model": start.model or "",
            "choices": [choice],
        }
        own = {**(error.extras or {}).get(FAMILY, {}), **{name: Raw(_raw(value)) for name, value in chunk.items()}}
        return replace(event, error=replace(error, extras={**(error.extras or {}), FAMILY: own}))


def _provable(seal: Seal | None) -> bool:
    return seal is not None and can_prove(seal)


def _news(candidate: int, **delta: Any) -> Notice:
    news = {f"delta/{name}": Raw(_raw(value)) for name, value in delta.items()}
    return Notice(kind=f"choice:{candidate}", extras={FAMILY: news})


def stream_encoder(context: Context) -> StreamEncoder:
    return Encoder(context)
