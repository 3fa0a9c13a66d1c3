"""Canonical events to streams of OpenRouter: Chat's chunks, with `reasoning_details` and error chunks.

Chat's encoder writes the chunks. Fields that it does not know are passed as notices, whose extras it adds to a chunk.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from toolwire.canonical.content import Part, Reasoning, ReasoningText, Signature, Text, ToolCall
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
from toolwire.canonical.response import Stop
from toolwire.codec.encoding.tools import WRAPPED_INPUT_END, wrap_freeform_input
from toolwire.codec.interface import ResponseContext, StreamEncoder
from toolwire.codec.losses import SourcePath
from toolwire.protocols.openai_chat.errors import ERROR_FORM
from toolwire.protocols.openai_chat.stream_encoder import stream_encoder as chat_encoder
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.openrouter.errors import as_openrouter_error, report_error
from toolwire.protocols.openrouter.parts.content import (
    DETAILS_FIELD,
    IMAGE_FORM,
    IMAGES,
    encode_entries,
    encode_image,
    entry_field,
    is_known_issuer,
    is_server_tool_entry,
)
from toolwire.protocols.openrouter.parts.messages import encode_signature
from toolwire.protocols.openrouter.request import PROTOCOL
from toolwire.protocols.openrouter.response import freeform_tool_names, with_hosted_counts

_encode_json = msgspec.json.Encoder().encode
_STREAM_END = b"data: [DONE]\n\n"


class _OpenReasoning(Struct):
    """A reasoning that has started and not ended."""

    path: SourcePath
    id: str | None
    signature: Signature | None
    first_index: int  # of its entries
    texts: list[tuple[str, int, TextPieces]] = field(default_factory=list)  # kind, block and pieces of each entry


class Encoder:
    """The stream encoder of OpenRouter, on top of Chat's."""

    def __init__(self, context: ResponseContext) -> None:
        # OpenRouter always sends usage.
        request = None if context.request is None else replace(context.request, include_usage=True)
        self._chat = chat_encoder(replace(context, request=request))
        self.report = self._chat.report
        self._created = context.created
        self._same_protocol = False
        self._ended = False
        self._start: ResponseStart | None = None
        self._open_reasoning: dict[tuple[int, int], _OpenReasoning] = {}
        self._call_ids: dict[tuple[int, int], str | None] = {}
        self._freeform_names = freeform_tool_names(context)
        self._wrapped_calls: set[tuple[int, int]] = set()
        self._signed_parts: set[tuple[int, int]] = set()
        self._message_ids: dict[tuple[int, int], str | None] = {}
        self._part_counts: dict[tuple[int, int], int] = {}
        self._entry_counts: dict[int, int] = {}
        self._image_counts: dict[int, int] = {}
        self._started_reasoning: set[int] = set()

    @property
    def failure(self) -> ApiError | None:
        """The error that ended the stream, if any."""
        return self._chat.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        """Encode events; a finished stream ends with `[DONE]`."""
        out = self._chat.encode(self._adapt_events(events))
        return out + _STREAM_END if self._ended and out and not out.endswith(_STREAM_END) else out

    def close(self) -> bytes:
        """End the stream; a failure is sent if the response is incomplete."""
        if self._ended:
            return self._chat.close()
        error = ApiError(kind="server", message="the upstream ended before the response was complete")
        return self.encode([ResponseFailed(error=error)])

    def _adapt_events(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events as Chat's encoder must receive them to write OpenRouter's stream."""
        for event in events:
            match event:
                case PartDelta(plain=True) if not self._wrapped_calls:
                    yield event
                case ResponseStart():
                    self._start, self._same_protocol = event, event.origin == PROTOCOL
                    yield replace(event, origin=FAMILY if self._same_protocol else "")
                case ResponseEnd():
                    self._ended = self.failure is None
                    yield event
                case ResponseFailed():
                    self._ended = True
                    yield self._encode_failure(event)
                case PartStart() if self._same_protocol and (
                    IMAGE_FORM in event.part.wire_form or is_server_tool_entry(event.part)
                ):
                    continue  # sent in the extras of its message
                case PartDelta(signature=Signature()) if self._same_protocol:
                    yield replace(event, signature=None)
                case _ if self._same_protocol:
                    yield event
                case _:
                    yield from self._encode_foreign(event)

    def _encode_foreign(self, event: Event) -> Iterator[Event]:
        """Yield the events for Chat's encoder that stand for another protocol's event.

        Fields that OpenRouter has and Chat lacks become notices, whose extras Chat's encoder writes.
        """
        match event:
            case MessageStart():
                self._message_ids[event.candidate, event.message] = event.id
                yield event
            case PartStart():
                yield from self._part_start(event)
            case PartDelta():
                yield from self._part_delta(event)
            case PartEnd():
                yield from self._part_end(event)
            case UsageReport():
                yield replace(event, usage=with_hosted_counts(event.usage))
            case CandidateEnd(stop=Stop(raw=str(raw))) if "native_finish_reason" not in (event.extras or {}).get(
                FAMILY, {}
            ):
                extras = {"native_finish_reason": Raw(_encode_json(raw))}
                yield Notice(kind=f"choice:{event.candidate}", extras={FAMILY: extras})
                yield event
            case _:
                yield event

    # ---- reasoning

    def _part_start(self, event: PartStart) -> Iterator[Event]:
        """Yield the events for Chat's encoder that start a part.

        Reasoning, images and signatures, which Chat has no fields for, become notices.
        """
        message = (event.candidate, event.message)
        position = self._part_counts[message] = self._part_counts.get(message, -1) + 1
        key = (event.candidate, event.index)
        part: Part = event.part
        if isinstance(part, Reasoning):
            yield from self._start_reasoning(event, part, position)
            return
        if (image := encode_image(part, self._image_counts.get(event.candidate, 0))) is not None:
            self._image_counts[event.candidate] = image["index"] + 1
            yield _delta_notice(event.candidate, **{IMAGES: [image]})
            return
        if isinstance(part, ToolCall) and part.shape == "freeform" and part.name not in self._freeform_names:
            self._wrapped_calls.add(key)
            arguments = wrap_freeform_input(part.arguments)[: -len(WRAPPED_INPUT_END)]
            part = replace(part, shape="json", arguments=arguments)
        if isinstance(part, Text) or (isinstance(part, ToolCall) and part.executor == "client"):
            self._call_ids[key] = part.id if isinstance(part, ToolCall) else None
            if part.signature is not None and is_known_issuer(part.signature):
                yield self._encode_signature(key, part.signature)
                part = replace(part, signature=None)
        yield event if part is event.part else replace(event, part=part)

    def _start_reasoning(self, event: PartStart, part: Reasoning, position: int) -> Iterator[Event]:
        """Yield the events that start reasoning, with the texts that it starts with."""
        key = (event.candidate, event.index)
        path = ("candidates", event.candidate, "messages", event.message, "parts", position)
        id = part.id if part.id is not None else self._message_ids.get((event.candidate, event.message))
        first_index = self._entry_counts.get(event.candidate, 0)
        reasoning = self._open_reasoning[key] = _OpenReasoning(path, id, part.signature, first_index)
        yield replace(event, part=replace(part, content=(), signature=None, id=None))
        for block in part.content:
            if isinstance(block, ReasoningText) and block.text:
                yield self._encode_text(key, block.kind, len(reasoning.texts), block.text)

    def _part_delta(self, event: PartDelta) -> Iterator[Event]:
        """Yield the events for Chat's encoder that stand for a delta."""
        key = (event.candidate, event.index)
        if key in self._wrapped_calls:
            event = replace(event, text=_encode_json(event.text)[1:-1].decode(), plain=False)
        if (reasoning := self._open_reasoning.get(key)) is None:
            if event.signature is not None and key in self._call_ids and is_known_issuer(event.signature):
                yield self._encode_signature(key, event.signature)
                event = replace(event, signature=None)
            yield event
            return
        if event.signature is not None:
            reasoning.signature = event.signature
        if event.text:
            yield self._encode_text(key, event.kind or "full", event.block, event.text)
        if event.extras:
            yield Notice(kind=f"choice:{event.candidate}", extras=event.extras)

    def _encode_text(self, key: tuple[int, int], kind: str, block: int, text: str) -> Notice:
        """Return a notice with a piece of reasoning text, in `reasoning_details` and in `reasoning`."""
        candidate, reasoning = key[0], self._open_reasoning[key]
        plain_text = text
        if not reasoning.texts or reasoning.texts[-1][:2] != (kind, block):
            reasoning.texts.append((kind, block, TextPieces()))
            plain_text = "\n\n" + text if candidate in self._started_reasoning else text
        reasoning.texts[-1][2].append(text)
        self._started_reasoning.add(candidate)
        index = reasoning.first_index + len(reasoning.texts) - 1
        self._entry_counts[candidate] = max(self._entry_counts.get(candidate, 0), index + 1)
        name = entry_field(kind)
        entry = {"type": f"reasoning.{name}", name: text, "index": index}
        return _delta_notice(candidate, reasoning=plain_text, **{DETAILS_FIELD: [entry]})

    def _part_end(self, event: PartEnd) -> Iterator[Event]:
        """Yield the events for Chat's encoder that end a part."""
        key = (event.candidate, event.index)
        final = event.final
        if key in self._wrapped_calls:
            self._wrapped_calls.remove(key)
            yield PartDelta(index=event.index, candidate=event.candidate, text=WRAPPED_INPUT_END)
            event, final = replace(event, final=None), None
        if (reasoning := self._open_reasoning.pop(key, None)) is None:
            if isinstance(final, ToolCall | Text) and key in self._call_ids and _is_usable_signature(final.signature):
                if key not in self._signed_parts and final.signature is not None:
                    yield self._encode_signature(key, final.signature)
                event = replace(event, final=replace(final, signature=None))
            yield event
            return
        if isinstance(final, Reasoning):
            reasoning.signature = final.signature if final.signature is not None else reasoning.signature
            reasoning.id = final.id if final.id is not None else reasoning.id
        yield from self._encode_reasoning_signature(reasoning, event.candidate)
        yield replace(event, final=None)

    def _encode_reasoning_signature(self, reasoning: _OpenReasoning, candidate: int) -> Iterator[Event]:
        """Yield a notice with the signature of completed reasoning, if it has a usable one."""
        if reasoning.signature is None:
            return
        if not is_known_issuer(reasoning.signature):
            self.report.dropped(
                (*reasoning.path, "signature"), "", "no envelope key to preserve the signature of another issuer"
            )
            return
        texts = tuple(
            ReasoningText(kind="summary" if kind == "summary" else "full", text="".join(pieces))
            for kind, _, pieces in reasoning.texts
        )
        signed = Reasoning(content=texts, signature=reasoning.signature, id=reasoning.id)
        entry = encode_entries(signed, reasoning.id, reasoning.first_index)[-1]
        # The text has been sent. A signature belongs to the entry of the text that it signs.
        if entry.pop("text", None) is not None:
            entry["index"] = reasoning.first_index + len(texts) - 1
        self._entry_counts[candidate] = max(self._entry_counts.get(candidate, 0), entry["index"] + 1)
        yield _delta_notice(candidate, **{DETAILS_FIELD: [entry]})

    def _encode_signature(self, key: tuple[int, int], signature: Signature) -> Notice:
        """Return a notice that adds the signature of a text or call to `reasoning_details`.

        Chat's encoder writes the extras of a notice into a chunk. `key` is the candidate and the part index.
        """
        index = self._entry_counts.get(key[0], 0)
        self._entry_counts[key[0]] = index + 1
        self._signed_parts.add(key)
        return _delta_notice(key[0], **{DETAILS_FIELD: encode_signature(signature, self._call_ids[key], index)})

    # ---- errors

    def _encode_failure(self, event: ResponseFailed) -> ResponseFailed:
        """Return the failure with the fields of a chunk in its error's extras: OpenRouter sends errors in chunks."""
        error = as_openrouter_error(event.error)
        if ERROR_FORM not in event.error.wire_form:
            report_error(event.error, ("error",), self.report)
        start = self._start
        if start is None:
            if ERROR_FORM in event.error.wire_form:
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
        chunk_extras = {
            **(error.extras or {}).get(FAMILY, {}),
            **{name: Raw(_encode_json(value)) for name, value in chunk.items()},
        }
        return replace(event, error=replace(error, extras={**(error.extras or {}), FAMILY: chunk_extras}))


def _is_usable_signature(signature: Signature | None) -> bool:
    """Return whether there is a signature that `reasoning_details` can hold."""
    return signature is not None and is_known_issuer(signature)


def _delta_notice(candidate: int, **delta: Any) -> Notice:
    """Return a notice whose extras Chat's encoder writes into the delta of a chunk."""
    extras = {f"delta/{name}": Raw(_encode_json(value)) for name, value in delta.items()}
    return Notice(kind=f"choice:{candidate}", extras={FAMILY: extras})


def stream_encoder(context: ResponseContext) -> StreamEncoder:
    """Return an encoder for one response stream."""
    return Encoder(context)
