"""What is kept of one exchange.

What was said in a recorded exchange, in the canonical model.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.fold import fold
from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.interface import ResponseContext, Route
from toolwire.protocols import PROTOCOLS

USAGE_COUNTS = ("input_tokens", "output_tokens", "cache_read", "cache_write", "reasoning", "tool_use", "total")
UniqueFields = tuple[str, float, float | None, float | None, float, str | None, tuple[int | None, ...]]


class Bodies(Struct, kw_only=True, omit_defaults=True, gc=False):
    """What went over the wire: the client's request, what was made of it for the provider, and the client's answer.
    `folded`: of a stream only the answer that it told is kept."""

    request: bytes = b""
    translated: bytes = b""
    response: bytes = b""
    folded: bool = False

    @property
    def by_name(self) -> dict[str, bytes]:
        return {"request": self.request, "translated": self.translated, "response": self.response}

    def __len__(self) -> int:
        return len(self.request) + len(self.translated) + len(self.response)


class Record(Struct, kw_only=True, omit_defaults=True, gc=False):
    """One exchange. `at` is when it came, in seconds since the epoch; `sent`, `answered` and `ended` are seconds after
    that: the translated request was ready, the answer began, the client had all of it. `toolwire` is the version that
    did it, `client` and `protocol` what was spoken on either side, `parent` the trace that it belongs to. `answer` is
    how the provider named its answer, `answered_by` how its model, and `stops` why it ended."""

    id: str
    at: float
    toolwire: str
    client: str
    path: str
    route: Route = field(default_factory=Route)
    tenant: str = ""
    strict: bool = False
    provider: str = ""
    protocol: str = ""
    model: str = ""
    status: int = 0
    streamed: bool = False
    error: str = ""
    sent: float | None = None
    answered: float | None = None
    ended: float = 0.0
    usage: dict[str, int] = field(default_factory=dict)
    response_id: str | None = None
    response_model: str | None = None
    stop_reasons: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    traceparent: str = ""
    bodies: Bodies | None = None

    @property
    def size(self) -> int:
        return record_size(self.losses, self.bodies)

    @property
    def unique_fields(self) -> UniqueFields:
        counts = tuple([self.usage.get(name) for name in USAGE_COUNTS])
        return self.id, self.at, self.sent, self.answered, self.ended, self.response_id, counts

    @property
    def repeated_fields(self) -> tuple[Any, ...]:
        return _repeated_fields(self)

    def to_record(self) -> "Record":
        return self


class JournalEntry(Protocol):
    """What is to be recorded. `own` is what is each one's, and `shared` what one has as the one before it, mostly:
    then the record itself need not be made."""

    @property
    def at(self) -> float: ...
    @property
    def bodies(self) -> Bodies | None: ...
    @property
    def size(self) -> int: ...
    @property
    def unique_fields(self) -> UniqueFields: ...
    @property
    def repeated_fields(self) -> tuple[Any, ...]: ...
    def to_record(self) -> Record: ...


def record_size(losses: Sequence[Loss], bodies: Bodies | None) -> int:
    """What it takes to keep a record, roughly."""
    return 500 + 200 * len(losses) + (0 if bodies is None else len(bodies))


_UNIQUE_FIELDS = ("id", "at", "sent", "answered", "ended", "response_id", "usage")
_repeated_fields = attrgetter(*(name for name in Record.__struct_fields__ if name not in (*_UNIQUE_FIELDS, "bodies")))
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Record | UniqueFields])


class PackedRecords(Struct, gc=False):
    """Records as they are kept, one after the other. `at` is when the last of them came, `bodies` whether they have
    any."""

    data: bytes
    count: int
    at: float
    bodies: bool


def pack_records(entries: Sequence[JournalEntry], redact: Callable[[Record], Record]) -> PackedRecords:
    """Not as JSON: bodies are bytes, and stay as they are. Of an exchange that is like the one before it only what is
    its own is kept."""
    data = bytearray()
    before: tuple[Any, ...] = ()
    at, bodies = 0.0, False
    for entry in entries:
        shared = entry.repeated_fields
        if entry.bodies is not None or shared != before:
            bodies = bodies or entry.bodies is not None
            _ENCODER.encode_into(redact(entry.to_record()), data, -1)
            before = shared
        else:
            _ENCODER.encode_into(entry.unique_fields, data, -1)
        at = max(at, entry.at)
    return PackedRecords(bytes(data), len(entries), at, bodies)


class RecordBatch:
    """Some records, as they are written at once."""

    def __init__(self, packs: Sequence[PackedRecords]) -> None:
        self.count = sum([pack.count for pack in packs])
        self._packs = packs

    def __bytes__(self) -> bytes:
        """All of them as one list."""
        return b"\xdd%b%b" % (self.count.to_bytes(4, "big"), b"".join([pack.data for pack in self._packs]))

    @property
    def at(self) -> float:
        return max(pack.at for pack in self._packs)

    @property
    def bodies(self) -> bool:
        return any(pack.bodies for pack in self._packs)

    @cached_property
    def records(self) -> list[Record]:
        return decode_records(bytes(self))


def encode_records(records: Sequence[Record]) -> bytes:
    return bytes(RecordBatch([pack_records(records, Record.to_record)]))


def decode_records(data: bytes) -> list[Record]:
    records: list[Record] = []
    for found in _DECODER.decode(data):
        if isinstance(found, Record):
            records.append(found)
        elif not records:
            raise msgspec.ValidationError("the first record is told by one before it")
        else:
            id, at, sent, answered, ended, answer, counts = found
            usage = {name: count for name, count in zip(USAGE_COUNTS, counts, strict=False) if count is not None}
            own = {"id": id, "at": at, "sent": sent, "answered": answered, "ended": ended, "response_id": answer}
            records.append(replace(records[-1], **own, usage=usage, bodies=None))
    return records


def record_as_json(record: Record) -> dict[str, object]:
    """The record as JSON data: bodies as JSON where they are, else as text."""
    whole: dict[str, object] = msgspec.to_builtins(replace(record, bodies=None))
    if record.bodies is not None:
        whole["bodies"] = {name: body_content(data) for name, data in record.bodies.by_name.items() if data}
    return whole


def body_content(data: bytes) -> object:
    """A body as the JSON that it is, or else as text."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return data.decode("utf-8", "replace")


