"""Chat's chunks, to canonical events.

    chunk(role)  chunk(content | refusal | reasoning | tool_calls)*  chunk(finish_reason)  [chunk(usage)]  [DONE]

1. A part ends when one of another kind starts, or with its answer (`choices`); `fragments` tells when a call does.
2. What only this protocol has is told twice: as it arrives, in the extras of a delta or a notice, for home; and all of
   it together at the end, so that it is in the folded response.
3. Without `[DONE]` a finish reason is enough, and without a finish reason `[DONE]` is, unless a call was cut.
"""

from operator import attrgetter

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.events import Event, ResponseEnd, ResponseFailed, ResponseStart, UsageReport
from toolwire.codec.fields import BAD_JSON, Reader, check_candidate
from toolwire.codec.interface import Context, StreamDecoder
from toolwire.codec.kept import known
from toolwire.codec.sse import SseSplitter
from toolwire.protocols.openai_chat.parts.content import kept
from toolwire.protocols.openai_chat.response.body import decode_usage
from toolwire.protocols.openai_chat.response.errors import decode_error_object
from toolwire.protocols.openai_chat.wire import FAMILY, ChunkShape

from .choices import Choice
from .repeats import Repeats, repeats_of

_reader = Reader[ChunkShape](ChunkShape, FAMILY)
_fast = msgspec.json.Decoder(ChunkShape).decode
_CHUNK_EXTRAS = ("service_tier", "system_fingerprint", "provider")
_chunk_extras = attrgetter(*_CHUNK_EXTRAS)
_NULL = Raw(b"null")
LOGPROBS = "openai-chat:logprobs:said"


class Decoder:
    def __init__(self) -> None:
        self._splitter = SseSplitter()
        self._started = False
        self._ended = False
        self._finished = False
        self._id = ""
        self._choices: dict[int, Choice] = {}
        self._repeats: Repeats | None = None
        self._said: tuple[Raw | UnsetType, ...] = ()
        self._seen: dict[str, Raw] = {}
        self._early: dict[str, Raw] = {}
        self._late: dict[str, Raw] = {}

    def feed(self, data: bytes) -> list[Event]:
        try:
            return self._read(self._splitter.feed(data))
        except ValueError as error:
            return self._break(str(error))

    def close(self) -> list[Event]:
        events = self._read(self._splitter.close())
        if self._ended:
            return events
        if not self._finished:
            return events + self._break("the stream ended before its answer did")
        return events + self._done()

    def _read(self, frames: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for data in frames:
            if self._ended:
                break
            if (repeats := self._repeats) is not None and self._go_on(repeats, data, events):
                continue
            try:
                try:
                    shape = _fast(data)
                except BAD_JSON:
                    if data.startswith(b"[DONE]"):
                        events += self._done()
                        break
                    shape = _reader.read(data)
                self._take(shape, events)
                if self._repeats is None and shape.choices:
                    self._repeats = repeats_of(data, shape)
            except (DecodeError, *BAD_JSON) as error:
                if not self._finished:
                    events += self._break(str(error))
                break
        return events

    def _go_on(self, repeats: Repeats, data: bytes, events: list[Event]) -> bool:
        """Whether a chunk is one of those that only go on with what is being said."""
        choice, words = self._choices[repeats.choice], repeats.words
        if words is not None and (text := words.go_on(data)) and choice.go_on(words.call, text, events):
            return True
        if (delta := repeats.delta(data)) is None:
            return False
        choice.grow(delta, events)
        return True

    def _take(self, shape: ChunkShape, events: list[Event]) -> None:
        if shape.error is not UNSET and shape.error != _NULL:
            events += self._fail(decode_error_object(shape.error, None))
            return
        if not self._started:
            self._start(shape, events)
        elif shape.unknown is not UNSET or _chunk_extras(shape) != self._said:
            self._notice_extras(shape)
        for place, choice in enumerate(shape.choices or ()):
            number = 0 if choice.index is UNSET else choice.index
            if (state := self._choices.get(number)) is None:
                check_candidate(number, FAMILY, f"/choices/{place}/index")
                state = self._choices[number] = Choice(number, self._id)
            state.take(choice, events)
            if state.finished:
                self._finished = True
        if shape.usage is not UNSET and shape.usage is not None:
            events.append(UsageReport(usage=decode_usage(shape.usage)))

    def _start(self, shape: ChunkShape, events: list[Event]) -> None:
        found = kept(shape)
        extras = (found.get("extras") or {}).get(FAMILY, {})
        if not shape.choices and not shape.id:
            # Azure's first chunk says only what its filter thinks of the prompt.
            self._early.update(extras)
            return
        self._started = True
        self._id = known(shape.id) or ""
        extras = {**self._early, **extras}
        self._seen = dict(extras)
        tokens = tuple(token for token in found.get("form", ()) if not token.endswith(":obfuscation"))
        if shape.choices and shape.choices[0].logprobs is not UNSET:
            tokens = (*tokens, LOGPROBS)
        events.append(
            ResponseStart(
                origin=FAMILY,
                id=known(shape.id),
                model=known(shape.model),
                created=known(shape.created),
                extras={FAMILY: extras} if extras else None,
                form=tokens,
            )
        )

    def _notice_extras(self, shape: ChunkShape) -> None:
        """What a later chunk says of the whole response, if it is news."""
        self._repeats = None  # what it says no more may be said again
        self._said = _chunk_extras(shape)
        for name, value in zip(_CHUNK_EXTRAS, self._said, strict=True):
            if value is not UNSET:
                self._notice_extra(name, value)
        if shape.unknown is not UNSET:
            for name, value in shape.unknown.items():
                self._notice_extra(name, value)

    def _notice_extra(self, name: str, value: Raw) -> None:
        if value not in (_NULL, self._seen.get(name)):
            self._seen[name] = value
            self._late[name] = value

    def _done(self) -> list[Event]:
        self._ended = True
        if not self._started or any(state.is_broken() for state in self._choices.values()):
            return self._break("the stream ended in the middle of its answer")
        events: list[Event] = []
        for state in self._choices.values():
            state.finish(None, events)
        return [*events, ResponseEnd(extras={FAMILY: self._late} if self._late else None)]

    def _fail(self, error: ApiError) -> list[Event]:
        self._ended = True
        return [ResponseFailed(error=error)]

    def _break(self, why: str) -> list[Event]:
        """The stream itself is at fault: nothing after this is read."""
        self._ended = True
        return [ResponseFailed(error=ApiError(kind="server", message=why), broken=True)]


def stream_decoder(context: Context) -> StreamDecoder:
    return Decoder()