def decode_recorded_request(record: Record) -> Request | None:
    """What the client asked; None if that is not known, or can't be read."""
    if record.bodies is None:
        return None
    try:
        return PROTOCOLS[record.client].decode_request(record.bodies.request, record.route)
    except ToolwireError:
        return None


def decode_recorded_response(record: Record) -> Response | None:
    """What the client was answered, streamed or whole; None if that is not known, or was no answer."""
    request = decode_recorded_request(record)
    if record.bodies is None or request is None or (record.status >= 300 and not record.streamed):
        return None
    codec, context, data = PROTOCOLS[record.client], ResponseContext(request=request), record.bodies.response
    try:
        if record.bodies.folded or not record.streamed:
            return codec.decode_response(data, context)
        decoder = codec.stream_decoder(context)
        return fold([*decoder.feed(data), *decoder.close()])
    except ToolwireError:
        return None


def recorded_response_body(record: Record) -> bytes:
    """What the client was answered: a stream as the answer that it tells."""
    if record.bodies is None:
        return b""
    if record.bodies.folded or not record.streamed or (response := decode_recorded_response(record)) is None:
        return record.bodies.response
    codec = PROTOCOLS[record.client]
    if response.error is not None and not response.candidates:
        return codec.encode_error(response.error).to_bytes()
    return codec.encode_response(response, ResponseContext(request=decode_recorded_request(record))).to_bytes()
